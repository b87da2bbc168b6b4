-- Views with the names and columns of Perfetto's trace processor, over the latest run of the store, for queries
-- written for Perfetto: USE perfetto, or FROM perfetto.slice. They read only tables of this store. The latest run is
-- selected with IN because DuckDB 2.0.0 loses LIMITs above a join with it and above a comparison with =.
CREATE SCHEMA IF NOT EXISTS perfetto;

CREATE OR REPLACE MACRO perfetto._in_protobuf() AS ((SELECT arg_max(source_format, run_id) FROM main.run) = 'perfetto_proto');
COMMENT ON MACRO perfetto._in_protobuf IS 'Whether the run is a trace in protobuf.';

CREATE OR REPLACE VIEW perfetto.process AS
WITH numbered AS (
  SELECT process_id, pid_text, name, try_cast(pid_text AS BIGINT) AS pid
  FROM main.process WHERE run_id IN (SELECT max(run_id) FROM main.run)
), named AS (
  -- A text gets a number after those of the source, so that it isn't the number of another process.
  SELECT process_id AS upid, process_id AS id,
         coalesce(pid, process_id + (SELECT greatest(max(pid) FILTER (pid < 1::BIGINT << 61), 0) FROM numbered)) AS pid,
         coalesce(name, CASE WHEN pid IS NULL THEN pid_text END) AS name, -2 * process_id AS arg_set_id
  FROM numbered
)
SELECT upid, id, pid, name, NULL::BIGINT AS start_ts, NULL::BIGINT AS end_ts, NULL::BIGINT AS parent_upid,
       NULL::BIGINT AS uid, NULL::VARCHAR AS cmdline, arg_set_id
FROM (
  FROM named
  UNION ALL
  -- The idle process, which Perfetto adds to every trace.
  SELECT 0, 0, 0, NULL, NULL WHERE NOT EXISTS (FROM named WHERE pid = 0)
);
COMMENT ON VIEW perfetto.process IS 'Processes. No source has the columns that are NULL.';

CREATE OR REPLACE VIEW perfetto._thread AS
WITH numbered AS (
  SELECT t.track_id, t.tid_text, t.name, try_cast(t.tid_text AS BIGINT) AS tid, p.upid, p.pid
  FROM main.track AS t
  LEFT JOIN perfetto.process AS p ON p.upid = coalesce(t.process_id, (SELECT upid FROM perfetto.process WHERE pid = 0))
  WHERE t.kind IN ('thread', 'stream') AND t.run_id IN (SELECT max(run_id) FROM main.run)
), named AS (
  SELECT track_id,
         coalesce(tid, CASE WHEN tid_text IS NULL THEN pid END,
                  track_id + (SELECT greatest(max(tid) FILTER (tid < 1::BIGINT << 61), 0) FROM numbered)) AS tid,
         coalesce(name, CASE WHEN tid IS NULL THEN tid_text END) AS name, upid, pid, -2 * track_id - 1 AS arg_set_id
  FROM numbered
)
SELECT row_number() OVER (ORDER BY pid <> 0, upid, tid <> pid, track_id) - 1 AS utid, *
FROM (
  FROM named
  UNION ALL
  -- The main thread, which Perfetto adds to every process.
  SELECT -p.upid, p.pid, CASE WHEN p.upid = 0 THEN 'swapper' END, p.upid, p.pid, NULL FROM perfetto.process AS p
  WHERE NOT EXISTS (FROM named AS t WHERE t.upid = p.upid AND t.tid = p.pid)
);
COMMENT ON VIEW perfetto._thread IS 'Threads, including tracks of streams, with their tracks.';

CREATE OR REPLACE VIEW perfetto.thread AS
SELECT utid, utid AS id, tid, name, NULL::BIGINT AS start_ts, NULL::BIGINT AS end_ts, upid,
       (tid = pid)::BIGINT AS is_main_thread, arg_set_id, 0::BIGINT AS machine_id
FROM perfetto._thread;
COMMENT ON VIEW perfetto.thread IS 'Threads, including tracks of streams. No source has the columns that are NULL.';

CREATE OR REPLACE VIEW perfetto._counter_series AS
SELECT track_id, series,
       (SELECT max(track_id) FROM main.track WHERE run_id IN (SELECT max(run_id) FROM main.run))
         + row_number() OVER (ORDER BY track_id, series) AS id
FROM (
  SELECT DISTINCT track_id, series FROM main.counter WHERE run_id IN (SELECT max(run_id) FROM main.run)
  UNION ALL
  SELECT t.track_id, NULL FROM main.track AS t ANTI JOIN main.counter AS c USING (run_id, track_id)
  WHERE t.kind = 'counter' AND t.run_id IN (SELECT max(run_id) FROM main.run)
);
COMMENT ON VIEW perfetto._counter_series IS 'Series of counters, each with the ID of its counter track: after those of other tracks.';

CREATE OR REPLACE VIEW perfetto._track AS
WITH RECURSIVE own AS (
  SELECT t.*, r.source_format = 'perfetto_proto' AS in_protobuf,
         t.kind IN ('thread', 'stream') AS is_thread
  FROM main.track AS t JOIN main.run AS r USING (run_id)
  WHERE t.run_id IN (SELECT max(run_id) FROM main.run)
), of_thread AS (
  -- Threads, and the tracks that are part of them.
  SELECT track_id, track_id AS thread_track_id FROM own WHERE is_thread
  UNION ALL
  SELECT o.track_id, f.thread_track_id FROM of_thread AS f JOIN own AS o ON o.parent_track_id = f.track_id
  WHERE NOT o.is_thread
), placed AS (
  SELECT o.*, n.utid, CASE WHEN n.utid IS NULL THEN o.process_id END AS upid,
         -- The tracks of a process are part of the track that its own events are on.
         coalesce(o.parent_track_id, CASE WHEN o.in_protobuf AND o.kind <> 'process' AND NOT o.is_thread THEN p.track_id END)
           AS parent_id,
         CASE WHEN n.utid IS NOT NULL THEN 'thread' WHEN o.process_id IS NULL THEN 'global' ELSE 'process' END AS holder,
         -(1::BIGINT << 40) - o.track_id AS source_arg_set_id
  FROM own AS o
  LEFT JOIN of_thread AS f ON f.track_id = o.track_id
  LEFT JOIN perfetto._thread AS n ON n.track_id = f.thread_track_id
  LEFT JOIN own AS p ON p.kind = 'process' AND p.process_id = o.process_id
)
-- Threads have their name in perfetto.thread.
SELECT t.track_id AS id, CASE WHEN NOT t.is_thread AND t.kind <> 'process' THEN t.name END AS name,
       CASE WHEN t.is_thread THEN 'thread_execution'
            WHEN t.kind = 'state' THEN t.holder || '_state_track_event'
            WHEN t.kind = 'process' OR t.in_protobuf AND NOT starts_with(t.tid_text, '0x') THEN t.holder || '_track_event'
            WHEN t.kind = 'async' THEN 'legacy_async_' || t.holder || '_slice'
            ELSE t.kind END AS type,
       t.utid, t.upid, NULL::VARCHAR AS unit, t.parent_id, t.source_arg_set_id
