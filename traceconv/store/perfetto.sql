-- Views with the names and columns of Perfetto's trace processor, over the latest run of the store, for queries
-- written for Perfetto: USE perfetto, or FROM perfetto.slice. They read only tables of this store. The latest run is
-- selected with IN because DuckDB 2.0.0 loses LIMITs above a join with it and above a comparison with =.
CREATE SCHEMA IF NOT EXISTS perfetto;

CREATE OR REPLACE VIEW perfetto.process AS
WITH named AS (
  SELECT p.process_id AS upid, coalesce(try_cast(p.pid_text AS BIGINT), p.process_id) AS pid,
         coalesce(p.name, CASE WHEN try_cast(p.pid_text AS BIGINT) IS NULL THEN p.pid_text END) AS name,
         -2 * p.process_id AS arg_set_id
  FROM main.process AS p
  WHERE p.run_id IN (SELECT max(run_id) FROM main.run)
)
SELECT * FROM named
UNION ALL
-- The idle process, which Perfetto adds to every trace.
SELECT 0 AS upid, 0 AS pid, NULL AS name, NULL AS arg_set_id WHERE NOT EXISTS (FROM named WHERE pid = 0);
COMMENT ON VIEW perfetto.process IS 'Processes.';

CREATE OR REPLACE VIEW perfetto.thread AS
WITH named AS (
  SELECT t.track_id AS utid, coalesce(try_cast(t.tid_text AS BIGINT), CASE WHEN t.tid_text IS NULL THEN p.pid END,
                                      t.track_id) AS tid,
         coalesce(t.name, CASE WHEN try_cast(t.tid_text AS BIGINT) IS NULL THEN t.tid_text END) AS name,
         p.upid, -2 * t.track_id - 1 AS arg_set_id
  FROM main.track AS t
  LEFT JOIN perfetto.process AS p ON p.upid = coalesce(t.process_id, (SELECT upid FROM perfetto.process WHERE pid = 0))
  WHERE t.kind IN ('thread', 'stream') AND t.run_id IN (SELECT max(run_id) FROM main.run)
)
SELECT * FROM named
UNION ALL
-- The main thread, which Perfetto adds to every process.
SELECT -p.upid AS utid, p.pid AS tid, NULL AS name, p.upid, NULL AS arg_set_id FROM perfetto.process AS p
WHERE NOT EXISTS (FROM named AS t WHERE t.upid = p.upid AND t.tid = p.pid);
COMMENT ON VIEW perfetto.thread IS 'Threads, including tracks of streams.';

CREATE OR REPLACE VIEW perfetto.track AS
SELECT t.track_id AS id, t.name,
       CASE WHEN t.kind IN ('thread', 'stream') THEN 'thread_slice'
            WHEN t.kind = 'async' AND t.process_id IS NULL THEN 'legacy_async_global_slice'
            WHEN t.kind = 'async' THEN 'legacy_async_process_slice'
            ELSE t.kind END AS type
FROM main.track AS t
WHERE t.kind <> 'counter' AND t.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.track IS 'Tracks of slices.';

CREATE OR REPLACE VIEW perfetto.thread_track AS
SELECT utid AS id, utid, name FROM perfetto.thread;
COMMENT ON VIEW perfetto.thread_track IS 'Tracks of threads.';

CREATE OR REPLACE VIEW perfetto.slice AS
WITH every AS (
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
  UNION ALL
  SELECT run_id, id, ts_ns, 0, track_id, category, name, 0, NULL, args, NULL, NULL, coalesce(scope, 'thread')
  FROM main.marker
  -- Perfetto's slices include instants, but no other markers (metadata, objects, samples …), which have a phase in args.
  WHERE ts_ns IS NOT NULL AND (args IS NULL OR json_extract_string(args, '$.trace_event.ph') IS NULL)
)
SELECT e.id, e.id AS slice_id, e.ts, coalesce(e.dur_ns, -1) AS dur, e.track_id, e.category, e.name, e.depth,
       e.parent_id, CASE WHEN e.args IS NOT NULL THEN e.id END AS arg_set_id, e.thread_ts, e.thread_dur, e.scope
FROM every AS e
WHERE e.run_id IN (SELECT max(run_id) FROM main.run)
  -- They include neither complete events without a duration nor legacy async events (S, T, p, F).
  AND (e.args IS NULL OR (e.dur_ns IS NOT NULL AND e.track_id NOT IN (
         SELECT track_id FROM main.track WHERE kind = 'async' AND run_id IN (SELECT max(run_id) FROM main.run)))
       OR coalesce(json_extract_string(e.args, '$.trace_event.ph'), '') NOT IN ('X', 'S'));
COMMENT ON VIEW perfetto.slice IS 'Slices; dur is -1 for open slices and 0 for markers.';

