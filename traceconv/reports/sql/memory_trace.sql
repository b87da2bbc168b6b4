-- title = "Memory, op by op"
-- doc = "How much memory was used and reserved when each op was executed? One row for each execution, at its launch: its outputs and its scratch memory are allocated then, and not yet freed."
-- needs = ["task", "memory"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR): tasks, allocations and frees are logged."
-- order = ["run_id", "device_id", "at_ns", "id"]
-- measure = "used_bytes"
-- shown = ["device_id", "op_name", "op_type", "at_ns", "used_bytes", "reserved_bytes", "used_change_bytes"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; all when NULL." }
-- device = { type = "BIGINT", doc = "Only this device; all when NULL." }
-- step = { type = "BIGINT", doc = "Only tasks of this step (step.step_id); all, also those outside steps, when NULL." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The task (task.id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device that it ran on." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executed (op.op_id)." }
-- op_name = { type = "VARCHAR", unit = "text", doc = "Name of the op; of the task where the op's is not known." }
-- op_type = { type = "VARCHAR", unit = "text", doc = "Type of the op; NULL when not known." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step that it belongs to (step.step_id); NULL outside steps." }
-- at_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When it was launched; when it started, where the launch is not known." }
-- used_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes in blocks on its device then; NULL before the first allocation." }
-- reserved_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes that the allocator held from the device then; NULL where the source has no segments." }
-- used_change_bytes = { type = "BIGINT", unit = "byte", doc = "used_bytes less that of the execution before it on the device; NULL for the first." }
WITH executed AS (
  SELECT t.run_id, t.id, t.device_id, t.op_id, t.name, t.step_id, coalesce(t.submit_ns, t.start_ns) AS at_ns
  FROM task AS t
  WHERE t.op_id IS NOT NULL AND coalesce(t.submit_ns, t.start_ns) IS NOT NULL
    AND (run IS NULL OR t.run_id = run) AND (device IS NULL OR t.device_id = device)
), usage AS (
  SELECT u.run_id, u.device_id, u.ts_ns, u.used_bytes, u.reserved_bytes
  FROM memory_usage AS u
  WHERE u.level = 'device' AND (run IS NULL OR u.run_id = run) AND (device IS NULL OR u.device_id = device)
), looked_up AS (
  SELECT e.run_id, e.id, e.device_id, e.op_id, e.name, e.step_id, e.at_ns, u.used_bytes, u.reserved_bytes
  FROM executed AS e
  ASOF LEFT JOIN usage AS u ON u.run_id = e.run_id AND u.device_id = e.device_id AND u.ts_ns <= e.at_ns
  -- Without a memory log of its device a task has no place here.
  WHERE EXISTS (SELECT 1 FROM memory AS m WHERE m.run_id = e.run_id AND m.device_id = e.device_id)
), compared AS (
  SELECT *, lag(used_bytes) OVER (PARTITION BY run_id, device_id ORDER BY at_ns, id) AS before_bytes
  FROM looked_up
)
SELECT c.run_id, c.id, c.device_id, c.op_id, coalesce(o.name, c.name) AS op_name, o.op_type, c.step_id, c.at_ns,
       c.used_bytes, c.reserved_bytes, c.used_bytes - c.before_bytes AS used_change_bytes
FROM compared AS c
LEFT JOIN op AS o ON o.run_id = c.run_id AND o.op_id = c.op_id
WHERE step IS NULL OR c.step_id = step
ORDER BY c.run_id, c.device_id, c.at_ns, c.id