FROM placed AS t WHERE t.kind <> 'counter'
UNION ALL
-- One per series. Tracks of protobuf traces have one series.
SELECT c.id,
       CASE WHEN t.in_protobuf THEN t.name ELSE concat_ws(' ', t.name, c.series) END,
       t.holder || '_counter_track_event', t.utid, t.upid, t.unit, t.parent_id, t.source_arg_set_id
FROM placed AS t
JOIN perfetto._counter_series AS c ON c.track_id = t.track_id
WHERE t.kind = 'counter'
UNION ALL
-- Instants of processes and of the trace have tracks of their own in protobuf traces.
SELECT DISTINCT CASE WHEN m.scope = 'process' THEN -p.process_id - 1 ELSE -1 END, NULL,
       CASE WHEN m.scope = 'process' THEN 'legacy_chrome_process_instants' ELSE 'legacy_chrome_global_instants' END, NULL::BIGINT,
       CASE WHEN m.scope = 'process' THEN p.process_id END, NULL, NULL::BIGINT, NULL::BIGINT
FROM main.marker AS m JOIN own AS p ON p.track_id = m.track_id
WHERE p.in_protobuf AND m.run_id IN (SELECT max(run_id) FROM main.run) AND m.scope IN ('process', 'global')
  AND (m.scope = 'global' OR p.process_id IS NOT NULL);
COMMENT ON VIEW perfetto._track IS 'Tracks of slices and counters, with their threads and processes.';

CREATE OR REPLACE VIEW perfetto.track AS
SELECT id, name, type, parent_id, source_arg_set_id, 0::BIGINT AS machine_id FROM perfetto._track;
COMMENT ON VIEW perfetto.track IS 'Tracks of slices and counters.';

CREATE OR REPLACE VIEW perfetto.thread_track AS
SELECT id, name, type, utid, parent_id, source_arg_set_id FROM perfetto._track
WHERE utid IS NOT NULL AND NOT ends_with(type, 'counter_track_event') AND NOT ends_with(type, 'state_track_event')
UNION ALL
SELECT track_id, NULL, 'thread_execution', utid, NULL, NULL FROM perfetto._thread WHERE track_id <= 0;
COMMENT ON VIEW perfetto.thread_track IS 'Tracks of threads.';

CREATE OR REPLACE VIEW perfetto.process_track AS
SELECT id, name, type, upid, parent_id, source_arg_set_id FROM perfetto._track
WHERE upid IS NOT NULL AND NOT ends_with(type, 'counter_track_event') AND NOT ends_with(type, 'state_track_event');
COMMENT ON VIEW perfetto.process_track IS 'Tracks of processes, but not of their threads and counters.';

CREATE OR REPLACE VIEW perfetto.counter_track AS
SELECT id, name, type, unit, parent_id, source_arg_set_id FROM perfetto._track WHERE ends_with(type, 'counter_track_event');
COMMENT ON VIEW perfetto.counter_track IS 'Counter tracks, one per series.';

CREATE OR REPLACE VIEW perfetto.process_counter_track AS
SELECT id, name, type, upid, unit, parent_id, source_arg_set_id FROM perfetto._track
WHERE upid IS NOT NULL AND ends_with(type, 'counter_track_event');
COMMENT ON VIEW perfetto.process_counter_track IS 'Counter tracks of processes.';

CREATE OR REPLACE VIEW perfetto.thread_counter_track AS
SELECT id, name, type, utid, unit, parent_id, source_arg_set_id FROM perfetto._track
WHERE utid IS NOT NULL AND ends_with(type, 'counter_track_event');
COMMENT ON VIEW perfetto.thread_counter_track IS 'Counter tracks of threads.';

CREATE OR REPLACE VIEW perfetto.state_track AS
SELECT id, name, type, parent_id, source_arg_set_id FROM perfetto._track WHERE ends_with(type, 'state_track_event');
COMMENT ON VIEW perfetto.state_track IS 'Tracks of states.';

CREATE OR REPLACE VIEW perfetto.process_state_track AS
SELECT id, name, type, upid, parent_id, source_arg_set_id FROM perfetto._track
WHERE upid IS NOT NULL AND ends_with(type, 'state_track_event');
COMMENT ON VIEW perfetto.process_state_track IS 'Tracks of states of processes.';

CREATE OR REPLACE VIEW perfetto.thread_state_track AS
SELECT id, name, type, utid, parent_id, source_arg_set_id FROM perfetto._track
WHERE utid IS NOT NULL AND ends_with(type, 'state_track_event');
COMMENT ON VIEW perfetto.thread_state_track IS 'Tracks of states of threads.';

CREATE OR REPLACE VIEW perfetto.state AS
SELECT row_number() OVER (ORDER BY s.start_ns, s.id) - 1 AS id, s.start_ns AS ts, coalesce(s.dur_ns, -1) AS dur, s.track_id,
       s.category, s.name AS value, CASE WHEN s.args IS NOT NULL THEN s.id END AS arg_set_id
FROM main."range" AS s
WHERE s.run_id IN (SELECT max(run_id) FROM main.run)
  AND s.track_id IN (SELECT track_id FROM main.track WHERE kind = 'state' AND run_id IN (SELECT max(run_id) FROM main.run));
COMMENT ON VIEW perfetto.state IS 'States of state tracks; dur is -1 for the last one.';

