-- title = "Elementwise operators could be fused"
-- doc = "Elementwise tasks directly after another elementwise task or a normalization on their stream in the same step, or before a normalization. A heuristic: whether the second one uses the first one's result isn't in a trace."
-- saving = "Sum over pairs of consecutive elementwise kernels of the shorter duration of the two: an estimate, as a fused kernel takes about as long as the longest of its parts."
-- basis = "estimate"
-- suggestion = "Compile or fuse: torch.compile, fused optimizers and activations, or an operator that contains the chain. On NPUs, check which result between the operators has another reader or is an output of the model."
-- reads = ["kernels"]
-- evidence = "WITH kernel AS (SELECT t.id, t.stream_id, t.step_id, t.start_ns, t.dur_ns, coalesce(kernel_name(o.name, o.op_type), t.name) AS kernel FROM task AS t LEFT JOIN op AS o ON o.run_id = t.run_id AND o.op_id = t.op_id WHERE t.run_id = $run AND t.device_id IS NOT DISTINCT FROM $device AND t.kind = 'compute' AND t.dur_ns IS NOT NULL), pair AS (SELECT lag(kernel) OVER directly_before AS previous, kernel, least(dur_ns, lag(dur_ns) OVER directly_before) AS saving_ns FROM kernel WINDOW directly_before AS (PARTITION BY stream_id, step_id ORDER BY start_ns, id)) SELECT kernel_label(previous) AS previous, kernel_label(kernel) AS label, count(*) AS count, sum(saving_ns) AS saving_ns FROM pair WHERE 'elementwise' IN (kernel_category(previous), kernel_category(kernel)) AND kernel_category(previous) IN ('elementwise', 'normalization') AND kernel_category(kernel) IN ('elementwise', 'normalization') GROUP BY ALL ORDER BY saving_ns DESC"
WITH sorted AS (
  -- Rows that are sorted once, and windows without an order over them, take half as long as windows with an order.
  -- DuckDB promises that these keep the order of the rows.
  SELECT device_id, stream_id, step_id, dur_ns, kernel_id,
         CASE category WHEN 'elementwise' THEN 2 WHEN 'normalization' THEN 1 ELSE 0 END::TINYINT AS fusion
  FROM advice_task
  ORDER BY device_id, stream_id, step_id, start_ns, id
), worked AS (
  SELECT device_id, dur_ns, kernel_id, fusion, lag(dur_ns) OVER () AS before_ns, lag(fusion) OVER () AS before,
         device_id IS NOT DISTINCT FROM lag(device_id) OVER () AND stream_id IS NOT DISTINCT FROM lag(stream_id) OVER ()
           AND step_id IS NOT DISTINCT FROM lag(step_id) OVER () AS together
  FROM sorted
), found AS (
  -- Names are joined to the sums: sorting tasks with them would take twice as long.
  SELECT device_id, kernel_id, sum(least(dur_ns, before_ns)) AS saving_ns, count(*) AS count
  FROM worked
  WHERE fusion > 0 AND before > 0 AND fusion + before > 2 AND together
  GROUP BY device_id, kernel_id
)
SELECT f.device_id, k.label AS subject, f.saving_ns, f.count
FROM found AS f
JOIN advice_kernel AS k ON k.kernel_id = f.kernel_id
