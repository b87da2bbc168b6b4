-- title = "What the profiler lost or distorted"
-- doc = "How far can the numbers of other reports be off? One row per finding; none if nothing was found. Rows of place start, middle and end are parts of the run in which launches or tasks are missing: before the first complete one, after the last, and between."
-- needs = ["task"]
-- when_empty = "Without findings, no launches or tasks are missing and no times contradict each other."
-- order = ["run_id", "finding", "place"]
-- measure = "count"
-- shown = ["finding", "place", "count", "total_count", "affected_ns", "affected_percent", "reports"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; NULL: all runs." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
-- finding = { type = "VARCHAR", unit = "enum", doc = "lost_tasks: calls that launch kernels without a task (of names of which others have one); lost_launches: tasks whose launching call is missing, in runs that have such calls; overlapping_tasks: tasks that start before the end of the previous one on their stream and are not part of another task; duplicate_tasks: copies of a task with its stream, start, duration and name; unfinished_tasks: tasks without an end; early_tasks: tasks that start before their launch; uncertain_delays: launch delays up to the clock error; unknown_collectives: tasks named like collectives of another kind (a heuristic); cut_names: tasks whose names all have the longest length, if this is one that profilers cut at and several names have it (a heuristic); cut_steps: steps without a start or end; import_losses: events that ingest could not keep." }
-- place = { type = "VARCHAR", unit = "enum", doc = "start, middle or end, by the times of complete launches; NULL for other findings." }
-- count = { type = "BIGINT", unit = "count", doc = "Calls, tasks, steps or events concerned." }
-- total_count = { type = "BIGINT", unit = "count", doc = "Those examined; NULL if unknown." }
-- affected_ns = { type = "BIGINT", unit = "ns", doc = "lost_tasks, lost_launches: time from the first to the last of consecutive ones; overlapping_tasks: sum of the overlaps; duplicate_tasks, unknown_collectives: sum of the durations; early_tasks: sum of the times by which they are early; uncertain_delays: sum of the delays; NULL for others." }
-- affected_percent = { type = "DOUBLE", unit = "percent", doc = "affected_ns in percent of the run's duration; may exceed 100 with several streams; NULL if unknown." }
-- reports = { type = "VARCHAR", unit = "text", doc = "Reports whose numbers it affects." }
WITH launched AS (
  SELECT DISTINCT run_id, correlation_id
  FROM task
  WHERE correlation_id IS NOT NULL AND (run IS NULL OR run_id = run)
), call AS (
  SELECT a.run_id, a.name, a.start_ns, coalesce(TRY(a.start_ns + a.dur_ns), a.start_ns) AS end_ns,
         l.correlation_id IS NOT NULL AS complete
  FROM api AS a
  LEFT JOIN launched AS l ON l.run_id = a.run_id AND l.correlation_id = a.correlation_id
  WHERE a.correlation_id IS NOT NULL AND a.start_ns IS NOT NULL AND (run IS NULL OR a.run_id = run)
    AND regexp_matches(a.name, '(?i)launch') AND NOT regexp_matches(a.name, '(?i)hostfunc')
), item AS (
  -- Calls of other layers have the names of launches too, but no tasks.
  SELECT c.run_id, 'lost_tasks' AS finding, c.start_ns, c.end_ns, c.complete
  FROM call AS c
  JOIN (SELECT run_id, name FROM call GROUP BY run_id, name HAVING bool_or(complete)) AS n
    ON n.run_id = c.run_id AND n.name = c.name
  UNION ALL
  SELECT t.run_id, 'lost_launches', t.start_ns, coalesce(TRY(t.start_ns + t.dur_ns), t.start_ns), t.submit_ns IS NOT NULL
  FROM task AS t
  WHERE t.correlation_id IS NOT NULL AND t.start_ns IS NOT NULL AND t.kind IS DISTINCT FROM 'sync'
    AND (run IS NULL OR t.run_id = run)
), placed AS (
  SELECT run_id, finding, start_ns, end_ns, complete,
         count(CASE WHEN complete THEN 1 END) OVER (PARTITION BY run_id, finding ORDER BY start_ns) AS before,
         count(CASE WHEN complete THEN 1 END) OVER (PARTITION BY run_id, finding) AS completes,
         count(*) OVER (PARTITION BY run_id, finding) AS items
  FROM item
  -- Only what has incomplete ones is sorted. With FILTER instead of CASE, the windows would take quadratic time.
  WHERE (run_id, finding) IN (SELECT (run_id, finding) FROM item GROUP BY ALL HAVING NOT bool_and(complete))
), gap AS (
  SELECT run_id, finding, before, any_value(items) AS items, count(*) AS count,
         CASE WHEN before = 0 THEN 'start' WHEN before = any_value(completes) THEN 'end' ELSE 'middle' END AS place,
         max(end_ns)::HUGEINT - min(start_ns)::HUGEINT AS affected
  FROM placed
  WHERE NOT complete AND completes > 0
  GROUP BY run_id, finding, before
), work AS (
  SELECT t.run_id, t.track_id, t.start_ns, t.dur_ns, t.name, t.kind, t.parent_id, t.stream_wait_ns, t.submit_ns,
         t.device_id
  FROM task AS t
  WHERE t.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR t.run_id = run)
), copy AS (
  SELECT run_id, dur_ns, count(*) - 1 AS extra
  FROM work
  WHERE start_ns IS NOT NULL AND dur_ns > 0
  GROUP BY run_id, track_id, start_ns, dur_ns, name
  HAVING count(*) > 1
), long_name AS (
  -- Profilers cut names at powers of 2, with or without the terminating NUL.
  SELECT n.run_id, sum(n.tasks) AS tasks
  FROM (
    SELECT run_id, name, length(name) AS size, count(*) AS tasks, max(length(name)) OVER (PARTITION BY run_id) AS longest
    FROM work
    WHERE name IS NOT NULL
    GROUP BY run_id, name
  ) AS n
  WHERE n.size = n.longest AND n.longest IN (31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 1023, 1024, 2047, 2048, 4095, 4096)
  GROUP BY n.run_id
  HAVING count(*) > 1
), crossing AS (
  -- A task inside another one is a part of it, as the copies of a collective are.
  SELECT w.run_id, count(*) AS tasks, sum(least(-w.stream_wait_ns::HUGEINT, w.dur_ns)) AS overlap
  FROM work AS w
  LEFT JOIN task AS p ON p.run_id = w.run_id AND p.id = w.parent_id
  WHERE w.stream_wait_ns < 0 AND p.id IS NULL
  GROUP BY w.run_id
), tested AS (
  SELECT w.run_id, count(*) AS tasks, count(*) FILTER (WHERE w.dur_ns IS NULL) AS unfinished,
         count(w.submit_ns) AS delays,
         count(*) FILTER (WHERE w.start_ns < w.submit_ns) AS early,
         sum(w.submit_ns::HUGEINT - w.start_ns) FILTER (WHERE w.start_ns < w.submit_ns) AS earlier,
         count(*) FILTER (WHERE w.start_ns >= w.submit_ns
                          AND w.start_ns::HUGEINT - w.submit_ns <= d.clock_error_ns) AS uncertain,
         sum(w.start_ns::HUGEINT - w.submit_ns) FILTER (
           WHERE w.start_ns >= w.submit_ns AND w.start_ns::HUGEINT - w.submit_ns <= d.clock_error_ns) AS short_delay,
         count(*) FILTER (WHERE w.kind IS DISTINCT FROM 'collective' AND regexp_matches(w.name, '(?i)(nccl|rccl|hccl|hcom_|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)')) AS named,
         sum(w.dur_ns) FILTER (WHERE w.kind IS DISTINCT FROM 'collective' AND regexp_matches(w.name, '(?i)(nccl|rccl|hccl|hcom_|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)'))
           AS named_ns
  FROM work AS w
  LEFT JOIN device AS d ON d.run_id = w.run_id AND d.device_id = w.device_id
  GROUP BY w.run_id
), found AS (
  SELECT run_id, finding, place, sum(count) AS count, any_value(items) AS total, sum(affected) AS affected
  FROM gap
  GROUP BY run_id, finding, place
  UNION ALL
  SELECT c.run_id, 'overlapping_tasks', NULL, c.tasks, t.tasks, c.overlap
  FROM crossing AS c
  JOIN tested AS t ON t.run_id = c.run_id
  UNION ALL
  SELECT run_id, 'unfinished_tasks', NULL, unfinished, tasks, NULL FROM tested
  UNION ALL
  SELECT run_id, 'early_tasks', NULL, early, delays, earlier FROM tested
  UNION ALL
  SELECT run_id, 'uncertain_delays', NULL, uncertain, delays, short_delay FROM tested
  UNION ALL
  SELECT run_id, 'unknown_collectives', NULL, named, tasks, named_ns FROM tested
  UNION ALL
  SELECT c.run_id, 'duplicate_tasks', NULL, sum(c.extra), any_value(t.tasks), sum(c.extra * c.dur_ns::HUGEINT)
  FROM copy AS c
  JOIN tested AS t ON t.run_id = c.run_id
  GROUP BY c.run_id
  UNION ALL
  SELECT n.run_id, 'cut_names', NULL, n.tasks, t.tasks, NULL
  FROM long_name AS n
  JOIN tested AS t ON t.run_id = n.run_id
  UNION ALL
  SELECT run_id, 'cut_steps', NULL, count(*) FILTER (WHERE end_ns IS NULL OR coalesce(start_ns, fp_start_ns) IS NULL),
         count(*), NULL
  FROM step
  WHERE run IS NULL OR run_id = run
  GROUP BY run_id
  UNION ALL
  SELECT run_id, 'import_losses', NULL, sum(coalesce(event_count, 1)), NULL, NULL
  FROM import_log
  WHERE severity = 'data_loss' AND (run IS NULL OR run_id = run)
  GROUP BY run_id
)
SELECT f.run_id, f.finding, f.place, f.count::BIGINT AS count, f.total AS total_count,
       TRY_CAST(f.affected AS BIGINT) AS affected_ns,
       100 * f.affected::DOUBLE / nullif(r.end_ns::HUGEINT - r.start_ns, 0)::DOUBLE AS affected_percent,
       CASE f.finding
         WHEN 'lost_tasks' THEN 'breakdown, kernels, op-statistic, op-tree, idle-gaps, compare'
         WHEN 'lost_launches' THEN 'launch, op-tree, idle-causes, stream-utilisation'
         WHEN 'overlapping_tasks' THEN 'op-statistic, kernels (sums exceed busy time)'
         WHEN 'duplicate_tasks' THEN 'op-statistic, kernels'
         WHEN 'unfinished_tasks' THEN 'breakdown, op-statistic, kernels'
         WHEN 'early_tasks' THEN 'launch, idle-causes'
         WHEN 'uncertain_delays' THEN 'launch'
         WHEN 'cut_names' THEN 'kernels, op-statistic'
         WHEN 'unknown_collectives' THEN 'breakdown'
         WHEN 'cut_steps' THEN 'step-trace, step-breakdown, compare'
         ELSE 'all' END AS reports
FROM found AS f
LEFT JOIN run AS r ON r.run_id = f.run_id
WHERE f.count > 0
ORDER BY f.run_id, f.finding, f.place