CREATE OR REPLACE VIEW perfetto.slice AS
WITH stored AS (
  SELECT run_id, id, start_ns AS ts, dur_ns, track_id, category, name, depth, parent_id, args,
         NULL::BIGINT AS thread_ts, NULL::BIGINT AS thread_dur, NULL AS scope
  FROM main.task
  UNION ALL
  SELECT run_id, id, start_ns, dur_ns, track_id, category, coalesce(source_name, name), depth, parent_id, args, thread_start_ns,
         thread_dur_ns, NULL
  FROM main.api
  UNION ALL
  SELECT run_id, id, start_ns, dur_ns, track_id, category, name, depth, parent_id, args, thread_start_ns,
         thread_dur_ns, NULL
  FROM main."range"
  WHERE track_id NOT IN (
    SELECT track_id FROM main.track WHERE kind = 'state' AND run_id IN (SELECT max(run_id) FROM main.run))
), timed AS (
  FROM stored
  -- In trace JSON they include neither complete events without a duration nor legacy async events (S, T, p, F).
  WHERE run_id IN (SELECT max(run_id) FROM main.run)
    AND (args IS NULL OR perfetto._in_protobuf() OR (dur_ns IS NOT NULL AND track_id NOT IN (
           SELECT track_id FROM main.track WHERE kind = 'async' AND run_id IN (SELECT max(run_id) FROM main.run)))
         OR coalesce(json_extract_string(args, '$.trace_event.ph'), '') NOT IN ('X', 'S'))
), instant AS (
  FROM main.marker
  -- Perfetto's slices include instants, but no other markers (metadata, objects, samples …), which have a phase in args.
  WHERE ts_ns IS NOT NULL AND run_id IN (SELECT max(run_id) FROM main.run)
    AND (args IS NULL OR coalesce(json_extract_string(args, '$.trace_event.ph'), '') IN (
           '', CASE WHEN perfetto._in_protobuf() THEN 'T' END,
           CASE WHEN perfetto._in_protobuf() THEN 'p' END))
), edge AS (
  SELECT run_id, track_id, ts_ns AS at_ts, 1 AS place, id, 0 AS step FROM instant WHERE coalesce(scope, 'thread') = 'thread'
  UNION ALL
  SELECT run_id, track_id, ts, 1, id, 1 FROM timed
  WHERE dur_ns IS DISTINCT FROM 0 AND (run_id, track_id) IN (SELECT (run_id, track_id) FROM instant)
  UNION ALL
  SELECT run_id, track_id, ts + dur_ns, 0, id, -1 FROM timed
  WHERE dur_ns > 0 AND (run_id, track_id) IN (SELECT (run_id, track_id) FROM instant)
), counted AS (
  SELECT *, sum(step) OVER (
           PARTITION BY run_id, track_id ORDER BY at_ts, place, id ROWS UNBOUNDED PRECEDING
         )::INTEGER AS open_count
  FROM edge
), enclosing AS (
  -- The number of open slices is the depth of an instant of a thread; the last slice of the depth above it encloses it,
  -- except on tracks where slices overlap or never end.
  SELECT c.run_id, c.id, s.id AS parent_id, c.open_count AS depth
  FROM (FROM counted WHERE step = 0) AS c
  ASOF JOIN (FROM timed WHERE dur_ns IS DISTINCT FROM 0) AS s
    ON s.run_id = c.run_id AND s.track_id = c.track_id AND s.depth = c.open_count - 1 AND s.ts <= c.at_ts
  WHERE coalesce(s.ts + s.dur_ns, 9223372036854775807) > c.at_ts
), every AS (
  FROM timed
  UNION ALL
  SELECT i.run_id, i.id, i.ts_ns, 0,
         CASE WHEN NOT perfetto._in_protobuf() THEN i.track_id
              WHEN i.scope = 'process' AND t.process_id IS NOT NULL THEN -t.process_id - 1
              WHEN i.scope = 'global' THEN -1 ELSE i.track_id END,
         i.category, i.name, coalesce(e.depth, 0), e.parent_id, i.args, NULL, NULL, coalesce(i.scope, 'thread')
  FROM instant AS i LEFT JOIN enclosing AS e ON e.run_id = i.run_id AND e.id = i.id
  LEFT JOIN main.track AS t ON t.run_id = i.run_id AND t.track_id = i.track_id
)
SELECT e.id, e.id AS slice_id, e.ts, coalesce(e.dur_ns, -1) AS dur, e.track_id, e.category, e.category AS cat, e.name,
       e.depth,
       e.parent_id, CASE WHEN e.args IS NOT NULL THEN e.id END AS arg_set_id, e.thread_ts, e.thread_dur, e.scope
FROM every AS e;
COMMENT ON VIEW perfetto.slice IS 'Slices; dur is -1 for open slices and 0 for markers.';

CREATE OR REPLACE VIEW perfetto.slices AS FROM perfetto.slice;
COMMENT ON VIEW perfetto.slices IS 'The view slice under its other name.';

CREATE OR REPLACE VIEW perfetto.instant AS
SELECT ts, track_id, name, arg_set_id FROM perfetto.slice WHERE dur = 0;
COMMENT ON VIEW perfetto.instant IS 'Slices without a duration.';

CREATE OR REPLACE VIEW perfetto.slice_with_stack_id AS
WITH RECURSIVE stack AS (
  -- All slices of a stack have the same depth, so that each round of the recursion finds complete stacks.
  SELECT id, min(id) OVER (PARTITION BY category, name) AS stack_id, 0::BIGINT AS parent_stack_id
  FROM perfetto.slice WHERE parent_id IS NULL
  UNION ALL
  SELECT s.id, min(s.id) OVER (PARTITION BY k.stack_id, s.category, s.name), k.stack_id
  FROM stack AS k JOIN perfetto.slice AS s ON s.parent_id = k.id
)
SELECT s.*, k.stack_id, k.parent_stack_id FROM perfetto.slice AS s JOIN stack AS k ON k.id = s.id;
COMMENT ON VIEW perfetto.slice_with_stack_id IS 'Slices with a number for the categories and names of the slice and those that enclose it.';

CREATE OR REPLACE VIEW perfetto.thread_slice AS
SELECT s.*, k.name AS track_name, t.name AS thread_name, t.utid, t.tid, t.is_main_thread,
       p.name AS process_name, p.upid, p.pid
FROM perfetto.slice AS s
JOIN perfetto.thread_track AS k ON k.id = s.track_id
JOIN perfetto.thread AS t USING (utid)
LEFT JOIN perfetto.process AS p USING (upid);
COMMENT ON VIEW perfetto.thread_slice IS 'Slices of threads, with the names of threads and processes.';

CREATE OR REPLACE VIEW perfetto.process_slice AS
SELECT s.*, t.name AS track_name, p.name AS process_name, p.upid, p.pid
FROM perfetto.slice AS s
JOIN perfetto.process_track AS t ON t.id = s.track_id
JOIN perfetto.process AS p USING (upid);
COMMENT ON VIEW perfetto.process_slice IS 'Slices of tracks of processes, with the names of processes.';

