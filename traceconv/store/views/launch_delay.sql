-- title = "Launch delay of each task"
-- doc = "Each task with a known launch, and the call that launched it: the time from the start and end of the call to the start of the task, and whether it exceeds the clock error."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- optional_joins = true
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- api_id = { type = "BIGINT", unit = "id", doc = "Call that launched it (api.id): the one with its correlation_id that started at submit_ns." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the task." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL if unknown." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync (waits and events)." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- submit_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time of the call, by the host clock." }
-- call_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the call; NULL if its end is not in the source." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time of the task, by the device clock, aligned with the host clock." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the task; NULL if its end is not in the source." }
-- delay_ns = { type = "BIGINT", unit = "ns", doc = "start_ns minus submit_ns." }
-- after_call_ns = { type = "BIGINT", unit = "ns", doc = "start_ns minus the end of the call; negative if the task started before the call returned; NULL if that end is unknown." }
-- clock_error_ns = { type = "BIGINT", unit = "ns", doc = "Error bound of device timestamps on the host clock; NULL if unknown." }
-- certain = { type = "BOOLEAN", unit = "flag", doc = "Whether delay_ns exceeds the clock error; NULL if the error is unknown." }
SELECT t.run_id, t.id, t.api_id, t.device_id, t.stream_id, t.step_id, t.kind, t.name, t.submit_ns, t.call_ns,
       t.start_ns, t.dur_ns, TRY(t.start_ns - t.submit_ns) AS delay_ns,
       TRY(t.start_ns - (t.submit_ns + t.call_ns)) AS after_call_ns,
       d.clock_error_ns, TRY(t.start_ns - t.submit_ns) > d.clock_error_ns AS certain
FROM task AS t
LEFT JOIN device AS d ON d.run_id = t.run_id AND d.device_id = t.device_id
WHERE t.api_id IS NOT NULL
