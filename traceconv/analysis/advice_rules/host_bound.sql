-- title = "The device waits for the host"
-- doc = "Idle times of 1 ms or more in which the launching thread did something else than launching, waiting for the device, or loading data (cause host of idle-gaps, a heuristic). The subjects are what it did."
-- saving = "Time without work on the device up to the next launch, in gaps of 1 ms or more: an upper bound, reached if the host is always ahead of the device."
-- basis = "upper bound"
-- suggestion = "Look at what the host does in the gaps (export a timeline). Move work such as logging, checkpoints, metrics or preprocessing off the launching thread, or launch the next work before it."
-- reads = ["idle-gaps"]
-- evidence = "FROM idle_gaps(run := $run, device := $device) WHERE cause = 'host' AND gap_ns >= 1000000 ORDER BY gap_ns DESC"
SELECT device_id, host_name AS subject, host_wait_ns AS saving_ns, 1 AS count
FROM advice_gap
WHERE cause = 'host' AND gap_ns >= 1000000