CREATE OR REPLACE VIEW perfetto.thread_or_process_slice AS
FROM perfetto.thread_slice WHERE scope IS DISTINCT FROM 'global'
UNION ALL BY NAME
-- Legacy asynchronous events belong to the trace, although they name a process.
FROM perfetto.process_slice
WHERE track_id NOT IN (SELECT id FROM perfetto._track WHERE type = 'legacy_async_process_slice');
COMMENT ON VIEW perfetto.thread_or_process_slice IS 'Slices of threads and processes, with their names.';

-- Arguments of macros are selected before anything else: a column of the query would otherwise be one of the macro's.
CREATE OR REPLACE MACRO perfetto.ancestor_slice(of_slice) AS TABLE
WITH RECURSIVE _wanted AS (SELECT of_slice AS _id), _above AS (
  SELECT _s.parent_id AS _id FROM _wanted AS _w JOIN perfetto.slice AS _s ON _s.id = _w._id
  UNION ALL
  SELECT _s.parent_id FROM _above AS _a JOIN perfetto.slice AS _s ON _s.id = _a._id
)
SELECT _s.* FROM _above AS _a JOIN perfetto.slice AS _s ON _s.id = _a._id;
COMMENT ON MACRO TABLE perfetto.ancestor_slice IS 'The slices that enclose a slice.';

CREATE OR REPLACE MACRO perfetto.descendant_slice(of_slice) AS TABLE
WITH RECURSIVE _wanted AS (SELECT of_slice AS _id), _below AS (
  SELECT _s.* FROM _wanted AS _w JOIN perfetto.slice AS _s ON _s.parent_id = _w._id
  UNION ALL
  SELECT _s.* FROM _below AS _b JOIN perfetto.slice AS _s ON _s.parent_id = _b.id
)
FROM _below;
COMMENT ON MACRO TABLE perfetto.descendant_slice IS 'The slices that a slice encloses.';

CREATE OR REPLACE VIEW perfetto.partial_overlap AS
WITH timed AS (
  SELECT id, track_id, parent_id, name, ts, dur, ts + dur AS end_ts FROM perfetto.slice WHERE dur <> 0
), siblings AS (
  SELECT track_id, ts, dur, max(end_ts) OVER (
           PARTITION BY track_id, parent_id ORDER BY ts, end_ts DESC, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         ) AS before_end
  FROM timed
), placed AS (
  -- Only tracks with open slices, or with a slice that ends inside its next sibling, can have such slices.
  SELECT id, track_id, name, ts, end_ts,
         row_number() OVER (PARTITION BY track_id ORDER BY ts, end_ts DESC, id) - 1 AS place
  FROM timed
  WHERE dur > 0 AND track_id IN (SELECT track_id FROM siblings WHERE before_end > ts OR dur < 0)
), reach AS (
  -- For each slice: the number of slices of its track that start before its end.
  SELECT id, track_id, ts, end_ts, place + 1 AS low, begun AS high
  FROM (
    SELECT *, sum(is_start) OVER (PARTITION BY track_id ORDER BY at_ts, is_start ROWS UNBOUNDED PRECEDING) AS begun
    FROM (
      SELECT *, end_ts AS at_ts, 0 AS is_start FROM placed UNION ALL SELECT *, ts, 1 FROM placed
    )
  )
  WHERE is_start = 0 AND begun > place + 1
), node AS (
  -- The index range as nodes of a binary tree, at most two per level, so the cost does not depend on the depth.
  SELECT track_id, level, unnest([low, high - 1]) AS number, unnest([low % 2 = 1, high % 2 = 1]) AS used,
         end_ts, -ts AS later, id
  FROM (
    SELECT track_id, end_ts, ts, id, level, (low + (1::BIGINT << level) - 1) >> level AS low, high >> level AS high
    FROM (SELECT * EXCLUDE (high), high::BIGINT AS high FROM reach), range(0, 40) AS levels(level)
    WHERE high - low >= 1::BIGINT << greatest(level - 1, 0)
  )
  WHERE low < high
), first_end AS (
  SELECT track_id, level, number, min(struct_pack(end_ts := end_ts, later := later, id := id)) AS slice
  FROM node WHERE used GROUP BY track_id, level, number
), paired AS (
  -- Of the slices open at the start of a slice, the one that ends first: if it does not end before it, none does.
  SELECT c.id, min(f.slice) AS other
  FROM (
    -- Not a join with the levels, because the optimizer would reorder the two joins.
    SELECT id, track_id, level, place >> level AS number
    FROM (SELECT id, track_id, place, unnest((SELECT list(DISTINCT level) FROM first_end)) AS level FROM placed)
  ) AS c
  JOIN first_end AS f ON f.track_id = c.track_id AND f.level = c.level AND f.number = c.number
  GROUP BY c.id
)
SELECT c.id, c.track_id, c.name, c.ts AS start_ns, c.end_ts AS end_ns, a.name AS other_name, a.ts AS other_start,
       a.end_ts AS other_end
FROM paired AS p JOIN placed AS c ON c.id = p.id JOIN placed AS a ON a.id = p.other.id
WHERE a.end_ts < c.end_ts;
COMMENT ON VIEW perfetto.partial_overlap IS 'Slices that start inside another slice of their track and end after it, each with the enclosing one that ends first.';

CREATE OR REPLACE VIEW perfetto._arg_set AS
SELECT e.id AS arg_set_id, e.track_id, e.args, r.source_format = 'perfetto_proto' AS in_protobuf
FROM (
  SELECT run_id, id, track_id, args FROM main.task
  UNION ALL
  SELECT run_id, id, track_id, args FROM main.api
  UNION ALL
  SELECT run_id, id, track_id, args FROM main."range"
  UNION ALL
  SELECT run_id, id, track_id, args FROM main.marker
) AS e
JOIN main.run AS r USING (run_id)
WHERE e.args IS NOT NULL AND e.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto._arg_set IS 'Args of slices as JSON.';

CREATE OR REPLACE VIEW perfetto._legacy_event AS
-- Events of trace JSON in protobuf, with the thread that wrote them although they aren't on its track.
SELECT a.arg_set_id, a.args, try_cast(json_extract(a.args, '$.track_event.legacy_event.tid') AS BIGINT) AS tid,
       try_cast(json_extract(a.args, '$.track_event.legacy_event.pid') AS BIGINT) AS pid,
       CASE WHEN t.kind = 'async' THEN try_cast(t.tid_text AS UBIGINT)::HUGEINT END AS source_id
