-- title = "Inferences"
-- doc = "How long did each inference take? One row for each run of the model, from the call to its return."
-- needs = ["range"]
-- when_empty = "Record inferences: traceconv record MODEL -o DIR logs one for each run of the model, and Furiosa's traces hold them too."
-- order = ["run_id", "start_ns", "id"]
-- measure = "dur_ns"
-- shown = ["trace_id", "span_id", "thread", "start_ns", "dur_ns"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; all when NULL." }
-- step = { type = "BIGINT", doc = "Only the inference of this step (step.step_id); all, also those outside steps, when NULL." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The inference (range.id)." }
-- trace_id = { type = "VARCHAR", unit = "text", doc = "The inference as the source numbers it; NULL when it does not." }
-- span_id = { type = "VARCHAR", unit = "text", doc = "Its own range in it; NULL when the source has none." }
-- thread = { type = "VARCHAR", unit = "text", doc = "Thread that called, as the source names it." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step that it is (step.step_id); NULL for a warm-up, and where the source has no steps." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When it was called." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "How long it took; NULL when its end is not in the source." }
SELECT r.run_id, r.id, r.trace_id, r.span_id, t.tid_text AS thread, r.step_id, r.start_ns, r.dur_ns
FROM "range" AS r
LEFT JOIN track AS t ON t.run_id = r.run_id AND t.track_id = r.track_id
WHERE r.kind = 'inference' AND (run IS NULL OR r.run_id = run) AND (step IS NULL OR r.step_id = step)
ORDER BY r.run_id, r.start_ns, r.id
