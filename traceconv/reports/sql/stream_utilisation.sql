-- title = "Utilisation and waits of streams"
-- doc = "How long is each stream of a device busy, and why is it idle: was the next task launched too late, or did it start late? One row per stream; overlapping tasks on a stream count once."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks."
-- order = ["run_id", "device_id", "stream_id"]
-- measure = "busy_ns"
-- shown = ["device_id", "stream_id", "task_count", "busy_ns", "idle_ns", "host_wait_ns", "start_wait_ns", "other_wait_ns"]
-- selects = { run = true, device = true, steps = "tasks", time = ["Only the time from here on: tasks count with the part of their duration in it; NULL: no limit.", "Only the time before this: tasks count with the part of their duration in it; NULL: no limit."] }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the stream." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL for tasks of unknown streams." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks that ended, except events and waits (kind sync); all times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Tasks of these kinds without an end in the source; not counted in other columns." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the window: from_ns, or the start of the first of these tasks." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "End of the window: to_ns, or the end of the last of these tasks." }
-- window_ns = { type = "BIGINT", unit = "ns", doc = "end_ns − start_ns." }
-- busy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which at least one task ran (union of their intervals)." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "window_ns − busy_ns: the gaps between tasks, divided into the following three columns." }
-- host_wait_ns = { type = "BIGINT", unit = "ns", doc = "Gaps before a task that was launched after all previous tasks had ended: the stream waited for the host. Of several with the same start and end, the one launched first counts." }
-- start_wait_ns = { type = "BIGINT", unit = "ns", doc = "Gaps below 30 µs before tasks launched in time: their start delay (HTA's kernel_wait with its default)." }
-- other_wait_ns = { type = "BIGINT", unit = "ns", doc = "All other gaps: longer ones before tasks launched in time, such as waits for another stream, those before tasks whose launch is unknown, and the time from from_ns to the first task and from the last one to to_ns." }
WITH bound AS (
  -- The gaps in the window are those before to_ns without those before from_ns.
  SELECT 1 AS sign, to_ns AS at_ns
  UNION ALL
  SELECT -1 AS sign, from_ns AS at_ns WHERE from_ns IS NOT NULL
), zone AS (
  -- The points of a stream between which only tasks of the chosen steps run. The first of all known gaps can be after
  -- another task.
  SELECT p.run_id, p.device_id, p.stream_id, min(p.ts_ns, 2)[2] AS begin_ns, max(p.ts_ns) AS end_ns
  FROM steps_alone(run, device, step, first_step, last_step) AS a
  JOIN stream_busy AS p ON p.run_id = a.run_id AND p.device_id IS NOT DISTINCT FROM a.device_id
    AND p.ts_ns BETWEEN a.begin_ns AND a.end_ns
  GROUP BY p.run_id, p.device_id, p.stream_id
), known AS (
  -- Gaps are between all tasks of a stream, so those between tasks of steps are known only in their zone.
  SELECT p.run_id, p.device_id, p.stream_id, p.ts_ns, p.idle_ns, p.host_wait_ns, p.start_wait_ns, p.busy_until_ns,
         z.begin_ns AS zone_ns, b.sign, b.at_ns, b.at_ns IS NULL OR p.ts_ns <= b.at_ns AS is_before
  FROM stream_busy AS p
  JOIN bound AS b ON true
  LEFT JOIN zone AS z ON z.run_id = p.run_id AND z.device_id IS NOT DISTINCT FROM p.device_id
    AND z.stream_id IS NOT DISTINCT FROM p.stream_id
  WHERE {{selected(p.run_id, p.device_id)}}
    AND (p.ts_ns BETWEEN z.begin_ns AND z.end_ns OR (step IS NULL AND first_step IS NULL AND last_step IS NULL))
), point AS (
  -- The last known gaps before each bound; next_ns: the first known ones after it.
  SELECT run_id, device_id, stream_id, sign, at_ns, max(ts_ns) FILTER (WHERE is_before) AS ts_ns, zone_ns,
         min(ts_ns) FILTER (WHERE NOT is_before) AS next_ns,
         max(idle_ns) FILTER (WHERE is_before) AS idle_ns, max(host_wait_ns) FILTER (WHERE is_before) AS host_wait_ns,
         max(start_wait_ns) FILTER (WHERE is_before) AS start_wait_ns,
         max(busy_until_ns) FILTER (WHERE is_before) AS busy_until_ns
  FROM known
  GROUP BY run_id, device_id, stream_id, sign, at_ns, zone_ns
), chosen AS NOT MATERIALIZED (
  SELECT t.run_id, t.device_id, t.stream_id, t.submit_ns, t.start_ns AS begin_ns, t.start_ns + t.dur_ns AS finish_ns,
         (to_ns IS NULL OR t.start_ns < to_ns)
           AND (from_ns IS NULL OR t.start_ns >= from_ns OR t.start_ns + t.dur_ns > from_ns) AS in_window
  FROM task AS t
  WHERE t.kind IS DISTINCT FROM 'sync' AND {{selected(t.run_id, t.device_id, t.step_id)}}
), totals AS (
  SELECT run_id, device_id, stream_id, count(*) FILTER (WHERE in_window) AS started,
         count(finish_ns) FILTER (WHERE in_window) AS ended,
         min(begin_ns) FILTER (WHERE in_window AND finish_ns IS NOT NULL) AS first_ns,
         max(finish_ns) FILTER (WHERE in_window) AS last_ns,
         min(begin_ns) FILTER (WHERE finish_ns IS NOT NULL) AS earliest_ns, max(finish_ns) AS latest_ns
  FROM chosen
  GROUP BY run_id, device_id, stream_id
  HAVING count(begin_ns) > 0
), edge AS (
  -- The times of all tasks that are not between known gaps: the following join would be slow for all tasks.
  SELECT b.sign, b.at_ns,
         min(CASE WHEN p.ts_ns IS NULL OR p.zone_ns IS NOT NULL THEN w.earliest_ns ELSE p.ts_ns END) AS begin_ns,
         max(coalesce(p.next_ns, 9223372036854775807)) AS end_ns
  FROM totals AS w
  JOIN bound AS b ON true
  LEFT JOIN point AS p ON p.run_id = w.run_id AND p.device_id IS NOT DISTINCT FROM w.device_id
    AND p.stream_id IS NOT DISTINCT FROM w.stream_id AND p.sign = b.sign
  GROUP BY b.sign, b.at_ns
), reached AS (
  SELECT t.run_id, t.device_id, t.stream_id, b.sign, b.at_ns, t.submit_ns, t.begin_ns,
         greatest(CASE WHEN t.begin_ns >= p.ts_ns THEN p.busy_until_ns END, max(t.finish_ns) OVER (
           PARTITION BY t.run_id, t.device_id, t.stream_id, b.sign ORDER BY t.begin_ns, t.finish_ns, t.submit_ns
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         )) AS before_ns
  FROM chosen AS t
  JOIN edge AS b ON t.begin_ns BETWEEN b.begin_ns AND b.end_ns
  LEFT JOIN point AS p ON p.run_id = t.run_id AND p.device_id IS NOT DISTINCT FROM t.device_id
    AND p.stream_id IS NOT DISTINCT FROM t.stream_id AND p.sign = b.sign
  WHERE t.finish_ns IS NOT NULL AND (p.ts_ns IS NULL OR t.begin_ns >= p.ts_ns OR t.begin_ns < p.zone_ns)
    AND (p.next_ns IS NULL OR t.begin_ns <= p.next_ns)
), gap AS (
  -- A gap exceeds 64 bits only if the window does: then both are NULL.
  SELECT run_id, device_id, stream_id, sign, submit_ns > before_ns AS is_late, TRY(begin_ns - before_ns) AS full_ns,
         greatest(0, TRY(least(begin_ns, at_ns) - before_ns)) AS gap_ns
  FROM reached
  WHERE before_ns IS NOT NULL
), part AS (
  SELECT run_id, device_id, stream_id, sign * gap_ns AS idle, CASE WHEN is_late THEN sign * gap_ns ELSE 0 END AS host_wait,
         CASE WHEN NOT is_late AND full_ns < 30000 THEN sign * gap_ns ELSE 0 END AS start_wait
  FROM gap
  UNION ALL
  SELECT run_id, device_id, stream_id, sign * idle_ns, sign * host_wait_ns, sign * start_wait_ns
  FROM point
  UNION ALL
  SELECT z.run_id, z.device_id, z.stream_id, -p.sign * z.idle_ns, -p.sign * z.host_wait_ns, -p.sign * z.start_wait_ns
  FROM stream_busy AS z
  JOIN point AS p ON p.run_id = z.run_id AND p.device_id IS NOT DISTINCT FROM z.device_id
    AND p.stream_id IS NOT DISTINCT FROM z.stream_id AND p.zone_ns = z.ts_ns
  WHERE p.ts_ns IS NOT NULL
), gaps AS (
  SELECT run_id, device_id, stream_id, sum(idle) AS idle, sum(host_wait) AS host_wait, sum(start_wait) AS start_wait
  FROM part
  GROUP BY run_id, device_id, stream_id
), ended AS (
  -- The time from from_ns to the first task and from the last one to to_ns is idle (greatest and least ignore NULL).
  SELECT w.run_id, w.device_id, w.stream_id, w.started, w.ended,
         CASE WHEN w.latest_ns IS NOT NULL THEN coalesce(from_ns, w.first_ns) END AS first_ns,
         CASE WHEN w.latest_ns IS NOT NULL THEN coalesce(to_ns, w.last_ns) END AS last_ns,
         coalesce(g.idle, 0) + greatest(0, TRY(least(w.earliest_ns, to_ns) - from_ns))
           + greatest(0, TRY(to_ns - greatest(w.latest_ns, from_ns))) AS idle,
         coalesce(g.host_wait, 0) AS host_wait, coalesce(g.start_wait, 0) AS start_wait
  FROM totals AS w
  LEFT JOIN gaps AS g ON g.run_id = w.run_id AND g.device_id IS NOT DISTINCT FROM w.device_id
    AND g.stream_id IS NOT DISTINCT FROM w.stream_id
  WHERE w.started > 0
), timed AS (
  SELECT *, TRY_CAST(last_ns::HUGEINT - first_ns AS BIGINT) AS window_ns FROM ended
)
SELECT e.run_id, e.device_id, e.stream_id, e.ended AS task_count, e.started - e.ended AS unfinished_count,
       e.first_ns AS start_ns, e.last_ns AS end_ns, e.window_ns,
       (e.window_ns - e.idle)::BIGINT AS busy_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN e.idle::BIGINT END AS idle_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN e.host_wait::BIGINT END AS host_wait_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN e.start_wait::BIGINT END AS start_wait_ns,
       CASE WHEN e.window_ns IS NOT NULL THEN (e.idle - e.host_wait - e.start_wait)::BIGINT END AS other_wait_ns
FROM timed AS e
ORDER BY e.run_id, e.device_id, e.stream_id
