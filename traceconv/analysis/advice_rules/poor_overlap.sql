-- title = "Communication is not hidden by computation"
-- doc = "Time during which collectives ran, but no computation. It includes waits for other ranks."
-- saving = "The exposed time of collectives, but not more than the time without collectives: an upper bound, as results that are needed at once can't be hidden."
-- basis = "upper bound"
-- suggestion = "Start collectives earlier (gradient buckets, asynchronous calls), send less (compression, sharding), and check whether a late rank makes the others wait (stragglers)."
-- reads = ["breakdown"]
-- evidence = "SELECT device_id, collective_ns, exposed_collective_ns, overlap_percent, window_ns - collective_ns AS other_ns, least(exposed_collective_ns, window_ns - collective_ns) AS saving_ns FROM breakdown(run := $run, device := $device)"
SELECT device_id, NULL AS subject, least(exposed_collective_ns, window_ns - collective_ns) AS saving_ns, 1 AS count
FROM advice_device
