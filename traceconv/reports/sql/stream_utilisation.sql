-- title = "Utilisation and waits of streams"
-- doc = "How long is each stream of a device busy, and why is it idle: was the next task launched too late, or did it start late? One row per stream; overlapping tasks on a stream count once."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks."
-- order = ["run_id", "device_id", "stream_id"]
-- measure = "busy_ns"
-- shown = ["device_id", "stream_id", "task_count", "busy_ns", "idle_ns", "host_wait_ns", "start_wait_ns", "other_wait_ns"]
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
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the stream." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL for tasks of unknown streams." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks that ended, except events and waits (kind sync); all times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Tasks of these kinds without an end in the source; not counted in other columns." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the window: from_ns, or the start of the first of these tasks." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "End of the window: to_ns, or the end of the last of these tasks." }
-- window_ns = { type = "BIGINT", unit = "ns", doc = "end_ns − start_ns." }
-- busy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task ran (union of their intervals)." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "window_ns − busy_ns: the gaps between tasks, divided into the following three columns." }
-- host_wait_ns = { type = "BIGINT", unit = "ns", doc = "Gaps before a task that was launched after all previous tasks had ended: the stream waited for the host." }
-- start_wait_ns = { type = "BIGINT", unit = "ns", doc = "Gaps below 30 µs before tasks launched in time: their start delay (HTA's kernel_wait with its default)." }
-- other_wait_ns = { type = "BIGINT", unit = "ns", doc = "All other gaps: longer ones before tasks launched in time, such as waits for another stream, and the time from from_ns to the first task and from the last one to to_ns." }
WITH timed AS (
  SELECT t.run_id, t.device_id, t.stream_id, t.submit_ns, t.start_ns AS begin_ns, t.start_ns + t.dur_ns AS finish_ns,
         (to_ns IS NULL OR t.start_ns < to_ns)
           AND (from_ns IS NULL OR t.start_ns >= from_ns OR t.start_ns + t.dur_ns > from_ns) AS in_window
  FROM task AS t
  WHERE t.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR t.run_id = run)
    AND (device IS NULL OR t.device_id = device) AND (step IS NULL OR t.step_id = step)
    AND (first_step IS NULL OR t.step_id >= first_step) AND (last_step IS NULL OR t.step_id <= last_step)
), reached AS (
  SELECT *, max(finish_ns) OVER (
           PARTITION BY run_id, device_id, stream_id ORDER BY begin_ns, finish_ns
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         ) AS before_ns
  FROM timed
  WHERE finish_ns IS NOT NULL
), gap AS (
  -- A gap exceeds 64 bits only if the window does: then both are NULL. Of a gap, the part in the window counts, from
  -- its start if no task was before (greatest and least ignore NULL).
  SELECT *, TRY(begin_ns - before_ns) AS full_ns,
         greatest(0, TRY(least(begin_ns, to_ns) - greatest(before_ns, from_ns))) AS gap_ns
  FROM reached
), by_stream AS (
  SELECT run_id, device_id, stream_id, count(*) FILTER (WHERE in_window) AS ended,
         coalesce(from_ns, min(begin_ns) FILTER (WHERE in_window)) AS first_ns,
         coalesce(to_ns, max(finish_ns) FILTER (WHERE in_window)) AS last_ns,
         max(finish_ns) AS latest_ns, sum(gap_ns) AS gaps,
         sum(CASE WHEN submit_ns > before_ns THEN gap_ns ELSE 0 END) AS host_wait,
         sum(CASE WHEN before_ns IS NOT NULL AND (submit_ns > before_ns) IS DISTINCT FROM true AND full_ns < 30000
             THEN gap_ns ELSE 0 END) AS start_wait
  FROM gap
  GROUP BY run_id, device_id, stream_id
), ended AS (
  SELECT *, TRY_CAST(last_ns::HUGEINT - first_ns AS BIGINT) AS window_ns,
         gaps + greatest(0, TRY(to_ns - greatest(latest_ns, from_ns))) AS idle
  FROM by_stream
), totals AS (
  SELECT run_id, device_id, stream_id, count(*) AS started
  FROM timed
  WHERE in_window
  GROUP BY run_id, device_id, stream_id
)
SELECT w.run_id, w.device_id, w.stream_id, coalesce(e.ended, 0)::BIGINT AS task_count,
       (w.started - coalesce(e.ended, 0))::BIGINT AS unfinished_count,
       e.first_ns AS start_ns, e.last_ns AS end_ns, e.window_ns,
       (e.window_ns - e.idle)::BIGINT AS busy_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN e.idle::BIGINT END AS idle_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN e.host_wait::BIGINT END AS host_wait_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN e.start_wait::BIGINT END AS start_wait_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN (e.idle - e.host_wait - e.start_wait)::BIGINT END AS other_wait_ns
FROM totals AS w
LEFT JOIN ended AS e ON e.run_id = w.run_id AND e.device_id IS NOT DISTINCT FROM w.device_id
  AND e.stream_id IS NOT DISTINCT FROM w.stream_id
ORDER BY w.run_id, w.device_id, w.stream_id