FROM perfetto._arg_set AS a
JOIN main.track AS t ON t.track_id = a.track_id AND t.run_id IN (SELECT max(run_id) FROM main.run)
WHERE a.in_protobuf AND contains(a.args, '"legacy_event"');
COMMENT ON VIEW perfetto._legacy_event IS 'Legacy events of protobuf traces whose thread is in their args.';

CREATE OR REPLACE VIEW perfetto._described AS
SELECT d.arg_set_id, d.is_rank, j.id AS place, j.type, j.atom, replace(substr(j.fullkey, 3), '"', '') AS key
FROM (
  SELECT -2 * process_id AS arg_set_id, false AS is_rank, properties
  FROM main.process WHERE run_id IN (SELECT max(run_id) FROM main.run)
  UNION ALL
  SELECT -(1::BIGINT << 40) - track_id, false, properties
  FROM main.track WHERE run_id IN (SELECT max(run_id) FROM main.run)
  UNION ALL
  SELECT -(1::BIGINT << 40) - track_id, true, json_object('sibling_order_rank', sort_index) FROM main.track
  WHERE sort_index IS NOT NULL AND kind NOT IN ('thread', 'stream') AND run_id IN (SELECT max(run_id) FROM main.run)
) AS d, json_tree(d.properties) AS j
WHERE d.properties IS NOT NULL AND j.atom IS NOT NULL;
COMMENT ON VIEW perfetto._described IS 'Args of processes and tracks: one row per value.';

-- The values of JSON have places from 0 on, and other values of a set places from 4000 on.
CREATE OR REPLACE MACRO perfetto._arg_id(arg_set_id, place) AS arg_set_id * 4096 + place;
COMMENT ON MACRO perfetto._arg_id IS 'The ID of a value, by its set and its place in it.';

CREATE OR REPLACE MACRO perfetto._json_arg_id(arg_set_id, place) AS
CASE WHEN place < 4000 THEN perfetto._arg_id(arg_set_id, place::BIGINT) END;
COMMENT ON MACRO perfetto._json_arg_id IS 'The same for a value of JSON; NULL for the last values of a large set.';

CREATE OR REPLACE VIEW perfetto.args AS
WITH leaf AS (
  SELECT e.arg_set_id, j.type, j.atom, j.id AS place, replace(substr(j.fullkey, 3), '"', '') AS own_key,
         -- Typed fields of track events, debug annotations, and the args of JSON.
         CASE WHEN NOT e.in_protobuf THEN 'args.' || own_key
              WHEN starts_with(own_key, 'track_event.log_message.') THEN own_key
              WHEN own_key = 'track_event.log_priority' THEN 'track_event.priority'
              WHEN starts_with(own_key, 'track_event.') THEN substr(own_key, 13)
              ELSE 'debug.' || own_key END AS key,
         contains(e.args, '"pointers"')
           AND list_contains(json_extract_string(e.args, '$.track_event.pointers[*]'), own_key) AS is_pointer
  FROM perfetto._arg_set AS e, json_tree(e.args) AS j
  WHERE j.atom IS NOT NULL AND NOT starts_with(j.fullkey, '$.trace_event')
    -- Neither fields without a name nor what is elsewhere.
    AND NOT regexp_matches(j.fullkey, '^\$\.track_event\.(field_[0-9]|.*\.field_[0-9]+$|(end_)?callstack|pointers|thread_instruction_count$|legacy_event\.[pt]id$)')
)
SELECT perfetto._json_arg_id(arg_set_id, place) AS id, arg_set_id, regexp_replace(key, '\[[0-9]+\]', '', 'g') AS flat_key, key,
       CASE WHEN type = 'VARCHAR' THEN json_extract_string(atom, '$') END AS string_value,
       CASE WHEN type IN ('BIGINT', 'UBIGINT', 'HUGEINT') THEN try_cast(atom AS BIGINT)
            WHEN type = 'BOOLEAN' THEN (atom::VARCHAR = 'true')::BIGINT END AS int_value,
       CASE WHEN type = 'DOUBLE' THEN try_cast(atom AS DOUBLE) END AS real_value,
       json_extract_string(atom, '$') AS display_value,
       CASE type WHEN 'VARCHAR' THEN CASE WHEN is_pointer THEN 'pointer' ELSE 'string' END
                 WHEN 'BOOLEAN' THEN 'bool' WHEN 'DOUBLE' THEN 'real' WHEN 'NULL' THEN 'null'
                 WHEN 'BIGINT' THEN 'int' WHEN 'UBIGINT' THEN CASE WHEN try_cast(atom AS BIGINT) IS NULL THEN 'uint' ELSE 'int' END
                 ELSE 'int' END AS value_type
FROM leaf
UNION ALL
SELECT perfetto._arg_id(-2 * p.process_id, 4000), -2 * p.process_id, 'process_sort_index_hint', 'process_sort_index_hint', NULL,
       p.sort_index, NULL, p.sort_index::VARCHAR, 'int'
FROM main.process AS p
WHERE p.sort_index IS NOT NULL AND p.run_id IN (SELECT max(run_id) FROM main.run)
UNION ALL
SELECT CASE WHEN s.is_rank THEN perfetto._arg_id(s.arg_set_id, 4000) ELSE perfetto._json_arg_id(s.arg_set_id, s.place) END,
       s.arg_set_id, regexp_replace(s.key, '\[[0-9]+\]', '', 'g'), s.key,
       CASE WHEN s.type = 'VARCHAR' THEN json_extract_string(s.atom, '$') END,
       CASE WHEN s.type = 'BOOLEAN' THEN (s.atom::VARCHAR = 'true')::BIGINT ELSE try_cast(s.atom AS BIGINT) END, NULL,
       json_extract_string(s.atom, '$'), CASE s.type WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'bool' ELSE 'int' END
FROM perfetto._described AS s
UNION ALL
SELECT perfetto._arg_id(l.arg_set_id, 4000), l.arg_set_id, 'legacy_trace_source_id', 'legacy_trace_source_id', NULL,
       l.source_id::BIGINT, NULL, l.source_id::VARCHAR, 'int'
FROM perfetto._legacy_event AS l WHERE l.source_id < 1::HUGEINT << 63
UNION ALL
-- Legacy asynchronous tracks; an ID without a scope is in that of its category.
SELECT perfetto._arg_id(s.arg_set_id, 4001 + s.place), s.arg_set_id, s.key, s.key, CASE WHEN NOT s.is_number THEN s.value END,
       CASE WHEN s.is_number THEN s.value::BIGINT END, NULL, s.value, CASE WHEN s.is_number THEN 'int' ELSE 'string' END
