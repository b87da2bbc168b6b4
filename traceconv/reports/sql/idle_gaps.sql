-- title = "Idle gaps of devices and their causes"
-- doc = "Why does a device run nothing? One row per gap of 10 µs or more between its tasks, with its cause by these rules, of which the first that applies is taken. The next task is the one that ends the gap. dependency: it was launched before the gap, and the task before it on its stream is not the one after which the gap began, so it waited for another stream, an event or another device. launch: it was launched before the gap, or most of the gap passed between its launch and its start. The other causes are what the thread that launched it did from the start of the gap to the launch. data_loading: at least half of that time, it was inside a data loader. synchronisation: at the start or at least half of that time, it was inside a synchronising call. host: it did anything else (host_name). Ranges and calls shorter than 2.5 µs are ignored. A heuristic: causes are unknown if the launch is."
-- needs = ["task"]
-- when_empty = "No device was idle for 10 µs or more between its tasks."
-- order = ["run_id", "device_id", "start_ns"]
-- measure = "gap_ns"
-- shown = ["device_id", "start_ns", "gap_ns", "cause", "host_wait_ns", "launch_delay_ns", "host_name", "task_name"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; NULL: all runs." }
-- device = { type = "BIGINT", doc = "Only this device; NULL: all devices." }
-- from_ns = { type = "BIGINT", doc = "Only gaps that start at this time or later; NULL: no limit." }
-- to_ns = { type = "BIGINT", doc = "Only gaps that start before this time; NULL: no limit." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL if unknown." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the gap: latest end of the tasks before it, except events and waits (kind sync)." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "End of the gap: start of the next task." }
-- gap_ns = { type = "BIGINT", unit = "ns", doc = "end_ns − start_ns." }
-- cause = { type = "VARCHAR", unit = "enum", doc = "dependency, launch, data_loading, synchronisation or host; NULL if the launch of the next task is unknown. The report's description has the rules." }
-- host_wait_ns = { type = "BIGINT", unit = "ns", doc = "Time from the start of the gap to the launch of the next task: the device waited for the host; 0 if it was launched before; NULL if unknown." }
-- launch_delay_ns = { type = "BIGINT", unit = "ns", doc = "Time from the launch of the next task to its start; more than gap_ns if it was launched before the gap; NULL if unknown." }
-- host_id = { type = "BIGINT", unit = "id", doc = "Innermost range or call (range.id, api.id) of the launching thread that covers at least half of host_wait_ns; NULL if none, and for the causes dependency and launch." }
-- host_name = { type = "VARCHAR", unit = "text", doc = "Its name, such as aten::item." }
-- task_id = { type = "BIGINT", unit = "id", doc = "Next task (task.id); of several that start together, the first in the source." }
-- task_name = { type = "VARCHAR", unit = "text", doc = "Name of the next task." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream of the next task; NULL if unknown." }
-- thread_id = { type = "BIGINT", unit = "id", doc = "Track of the thread that launched it (track.track_id); NULL if unknown." }
WITH gap AS (
  SELECT t.run_id, t.id, t.device_id, g.start_ns AS begin_ns, g.end_ns AS finish_ns, t.name, t.stream_id,
         t.submit_ns, t.api_id, t.stream_wait_ns, t.submit_ns::HUGEINT - g.start_ns AS wait,
         g.end_ns::HUGEINT - t.submit_ns AS delay
  FROM device_gap AS g
  JOIN task AS t ON t.run_id = g.run_id AND t.start_ns = g.end_ns AND t.device_id IS NOT DISTINCT FROM g.device_id
  WHERE (run IS NULL OR g.run_id = run) AND (device IS NULL OR g.device_id = device)
    AND (from_ns IS NULL OR g.start_ns >= from_ns) AND (to_ns IS NULL OR g.start_ns < to_ns)
    AND t.kind IS DISTINCT FROM 'sync' AND t.dur_ns IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY t.run_id, t.device_id, g.end_ns ORDER BY t.id) = 1
), launched AS (
  SELECT g.run_id, g.id, a.track_id
  FROM gap AS g
  JOIN api AS a ON a.run_id = g.run_id AND a.id = g.api_id
), probe AS (
  -- The launching thread is looked at when the gap begins (0) and halfway to the launch (1).
  SELECT g.run_id, g.id, w.track_id, g.begin_ns, g.submit_ns, unnest([0, 1]) AS place,
         unnest([g.begin_ns, (g.begin_ns + g.wait // 2)::BIGINT]) AS at_ns
  FROM gap AS g
  JOIN launched AS w ON w.run_id = g.run_id AND w.id = g.id
  WHERE g.wait >= g.delay
), cell AS (
  -- A slice shorter than a cell of time is in the cells of its start and its end, so equal cells find all slices
  -- around a probe without comparing each with each.
  SELECT *, unnest([1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 30, 1::BIGINT << 36, 1::BIGINT << 62]) AS width
  FROM probe
), host AS NOT MATERIALIZED (
  SELECT h.*, CASE WHEN dur_ns < 1 << 14 THEN 1 << 14 WHEN dur_ns < 1 << 18 THEN 1 << 18
                   WHEN dur_ns < 1 << 22 THEN 1 << 22 WHEN dur_ns < 1 << 26 THEN 1 << 26
                   WHEN dur_ns < 1 << 30 THEN 1 << 30 WHEN dur_ns < 1::BIGINT << 36 THEN 1::BIGINT << 36
                   ELSE 1::BIGINT << 62 END AS width
  FROM (
    SELECT r.run_id, r.track_id, r.id, r.name, r.start_ns, r.dur_ns, TRY(r.start_ns + r.dur_ns) AS end_ns
    FROM "range" AS r
    WHERE r.dur_ns >= 2500
    UNION ALL
    SELECT a.run_id, a.track_id, a.id, a.name, a.start_ns, a.dur_ns, TRY(a.start_ns + a.dur_ns) FROM api AS a
    WHERE a.dur_ns >= 2500
  ) AS h
), around AS (
  SELECT c.run_id, c.id, c.place, c.begin_ns, c.submit_ns, c.at_ns, h.id AS host_id, h.name, h.start_ns, h.end_ns
  FROM host AS h
  JOIN cell AS c ON c.run_id = h.run_id AND c.track_id = h.track_id AND c.width = h.width
    AND c.at_ns // c.width = h.start_ns // h.width
  UNION ALL
  SELECT c.run_id, c.id, c.place, c.begin_ns, c.submit_ns, c.at_ns, h.id, h.name, h.start_ns, h.end_ns
  FROM host AS h
  JOIN cell AS c ON c.run_id = h.run_id AND c.track_id = h.track_id AND c.width = h.width
    AND c.at_ns // c.width = h.end_ns // h.width
  WHERE h.end_ns // h.width > h.start_ns // h.width
), inside AS (
  SELECT run_id, id, host_id, name, start_ns, end_ns, place,
         place = 1 AND 2 * (least(end_ns, submit_ns)::HUGEINT - greatest(start_ns, begin_ns))
           >= submit_ns::HUGEINT - begin_ns AS is_half
  FROM around
  WHERE start_ns <= at_ns AND at_ns < end_ns
), seen AS (
  SELECT run_id, id,
         arg_max((host_id, name), (start_ns, -(end_ns::HUGEINT), host_id)) FILTER (WHERE is_half) AS host,
         coalesce(bool_or(regexp_matches(coalesce(name, ''), '(?i)data_?loader|get_?next')) FILTER (WHERE is_half), false)
           AS loads,
         bool_or(regexp_matches(coalesce(name, ''), '(?i)synchroni[sz]e') AND (is_half OR place = 0)) AS syncs
  FROM inside
  GROUP BY run_id, id
)
SELECT g.run_id, g.device_id, g.begin_ns AS start_ns, g.finish_ns AS end_ns,
       TRY(g.finish_ns - g.begin_ns) AS gap_ns,
       CASE WHEN g.submit_ns IS NULL THEN NULL
            WHEN g.wait <= 0 AND g.stream_wait_ns <> TRY(g.finish_ns - g.begin_ns) THEN 'dependency'
            WHEN g.wait < g.delay THEN 'launch'
            WHEN s.loads THEN 'data_loading'
            WHEN s.syncs THEN 'synchronisation'
            ELSE 'host' END AS cause,
       CASE WHEN g.submit_ns IS NOT NULL THEN TRY_CAST(greatest(0, least(g.wait, g.wait + g.delay)) AS BIGINT) END
         AS host_wait_ns,
       TRY_CAST(g.delay AS BIGINT) AS launch_delay_ns, s.host[1] AS host_id, s.host[2] AS host_name,
       g.id AS task_id, g.name AS task_name, g.stream_id, w.track_id AS thread_id
FROM gap AS g
LEFT JOIN launched AS w ON w.run_id = g.run_id AND w.id = g.id
LEFT JOIN seen AS s ON s.run_id = g.run_id AND s.id = g.id
ORDER BY g.run_id, g.device_id, g.begin_ns
