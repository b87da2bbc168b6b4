-- title = "Kernels by name"
-- doc = "Which kernels and copies take the device time, of which category are they, and how much does their duration vary? One row per kernel, kind and input shapes, over all tasks except waits and events; for GPU kernels, shapes are those of the operators that launched them, with by_shape. Model ops, as on NPUs, count as kernels of their type."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks."
-- order = ["run_id", "device_id", "total_ns DESC", "kernel", "kind", "input_shapes", "op_count", "operator_name"]
-- measure = "total_ns"
-- shown = ["device_id", "label", "category", "input_shapes", "count", "total_ns", "ratio_percent", "p50_ns", "p90_ns", "p99_ns"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start, with their full duration" }
-- [parameters]
-- by_shape = { type = "BOOLEAN", doc = "true: rows per operator that launched the kernel, and per shape of its arguments, in runs with recorded shapes; NULL: per kernel." }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the tasks." }
-- kernel = { type = "VARCHAR", unit = "text", doc = "Full name of the kernel or copy; for model ops, the op type, such as Conv2D; NULL if unknown." }
-- label = { type = "VARCHAR", unit = "text", doc = "Short name, kernel_label(kernel): without namespaces and arguments, with the first template argument that isn't a plain type, or with all of them if several kernels of the device would have the same label; longer than 80 characters: shortened in the middle; numbered in the order of kernel (#1) if it is still that of several." }
-- category = { type = "VARCHAR", unit = "enum", doc = "communication for collectives, memory for copies, else by rules for the name, kernel_category(kernel): gemm, conv, attention, normalization, softmax, elementwise, reduction and others; NULL if no rule matches." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy or collective; NULL if unknown." }
-- input_shapes = { type = "VARCHAR", unit = "text", doc = "Input shapes of its ops, or with by_shape of the operators that launched it: dimensions joined by ',', inputs by ';'; NULL if unknown." }
-- operator_name = { type = "VARCHAR", unit = "text", doc = "With by_shape, the operator that launched it, as in roofline, such as aten::mm; NULL if unknown." }
-- op_count = { type = "BIGINT", unit = "count", doc = "Number of ops of the run with this kernel and these shapes; 0 for tasks without an op." }
-- count = { type = "BIGINT", unit = "count", doc = "Executions that ended; the times refer to these. A task may contain several (op.executions_per_task)." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Executions without an end in the source; not counted in other columns." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations." }
-- ratio_percent = { type = "DOUBLE", unit = "percent", doc = "100 total_ns / the sum of total_ns over all rows of the run and device; NULL if that is 0." }
-- min_ns = { type = "BIGINT", unit = "ns", doc = "Shortest duration; NULL if none ended, or if a task contains several executions, whose durations are unknown." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", doc = "total_ns / count, rounded half up to 0.001 ns; NULL if none ended." }
-- p50_ns = { type = "BIGINT", unit = "ns", doc = "Median: the shortest duration that at least half of the executions don't exceed (nearest rank); NULL as min_ns." }
-- p90_ns = { type = "BIGINT", unit = "ns", doc = "The shortest duration that at least 90 % of the executions don't exceed; NULL as min_ns." }
-- p99_ns = { type = "BIGINT", unit = "ns", doc = "The shortest duration that at least 99 % of the executions don't exceed; NULL as min_ns." }
-- max_ns = { type = "BIGINT", unit = "ns", doc = "Longest duration; NULL as min_ns." }
WITH named AS (
  SELECT o.run_id, o.op_id, kernel_name(o.name, o.op_type) AS kernel, o.input_shapes, o.executions_per_task
  FROM op AS o
  WHERE {{selected(o.run_id)}}
), grouped AS (
  SELECT run_id, kernel, input_shapes, executions_per_task, min(op_id) AS first_op_id, list(op_id) AS op_ids
  FROM named
  GROUP BY run_id, kernel, input_shapes, executions_per_task
), member AS (
  SELECT run_id, first_op_id, unnest(op_ids) AS op_id
  FROM grouped
), shaped AS (
  SELECT run_id, operator_id, name AS operator_name, input_shapes,
         min(operator_id) OVER (PARTITION BY run_id, name, input_shapes) AS first_operator_id
  FROM operator
  WHERE by_shape AND {{selected(run_id)}}
), launch AS (
  SELECT t.run_id, t.id, s.first_operator_id
  FROM task_operator AS t
  JOIN shaped AS s ON s.run_id = t.run_id AND s.operator_id = t.operator_id
  WHERE by_shape
), chosen AS (
  -- Numbers are grouped faster than text.
  SELECT t.run_id, t.device_id, t.kind, g.first_op_id, CASE WHEN g.first_op_id IS NULL THEN t.name END AS name, t.dur_ns,
         l.first_operator_id
  FROM task AS t
  LEFT JOIN member AS g ON g.run_id = t.run_id AND g.op_id = t.op_id
  LEFT JOIN launch AS l ON l.run_id = t.run_id AND l.id = t.id
  WHERE t.kind IS DISTINCT FROM 'sync' AND {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
), by_kernel AS (
  SELECT run_id, device_id, kind, first_op_id, name, first_operator_id, count(*) AS started,
         count(dur_ns) AS ended, coalesce(sum(dur_ns), 0) AS total,
         quantile_disc(dur_ns, [0, 0.5, 0.9, 0.99, 1]) AS percentiles
  FROM chosen
  GROUP BY run_id, device_id, kind, first_op_id, name, first_operator_id
), of_kernel AS (
  SELECT b.run_id, b.device_id, coalesce(n.kernel, b.name) AS kernel, b.kind,
         coalesce(n.input_shapes, s.input_shapes) AS input_shapes, s.operator_name, coalesce(len(n.op_ids), 0) AS ops, b.total,
         b.started::HUGEINT * coalesce(n.executions_per_task, 1) AS started,
         b.ended::HUGEINT * coalesce(n.executions_per_task, 1) AS ended,
         -- Of a task with several executions, only the sum is known.
         CASE WHEN n.executions_per_task IS NULL THEN b.percentiles END AS percentiles,
         sum(b.total) OVER (PARTITION BY b.run_id, b.device_id) AS device_total
  FROM by_kernel AS b
  LEFT JOIN grouped AS n ON n.run_id = b.run_id AND n.first_op_id = b.first_op_id
  LEFT JOIN shaped AS s ON s.run_id = b.run_id AND s.operator_id = b.first_operator_id
), labelled AS (
  SELECT *, kernel_label(kernel) AS first_label,
         regexp_extract(regexp_replace(replace(kernel, '(anonymous namespace)', ''), '\w*::', '', 'g'), '(\w+<.{1,80}?>)\(', 1) AS full_label
  FROM of_kernel
), compared AS (
  SELECT *, min(kernel) OVER same <> max(kernel) OVER same AS is_shared
  FROM labelled
  WINDOW same AS (PARTITION BY run_id, device_id, first_label)
), shortened AS (
  SELECT *, CASE WHEN is_shared AND starts_with(full_label, short_name(kernel)) THEN full_label
                 WHEN length(first_label) > 80 THEN first_label[:48] || '…' || substring(first_label, length(first_label) - 30)
                 ELSE first_label END AS short_label
  FROM compared
), numbered AS (
  SELECT *, CASE WHEN min(kernel) OVER same <> max(kernel) OVER same
                 THEN dense_rank() OVER (PARTITION BY run_id, device_id, short_label ORDER BY kernel) END AS number
  FROM shortened
  WINDOW same AS (PARTITION BY run_id, device_id, short_label)
)
SELECT run_id, device_id, kernel,
       short_label || coalesce('#' || number::VARCHAR, '') AS label,
       CASE kind WHEN 'collective' THEN 'communication' WHEN 'copy' THEN 'memory' ELSE kernel_category(kernel) END AS category,
       kind, input_shapes, operator_name, ops AS op_count,
       ended::BIGINT AS count,
       (started - ended)::BIGINT AS unfinished_count,
       TRY_CAST(total AS BIGINT) AS total_ns,
       (100 * total)::DOUBLE / nullif(device_total, 0)::DOUBLE AS ratio_percent,
       percentiles[1] AS min_ns,
       average_ns(total, ended) AS avg_ns,
       percentiles[2] AS p50_ns, percentiles[3] AS p90_ns, percentiles[4] AS p99_ns,
       percentiles[5] AS max_ns
FROM numbered
ORDER BY run_id, device_id, total_ns DESC, kernel, kind, input_shapes, op_count, operator_name
