-- title = "Host operators"
-- doc = "Which operators does the host run for an inference, such as Quantize, Lower, Unlower and Dequantize? One row per execution."
-- needs = ["range"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log the host's operators; Furiosa's traces have them too."
-- order = ["run_id", "start_ns", "id"]
-- measure = "dur_ns"
-- shown = ["trace_id", "span_id", "thread", "name", "operator_index", "dur_ns"]
-- selects = { run = true, steps = "Only this step (step.step_id); NULL: all, including those outside steps.", time = "operators that start" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Range (range.id)." }
-- trace_id = { type = "VARCHAR", unit = "text", doc = "Inference ID in the source; a separate ID in Furiosa's traces; NULL if none." }
-- span_id = { type = "VARCHAR", unit = "text", doc = "Span ID; NULL if the source has none." }
-- thread = { type = "VARCHAR", unit = "text", doc = "Thread, as named in the source." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the operator, such as Quantize." }
-- operator_index = { type = "BIGINT", unit = "index", doc = "Index among the operators of the inference, from 0; NULL if unknown." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
SELECT r.run_id, r.id, r.trace_id, r.span_id, t.tid_text AS thread, r.name, r.item_index AS operator_index,
       r.step_id, r.start_ns, r.dur_ns
FROM "range" AS r
LEFT JOIN track AS t ON t.run_id = r.run_id AND t.track_id = r.track_id
-- A range with an operator index is an external operator, for all writers.
WHERE (r.kind = 'external_op' OR (r.kind = 'annotation' AND r.item_index IS NOT NULL))
  AND {{selected(r.run_id, r.step_id, r.start_ns)}}
ORDER BY r.run_id, r.start_ns, r.id
