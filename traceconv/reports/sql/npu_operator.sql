-- title = "Average times of NPU operators"
-- doc = "Which operators take the longest on average? One row per operator type, without loads, stores and executions."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks."
-- order = ["run_id", "average_elapsed_ns DESC", "name"]
-- measure = "average_elapsed_ns"
-- shown = ["name", "average_elapsed_ns", "count"]
-- selects = { run = true, device = "Only this device (processing element); NULL: all devices.", steps = "tasks", time = "tasks that start, with their full duration" }
-- [columns]
-- name = { type = "VARCHAR", unit = "text", doc = "Op type, or the task's name if it has none." }
-- average_elapsed_ns = { type = "DECIMAL(25,6)", unit = "ns", doc = "total_ns / count, rounded half up to six decimals; NULL if none ended." }
-- count = { type = "BIGINT", unit = "count", doc = "Executions that ended; the times refer to these. A task may contain several (op.executions_per_task)." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Executions without an end in the source; not counted in other columns." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations." }
WITH by_op AS (
  -- Group by op first: numbers are grouped faster than text, and the join gets one row per op and name.
  SELECT t.run_id, t.op_id, t.name, count(*) AS started, count(t.dur_ns) AS ended,
         sum(t.dur_ns) AS total
  FROM task AS t
  WHERE t.kind = 'compute' AND {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
  GROUP BY t.run_id, t.op_id, t.name
), by_name AS (
  SELECT b.run_id, coalesce(o.op_type, o.name, b.name) AS name, sum(b.started::HUGEINT * coalesce(o.executions_per_task, 1)) AS started,
         sum(b.ended::HUGEINT * coalesce(o.executions_per_task, 1)) AS ended, coalesce(sum(b.total), 0) AS total
  FROM by_op AS b
  LEFT JOIN op AS o ON o.run_id = b.run_id AND o.op_id = b.op_id
  GROUP BY b.run_id, coalesce(o.op_type, o.name, b.name)
)
SELECT run_id, name,
       (((2000000 * total + ended) // nullif(2 * ended, 0))::DECIMAL(38,0) * 0.000001)::DECIMAL(25,6)
         AS average_elapsed_ns,
       ended::BIGINT AS count, (started - ended)::BIGINT AS unfinished_count, TRY_CAST(total AS BIGINT) AS total_ns
FROM by_name
ORDER BY run_id, average_elapsed_ns DESC, name
