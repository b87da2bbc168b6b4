-- title = "Launched tasks start late"
-- doc = "Idle times of 1 ms or more in which the next task was launched most of the time, but had not started (cause launch of idle-gaps). First launches load and compile code; others wait for memory, the driver or another process. The subjects are the tasks."
-- saving = "Time from a launch to the start of its task, in idle times of 1 ms or more: an upper bound."
-- basis = "upper bound"
-- suggestion = "Run warm-up iterations before those that count; load code eagerly; check for other processes on the device and for the time that the profiler needs."
-- reads = ["launch", "idle-gaps", "idle-causes"]
-- evidence = "FROM idle_gaps(run := $run, device := $device) WHERE cause = 'launch' AND gap_ns >= 1000000 ORDER BY gap_ns DESC"
SELECT device_id, kernel_label(task_name) AS subject, least(gap_ns, launch_delay_ns) AS saving_ns, 1 AS count
FROM advice_gap
WHERE cause = 'launch' AND gap_ns >= 1000000
