-- title = "Compute, communication, copy and idle time of devices"
-- doc = "Where does the time of each device go? One row per device; its window is the sum of compute, exposed collectives, exposed copies, other work and idle time. Times are unions of intervals, so concurrent tasks count once. For each step: step-breakdown."
-- formerly = "device_utilisation"
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks."
-- order = ["run_id", "device_id"]
-- measure = "busy_ns"
-- shown = ["device_id", "window_ns", "compute_ns", "exposed_collective_ns", "exposed_copy_ns", "other_ns", "idle_ns", "utilisation_percent", "overlap_percent"]
-- selects = { run = true, device = true, steps = "tasks", time = ["Only the time from here on: tasks count with the part of their duration in it; NULL: no limit.", "Only the time before this: tasks count with the part of their duration in it; NULL: no limit."] }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks that ended, except events and waits (kind sync); all times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Tasks of these kinds without an end in the source; not counted in other columns." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the window: from_ns, or the start of the first of these tasks." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "End of the window: to_ns, or the end of the last of these tasks." }
-- window_ns = { type = "BIGINT", unit = "ns", doc = "end_ns − start_ns." }
-- busy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task ran (union of their intervals)." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "window_ns − busy_ns." }
-- utilisation_percent = { type = "DOUBLE", unit = "percent", doc = "100 busy_ns / window_ns; NULL if the window is empty." }
-- compute_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task of kind compute ran." }
-- compute_percent = { type = "DOUBLE", unit = "percent", doc = "100 compute_ns / window_ns; NULL if the window is empty." }
-- copy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one copy ran." }
-- collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one collective ran." }
-- exposed_collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a collective ran without any compute task (exposed communication)." }
-- overlapped_collective_ns = { type = "BIGINT", unit = "ns", doc = "collective_ns − exposed_collective_ns: communication hidden by computation." }
-- overlap_percent = { type = "DOUBLE", unit = "percent", doc = "100 overlapped_collective_ns / collective_ns; NULL without collectives." }
-- exposed_copy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a copy ran without any compute task or collective." }
-- other_ns = { type = "BIGINT", unit = "ns", doc = "Time during which only tasks of unknown kind ran." }
-- sum_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations; more than busy_ns if tasks overlapped." }
WITH whole AS (
  -- Totals of complete runs are stored.
  SELECT d.*
  FROM device_total AS d
  WHERE {{selected(d.run_id)}} AND step IS NULL AND first_step IS NULL AND last_step IS NULL
    AND from_ns IS NULL AND to_ns IS NULL
), other AS (
  -- If there is no other run, DuckDB doesn't read the tasks.
  SELECT r.run_id
  FROM run AS r
  WHERE {{selected(r.run_id)}} AND NOT EXISTS (FROM whole AS w WHERE w.run_id = r.run_id)
), bound AS (
  -- The length of a union in the window is its length before to_ns minus that before from_ns.
  SELECT 1 AS sign, to_ns AS at_ns
  UNION ALL
  SELECT -1 AS sign, from_ns AS at_ns WHERE from_ns IS NOT NULL
), chosen AS (
  SELECT t.run_id, t.device_id, t.kind, t.start_ns, t.dur_ns
  FROM task AS t
  WHERE EXISTS (FROM other AS o WHERE o.run_id = t.run_id) AND t.kind IS DISTINCT FROM 'sync'
    AND {{selected(t.run_id, t.device_id, t.step_id)}}
    AND (to_ns IS NULL OR t.start_ns < to_ns)
), zone AS (
  -- The first and last point between which only tasks of the chosen steps run.
  SELECT p.run_id, p.device_id, min(p.ts_ns) AS begin_ns, max(p.ts_ns) AS end_ns
  FROM steps_alone(run, device, step, first_step, last_step) AS a
  JOIN device_busy AS p ON p.run_id = a.run_id AND p.device_id IS NOT DISTINCT FROM a.device_id
    AND p.ts_ns BETWEEN a.begin_ns AND a.end_ns
  GROUP BY p.run_id, p.device_id
), point AS (
  -- The last known lengths before each bound. They are of all tasks, so those of steps are used only in their zone.
  SELECT p.*, b.sign, b.at_ns, z.begin_ns AS zone_ns
  FROM device_busy AS p
  JOIN bound AS b ON b.at_ns IS NULL OR p.ts_ns <= b.at_ns
  LEFT JOIN zone AS z ON z.run_id = p.run_id AND z.device_id IS NOT DISTINCT FROM p.device_id
  WHERE {{selected(p.run_id, p.device_id)}}
    AND (p.ts_ns BETWEEN z.begin_ns AND z.end_ns OR (step IS NULL AND first_step IS NULL AND last_step IS NULL))
  QUALIFY row_number() OVER (PARTITION BY p.run_id, p.device_id, b.sign ORDER BY p.ts_ns DESC) = 1
), timed AS (
  -- Cut to the window (greatest and least ignore NULL).
  SELECT run_id, device_id, greatest(start_ns, from_ns) AS begin_ns,
         CASE WHEN dur_ns IS NOT NULL THEN least(start_ns + dur_ns, to_ns) END AS finish_ns
  FROM chosen
  WHERE from_ns IS NULL OR start_ns >= from_ns OR start_ns + dur_ns > from_ns
), totals AS (
  SELECT run_id, device_id, count(*) AS started, count(TRY(finish_ns - begin_ns)) AS ended,
         coalesce(from_ns, min(begin_ns) FILTER (WHERE TRY(finish_ns - begin_ns) IS NOT NULL)) AS first_ns,
         coalesce(to_ns, max(finish_ns)) AS last_ns, coalesce(sum(TRY(finish_ns - begin_ns)), 0) AS total
  FROM timed
  GROUP BY run_id, device_id
  HAVING count(begin_ns) > 0
), latest AS (
  -- The earliest last point before each bound, if each device has points.
  SELECT min(p.ts_ns) FILTER (WHERE p.sign = 1) AS upper_ns, min(p.ts_ns) FILTER (WHERE p.sign = -1) AS lower_ns
  FROM totals AS w
  CROSS JOIN bound AS b
  LEFT JOIN point AS p ON p.run_id = w.run_id AND p.device_id IS NOT DISTINCT FROM w.device_id AND p.sign = b.sign
  WHERE step IS NULL AND first_step IS NULL AND last_step IS NULL
  HAVING count(*) = count(p.ts_ns) AND count(*) > 0
), recent AS MATERIALIZED (
  -- The join below needs no others, but in long queries DuckDB builds its table from all tasks.
  SELECT t.*
  FROM chosen AS t, latest AS l
  WHERE t.start_ns >= l.upper_ns OR (t.start_ns >= l.lower_ns AND t.start_ns < from_ns)
), before AS (
  -- What lies between the points and the bounds: the tasks that start there, and those that run at the points; of
  -- steps, also what lies before the zone. The join excludes the tasks between by itself; with a filter after it,
  -- DuckDB can choose to build its table from all tasks.
  SELECT t.run_id, t.device_id, b.sign, t.kind, t.start_ns AS begin_ns,
         least(t.start_ns + t.dur_ns, b.at_ns, z.zone_ns) AS finish_ns
  FROM (FROM recent UNION ALL FROM chosen WHERE NOT EXISTS (FROM latest)) AS t
  JOIN bound AS b ON b.at_ns IS NULL OR t.start_ns < b.at_ns
  LEFT JOIN point AS p ON p.run_id = t.run_id AND p.device_id IS NOT DISTINCT FROM t.device_id AND p.sign = b.sign
    AND p.ts_ns > t.start_ns AND (p.zone_ns IS NULL OR p.zone_ns <= t.start_ns)
  LEFT JOIN point AS z ON z.run_id = t.run_id AND z.device_id IS NOT DISTINCT FROM t.device_id AND z.sign = b.sign
    AND z.zone_ns > t.start_ns
  WHERE t.dur_ns > 0 AND p.ts_ns IS NULL
  UNION ALL
  SELECT run_id, device_id, sign, kind, ts_ns AS begin_ns, least(until_ns, at_ns) AS finish_ns
  FROM (
    SELECT *, unnest([NULL, 'compute', 'copy', 'collective']) AS kind,
           unnest([busy_until_ns, compute_until_ns, copy_until_ns, collective_until_ns]) AS until_ns
    FROM point
  )
  WHERE until_ns IS NOT NULL
), reached AS (
  -- The latest end of the earlier tasks of each kind: the part of an interval after it is its share of the union
  -- (greatest ignores NULL, which means that no task started earlier).
  SELECT run_id, device_id, sign, kind, begin_ns, finish_ns,
         max(finish_ns) OVER earlier AS any_ns,
         max(CASE WHEN kind = 'compute' THEN finish_ns END) OVER earlier AS compute_to_ns,
         max(CASE WHEN kind = 'copy' THEN finish_ns END) OVER earlier AS copy_to_ns,
         max(CASE WHEN kind = 'collective' THEN finish_ns END) OVER earlier AS collective_to_ns
  FROM before
  WINDOW earlier AS (
    PARTITION BY run_id, device_id, sign ORDER BY begin_ns, finish_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  )
), part AS (
  SELECT run_id, device_id,
         sign * greatest(0, finish_ns - greatest(begin_ns, any_ns)) AS busy,
         CASE WHEN kind = 'compute' THEN sign * greatest(0, finish_ns - greatest(begin_ns, compute_to_ns)) END
           AS compute,
         CASE WHEN kind = 'copy' THEN sign * greatest(0, finish_ns - greatest(begin_ns, copy_to_ns)) END AS copies,
         CASE WHEN kind = 'collective' THEN sign * greatest(0, finish_ns - greatest(begin_ns, collective_to_ns)) END
           AS collective,
         CASE WHEN kind IN ('compute', 'collective')
              THEN sign * greatest(0, finish_ns - greatest(begin_ns, compute_to_ns, collective_to_ns)) END AS work,
         CASE WHEN kind IN ('compute', 'copy', 'collective')
              THEN sign * greatest(0, finish_ns - greatest(begin_ns, compute_to_ns, copy_to_ns, collective_to_ns)) END
           AS known
  FROM reached
  UNION ALL
  SELECT run_id, device_id, sign * busy_ns, sign * compute_ns, sign * copy_ns, sign * collective_ns,
         sign * compute_or_collective_ns, sign * compute_or_copy_or_collective_ns
  FROM point
  UNION ALL
  SELECT z.run_id, z.device_id, -p.sign * z.busy_ns, -p.sign * z.compute_ns, -p.sign * z.copy_ns,
         -p.sign * z.collective_ns, -p.sign * z.compute_or_collective_ns, -p.sign * z.compute_or_copy_or_collective_ns
  FROM device_busy AS z
  JOIN point AS p ON p.run_id = z.run_id AND p.device_id IS NOT DISTINCT FROM z.device_id AND p.zone_ns = z.ts_ns
), by_device AS (
  SELECT run_id, device_id, sum(busy) AS busy, sum(compute) AS compute, sum(copies) AS copies,
         sum(collective) AS collective, sum(work) AS work, sum(known) AS known
  FROM part
  GROUP BY run_id, device_id
), found AS (
  SELECT w.run_id, w.device_id, w.ended, w.started - w.ended AS unfinished, w.first_ns, w.last_ns, w.total,
         b.busy, b.compute, b.copies, b.collective, b.work, b.known
  FROM totals AS w
  LEFT JOIN by_device AS b ON b.run_id = w.run_id AND b.device_id IS NOT DISTINCT FROM w.device_id
  UNION ALL
  SELECT run_id, device_id, task_count, unfinished_count, start_ns, end_ns, sum_ns, busy_ns, compute_ns, copy_ns,
         collective_ns, compute_or_collective_ns, compute_or_copy_or_collective_ns
  FROM whole
  WHERE device IS NULL OR device_id = device
)
SELECT w.run_id, w.device_id, w.ended AS task_count, w.unfinished AS unfinished_count,
       w.first_ns AS start_ns, w.last_ns AS end_ns, TRY(w.last_ns - w.first_ns) AS window_ns,
       TRY_CAST(coalesce(w.busy, 0) AS BIGINT) AS busy_ns,
       TRY_CAST(w.last_ns::HUGEINT - w.first_ns - coalesce(w.busy, 0) AS BIGINT) AS idle_ns,
       100 * coalesce(w.busy, 0)::DOUBLE / nullif(w.last_ns::HUGEINT - w.first_ns, 0) AS utilisation_percent,
       TRY_CAST(coalesce(w.compute, 0) AS BIGINT) AS compute_ns,
       100 * coalesce(w.compute, 0)::DOUBLE / nullif(w.last_ns::HUGEINT - w.first_ns, 0) AS compute_percent,
       TRY_CAST(coalesce(w.copies, 0) AS BIGINT) AS copy_ns,
       TRY_CAST(coalesce(w.collective, 0) AS BIGINT) AS collective_ns,
       TRY_CAST(coalesce(w.work, 0) - coalesce(w.compute, 0) AS BIGINT) AS exposed_collective_ns,
       TRY_CAST(coalesce(w.collective, 0) + coalesce(w.compute, 0) - coalesce(w.work, 0) AS BIGINT)
         AS overlapped_collective_ns,
       100 * (w.collective + coalesce(w.compute, 0) - w.work)::DOUBLE / nullif(w.collective, 0) AS overlap_percent,
       TRY_CAST(coalesce(w.known, 0) - coalesce(w.work, 0) AS BIGINT) AS exposed_copy_ns,
       TRY_CAST(coalesce(w.busy, 0) - coalesce(w.known, 0) AS BIGINT) AS other_ns,
       TRY_CAST(w.total AS BIGINT) AS sum_ns
FROM found AS w
ORDER BY w.run_id, w.device_id
