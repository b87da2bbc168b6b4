-- [finding.lost_tasks]
-- doc = "Calls that launch kernels without a task, of names of which others have one; in PyTorch traces with other tasks, also all such calls if none has one."
-- count = "calls"
-- total = "calls of these names"
-- affected = "time from the first to the last of consecutive calls"
-- reports = "breakdown, kernels, op-statistic, op-tree, idle-gaps, compare"
-- [finding.lost_copies]
-- doc = "Calls that copy without a task, of names of which others have one, or, as for lost_tasks, all of a PyTorch trace."
-- count = "calls"
-- total = "calls of these names"
-- affected = "time from the first to the last of consecutive calls"
-- reports = "breakdown, kernels, idle-gaps, compare"
-- [finding.lost_launches]
-- doc = "Tasks whose launching call is missing, in runs that have such calls, or flows from them."
-- count = "tasks"
-- total = "tasks with or without a call"
-- affected = "time from the first to the last of consecutive tasks"
-- reports = "launch, op-tree, idle-causes, stream-utilisation"
-- [finding.unlinked_launches]
-- doc = "Tasks to which several flows lead from calls, and whose launch is unknown, because one of the two has no correlation ID or they have different ones."
-- count = "tasks"
-- total = "tasks"
-- reports = "launch, op-tree, idle-causes, stream-utilisation"
-- [finding.unclear_launches]
-- doc = "Tasks whose launching call is unknown, because several calls of a process, or calls of several processes in one trace, have the same correlation IDs, or without those another number of calls has the External id."
-- count = "tasks"
-- total = "tasks"
-- reports = "launch, op-tree, idle-causes, stream-utilisation, step-breakdown"
WITH call_name AS (
  -- any_value, because conditions on the name itself would be tested for each word.
  SELECT name, CASE WHEN regexp_matches(any_value(name), '(?i)hostfunc') THEN NULL
                    WHEN regexp_matches(any_value(name), '(?i)memcpy') THEN 'lost_copies'
                    WHEN regexp_matches(any_value(name), '(?i)launch') THEN 'lost_tasks' END AS finding
  FROM called_word
  GROUP BY name
), called AS MATERIALIZED (
  SELECT c.run_id, m.finding, c.name, c.word, c.bits & ~coalesce(t.bits, 0::UBIGINT) AS lost,
         c.bits & coalesce(t.bits, 0::UBIGINT) AS complete
  FROM called_word AS c
  JOIN call_name AS m ON m.name = c.name AND m.finding IS NOT NULL
  LEFT JOIN with_task AS t ON t.run_id = c.run_id AND t.word = c.word
), launcher AS MATERIALIZED (
  -- Calls of other layers have the names of launches too, but no tasks.
  SELECT run_id, finding, name, bool_or(is_lost) OVER (PARTITION BY run_id, finding) AS is_lost
  FROM (
    SELECT run_id, finding, name, bool_or(lost > 0) AS is_lost, bool_or(complete > 0) AS is_complete,
           bool_or(bool_or(complete > 0)) OVER (PARTITION BY run_id, finding) AS has_complete
    FROM called
    GROUP BY run_id, finding, name
  )
  WHERE is_complete OR NOT has_complete AND run_id IN (SELECT run_id FROM run WHERE writer LIKE 'PyTorch%')
), unlaunched AS MATERIALIZED (
  SELECT t.run_id, t.start_ns, coalesce(TRY(t.start_ns + t.dur_ns), t.start_ns) AS end_ns
  FROM task AS t
  WHERE t.correlation_id IS NOT NULL AND t.api_id IS NULL AND t.start_ns IS NOT NULL
    AND t.kind IS DISTINCT FROM 'sync' AND {{selected(t.run_id)}}
    -- Tasks with several calls are unclear, as are those of runs whose calls have no IDs.
    AND NOT EXISTS (
      FROM called_word AS c
      WHERE c.run_id = t.run_id AND c.word = t.correlation_id >> 6
        AND c.bits & (1::UBIGINT << (t.correlation_id & 63)::UBIGINT) > 0
    )
    AND (t.run_id IN (SELECT run_id FROM called_word)
         OR t.run_id NOT IN (SELECT run_id FROM import_log WHERE code = 'unclear_launch'))
), item AS (
  -- Complete launches matter in runs with others only.
  SELECT a.run_id, l.finding, a.start_ns, coalesce(TRY(a.start_ns + a.dur_ns), a.start_ns) AS end_ns,
         n.complete & (1::UBIGINT << (a.correlation_id & 63)::UBIGINT) > 0 AS complete
  FROM api AS a
  JOIN launcher AS l ON l.run_id = a.run_id AND l.name = a.name AND l.is_lost
  JOIN called AS n ON n.run_id = a.run_id AND n.name = a.name AND n.word = a.correlation_id >> 6
  WHERE a.start_ns IS NOT NULL
  UNION ALL
  SELECT run_id, 'lost_launches', start_ns, end_ns, false FROM unlaunched
  UNION ALL
  SELECT w.run_id, 'lost_launches', w.start_ns, w.start_ns, true
  FROM task AS w
  SEMI JOIN unlaunched AS u ON u.run_id = w.run_id
  WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}}
    AND w.api_id IS NOT NULL AND w.start_ns IS NOT NULL
), placed AS (
  SELECT run_id, finding, start_ns, end_ns, complete,
         -- With FILTER instead of CASE, the windows would take quadratic time.
         count(CASE WHEN complete THEN 1 END) OVER (PARTITION BY run_id, finding ORDER BY start_ns) AS before,
         count(CASE WHEN complete THEN 1 END) OVER (PARTITION BY run_id, finding) AS completes,
         count(*) OVER (PARTITION BY run_id, finding) AS items
  FROM item
), unlinked AS (
  SELECT w.run_id, count(DISTINCT w.id) AS tasks
  FROM task AS w
  JOIN flow AS f ON f.run_id = w.run_id AND f.dst_id = w.id AND f.kind = 'launch'
  JOIN api AS a ON a.run_id = f.run_id AND a.id = f.src_id
  WHERE w.submit_ns IS NULL AND w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}}
    AND (w.correlation_id = a.correlation_id) IS NOT TRUE
  GROUP BY w.run_id
), gap AS (
  SELECT run_id, finding, before, any_value(items) AS items, count(*) AS count,
         CASE WHEN any_value(completes) = 0 THEN NULL WHEN before = 0 THEN 'start'
              WHEN before = any_value(completes) THEN 'end' ELSE 'middle' END AS place,
         max(end_ns)::HUGEINT - min(start_ns)::HUGEINT AS affected
  FROM placed
  -- A run without complete launches that has flows from calls lost all calls.
  WHERE NOT complete AND (completes > 0 OR run_id IN (
    SELECT run_id FROM run_flow WHERE launches > 0 AND run_id NOT IN (SELECT run_id FROM unlinked)
  ))
  GROUP BY run_id, finding, before
)
SELECT run_id, finding, place, sum(count), any_value(items), sum(affected)
FROM gap
GROUP BY run_id, finding, place
UNION ALL
SELECT u.run_id, 'unlinked_launches', NULL, u.tasks, t.tasks, NULL
FROM unlinked AS u
JOIN tested AS t ON t.run_id = u.run_id
UNION ALL
SELECT l.run_id, 'unclear_launches', NULL, l.events, count(*), NULL
FROM (SELECT run_id, sum(event_count) AS events FROM import_log WHERE code = 'unclear_launch' GROUP BY run_id) AS l
JOIN task AS w ON w.run_id = l.run_id
WHERE {{selected(w.run_id)}}
GROUP BY l.run_id, l.events
