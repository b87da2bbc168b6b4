-- title = "Compute, communication, copy and idle time of steps"
-- doc = "Where does the time of each step go? One row per step and device, like the rows of breakdown; tasks are cut at the step's start and end, wherever they were launched. A step of an unknown device has a row per device. For the tasks that a step launched: breakdown --step N."
-- needs = ["step", "task"]
-- when_empty = "Steps come from the iterations of a recording: record a model with --iterations N."
-- order = ["run_id", "step_id", "device_id"]
-- measure = "window_ns"
-- shown = ["step_id", "device_id", "window_ns", "compute_ns", "exposed_collective_ns", "exposed_copy_ns", "other_ns", "idle_ns", "utilisation_percent", "overlap_percent"]
-- selects = { run = true, device = true, steps = true, time = "steps that start" }
-- [columns]
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL for tasks of unknown devices." }
-- iteration = { type = "BIGINT", unit = "index", doc = "Iteration number in the source; NULL if unknown." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the step; of its forward pass if unknown." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "End of the step." }
-- window_ns = { type = "BIGINT", unit = "ns", doc = "end_ns − start_ns." }
-- busy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task ran, except events and waits (kind sync)." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "window_ns − busy_ns." }
-- utilisation_percent = { type = "DOUBLE", unit = "percent", doc = "100 busy_ns / window_ns; NULL if the window is empty." }
-- compute_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task of kind compute ran." }
-- copy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one copy ran." }
-- collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one collective ran." }
-- exposed_collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a collective ran without any compute task (exposed communication)." }
-- overlapped_collective_ns = { type = "BIGINT", unit = "ns", doc = "collective_ns − exposed_collective_ns: communication hidden by computation." }
-- overlap_percent = { type = "DOUBLE", unit = "percent", doc = "100 overlapped_collective_ns / collective_ns; NULL without collectives." }
-- exposed_copy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a copy ran without any compute task or collective." }
-- other_ns = { type = "BIGINT", unit = "ns", doc = "Time during which only tasks of unknown kind ran." }
WITH part AS (
  -- The lengths of the unions between the two ends of each step, at which there are points.
  SELECT s.run_id, s.step_id, b.device_id, s.iteration, b.ts_ns AS begin_ns, e.ts_ns AS finish_ns,
         e.busy_ns - b.busy_ns AS busy, e.compute_ns - b.compute_ns AS compute, e.copy_ns - b.copy_ns AS copies,
         e.collective_ns - b.collective_ns AS collective,
         e.compute_or_collective_ns - b.compute_or_collective_ns AS work,
         e.compute_or_copy_or_collective_ns - b.compute_or_copy_or_collective_ns AS known
  FROM step AS s
  JOIN device_busy AS b ON b.run_id = s.run_id AND b.ts_ns = coalesce(s.start_ns, s.fp_start_ns)
    AND (s.device_id IS NULL OR b.device_id = s.device_id)
  JOIN device_busy AS e ON e.run_id = s.run_id AND e.ts_ns = s.end_ns AND e.device_id IS NOT DISTINCT FROM b.device_id
  WHERE e.ts_ns >= b.ts_ns AND {{selected(s.run_id, b.device_id, s.step_id, b.ts_ns)}}
)
SELECT run_id, step_id, device_id, iteration, begin_ns AS start_ns, finish_ns AS end_ns,
       TRY(finish_ns - begin_ns) AS window_ns, busy AS busy_ns, TRY(finish_ns - begin_ns) - busy AS idle_ns,
       100 * busy::DOUBLE / nullif(finish_ns::HUGEINT - begin_ns, 0) AS utilisation_percent,
       compute AS compute_ns, copies AS copy_ns, collective AS collective_ns, work - compute AS exposed_collective_ns,
       collective - (work - compute) AS overlapped_collective_ns,
       100 * (collective - (work - compute))::DOUBLE / nullif(collective, 0) AS overlap_percent,
       known - work AS exposed_copy_ns, busy - known AS other_ns
FROM part
ORDER BY run_id, step_id, device_id
