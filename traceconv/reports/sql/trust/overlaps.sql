-- [finding.overlapping_tasks]
-- doc = "Tasks that start before the end of the previous one on their stream, and are not part of it as tasks inside it that weren't launched are."
-- count = "tasks"
-- total = "tasks"
-- affected = "sum of the overlaps"
-- reports = "op-statistic, kernels (sums exceed busy time)"
-- [finding.duplicate_tasks]
-- doc = "Copies of a task with its stream, start, duration and name."
-- count = "copies"
-- total = "tasks"
-- affected = "sum of the durations"
-- reports = "op-statistic, kernels"
WITH crossing AS MATERIALIZED (
  SELECT w.run_id, w.track_id, w.id, w.parent_id, w.api_id, w.name, w.start_ns, w.dur_ns, w.stream_wait_ns
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}} AND w.stream_wait_ns < 0
), inner_task AS (
  -- A task inside another one is a part of it, as the copies of a collective are, unless both were launched.
  SELECT c.run_id, c.id
  FROM task AS p
  JOIN crossing AS c ON c.run_id = p.run_id AND c.parent_id = p.id
  WHERE p.api_id IS NULL OR c.api_id IS NULL OR p.api_id = c.api_id
  UNION ALL
  -- The host waits for tasks; ranges may be between the wait and the task.
  SELECT w.run_id, w.id
  FROM (
    SELECT run_id, id, end_ns, is_wait,
           max(CASE WHEN is_wait THEN end_ns END) OVER (PARTITION BY run_id, track_id ORDER BY start_ns) AS waited_ns
    FROM (
      SELECT c.run_id, c.track_id, c.id, c.start_ns, TRY(c.start_ns + coalesce(c.dur_ns, 0)) AS end_ns, false AS is_wait
      FROM crossing AS c
      UNION ALL
      SELECT s.run_id, s.track_id, s.id, s.start_ns, TRY(s.start_ns + s.dur_ns), true
      FROM task AS s
      SEMI JOIN crossing AS c ON c.run_id = s.run_id AND c.track_id = s.track_id
      WHERE s.kind = 'sync'
    )
  ) AS w
  WHERE NOT w.is_wait AND w.waited_ns >= w.end_ns
), overlapping AS (
  SELECT c.run_id, count(*) AS tasks, sum(least(-c.stream_wait_ns::HUGEINT, c.dur_ns)) AS overlap
  FROM crossing AS c
  ANTI JOIN inner_task AS i ON i.run_id = c.run_id AND i.id = c.id
  GROUP BY c.run_id
), copy AS (
  -- A copy begins before the end of its original, so it overlaps it.
  SELECT w.run_id, w.dur_ns, count(*) - 1 AS extra
  FROM task AS w
  SEMI JOIN crossing AS c ON c.run_id = w.run_id AND c.track_id = w.track_id AND c.start_ns = w.start_ns
    AND c.dur_ns = w.dur_ns AND c.name IS NOT DISTINCT FROM w.name
  WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}} AND w.dur_ns > 0
  GROUP BY w.run_id, w.track_id, w.start_ns, w.dur_ns, w.name
  HAVING count(*) > 1
)
SELECT o.run_id, 'overlapping_tasks', NULL, o.tasks, t.tasks, o.overlap
FROM overlapping AS o
JOIN tested AS t ON t.run_id = o.run_id
UNION ALL
SELECT c.run_id, 'duplicate_tasks', NULL, sum(c.extra), any_value(t.tasks), sum(c.extra * c.dur_ns::HUGEINT)
FROM copy AS c
JOIN tested AS t ON t.run_id = c.run_id
GROUP BY c.run_id
