-- title = "Operators of the host"
-- doc = "What does the host itself do for an inference: Quantize, Lower, Unlower, Dequantize? One row for each time."
-- needs = ["range"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR): the host's work on its inputs and outputs is logged; Furiosa's traces hold it too."
-- order = ["run_id", "start_ns", "id"]
-- measure = "dur_ns"
-- shown = ["trace_id", "span_id", "thread", "name", "operator_index", "dur_ns"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; all when NULL." }
-- step = { type = "BIGINT", doc = "Only this step (step.step_id); all, also what is outside steps, when NULL." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The range (range.id)." }
-- trace_id = { type = "VARCHAR", unit = "text", doc = "Inference that it is for, as the source numbers it; of Furiosa's, a number of its own; NULL when there is none." }
-- span_id = { type = "VARCHAR", unit = "text", doc = "Its own number; NULL when the source has none." }
-- thread = { type = "VARCHAR", unit = "text", doc = "Thread that did it, as the source names it." }
-- name = { type = "VARCHAR", unit = "text", doc = "What was done, such as Quantize." }
-- operator_index = { type = "BIGINT", unit = "index", doc = "Its place among the inference's operators, from 0; NULL when not known." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step that it belongs to (step.step_id); NULL outside steps." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When it began." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "How long it took; NULL when its end is not in the source." }
SELECT r.run_id, r.id, r.trace_id, r.span_id, t.tid_text AS thread, r.name, r.item_index AS operator_index,
       r.step_id, r.start_ns, r.dur_ns
FROM "range" AS r
LEFT JOIN track AS t ON t.run_id = r.run_id AND t.track_id = r.track_id
-- A range with the index of an operator is one, whatever its writer calls it.
WHERE (r.kind = 'external_op' OR (r.kind = 'annotation' AND r.item_index IS NOT NULL))
  AND (run IS NULL OR r.run_id = run) AND (step IS NULL OR r.step_id = step)
ORDER BY r.run_id, r.start_ns, r.id
