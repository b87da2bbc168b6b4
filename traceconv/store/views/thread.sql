-- title = "The threads of the host"
-- doc = "The tracks of kind thread, each with its process."
-- order = ["run_id", "track_id"]
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- track_id = { type = "BIGINT", unit = "id", doc = "Number of the track in the run." }
-- process_id = { type = "BIGINT", unit = "id", doc = "Process of the thread; NULL when not known." }
-- pid_text = { type = "VARCHAR", unit = "text", doc = "Process as the source names it; NULL when not known." }
-- process_name = { type = "VARCHAR", unit = "text", doc = "Name of the process; NULL when not given." }
-- tid_text = { type = "VARCHAR", unit = "text", doc = "Thread as the source names it." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the thread; NULL when not given." }
-- sort_index = { type = "BIGINT", unit = "index", doc = "Where a viewer shows it: smaller is higher; NULL when not given." }
SELECT t.run_id, t.track_id, t.process_id, p.pid_text, p.name AS process_name, t.tid_text, t.name, t.sort_index
FROM track AS t
LEFT JOIN process AS p ON p.run_id = t.run_id AND p.process_id = t.process_id
WHERE t.kind = 'thread'
