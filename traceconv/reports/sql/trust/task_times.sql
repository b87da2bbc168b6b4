-- [finding.unfinished_tasks]
-- doc = "Tasks without an end."
-- count = "tasks"
-- total = "tasks"
-- reports = "breakdown, op-statistic, kernels"
-- [finding.early_tasks]
-- doc = "Tasks that start before their launch."
-- count = "tasks"
-- total = "tasks with a launch"
-- affected = "sum of the times by which they are early"
-- reports = "launch, idle-causes"
-- [finding.late_tasks]
-- doc = "Tasks that end after the last synchronisation of the device, which waited for them, in runs with launches on one device."
-- count = "tasks"
-- total = "tasks with a launch"
-- affected = "sum of the times by which they are late"
-- reports = "breakdown, launch, idle-gaps, step-breakdown"
-- [finding.reordered_tasks]
-- doc = "Tasks that start after one that was launched later on their stream."
-- count = "tasks"
-- total = "tasks with a launch"
-- reports = "breakdown, launch, idle-gaps, step-breakdown"
-- [finding.uncertain_delays]
-- doc = "Launch delays up to the clock error."
-- count = "tasks"
-- total = "tasks with a launch"
-- affected = "sum of the delays"
-- reports = "launch"
WITH early AS (
  SELECT w.run_id, count(*) AS tasks, sum(w.submit_ns::HUGEINT - w.start_ns) AS earlier
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}} AND w.start_ns < w.submit_ns
  GROUP BY w.run_id
), delay AS (
  -- Those up to the largest error of a device, grouped before the join with each one's own.
  SELECT w.run_id, w.device_id, w.start_ns - w.submit_ns AS delay_ns, count(*) AS tasks
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}}
    AND w.start_ns >= w.submit_ns AND TRY(w.start_ns - w.submit_ns) <= (SELECT max(clock_error_ns) FROM device)
  GROUP BY ALL
), uncertain AS (
  SELECT w.run_id, sum(w.tasks) AS tasks, sum(w.delay_ns::HUGEINT * w.tasks) AS delay
  FROM delay AS w
  JOIN device AS d ON d.run_id = w.run_id AND d.device_id = w.device_id AND w.delay_ns <= d.clock_error_ns
  GROUP BY w.run_id
), wait_name AS (
  -- A synchronisation of the device ends after all tasks that were launched before it.
  SELECT c.run_id, c.name
  FROM called_word AS c
  GROUP BY c.run_id, c.name
  HAVING regexp_matches(any_value(c.name), '(?i)device_?synchronize|synchronize_?device|ctxsynchronize')
), waited AS (
  SELECT a.run_id, a.start_ns, max(TRY(a.start_ns + a.dur_ns)) AS end_ns
  FROM api AS a
  JOIN wait_name AS n ON n.run_id = a.run_id AND n.name = a.name
  JOIN (
    SELECT c.run_id, max(c.start_ns) AS start_ns
    FROM api AS c
    JOIN wait_name AS n ON n.run_id = c.run_id AND n.name = c.name
    WHERE c.correlation_id IS NOT NULL
    GROUP BY c.run_id
  ) AS l ON l.run_id = a.run_id AND l.start_ns = a.start_ns
  WHERE a.run_id IN (SELECT run_id FROM stream_queue GROUP BY run_id HAVING min(device_id) = max(device_id))
  GROUP BY a.run_id, a.start_ns
), late AS (
  SELECT w.run_id, count(*) AS tasks, sum(w.start_ns::HUGEINT + w.dur_ns - s.end_ns) AS later
  FROM task AS w
  JOIN waited AS s ON s.run_id = w.run_id AND s.start_ns >= w.submit_ns
  LEFT JOIN device AS d ON d.run_id = w.run_id AND d.device_id = w.device_id
  WHERE w.kind IS DISTINCT FROM 'sync' AND w.start_ns::HUGEINT + w.dur_ns > s.end_ns::HUGEINT + coalesce(d.clock_error_ns, 0)
  GROUP BY w.run_id
)
SELECT run_id, 'unfinished_tasks', NULL, unfinished, tasks, NULL FROM tested
UNION ALL
SELECT e.run_id, 'early_tasks', NULL, e.tasks, t.delays, e.earlier
FROM early AS e
JOIN tested AS t ON t.run_id = e.run_id
UNION ALL
SELECT l.run_id, 'late_tasks', NULL, l.tasks, t.delays, l.later
FROM late AS l
JOIN tested AS t ON t.run_id = l.run_id
UNION ALL
SELECT q.run_id, 'reordered_tasks', NULL, count(*), any_value(t.delays), NULL
FROM reordered_task AS q
JOIN tested AS t ON t.run_id = q.run_id
GROUP BY q.run_id
UNION ALL
SELECT u.run_id, 'uncertain_delays', NULL, u.tasks, t.delays, u.delay
FROM uncertain AS u
JOIN tested AS t ON t.run_id = u.run_id
