-- Views with the names and columns of Perfetto's trace processor, over the latest run of the store, so that queries
-- written for it can be used here: USE perfetto, or FROM perfetto.slice. Only tables of this store are read.
CREATE SCHEMA perfetto;

CREATE VIEW perfetto.process AS
WITH latest AS (SELECT max(run_id) AS run_id FROM main.run), named AS (
  SELECT p.process_id AS upid, coalesce(try_cast(p.pid_text AS BIGINT), p.process_id) AS pid,
         coalesce(p.name, CASE WHEN try_cast(p.pid_text AS BIGINT) IS NULL THEN p.pid_text END) AS name,
         -2 * p.process_id AS arg_set_id
  FROM main.process AS p JOIN latest USING (run_id)
)
SELECT * FROM named
UNION ALL
-- The idle process, which every trace has there.
SELECT 0 AS upid, 0 AS pid, NULL AS name, NULL AS arg_set_id WHERE NOT EXISTS (FROM named WHERE pid = 0);
COMMENT ON VIEW perfetto.process IS 'Processes.';

CREATE VIEW perfetto.thread AS
WITH latest AS (SELECT max(run_id) AS run_id FROM main.run), named AS (
  SELECT t.track_id AS utid, coalesce(try_cast(t.tid_text AS BIGINT), CASE WHEN t.tid_text IS NULL THEN p.pid END,
                                      t.track_id) AS tid,
         coalesce(t.name, CASE WHEN try_cast(t.tid_text AS BIGINT) IS NULL THEN t.tid_text END) AS name,
         p.upid, -2 * t.track_id - 1 AS arg_set_id
  FROM main.track AS t JOIN latest USING (run_id)
  LEFT JOIN perfetto.process AS p ON p.upid = coalesce(t.process_id, (SELECT upid FROM perfetto.process WHERE pid = 0))
  WHERE t.kind IN ('thread', 'stream')
)
SELECT * FROM named
UNION ALL
-- The main thread, which every process has there.
SELECT -p.upid AS utid, p.pid AS tid, NULL AS name, p.upid, NULL AS arg_set_id FROM perfetto.process AS p
WHERE NOT EXISTS (FROM named AS t WHERE t.upid = p.upid AND t.tid = p.pid);
COMMENT ON VIEW perfetto.thread IS 'Threads; tracks of streams are threads too.';

CREATE VIEW perfetto.track AS
SELECT t.track_id AS id, t.name,
       CASE WHEN t.kind IN ('thread', 'stream') THEN 'thread_slice'
            WHEN t.kind = 'async' AND t.process_id IS NULL THEN 'legacy_async_global_slice'
            WHEN t.kind = 'async' THEN 'legacy_async_process_slice'
            ELSE t.kind END AS type
FROM main.track AS t JOIN (SELECT max(run_id) AS run_id FROM main.run) USING (run_id)
WHERE t.kind <> 'counter';
COMMENT ON VIEW perfetto.track IS 'Tracks that slices are on.';

CREATE VIEW perfetto.thread_track AS
SELECT utid AS id, utid, name FROM perfetto.thread;
COMMENT ON VIEW perfetto.thread_track IS 'Tracks of threads.';

CREATE VIEW perfetto.slice AS
WITH latest AS (SELECT max(run_id) AS run_id FROM main.run), every AS (
  SELECT run_id, id, start_ns AS ts, dur_ns, track_id, task_type AS category, name, depth, parent_id, args,
         NULL::BIGINT AS thread_ts, NULL::BIGINT AS thread_dur, NULL AS scope
  FROM main.task
  UNION ALL
  SELECT run_id, id, start_ns, dur_ns, track_id, level, name, depth, parent_id, args, thread_start_ns,
         thread_dur_ns, NULL
  FROM main.api
  UNION ALL
  SELECT run_id, id, start_ns, dur_ns, track_id, category, name, depth, parent_id, args, thread_start_ns,
         thread_dur_ns, NULL
  FROM main."range"
  UNION ALL
  SELECT run_id, id, ts_ns, 0, track_id, category, name, 0, NULL, args, NULL, NULL, coalesce(scope, 'thread')
  FROM main.marker
  -- What metadata and ends of flows say beyond their columns is no slice there.
  WHERE category IS DISTINCT FROM '__metadata'
    AND (args IS NULL OR coalesce(json_extract_string(args, '$.trace_event.ph'), '') NOT IN ('s', 't', 'f'))
)
SELECT e.id, e.id AS slice_id, e.ts, coalesce(e.dur_ns, -1) AS dur, e.track_id, e.category, e.name, e.depth,
       e.parent_id, CASE WHEN e.args IS NOT NULL THEN e.id END AS arg_set_id, e.thread_ts, e.thread_dur, e.scope
FROM every AS e JOIN latest USING (run_id)
-- A complete event without a duration is none there.
WHERE e.args IS NULL OR e.dur_ns IS NOT NULL OR json_extract_string(e.args, '$.trace_event.ph') IS DISTINCT FROM 'X';
COMMENT ON VIEW perfetto.slice IS 'Slices; dur is -1 when a slice was not closed, 0 for moments.';

CREATE VIEW perfetto.thread_or_process_slice AS
SELECT s.*, t.name AS thread_name, t.utid, t.tid, p.name AS process_name, p.upid, p.pid
FROM perfetto.slice AS s
JOIN perfetto.thread AS t ON t.utid = s.track_id
LEFT JOIN perfetto.process AS p USING (upid)
WHERE s.scope IS DISTINCT FROM 'global';
COMMENT ON VIEW perfetto.thread_or_process_slice IS 'Slices of threads and processes, with their names.';

