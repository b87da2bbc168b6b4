--- times_of_steps
-- An inference has no forward and backward pass: some versions write 0. The time of an iteration is that from its start,
-- which is before its forward pass, to its end.
UPDATE temp.vendor_step SET fp_start_ns = nullif(fp_start_ns, 0), bp_end_ns = nullif(bp_end_ns, 0);
UPDATE temp.vendor_step SET start_ns = TRY(end_ns - iteration_time_ns)
WHERE iteration_time_ns > 0 AND (fp_start_ns IS NULL OR TRY(end_ns - iteration_time_ns) <= fp_start_ns)

--- same_steps
CREATE OR REPLACE TEMP TABLE vendor_same_step AS
SELECT v.id, s.step_id, s.device_id
FROM temp.vendor_step AS v
JOIN step AS s ON s.run_id = $run AND s.iteration = v.iteration
  AND (s.device_id IS NULL OR v.device_id IS NULL OR s.device_id = v.device_id)
  AND (s.model_id IS NULL OR v.model_id IS NULL OR s.model_id = v.model_id)
QUALIFY row_number() OVER (PARTITION BY v.id ORDER BY s.device_id, s.step_id) = 1
  AND row_number() OVER (PARTITION BY s.step_id, s.device_id ORDER BY v.id) = 1

--- complete_steps
UPDATE step SET model_id = coalesce(step.model_id, v.model_id), device_id = coalesce(step.device_id, v.device_id),
  fp_start_ns = coalesce(step.fp_start_ns, v.fp_start_ns), bp_end_ns = coalesce(step.bp_end_ns, v.bp_end_ns),
  end_ns = coalesce(step.end_ns, v.end_ns)
FROM temp.vendor_same_step AS m
JOIN temp.vendor_step AS v USING (id)
WHERE step.run_id = $run AND step.step_id = m.step_id AND step.device_id IS NOT DISTINCT FROM m.device_id

--- new_steps
CREATE OR REPLACE TEMP TABLE vendor_new_step AS
SELECT (SELECT coalesce(max(step_id), 0) FROM step WHERE run_id = $run)
       + row_number() OVER (ORDER BY coalesce(start_ns, fp_start_ns, end_ns), id) AS step_id,
       device_id, model_id, iteration, start_ns, fp_start_ns, bp_end_ns, end_ns
FROM temp.vendor_step AS v
WHERE NOT EXISTS (FROM temp.vendor_same_step AS m WHERE m.id = v.id)

--- add_steps
INSERT INTO step (run_id, step_id, device_id, model_id, iteration, start_ns, fp_start_ns, bp_end_ns, end_ns, step_source)
SELECT $run, *, 'csv' FROM temp.vendor_new_step

--- steps_of_tasks
UPDATE task SET step_id = s.step_id
FROM temp.vendor_new_step AS s
WHERE task.run_id = $run AND task.step_id IS NULL AND task.start_ns >= coalesce(s.start_ns, s.fp_start_ns)
  AND task.start_ns < s.end_ns
  AND (task.device_id IS NULL OR s.device_id IS NULL OR task.device_id = s.device_id)

--- fused
CREATE OR REPLACE TEMP TABLE vendor_fused AS
SELECT v.*, row_number() OVER (ORDER BY v.id)
       + (SELECT coalesce(max(fusion_id), 0) FROM fusion WHERE run_id = $run) AS fusion_id, o.op_id
FROM (
  FROM temp.vendor_fusion
  QUALIFY row_number() OVER (PARTITION BY model_name, model_id, name, originals ORDER BY id) = 1
) AS v
LEFT JOIN op AS o ON o.run_id = $run AND o.name = v.name AND o.fusion_id IS NULL
  AND (o.model_id IS NULL OR v.model_id IS NULL OR o.model_id = v.model_id)
QUALIFY row_number() OVER (PARTITION BY v.id ORDER BY o.op_id) = 1

--- number_fused
UPDATE temp.vendor_fused SET op_id = fresh.op_id
FROM (
  SELECT id, row_number() OVER (ORDER BY id) + (SELECT coalesce(max(op_id), 0) FROM op WHERE run_id = $run) AS op_id
  FROM temp.vendor_fused
  WHERE op_id IS NULL
) AS fresh
WHERE vendor_fused.id = fresh.id

--- add_fused
INSERT INTO op (run_id, op_id, model_id, name)
SELECT $run, op_id, model_id, name
FROM temp.vendor_fused AS f
WHERE NOT EXISTS (FROM op AS o WHERE o.run_id = $run AND o.op_id = f.op_id)

--- complete_fused
UPDATE op SET fusion_id = f.fusion_id, model_name = coalesce(op.model_name, f.model_name),
  input_bytes = f.input_bytes, output_bytes = f.output_bytes, weight_bytes = f.weight_bytes,
  workspace_bytes = f.workspace_bytes
FROM temp.vendor_fused AS f
WHERE op.run_id = $run AND op.op_id = f.op_id

--- add_fusions
INSERT INTO fusion (run_id, fusion_id, op_id, original_index, original_name)
SELECT $run, fusion_id, op_id, place - 1, trim(originals[place])
FROM (
  SELECT fusion_id, op_id, originals, unnest(range(1, len(originals) + 1)) AS place
  FROM (SELECT fusion_id, op_id, string_split(originals, ';') AS originals FROM temp.vendor_fused)
)
WHERE trim(originals[place]) <> ''

--- add_ops
INSERT INTO op (run_id, op_id, name, op_type, op_type_source)
SELECT $run, (SELECT coalesce(max(op_id), 0) FROM op WHERE run_id = $run) + row_number() OVER (ORDER BY name),
       name, name, 'name'
