--- next_tasks
-- The next task is the longest of those that start when the gap ends. Its call's thread is looked at if the gap is
-- launched late.
SELECT g.rowid AS number, g.run_id, g.device_id, g.start_ns, g.end_ns, t.id AS task_id, t.name AS task_name,
       t.dur_ns, t.stream_id, t.submit_ns, t.stream_wait_ns, {thread} AS thread_id, {track} AS track,
       t.submit_ns::HUGEINT - g.start_ns >= g.end_ns::HUGEINT - t.submit_ns AS is_late, {idle} AS is_idle
FROM temp.gap AS g
JOIN task AS t ON t.run_id = g.run_id AND t.start_ns = g.end_ns AND t.device_id IS NOT DISTINCT FROM g.device_id
{calls}
{waits}
WHERE g.start_ns BETWEEN {start} AND {last} AND t.start_ns BETWEEN {start} AND {last_ns}
  AND t.kind IS DISTINCT FROM 'sync' AND t.dur_ns IS NOT NULL

--- last_task
-- DuckDB reads only the row groups of a table that these bounds allow.
SELECT max(end_ns) FROM temp.gap WHERE start_ns BETWEEN {start} AND {last}

--- call_bounds
SELECT coalesce(min(api_id), 0), coalesce(max(api_id), 0) FROM task WHERE start_ns BETWEEN {start} AND {last_ns}

--- calls
LEFT JOIN (FROM api WHERE id BETWEEN {first_id} AND {last_id}) AS a ON a.run_id = t.run_id AND a.id = t.api_id
LEFT JOIN temp.gap_thread AS h ON h.run_id = a.run_id AND h.track_id = a.track_id

--- waiting_runs
-- Runs whose streams wait in tasks.
SELECT DISTINCT run_id FROM task WHERE run_id IN ({runs}) AND task_type = 'EVENT_WAIT'

--- waits
-- The first event or wait on the task's stream that starts in the gap.
ASOF LEFT JOIN (
  SELECT run_id, track_id, start_ns, max(stream_wait_ns) AS stream_wait_ns FROM task
  WHERE kind = 'sync' AND run_id IN ({waiting}) AND start_ns BETWEEN {start} AND {last_ns}
  GROUP BY ALL
) AS w ON w.run_id = t.run_id AND w.track_id = t.track_id AND w.start_ns > g.start_ns

--- idle
-- Whether nothing was on the task's stream, not even a wait, for most of the gap.
t.run_id IN ({waiting}) AND 2 * (
  least(t.stream_wait_ns::HUGEINT, g.end_ns::HUGEINT - g.start_ns)
  + CASE WHEN w.start_ns < t.start_ns THEN least(w.stream_wait_ns::HUGEINT, w.start_ns::HUGEINT - g.start_ns) ELSE 0 END
) > g.end_ns::HUGEINT - g.start_ns

--- threads
CREATE OR REPLACE TEMP TABLE gap_thread AS
SELECT run_id, track_id, row_number() OVER (ORDER BY run_id, track_id) AS track
FROM (SELECT DISTINCT run_id, track_id FROM api WHERE run_id IN ({runs}) AND track_id IS NOT NULL)
WHERE EXISTS (FROM task WHERE run_id IN ({runs}) AND api_id IS NOT NULL)

--- names
-- A pattern takes longer than everything else here: once per name. In a CTE, DuckDB would move the
-- condition to where the names are not distinct yet.
CREATE OR REPLACE TEMP TABLE gap_name AS
SELECT name, regexp_matches(name, '{loads}') AS loads, regexp_matches(name, '{syncs}') AS syncs
FROM (
  SELECT DISTINCT name
  FROM (
    SELECT DISTINCT name FROM "range" WHERE run_id IN ({runs})
    UNION ALL SELECT DISTINCT name FROM api WHERE run_id IN ({runs})
  )
)
WHERE loads OR syncs

--- host
SELECT r.run_id, r.track_id, r.id, r.name, r.start_ns, r.start_ns + r.dur_ns AS end_ns
FROM (SELECT run_id, track_id, id, name, start_ns, dur_ns FROM "range"
      UNION ALL SELECT run_id, track_id, id, name, start_ns, dur_ns FROM api) AS r
