-- title = "Tasks with their op"
-- doc = "The rows of op_summary: tasks that execute an op, and communication operators, with columns of the op and the device."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- optional_joins = true
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
-- model_id = { type = "BIGINT", unit = "id", doc = "Model of its op; NULL if unknown." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executes (op.op_id); NULL for communication operators." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- source_task_id = { type = "BIGINT", unit = "id", doc = "Task ID in the source; NULL if none." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL if unknown." }
-- op_name = { type = "VARCHAR", unit = "text", doc = "Name of the op; of the task if the op is unknown." }
-- op_type = { type = "VARCHAR", unit = "text", doc = "Op type, such as Conv2D; for a communication operator its name without numbers; NULL if unknown." }
-- op_type_source = { type = "VARCHAR", unit = "enum", doc = "Origin of op_type: recorded (given by the source) or name (derived from the op's name); NULL without a type." }
-- op_state = { type = "VARCHAR", unit = "enum", doc = "static if all shapes were known when the model was loaded, dynamic otherwise; NULL if unknown." }
-- task_type = { type = "VARCHAR", unit = "text", doc = "Executing unit, such as AI_CORE; NULL if unknown." }
-- core_type = { type = "VARCHAR", unit = "text", doc = "Core type; NULL if unknown." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
-- wait_ns = { type = "BIGINT", unit = "ns", doc = "Gap since the previous row of the device, across all streams, at least 0; 0 for the first; NULL if that end is unknown." }
-- block_count = { type = "BIGINT", unit = "count", doc = "Number of cores that ran it; NULL if unknown." }
-- mix_block_count = { type = "BIGINT", unit = "count", doc = "Number of cores of the other kind that a mixed task also used; NULL if unknown." }
-- hf32_eligible = { type = "BOOLEAN", unit = "flag", doc = "Whether it may compute in HF32; NULL if unknown." }
-- input_shapes = { type = "VARCHAR", unit = "text", doc = "Input shapes: dimensions joined by ',', inputs by ';'; NULL if unknown." }
-- input_dtypes = { type = "VARCHAR", unit = "text", doc = "Input data types, joined by ';'; NULL if unknown." }
-- input_formats = { type = "VARCHAR", unit = "text", doc = "Input layouts, joined by ';'; NULL if unknown." }
-- output_shapes = { type = "VARCHAR", unit = "text", doc = "Output shapes: dimensions joined by ',', outputs by ';'; NULL if unknown." }
-- output_dtypes = { type = "VARCHAR", unit = "text", doc = "Output data types, joined by ';'; NULL if unknown." }
-- output_formats = { type = "VARCHAR", unit = "text", doc = "Output layouts, joined by ';'; NULL if unknown." }
-- context_id = { type = "BIGINT", unit = "id", doc = "Context within a task that the device splits; NULL for other tasks." }
-- aic_blocks = { type = "BIGINT", unit = "count", doc = "Blocks on cube cores: block_count; for a MIX_AIV task mix_block_count." }
-- aiv_blocks = { type = "BIGINT", unit = "count", doc = "Blocks on vector cores: block_count; for a MIX_AIC task mix_block_count." }
-- core_clock_hz = { type = "BIGINT", unit = "hz", doc = "Core frequency of the device; NULL if unknown." }
-- ai_core_count = { type = "BIGINT", unit = "count", doc = "Number of cube cores of the device; NULL if unknown." }
-- ai_vector_core_count = { type = "BIGINT", unit = "count", doc = "Number of vector cores of the device; NULL if unknown." }
SELECT t.run_id, t.id, t.device_id, o.model_id, t.op_id, t.step_id, t.source_task_id, t.stream_id,
       coalesce(o.name, t.name) AS op_name,
       coalesce(o.op_type, CASE WHEN t.op_id IS NULL THEN regexp_replace(t.name, '(_[0-9]+)+\z', '') END) AS op_type,
       coalesce(o.op_type_source, CASE WHEN t.op_id IS NULL AND t.name IS NOT NULL THEN 'name' END) AS op_type_source,
       o.state AS op_state, t.task_type, t.core_type,
       t.start_ns, t.dur_ns, t.wait_ns, t.block_count, t.mix_block_count, t.hf32_eligible,
       o.input_shapes, o.input_dtypes, o.input_formats, o.output_shapes, o.output_dtypes, o.output_formats,
       t.context_id,
       -- A mixed task counts the blocks of its second core type separately.
       CASE t.task_type WHEN 'MIX_AIV' THEN t.mix_block_count ELSE t.block_count END AS aic_blocks,
       CASE t.task_type WHEN 'MIX_AIC' THEN t.mix_block_count ELSE t.block_count END AS aiv_blocks,
       d.core_clock_hz, d.ai_core_count, d.ai_vector_core_count
FROM task AS t
LEFT JOIN op AS o ON o.run_id = t.run_id AND o.op_id = t.op_id
LEFT JOIN device AS d ON d.run_id = t.run_id AND d.device_id = t.device_id
-- Communication operators, which msprof lists too, have no op: their type is their name without numbers.
WHERE t.op_id IS NOT NULL OR t.kind = 'collective'
