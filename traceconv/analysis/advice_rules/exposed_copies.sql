-- title = "Copies are not hidden by computation"
-- doc = "Time during which copies ran, but neither computation nor a collective, between the first and the last compute task of the run."
-- saving = "The exposed time of copies, but not more than the compute time: an upper bound, as a copy whose result is needed at once can't be hidden."
-- basis = "upper bound"
-- suggestion = "Copy the next input during computation, on a stream of its own and from pinned memory; leave data on the device between steps; copy smaller types."
-- reads = ["breakdown"]
-- evidence = "SELECT label, count, total_ns FROM kernels(run := $run, device := $device) WHERE kind = 'copy' ORDER BY total_ns DESC"
SELECT device_id, NULL AS subject, least(exposed_copy_ns, compute_ns) AS saving_ns, 1 AS count
FROM advice_middle
