-- title = "Iterations"
-- doc = "How long does each iteration take, and how much of it is forward pass, backward pass, refresh and waiting for data? One row per step; for an inference the columns of the backward part are NULL."
-- needs = ["step"]
-- when_empty = "Record a model in one or more iterations (traceconv record MODEL -o DIR --iterations N) to log its steps."
-- when_single = "A model of a single operator has no iterations, and so no step trace."
-- order = ["run_id", "device_id", "model_id", "iteration", "step_id"]
-- measure = "iteration_time_ns"
-- shown = ["device_id", "model_id", "iteration", "start_ns", "fp_start_ns", "iteration_time_ns", "fp_to_bp_ns", "refresh_ns", "data_aug_bound_ns"]
-- selects = { run = true, device = true, steps = true, time = "steps that start" }
-- [columns]
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id)." }
-- device_id = { type = "BIGINT", unit = "id", msprof = "Device_id", doc = "Device." }
-- iteration = { type = "BIGINT", unit = "index", msprof = "Iteration ID", doc = "Iteration number in the source; NULL if unknown." }
-- step_source = { type = "VARCHAR", unit = "enum", doc = "Origin of the step: record (marks in the device log), slice (a vendor's slice of an iteration), csv (a vendor's table), annotation (a numbered range of the program) or marker (instants at the ends of steps)." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time; NULL if unknown." }
-- fp_start_ns = { type = "BIGINT", unit = "ns", timestamp = true, msprof = "FP Start(us)", msprof_as = "us", doc = "Start of forward propagation; NULL if unknown." }
-- bp_end_ns = { type = "BIGINT", unit = "ns", timestamp = true, msprof = "BP End(us)", msprof_as = "us", doc = "End of backward propagation; NULL for inference or if unknown." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, msprof = "Iteration End(us)", msprof_as = "us", doc = "End time; NULL if it is not in the source." }
-- iteration_time_ns = { type = "BIGINT", unit = "ns", msprof = "Iteration Time(us)", msprof_as = "us", doc = "end_ns − fp_start_ns; end_ns − start_ns if the source has no forward and backward times; NULL if one of the two is NULL." }
-- fp_to_bp_ns = { type = "BIGINT", unit = "ns", msprof = "FP to BP Time(us)", msprof_as = "us", doc = "bp_end_ns − fp_start_ns; NULL if one is NULL." }
-- refresh_ns = { type = "BIGINT", unit = "ns", msprof = "Iteration Refresh(us)", msprof_as = "us", doc = "end_ns − bp_end_ns; NULL if one is NULL." }
-- data_aug_bound_ns = { type = "BIGINT", unit = "ns", msprof = "Data Aug Bound(us)", msprof_as = "us", doc = "fp_start_ns − end_ns of the previous step of the model and device; negative if they overlap; NULL for the first." }
-- model_id = { type = "BIGINT", unit = "id", msprof = "Model ID", doc = "Model; NULL if unknown." }
-- reduce_start_ns = { type = "BIGINT[]", unit = "ns", timestamp = true, msprof = "Reduce Start(us)", msprof_as = "us", doc = "Start times of the step's collectives, from the vendor's marks if there are any, in ascending order; NULL if none." }
-- reduce_dur_ns = { type = "BIGINT[]", unit = "ns", msprof = "Reduce Duration(us)", msprof_as = "us", doc = "Durations of the same collectives, in the same order." }
-- get_next_start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the transfer of its data batch to the device; NULL if unknown." }
-- get_next_ns = { type = "BIGINT", unit = "ns", doc = "Transfer time of its data batch to the device; NULL if unknown." }
WITH ordered AS (
  SELECT s.run_id, s.step_id, s.device_id, s.model_id, s.iteration, s.step_source, s.start_ns, s.fp_start_ns, s.bp_end_ns,
         s.end_ns, s.get_next_start_ns, s.get_next_end_ns, lag(s.end_ns) OVER (
           PARTITION BY s.run_id, s.device_id, s.model_id
           ORDER BY coalesce(s.start_ns, s.fp_start_ns), s.iteration, s.step_id
         ) AS previous_end_ns
  FROM step AS s
  WHERE {{selected(s.run_id, s.device_id)}}
), marked AS (
  -- A vendor's marks of reduces; the collectives themselves are tasks as well.
  SELECT r.run_id, r.step_id, r.id, r.start_ns, r.dur_ns
  FROM "range" AS r
  WHERE r.kind = 'reduce' AND r.step_id IS NOT NULL AND {{selected(r.run_id)}}
    AND (step IS NULL OR r.step_id = step)
), collective AS (
  SELECT o.run_id, o.device_id, o.step_id, m.id, m.start_ns, m.dur_ns
  FROM ordered AS o
  JOIN marked AS m ON m.run_id = o.run_id AND m.step_id = o.step_id
  UNION ALL
  SELECT t.run_id, t.device_id, t.step_id, t.id, t.start_ns, t.dur_ns
  FROM task AS t
  WHERE t.kind = 'collective' AND t.step_id IS NOT NULL AND {{selected(t.run_id, t.device_id)}}
    AND (step IS NULL OR t.step_id = step)
    AND NOT EXISTS (SELECT 1 FROM marked AS m WHERE m.run_id = t.run_id AND m.step_id = t.step_id)
), reduce AS (
  SELECT c.run_id, c.device_id, c.step_id, list(c.start_ns ORDER BY c.start_ns, c.id) AS starts,
         list(c.dur_ns ORDER BY c.start_ns, c.id) AS durations
  FROM collective AS c
  GROUP BY c.run_id, c.device_id, c.step_id
)
SELECT o.run_id, o.step_id, o.device_id, o.iteration, o.step_source, o.start_ns, o.fp_start_ns, o.bp_end_ns, o.end_ns,
       TRY(o.end_ns - CASE WHEN o.fp_start_ns IS NULL AND o.bp_end_ns IS NULL THEN o.start_ns ELSE o.fp_start_ns END)
         AS iteration_time_ns,
       TRY(o.bp_end_ns - o.fp_start_ns) AS fp_to_bp_ns,
       TRY(o.end_ns - o.bp_end_ns) AS refresh_ns,
       TRY(o.fp_start_ns - o.previous_end_ns) AS data_aug_bound_ns,
       o.model_id, r.starts AS reduce_start_ns, r.durations AS reduce_dur_ns,
       o.get_next_start_ns, TRY(o.get_next_end_ns - o.get_next_start_ns) AS get_next_ns
FROM ordered AS o
LEFT JOIN reduce AS r ON r.run_id = o.run_id AND r.device_id IS NOT DISTINCT FROM o.device_id AND r.step_id = o.step_id
WHERE {{selected(o.step_id, coalesce(o.start_ns, o.fp_start_ns))}}
ORDER BY o.run_id, o.device_id, o.model_id, o.iteration, o.step_id
