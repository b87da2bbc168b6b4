-- title = "Allocations of device memory stall the device"
-- doc = "Calls that allocate and free device memory, in runs with two or more that free: a caching allocator that is fragmented or full frees and allocates again, which waits for the device. Calls for pools, and those that only allocate, aren't counted."
-- saving = "Time in calls that allocate and free memory, in idle times of 10 µs or more: an upper bound, reached if all memory stays allocated."
-- basis = "upper bound"
-- suggestion = "If these calls are in the first steps, in which libraries are initialised, record later ones. Else reduce fragmentation: expandable segments (PyTorch), fixed shapes or padding, smaller batches near the limit of memory; see the report memory-peak for reserved but unused bytes."
-- reads = ["idle-gaps"]
-- only_if = "SELECT count(*) >= 2 FROM api WHERE run_id = $run AND name IN ('cudaFree', 'hipFree', 'cuMemFree_v2', 'aclrtFree', 'AscendCL@aclrtFree')"
-- evidence = "SELECT a.name, a.start_ns, a.dur_ns, least(TRY(a.start_ns + a.dur_ns), g.end_ns) - greatest(a.start_ns, g.start_ns) AS saving_ns FROM api AS a JOIN idle_gaps(run := $run, device := $device) AS g ON a.start_ns < g.end_ns AND TRY(a.start_ns + a.dur_ns) > g.start_ns WHERE a.run_id = $run AND regexp_matches(a.name, '(cuda|hip|aclrt)(Malloc|Free)(Align32)?$') ORDER BY saving_ns DESC"
SELECT g.device_id, a.name AS subject, least(TRY(a.start_ns + a.dur_ns), g.end_ns) - greatest(a.start_ns, g.start_ns) AS saving_ns, 1 AS count
FROM api AS a
JOIN advice_gap AS g ON a.start_ns < g.end_ns AND TRY(a.start_ns + a.dur_ns) > g.start_ns
WHERE a.run_id = $run AND regexp_matches(a.name, '(cuda|hip|aclrt)(Malloc|Free)(Align32)?$')