FROM (
  SELECT t.source_arg_set_id AS arg_set_id, unnest(range(7)) AS place,
         unnest(['source', 'name', 'scope', 'source_scope', 'trace_id_is_process_scoped', 'track_compressor_idx', 'upid']) AS key,
         unnest(['chrome', t.name, l.scope, l.scope, (t.upid IS NOT NULL)::BIGINT::VARCHAR, '0', l.upid::VARCHAR]) AS value,
         place >= 4 AS is_number
  FROM perfetto._track AS t
  JOIN (
    SELECT k.track_id, any_value(coalesce(CASE WHEN k.scope NOT IN ('process', 'global') THEN k.scope END, e.category)) AS scope,
           max(p.upid) AS upid
    FROM perfetto._legacy_event AS a
    JOIN perfetto.slice AS e ON e.arg_set_id = a.arg_set_id
    JOIN main.track AS k ON k.track_id = e.track_id AND k.run_id IN (SELECT max(run_id) FROM main.run)
    LEFT JOIN perfetto.process AS p ON p.pid = a.pid
    GROUP BY k.track_id
  ) AS l ON l.track_id = t.id
  WHERE starts_with(t.type, 'legacy_async_')
) AS s
WHERE s.value IS NOT NULL
UNION ALL
SELECT perfetto._arg_id(l.arg_set_id, 4001), l.arg_set_id, 'legacy_event.passthrough_utid', 'legacy_event.passthrough_utid',
       NULL, max(t.utid), NULL, max(t.utid)::VARCHAR, 'int'
FROM perfetto._legacy_event AS l JOIN perfetto._thread AS t ON t.tid = l.tid AND t.pid = l.pid
GROUP BY l.arg_set_id
UNION ALL
SELECT perfetto._arg_id(t.source_arg_set_id - (1::BIGINT << 40), 4000), t.source_arg_set_id - (1::BIGINT << 40), 'utid', 'utid',
       NULL, t.utid, NULL, t.utid::VARCHAR, 'int'
FROM perfetto._track AS t
WHERE t.utid IS NOT NULL AND perfetto._in_protobuf()
  AND t.id IN (
    SELECT track_id FROM main."range" WHERE run_id IN (SELECT max(run_id) FROM main.run)
    UNION ALL
    SELECT track_id FROM main.marker WHERE run_id IN (SELECT max(run_id) FROM main.run))
UNION ALL
SELECT perfetto._arg_id(-2 * t.track_id - 1, 4000), -2 * t.track_id - 1, 'thread_sort_index_hint', 'thread_sort_index_hint',
       NULL, t.sort_index, NULL, t.sort_index::VARCHAR, 'int'
FROM main.track AS t
WHERE t.sort_index IS NOT NULL AND t.kind IN ('thread', 'stream') AND t.run_id IN (SELECT max(run_id) FROM main.run)
UNION ALL
SELECT l.arg_set_id - list_position(['event_name', 'event_phase', 'overlap_start', 'overlap_end', 'conflicting_slice_name',
                                     'conflicting_slice_ts', 'conflicting_slice_dur'], l.key),
       l.arg_set_id, l.key, l.key, NULL, NULL, NULL, l.display_value, 'string'
FROM (
  UNPIVOT (
    SELECT -4611686018427387904 - 8 * o.id AS arg_set_id, o.name AS event_name, 'X' AS event_phase,
           o.start_ns::VARCHAR AS overlap_start, o.other_end::VARCHAR AS overlap_end,
           o.other_name AS conflicting_slice_name, o.other_start::VARCHAR AS conflicting_slice_ts,
           (o.other_end - o.other_start)::VARCHAR AS conflicting_slice_dur
    FROM perfetto.partial_overlap AS o
  ) ON COLUMNS(* EXCLUDE (arg_set_id)) INTO NAME key VALUE display_value
) AS l;
COMMENT ON VIEW perfetto.args IS 'Args of slices, sort indices of processes and threads, and import log entries: one row per value.';

CREATE OR REPLACE MACRO perfetto.extract_arg(wanted_set, wanted_key) AS (
  SELECT CASE WHEN _a.int_value IS NOT NULL THEN _a.int_value::UNION(number BIGINT, text VARCHAR)
              ELSE _a.display_value::UNION(number BIGINT, text VARCHAR) END
  FROM (SELECT wanted_set AS _set, wanted_key AS _key) AS _w
  JOIN perfetto.args AS _a ON _a.arg_set_id = _w._set AND _a.key = _w._key LIMIT 1
);
COMMENT ON MACRO perfetto.extract_arg IS 'One value of a set of args.';

CREATE OR REPLACE MACRO perfetto.__intrinsic_arg_set_to_json(wanted_set) AS (
  SELECT CASE WHEN NOT _a.in_protobuf THEN json_object('args', json_merge_patch(_a.args, '{"trace_event": null}'))
              WHEN regexp_matches(json_extract(_a.args, '$.track_event')::VARCHAR, '"field_[0-9]+":')
              THEN error('args of an event with fields whose names are unknown have no JSON form here')
              ELSE json_merge_patch(
                coalesce(json_extract(_a.args, '$.track_event'), '{}'),
                '{"thread_instruction_count": null, "legacy_event": null, "log_message": null, "log_priority": null,
                  "callstack": null, "callstack_weight": null, "end_callstack": null, "end_callstack_weight": null,
                  "pointers": null}',
                CASE WHEN json_extract(_a.args, '$.track_event.log_message') IS NULL THEN '{}'
                     ELSE json_object('track_event', json_object('log_message', json_extract(_a.args, '$.track_event.log_message')))
                     END,
                CASE WHEN len(list_filter(json_keys(_a.args), lambda _k: _k NOT IN ('track_event', 'trace_event'))) = 0 THEN '{}'
                     ELSE json_object('debug', json_merge_patch(_a.args, '{"track_event": null, "trace_event": null}')) END)
              END
  FROM (SELECT wanted_set AS _set) AS _w JOIN perfetto._arg_set AS _a ON _a.arg_set_id = _w._set
);
COMMENT ON MACRO perfetto.__intrinsic_arg_set_to_json IS 'A set of args as JSON.';

