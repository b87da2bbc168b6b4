-- title = "Operators by type"
-- doc = "Which types of operators take the most device time? One row per type and core type, over the tasks with an op. As in msprof's op_statistic.csv, kernels of collectives are left out if their core type is COMMUNICATION or HCCL_AI_CPU."
-- needs = ["task", "op"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks and ops."
-- order = ["run_id", "device_id", "total_ns DESC", "op_type", "core_type"]
-- measure = "total_ns"
-- shown = ["device_id", "op_type", "core_type", "count", "total_ns", "avg_ns", "max_ns", "ratio_percent"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start, with their full duration" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", msprof = "Device_id", doc = "Device of the operators." }
-- op_type = { type = "VARCHAR", unit = "text", msprof = "OP Type", doc = "Op type, such as Conv2D; NULL if unknown." }
-- op_type_source = { type = "VARCHAR", unit = "enum", doc = "Origin of op_type: recorded (given by the source) or name (derived from the name of at least one of the ops); NULL without a type." }
-- core_type = { type = "VARCHAR", unit = "text", msprof = "Core Type", doc = "Core type; NULL if unknown." }
-- count = { type = "BIGINT", unit = "count", msprof = "Count", doc = "Executions that ended; the times refer to these. A task may contain several (op.executions_per_task)." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Executions without an end in the source; not counted in other columns." }
-- total_ns = { type = "BIGINT", unit = "ns", msprof = "Total Time(us)", msprof_as = "short_us", doc = "Sum of their durations." }
-- min_ns = { type = "BIGINT", unit = "ns", msprof = "Min Time(us)", msprof_as = "short_us", doc = "Shortest duration; NULL if none ended, or if a task contains several executions, whose durations are unknown." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", msprof = "Avg Time(us)", msprof_as = "short_us", doc = "total_ns / count, rounded half up to 0.001 ns; NULL if none ended." }
-- max_ns = { type = "BIGINT", unit = "ns", msprof = "Max Time(us)", msprof_as = "short_us", doc = "Longest duration; NULL if none ended, or if a task contains several executions, whose durations are unknown." }
-- ratio_percent = { type = "DOUBLE", unit = "percent", msprof = "Ratio(%)", msprof_as = "ratio", doc = "100 total_ns / the sum of total_ns over all rows of the run and device; NULL if that is 0." }
WITH counted AS (
  -- The runs whose tasks are read: of a part of their tasks, and those without totals.
  SELECT r.run_id
  FROM run AS r
  WHERE {{selected(r.run_id)}}
    AND (coalesce(step, first_step, last_step, from_ns, to_ns) IS NOT NULL
         OR NOT EXISTS (SELECT 1 FROM op_total AS o WHERE o.run_id = r.run_id))
), by_op AS (
  SELECT o.run_id, o.device_id, o.op_id, o.core_type, o.task_count + o.unfinished_count AS started,
         o.task_count AS ended, o.sum_ns::HUGEINT AS total, o.min_ns AS shortest, o.max_ns AS longest
  FROM op_total AS o
  WHERE {{selected(o.run_id, o.device_id)}} AND coalesce(o.core_type, '') NOT IN ('COMMUNICATION', 'HCCL_AI_CPU')
    AND coalesce(step, first_step, last_step, from_ns, to_ns) IS NULL
  UNION ALL
  -- Grouped by op first: numbers are grouped faster than text, and the join gets one row per op.
  SELECT t.run_id, t.device_id, t.op_id, t.core_type, count(*) AS started, count(t.dur_ns) AS ended,
         sum(t.dur_ns) AS total, min(t.dur_ns) AS shortest, max(t.dur_ns) AS longest
  FROM task AS t
  JOIN counted AS c ON c.run_id = t.run_id
  WHERE t.op_id IS NOT NULL AND coalesce(t.core_type, '') NOT IN ('COMMUNICATION', 'HCCL_AI_CPU')
    AND {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
  GROUP BY t.run_id, t.device_id, t.op_id, t.core_type
), by_type AS (
  SELECT b.run_id, b.device_id, o.op_type, min(o.op_type_source) AS op_type_source, b.core_type,
         sum(b.started::HUGEINT * coalesce(o.executions_per_task, 1)) AS started,
         sum(b.ended::HUGEINT * coalesce(o.executions_per_task, 1)) AS ended, coalesce(sum(b.total), 0) AS total,
         -- Of a task with several executions, only the sum is known.
         CASE WHEN max(o.executions_per_task) IS NULL THEN min(b.shortest) END AS shortest,
         CASE WHEN max(o.executions_per_task) IS NULL THEN max(b.longest) END AS longest
  FROM by_op AS b
  LEFT JOIN op AS o ON o.run_id = b.run_id AND o.op_id = b.op_id
  GROUP BY b.run_id, b.device_id, o.op_type, b.core_type
), of_device AS (
  -- A separate CTE: DuckDB 1.4.0 can't read a view over a macro with a window inside a function.
  SELECT *, sum(total) OVER (PARTITION BY run_id, device_id) AS device_total
  FROM by_type
)
SELECT run_id, device_id, op_type, op_type_source, core_type,
       ended::BIGINT AS count,
       (started - ended)::BIGINT AS unfinished_count,
       TRY_CAST(total AS BIGINT) AS total_ns,
       shortest AS min_ns,
       average_ns(total, ended) AS avg_ns,
       longest AS max_ns,
       (100 * total)::DOUBLE / nullif(device_total, 0)::DOUBLE AS ratio_percent
FROM of_device
ORDER BY run_id, device_id, total_ns DESC, op_type, core_type
