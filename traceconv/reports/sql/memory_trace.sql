-- title = "Memory use at each op"
-- doc = "How much memory was used and reserved when each op was executed? One row per execution, at its launch, when its outputs and scratch memory are allocated. Without tasks, one row per group of consecutive allocations of an op, at the last."
-- needs = ["memory"]
-- when_empty = "It needs allocations and tasks, or allocations whose op is known; traceconv record MODEL -o DIR logs both of a model. The report memory-peak needs allocations only."
-- order = ["run_id", "device_id", "at_ns", "id", "op_id", "used_change_bytes"]
-- measure = "used_bytes"
-- top_from = "task_memory"
-- shown = ["device_id", "op_name", "op_type", "at_ns", "used_bytes", "reserved_bytes", "used_change_bytes"]
-- selects = { run = true, device = true, steps = "tasks", time = "executions launched (at_ns)" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id); NULL if no tasks were recorded." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executed (op.op_id)." }
-- op_name = { type = "VARCHAR", unit = "text", doc = "Name of the op, or of the task if the op is unknown." }
-- op_type = { type = "VARCHAR", unit = "text", doc = "Op type; NULL if unknown." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- at_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Launch time; the start time if the launch is unknown; without tasks, the time of the op's last allocation." }
-- used_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes in blocks on its device at that time; NULL before the first allocation." }
-- reserved_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes reserved by the allocator at that time; NULL if the source has no segments." }
-- used_change_bytes = { type = "BIGINT", unit = "byte", doc = "used_bytes minus that of the previous execution on the device; NULL for the first." }
WITH executed AS (
  SELECT m.run_id, m.id, m.device_id, t.op_id, t.name, m.step_id, m.at_ns, m.used_bytes, m.reserved_bytes,
         m.used_change_bytes
  FROM task AS t
  -- DuckDB joins on one number faster.
  JOIN task_memory AS m ON m.id = t.id AND (run IS NOT NULL OR m.run_id = t.run_id)
  WHERE (run IS NULL OR (m.run_id = run AND t.run_id = run)) AND {{selected(m.device_id)}}
), alone AS (
  SELECT r.run_id
  FROM run AS r
  WHERE {{selected(r.run_id)}} AND NOT EXISTS (SELECT 1 FROM task AS t WHERE t.run_id = r.run_id)
), allocated AS (
  -- Runs without tasks: allocations of one op in a row belong to one execution.
  SELECT m.run_id, m.device_id, m.op_id, m.alloc_ns, m.block_id,
         m.op_id IS DISTINCT FROM lag(m.op_id) OVER (PARTITION BY m.run_id, m.device_id ORDER BY m.alloc_ns, m.block_id)
           AS is_first
  FROM memory AS m
  WHERE m.kind = 'block' AND m.alloc_ns IS NOT NULL
    AND {{selected(m.device_id)}} AND m.run_id IN (SELECT run_id FROM alone)
), grouped AS (
  SELECT *, count(*) FILTER (WHERE is_first)
              OVER (PARTITION BY run_id, device_id ORDER BY alloc_ns, block_id) AS execution
  FROM allocated
), execution AS (
  SELECT run_id, device_id, op_id, execution, max(alloc_ns) AS at_ns
  FROM grouped
  WHERE op_id IS NOT NULL
  GROUP BY run_id, device_id, execution, op_id
), event AS (
  SELECT m.run_id, m.device_id, m.kind = 'segment' AS is_segment, m.size_bytes, m.alloc_ns AS ts_ns
  FROM memory AS m
  WHERE m.run_id IN (SELECT run_id FROM alone)
  UNION ALL
  SELECT m.run_id, m.device_id, m.kind = 'segment' AS is_segment, TRY(-m.size_bytes) AS size_bytes, m.free_ns AS ts_ns
  FROM memory AS m
  WHERE m.run_id IN (SELECT run_id FROM alone)
    AND (m.free_ns >= m.alloc_ns OR (m.free_ns IS NOT NULL AND m.alloc_ns IS NULL))
), change AS (
  SELECT *, bool_or(is_segment) OVER (PARTITION BY run_id, device_id) AS has_segments
  FROM event
), usage AS (
  -- What the view memory_usage has of these runs: DuckDB would compute it for the others too. Blocks without a time are
  -- in use from the start.
  SELECT run_id, device_id, ts_ns,
         TRY_CAST(sum(CASE WHEN is_segment THEN 0 ELSE size_bytes END) OVER until_then AS BIGINT) AS used_bytes,
         TRY_CAST(sum(CASE WHEN is_segment THEN size_bytes WHEN has_segments THEN 0 END) OVER until_then AS BIGINT)
           AS reserved_bytes
  FROM change
  WINDOW until_then AS (PARTITION BY run_id, device_id ORDER BY ts_ns NULLS FIRST)
  QUALIFY lead(ts_ns) OVER until_then IS DISTINCT FROM ts_ns
), found AS (
  SELECT run_id, id, device_id, op_id, name, step_id, at_ns, used_bytes, reserved_bytes, used_change_bytes
  FROM executed
  UNION ALL
  SELECT e.run_id, NULL AS id, e.device_id, e.op_id, NULL AS name, NULL AS step_id, e.at_ns, u.used_bytes,
         u.reserved_bytes, u.used_bytes - lag(u.used_bytes) OVER (PARTITION BY e.run_id, e.device_id ORDER BY e.at_ns, e.execution)
           AS used_change_bytes
  FROM execution AS e
  ASOF LEFT JOIN usage AS u ON u.run_id = e.run_id AND u.device_id = e.device_id AND u.ts_ns <= e.at_ns
  WHERE e.device_id IS NOT NULL
)
SELECT f.run_id, f.id, f.device_id, f.op_id, coalesce(o.name, f.name) AS op_name, o.op_type, f.step_id, f.at_ns,
       f.used_bytes, f.reserved_bytes, f.used_change_bytes
FROM found AS f
LEFT JOIN op AS o ON o.run_id = f.run_id AND o.op_id = f.op_id
WHERE {{selected(f.step_id, f.at_ns)}}
ORDER BY f.run_id, f.device_id, f.at_ns, f.id, f.op_id, f.used_change_bytes
