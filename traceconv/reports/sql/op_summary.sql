-- title = "Executed operators"
-- doc = "How long did each execution of an op take, on which core, and how were its cycles spent? One row per task with an op and per communication operator, with the op's shapes and the counters of the recorded metric group (traceconv record --aic-metrics)."
-- needs = ["task", "op"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks and ops."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- measure = "dur_ns"
-- optional_joins = true
-- shown = ["device_id", "op_name", "op_type", "task_type", "start_ns", "dur_ns", "wait_ns"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- device_id = { type = "BIGINT", unit = "id", msprof = "Device_id", doc = "Device." }
-- model_id = { type = "BIGINT", unit = "id", msprof = "Model ID", msprof_as = "model", doc = "Model of its op; NULL if unknown." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it executes (op.op_id); NULL for communication operators." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- source_task_id = { type = "BIGINT", unit = "id", msprof = "Task ID", doc = "Task ID in the source; NULL if none." }
-- stream_id = { type = "BIGINT", unit = "id", msprof = "Stream ID", doc = "Stream; NULL if unknown." }
-- op_name = { type = "VARCHAR", unit = "text", msprof = "Op Name", doc = "Name of the op, or of the task if the op is unknown." }
-- op_type = { type = "VARCHAR", unit = "text", msprof = "OP Type", doc = "Op type, such as Conv2D; for communication operators, the name without numbers, such as hcom_allReduce_; NULL if unknown." }
-- op_type_source = { type = "VARCHAR", unit = "enum", doc = "Origin of op_type: recorded (given by the source) or name (derived from the op's name); NULL without a type." }
-- op_state = { type = "VARCHAR", unit = "enum", msprof = "OP State", doc = "static if all shapes were known when the model was loaded, dynamic otherwise; NULL if unknown." }
-- task_type = { type = "VARCHAR", unit = "text", msprof = "Task Type", doc = "Executing unit, such as AI_CORE; NULL if unknown." }
-- core_type = { type = "VARCHAR", unit = "text", doc = "Core type; NULL if unknown." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, msprof = "Task Start Time(us)", msprof_as = "us", doc = "Start time." }
-- dur_ns = { type = "BIGINT", unit = "ns", msprof = "Task Duration(us)", msprof_as = "us", doc = "Duration; NULL if its end is not in the source." }
-- wait_ns = { type = "BIGINT", unit = "ns", msprof = "Task Wait Time(us)", msprof_as = "us", doc = "Gap since the end of the previous row of the device, over all streams; 0 if they overlap and for the first; NULL if that end is unknown." }
-- block_count = { type = "BIGINT", unit = "count", msprof = "Block Num", doc = "Number of cores that ran it; NULL if unknown." }
-- mix_block_count = { type = "BIGINT", unit = "count", msprof = "Mix Block Num", doc = "Number of cores of the other kind that a mixed task also used; NULL if unknown." }
-- hf32_eligible = { type = "BOOLEAN", unit = "flag", msprof = "HF32 Eligible", msprof_as = "flag", doc = "Whether it may compute in HF32; NULL if unknown." }
-- input_shapes = { type = "VARCHAR", unit = "text", msprof = "Input Shapes", msprof_as = "shapes", doc = "Input shapes: dimensions joined by ',', inputs by ';'; NULL if unknown." }
-- input_dtypes = { type = "VARCHAR", unit = "text", msprof = "Input Data Types", doc = "Input data types, joined by ';'; NULL if unknown." }
-- input_formats = { type = "VARCHAR", unit = "text", msprof = "Input Formats", doc = "Input layouts, joined by ';'; NULL if unknown." }
-- output_shapes = { type = "VARCHAR", unit = "text", msprof = "Output Shapes", msprof_as = "shapes", doc = "Output shapes: dimensions joined by ',', outputs by ';'; NULL if unknown." }
-- output_dtypes = { type = "VARCHAR", unit = "text", msprof = "Output Data Types", doc = "Output data types, joined by ';'; NULL if unknown." }
-- output_formats = { type = "VARCHAR", unit = "text", msprof = "Output Formats", doc = "Output layouts, joined by ';'; NULL if unknown." }
-- context_id = { type = "BIGINT", unit = "id", msprof = "Context ID", doc = "Context within a task that the device splits; NULL for other tasks." }
-- metric_group = { type = "VARCHAR", unit = "text", group = "any", doc = "Metric group of the following counters, such as PipeUtilization; several are joined by ';'. NULL if the task has none. Columns of other groups are NULL." }
-- aicore_time_ns = { type = "BIGINT", unit = "ns", msprof = "aicore_time(us)", msprof_as = "short_us", group = "any", doc = "Time of cube cores on the task: aic_total_cycles / core clock / blocks · ⌈blocks / cube cores⌉, in integer arithmetic, rounded half up to 1 ns; NULL if one of these is unknown." }
-- aic_total_cycles = { type = "BIGINT", unit = "cycle", msprof = "aic_total_cycles", group = "any", doc = "Cycles during which cube cores were busy with the task, summed over its blocks." }
-- aic_mac_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_mac_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Busy time of the cube's multiply-accumulate unit, computed like aicore_time_ns from aic_mac_cycles." }
-- aic_mac_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mac_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aic_mac_cycles / aic_total_cycles; 0 if these are 0." }
-- aic_scalar_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_scalar_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Busy time of the cube cores' scalar unit, computed like aicore_time_ns from aic_scalar_cycles." }
-- aic_scalar_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_scalar_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aic_scalar_cycles / aic_total_cycles; 0 if these are 0." }
-- aic_mte1_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_mte1_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Transfer time from L1 to L0A and L0B, computed like aicore_time_ns from aic_mte1_cycles." }
-- aic_mte1_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mte1_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aic_mte1_cycles / aic_total_cycles; 0 if these are 0." }
-- aic_mte2_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_mte2_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Transfer time from device memory to cube cores, computed like aicore_time_ns from aic_mte2_cycles." }
-- aic_mte2_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mte2_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aic_mte2_cycles / aic_total_cycles; 0 if these are 0." }
-- aic_fixpipe_time_ns = { type = "BIGINT", unit = "ns", msprof = "aic_fixpipe_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Transfer time from L0C out of cube cores, computed like aicore_time_ns from aic_fixpipe_cycles." }
-- aic_fixpipe_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_fixpipe_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aic_fixpipe_cycles / aic_total_cycles; 0 if these are 0." }
-- aic_icache_miss_rate = { type = "DOUBLE", unit = "ratio", msprof = "aic_icache_miss_rate", msprof_as = "ratio", group = "PipeUtilization", doc = "Instruction cache misses / fetches of cube cores; 0 if there are none." }
-- aic_mac_fp16_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mac_fp16_ratio", msprof_as = "ratio", group = "ArithmeticUtilization", doc = "Busy cycles of the multiply-accumulate unit on 2-byte elements / aic_total_cycles; 0 if these are 0." }
-- aic_mac_int8_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aic_mac_int8_ratio", msprof_as = "ratio", group = "ArithmeticUtilization", doc = "Busy cycles of the multiply-accumulate unit on 1-byte elements / aic_total_cycles; 0 if these are 0." }
-- aic_mac_fp32_ratio = { type = "DOUBLE", unit = "ratio", group = "ArithmeticUtilization", doc = "Busy cycles of the multiply-accumulate unit on elements of 4 bytes or more / aic_total_cycles; 0 if these are 0." }
-- aic_cube_fops = { type = "BIGINT", unit = "flop", msprof = "aic_cube_fops", group = "ArithmeticUtilization", doc = "Cube operations, including those on padding; a multiply-accumulate counts as 2." }
-- aic_l1_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l1_read_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of reads from L1 of a cube core: aic_l1_read_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_l1_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l1_write_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of writes to L1 of a cube core: aic_l1_write_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_main_mem_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_main_mem_read_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of reads from device memory by a cube core: aic_main_mem_read_bytes / (aic_total_cycles / core clock) / 2^30 (average per core)." }
-- aic_main_mem_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_main_mem_write_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of writes to device memory by a cube core: aic_main_mem_write_bytes / (aic_total_cycles / core clock) / 2^30 (average per core)." }
-- aic_l2_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l2_read_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of reads from L2 by a cube core: aic_l2_read_bytes / (aic_total_cycles / core clock) / 2^30 (average per core)." }
-- aic_l2_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l2_write_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of writes to L2 by a cube core: aic_l2_write_bytes / (aic_total_cycles / core clock) / 2^30 (average per core)." }
-- aic_l0a_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l0a_read_bw(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of reads from L0A of a cube core: aic_l0a_read_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_l0a_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l0a_write_bw(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of writes to L0A of a cube core: aic_l0a_write_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_l0b_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l0b_read_bw(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of reads from L0B of a cube core: aic_l0b_read_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_l0b_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l0b_write_bw(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of writes to L0B of a cube core: aic_l0b_write_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_l0c_read_cube_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l0c_read_bw_cube(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of reads from L0C of a cube core by its multiply-accumulate unit: aic_l0c_read_cube_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_l0c_write_cube_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_l0c_write_bw_cube(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of writes to L0C of a cube core by its multiply-accumulate unit: aic_l0c_write_cube_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_ub_read_scalar_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_ub_read_bw_scalar(GB/s)", msprof_as = "ratio", group = "MemoryUB", doc = "Bandwidth of reads from a unified buffer by the scalar unit of a cube core: aic_ub_read_scalar_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_ub_write_scalar_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aic_ub_write_bw_scalar(GB/s)", msprof_as = "ratio", group = "MemoryUB", doc = "Bandwidth of writes to a unified buffer by the scalar unit of a cube core: aic_ub_write_scalar_bytes / (aic_total_cycles / core clock) / 2^30." }
-- aic_write_cache_hit = { type = "BIGINT", unit = "count", msprof = "aic_write_cache_hit", group = "L2Cache", doc = "L2 write hits of cube cores; one write is at most a cache line." }
-- aic_write_cache_miss_allocate = { type = "BIGINT", unit = "count", msprof = "aic_write_cache_miss_allocate", group = "L2Cache", doc = "L2 write misses of cube cores; the cache line was allocated." }
-- aic_r0_read_cache_hit = { type = "BIGINT", unit = "count", msprof = "aic_r0_read_cache_hit", group = "L2Cache", doc = "L2 read hits of cube cores on channel 0, in cache lines." }
-- aic_r0_read_cache_miss_allocate = { type = "BIGINT", unit = "count", msprof = "aic_r0_read_cache_miss_allocate", group = "L2Cache", doc = "L2 read misses of cube cores on channel 0, in cache lines." }
-- aic_r1_read_cache_hit = { type = "BIGINT", unit = "count", msprof = "aic_r1_read_cache_hit", group = "L2Cache", doc = "L2 read hits of cube cores on channel 1, in cache lines." }
-- aic_r1_read_cache_miss_allocate = { type = "BIGINT", unit = "count", msprof = "aic_r1_read_cache_miss_allocate", group = "L2Cache", doc = "L2 read misses of cube cores on channel 1, in cache lines." }
-- aic_l2_read_hit_rate = { type = "DOUBLE", unit = "ratio", group = "L2Cache", doc = "Hits / all reads of cube cores on both channels; 0 if there are none." }
-- aic_l2_write_hit_rate = { type = "DOUBLE", unit = "ratio", group = "L2Cache", doc = "Hits / all writes of cube cores; 0 if there are none." }
-- aiv_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_time(us)", msprof_as = "short_us", group = "any", doc = "Time of vector cores on the task: aiv_total_cycles / core clock / blocks · ⌈blocks / vector cores⌉, in integer arithmetic, rounded half up to 1 ns; NULL if one of these is unknown." }
-- aiv_total_cycles = { type = "BIGINT", unit = "cycle", msprof = "aiv_total_cycles", group = "any", doc = "Cycles during which vector cores were busy with the task, summed over its blocks." }
-- aiv_vec_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_vec_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Busy time of the vector unit, computed like aiv_time_ns from aiv_vec_cycles." }
-- aiv_vec_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aiv_vec_cycles / aiv_total_cycles; 0 if these are 0." }
-- aiv_scalar_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_scalar_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Busy time of the vector cores' scalar unit, computed like aiv_time_ns from aiv_scalar_cycles." }
-- aiv_scalar_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_scalar_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aiv_scalar_cycles / aiv_total_cycles; 0 if these are 0." }
-- aiv_mte2_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_mte2_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Transfer time from device memory to vector cores, computed like aiv_time_ns from aiv_mte2_cycles." }
-- aiv_mte2_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_mte2_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aiv_mte2_cycles / aiv_total_cycles; 0 if these are 0." }
-- aiv_mte3_time_ns = { type = "BIGINT", unit = "ns", msprof = "aiv_mte3_time(us)", msprof_as = "short_us", group = "PipeUtilization", doc = "Transfer time from vector cores to device memory, computed like aiv_time_ns from aiv_mte3_cycles." }
-- aiv_mte3_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_mte3_ratio", msprof_as = "ratio", group = "PipeUtilization", doc = "aiv_mte3_cycles / aiv_total_cycles; 0 if these are 0." }
-- aiv_icache_miss_rate = { type = "DOUBLE", unit = "ratio", msprof = "aiv_icache_miss_rate", msprof_as = "ratio", group = "PipeUtilization", doc = "Instruction cache misses / fetches of vector cores; 0 if there are none." }
-- aiv_vec_fp32_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_fp32_ratio", msprof_as = "ratio", group = "ArithmeticUtilization", doc = "Vector unit cycles on floats of 4 bytes or more / aiv_total_cycles; 0 if these are 0." }
-- aiv_vec_fp16_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_fp16_ratio", msprof_as = "ratio", group = "ArithmeticUtilization", doc = "Vector unit cycles on 2-byte floats / aiv_total_cycles; 0 if these are 0." }
-- aiv_vec_int32_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_int32_ratio", msprof_as = "ratio", group = "ArithmeticUtilization", doc = "Vector unit cycles on integers / aiv_total_cycles; 0 if these are 0." }
-- aiv_vec_misc_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_misc_ratio", msprof_as = "ratio", group = "ArithmeticUtilization", doc = "Vector unit cycles on other instructions (such as casts) / aiv_total_cycles; 0 if these are 0." }
-- aiv_vector_fops = { type = "BIGINT", unit = "flop", msprof = "aiv_vector_fops", group = "ArithmeticUtilization", doc = "Vector unit operations, one per lane and cycle, including those on padding." }
-- aiv_ub_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_ub_read_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of reads from the unified buffer of a vector core by transfers: aiv_ub_read_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_ub_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_ub_write_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of writes to the unified buffer of a vector core by transfers: aiv_ub_write_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_main_mem_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_main_mem_read_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of reads from device memory by a vector core: aiv_main_mem_read_bytes / (aiv_total_cycles / core clock) / 2^30 (average per core)." }
-- aiv_main_mem_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_main_mem_write_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of writes to device memory by a vector core: aiv_main_mem_write_bytes / (aiv_total_cycles / core clock) / 2^30 (average per core)." }
-- aiv_l2_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_l2_read_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of reads from L2 by a vector core: aiv_l2_read_bytes / (aiv_total_cycles / core clock) / 2^30 (average per core)." }
-- aiv_l2_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_l2_write_bw(GB/s)", msprof_as = "ratio", group = "Memory", doc = "Bandwidth of writes to L2 by a vector core: aiv_l2_write_bytes / (aiv_total_cycles / core clock) / 2^30 (average per core)." }
-- aiv_l0c_read_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_l0c_read_bw(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of reads from L0C by a vector core: aiv_l0c_read_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_l0c_write_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_l0c_write_bw(GB/s)", msprof_as = "ratio", group = "MemoryL0", doc = "Bandwidth of writes to L0C by a vector core: aiv_l0c_write_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_ub_read_vector_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_ub_read_bw_vector(GB/s)", msprof_as = "ratio", group = "MemoryUB", doc = "Bandwidth of reads from the unified buffer of a vector core by its vector unit: aiv_ub_read_vector_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_ub_write_vector_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_ub_write_bw_vector(GB/s)", msprof_as = "ratio", group = "MemoryUB", doc = "Bandwidth of writes to the unified buffer of a vector core by its vector unit: aiv_ub_write_vector_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_ub_read_scalar_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_ub_read_bw_scalar(GB/s)", msprof_as = "ratio", group = "MemoryUB", doc = "Bandwidth of reads from the unified buffer of a vector core by its scalar unit: aiv_ub_read_scalar_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_ub_write_scalar_gib_per_s = { type = "DOUBLE", unit = "GiB/s", msprof = "aiv_ub_write_bw_scalar(GB/s)", msprof_as = "ratio", group = "MemoryUB", doc = "Bandwidth of writes to the unified buffer of a vector core by its scalar unit: aiv_ub_write_scalar_bytes / (aiv_total_cycles / core clock) / 2^30." }
-- aiv_vec_bankgroup_cflt_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_bankgroup_cflt_ratio", msprof_as = "ratio", group = "ResourceConflictRatio", doc = "Cycles during which the vector unit waited because two operands were in one bank group / aiv_total_cycles; 0 if these are 0." }
-- aiv_vec_bank_cflt_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_bank_cflt_ratio", msprof_as = "ratio", group = "ResourceConflictRatio", doc = "Cycles during which the vector unit waited because it read and wrote the same bank / aiv_total_cycles; 0 if these are 0." }
-- aiv_vec_resc_cflt_ratio = { type = "DOUBLE", unit = "ratio", msprof = "aiv_vec_resc_cflt_ratio", msprof_as = "ratio", group = "ResourceConflictRatio", doc = "Cycles during which the vector unit waited for transfers that used the unified buffer / aiv_total_cycles; 0 if these are 0." }
-- aiv_write_cache_hit = { type = "BIGINT", unit = "count", msprof = "aiv_write_cache_hit", group = "L2Cache", doc = "L2 write hits of vector cores; one write is at most a cache line." }
-- aiv_write_cache_miss_allocate = { type = "BIGINT", unit = "count", msprof = "aiv_write_cache_miss_allocate", group = "L2Cache", doc = "L2 write misses of vector cores; the cache line was allocated." }
-- aiv_r0_read_cache_hit = { type = "BIGINT", unit = "count", msprof = "aiv_r0_read_cache_hit", group = "L2Cache", doc = "L2 read hits of vector cores on channel 0, in cache lines." }
-- aiv_r0_read_cache_miss_allocate = { type = "BIGINT", unit = "count", msprof = "aiv_r0_read_cache_miss_allocate", group = "L2Cache", doc = "L2 read misses of vector cores on channel 0, in cache lines." }
-- aiv_r1_read_cache_hit = { type = "BIGINT", unit = "count", msprof = "aiv_r1_read_cache_hit", group = "L2Cache", doc = "L2 read hits of vector cores on channel 1, in cache lines." }
-- aiv_r1_read_cache_miss_allocate = { type = "BIGINT", unit = "count", msprof = "aiv_r1_read_cache_miss_allocate", group = "L2Cache", doc = "L2 read misses of vector cores on channel 1, in cache lines." }
-- aiv_l2_read_hit_rate = { type = "DOUBLE", unit = "ratio", group = "L2Cache", doc = "Hits / all reads of vector cores on both channels; 0 if there are none." }
-- aiv_l2_write_hit_rate = { type = "DOUBLE", unit = "ratio", group = "L2Cache", doc = "Hits / all writes of vector cores; 0 if there are none." }
-- cube_utilization_percent = { type = "DOUBLE", unit = "percent", msprof = "cube_utilization(%)", msprof_as = "ratio", group = "PipeUtilization", doc = "100 aic_total_cycles / (core clock · cube cores · dur_ns); NULL if one of these is unknown or 0." }
-- main_mem_gib_per_s = { type = "DOUBLE", unit = "GiB/s", group = "Memory", doc = "Bandwidth between all cores and device memory while the task ran: the four main_mem bytes / dur_ns / 2^30; NULL if dur_ns is unknown or 0." }
SELECT r.run_id, r.id, r.device_id, r.model_id, r.op_id, r.step_id, r.source_task_id, r.stream_id,
       r.op_name, r.op_type, r.op_type_source, r.op_state, r.task_type, r.core_type, r.start_ns, r.dur_ns, r.wait_ns,
       r.block_count, r.mix_block_count, r.hf32_eligible, r.input_shapes, r.input_dtypes, r.input_formats,
       r.output_shapes, r.output_dtypes, r.output_formats, r.context_id,
       nullif(concat_ws(';', p.metric_group, a.metric_group, m.metric_group, l.metric_group,
                 u.metric_group, c.metric_group, h.metric_group), '') AS metric_group,
       coalesce(cycles_ns(coalesce(p.aic_total_cycles, a.aic_total_cycles, m.aic_total_cycles, l.aic_total_cycles,
                          u.aic_total_cycles, c.aic_total_cycles, h.aic_total_cycles),
                 r.core_clock_hz, r.aic_blocks, r.ai_core_count),
                (coalesce(p.vendor_values, a.vendor_values, m.vendor_values, l.vendor_values, u.vendor_values,
                          c.vendor_values, h.vendor_values)->>'aicore_time_ns')::BIGINT) AS aicore_time_ns,
       coalesce(p.aic_total_cycles, a.aic_total_cycles, m.aic_total_cycles, l.aic_total_cycles,
                u.aic_total_cycles, c.aic_total_cycles, h.aic_total_cycles) AS aic_total_cycles,
       coalesce(cycles_ns(p.aic_mac_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count),
                (p.vendor_values->>'aic_mac_time_ns')::BIGINT) AS aic_mac_time_ns,
       coalesce(share(p.aic_mac_cycles, p.aic_total_cycles),
                (p.vendor_values->>'aic_mac_ratio')::DOUBLE) AS aic_mac_ratio,
       coalesce(cycles_ns(p.aic_scalar_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count),
                (p.vendor_values->>'aic_scalar_time_ns')::BIGINT) AS aic_scalar_time_ns,
       coalesce(share(p.aic_scalar_cycles, p.aic_total_cycles),
                (p.vendor_values->>'aic_scalar_ratio')::DOUBLE) AS aic_scalar_ratio,
       coalesce(cycles_ns(p.aic_mte1_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count),
                (p.vendor_values->>'aic_mte1_time_ns')::BIGINT) AS aic_mte1_time_ns,
       coalesce(share(p.aic_mte1_cycles, p.aic_total_cycles),
                (p.vendor_values->>'aic_mte1_ratio')::DOUBLE) AS aic_mte1_ratio,
       coalesce(cycles_ns(p.aic_mte2_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count),
                (p.vendor_values->>'aic_mte2_time_ns')::BIGINT) AS aic_mte2_time_ns,
       coalesce(share(p.aic_mte2_cycles, p.aic_total_cycles),
                (p.vendor_values->>'aic_mte2_ratio')::DOUBLE) AS aic_mte2_ratio,
       coalesce(cycles_ns(p.aic_fixpipe_cycles, r.core_clock_hz, r.aic_blocks, r.ai_core_count),
                (p.vendor_values->>'aic_fixpipe_time_ns')::BIGINT) AS aic_fixpipe_time_ns,
       coalesce(share(p.aic_fixpipe_cycles, p.aic_total_cycles),
                (p.vendor_values->>'aic_fixpipe_ratio')::DOUBLE) AS aic_fixpipe_ratio,
       coalesce(share(p.aic_icache_miss_count, p.aic_icache_request_count),
                (p.vendor_values->>'aic_icache_miss_rate')::DOUBLE) AS aic_icache_miss_rate,
       coalesce(share(a.aic_mac_fp16_cycles, a.aic_total_cycles),
                (a.vendor_values->>'aic_mac_fp16_ratio')::DOUBLE) AS aic_mac_fp16_ratio,
       coalesce(share(a.aic_mac_int8_cycles, a.aic_total_cycles),
                (a.vendor_values->>'aic_mac_int8_ratio')::DOUBLE) AS aic_mac_int8_ratio,
       share(a.aic_mac_fp32_cycles, a.aic_total_cycles) AS aic_mac_fp32_ratio,
       a.aic_cube_flops AS aic_cube_fops,
       coalesce(gib_per_s(m.aic_l1_read_bytes, m.aic_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aic_l1_read_gib_per_s')::DOUBLE) AS aic_l1_read_gib_per_s,
       coalesce(gib_per_s(m.aic_l1_write_bytes, m.aic_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aic_l1_write_gib_per_s')::DOUBLE) AS aic_l1_write_gib_per_s,
       coalesce(gib_per_s(m.aic_main_mem_read_bytes, m.aic_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aic_main_mem_read_gib_per_s')::DOUBLE) AS aic_main_mem_read_gib_per_s,
       coalesce(gib_per_s(m.aic_main_mem_write_bytes, m.aic_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aic_main_mem_write_gib_per_s')::DOUBLE) AS aic_main_mem_write_gib_per_s,
       coalesce(gib_per_s(m.aic_l2_read_bytes, m.aic_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aic_l2_read_gib_per_s')::DOUBLE) AS aic_l2_read_gib_per_s,
       coalesce(gib_per_s(m.aic_l2_write_bytes, m.aic_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aic_l2_write_gib_per_s')::DOUBLE) AS aic_l2_write_gib_per_s,
       coalesce(gib_per_s(l.aic_l0a_read_bytes, l.aic_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aic_l0a_read_gib_per_s')::DOUBLE) AS aic_l0a_read_gib_per_s,
       coalesce(gib_per_s(l.aic_l0a_write_bytes, l.aic_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aic_l0a_write_gib_per_s')::DOUBLE) AS aic_l0a_write_gib_per_s,
       coalesce(gib_per_s(l.aic_l0b_read_bytes, l.aic_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aic_l0b_read_gib_per_s')::DOUBLE) AS aic_l0b_read_gib_per_s,
       coalesce(gib_per_s(l.aic_l0b_write_bytes, l.aic_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aic_l0b_write_gib_per_s')::DOUBLE) AS aic_l0b_write_gib_per_s,
       coalesce(gib_per_s(l.aic_l0c_read_cube_bytes, l.aic_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aic_l0c_read_cube_gib_per_s')::DOUBLE) AS aic_l0c_read_cube_gib_per_s,
       coalesce(gib_per_s(l.aic_l0c_write_cube_bytes, l.aic_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aic_l0c_write_cube_gib_per_s')::DOUBLE) AS aic_l0c_write_cube_gib_per_s,
       coalesce(gib_per_s(u.aic_ub_read_scalar_bytes, u.aic_total_cycles, r.core_clock_hz),
                (u.vendor_values->>'aic_ub_read_scalar_gib_per_s')::DOUBLE) AS aic_ub_read_scalar_gib_per_s,
       coalesce(gib_per_s(u.aic_ub_write_scalar_bytes, u.aic_total_cycles, r.core_clock_hz),
                (u.vendor_values->>'aic_ub_write_scalar_gib_per_s')::DOUBLE) AS aic_ub_write_scalar_gib_per_s,
       h.aic_write_cache_hit_count AS aic_write_cache_hit,
       h.aic_write_cache_miss_count AS aic_write_cache_miss_allocate,
       h.aic_r0_read_cache_hit_count AS aic_r0_read_cache_hit,
       h.aic_r0_read_cache_miss_count AS aic_r0_read_cache_miss_allocate,
       h.aic_r1_read_cache_hit_count AS aic_r1_read_cache_hit,
       h.aic_r1_read_cache_miss_count AS aic_r1_read_cache_miss_allocate,
       share(h.aic_r0_read_cache_hit_count::DOUBLE + h.aic_r1_read_cache_hit_count,
             h.aic_r0_read_cache_hit_count::DOUBLE + h.aic_r1_read_cache_hit_count
             + h.aic_r0_read_cache_miss_count + h.aic_r1_read_cache_miss_count) AS aic_l2_read_hit_rate,
       share(h.aic_write_cache_hit_count,
             h.aic_write_cache_hit_count::DOUBLE + h.aic_write_cache_miss_count) AS aic_l2_write_hit_rate,
       coalesce(cycles_ns(coalesce(p.aiv_total_cycles, a.aiv_total_cycles, m.aiv_total_cycles, l.aiv_total_cycles,
                          u.aiv_total_cycles, c.aiv_total_cycles, h.aiv_total_cycles),
                 r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count),
                (coalesce(p.vendor_values, a.vendor_values, m.vendor_values, l.vendor_values, u.vendor_values,
                          c.vendor_values, h.vendor_values)->>'aiv_time_ns')::BIGINT) AS aiv_time_ns,
       coalesce(p.aiv_total_cycles, a.aiv_total_cycles, m.aiv_total_cycles, l.aiv_total_cycles,
                u.aiv_total_cycles, c.aiv_total_cycles, h.aiv_total_cycles) AS aiv_total_cycles,
       coalesce(cycles_ns(p.aiv_vec_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count),
                (p.vendor_values->>'aiv_vec_time_ns')::BIGINT) AS aiv_vec_time_ns,
       coalesce(share(p.aiv_vec_cycles, p.aiv_total_cycles),
                (p.vendor_values->>'aiv_vec_ratio')::DOUBLE) AS aiv_vec_ratio,
       coalesce(cycles_ns(p.aiv_scalar_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count),
                (p.vendor_values->>'aiv_scalar_time_ns')::BIGINT) AS aiv_scalar_time_ns,
       coalesce(share(p.aiv_scalar_cycles, p.aiv_total_cycles),
                (p.vendor_values->>'aiv_scalar_ratio')::DOUBLE) AS aiv_scalar_ratio,
       coalesce(cycles_ns(p.aiv_mte2_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count),
                (p.vendor_values->>'aiv_mte2_time_ns')::BIGINT) AS aiv_mte2_time_ns,
       coalesce(share(p.aiv_mte2_cycles, p.aiv_total_cycles),
                (p.vendor_values->>'aiv_mte2_ratio')::DOUBLE) AS aiv_mte2_ratio,
       coalesce(cycles_ns(p.aiv_mte3_cycles, r.core_clock_hz, r.aiv_blocks, r.ai_vector_core_count),
                (p.vendor_values->>'aiv_mte3_time_ns')::BIGINT) AS aiv_mte3_time_ns,
       coalesce(share(p.aiv_mte3_cycles, p.aiv_total_cycles),
                (p.vendor_values->>'aiv_mte3_ratio')::DOUBLE) AS aiv_mte3_ratio,
       coalesce(share(p.aiv_icache_miss_count, p.aiv_icache_request_count),
                (p.vendor_values->>'aiv_icache_miss_rate')::DOUBLE) AS aiv_icache_miss_rate,
       coalesce(share(a.aiv_vec_fp32_cycles, a.aiv_total_cycles),
                (a.vendor_values->>'aiv_vec_fp32_ratio')::DOUBLE) AS aiv_vec_fp32_ratio,
       coalesce(share(a.aiv_vec_fp16_cycles, a.aiv_total_cycles),
                (a.vendor_values->>'aiv_vec_fp16_ratio')::DOUBLE) AS aiv_vec_fp16_ratio,
       coalesce(share(a.aiv_vec_int32_cycles, a.aiv_total_cycles),
                (a.vendor_values->>'aiv_vec_int32_ratio')::DOUBLE) AS aiv_vec_int32_ratio,
       coalesce(share(a.aiv_vec_misc_cycles, a.aiv_total_cycles),
                (a.vendor_values->>'aiv_vec_misc_ratio')::DOUBLE) AS aiv_vec_misc_ratio,
       a.aiv_vector_flops AS aiv_vector_fops,
       coalesce(gib_per_s(m.aiv_ub_read_bytes, m.aiv_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aiv_ub_read_gib_per_s')::DOUBLE) AS aiv_ub_read_gib_per_s,
       coalesce(gib_per_s(m.aiv_ub_write_bytes, m.aiv_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aiv_ub_write_gib_per_s')::DOUBLE) AS aiv_ub_write_gib_per_s,
       coalesce(gib_per_s(m.aiv_main_mem_read_bytes, m.aiv_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aiv_main_mem_read_gib_per_s')::DOUBLE) AS aiv_main_mem_read_gib_per_s,
       coalesce(gib_per_s(m.aiv_main_mem_write_bytes, m.aiv_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aiv_main_mem_write_gib_per_s')::DOUBLE) AS aiv_main_mem_write_gib_per_s,
       coalesce(gib_per_s(m.aiv_l2_read_bytes, m.aiv_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aiv_l2_read_gib_per_s')::DOUBLE) AS aiv_l2_read_gib_per_s,
       coalesce(gib_per_s(m.aiv_l2_write_bytes, m.aiv_total_cycles, r.core_clock_hz),
                (m.vendor_values->>'aiv_l2_write_gib_per_s')::DOUBLE) AS aiv_l2_write_gib_per_s,
       coalesce(gib_per_s(l.aiv_l0c_read_bytes, l.aiv_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aiv_l0c_read_gib_per_s')::DOUBLE) AS aiv_l0c_read_gib_per_s,
       coalesce(gib_per_s(l.aiv_l0c_write_bytes, l.aiv_total_cycles, r.core_clock_hz),
                (l.vendor_values->>'aiv_l0c_write_gib_per_s')::DOUBLE) AS aiv_l0c_write_gib_per_s,
       coalesce(gib_per_s(u.aiv_ub_read_vector_bytes, u.aiv_total_cycles, r.core_clock_hz),
                (u.vendor_values->>'aiv_ub_read_vector_gib_per_s')::DOUBLE) AS aiv_ub_read_vector_gib_per_s,
       coalesce(gib_per_s(u.aiv_ub_write_vector_bytes, u.aiv_total_cycles, r.core_clock_hz),
                (u.vendor_values->>'aiv_ub_write_vector_gib_per_s')::DOUBLE) AS aiv_ub_write_vector_gib_per_s,
       coalesce(gib_per_s(u.aiv_ub_read_scalar_bytes, u.aiv_total_cycles, r.core_clock_hz),
                (u.vendor_values->>'aiv_ub_read_scalar_gib_per_s')::DOUBLE) AS aiv_ub_read_scalar_gib_per_s,
       coalesce(gib_per_s(u.aiv_ub_write_scalar_bytes, u.aiv_total_cycles, r.core_clock_hz),
                (u.vendor_values->>'aiv_ub_write_scalar_gib_per_s')::DOUBLE) AS aiv_ub_write_scalar_gib_per_s,
       coalesce(share(c.aiv_vec_bankgroup_cflt_cycles, c.aiv_total_cycles),
                (c.vendor_values->>'aiv_vec_bankgroup_cflt_ratio')::DOUBLE) AS aiv_vec_bankgroup_cflt_ratio,
       coalesce(share(c.aiv_vec_bank_cflt_cycles, c.aiv_total_cycles),
                (c.vendor_values->>'aiv_vec_bank_cflt_ratio')::DOUBLE) AS aiv_vec_bank_cflt_ratio,
       coalesce(share(c.aiv_vec_resc_cflt_cycles, c.aiv_total_cycles),
                (c.vendor_values->>'aiv_vec_resc_cflt_ratio')::DOUBLE) AS aiv_vec_resc_cflt_ratio,
       h.aiv_write_cache_hit_count AS aiv_write_cache_hit,
       h.aiv_write_cache_miss_count AS aiv_write_cache_miss_allocate,
       h.aiv_r0_read_cache_hit_count AS aiv_r0_read_cache_hit,
       h.aiv_r0_read_cache_miss_count AS aiv_r0_read_cache_miss_allocate,
       h.aiv_r1_read_cache_hit_count AS aiv_r1_read_cache_hit,
       h.aiv_r1_read_cache_miss_count AS aiv_r1_read_cache_miss_allocate,
       share(h.aiv_r0_read_cache_hit_count::DOUBLE + h.aiv_r1_read_cache_hit_count,
             h.aiv_r0_read_cache_hit_count::DOUBLE + h.aiv_r1_read_cache_hit_count
             + h.aiv_r0_read_cache_miss_count + h.aiv_r1_read_cache_miss_count) AS aiv_l2_read_hit_rate,
       share(h.aiv_write_cache_hit_count,
             h.aiv_write_cache_hit_count::DOUBLE + h.aiv_write_cache_miss_count) AS aiv_l2_write_hit_rate,
       coalesce(1e11 * p.aic_total_cycles / nullif(r.core_clock_hz::DOUBLE * r.ai_core_count * r.dur_ns, 0),
                (p.vendor_values->>'cube_utilization_percent')::DOUBLE) AS cube_utilization_percent,
       gib_per_s(m.aic_main_mem_read_bytes::DOUBLE + m.aic_main_mem_write_bytes + m.aiv_main_mem_read_bytes
                 + m.aiv_main_mem_write_bytes, nullif(r.dur_ns, 0), 1000000000) AS main_mem_gib_per_s
FROM op_task AS r
LEFT JOIN task_pmu AS p ON p.run_id = r.run_id AND p.id = r.id AND p.metric_group = 'PipeUtilization'
LEFT JOIN task_pmu AS a ON a.run_id = r.run_id AND a.id = r.id AND a.metric_group = 'ArithmeticUtilization'
LEFT JOIN task_pmu AS m ON m.run_id = r.run_id AND m.id = r.id AND m.metric_group = 'Memory'
LEFT JOIN task_pmu AS l ON l.run_id = r.run_id AND l.id = r.id AND l.metric_group = 'MemoryL0'
LEFT JOIN task_pmu AS u ON u.run_id = r.run_id AND u.id = r.id AND u.metric_group = 'MemoryUB'
LEFT JOIN task_pmu AS c ON c.run_id = r.run_id AND c.id = r.id AND c.metric_group = 'ResourceConflictRatio'
LEFT JOIN task_pmu AS h ON h.run_id = r.run_id AND h.id = r.id AND h.metric_group = 'L2Cache'
WHERE {{selected(r.run_id, r.device_id, r.step_id, r.start_ns)}}
