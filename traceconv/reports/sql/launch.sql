-- title = "Launches of tasks"
-- doc = "How long does each task wait between its launch and its start, and how many tasks wait with it? One row per task with a known launch, except events and waits (kind sync). Delays below the clock error are not certain."
-- needs = ["task", "api"]
-- when_empty = "Launches are known from calls with the correlation IDs of tasks: in PyTorch with ProfilerActivity.CPU and CUDA; of a model with traceconv record MODEL -o DIR. The report trust counts launches that are unclear."
-- order = ["run_id", "submit_ns", "id"]
-- measure = "delay_ns"
-- optional_joins = true
-- shown = ["device_id", "stream_id", "name", "submit_ns", "call_ns", "delay_ns", "dur_ns", "queue_length", "is_short", "certain"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks launched" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- api_id = { type = "BIGINT", unit = "id", doc = "Call that launched it (api.id); a graph launch has several tasks." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the task." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL if unknown." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy or collective; NULL if unknown." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- submit_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time of the call, by the host clock." }
-- call_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the call; NULL if its end is not in the source." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time of the task." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the task; NULL if its end is not in the source." }
-- delay_ns = { type = "BIGINT", unit = "ns", doc = "start_ns − submit_ns." }
-- after_call_ns = { type = "BIGINT", unit = "ns", doc = "start_ns minus the end of the call; negative if the task started before the call returned; NULL if that end is unknown." }
-- queue_length = { type = "BIGINT", unit = "count", doc = "Tasks of the stream that were launched, but had not started, right after this launch, including this one. Tasks that one call launches are taken in the order of their starts." }
-- is_short = { type = "BOOLEAN", unit = "flag", doc = "Whether the task is shorter than the call that launched it; NULL if either is unknown." }
-- clock_error_ns = { type = "BIGINT", unit = "ns", doc = "Error bound of device timestamps on the host clock; NULL if unknown." }
-- certain = { type = "BOOLEAN", unit = "flag", doc = "Whether delay_ns exceeds the clock error; NULL if the error is unknown." }
SELECT d.run_id, d.id, d.api_id, d.device_id, d.stream_id, d.kind, d.name, d.submit_ns, d.call_ns, d.start_ns, d.dur_ns,
       d.delay_ns, d.after_call_ns, q.queue_length, d.dur_ns < d.call_ns AS is_short, d.clock_error_ns, d.certain
FROM launch_delay AS d
LEFT JOIN task_queue AS q ON q.run_id = d.run_id AND q.id = d.id
WHERE d.kind IS DISTINCT FROM 'sync' AND {{selected(d.run_id, d.device_id, d.step_id, d.submit_ns)}}
ORDER BY d.run_id, d.submit_ns, d.id
