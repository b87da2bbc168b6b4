-- Views with the names and columns of Perfetto's trace processor, over the latest run of the store, for queries
-- written for Perfetto: USE perfetto, or FROM perfetto.slice. They read only tables of this store. The latest run is
-- selected with IN because DuckDB 2.0.0 loses LIMITs above a join with it and above a comparison with =.
CREATE SCHEMA IF NOT EXISTS perfetto;

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

CREATE OR REPLACE VIEW perfetto.thread AS
WITH numbered AS (
  SELECT t.track_id, t.tid_text, t.name, try_cast(t.tid_text AS BIGINT) AS tid, p.upid, p.pid
  FROM main.track AS t
  LEFT JOIN perfetto.process AS p ON p.upid = coalesce(t.process_id, (SELECT upid FROM perfetto.process WHERE pid = 0))
  WHERE t.kind IN ('thread', 'stream') AND t.run_id IN (SELECT max(run_id) FROM main.run)
), named AS (
  SELECT track_id AS utid,
         coalesce(tid, CASE WHEN tid_text IS NULL THEN pid END,
                  track_id + (SELECT greatest(max(tid) FILTER (tid < 1::BIGINT << 61), 0) FROM numbered)) AS tid,
         coalesce(name, CASE WHEN tid IS NULL THEN tid_text END) AS name, upid, pid, -2 * track_id - 1 AS arg_set_id
  FROM numbered
)
SELECT utid, utid AS id, tid, name, NULL::BIGINT AS start_ts, NULL::BIGINT AS end_ts, upid,
       (tid = pid)::BIGINT AS is_main_thread, arg_set_id
FROM (
  FROM named
  UNION ALL
  -- The main thread, which Perfetto adds to every process.
  SELECT -p.upid, p.pid, CASE WHEN p.upid = 0 THEN 'swapper' END, p.upid, p.pid, NULL FROM perfetto.process AS p
  WHERE NOT EXISTS (FROM named AS t WHERE t.upid = p.upid AND t.tid = p.pid)
);
COMMENT ON VIEW perfetto.thread IS 'Threads, including tracks of streams. No source has the columns that are NULL.';

CREATE OR REPLACE VIEW perfetto._track AS
WITH own AS (
  SELECT t.*, r.source_format = 'perfetto_proto' AS in_protobuf,
         CASE WHEN t.process_id IS NULL THEN 'global' ELSE 'process' END AS holder
  FROM main.track AS t JOIN main.run AS r USING (run_id)
  WHERE t.run_id IN (SELECT max(run_id) FROM main.run)
), sampled AS (
  SELECT DISTINCT track_id, series FROM main.counter WHERE run_id IN (SELECT max(run_id) FROM main.run)
)
-- Threads have their name in perfetto.thread.
SELECT t.track_id AS id, CASE WHEN t.kind NOT IN ('thread', 'stream', 'process') THEN t.name END AS name,
       CASE WHEN t.kind IN ('thread', 'stream') THEN 'thread_execution'
            WHEN t.kind = 'process' OR t.in_protobuf AND NOT starts_with(t.tid_text, '0x') THEN t.holder || '_track_event'
            WHEN t.kind = 'async' THEN 'legacy_async_' || t.holder || '_slice'
            ELSE t.kind END AS type,
       CASE WHEN t.kind IN ('thread', 'stream') THEN t.track_id END AS utid,
       CASE WHEN t.kind NOT IN ('thread', 'stream') THEN t.process_id END AS upid, NULL::VARCHAR AS unit
FROM own AS t WHERE t.kind <> 'counter'
UNION ALL
-- One per series. Tracks of protobuf traces have one series.
SELECT (hash(t.track_id, c.series) >> 1)::BIGINT,
       CASE WHEN t.in_protobuf THEN t.name ELSE concat_ws(' ', t.name, c.series) END,
       t.holder || '_counter_track_event', NULL, t.process_id, t.unit
FROM own AS t
LEFT JOIN sampled AS c ON c.track_id = t.track_id
WHERE t.kind = 'counter';
COMMENT ON VIEW perfetto._track IS 'Tracks of slices and counters, with their threads and processes.';

CREATE OR REPLACE VIEW perfetto.track AS
SELECT id, name, type FROM perfetto._track;
COMMENT ON VIEW perfetto.track IS 'Tracks of slices and counters.';

