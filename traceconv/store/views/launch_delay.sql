-- title = "From launch to start, with how sure that is"
-- doc = "Each task whose launch is known, with the call that launched it: how long after the call's begin and end it started, and whether the error of the clocks leaves that certain."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The task (task.id)." }
-- api_id = { type = "BIGINT", unit = "id", doc = "The call that launched it (api.id): the one with its correlation_id that began at submit_ns." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device that the task ran on." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream that it ran on." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync: waits and events, which some profilers tie to their calls too." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- submit_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When the call began, by the host's clock." }
-- call_ns = { type = "BIGINT", unit = "ns", doc = "How long the call took; NULL when its end is not in the source." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When the task started, by the device's clock, aligned with the host's." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "How long the task ran; NULL when its end is not in the source." }
-- delay_ns = { type = "BIGINT", unit = "ns", doc = "start_ns less submit_ns." }
-- after_call_ns = { type = "BIGINT", unit = "ns", doc = "start_ns minus the end of the call; negative when the task started before its call returned; NULL when that end is not known." }
-- clock_error_ns = { type = "BIGINT", unit = "ns", doc = "Bound of the error of the device's times against the host's; NULL when not known." }
-- certain = { type = "BOOLEAN", unit = "flag", doc = "Whether delay_ns is more than the clocks can be wrong by; NULL when that is not known." }
WITH launch AS (
  -- Calls of several layers may have one id and begin in the same moment: one of them speaks for all.
  SELECT run_id, correlation_id, start_ns, min(id) AS api_id, min_by(dur_ns, id) AS dur_ns
  FROM api
  WHERE correlation_id IS NOT NULL
  GROUP BY run_id, correlation_id, start_ns
)
SELECT t.run_id, t.id, a.api_id, t.device_id, t.stream_id, t.kind, t.name, t.submit_ns, a.dur_ns AS call_ns,
       t.start_ns, t.dur_ns, TRY(t.start_ns - t.submit_ns) AS delay_ns,
       TRY(t.start_ns - (t.submit_ns + a.dur_ns)) AS after_call_ns,
       d.clock_error_ns, TRY(t.start_ns - t.submit_ns) > d.clock_error_ns AS certain
FROM task AS t
JOIN launch AS a ON a.run_id = t.run_id AND a.correlation_id = t.correlation_id AND a.start_ns = t.submit_ns
LEFT JOIN device AS d ON d.run_id = t.run_id AND d.device_id = t.device_id
