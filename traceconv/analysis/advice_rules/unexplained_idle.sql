-- title = "The device is idle, and the trace doesn't show why"
-- doc = "Idle times of 10 µs or more before tasks whose launch is unknown, so that idle-gaps has no cause. Not on the host's CPU, which needs no launch."
-- saving = "Idle times of 10 µs or more before tasks whose launch is unknown: an upper bound, reached if the device always has work."
-- basis = "upper bound"
-- suggestion = "Record the host too, with the calls that launch tasks (PyTorch: ProfilerActivity.CPU; rocprofv3: --hip-trace; nsys: --trace=cuda), and run advise again."
-- reads = ["idle-gaps", "idle-causes"]
-- least_percent = 10
-- evidence = "FROM idle_gaps(run := $run, device := $device) WHERE cause IS NULL ORDER BY gap_ns DESC"
SELECT device_id, NULL AS subject, gap_ns AS saving_ns, 1 AS count
FROM advice_gap AS g
WHERE cause IS NULL
  AND NOT EXISTS (FROM device AS d WHERE d.run_id = $run AND d.device_id = g.device_id AND d.kind = 'CPU')
