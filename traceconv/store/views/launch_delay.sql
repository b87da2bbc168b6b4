-- title = "From launch to start, with how sure that is"
-- doc = "Each task with the call that launched it: how long after the call's begin it started, and whether the error of the clocks leaves that certain."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The task (task.id)." }
-- api_id = { type = "BIGINT", unit = "id", doc = "The call that launched it (api.id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device that the task ran on." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream that it ran on." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- submit_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When the call began, by the host's clock." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When the task started, by the device's clock, aligned with the host's." }
-- delay_ns = { type = "BIGINT", unit = "ns", doc = "start_ns less submit_ns." }
-- clock_error_ns = { type = "BIGINT", unit = "ns", doc = "Bound of the error of the device's times against the host's; NULL when not known." }
-- certain = { type = "BOOLEAN", unit = "flag", doc = "Whether delay_ns is more than the clocks can be wrong by; NULL when that is not known." }
SELECT t.run_id, t.id, f.src_id AS api_id, t.device_id, t.stream_id, t.name, t.submit_ns, t.start_ns,
       t.start_ns - t.submit_ns AS delay_ns, d.clock_error_ns, t.start_ns - t.submit_ns > d.clock_error_ns AS certain
FROM flow AS f
JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id
LEFT JOIN device AS d ON d.run_id = t.run_id AND d.device_id = t.device_id
WHERE f.kind = 'launch' AND t.submit_ns IS NOT NULL
