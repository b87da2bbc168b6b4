-- title = "Every operator that ran"
-- doc = "How long did each execution of an op take, on what, and where did its cycles go? One row for each task with an op, with the op's shapes and its counters of PipeUtilization."
-- needs = ["task", "op"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR): its tasks and ops are logged."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- early = ["task", "op_task"]
-- early_where = "op_id IS NOT NULL"
-- shown = ["device_id", "op_name", "op_type", "task_type", "start_ns", "dur_ns", "wait_ns"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; all when NULL." }
-- device = { type = "BIGINT", doc = "Only this device; all when NULL." }
-- step = { type = "BIGINT", doc = "Only tasks of this step (step.step_id); all, also those outside steps, when NULL." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The task (task.id)." }
-- device_id = { type = "BIGINT", unit = "id", msprof = "Device_id", doc = "Device that it ran on." }
-- model_id = { type = "BIGINT", unit = "id", msprof = "Model ID", doc = "Model that its op belongs to; NULL when not known." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executes (op.op_id)." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step that it belongs to (step.step_id); NULL outside steps." }
-- source_task_id = { type = "BIGINT", unit = "id", msprof = "Task ID", doc = "Task as the source numbers it; NULL when it does not." }
-- stream_id = { type = "BIGINT", unit = "id", msprof = "Stream ID", doc = "Stream that it ran on." }
-- op_name = { type = "VARCHAR", unit = "text", msprof = "Op Name", doc = "Name of the op; of the task where the op's is not known." }
-- op_type = { type = "VARCHAR", unit = "text", msprof = "OP Type", doc = "Type of the op, such as Conv2D; NULL when not known." }
-- op_state = { type = "VARCHAR", unit = "enum", msprof = "OP State", doc = "static or dynamic: whether shapes were known when the model was loaded; NULL when not known." }
-- task_type = { type = "VARCHAR", unit = "text", msprof = "Task Type", doc = "What carries it out, such as AI_CORE; NULL when not known." }
-- core_type = { type = "VARCHAR", unit = "text", doc = "Kind of core that computes it; NULL when not known." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, msprof = "Task Start Time(us)", msprof_as = "us", doc = "When it started." }
-- dur_ns = { type = "BIGINT", unit = "ns", msprof = "Task Duration(us)", msprof_as = "us", doc = "How long it ran; NULL when its end is not in the source." }
-- wait_ns = { type = "BIGINT", unit = "ns", msprof = "Task Wait Time(us)", msprof_as = "us", doc = "Start less the end of the task before it on its stream, 0 for the first; negative when they overlap; NULL when that end is not known." }
-- block_count = { type = "BIGINT", unit = "count", msprof = "Block Num", doc = "Cores that it was split over; NULL when not known." }
-- mix_block_count = { type = "BIGINT", unit = "count", msprof = "Mix Block Num", doc = "Cores of the other kind that a mixed task used besides; NULL when not known." }
-- hf32_eligible = { type = "BOOLEAN", unit = "flag", msprof = "HF32 Eligible", msprof_as = "flag", doc = "Whether it may compute in HF32; NULL when not known." }
-- input_shapes = { type = "VARCHAR", unit = "text", msprof = "Input Shapes", msprof_as = "shapes", doc = "Shapes of the inputs: extents joined by ',', inputs by ';'; NULL when not known." }
-- input_dtypes = { type = "VARCHAR", unit = "text", msprof = "Input Data Types", doc = "Data types of the inputs, joined by ';'; NULL when not known." }
-- input_formats = { type = "VARCHAR", unit = "text", msprof = "Input Formats", doc = "Layouts of the inputs, joined by ';'; NULL when not known." }
-- output_shapes = { type = "VARCHAR", unit = "text", msprof = "Output Shapes", msprof_as = "shapes", doc = "Shapes of the outputs: extents joined by ',', outputs by ';'; NULL when not known." }
-- output_dtypes = { type = "VARCHAR", unit = "text", msprof = "Output Data Types", doc = "Data types of the outputs, joined by ';'; NULL when not known." }
-- output_formats = { type = "VARCHAR", unit = "text", msprof = "Output Formats", doc = "Layouts of the outputs, joined by ';'; NULL when not known." }
-- context_id = { type = "BIGINT", unit = "id", msprof = "Context ID", doc = "Context inside the task, where a device splits tasks; NULL otherwise." }
-- metric_group = { type = "VARCHAR", unit = "enum", doc = "Group of the counters that follow, PipeUtilization; NULL when the task has none, and so are they." }
-- aicore_time_ns = { type = "BIGINT", unit = "ns", msprof = "aicore_time(us)", msprof_as = "us", doc = "Time of cube cores on the task: aic_total_cycles / core clock / blocks · ⌈blocks / cube cores⌉, in integers, rounded half up to 1 ns; NULL when one of these is not known." }
-- aic_total_cycles = { type = "BIGINT", unit = "cycle", msprof = "aic_total_cycles", doc = "Cycles that cube cores were busy with the task, summed over its blocks." }
-- aic_mac_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_mac_time(us)", msprof_as = "us", doc = "Time in which the cube's multiply-accumulate unit worked: as aicore_time_ns, of aic_mac_cycles." }
-- aic_mac_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mac_ratio", msprof_as = "ratio", doc = "aic_mac_cycles / aic_total_cycles; 0 when these are 0." }
-- aic_scalar_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_scalar_time(us)", msprof_as = "us", doc = "Time in which the cube core's scalar unit worked: as aicore_time_ns, of aic_scalar_cycles." }
-- aic_scalar_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_scalar_ratio", msprof_as = "ratio", doc = "aic_scalar_cycles / aic_total_cycles; 0 when these are 0." }
-- aic_mte1_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_mte1_time(us)", msprof_as = "us", doc = "Time in which the transfers from L1 to L0A and L0B ran: as aicore_time_ns, of aic_mte1_cycles." }
-- aic_mte1_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mte1_ratio", msprof_as = "ratio", doc = "aic_mte1_cycles / aic_total_cycles; 0 when these are 0." }
-- aic_mte2_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_mte2_time(us)", msprof_as = "us", doc = "Time in which the transfers from device memory to the cube core ran: as aicore_time_ns, of aic_mte2_cycles." }
-- aic_mte2_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mte2_ratio", msprof_as = "ratio", doc = "aic_mte2_cycles / aic_total_cycles; 0 when these are 0." }
-- aic_fixpipe_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_fixpipe_time(us)", msprof_as = "us", doc = "Time in which the transfers from L0C out of the cube core ran: as aicore_time_ns, of aic_fixpipe_cycles." }
-- aic_fixpipe_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_fixpipe_ratio", msprof_as = "ratio", doc = "aic_fixpipe_cycles / aic_total_cycles; 0 when these are 0." }
-- aic_icache_miss_rate = { type = "DOUBLE", unit = "ratio", msprof = "aic_icache_miss_rate", msprof_as = "ratio", doc = "Instruction fetches of cube cores that missed the cache / all; 0 when there are none." }
-- aiv_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_time(us)", msprof_as = "us", doc = "Time of vector cores on the task: aiv_total_cycles / core clock / blocks · ⌈blocks / vector cores⌉, in integers, rounded half up to 1 ns; NULL when one of these is not known." }
-- aiv_total_cycles = { type = "BIGINT", unit = "cycle", msprof = "aiv_total_cycles", doc = "Cycles that vector cores were busy with the task, summed over its blocks." }
-- aiv_vec_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_vec_time(us)", msprof_as = "us", doc = "Time in which the vector unit worked: as aiv_time_ns, of aiv_vec_cycles." }
-- aiv_vec_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_ratio", msprof_as = "ratio", doc = "aiv_vec_cycles / aiv_total_cycles; 0 when these are 0." }
-- aiv_scalar_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_scalar_time(us)", msprof_as = "us", doc = "Time in which the vector core's scalar unit worked: as aiv_time_ns, of aiv_scalar_cycles." }
-- aiv_scalar_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_scalar_ratio", msprof_as = "ratio", doc = "aiv_scalar_cycles / aiv_total_cycles; 0 when these are 0." }
-- aiv_mte2_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_mte2_time(us)", msprof_as = "us", doc = "Time in which the transfers from device memory to the vector core ran: as aiv_time_ns, of aiv_mte2_cycles." }
-- aiv_mte2_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_mte2_ratio", msprof_as = "ratio", doc = "aiv_mte2_cycles / aiv_total_cycles; 0 when these are 0." }
-- aiv_mte3_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_mte3_time(us)", msprof_as = "us", doc = "Time in which the transfers from the vector core to device memory ran: as aiv_time_ns, of aiv_mte3_cycles." }
-- aiv_mte3_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_mte3_ratio", msprof_as = "ratio", doc = "aiv_mte3_cycles / aiv_total_cycles; 0 when these are 0." }
-- aiv_icache_miss_rate = { type = "DOUBLE", unit = "ratio", msprof = "aiv_icache_miss_rate", msprof_as = "ratio", doc = "Instruction fetches of vector cores that missed the cache / all; 0 when there are none." }
-- cube_utilization_percent = { type = "DOUBLE", unit = "percent", msprof = "cube_utilization(%)", msprof_as = "ratio", doc = "100 aic_total_cycles / (core clock · cube cores · dur_ns); NULL when one of these is not known or 0." }
SELECT r.run_id, r.id, r.device_id, r.model_id, r.op_id, r.step_id, r.source_task_id, r.stream_id,
       r.op_name, r.op_type, r.op_state, r.task_type, r.core_type, r.start_ns, r.dur_ns, r.wait_ns,
       r.block_count, r.mix_block_count, r.hf32_eligible, r.input_shapes, r.input_dtypes, r.input_formats,
       r.output_shapes, r.output_dtypes, r.output_formats, r.context_id,
       p.metric_group,
       cycles_ns(p.aic_total_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count) AS aicore_time_ns,
       p.aic_total_cycles,
       cycles_ns(p.aic_mac_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count) AS aic_mac_time_ns,
       CASE WHEN p.aic_total_cycles = 0 THEN 0 ELSE p.aic_mac_cycles::DOUBLE / p.aic_total_cycles::DOUBLE END
         AS aic_mac_ratio,
       cycles_ns(p.aic_scalar_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count) AS aic_scalar_time_ns,
       CASE WHEN p.aic_total_cycles = 0 THEN 0 ELSE p.aic_scalar_cycles::DOUBLE / p.aic_total_cycles::DOUBLE END
         AS aic_scalar_ratio,
       cycles_ns(p.aic_mte1_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count) AS aic_mte1_time_ns,
       CASE WHEN p.aic_total_cycles = 0 THEN 0 ELSE p.aic_mte1_cycles::DOUBLE / p.aic_total_cycles::DOUBLE END
         AS aic_mte1_ratio,
       cycles_ns(p.aic_mte2_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count) AS aic_mte2_time_ns,
       CASE WHEN p.aic_total_cycles = 0 THEN 0 ELSE p.aic_mte2_cycles::DOUBLE / p.aic_total_cycles::DOUBLE END
         AS aic_mte2_ratio,
       cycles_ns(p.aic_fixpipe_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count) AS aic_fixpipe_time_ns,
       CASE WHEN p.aic_total_cycles = 0 THEN 0 ELSE p.aic_fixpipe_cycles::DOUBLE / p.aic_total_cycles::DOUBLE END
         AS aic_fixpipe_ratio,
       CASE WHEN p.aic_icache_request_count = 0 THEN 0
            ELSE p.aic_icache_miss_count::DOUBLE / p.aic_icache_request_count::DOUBLE END AS aic_icache_miss_rate,
       cycles_ns(p.aiv_total_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count) AS aiv_time_ns,
       p.aiv_total_cycles,
       cycles_ns(p.aiv_vec_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count) AS aiv_vec_time_ns,
       CASE WHEN p.aiv_total_cycles = 0 THEN 0 ELSE p.aiv_vec_cycles::DOUBLE / p.aiv_total_cycles::DOUBLE END
         AS aiv_vec_ratio,
       cycles_ns(p.aiv_scalar_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count) AS aiv_scalar_time_ns,
       CASE WHEN p.aiv_total_cycles = 0 THEN 0 ELSE p.aiv_scalar_cycles::DOUBLE / p.aiv_total_cycles::DOUBLE END
         AS aiv_scalar_ratio,
       cycles_ns(p.aiv_mte2_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count) AS aiv_mte2_time_ns,
       CASE WHEN p.aiv_total_cycles = 0 THEN 0 ELSE p.aiv_mte2_cycles::DOUBLE / p.aiv_total_cycles::DOUBLE END
         AS aiv_mte2_ratio,
       cycles_ns(p.aiv_mte3_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count) AS aiv_mte3_time_ns,
       CASE WHEN p.aiv_total_cycles = 0 THEN 0 ELSE p.aiv_mte3_cycles::DOUBLE / p.aiv_total_cycles::DOUBLE END
         AS aiv_mte3_ratio,
       CASE WHEN p.aiv_icache_request_count = 0 THEN 0
            ELSE p.aiv_icache_miss_count::DOUBLE / p.aiv_icache_request_count::DOUBLE END AS aiv_icache_miss_rate,
       1e11 * p.aic_total_cycles / nullif(r.core_clock_hz::DOUBLE * r.ai_core_count * r.dur_ns, 0)
         AS cube_utilization_percent
FROM op_task AS r
LEFT JOIN task_pmu AS p ON p.run_id = r.run_id AND p.id = r.id AND p.metric_group = 'PipeUtilization'
WHERE (run IS NULL OR r.run_id = run) AND (device IS NULL OR r.device_id = device)
  AND (step IS NULL OR r.step_id = step)
