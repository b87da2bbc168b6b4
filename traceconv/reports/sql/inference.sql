-- title = "Inferences"
-- doc = "How long did each inference take? One row per inference, from the call to its return."
-- needs = ["range"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its inferences; traces of onnxruntime and Furiosa have them too."
-- order = ["run_id", "start_ns", "id"]
-- measure = "dur_ns"
-- shown = ["trace_id", "span_id", "thread", "start_ns", "dur_ns"]
-- selects = { run = true, steps = "Only the inference of this step (step.step_id); NULL: all inferences.", time = "inferences that start" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Inference (range.id)." }
-- trace_id = { type = "VARCHAR", unit = "text", doc = "Inference ID in the source; NULL if none." }
-- span_id = { type = "VARCHAR", unit = "text", doc = "Span ID of the inference; NULL if the source has none." }
-- thread = { type = "VARCHAR", unit = "text", doc = "Calling thread, as named in the source." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL for a warm-up, and if the source has no steps." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Time of the call." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
SELECT r.run_id, r.id, r.trace_id, r.span_id, t.tid_text AS thread, r.step_id, r.start_ns, r.dur_ns
FROM "range" AS r
LEFT JOIN track AS t ON t.run_id = r.run_id AND t.track_id = r.track_id
WHERE r.kind = 'inference' AND {{selected(r.run_id, r.step_id, r.start_ns)}}
ORDER BY r.run_id, r.start_ns, r.id
