-- [finding.cut_steps]
-- doc = "Steps without a start or end, and, with a place, steps with less than 90 % of the usual number of tasks and ranges, parts of steps before the first or after the last one, and missing numbers of steps between which something ran, in runs in which at least half of the steps have the same number."
-- heuristic = true
-- count = "steps"
-- total = "steps"
-- reports = "step-trace, step-breakdown, compare"
-- [finding.silent_steps]
-- doc = "Steps in whose first (start) or last quarter (end), or more, nothing starts and no task runs, but not in most steps, in runs with few or unequal steps."
-- heuristic = true
-- count = "steps"
-- total = "steps"
-- affected = "time of these parts"
-- reports = "step-trace, step-breakdown, compare"
WITH bound AS (
  SELECT run_id, step_id, min(coalesce(start_ns, fp_start_ns)) AS start_ns, max(end_ns) AS end_ns,
         bool_or(end_ns IS NULL OR coalesce(start_ns, fp_start_ns) IS NULL) AS is_cut, count(*) AS rows,
         count(*) FILTER (WHERE end_ns IS NULL OR coalesce(start_ns, fp_start_ns) IS NULL) AS cut_rows
  FROM step
  WHERE {{selected(run_id)}}
  GROUP BY run_id, step_id
), of_step AS (
  SELECT run_id, step_id, sum(events) AS events
  FROM (
    SELECT w.run_id, w.step_id, count(*) AS events FROM task AS w
    WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}} AND w.step_id IS NOT NULL
    GROUP BY w.run_id, w.step_id
    UNION ALL
    SELECT r.run_id, r.step_id, count(*) FROM "range" AS r
    WHERE {{selected(r.run_id)}} AND r.step_id IS NOT NULL
    GROUP BY r.run_id, r.step_id
  )
  GROUP BY run_id, step_id
), outside AS (
  -- Without copies: those of weights belong to no step.
  SELECT w.run_id, coalesce(w.submit_ns, w.start_ns) AS ts_ns FROM task AS w
  WHERE coalesce(w.kind, '') NOT IN ('sync', 'copy') AND {{selected(w.run_id)}} AND w.step_id IS NULL
  UNION ALL
  SELECT r.run_id, r.start_ns FROM "range" AS r WHERE {{selected(r.run_id)}} AND r.step_id IS NULL
), sized AS (
  SELECT b.*, coalesce(o.events, 0) AS events, row_number() OVER (PARTITION BY b.run_id ORDER BY b.start_ns) AS number,
         count(*) OVER (PARTITION BY b.run_id) AS steps,
         lead(b.step_id) OVER (PARTITION BY b.run_id ORDER BY b.start_ns) AS next_id,
         lead(b.start_ns) OVER (PARTITION BY b.run_id ORDER BY b.start_ns) AS next_ns,
         quantile_disc(coalesce(o.events, 0), 0.5) OVER (PARTITION BY b.run_id) AS usual
  FROM bound AS b
  LEFT JOIN of_step AS o ON o.run_id = b.run_id AND o.step_id = b.step_id
), regular AS (
  -- Runs in which at least half of the steps have the same number of events, within 1 %.
  SELECT run_id, any_value(usual) AS usual, min(step_id) AS first_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
  FROM sized
  GROUP BY run_id
  HAVING any_value(usual) > 0 AND 2 * count(*) FILTER (WHERE abs(events - usual) * 100 <= usual) >= greatest(count(*), 4)
), cut_step AS (
  SELECT run_id, NULL AS place, sum(cut_rows) AS count FROM bound GROUP BY run_id
  UNION ALL
  SELECT s.run_id, CASE s.number WHEN 1 THEN 'start' WHEN s.steps THEN 'end' ELSE 'middle' END, 1
  FROM sized AS s
  SEMI JOIN regular AS g ON g.run_id = s.run_id
  WHERE NOT s.is_cut AND s.events * 10 < s.usual * 9
  UNION ALL
  -- What is left of a step whose own event is lost. Warm-ups are as much as a step, before the first number.
  SELECT g.run_id, CASE WHEN e.ts_ns < g.start_ns THEN 'start' ELSE 'end' END AS place, 1
  FROM outside AS e
  JOIN regular AS g ON g.run_id = e.run_id
  WHERE e.ts_ns < g.start_ns OR e.ts_ns >= g.end_ns
  GROUP BY g.run_id, g.usual, place
  HAVING count(*) * 10 >= g.usual AND (place = 'end' OR any_value(g.first_id) > 1 OR count(*) * 10 < g.usual * 9)
  UNION ALL
  SELECT s.run_id, 'middle', s.next_id - s.step_id - 1
  FROM sized AS s
  JOIN regular AS g ON g.run_id = s.run_id
  JOIN outside AS e ON e.run_id = s.run_id AND e.ts_ns >= s.end_ns AND e.ts_ns < s.next_ns
  WHERE s.next_id > s.step_id + 1
  GROUP BY s.run_id, s.step_id, s.next_id, g.usual
  HAVING count(*) * 2 >= g.usual
), few AS (
  -- Of few or unequal steps, the numbers of events don't show which are incomplete.
  SELECT b.run_id, b.step_id, b.start_ns, b.end_ns
  FROM bound AS b
  WHERE NOT b.is_cut AND b.end_ns > b.start_ns AND b.run_id NOT IN (SELECT run_id FROM regular)
), in_step AS (
  SELECT f.run_id, f.step_id, f.end_ns::HUGEINT - f.start_ns AS step_ns,
         min(e.start_ns)::HUGEINT - f.start_ns AS before, f.end_ns::HUGEINT - max(e.end_ns) AS after
  FROM few AS f
  JOIN (
    SELECT run_id, step_id, start_ns, TRY(start_ns + coalesce(dur_ns, 0)) AS end_ns FROM task
    UNION ALL
    SELECT run_id, step_id, start_ns, start_ns FROM api
    UNION ALL
    SELECT run_id, step_id, start_ns, start_ns FROM "range"
  ) AS e ON e.run_id = f.run_id AND e.step_id = f.step_id AND e.start_ns > f.start_ns
  GROUP BY f.run_id, f.step_id, f.start_ns, f.end_ns
), silent_step AS (
  SELECT run_id, 'start' AS place, before AS silent FROM in_step WHERE before * 4 >= step_ns
  UNION ALL
  SELECT run_id, 'end', after FROM in_step WHERE after * 4 >= step_ns
)
SELECT c.run_id, 'cut_steps', c.place, sum(c.count), any_value(b.rows), NULL
FROM cut_step AS c
JOIN (SELECT run_id, sum(rows) AS rows FROM bound GROUP BY run_id) AS b ON b.run_id = c.run_id
GROUP BY c.run_id, c.place
UNION ALL
SELECT s.run_id, 'silent_steps', s.place, count(*), any_value(f.steps), sum(s.silent)
FROM silent_step AS s
JOIN (SELECT run_id, count(*) AS steps FROM few GROUP BY run_id) AS f ON f.run_id = s.run_id
GROUP BY s.run_id, s.place
HAVING count(*) * 2 <= any_value(f.steps) OR any_value(f.steps) = 1
