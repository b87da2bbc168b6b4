-- title = "Kernels are too small for the device"
-- doc = "Compute tasks of 10 µs or more with less than one block per multiprocessor (Kineto's blocks per SM), or fewer blocks than cores of an NPU, so that a part of the device has nothing to do."
-- saving = "Sum of duration × share of multiprocessors or cores without a block: an upper bound, reached if the work can be divided among all of them."
-- basis = "upper bound"
-- suggestion = "Give each kernel more to do: larger batches, batched instead of single products, split-K, or run independent kernels on several streams at the same time."
-- reads = ["kernels"]
-- evidence = "SELECT name, dur_ns, block_count, per_mille / 1000 AS blocks_per_core, dur_ns * (1000 - per_mille) // 1000 AS saving_ns FROM (SELECT t.name, t.dur_ns, t.block_count, CASE WHEN t.block_count IS NULL THEN (1000 * TRY_CAST(regexp_extract(t.args, '\"blocks per SM\": ?([0-9.]{1,9})', 1) AS DOUBLE))::BIGINT ELSE TRY(1000 * t.block_count) // CASE WHEN regexp_matches(t.task_type, 'VECTOR|AIV') THEN d.ai_vector_core_count WHEN regexp_matches(t.task_type, 'AI_CORE|AIC') THEN d.ai_core_count END END AS per_mille FROM task AS t JOIN device AS d USING (run_id, device_id) WHERE t.run_id = $run AND t.device_id = $device AND t.kind = 'compute' AND t.dur_ns >= 10000) WHERE per_mille BETWEEN 0 AND 999 ORDER BY saving_ns DESC"
WITH filled AS (
  SELECT t.device_id, t.label, t.dur_ns,
         CASE WHEN t.block_count IS NULL
              THEN (1000 * TRY_CAST(regexp_extract(t.args, '"blocks per SM": ?([0-9.]{1,9})', 1) AS DOUBLE))::BIGINT
              ELSE TRY(1000 * t.block_count)
                // CASE WHEN contains(t.task_type, 'VECTOR') OR contains(t.task_type, 'AIV') THEN d.ai_vector_core_count
                        WHEN contains(t.task_type, 'AI_CORE') OR contains(t.task_type, 'AIC') THEN d.ai_core_count END
         END AS per_mille
  FROM advice_task AS t
  JOIN device AS d ON d.run_id = $run AND d.device_id = t.device_id
  WHERE t.dur_ns >= 10000
)
-- dur_ns × (1000 − per_mille) // 1000 without 128 bits, in which division is slow.
SELECT device_id, label AS subject,
       dur_ns // 1000 * (1000 - per_mille) + dur_ns % 1000 * (1000 - per_mille) // 1000 AS saving_ns, 1 AS count
FROM filled
WHERE per_mille BETWEEN 0 AND 999