CREATE OR REPLACE VIEW perfetto._callsite AS
-- One row per slice and frame, the outermost frame first.
SELECT slice_id, depth, frame, id, lag(id) OVER (PARTITION BY slice_id ORDER BY depth) AS parent_id, frame_id, is_leaf
FROM (
  SELECT slice_id, depth, frames[depth + 1] AS frame, dense_rank() OVER (ORDER BY frames[:depth + 1]) AS id,
         dense_rank() OVER (ORDER BY frames[depth + 1]) AS frame_id, depth + 1 = len(frames) AS is_leaf
  FROM (
    SELECT slice_id, frames, unnest(range(len(frames))) AS depth
    FROM (
      SELECT arg_set_id AS slice_id, json_extract(args, '$.track_event.callstack.frames[*]')::VARCHAR[] AS frames
      FROM perfetto._arg_set WHERE contains(args, '"callstack"')
    )
  )
);
COMMENT ON VIEW perfetto._callsite IS 'The frames of callstacks of slices.';

CREATE OR REPLACE VIEW perfetto.__intrinsic_track_event_callstacks AS
SELECT slice_id, id AS callsite_id FROM perfetto._callsite WHERE is_leaf;
COMMENT ON VIEW perfetto.__intrinsic_track_event_callstacks IS 'Callstacks of slices.';

CREATE OR REPLACE VIEW perfetto.stack_profile_callsite AS
SELECT DISTINCT id, depth, parent_id, frame_id FROM perfetto._callsite;
COMMENT ON VIEW perfetto.stack_profile_callsite IS 'Frames of callstacks, each with the frame that called it.';

CREATE OR REPLACE VIEW perfetto.stack_profile_frame AS
SELECT DISTINCT frame_id AS id, json_extract_string(frame, '$.function_name') AS name,
       try_cast(json_extract(frame, '$.rel_pc') AS BIGINT) AS rel_pc,
       CASE WHEN json_extract(frame, '$.source_file') IS NOT NULL OR json_extract(frame, '$.line_number') IS NOT NULL
            THEN frame_id END AS symbol_set_id
FROM perfetto._callsite;
COMMENT ON VIEW perfetto.stack_profile_frame IS 'Functions and addresses of callstacks.';

CREATE OR REPLACE VIEW perfetto.stack_profile_symbol AS
SELECT DISTINCT frame_id AS id, frame_id AS symbol_set_id, json_extract_string(frame, '$.function_name') AS name,
       json_extract_string(frame, '$.source_file') AS source_file,
       try_cast(json_extract(frame, '$.line_number') AS BIGINT) AS line_number
FROM perfetto._callsite
WHERE json_extract(frame, '$.source_file') IS NOT NULL OR json_extract(frame, '$.line_number') IS NOT NULL;
COMMENT ON VIEW perfetto.stack_profile_symbol IS 'Source lines of frames.';

CREATE OR REPLACE VIEW perfetto.android_logs AS
SELECT l.id, l.ts, t.utid, coalesce(try_cast(json_extract(l.args, '$.track_event.log_priority') AS BIGINT), 4) AS prio,
       json_extract_string(l.args, '$.track_event.log_message.file_name') || ':'
         || json_extract_string(l.args, '$.track_event.log_message.line_number') AS tag,
       json_extract_string(l.args, '$.track_event.log_message.message') AS msg
FROM (
  SELECT run_id, id, track_id, start_ns AS ts, args FROM main."range"
  UNION ALL
  SELECT run_id, id, track_id, ts_ns, args FROM main.marker
) AS l
JOIN perfetto._track AS t ON t.id = l.track_id
WHERE contains(l.args, '"log_message"') AND json_extract(l.args, '$.track_event.log_message') IS NOT NULL
  AND l.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.android_logs IS 'Log messages of track events.';

CREATE OR REPLACE VIEW perfetto.flow AS
WITH flow_end AS (
  SELECT id, start_ns FROM main."range"
  WHERE perfetto._in_protobuf() AND run_id IN (SELECT max(run_id) FROM main.run)
    AND id IN (SELECT dst_id FROM main.flow WHERE run_id IN (SELECT max(run_id) FROM main.run))
)
SELECT f.flow_id AS id,
       -- At the end of an event that began before the flow's source: times of starts give the direction.
       CASE WHEN e.start_ns < f.src_ns THEN f.dst_id ELSE f.src_id END AS slice_out,
       CASE WHEN e.start_ns < f.src_ns THEN f.src_id ELSE f.dst_id END AS slice_in,
       coalesce(try_cast(f.external_id AS BIGINT), f.flow_id) AS trace_id
FROM main.flow AS f
LEFT JOIN flow_end AS e ON e.id = f.dst_id
WHERE f.src_id IS NOT NULL AND f.dst_id IS NOT NULL AND f.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.flow IS 'Flows between slices.';

CREATE OR REPLACE MACRO perfetto.following_flow(of_slice) AS TABLE
WITH RECURSIVE _wanted AS (SELECT of_slice AS _id), _after AS (
  SELECT _f.* FROM _wanted AS _w JOIN perfetto.flow AS _f ON _f.slice_out = _w._id
  UNION
  SELECT _f.* FROM _after AS _a JOIN perfetto.flow AS _f ON _f.slice_out = _a.slice_in
)
FROM _after;
COMMENT ON MACRO TABLE perfetto.following_flow IS 'The flows that lead away from a slice, directly or through other slices.';

CREATE OR REPLACE MACRO perfetto.preceding_flow(of_slice) AS TABLE
WITH RECURSIVE _wanted AS (SELECT of_slice AS _id), _before AS (
  SELECT _f.* FROM _wanted AS _w JOIN perfetto.flow AS _f ON _f.slice_in = _w._id
  UNION
  SELECT _f.* FROM _before AS _b JOIN perfetto.flow AS _f ON _f.slice_in = _b.slice_out
)
FROM _before;
COMMENT ON MACRO TABLE perfetto.preceding_flow IS 'The flows that lead to a slice, directly or through other slices.';

CREATE OR REPLACE VIEW perfetto.counter AS
SELECT row_number() OVER (ORDER BY c.ts_ns) AS id, c.ts_ns AS ts, s.id AS track_id, c.value
FROM main.counter AS c
JOIN perfetto._counter_series AS s
  ON s.track_id IS NOT DISTINCT FROM c.track_id AND s.series IS NOT DISTINCT FROM c.series
WHERE c.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.counter IS 'Counter samples.';

CREATE OR REPLACE VIEW perfetto.counters AS
SELECT c.*, t.name, t.unit FROM perfetto.counter AS c JOIN perfetto.counter_track AS t ON t.id = c.track_id ORDER BY c.ts;
COMMENT ON VIEW perfetto.counters IS 'Counter samples with the names and units of their tracks.';

