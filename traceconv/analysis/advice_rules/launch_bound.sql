-- title = "Launching takes longer than running"
-- doc = "Idle times below 1 ms that end when the next task is launched, as if each launch costs the host more than the task runs. Below 10 µs: the time up to the launch plus the latency of a launch on this device, which is the shortest time from launch to start (the first percentile of tasks that end an idle time). From 10 µs: gaps with the cause host or launch of idle-gaps."
-- saving = "Idle times below 1 ms that end with a launch: an upper bound, reached if all tasks are launched at once. Batches that are N times as large save (N − 1) / N of it."
-- basis = "upper bound"
-- suggestion = "Launch less often: capture a graph (CUDA graphs, ACL graphs), compile or fuse, or use larger batches."
-- reads = ["launch", "idle-gaps", "idle-causes"]
-- evidence = "WITH $pauses, timed AS (SELECT *, TRY(end_ns - start_ns) AS gap_ns, quantile_disc(delay_ns, 0.01) OVER () AS latency_ns FROM pause) SELECT task_name, start_ns, end_ns, gap_ns, least(gap_ns, gap_ns + latency_ns - delay_ns) AS saving_ns FROM timed WHERE gap_ns < 10000 AND gap_ns + latency_ns > delay_ns UNION ALL SELECT task_name, start_ns, end_ns, gap_ns, gap_ns FROM idle_gaps(run := $run, device := $device) WHERE cause IN ('host', 'launch') AND gap_ns < 1000000 ORDER BY saving_ns DESC"
SELECT device_id, NULL AS subject, host_ns AS saving_ns, host_count AS count
FROM advice_idle
UNION ALL
SELECT device_id, NULL, gap_ns, 1
FROM advice_gap
WHERE cause IN ('host', 'launch') AND gap_ns < 1000000
