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
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the stream." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL for tasks of unknown streams." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks that ended, except events and waits (kind sync); all times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Tasks of these kinds without an end in the source; not counted in other columns." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the first of these tasks." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "End of the last of these tasks." }
-- window_ns = { type = "BIGINT", unit = "ns", doc = "end_ns − start_ns." }
-- busy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task ran (union of their intervals)." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "window_ns − busy_ns: the gaps between tasks, divided into the following three columns." }
-- host_wait_ns = { type = "BIGINT", unit = "ns", doc = "Gaps before a task that was launched after all previous tasks had ended: the stream waited for the host." }
-- start_wait_ns = { type = "BIGINT", unit = "ns", doc = "Gaps below 30 µs before tasks launched in time: their start delay (HTA's kernel_wait with its default)." }
-- other_wait_ns = { type = "BIGINT", unit = "ns", doc = "All other gaps: longer ones before tasks launched in time, such as waits for another stream." }
WITH timed AS (
  SELECT t.run_id, t.device_id, t.stream_id, t.submit_ns, t.start_ns AS from_ns, t.start_ns + t.dur_ns AS to_ns
  FROM task AS t
  WHERE t.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR t.run_id = run)
    AND (device IS NULL OR t.device_id = device) AND (step IS NULL OR t.step_id = step)
), reached AS (
  SELECT *, max(to_ns) OVER (
           PARTITION BY run_id, device_id, stream_id ORDER BY from_ns, to_ns
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         ) AS before_ns
  FROM timed
  WHERE to_ns IS NOT NULL
), gap AS (
  -- A gap exceeds 64 bits only if the window does: then both are NULL.
  SELECT *, greatest(0, TRY(from_ns - before_ns)) AS gap_ns
  FROM reached
), ended AS (
  SELECT run_id, device_id, stream_id, count(*) AS ended, min(from_ns) AS first_ns, max(to_ns) AS last_ns,
         TRY_CAST(max(to_ns)::HUGEINT - min(from_ns) AS BIGINT) AS window_ns,
         sum(CASE WHEN before_ns IS NULL THEN 0 ELSE gap_ns END) AS idle,
         sum(CASE WHEN submit_ns > before_ns THEN gap_ns ELSE 0 END) AS host_wait,
         sum(CASE WHEN before_ns IS NOT NULL AND (submit_ns > before_ns) IS DISTINCT FROM true AND gap_ns < 30000
             THEN gap_ns ELSE 0 END) AS start_wait
  FROM gap
  GROUP BY run_id, device_id, stream_id
), totals AS (
  SELECT run_id, device_id, stream_id, count(*) AS started
  FROM timed
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
