-- title = "Every task of the devices"
-- doc = "What did each device do, and when? One row for each task: kernels, copies, collectives, events."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR): its tasks are logged."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- measure = "dur_ns"
-- shown = ["device_id", "stream_id", "name", "task_type", "start_ns", "dur_ns", "stream_wait_ns"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; all when NULL." }
-- device = { type = "BIGINT", doc = "Only this device; all when NULL." }
-- step = { type = "BIGINT", doc = "Only tasks of this step (step.step_id); all, also those outside steps, when NULL." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The task (task.id)." }
-- device_id = { type = "BIGINT", unit = "id", msprof = "Device_id", doc = "Device that it ran on." }
-- name = { type = "VARCHAR", unit = "text", msprof = "kernel_name", doc = "Name of the kernel, the copy or the op; NULL when not known." }
-- task_type = { type = "VARCHAR", unit = "text", msprof = "kernel_type", doc = "What carries it out, such as AI_CORE or SDMA; NULL when not known." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync; NULL when not known." }
-- stream_id = { type = "BIGINT", unit = "id", msprof = "stream_id", doc = "Stream that it ran on." }
-- source_task_id = { type = "BIGINT", unit = "id", msprof = "task_id", doc = "Task as the source numbers it; NULL when it does not." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executes (op.op_id); NULL for copies, events and collectives." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step that it belongs to (step.step_id); NULL outside steps." }
-- dur_ns = { type = "BIGINT", unit = "ns", msprof = "task_time(us)", msprof_as = "us", doc = "How long it ran; NULL when its end is not in the source." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, msprof = "task_start(us)", msprof_as = "us", doc = "When it started." }
-- end_ns = { type = "BIGINT", unit = "ns", moment = true, msprof = "task_stop(us)", msprof_as = "us", doc = "When it ended; NULL when that is not in the source." }
-- stream_wait_ns = { type = "BIGINT", unit = "ns", doc = "Start minus the end of the task before it on its stream, 0 for the first; negative when they overlap; NULL when that end is not known." }
SELECT t.run_id, t.id, t.device_id, t.name, t.task_type, t.kind, t.stream_id, t.source_task_id, t.op_id,
       t.step_id, t.dur_ns, t.start_ns, t.start_ns + t.dur_ns AS end_ns, t.stream_wait_ns
FROM task AS t
WHERE (run IS NULL OR t.run_id = run) AND (device IS NULL OR t.device_id = device)
  AND (step IS NULL OR t.step_id = step)
