-- title = "Tasks with their op"
-- doc = "The rows of op_summary: tasks that execute an op, and communication operators, each with what is known of that op and of the device."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The task (task.id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device that it ran on." }
-- model_id = { type = "BIGINT", unit = "id", doc = "Model that its op belongs to; NULL when not known." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executes (op.op_id); NULL of communication operators." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step that it belongs to (step.step_id); NULL outside steps." }
-- source_task_id = { type = "BIGINT", unit = "id", doc = "Task as the source numbers it; NULL when it does not." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream that it ran on." }
-- op_name = { type = "VARCHAR", unit = "text", doc = "Name of the op; of the task where the op's is not known." }
-- op_type = { type = "VARCHAR", unit = "text", doc = "Type of the op, such as Conv2D; of a communication operator its name without numbers; NULL when not known." }
-- op_type_source = { type = "VARCHAR", unit = "enum", doc = "How the type is known: recorded, or name (taken from the op's name); NULL without a type." }
-- op_state = { type = "VARCHAR", unit = "enum", doc = "static or dynamic: whether shapes were known when the model was loaded; NULL when not known." }
-- task_type = { type = "VARCHAR", unit = "text", doc = "What carries it out, such as AI_CORE; NULL when not known." }
-- core_type = { type = "VARCHAR", unit = "text", doc = "Kind of core that computes it; NULL when not known." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When it started." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "How long it ran; NULL when its end is not in the source." }
-- wait_ns = { type = "BIGINT", unit = "ns", doc = "Start minus the end of the row before it on its device, over all streams, not below 0; 0 for the first; NULL when that end is not known." }
-- block_count = { type = "BIGINT", unit = "count", doc = "Cores that it was split over; NULL when not known." }
-- mix_block_count = { type = "BIGINT", unit = "count", doc = "Cores of the other kind that a mixed task used besides; NULL when not known." }
-- hf32_eligible = { type = "BOOLEAN", unit = "flag", doc = "Whether it may compute in HF32; NULL when not known." }
-- input_shapes = { type = "VARCHAR", unit = "text", doc = "Shapes of the inputs: extents joined by ',', inputs by ';'; NULL when not known." }
-- input_dtypes = { type = "VARCHAR", unit = "text", doc = "Data types of the inputs, joined by ';'; NULL when not known." }
-- input_formats = { type = "VARCHAR", unit = "text", doc = "Layouts of the inputs, joined by ';'; NULL when not known." }
-- output_shapes = { type = "VARCHAR", unit = "text", doc = "Shapes of the outputs: extents joined by ',', outputs by ';'; NULL when not known." }
-- output_dtypes = { type = "VARCHAR", unit = "text", doc = "Data types of the outputs, joined by ';'; NULL when not known." }
-- output_formats = { type = "VARCHAR", unit = "text", doc = "Layouts of the outputs, joined by ';'; NULL when not known." }
-- context_id = { type = "BIGINT", unit = "id", doc = "Context inside the task, where a device splits tasks; NULL otherwise." }
-- aic_blocks = { type = "BIGINT", unit = "count", doc = "Blocks on cube cores: block_count; of a MIX_AIV task, mix_block_count." }
-- aiv_blocks = { type = "BIGINT", unit = "count", doc = "Blocks on vector cores: block_count; of a MIX_AIC task, mix_block_count." }
-- core_clock_hz = { type = "BIGINT", unit = "hz", doc = "Frequency of the device's cores; NULL when not known." }
-- ai_core_count = { type = "BIGINT", unit = "count", doc = "Cube cores of the device; NULL when not known." }
-- ai_vector_core_count = { type = "BIGINT", unit = "count", doc = "Vector cores of the device; NULL when not known." }
SELECT t.run_id, t.id, t.device_id, o.model_id, t.op_id, t.step_id, t.source_task_id, t.stream_id,
       coalesce(o.name, t.name) AS op_name,
       coalesce(o.op_type, CASE WHEN t.op_id IS NULL THEN regexp_replace(t.name, '(_[0-9]+)+$', '') END) AS op_type,
       coalesce(o.op_type_source, CASE WHEN t.op_id IS NULL AND t.name IS NOT NULL THEN 'name' END) AS op_type_source,
       o.state AS op_state, t.task_type, t.core_type,
       t.start_ns, t.dur_ns, t.wait_ns, t.block_count, t.mix_block_count, t.hf32_eligible,
       o.input_shapes, o.input_dtypes, o.input_formats, o.output_shapes, o.output_dtypes, o.output_formats,
       t.context_id,
       -- A mixed task counts the blocks of its second kind of core apart.
       CASE t.task_type WHEN 'MIX_AIV' THEN t.mix_block_count ELSE t.block_count END AS aic_blocks,
       CASE t.task_type WHEN 'MIX_AIC' THEN t.mix_block_count ELSE t.block_count END AS aiv_blocks,
       d.core_clock_hz, d.ai_core_count, d.ai_vector_core_count
FROM task AS t
LEFT JOIN op AS o ON o.run_id = t.run_id AND o.op_id = t.op_id
LEFT JOIN device AS d ON d.run_id = t.run_id AND d.device_id = t.device_id
-- Communication operators, which msprof lists too, have no op: their type is their name without its numbers.
WHERE t.op_id IS NOT NULL OR t.kind = 'collective'
