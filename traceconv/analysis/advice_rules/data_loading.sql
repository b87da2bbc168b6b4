-- title = "The device waits for data"
-- doc = "Idle times of 10 µs or more during which the launching thread, or the one for which it launches, was inside a data loader (cause data_loading of idle-gaps, by names of ranges)."
-- saving = "Time without work on the device while the host was in a data loader, up to the next launch: an upper bound, reached if batches are always ready."
-- basis = "upper bound"
-- suggestion = "Load ahead: more workers, prefetching, pinned memory, persistent workers; decode or augment on the device; store preprocessed data."
-- reads = ["idle-gaps"]
-- evidence = "FROM idle_gaps(run := $run, device := $device) WHERE cause = 'data_loading' ORDER BY gap_ns DESC"
SELECT device_id, host_name AS subject, host_wait_ns AS saving_ns, 1 AS count
FROM advice_gap
WHERE cause = 'data_loading'
