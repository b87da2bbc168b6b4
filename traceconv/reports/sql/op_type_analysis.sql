-- title = "Work by op type"
-- doc = "How many operations and bytes do the ops of each type execute and move, and at what rates? One row per type and device, by descending self time."
-- needs = ["task", "op"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks and ops."
-- order = ["run_id", "device_id", "self_ns DESC", "op_type"]
-- measure = "self_ns"
-- shown = ["op_type", "op_count", "count", "self_ns", "cumulative_percent", "avg_ns", "total_flops", "flops_per_s", "total_bytes", "bytes_per_s"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start, with their full duration" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the ops." }
-- op_type = { type = "VARCHAR", unit = "text", doc = "Op type, such as Conv2D; NULL if unknown." }
-- op_type_source = { type = "VARCHAR", unit = "enum", doc = "Origin of op_type: recorded (given by the source) or name (derived from the name of at least one of the ops); NULL without a type." }
-- op_count = { type = "BIGINT", unit = "count", doc = "Number of ops of the type." }
-- count = { type = "BIGINT", unit = "count", doc = "Executions that ended; the times refer to these. A task may contain several (op.executions_per_task)." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Executions without an end in the source; not counted in other columns." }
-- self_ns = { type = "BIGINT", unit = "ns", doc = "Device self time: the durations of their tasks, minus those of nested tasks." }
-- self_percent = { type = "DOUBLE", unit = "percent", doc = "100 self_ns / the sum of self_ns over all types of the run and device; NULL if that is 0." }
-- cumulative_ns = { type = "BIGINT", unit = "ns", doc = "Cumulative self_ns over the types of the run and device, by descending self_ns." }
-- cumulative_percent = { type = "DOUBLE", unit = "percent", doc = "100 cumulative_ns / the sum of self_ns over all types of the run and device; NULL if that is 0." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of their tasks." }
-- min_ns = { type = "BIGINT", unit = "ns", doc = "Shortest duration; NULL if none ended, or if a task contains several executions, whose durations are unknown." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", doc = "total_ns / count, rounded half up to 0.001 ns; NULL if none ended." }
-- max_ns = { type = "BIGINT", unit = "ns", doc = "Longest duration; NULL if none ended, or if a task contains several executions, whose durations are unknown." }
-- total_flops = { type = "BIGINT", unit = "flop", doc = "Floating-point operations of all executions; NULL if those of one op are unknown." }
-- flops_per_s = { type = "BIGINT", unit = "flop/s", doc = "Achieved operations per second: total_flops / total_ns, rounded down; NULL if one is unknown or no time passed." }
-- peak_flops_percent = { type = "DOUBLE", unit = "percent", doc = "100 flops_per_s / device.peak_flops; NULL if one is unknown." }
-- total_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes that all executions read and write: inputs, weights and outputs; NULL if those of one op are unknown." }
-- bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "Bandwidth: total_bytes / total_ns, in bytes per second, rounded down; NULL if one is unknown or no time passed." }
-- peak_bandwidth_percent = { type = "DOUBLE", unit = "percent", doc = "100 bytes_per_s / device.peak_bytes_per_s; can exceed 100 through cache hits; NULL if one is unknown." }
-- flops_per_byte = { type = "DOUBLE", unit = "flop/byte", doc = "Arithmetic intensity: total_flops / total_bytes; NULL if one is unknown or no bytes are moved." }
WITH by_op AS (
  SELECT t.run_id, t.device_id, t.op_id, count(*) AS started, count(t.dur_ns) AS ended, sum(t.dur_ns) AS total,
         sum(CASE WHEN t.dur_ns IS NOT NULL THEN coalesce(t.self_ns, t.dur_ns) END) AS own,
         min(t.dur_ns) AS shortest, max(t.dur_ns) AS longest
  FROM task AS t
  WHERE t.op_id IS NOT NULL AND {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
  GROUP BY t.run_id, t.device_id, t.op_id
), by_type AS (
  SELECT b.run_id, b.device_id, o.op_type, min(o.op_type_source) AS op_type_source, count(*) AS ops,
         sum(b.started::HUGEINT * coalesce(o.executions_per_task, 1)) AS started,
         sum(b.ended::HUGEINT * coalesce(o.executions_per_task, 1)) AS ended,
         coalesce(sum(b.total), 0) AS total, coalesce(sum(b.own), 0) AS own,
         -- Of a task with several executions, only the sum is known.
         CASE WHEN max(o.executions_per_task) IS NULL THEN min(b.shortest) END AS shortest,
         CASE WHEN max(o.executions_per_task) IS NULL THEN max(b.longest) END AS longest,
         CASE WHEN count(w.flops) = count(*) THEN sum(w.flops::HUGEINT * b.ended * coalesce(o.executions_per_task, 1)) END AS all_flops,
         CASE WHEN count(w.memory_bytes) = count(*) THEN sum(w.memory_bytes::HUGEINT * b.ended * coalesce(o.executions_per_task, 1)) END AS all_bytes
  FROM by_op AS b
  LEFT JOIN op AS o ON o.run_id = b.run_id AND o.op_id = b.op_id
  LEFT JOIN op_work AS w ON w.run_id = b.run_id AND w.op_id = b.op_id
  GROUP BY b.run_id, b.device_id, o.op_type
), ranked AS (
  -- A separate CTE: DuckDB 1.4.0 can't read a view over a macro with a window inside a function.
  SELECT *, sum(own) OVER (PARTITION BY run_id, device_id) AS device_own,
         sum(own) OVER (
           PARTITION BY run_id, device_id ORDER BY own DESC, op_type ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
         ) AS own_so_far,
         all_flops * 1000000000 // nullif(total, 0) AS flops_rate,
         all_bytes * 1000000000 // nullif(total, 0) AS bytes_rate
  FROM by_type
)
SELECT r.run_id, r.device_id, r.op_type, r.op_type_source, r.ops AS op_count,
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
       TRY_CAST(r.all_flops AS BIGINT) AS total_flops,
       TRY_CAST(r.flops_rate AS BIGINT) AS flops_per_s,
       100 * r.flops_rate::DOUBLE / nullif(d.peak_flops, 0) AS peak_flops_percent,
       TRY_CAST(r.all_bytes AS BIGINT) AS total_bytes,
       TRY_CAST(r.bytes_rate AS BIGINT) AS bytes_per_s,
       100 * r.bytes_rate::DOUBLE / nullif(d.peak_bytes_per_s, 0) AS peak_bandwidth_percent,
       r.all_flops::DOUBLE / nullif(r.all_bytes, 0)::DOUBLE AS flops_per_byte
FROM ranked AS r
LEFT JOIN device AS d ON d.run_id = r.run_id AND d.device_id = r.device_id
ORDER BY r.run_id, r.device_id, self_ns DESC, r.op_type