CREATE OR REPLACE VIEW perfetto.thread_or_process_slice AS
SELECT s.*, t.name AS thread_name, t.utid, t.tid, p.name AS process_name, p.upid, p.pid
FROM perfetto.slice AS s
JOIN perfetto.thread AS t ON t.utid = s.track_id
LEFT JOIN perfetto.process AS p USING (upid)
WHERE s.scope IS DISTINCT FROM 'global';
COMMENT ON VIEW perfetto.thread_or_process_slice IS 'Slices of threads and processes, with their names.';

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

CREATE OR REPLACE VIEW perfetto.args AS
WITH every AS (
  SELECT run_id, id, args FROM main.task WHERE args IS NOT NULL
  UNION ALL
  SELECT run_id, id, args FROM main.api WHERE args IS NOT NULL
  UNION ALL
  SELECT run_id, id, args FROM main."range" WHERE args IS NOT NULL
  UNION ALL
  SELECT run_id, id, args FROM main.marker WHERE args IS NOT NULL
), leaf AS (
  SELECT e.id AS arg_set_id, 'args' || replace(substr(j.fullkey, 2), '"', '') AS key, j.type, j.atom, j.id AS place
  FROM (FROM every WHERE run_id IN (SELECT max(run_id) FROM main.run)) AS e, json_tree(e.args) AS j
  WHERE j.atom IS NOT NULL AND NOT starts_with(j.fullkey, '$.trace_event')
)
SELECT arg_set_id * 4096 + place AS id, arg_set_id, regexp_replace(key, '\[[0-9]+\]', '', 'g') AS flat_key, key,
       CASE WHEN type = 'VARCHAR' THEN json_extract_string(atom, '$') END AS string_value,
       CASE WHEN type IN ('BIGINT', 'UBIGINT', 'HUGEINT') THEN try_cast(atom AS BIGINT)
            WHEN type = 'BOOLEAN' THEN (atom::VARCHAR = 'true')::BIGINT END AS int_value,
       CASE WHEN type = 'DOUBLE' THEN try_cast(atom AS DOUBLE) END AS real_value,
       json_extract_string(atom, '$') AS display_value
FROM leaf
UNION ALL
SELECT -2 * p.process_id, -2 * p.process_id, 'process_sort_index_hint', 'process_sort_index_hint', NULL, p.sort_index,
       NULL, p.sort_index::VARCHAR
FROM main.process AS p
WHERE p.sort_index IS NOT NULL AND p.run_id IN (SELECT max(run_id) FROM main.run)
UNION ALL
SELECT -2 * t.track_id - 1, -2 * t.track_id - 1, 'thread_sort_index_hint', 'thread_sort_index_hint', NULL,
       t.sort_index, NULL, t.sort_index::VARCHAR
FROM main.track AS t
WHERE t.sort_index IS NOT NULL AND t.kind IN ('thread', 'stream') AND t.run_id IN (SELECT max(run_id) FROM main.run)
UNION ALL
SELECT l.arg_set_id, l.arg_set_id, l.key, l.key, NULL, NULL, NULL, l.display_value
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
  SELECT CASE WHEN a.int_value IS NOT NULL THEN a.int_value::UNION(number BIGINT, text VARCHAR)
              ELSE a.display_value::UNION(number BIGINT, text VARCHAR) END
  FROM perfetto.args AS a WHERE a.arg_set_id = wanted_set AND a.key = wanted_key LIMIT 1
);
COMMENT ON MACRO perfetto.extract_arg IS 'One value of a set of args.';

CREATE OR REPLACE VIEW perfetto.flow AS
SELECT f.flow_id AS id, f.src_id AS slice_out, f.dst_id AS slice_in, f.flow_id AS trace_id
FROM main.flow AS f
WHERE f.src_id IS NOT NULL AND f.dst_id IS NOT NULL AND f.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.flow IS 'Flows between slices.';

CREATE OR REPLACE VIEW perfetto.process_counter_track AS
SELECT DISTINCT hash(c.track_id, c.series) AS id, concat_ws(' ', t.name, c.series) AS name, t.process_id AS upid,
       t.unit
FROM main.counter AS c JOIN main.track AS t USING (run_id, track_id)
WHERE c.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.process_counter_track IS 'Counter tracks, one per series.';

CREATE OR REPLACE VIEW perfetto.counter AS
SELECT row_number() OVER (ORDER BY c.ts_ns) AS id, c.ts_ns AS ts, hash(c.track_id, c.series) AS track_id, c.value
FROM main.counter AS c
WHERE c.run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.counter IS 'Counter samples.';

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
SELECT 'slice_spill_overlapping_complete_event' AS name, count(*) AS value FROM perfetto._trace_import_logs
UNION ALL
SELECT 'slice_drop_overlapping_complete_event', 0
UNION ALL
SELECT 'json_tokenizer_failure', coalesce(sum(lost_count), 0)::BIGINT
FROM main.import_account
WHERE record = 'damaged events' AND run_id IN (SELECT max(run_id) FROM main.run);
COMMENT ON VIEW perfetto.stats IS 'Counts of findings, with the names in Perfetto.';