WHERE r.run_id IN ({runs}) AND r.dur_ns >= {slice_ns} AND TRY(r.start_ns + r.dur_ns) IS NOT NULL

--- times
SELECT h.start_ns AS ts_ns
FROM ({host}) AS h
SEMI JOIN temp.gap_thread AS t ON t.run_id = h.run_id AND t.track_id = h.track_id
UNION ALL

--- slices
SELECT t.track, h.start_ns, h.end_ns, h.id, coalesce(n.loads, false) AS loads, coalesce(n.syncs, false) AS syncs
FROM ({host}) AS h
JOIN temp.gap_thread AS t ON t.run_id = h.run_id AND t.track_id = h.track_id
LEFT JOIN temp.gap_name AS n ON n.name = h.name
WHERE h.start_ns BETWEEN {start} AND {last}

--- host_names
SELECT h.number, r.name
FROM host_rows AS h
JOIN (SELECT run_id, id, name FROM "range" UNION ALL SELECT run_id, id, name FROM api) AS r
  ON r.run_id = h.run_id AND r.id = h.host_id
WHERE r.id BETWEEN {first_id} AND {last_id}

--- insert
INSERT INTO device_gap BY NAME
SELECT run_id, device_id, start_ns, end_ns,
       CASE WHEN submit_ns IS NULL THEN NULL
            WHEN submit_ns <= start_ns AND stream_wait_ns <> TRY(end_ns - start_ns) AND NOT coalesce(is_idle, false)
              THEN 'dependency'
            WHEN NOT is_late THEN 'launch'
            WHEN loads THEN 'data_loading'
            WHEN syncs THEN 'synchronisation'
            ELSE 'host' END AS cause,
       CASE WHEN submit_ns IS NOT NULL
            THEN TRY_CAST(greatest(0, least(submit_ns, end_ns)::HUGEINT - start_ns) AS BIGINT)
       END AS host_wait_ns,
       TRY_CAST(end_ns::HUGEINT - submit_ns AS BIGINT) AS launch_delay_ns,
       host_id, host_name, task_id, task_name, stream_id, thread_id
FROM gap_rows

--- loaded_elsewhere
-- Gaps in which the launching thread did nothing, as it only launches for others, while another one that calls the
-- runtime was inside a data loader for half of the time. Threads that only load, ahead, call nothing of the runtime.
UPDATE device_gap AS d SET cause = 'data_loading', host_id = l.host.id, host_name = l.host.name
FROM (
  SELECT g.run_id, g.device_id, g.start_ns, arg_min({{'id': r.id, 'name': r.name}}, (r.start_ns, r.name)) AS host
  FROM device_gap AS g
  JOIN (
    SELECT r.run_id, r.id, r.name, r.start_ns, r.start_ns + r.dur_ns AS end_ns
    FROM "range" AS r
    SEMI JOIN temp.gap_thread AS t ON t.run_id = r.run_id AND t.track_id = r.track_id
    SEMI JOIN (FROM temp.gap_name WHERE loads) AS n ON n.name = r.name
    WHERE r.run_id IN ({runs}) AND r.dur_ns >= 250000 AND TRY(r.start_ns + r.dur_ns) IS NOT NULL
  ) AS r ON r.run_id = g.run_id AND g.start_ns + g.host_wait_ns // 2 BETWEEN r.start_ns AND r.end_ns
  WHERE g.run_id IN ({runs}) AND g.cause = 'host' AND g.host_id IS NULL
    AND g.end_ns::HUGEINT - g.start_ns >= 1000000
    AND 2 * (least(r.end_ns, g.start_ns + g.host_wait_ns)::HUGEINT - greatest(r.start_ns, g.start_ns)) >= g.host_wait_ns
  GROUP BY ALL
) AS l
WHERE d.run_id = l.run_id AND d.device_id IS NOT DISTINCT FROM l.device_id AND d.start_ns = l.start_ns