FROM (SELECT DISTINCT name FROM temp.vendor_memory WHERE name IS NOT NULL) AS v
WHERE NOT EXISTS (FROM op AS o WHERE o.run_id = $run AND o.name = v.name AND o.op_type = v.name)

--- add_memory
INSERT INTO memory (run_id, block_id, device_id, pool, kind, size_bytes, alloc_ns, free_ns, op_id)
SELECT $run, (SELECT coalesce(max(block_id), 0) FROM memory WHERE run_id = $run) + row_number() OVER (ORDER BY v.id),
       v.device_id, v.pool, 'block', v.size_bytes, v.alloc_ns, v.free_ns,
       (SELECT min(o.op_id) FROM op AS o WHERE o.run_id = $run AND o.name = v.name AND o.op_type = v.name)
FROM temp.vendor_memory AS v

--- held_table
CREATE TEMP TABLE IF NOT EXISTS vendor_held (
  device_id BIGINT, pool VARCHAR, ns BIGINT, total_bytes BIGINT, reserved_bytes BIGINT
)

--- note_held
INSERT INTO temp.vendor_held
SELECT device_id, pool, alloc_ns, total_bytes, reserved_bytes FROM temp.vendor_memory WHERE alloc_ns IS NOT NULL

--- held
-- Bytes in each pool besides those of the listed blocks (rest), or that it reserves, at each time with a recorded total.
WITH change AS (
  SELECT device_id, pool, alloc_ns AS ns, size_bytes AS bytes, 1 AS allocs, 0 AS frees
  FROM memory WHERE run_id = $run AND kind = 'block' AND alloc_ns IS NOT NULL
  UNION ALL
  SELECT device_id, pool, free_ns, -size_bytes, 0, 1
  FROM memory WHERE run_id = $run AND kind = 'block' AND (free_ns >= alloc_ns OR alloc_ns IS NULL)
), by_time AS (
  SELECT device_id, pool, ns, sum(bytes) AS bytes, sum(allocs) AS allocs, sum(frees) AS frees
  FROM change WHERE ns IS NOT NULL GROUP BY ALL
), before AS (
  SELECT device_id, pool, sum(size_bytes) AS bytes
  FROM memory WHERE run_id = $run AND kind = 'block' AND alloc_ns IS NULL GROUP BY ALL
), known AS (
  SELECT m.device_id, m.pool, m.ns, m.allocs, m.frees, coalesce(b.bytes, 0)
         + sum(m.bytes) OVER (PARTITION BY m.device_id, m.pool ORDER BY m.ns) AS bytes
  FROM by_time AS m
  LEFT JOIN before AS b ON b.device_id IS NOT DISTINCT FROM m.device_id AND b.pool IS NOT DISTINCT FROM m.pool
), held AS (
  SELECT k.device_id, k.pool, k.ns, max(h.total_bytes) - any_value(k.bytes) AS rest, max(h.reserved_bytes) AS reserved
  FROM temp.vendor_held AS h
  JOIN known AS k ON k.device_id IS NOT DISTINCT FROM h.device_id AND k.pool IS NOT DISTINCT FROM h.pool AND k.ns = h.ns
  -- If a block is freed at the same time, the order is unknown.
  WHERE k.frees = 0
  GROUP BY k.device_id, k.pool, k.ns
)
SELECT device_id, pool, ns, {column}::BIGINT FROM held WHERE {column} IS NOT NULL
QUALIFY lag({column}) OVER (PARTITION BY device_id, pool ORDER BY ns) IS DISTINCT FROM {column}
ORDER BY device_id, pool, ns

--- add_devices
INSERT INTO device (run_id, device_id, kind)
SELECT DISTINCT $run, device_id, 'NPU'
FROM (
  SELECT device_id FROM memory WHERE run_id = $run
  UNION SELECT device_id FROM step WHERE run_id = $run
  UNION SELECT device_id FROM track WHERE run_id = $run
) AS d
WHERE device_id IS NOT NULL AND NOT EXISTS (FROM device AS k WHERE k.run_id = $run AND k.device_id = d.device_id)

--- set_device
UPDATE {table} SET device_id = $device WHERE run_id = $run AND device_id IS NULL AND {condition}

--- marked_steps
SELECT device_id, step_id, model_id, least(start_ns, fp_start_ns, bp_end_ns) AS low_ns,
       greatest(fp_start_ns, bp_end_ns, end_ns) AS high_ns
FROM step
WHERE run_id = $run AND step_source = 'slice' AND device_id IS NOT NULL
ORDER BY low_ns, high_ns, step_id

--- marked_steps_of_tasks
UPDATE task SET step_id = found.step_id
FROM (
  SELECT t.id, s.step_id
  FROM (SELECT id, device_id, start_ns FROM task WHERE run_id = $run AND step_id IS NULL) AS t
  ASOF JOIN temp.vendor_current_step AS s ON s.device_id = t.device_id AND s.from_ns <= t.start_ns
  WHERE s.step_id <> $none
) AS found
WHERE task.run_id = $run AND task.id = found.id

--- devices_of_steps
UPDATE step SET device_id = found.device_id
FROM (
  SELECT step_id, min(device_id) AS device_id
  FROM task
  WHERE run_id = $run AND step_id IS NOT NULL
  GROUP BY step_id
  HAVING count(DISTINCT device_id) = 1
) AS found
WHERE step.run_id = $run AND step.step_id = found.step_id AND step.device_id IS NULL AND step.step_source = 'slice'