CREATE OR REPLACE VIEW perfetto.thread_track AS
SELECT utid AS id, utid, NULL::VARCHAR AS name, 'thread_execution' AS type FROM perfetto.thread;
COMMENT ON VIEW perfetto.thread_track IS 'Tracks of threads.';

CREATE OR REPLACE VIEW perfetto.process_track AS
SELECT id, name, type, upid FROM perfetto._track WHERE upid IS NOT NULL AND NOT ends_with(type, 'counter_track_event');
COMMENT ON VIEW perfetto.process_track IS 'Tracks of processes, but not of their threads and counters.';

CREATE OR REPLACE VIEW perfetto.counter_track AS
SELECT id, name, type, unit FROM perfetto._track WHERE ends_with(type, 'counter_track_event');
COMMENT ON VIEW perfetto.counter_track IS 'Counter tracks, one per series.';

CREATE OR REPLACE VIEW perfetto.process_counter_track AS
SELECT id, name, type, upid, unit FROM perfetto._track
WHERE upid IS NOT NULL AND ends_with(type, 'counter_track_event');
COMMENT ON VIEW perfetto.process_counter_track IS 'Counter tracks of processes.';

CREATE OR REPLACE VIEW perfetto.thread_counter_track AS
SELECT id, name, type, utid, unit FROM perfetto._track
WHERE utid IS NOT NULL AND ends_with(type, 'counter_track_event');
COMMENT ON VIEW perfetto.thread_counter_track IS 'Counter tracks of threads: none, as their times are columns of slices.';

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
), timed AS (
  FROM stored
  -- They include neither complete events without a duration nor legacy async events (S, T, p, F).
  WHERE run_id IN (SELECT max(run_id) FROM main.run)
    AND (args IS NULL OR (dur_ns IS NOT NULL AND track_id NOT IN (
           SELECT track_id FROM main.track WHERE kind = 'async' AND run_id IN (SELECT max(run_id) FROM main.run)))
         OR coalesce(json_extract_string(args, '$.trace_event.ph'), '') NOT IN ('X', 'S'))
), instant AS (
  FROM main.marker
  -- Perfetto's slices include instants, but no other markers (metadata, objects, samples …), which have a phase in args.
  WHERE ts_ns IS NOT NULL AND run_id IN (SELECT max(run_id) FROM main.run)
    AND (args IS NULL OR json_extract_string(args, '$.trace_event.ph') IS NULL)
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
  SELECT i.run_id, i.id, i.ts_ns, 0, i.track_id, i.category, i.name, coalesce(e.depth, 0), e.parent_id, i.args,
         NULL, NULL, coalesce(i.scope, 'thread')
  FROM instant AS i LEFT JOIN enclosing AS e ON e.run_id = i.run_id AND e.id = i.id
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

CREATE OR REPLACE VIEW perfetto.thread_slice AS
SELECT s.*, NULL::VARCHAR AS track_name, t.name AS thread_name, t.utid, t.tid, t.is_main_thread,
       p.name AS process_name, p.upid, p.pid
FROM perfetto.slice AS s
JOIN perfetto.thread AS t ON t.utid = s.track_id
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
SELECT e.id AS arg_set_id, e.args, r.source_format = 'perfetto_proto' AS in_protobuf
FROM (
  SELECT run_id, id, args FROM main.task
  UNION ALL
  SELECT run_id, id, args FROM main.api
  UNION ALL
  SELECT run_id, id, args FROM main."range"
  UNION ALL
  SELECT run_id, id, args FROM main.marker
) AS e
JOIN main.run AS r USING (run_id)
WHERE e.args IS NOT NULL AND e.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto._arg_set IS 'Args of slices as JSON.';

CREATE OR REPLACE MACRO perfetto._is_field(own_key) AS regexp_full_match(own_key,
  'field_[0-9]+([.[].*)?|log_(message|source|priority)(\..*)?|source\.(file_name|function_name|line_number)');
COMMENT ON MACRO perfetto._is_field IS 'Whether a key in the args of a protobuf trace is a field of track events, not a debug annotation.';

CREATE OR REPLACE VIEW perfetto.args AS
WITH leaf AS (
  SELECT e.arg_set_id, j.type, j.atom, j.id AS place, replace(substr(j.fullkey, 3), '"', '') AS own_key,
         -- Debug annotations of protobuf traces and the args of JSON; not other fields of track events.
         CASE WHEN NOT e.in_protobuf THEN 'args.' || own_key
              WHEN perfetto._is_field(own_key) THEN own_key
              ELSE 'debug.' || own_key END AS key
  FROM perfetto._arg_set AS e, json_tree(e.args) AS j
  WHERE j.atom IS NOT NULL AND NOT starts_with(j.fullkey, '$.trace_event')
)
SELECT arg_set_id * 4096 + place AS id, arg_set_id, regexp_replace(key, '\[[0-9]+\]', '', 'g') AS flat_key, key,
       CASE WHEN type = 'VARCHAR' THEN json_extract_string(atom, '$') END AS string_value,
       CASE WHEN type IN ('BIGINT', 'UBIGINT', 'HUGEINT') THEN try_cast(atom AS BIGINT)
            WHEN type = 'BOOLEAN' THEN (atom::VARCHAR = 'true')::BIGINT END AS int_value,
       CASE WHEN type = 'DOUBLE' THEN try_cast(atom AS DOUBLE) END AS real_value,
       json_extract_string(atom, '$') AS display_value,
       CASE type WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'bool' WHEN 'DOUBLE' THEN 'real' WHEN 'NULL' THEN 'null'
                 WHEN 'BIGINT' THEN 'int' WHEN 'UBIGINT' THEN CASE WHEN try_cast(atom AS BIGINT) IS NULL THEN 'uint' ELSE 'int' END
                 ELSE 'int' END AS value_type
FROM leaf
UNION ALL
SELECT -2 * p.process_id, -2 * p.process_id, 'process_sort_index_hint', 'process_sort_index_hint', NULL, p.sort_index,
       NULL, p.sort_index::VARCHAR, 'int'
FROM main.process AS p
WHERE p.sort_index IS NOT NULL AND p.run_id IN (SELECT max(run_id) FROM main.run)
UNION ALL
SELECT -2 * t.track_id - 1, -2 * t.track_id - 1, 'thread_sort_index_hint', 'thread_sort_index_hint', NULL,
       t.sort_index, NULL, t.sort_index::VARCHAR, 'int'
FROM main.track AS t
WHERE t.sort_index IS NOT NULL AND t.kind IN ('thread', 'stream') AND t.run_id IN (SELECT max(run_id) FROM main.run)
UNION ALL
SELECT l.arg_set_id, l.arg_set_id, l.key, l.key, NULL, NULL, NULL, l.display_value, 'string'
FROM (
  UNPIVOT (
    SELECT -4611686018427387904 - o.id AS arg_set_id, o.name AS event_name, 'X' AS event_phase,
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
  SELECT CASE WHEN _a.in_protobuf AND len(list_filter(json_keys(_a.args), lambda _k: perfetto._is_field(_k))) > 0
              THEN error('args of an event with fields other than debug annotations have no JSON form here')
              ELSE json_object(CASE WHEN _a.in_protobuf THEN 'debug' ELSE 'args' END,
                               json_merge_patch(_a.args, '{"trace_event": null}')) END
  FROM (SELECT wanted_set AS _set) AS _w JOIN perfetto._arg_set AS _a ON _a.arg_set_id = _w._set
);
COMMENT ON MACRO perfetto.__intrinsic_arg_set_to_json IS 'A set of args as JSON.';

CREATE OR REPLACE VIEW perfetto.flow AS
SELECT f.flow_id AS id, f.src_id AS slice_out, f.dst_id AS slice_in,
       coalesce(try_cast(f.external_id AS BIGINT), f.flow_id) AS trace_id
FROM main.flow AS f
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
SELECT row_number() OVER (ORDER BY c.ts_ns) AS id, c.ts_ns AS ts, (hash(c.track_id, c.series) >> 1)::BIGINT AS track_id,
       c.value
FROM main.counter AS c
WHERE c.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.counter IS 'Counter samples.';

CREATE OR REPLACE VIEW perfetto.counters AS
SELECT c.*, t.name, t.unit FROM perfetto.counter AS c JOIN perfetto.counter_track AS t ON t.id = c.track_id ORDER BY c.ts;
COMMENT ON VIEW perfetto.counters IS 'Counter samples with the names and units of their tracks.';

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
       -4611686018427387904 - o.id AS arg_set_id
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