CREATE VIEW perfetto.partial_overlap AS
WITH ordered AS (
  SELECT id, track_id, name, ts, ts + dur AS end_ts,
         -- Of those before it, the one that ends last.
         max_by(struct_pack(name := name, ts := ts, end_ts := ts + dur), ts + dur) OVER (
           PARTITION BY track_id ORDER BY ts, dur DESC, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         ) AS before
  FROM perfetto.slice
  WHERE dur > 0
)
SELECT id, track_id, name, ts AS start_ns, end_ts AS end_ns, before.name AS other_name, before.ts AS other_start,
       before.end_ts AS other_end
FROM ordered
WHERE before.end_ts > ts AND before.end_ts < end_ts;
COMMENT ON VIEW perfetto.partial_overlap IS 'Slices that begin inside of another one of their track and end after it, each with that other one.';

CREATE VIEW perfetto.args AS
WITH latest AS (SELECT max(run_id) AS run_id FROM main.run), every AS (
  SELECT run_id, id, args FROM main.task WHERE args IS NOT NULL
  UNION ALL
  SELECT run_id, id, args FROM main.api WHERE args IS NOT NULL
  UNION ALL
  SELECT run_id, id, args FROM main."range" WHERE args IS NOT NULL
  UNION ALL
  SELECT run_id, id, args FROM main.marker WHERE args IS NOT NULL
), leaf AS (
  SELECT e.id AS arg_set_id, 'args' || replace(substr(j.fullkey, 2), '"', '') AS key, j.type, j.atom, j.id AS place
  FROM every AS e JOIN latest USING (run_id), json_tree(e.args) AS j
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
FROM main.process AS p JOIN latest USING (run_id) WHERE p.sort_index IS NOT NULL
UNION ALL
SELECT -2 * t.track_id - 1, -2 * t.track_id - 1, 'thread_sort_index_hint', 'thread_sort_index_hint', NULL,
       t.sort_index, NULL, t.sort_index::VARCHAR
FROM main.track AS t JOIN latest USING (run_id) WHERE t.sort_index IS NOT NULL AND t.kind IN ('thread', 'stream')
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
COMMENT ON VIEW perfetto.args IS 'Args of slices, sort hints of processes and threads, and what import logs say: one row a value.';

CREATE MACRO perfetto.extract_arg(wanted_set, wanted_key) AS (
  SELECT CASE WHEN a.int_value IS NOT NULL THEN a.int_value::UNION(whole BIGINT, text VARCHAR)
              ELSE a.display_value::UNION(whole BIGINT, text VARCHAR) END
  FROM perfetto.args AS a WHERE a.arg_set_id = wanted_set AND a.key = wanted_key LIMIT 1
);
COMMENT ON MACRO perfetto.extract_arg IS 'One value of a set of args.';

CREATE VIEW perfetto.flow AS
SELECT f.flow_id AS id, f.src_id AS slice_out, f.dst_id AS slice_in, f.flow_id AS trace_id
FROM main.flow AS f JOIN (SELECT max(run_id) AS run_id FROM main.run) USING (run_id)
WHERE f.src_id IS NOT NULL AND f.dst_id IS NOT NULL;
COMMENT ON VIEW perfetto.flow IS 'Arrows between slices.';

CREATE VIEW perfetto.process_counter_track AS
SELECT DISTINCT hash(c.track_id, c.series) AS id, concat_ws(' ', t.name, c.series) AS name, t.process_id AS upid,
       t.unit
FROM main.counter AS c JOIN main.track AS t USING (run_id, track_id)
JOIN (SELECT max(run_id) AS run_id FROM main.run) USING (run_id);
COMMENT ON VIEW perfetto.process_counter_track IS 'Counters: a track for each series.';

CREATE VIEW perfetto.counter AS
SELECT row_number() OVER (ORDER BY c.ts_ns) AS id, c.ts_ns AS ts, hash(c.track_id, c.series) AS track_id, c.value
FROM main.counter AS c JOIN (SELECT max(run_id) AS run_id FROM main.run) USING (run_id);
COMMENT ON VIEW perfetto.counter IS 'Values of counters.';

CREATE VIEW perfetto.metadata AS
SELECT 'json_metadata.' || j.key AS name, CASE WHEN j.type IN ('BIGINT', 'UBIGINT') THEN j.atom::BIGINT END AS int_value,
       CASE WHEN j.type NOT IN ('BIGINT', 'UBIGINT') THEN json_extract_string(j.value, '$') END AS str_value
FROM (SELECT arg_max(options, run_id) AS options FROM main.run) AS r, json_each(r.options, '$.metadata') AS j;
COMMENT ON VIEW perfetto.metadata IS 'What the trace says of itself under metadata.';

CREATE VIEW perfetto._trace_import_logs AS
SELECT o.id, o.start_ns AS ts, 'error' AS severity, 'slice_spill_overlapping_complete_event' AS name,
       -4611686018427387904 - o.id AS arg_set_id
FROM perfetto.partial_overlap AS o;
COMMENT ON VIEW perfetto._trace_import_logs IS 'Oddities that lie at a time: slices that overlap without nesting.';

CREATE VIEW perfetto.stats AS
SELECT 'slice_spill_overlapping_complete_event' AS name, count(*) AS value FROM perfetto._trace_import_logs
UNION ALL
SELECT 'slice_drop_overlapping_complete_event', 0
UNION ALL
SELECT 'json_tokenizer_failure', coalesce(sum(lost_count), 0)::BIGINT
FROM main.import_account JOIN (SELECT max(run_id) AS run_id FROM main.run) USING (run_id)
WHERE record = 'damaged events';
COMMENT ON VIEW perfetto.stats IS 'Counts of oddities, under the names that they have there.';
