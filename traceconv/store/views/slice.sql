-- title = "Everything that has a duration and lies on a track"
-- doc = "Tasks, calls and ranges together, with the columns that all three have."
-- order = ["run_id", "start_ns", "id"]
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "Id of the row in the table that it is from; unique in the run." }
-- table_name = { type = "VARCHAR", unit = "enum", doc = "Table that it is from: task, api or range." }
-- track_id = { type = "BIGINT", unit = "id", doc = "Track that it is on." }
-- parent_id = { type = "BIGINT", unit = "id", doc = "Innermost slice of its track that encloses it; NULL at depth 0." }
-- depth = { type = "INTEGER", unit = "count", doc = "Slices of its track that enclose it." }
-- category = { type = "VARCHAR", unit = "text", doc = "Category as the source gives it; NULL when there is none." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the slice." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When it began." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "How long it took; NULL when its end is not in the source." }
-- self_ns = { type = "BIGINT", unit = "ns", doc = "dur_ns less the durations of its children; NULL when dur_ns is." }
SELECT run_id, id, 'task' AS table_name, track_id, parent_id, depth, category, name,
       start_ns, dur_ns, self_ns
FROM task
UNION ALL
SELECT run_id, id, 'api' AS table_name, track_id, parent_id, depth, category, name,
       start_ns, dur_ns, self_ns
FROM api
UNION ALL
SELECT run_id, id, 'range' AS table_name, track_id, parent_id, depth, category, name,
       start_ns, dur_ns, self_ns
FROM "range"
