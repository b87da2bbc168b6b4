-- title = "What limits operators (roofline)"
-- doc = "What limits each operator, computation or memory, and how close does it come to the device's peak? One row per operator with its shapes and types: framework operators that launched tasks, such as aten::mm, ops of a model, as on NPUs, and kernels that Nsight Compute measured. Operators without a known work have their time; tasks without an operator are in a row without a name, so that total_ns adds up to the durations of all tasks but waits and events."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks and ops."
-- order = ["run_id", "device_id", "total_ns DESC", "name", "kind", "input_shapes", "input_dtypes", "work_source", "compute_type", "flops", "memory_bytes"]
-- measure = "total_ns"
-- shown = ["name", "input_shapes", "compute_type", "count", "total_ns", "ratio_percent", "flops_per_byte", "flops_per_s", "bytes_per_s", "bound", "roof_percent"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start, with their full duration" }
-- [parameters]
-- peak_tflops = { type = "DOUBLE", doc = "Peak of the devices in 10^12 operations per second, for all compute types; NULL: those of the known devices, or recorded ones." }
-- peak_gbps = { type = "DOUBLE", doc = "Bandwidth of the devices' memory in 10^9 bytes per second; NULL: that of the known devices, or the recorded one." }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the tasks." }
-- name = { type = "VARCHAR", unit = "text", doc = "Operator, such as aten::mm; for ops of a model, the op type; of measured work, the kernel; NULL for tasks without an operator." }
-- category = { type = "VARCHAR", unit = "enum", doc = "What it computes, as in kernel_category: gemm, conv, attention, normalization, elementwise and others; NULL if unknown." }
-- input_shapes = { type = "VARCHAR", unit = "text", doc = "Shapes of its arguments: dimensions joined by ',', arguments by ';'; NULL if unknown." }
-- input_dtypes = { type = "VARCHAR", unit = "text", doc = "Types of these arguments, joined by ';'; NULL if unknown." }
-- work_source = { type = "VARCHAR", unit = "enum", doc = "Origin of flops and memory_bytes: formula (from the operator's definition and the recorded shapes), recorded (in the source), model (the cost model of the reference NPU), measured (by Nsight Compute, the mean of the launches); NULL if both are unknown." }
-- compute_type = { type = "VARCHAR", unit = "text", doc = "Number format and unit that limit it, such as bf16 matrix or fp32 vector; tf32 matrix for products of fp32 if the name of a kernel says so; NULL if unknown and for copies." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "What the tasks are: compute if one of the operator's call computes, else collective, copy (within the device) or transfer (other copies); NULL for ops of a model whose tasks have no kind, and in the row without a name." }
-- count = { type = "BIGINT", unit = "count", doc = "Calls of the operator: those whose first task is among the tasks and ended; NULL in the row without a name. A task of a model may contain several executions (op.executions_per_task)." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks that ended." }
-- replay_task_count = { type = "BIGINT", unit = "count", doc = "Those of task_count that are part of a graph replay and whose operator is that of a reference (graph_replay)." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Tasks without an end in the source; not counted in other columns." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the tasks." }
-- ratio_percent = { type = "DOUBLE", unit = "percent", doc = "100 total_ns / the sum of total_ns over all rows of the run and device; NULL if that is 0." }
-- flops = { type = "BIGINT", unit = "flop", doc = "Operations of one call; a multiply-accumulate counts as 2; NULL if unknown." }
-- memory_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes of the inputs and results of one call, each once, whatever their strides; of measured work, those read from and written to the device's memory; NULL if unknown." }
-- flops_per_byte = { type = "DOUBLE", unit = "flop/byte", doc = "Arithmetic intensity: flops / memory_bytes; NULL if one is unknown or no bytes are moved." }
-- flops_per_s = { type = "BIGINT", unit = "flop/s", doc = "Attained operations per second: flops · count / total_ns, rounded down; NULL if one is unknown or no time passed." }
-- bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "Attained bytes per second: memory_bytes · count / total_ns, rounded down; NULL if one is unknown or no time passed." }
-- peak_flops = { type = "BIGINT", unit = "flop/s", doc = "Peak for the compute type: peak_tflops, or the one that was measured, at the clocks of the launches, or that of a known device (device_peak_flops), or device.peak_flops; NULL if unknown, and for collectives and transfers." }
-- peak_bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "Peak of the device's memory: peak_gbps, or the one that was measured, at its clock, or that of a known device (device_peak_bytes_per_s), or device.peak_bytes_per_s; NULL if unknown, and for collectives and transfers." }
-- peak_flops_percent = { type = "DOUBLE", unit = "percent", doc = "100 flops_per_s / peak_flops; NULL if one is unknown." }
-- peak_bandwidth_percent = { type = "DOUBLE", unit = "percent", doc = "100 bytes_per_s / peak_bytes_per_s; can exceed 100 through cache hits; NULL if one is unknown." }
-- bound = { type = "VARCHAR", unit = "enum", doc = "What takes longer at the peaks: compute (the operations) or memory (the bytes); NULL if unknown." }
-- roof_ns = { type = "BIGINT", unit = "ns", doc = "Time at the peak that limits it: the larger of flops · count / peak_flops and memory_bytes · count / peak_bytes_per_s, rounded down; NULL if bound is." }
-- roof_percent = { type = "DOUBLE", unit = "percent", doc = "100 roof_ns / total_ns: the attained share of the peak that limits it; NULL if one is unknown or no time passed." }
WITH by_op AS (
  SELECT t.run_id, t.device_id, t.op_id, t.kind, count(*) AS started, count(t.dur_ns) AS ended, sum(t.dur_ns) AS total
  FROM task AS t
  WHERE t.kind IS DISTINCT FROM 'sync' AND {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
  GROUP BY t.run_id, t.device_id, t.op_id, t.kind
), known AS (
  SELECT run_id, op_id, flops, memory_bytes
  FROM op_work
  WHERE {{selected(run_id)}} AND (flops IS NOT NULL OR memory_bytes IS NOT NULL)
), of_model AS (
  SELECT b.run_id, b.device_id, coalesce(o.op_type, o.name) AS name, o.input_shapes, o.input_dtypes,
         CASE r.source_format WHEN 'npulog' THEN 'model' WHEN 'static' THEN 'model' ELSE 'recorded' END AS work_source,
         NULL AS compute_type, b.kind,
         sum(b.ended::HUGEINT * coalesce(o.executions_per_task, 1)) AS calls, sum(b.started) AS started,
         sum(b.ended) AS ended, 0 AS replays, sum(b.total) AS total, k.flops, k.memory_bytes, NULL AS category
  FROM by_op AS b
  JOIN known AS k ON k.run_id = b.run_id AND k.op_id = b.op_id
  JOIN op AS o ON o.run_id = b.run_id AND o.op_id = b.op_id
  JOIN run AS r ON r.run_id = b.run_id
  GROUP BY b.run_id, b.device_id, coalesce(o.op_type, o.name), o.input_shapes, o.input_dtypes, r.source_format,
           b.kind, k.flops, k.memory_bytes
), launch AS (
  -- Work that Nsight Compute measured. Few runs have tasks with these args.
  SELECT t.run_id, t.device_id, t.op_id, t.kind, t.dur_ns, t.args->>'measured_type' AS compute_type,
         TRY_CAST(t.args->>'measured_flops' AS BIGINT) AS flops, TRY_CAST(t.args->>'measured_bytes' AS BIGINT) AS bytes,
         TRY_CAST(t.args->>'measured_peak_flops' AS BIGINT) AS peak_flops,
         TRY_CAST(t.args->>'measured_peak_bytes_per_s' AS BIGINT) AS peak_bytes
  FROM run AS r
  JOIN task AS t ON t.run_id = r.run_id
  WHERE r.source_format = 'ncu_csv' AND {{selected(r.run_id)}} AND t.op_id IS NOT NULL
    AND {{selected(t.device_id)}} AND step IS NULL AND first_step IS NULL AND last_step IS NULL
    AND from_ns IS NULL AND to_ns IS NULL
), of_kernel AS (
  -- The mean of the launches; NULL if it is unknown of one.
  SELECT l.run_id, l.device_id, o.name, CASE WHEN count(l.flops) + count(l.bytes) > 0 THEN 'measured' END AS work_source,
         l.compute_type, l.kind, count(l.dur_ns) AS calls, count(*) AS started, count(l.dur_ns) AS ended, 0 AS replays,
         sum(l.dur_ns) AS total,
         CASE WHEN count(l.flops) = count(*) THEN TRY_CAST(sum(l.flops) // count(*) AS BIGINT) END AS flops,
         CASE WHEN count(l.bytes) = count(*) THEN TRY_CAST(sum(l.bytes) // count(*) AS BIGINT) END AS memory_bytes,
         TRY_CAST(sum(l.peak_flops) // nullif(count(l.peak_flops), 0) AS BIGINT) AS own_peak_flops,
         TRY_CAST(sum(l.peak_bytes) // nullif(count(l.peak_bytes), 0) AS BIGINT) AS own_peak_bytes
  FROM launch AS l
  JOIN op AS o ON o.run_id = l.run_id AND o.op_id = l.op_id
  GROUP BY l.run_id, l.device_id, o.name, l.compute_type, l.kind
), by_operator AS (
  SELECT t.run_id, t.device_id, t.operator_id, t.call_kind AS kind, t.op_id, count(*) AS started, count(t.dur_ns) AS ended,
         count(t.dur_ns) FILTER (WHERE t.attribution = 'replay') AS replays, sum(t.dur_ns) AS total,
         count(t.dur_ns) FILTER (WHERE t.is_first) AS calls
  FROM task_operator AS t
  WHERE {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
  GROUP BY t.run_id, t.device_id, t.operator_id, t.call_kind, t.op_id
), named AS (
  -- Tasks whose op has a work of its own are counted with that.
  SELECT b.*, coalesce(regexp_matches(n.name, 'tf32|tensorop|s1688', 'i'), false) AS is_tf32
  FROM by_operator AS b
  LEFT JOIN op AS n ON n.run_id = b.run_id AND n.op_id = b.op_id
  LEFT JOIN known AS k ON k.run_id = b.run_id AND k.op_id = b.op_id
  WHERE k.op_id IS NULL
), of_operator AS (
  SELECT b.run_id, b.device_id, b.operator_id, b.kind, bool_or(b.is_tf32) AS is_tf32, sum(b.calls) AS calls,
         sum(b.started) AS started, sum(b.ended) AS ended, sum(b.replays) AS replays, sum(b.total) AS total
  FROM named AS b
  GROUP BY b.run_id, b.device_id, b.operator_id, b.kind
), launched AS (
  SELECT b.run_id, b.device_id, o.name, o.input_shapes, o.input_dtypes,
         CASE WHEN o.flops IS NOT NULL OR o.read_bytes + o.write_bytes IS NOT NULL THEN 'formula' END AS work_source,
         CASE WHEN o.compute_type = 'fp32 matrix' AND b.is_tf32 THEN 'tf32 matrix' ELSE o.compute_type END AS compute_type,
         b.kind, b.calls, b.started, b.ended, b.replays, b.total, o.flops,
         TRY(o.read_bytes + o.write_bytes) AS memory_bytes, o.category
  FROM of_operator AS b
  JOIN operator AS o ON o.run_id = b.run_id AND o.operator_id = b.operator_id
), counted AS (
  FROM of_model
  UNION ALL BY NAME
  FROM launched
  UNION ALL BY NAME
  FROM of_kernel
), signed AS (
  SELECT run_id, device_id, sum(started) AS started, sum(ended) AS ended, sum(total) AS total
  FROM (
    SELECT run_id, device_id, started, ended, total FROM by_op
    UNION ALL
    SELECT run_id, device_id, -started, -ended, -total FROM counted
  )
  GROUP BY run_id, device_id
), every AS (
  SELECT run_id, device_id, name, coalesce(category, kernel_category(name)) AS category, input_shapes, input_dtypes,
         work_source, compute_type, kind, sum(calls) AS calls, sum(started) AS started, sum(ended) AS ended,
         sum(replays) AS replays, coalesce(sum(total), 0) AS total, flops, memory_bytes,
         own_peak_flops, own_peak_bytes
  FROM counted
  GROUP BY ALL
  UNION ALL BY NAME
  SELECT run_id, device_id, started, ended, 0 AS replays, coalesce(total, 0) AS total
  FROM signed
  WHERE started > 0
), peaked AS (
  SELECT e.*, sum(e.total) OVER (PARTITION BY e.run_id, e.device_id) AS device_total,
         CASE WHEN e.kind IS NULL OR e.kind IN ('compute', 'copy') THEN coalesce(
           TRY_CAST(peak_tflops * 1e12 AS BIGINT), e.own_peak_flops, device_peak_flops(d.name, e.compute_type),
           CASE WHEN e.work_source <> 'formula' THEN d.peak_flops END) END AS peak_flops,
         CASE WHEN e.kind IS NULL OR e.kind IN ('compute', 'copy') THEN coalesce(
           TRY_CAST(peak_gbps * 1e9 AS BIGINT), e.own_peak_bytes, device_peak_bytes_per_s(d.name), d.peak_bytes_per_s) END AS peak_bytes_per_s
  FROM every AS e
  LEFT JOIN device AS d ON d.run_id = e.run_id AND d.device_id = e.device_id
), timed AS (
  SELECT *, flops::HUGEINT * calls * 1000000000 // nullif(total, 0) AS flops_rate,
         memory_bytes::HUGEINT * calls * 1000000000 // nullif(total, 0) AS bytes_rate,
         CASE WHEN peak_bytes_per_s > 0 AND (flops = 0 OR peak_flops > 0)
              THEN flops::HUGEINT * peak_bytes_per_s > memory_bytes::HUGEINT * coalesce(peak_flops, 0) END AS is_compute
  FROM peaked
)
SELECT run_id, device_id, name, category, input_shapes, input_dtypes, work_source, compute_type, kind,
       calls::BIGINT AS count,
       ended::BIGINT AS task_count,
       replays::BIGINT AS replay_task_count,
       (started - ended)::BIGINT AS unfinished_count,
       TRY_CAST(total AS BIGINT) AS total_ns,
       (100 * total)::DOUBLE / nullif(device_total, 0)::DOUBLE AS ratio_percent,
       flops, memory_bytes,
       flops::DOUBLE / nullif(memory_bytes, 0) AS flops_per_byte,
       TRY_CAST(flops_rate AS BIGINT) AS flops_per_s,
       TRY_CAST(bytes_rate AS BIGINT) AS bytes_per_s,
       peak_flops, peak_bytes_per_s,
       100 * flops_rate::DOUBLE / nullif(peak_flops, 0) AS peak_flops_percent,
       100 * bytes_rate::DOUBLE / nullif(peak_bytes_per_s, 0) AS peak_bandwidth_percent,
       CASE WHEN is_compute THEN 'compute' WHEN NOT is_compute THEN 'memory' END AS bound,
       TRY_CAST(CASE WHEN is_compute THEN flops::HUGEINT * calls * 1000000000 // peak_flops
                     WHEN NOT is_compute THEN memory_bytes::HUGEINT * calls * 1000000000 // peak_bytes_per_s END AS BIGINT) AS roof_ns,
       100 * CASE WHEN is_compute THEN flops::DOUBLE / peak_flops
                  WHEN NOT is_compute THEN memory_bytes::DOUBLE / peak_bytes_per_s END * 1e9 * calls / nullif(total, 0)::DOUBLE AS roof_percent
FROM timed
ORDER BY run_id, device_id, total_ns DESC, name, kind, input_shapes, input_dtypes, work_source, compute_type, flops, memory_bytes
