-- title = "Work of each op"
-- doc = "Operations and bytes of one execution of each op, from its columns or from the footprint in the task args of MegEngine's static profiles."
-- order = ["run_id", "op_id"]
-- [columns]
-- op_id = { type = "BIGINT", unit = "id", doc = "Op (op.op_id)." }
-- flops = { type = "BIGINT", unit = "flop", doc = "Floating-point operations of one execution; a multiply-accumulate counts as 2; NULL if unknown." }
-- memory_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes that one execution reads and writes: inputs, weights and outputs; NULL if one of these is unknown." }
WITH footprint AS (
  -- Tasks of an op have the same footprint; otherwise it is unknown.
  SELECT t.run_id, t.op_id,
         min(TRY_CAST(t.args->>'computation' AS BIGINT)) AS least_flops,
         max(TRY_CAST(t.args->>'computation' AS BIGINT)) AS most_flops,
         min(TRY_CAST(t.args->>'memory' AS BIGINT)) AS least_bytes,
         max(TRY_CAST(t.args->>'memory' AS BIGINT)) AS most_bytes
  FROM run AS r
  JOIN task AS t ON t.run_id = r.run_id
  WHERE r.source_format = 'megengine_static' AND t.op_id IS NOT NULL
  GROUP BY t.run_id, t.op_id
)
SELECT o.run_id, o.op_id,
       coalesce(o.flops // coalesce(o.executions_per_task, 1), CASE WHEN f.least_flops = f.most_flops THEN f.least_flops END) AS flops,
       coalesce(TRY_CAST((o.input_bytes::HUGEINT + o.weight_bytes + o.output_bytes) // coalesce(o.executions_per_task, 1) AS BIGINT),
                CASE WHEN f.least_bytes = f.most_bytes THEN f.least_bytes END) AS memory_bytes
FROM op AS o
LEFT JOIN footprint AS f ON f.run_id = o.run_id AND f.op_id = o.op_id
