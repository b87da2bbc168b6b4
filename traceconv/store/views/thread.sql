-- title = "Host threads"
-- doc = "Tracks of kind thread, each with its process."
-- order = ["run_id", "track_id"]
-- [columns]
-- track_id = { type = "BIGINT", unit = "id", doc = "Track ID in the run." }
-- process_id = { type = "BIGINT", unit = "id", doc = "Process of the thread; NULL if unknown." }
-- pid_text = { type = "VARCHAR", unit = "text", doc = "Process ID in the source; NULL if unknown." }
-- process_name = { type = "VARCHAR", unit = "text", doc = "Process name; NULL if unknown." }
-- tid_text = { type = "VARCHAR", unit = "text", doc = "Thread ID in the source." }
-- name = { type = "VARCHAR", unit = "text", doc = "Thread name; NULL if unknown." }
-- sort_index = { type = "BIGINT", unit = "index", doc = "Sort order in a viewer, smaller is higher; NULL if unknown." }
SELECT t.run_id, t.track_id, t.process_id, p.pid_text, p.name AS process_name, t.tid_text, t.name, t.sort_index
FROM track AS t
LEFT JOIN process AS p ON p.run_id = t.run_id AND p.process_id = t.process_id
WHERE t.kind = 'thread'
