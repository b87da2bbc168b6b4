-- title = "Late ranks over all steps"
-- doc = "Which rank of a distributed job makes the others wait, how often, how long in all, and by what? One row per rank, the latest first: the rows of stragglers, which has the rules, summed over its steps."
-- needs = ["step", "task"]
-- when_empty = "Ingest the traces of several ranks into one store, with steps of the same numbers, and don't select one of them."
-- compares_runs = true
-- order = ["group_label", "late_ns DESC", "rank", "run_id"]
-- measure = "late_ns"
-- shown = ["group_label", "rank", "step_count", "last_count", "late_ns", "late_in", "compute_late_ns", "copy_late_ns", "data_loading_late_ns", "host_late_ns", "max_late_ns", "max_late_iteration"]
-- selects = { run = true, device = true, steps = true, time = "steps that start" }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the rank." }
-- group_label = { type = "VARCHAR", unit = "text", doc = "Group of runs that are compared (run.group_label); NULL: the runs without one." }
-- rank = { type = "BIGINT", unit = "index", doc = "Rank of the run (run.rank)." }
-- step_count = { type = "BIGINT", unit = "count", doc = "Steps of the rank that others have, too." }
-- last_count = { type = "BIGINT", unit = "count", doc = "Those in which it was last (stragglers.is_last)." }
-- late_ns = { type = "BIGINT", unit = "ns", doc = "Sum of stragglers.late_ns, so of the four parts." }
-- late_in = { type = "VARCHAR", unit = "enum", doc = "Largest part of late_ns: compute, copy, data_loading or host; NULL if late_ns is 0." }
-- max_late_ns = { type = "BIGINT", unit = "ns", doc = "Largest stragglers.late_ns of a step." }
-- max_late_iteration = { type = "BIGINT", unit = "index", doc = "Iteration number of the first such step; NULL if late_ns is 0." }
-- compute_late_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the parts in computing; negative where the rank computed less than the ranks with the least work." }
-- copy_late_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the parts in exposed copies and tasks of unknown kind." }
-- data_loading_late_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the parts in idle time inside a data loader." }
-- host_late_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the parts in other idle time." }
WITH late AS (
{{stragglers}}
), summed AS (
  SELECT run_id, group_label, rank, count(DISTINCT step_id) AS steps, count(DISTINCT step_id) FILTER (is_last) AS lasts,
         sum(late_ns) AS late, sum(compute_late_ns) AS compute, sum(copy_late_ns) AS copies,
         sum(data_loading_late_ns) AS loads, sum(host_late_ns) AS host, max(late_ns) AS most
  FROM late
  GROUP BY run_id, group_label, rank
), latest AS (
  SELECT s.run_id, min(l.iteration) AS iteration
  FROM summed AS s
  JOIN late AS l ON l.run_id = s.run_id AND l.late_ns = s.most
  WHERE s.most > 0
  GROUP BY s.run_id
)
SELECT s.run_id, s.group_label, s.rank, s.steps AS step_count, s.lasts AS last_count,
       TRY_CAST(s.late AS BIGINT) AS late_ns,
       CASE WHEN s.late = 0 THEN NULL
            WHEN s.compute >= greatest(s.copies, s.loads, s.host) THEN 'compute'
            WHEN s.loads >= greatest(s.copies, s.host) THEN 'data_loading'
            WHEN s.host >= s.copies THEN 'host'
            ELSE 'copy' END AS late_in,
       s.most AS max_late_ns, l.iteration AS max_late_iteration, TRY_CAST(s.compute AS BIGINT) AS compute_late_ns,
       TRY_CAST(s.copies AS BIGINT) AS copy_late_ns, TRY_CAST(s.loads AS BIGINT) AS data_loading_late_ns,
       TRY_CAST(s.host AS BIGINT) AS host_late_ns
FROM summed AS s
LEFT JOIN latest AS l ON l.run_id = s.run_id
ORDER BY s.group_label, late_ns DESC, s.rank, s.run_id
