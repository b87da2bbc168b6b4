-- title = "All slices"
-- doc = "Tasks, calls and ranges, with their common columns."
-- order = ["run_id", "start_ns", "id"]
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "ID of the row in its table; unique in the run." }
-- table_name = { type = "VARCHAR", unit = "enum", doc = "Table of the row: task, api or range." }
-- track_id = { type = "BIGINT", unit = "id", doc = "Track." }
-- parent_id = { type = "BIGINT", unit = "id", doc = "Innermost enclosing slice on the track; NULL at depth 0." }
-- depth = { type = "INTEGER", unit = "count", doc = "Number of enclosing slices on the track." }
-- category = { type = "VARCHAR", unit = "text", doc = "Category in the source; NULL if none." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name; NULL if none." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
-- self_ns = { type = "BIGINT", unit = "ns", doc = "Self time: the part of dur_ns outside of its direct children; NULL if dur_ns is NULL." }
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
