-- title = "Utilisation of devices"
-- doc = "How much of the time is each device busy, and with what? One row per device; busy is the union of the tasks' intervals, so concurrent tasks count once."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks."
-- order = ["run_id", "device_id"]
-- measure = "busy_ns"
-- shown = ["device_id", "window_ns", "busy_ns", "utilisation_percent", "compute_ns", "copy_ns", "collective_ns", "exposed_collective_ns"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; NULL: all runs." }
-- device = { type = "BIGINT", doc = "Only this device; NULL: all devices." }
-- step = { type = "BIGINT", doc = "Only tasks of this step (step.step_id); NULL: all tasks." }
-- first_step = { type = "BIGINT", doc = "Only steps from this one on; NULL: no limit." }
-- last_step = { type = "BIGINT", doc = "Only steps up to this one; NULL: no limit." }
-- from_ns = { type = "BIGINT", doc = "Only the time from here on: tasks count with the part of their duration in it; NULL: no limit." }
-- to_ns = { type = "BIGINT", doc = "Only the time before this: tasks count with the part of their duration in it; NULL: no limit." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
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
-- sum_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations; more than busy_ns if tasks overlapped." }
WITH cut AS (
  -- Cut to the window (greatest and least ignore NULL).
  SELECT t.run_id, t.device_id, t.kind, greatest(t.start_ns, from_ns) AS begin_ns,
         CASE WHEN t.dur_ns IS NOT NULL THEN least(t.start_ns + t.dur_ns, to_ns) END AS finish_ns
  FROM task AS t
  WHERE t.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR t.run_id = run)
    AND (device IS NULL OR t.device_id = device) AND (step IS NULL OR t.step_id = step)
    AND (first_step IS NULL OR t.step_id >= first_step) AND (last_step IS NULL OR t.step_id <= last_step)
    AND (to_ns IS NULL OR t.start_ns < to_ns)
    AND (from_ns IS NULL OR t.start_ns >= from_ns OR t.start_ns + t.dur_ns > from_ns)
), timed AS (
  SELECT *, TRY(finish_ns - begin_ns) AS dur_ns FROM cut
), reached AS (
  -- The latest end of the earlier tasks of each kind: the part of an interval after it is its share of the union
  -- (greatest ignores NULL, which means that no task started earlier).
  SELECT run_id, device_id, kind, begin_ns, finish_ns,
         max(finish_ns) OVER before AS any_ns,
         max(CASE WHEN kind = 'compute' THEN finish_ns END) OVER before AS compute_to_ns,
         max(CASE WHEN kind = 'copy' THEN finish_ns END) OVER before AS copy_to_ns,
         max(CASE WHEN kind = 'collective' THEN finish_ns END) OVER before AS collective_to_ns
  FROM timed
  WHERE dur_ns > 0
  WINDOW before AS (
    PARTITION BY run_id, device_id ORDER BY begin_ns, finish_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  )
), by_device AS (
  SELECT run_id, device_id,
         sum(greatest(0, finish_ns - greatest(begin_ns, any_ns))) AS busy,
         sum(CASE WHEN kind = 'compute' THEN greatest(0, finish_ns - greatest(begin_ns, compute_to_ns)) END) AS compute,
         sum(CASE WHEN kind = 'copy' THEN greatest(0, finish_ns - greatest(begin_ns, copy_to_ns)) END) AS copies,
         sum(CASE WHEN kind = 'collective' THEN greatest(0, finish_ns - greatest(begin_ns, collective_to_ns)) END)
           AS collective,
         sum(CASE WHEN kind IN ('compute', 'collective')
             THEN greatest(0, finish_ns - greatest(begin_ns, compute_to_ns, collective_to_ns)) END) AS work
  FROM reached
  GROUP BY run_id, device_id
), totals AS (
  SELECT run_id, device_id, count(*) AS started, count(dur_ns) AS ended,
         coalesce(from_ns, min(begin_ns) FILTER (WHERE dur_ns IS NOT NULL)) AS first_ns,
         coalesce(to_ns, max(finish_ns)) AS last_ns, coalesce(sum(dur_ns), 0) AS total
  FROM timed
  GROUP BY run_id, device_id
)
SELECT w.run_id, w.device_id, w.ended AS task_count, w.started - w.ended AS unfinished_count,
       w.first_ns AS start_ns, w.last_ns AS end_ns, TRY(w.last_ns - w.first_ns) AS window_ns,
       TRY_CAST(coalesce(b.busy, 0) AS BIGINT) AS busy_ns,
       TRY_CAST(w.last_ns::HUGEINT - w.first_ns - coalesce(b.busy, 0) AS BIGINT) AS idle_ns,
       100 * coalesce(b.busy, 0)::DOUBLE / nullif(w.last_ns::HUGEINT - w.first_ns, 0) AS utilisation_percent,
       TRY_CAST(coalesce(b.compute, 0) AS BIGINT) AS compute_ns,
       100 * coalesce(b.compute, 0)::DOUBLE / nullif(w.last_ns::HUGEINT - w.first_ns, 0) AS compute_percent,
       TRY_CAST(coalesce(b.copies, 0) AS BIGINT) AS copy_ns,
       TRY_CAST(coalesce(b.collective, 0) AS BIGINT) AS collective_ns,
       TRY_CAST(coalesce(b.work, 0) - coalesce(b.compute, 0) AS BIGINT) AS exposed_collective_ns,
       TRY_CAST(w.total AS BIGINT) AS sum_ns
FROM totals AS w
LEFT JOIN by_device AS b ON b.run_id = w.run_id AND b.device_id IS NOT DISTINCT FROM w.device_id
ORDER BY w.run_id, w.device_id
