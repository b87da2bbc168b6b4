-- doc = "Per run and device, a range of time begin_ns to end_ns, around the middle of the tasks of some steps, in which no other task runs: empty, and without a row, if they are few."
steps_alone(of_run, of_device, of_step, from_step, to_step) AS TABLE
WITH span AS (
  SELECT t.run_id, t.device_id, min(t.start_ns) AS first_ns, max(t.start_ns) AS last_ns
  FROM task AS t
  WHERE (of_step IS NOT NULL OR from_step IS NOT NULL OR to_step IS NOT NULL) AND t.kind IS DISTINCT FROM 'sync'
    AND (of_run IS NULL OR t.run_id = of_run) AND (of_device IS NULL OR t.device_id = of_device)
    AND (of_step IS NULL OR t.step_id = of_step) AND (from_step IS NULL OR t.step_id >= from_step)
    AND (to_step IS NULL OR t.step_id <= to_step)
  GROUP BY t.run_id, t.device_id
), middle AS (
  -- Few tasks are read faster than the tasks of other steps.
  SELECT s.run_id, s.device_id, s.first_ns // 2 + s.last_ns // 2 AS ts_ns
  FROM span AS s
  JOIN device_busy AS p ON p.run_id = s.run_id AND p.device_id IS NOT DISTINCT FROM s.device_id
    AND p.ts_ns BETWEEN s.first_ns AND s.last_ns
  GROUP BY s.run_id, s.device_id, s.first_ns, s.last_ns
  HAVING count(*) > 64
), other AS (
  SELECT t.run_id, t.device_id, max(t.start_ns) FILTER (WHERE t.start_ns < m.ts_ns) AS before_ns,
         min(t.start_ns) FILTER (WHERE t.start_ns >= m.ts_ns) AS after_ns,
         max(t.start_ns + t.dur_ns) FILTER (WHERE t.start_ns < m.ts_ns) AS until_ns
  FROM task AS t
  JOIN middle AS m ON m.run_id = t.run_id AND m.device_id IS NOT DISTINCT FROM t.device_id
  WHERE t.kind IS DISTINCT FROM 'sync' AND t.dur_ns IS NOT NULL
    AND (of_run IS NULL OR t.run_id = of_run) AND (of_device IS NULL OR t.device_id = of_device)
    AND NOT coalesce((of_step IS NULL OR t.step_id = of_step) AND (from_step IS NULL OR t.step_id >= from_step)
      AND (to_step IS NULL OR t.step_id <= to_step), false)
  GROUP BY t.run_id, t.device_id
)
SELECT m.run_id, m.device_id, coalesce(greatest(o.before_ns + 1, o.until_ns), -9223372036854775807) AS begin_ns,
       coalesce(o.after_ns, 9223372036854775807) AS end_ns
FROM middle AS m
LEFT JOIN other AS o ON o.run_id = m.run_id AND o.device_id IS NOT DISTINCT FROM m.device_id
