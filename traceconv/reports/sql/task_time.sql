-- title = "Device tasks"
-- doc = "What did each device do, and when? One row per task: kernels, copies, collectives, events."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- measure = "dur_ns"
-- shown = ["device_id", "stream_id", "name", "task_type", "start_ns", "dur_ns", "stream_wait_ns"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- device_id = { type = "BIGINT", unit = "id", msprof = "Device_id", doc = "Device." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the kernel, copy or op; NULL if unknown." }
-- op_name = { type = "VARCHAR", unit = "text", msprof = "kernel_name", doc = "Name of the op, without the trip of a loop that name has; of the task if the op is unknown." }
-- task_type = { type = "VARCHAR", unit = "text", msprof = "kernel_type", doc = "Executing unit, such as AI_CORE or SDMA; NULL if unknown." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync; NULL if unknown." }
-- stream_id = { type = "BIGINT", unit = "id", msprof = "stream_id", doc = "Stream; NULL if unknown." }
-- source_task_id = { type = "BIGINT", unit = "id", msprof = "task_id", doc = "Task ID in the source; NULL if none." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executes (op.op_id); NULL for copies, events and collectives." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- dur_ns = { type = "BIGINT", unit = "ns", msprof = "task_time(us)", msprof_as = "us", doc = "Duration; NULL if its end is not in the source." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, msprof = "task_start(us)", msprof_as = "us", doc = "Start time." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, msprof = "task_stop(us)", msprof_as = "us", doc = "End time; NULL if it is not in the source." }
-- stream_wait_ns = { type = "BIGINT", unit = "ns", doc = "Gap since the end of the previous task on the stream; 0 for the first; negative if they overlap; NULL if that end is unknown." }
SELECT t.run_id, t.id, t.device_id, t.name, coalesce(o.name, t.name) AS op_name, t.task_type, t.kind, t.stream_id, t.source_task_id, t.op_id,
       t.step_id, t.dur_ns, t.start_ns, t.start_ns + t.dur_ns AS end_ns, t.stream_wait_ns
FROM task AS t
LEFT JOIN op AS o ON o.run_id = t.run_id AND o.op_id = t.op_id
WHERE {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
