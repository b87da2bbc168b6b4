-- title = "Work by op"
-- doc = "How many operations and bytes does each op execute and move, at what rate, and how close to the device's peak? One row per op and device, by descending self time."
-- needs = ["task", "op"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks and ops."
-- order = ["run_id", "device_id", "self_ns DESC", "op_id"]
-- measure = "self_ns"
-- shown = ["op_name", "op_type", "count", "self_ns", "cumulative_percent", "total_flops", "flops_per_s", "memory_bytes", "bytes_per_s", "input_shapes", "output_shapes"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start, with their full duration" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the op." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op (op.op_id)." }
-- op_name = { type = "VARCHAR", unit = "text", doc = "Op name; NULL if unknown." }
-- op_type = { type = "VARCHAR", unit = "text", doc = "Op type, such as Conv2D; NULL if unknown." }
-- phase = { type = "VARCHAR", unit = "enum", doc = "Part of the training step: forward, backward or refresh (parameter update); NULL if unknown." }
-- scope_path = { type = "VARCHAR", unit = "text", doc = "Module path of the op; NULL if none." }
-- count = { type = "BIGINT", unit = "count", doc = "Executions that ended; the times refer to these. A task may contain several (op.executions_per_task)." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Executions without an end in the source; not counted in other columns." }
-- self_ns = { type = "BIGINT", unit = "ns", doc = "Device self time: the durations of its tasks, minus those of nested tasks." }
-- self_percent = { type = "DOUBLE", unit = "percent", doc = "100 self_ns / the sum of self_ns over all ops of the run and device; NULL if that is 0." }
-- cumulative_ns = { type = "BIGINT", unit = "ns", doc = "Cumulative self_ns over the ops of the run and device, by descending self_ns." }
-- cumulative_percent = { type = "DOUBLE", unit = "percent", doc = "100 cumulative_ns / the sum of self_ns over all ops of the run and device; NULL if that is 0." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of its tasks." }
-- min_ns = { type = "BIGINT", unit = "ns", doc = "Shortest duration; NULL if none ended, or if a task contains several executions, whose durations are unknown." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", doc = "total_ns / count, rounded half up to 0.001 ns; NULL if none ended." }
-- max_ns = { type = "BIGINT", unit = "ns", doc = "Longest duration; NULL if none ended, or if a task contains several executions, whose durations are unknown." }
-- flops = { type = "BIGINT", unit = "flop", doc = "Floating-point operations of one execution; a multiply-accumulate counts as 2; NULL if unknown." }
-- total_flops = { type = "BIGINT", unit = "flop", doc = "flops · count; NULL if flops is NULL." }
-- flops_per_s = { type = "BIGINT", unit = "flop/s", doc = "Achieved operations per second: total_flops / total_ns, rounded down; NULL if one is unknown or no time passed." }
-- peak_flops_percent = { type = "DOUBLE", unit = "percent", doc = "100 flops_per_s / device.peak_flops; NULL if one is unknown." }
-- memory_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes that one execution reads and writes: inputs, weights and outputs; NULL if one of these is unknown." }
-- bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "Bandwidth: memory_bytes · count / total_ns, in bytes per second, rounded down; NULL if one is unknown or no time passed." }
-- peak_bandwidth_percent = { type = "DOUBLE", unit = "percent", doc = "100 bytes_per_s / device.peak_bytes_per_s; can exceed 100 through cache hits; NULL if one is unknown." }
-- flops_per_byte = { type = "DOUBLE", unit = "flop/byte", doc = "Arithmetic intensity: flops / memory_bytes; NULL if one is unknown or no bytes are moved." }
-- weight_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes of weights and other constants; NULL if unknown." }
-- workspace_bytes = { type = "BIGINT", unit = "byte", doc = "Scratch memory needed during execution; NULL if unknown." }
-- input_shapes = { type = "VARCHAR", unit = "text", doc = "Input shapes: dimensions joined by ',', inputs by ';'; NULL if unknown." }
-- input_dtypes = { type = "VARCHAR", unit = "text", doc = "Input data types, joined by ';'; NULL if unknown." }
-- output_shapes = { type = "VARCHAR", unit = "text", doc = "Output shapes: dimensions joined by ',', outputs by ';'; NULL if unknown." }
-- output_dtypes = { type = "VARCHAR", unit = "text", doc = "Output data types, joined by ';'; NULL if unknown." }
WITH by_op AS (
  SELECT t.run_id, t.device_id, t.op_id, count(*) AS started, count(t.dur_ns) AS ended, sum(t.dur_ns) AS total,
         sum(CASE WHEN t.dur_ns IS NOT NULL THEN coalesce(t.self_ns, t.dur_ns) END) AS own,
         min(t.dur_ns) AS shortest, max(t.dur_ns) AS longest
  FROM task AS t
  WHERE t.op_id IS NOT NULL AND {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
  GROUP BY t.run_id, t.device_id, t.op_id
), worked AS (
  SELECT b.run_id, b.device_id, b.op_id, o.name AS op_name, o.op_type, o.phase, o.scope_path,
         b.started::HUGEINT * coalesce(o.executions_per_task, 1) AS started,
         b.ended::HUGEINT * coalesce(o.executions_per_task, 1) AS ended,
         coalesce(b.total, 0) AS total, coalesce(b.own, 0) AS own,
         -- Of a task with several executions, only the sum is known.
         CASE WHEN o.executions_per_task IS NULL THEN b.shortest END AS shortest,
         CASE WHEN o.executions_per_task IS NULL THEN b.longest END AS longest,
         w.flops AS one_flops, w.memory_bytes AS one_bytes,
         o.weight_bytes // coalesce(o.executions_per_task, 1) AS weight_bytes, o.workspace_bytes, o.input_shapes,
         o.input_dtypes, o.output_shapes, o.output_dtypes
  FROM by_op AS b
  LEFT JOIN op AS o ON o.run_id = b.run_id AND o.op_id = b.op_id
  LEFT JOIN op_work AS w ON w.run_id = b.run_id AND w.op_id = b.op_id
), ranked AS (
  -- A separate CTE: DuckDB 1.4.0 can't read a view over a macro with a window inside a function.
  SELECT *, sum(own) OVER (PARTITION BY run_id, device_id) AS device_own,
         sum(own) OVER (
           PARTITION BY run_id, device_id ORDER BY own DESC, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
         ) AS own_so_far,
         one_flops::HUGEINT * ended * 1000000000 // nullif(total, 0) AS flops_rate,
         one_bytes::HUGEINT * ended * 1000000000 // nullif(total, 0) AS bytes_rate
  FROM worked
)
SELECT r.run_id, r.device_id, r.op_id, r.op_name, r.op_type, r.phase, r.scope_path,
       r.ended::BIGINT AS count,
       (r.started - r.ended)::BIGINT AS unfinished_count,
       TRY_CAST(r.own AS BIGINT) AS self_ns,
       (100 * r.own)::DOUBLE / nullif(r.device_own, 0)::DOUBLE AS self_percent,
       TRY_CAST(r.own_so_far AS BIGINT) AS cumulative_ns,
       (100 * r.own_so_far)::DOUBLE / nullif(r.device_own, 0)::DOUBLE AS cumulative_percent,
       TRY_CAST(r.total AS BIGINT) AS total_ns,
       r.shortest AS min_ns,
       average_ns(r.total, r.ended) AS avg_ns,
       r.longest AS max_ns,
       r.one_flops AS flops,
       TRY_CAST(r.one_flops::HUGEINT * r.ended AS BIGINT) AS total_flops,
       TRY_CAST(r.flops_rate AS BIGINT) AS flops_per_s,
       100 * r.flops_rate::DOUBLE / nullif(d.peak_flops, 0) AS peak_flops_percent,
       r.one_bytes AS memory_bytes,
       TRY_CAST(r.bytes_rate AS BIGINT) AS bytes_per_s,
       100 * r.bytes_rate::DOUBLE / nullif(d.peak_bytes_per_s, 0) AS peak_bandwidth_percent,
       r.one_flops::DOUBLE / nullif(r.one_bytes, 0) AS flops_per_byte,
       r.weight_bytes, r.workspace_bytes, r.input_shapes, r.input_dtypes, r.output_shapes, r.output_dtypes
FROM ranked AS r
LEFT JOIN device AS d ON d.run_id = r.run_id AND d.device_id = r.device_id
ORDER BY r.run_id, r.device_id, self_ns DESC, r.op_id
