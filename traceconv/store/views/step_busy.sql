-- title = "Busy time of devices in steps"
-- doc = "How long each device was busy in each step, and with what: unions of the tasks' intervals, cut at the step's start and end. A step of an unknown device has a row per device."
-- order = ["run_id", "step_id", "device_id"]
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL for tasks of unknown devices." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the step; of its forward pass if unknown." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Time until the step's end." }
-- busy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task ran." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "dur_ns − busy_ns." }
-- compute_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task of kind compute ran." }
-- copy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one copy ran." }
-- collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one collective ran." }
-- exposed_collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a collective ran without any compute task (exposed communication)." }
-- exposed_copy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a copy ran without any compute task or collective." }
SELECT s.run_id, s.step_id, b.device_id, b.ts_ns AS start_ns, TRY(e.ts_ns - b.ts_ns) AS dur_ns,
       e.busy_ns - b.busy_ns AS busy_ns, TRY(e.ts_ns - b.ts_ns) - (e.busy_ns - b.busy_ns) AS idle_ns,
       e.compute_ns - b.compute_ns AS compute_ns, e.copy_ns - b.copy_ns AS copy_ns,
       e.collective_ns - b.collective_ns AS collective_ns,
       e.compute_or_collective_ns - b.compute_or_collective_ns - (e.compute_ns - b.compute_ns)
         AS exposed_collective_ns,
       e.compute_or_copy_or_collective_ns - b.compute_or_copy_or_collective_ns
         - (e.compute_or_collective_ns - b.compute_or_collective_ns) AS exposed_copy_ns
FROM step AS s
JOIN device_busy AS b ON b.run_id = s.run_id AND b.ts_ns = coalesce(s.start_ns, s.fp_start_ns)
  AND (s.device_id IS NULL OR b.device_id = s.device_id)
JOIN device_busy AS e ON e.run_id = s.run_id AND e.ts_ns = s.end_ns AND e.device_id IS NOT DISTINCT FROM b.device_id
WHERE e.ts_ns >= b.ts_ns