CREATE OR REPLACE VIEW perfetto._track_event_tracks_ordered_groups AS
WITH described AS (
  SELECT arg_set_id, max(json_extract_string(atom, '$')) FILTER (key = 'child_ordering') AS ordering,
         max(try_cast(atom AS BIGINT)) FILTER (key = 'sibling_order_rank') AS rank
  FROM perfetto._described GROUP BY arg_set_id
), track_event AS (
  SELECT t.*, d.ordering, d.rank FROM perfetto._track AS t
  LEFT JOIN described AS d ON d.arg_set_id = t.source_arg_set_id
  WHERE ends_with(t.type, '_track_event')
), first_event AS (
  SELECT track_id, min(ts) AS ts
  FROM (SELECT track_id, ts FROM perfetto.slice UNION ALL SELECT track_id, ts FROM perfetto.counter
        UNION ALL SELECT track_id, ts FROM perfetto.state)
  GROUP BY track_id
)
SELECT any_value(t.upid) AS upid, any_value(t.utid) AS utid, 0::BIGINT AS machine_id, t.parent_id,
       contains(t.type, 'counter') AS is_counter, contains(t.type, 'state') AS is_state, any_value(t.name) AS name,
       any_value(t.unit) AS unit, bool_or(f.ts IS NOT NULL) AS has_data,
       bool_or(t.id IN (SELECT parent_id FROM track_event)) AS has_children, min(t.id) AS min_track_id,
       min(t.id)::VARCHAR AS track_ids,
       row_number() OVER (
         PARTITION BY t.parent_id, any_value(p.ordering)
         ORDER BY min(CASE p.ordering WHEN 'explicit' THEN coalesce(t.rank, 0) WHEN 'chronological' THEN f.ts END),
                  min(CASE WHEN p.ordering IS NULL OR p.ordering = 'lexicographic' THEN t.name END) NULLS FIRST, min(t.id)
       ) AS order_id
FROM track_event AS t
LEFT JOIN track_event AS p ON p.id = t.parent_id
LEFT JOIN first_event AS f ON f.track_id = t.id
GROUP BY t.parent_id, t.type, t.utid, t.upid, coalesce(t.name, t.id::VARCHAR);
COMMENT ON VIEW perfetto._track_event_tracks_ordered_groups IS 'Tracks with their place among the tracks of their parent. Those with equal names are one; track_ids has the first.';

CREATE OR REPLACE VIEW perfetto.trace_bounds AS
SELECT min(start_ts) AS start_ts, max(end_ts) AS end_ts
FROM (
  SELECT min(ts) AS start_ts, max(ts + greatest(dur, 0)) AS end_ts FROM perfetto.slice
  UNION ALL
  SELECT min(ts), max(ts) FROM perfetto.counter
);
COMMENT ON VIEW perfetto.trace_bounds IS 'First and last time of slices and counter samples.';

CREATE OR REPLACE MACRO perfetto.trace_start() AS (SELECT start_ts FROM perfetto.trace_bounds);
CREATE OR REPLACE MACRO perfetto.trace_end() AS (SELECT end_ts FROM perfetto.trace_bounds);
CREATE OR REPLACE MACRO perfetto.trace_dur() AS (SELECT end_ts::HUGEINT - start_ts FROM perfetto.trace_bounds);
-- Whole units, rounded towards zero.
CREATE OR REPLACE MACRO perfetto.time_to_ns(ns) AS ns::BIGINT;
CREATE OR REPLACE MACRO perfetto.time_to_us(ns) AS ns::BIGINT // 1000;
CREATE OR REPLACE MACRO perfetto.time_to_ms(ns) AS ns::BIGINT // 1000000;
CREATE OR REPLACE MACRO perfetto.time_to_s(ns) AS ns::BIGINT // 1000000000;
CREATE OR REPLACE MACRO perfetto.time_from_us(us) AS us::BIGINT * 1000;
CREATE OR REPLACE MACRO perfetto.time_from_ms(ms) AS ms::BIGINT * 1000000;
CREATE OR REPLACE MACRO perfetto.time_from_s(s) AS s::BIGINT * 1000000000;

CREATE OR REPLACE VIEW perfetto.metadata AS
SELECT 'json_metadata.' || j.key AS name, CASE WHEN j.type IN ('BIGINT', 'UBIGINT') THEN j.atom::BIGINT END AS int_value,
       CASE WHEN j.type NOT IN ('BIGINT', 'UBIGINT') THEN json_extract_string(j.value, '$') END AS str_value
FROM (SELECT arg_max(options, run_id) AS options FROM main.run) AS r, json_each(r.options, '$.metadata') AS j;
COMMENT ON VIEW perfetto.metadata IS 'Metadata of the trace.';

CREATE OR REPLACE VIEW perfetto._trace_import_logs AS
SELECT o.id, o.start_ns AS ts, 'error' AS severity, 'slice_spill_overlapping_complete_event' AS name,
       -4611686018427387904 - 8 * o.id AS arg_set_id
FROM perfetto.partial_overlap AS o;
COMMENT ON VIEW perfetto._trace_import_logs IS 'Findings with a timestamp: slices that overlap without nesting.';

CREATE OR REPLACE VIEW perfetto.stats AS
WITH logged AS (
  SELECT code, event_count FROM main.import_log WHERE run_id IN (SELECT max(run_id) FROM main.run)
)
SELECT name, NULL::BIGINT AS idx, severity, 'analysis' AS source, value
FROM (
  SELECT 'slice_spill_overlapping_complete_event' AS name, 'error' AS severity, count(*) AS value
  FROM perfetto._trace_import_logs
  UNION ALL
  SELECT 'slice_drop_overlapping_complete_event', 'error', 0
  UNION ALL
  SELECT 'json_tokenizer_failure', 'error', coalesce(sum(lost_count), 0)::BIGINT
  FROM main.import_account
  WHERE record = 'damaged events' AND run_id IN (SELECT max(run_id) FROM main.run)
  UNION ALL
  SELECT n.name, n.severity, coalesce((SELECT sum(event_count) FROM logged WHERE code = n.code), 0)::BIGINT
  FROM (VALUES ('track_event_parser_errors', 'info', 'unknown_phase'),
               ('track_event_invalid_timestamp', 'data_loss', 'no_time')) AS n(name, severity, code)
);
COMMENT ON VIEW perfetto.stats IS 'Counts of findings, with the names in Perfetto.';
