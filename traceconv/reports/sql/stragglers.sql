-- title = "Late ranks in each step"
-- doc = "Which rank of a distributed job is late in each step, by how much, and in what? Ranks wait for each other in collectives, so their steps take equally long; what counts is a step's time without exposed collectives (work_ns). One row per rank and step, for iterations that several ranks of a group have (the first step of each rank with a number is compared with the first ones of the others, the second with the second ones, and so on). Late times are against the rank with the least work in that step, and their four parts add up. data_loading is idle time that idle-gaps finds inside a data loader, a heuristic; other idle time counts as host."
-- needs = ["step", "task"]
-- when_empty = "Ingest the traces of several ranks into one store, with steps of the same numbers, and don't select one of them."
-- compares_runs = true
-- order = ["run_id", "step_id", "device_id"]
-- measure = "late_ns"
-- shown = ["rank", "iteration", "window_ns", "work_ns", "late_ns", "late_in", "compute_late_ns", "copy_late_ns", "data_loading_late_ns", "host_late_ns", "is_last"]
-- selects = { run = true, device = "Only this device (compared with those of all ranks); NULL: all devices.", steps = true, time = "steps that start" }
-- [columns]
-- group_label = { type = "VARCHAR", unit = "text", doc = "Group of runs that are compared (run.group_label); NULL: the runs without one." }
-- rank = { type = "BIGINT", unit = "index", doc = "Rank of the run (run.rank); runs without one are not compared." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL for tasks of unknown devices." }
-- iteration = { type = "BIGINT", unit = "index", doc = "Iteration number in the source, by which steps of several runs are compared." }
-- window_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the step." }
-- exposed_collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a collective ran without any compute task: transfers and waits for other ranks." }
-- work_ns = { type = "BIGINT", unit = "ns", doc = "window_ns − exposed_collective_ns." }
-- late_ns = { type = "BIGINT", unit = "ns", doc = "work_ns minus the least work_ns of the ranks in this step." }
-- late_in = { type = "VARCHAR", unit = "enum", doc = "Largest part of late_ns: compute, copy, data_loading or host; NULL if late_ns is 0." }
-- compute_late_ns = { type = "BIGINT", unit = "ns", doc = "Computing time minus that of the rank with the least work; so are the other parts." }
-- copy_late_ns = { type = "BIGINT", unit = "ns", doc = "Part in exposed copies and tasks of unknown kind." }
-- data_loading_late_ns = { type = "BIGINT", unit = "ns", doc = "Part in idle time with the cause data_loading (idle-gaps)." }
-- host_late_ns = { type = "BIGINT", unit = "ns", doc = "Part in other idle time." }
-- is_last = { type = "BOOLEAN", unit = "flag", doc = "Whether no rank has more work in this step, and one has less." }
WITH one AS (
  -- All steps of the runs: selected ones are compared with those of all ranks.
{{step_breakdown(run)}}
), loading AS (
  SELECT o.run_id, o.step_id, o.device_id,
         sum(least(g.end_ns, o.end_ns)::HUGEINT - greatest(g.start_ns, o.start_ns)) AS loads
  FROM one AS o
  -- Not idle_gaps, whose window selects the gaps that start in it: those of a step can be outside.
  JOIN device_gap AS g ON g.run_id = o.run_id AND g.device_id IS NOT DISTINCT FROM o.device_id
    AND g.start_ns < o.end_ns AND g.end_ns > o.start_ns
  WHERE g.cause = 'data_loading'
  GROUP BY o.run_id, o.step_id, o.device_id
), part AS (
  SELECT o.run_id, r.group_label, r.rank, o.step_id, o.device_id, o.iteration, o.start_ns AS begin_ns,
         o.window_ns AS step_ns, o.exposed_collective_ns AS waits, o.window_ns - o.exposed_collective_ns AS work,
         o.compute_ns AS compute, o.exposed_copy_ns + o.other_ns AS copies, coalesce(l.loads, 0) AS loads,
         o.idle_ns - coalesce(l.loads, 0) AS host,
         row_number() OVER (PARTITION BY o.run_id, o.device_id, o.iteration ORDER BY o.start_ns, o.step_id) AS place
  FROM one AS o
  JOIN run AS r ON r.run_id = o.run_id
  LEFT JOIN loading AS l ON l.run_id = o.run_id AND l.step_id = o.step_id
    AND l.device_id IS NOT DISTINCT FROM o.device_id
  WHERE o.iteration IS NOT NULL AND o.window_ns IS NOT NULL AND r.rank IS NOT NULL
), compared AS (
  SELECT *, work - min(work) OVER step AS late, max(work) OVER step AS most,
         compute - first_value(compute) OVER fastest AS compute_late,
         copies - first_value(copies) OVER fastest AS copy_late,
         loads - first_value(loads) OVER fastest AS load_late, host - first_value(host) OVER fastest AS host_late
  FROM part
  WINDOW step AS (PARTITION BY group_label, iteration, place),
         fastest AS (PARTITION BY group_label, iteration, place ORDER BY work, run_id, device_id)
  QUALIFY min(rank) OVER step < max(rank) OVER step
)
SELECT run_id, group_label, rank, step_id, device_id, iteration, step_ns AS window_ns,
       waits AS exposed_collective_ns, work AS work_ns, late AS late_ns,
       CASE WHEN late = 0 THEN NULL
            WHEN compute_late >= greatest(copy_late, load_late, host_late) THEN 'compute'
            WHEN load_late >= greatest(copy_late, host_late) THEN 'data_loading'
            WHEN host_late >= copy_late THEN 'host'
            ELSE 'copy' END AS late_in,
       compute_late AS compute_late_ns, copy_late AS copy_late_ns, TRY_CAST(load_late AS BIGINT) AS data_loading_late_ns,
       TRY_CAST(host_late AS BIGINT) AS host_late_ns, work = most AND late > 0 AS is_last
FROM compared
WHERE {{selected(device_id, step_id, begin_ns)}}
ORDER BY run_id, step_id, device_id
