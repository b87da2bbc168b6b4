-- title = "Executions on the NPU"
-- doc = "How long did each execution on a processing element take, how long did its operators run, and how much time went to I/O and waiting? One row per execution."
-- needs = ["range", "task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its executions; Furiosa's traces have them too."
-- order = ["run_id", "start_ns", "pe_index", "id"]
-- measure = "npu_total_ns"
-- shown = ["trace_id", "span_id", "pe_index", "execution_index", "npu_total_ns", "npu_run_ns", "npu_io_wait_ns"]
-- selects = { run = true, steps = "executions", time = "executions that start, with all their operators" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Execution (range.id)." }
-- trace_id = { type = "VARCHAR", unit = "text", doc = "Inference ID in the source; NULL if none." }
-- span_id = { type = "VARCHAR", unit = "text", doc = "Span ID; NULL if the source has none." }
-- pe_index = { type = "BIGINT", unit = "index", doc = "Processing element; NULL if unknown." }
-- execution_index = { type = "BIGINT", unit = "index", doc = "Index among the executions of the inference, from 0; NULL if unknown." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time." }
-- npu_total_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
-- npu_run_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of its operators, without loads and stores." }
-- npu_io_wait_ns = { type = "BIGINT", unit = "ns", doc = "npu_total_ns − npu_run_ns; negative if overlapping operators sum to more than npu_total_ns; NULL if npu_total_ns is NULL." }
-- operator_count = { type = "BIGINT", unit = "count", doc = "Number of operators in npu_run_ns, with each execution of an op (op.executions_per_task)." }
WITH execution AS (
  SELECT r.run_id, r.id, r.trace_id, r.span_id, r.parent_span_id, r.correlation_id, r.track_id, r.pe_index,
         r.item_index, r.step_id, r.start_ns, r.dur_ns
  FROM "range" AS r
  WHERE r.kind = 'execution' AND {{selected(r.run_id)}}
), summarised AS (
  SELECT o.run_id, o.op_id, o.executions_per_task FROM op AS o WHERE o.executions_per_task IS NOT NULL
), numbered AS (
  -- If the source numbers its executions, tasks have that number.
  SELECT t.run_id, e.id, sum(t.dur_ns) AS run_ns,
         sum(coalesce(o.executions_per_task, 1)) FILTER (t.dur_ns IS NOT NULL) AS operators
  FROM task AS t
  JOIN execution AS e ON e.run_id = t.run_id AND e.correlation_id = t.execution_id
  LEFT JOIN summarised AS o ON o.run_id = t.run_id AND o.op_id = t.op_id
  WHERE t.kind = 'compute' AND {{selected(t.run_id)}}
  GROUP BY t.run_id, e.id
), unnumbered_task AS (
  SELECT t.run_id, t.device_id, t.start_ns, t.dur_ns,
         json_extract_string(t.args, '$.trace_id') AS trace_id,
         json_extract_string(t.args, '$.parent_span_id') AS parent_span_id
  FROM task AS t
  WHERE t.kind = 'compute' AND {{selected(t.run_id)}}
    AND t.run_id IN (SELECT e.run_id FROM execution AS e WHERE e.correlation_id IS NULL)
), named AS (
  -- If ranges and tasks name their execution, as in Furiosa's files, use that …
  SELECT t.run_id, e.id, sum(t.dur_ns) AS run_ns, count(t.dur_ns) AS operators
  FROM unnumbered_task AS t
  JOIN execution AS e ON e.run_id = t.run_id AND e.span_id = t.parent_span_id
    AND e.trace_id IS NOT DISTINCT FROM t.trace_id
  WHERE e.correlation_id IS NULL
  GROUP BY t.run_id, e.id
), latest AS (
  -- … otherwise, as in its exported tables, the execution that started last on that element, wanted or not.
  SELECT t.run_id, e.id, sum(t.dur_ns) AS run_ns, count(t.dur_ns) AS operators
  FROM (SELECT * FROM unnumbered_task WHERE parent_span_id IS NULL) AS t
  ASOF JOIN (SELECT * FROM execution WHERE correlation_id IS NULL) AS e
    ON e.run_id = t.run_id AND e.pe_index = t.device_id AND e.start_ns <= t.start_ns
  GROUP BY t.run_id, e.id
), operator AS (
  SELECT run_id, id, sum(run_ns) AS run_ns, sum(operators) AS operators
  FROM (
    SELECT run_id, id, run_ns, operators FROM numbered
    UNION ALL
    SELECT run_id, id, run_ns, operators FROM named
    UNION ALL
    SELECT run_id, id, run_ns, operators FROM latest
  )
  GROUP BY run_id, id
)
SELECT e.run_id, e.id, e.trace_id, e.span_id, e.pe_index, e.item_index AS execution_index, e.step_id, e.start_ns,
       e.dur_ns AS npu_total_ns, TRY_CAST(coalesce(o.run_ns, 0) AS BIGINT) AS npu_run_ns,
       TRY_CAST(e.dur_ns - coalesce(o.run_ns, 0) AS BIGINT) AS npu_io_wait_ns,
       coalesce(o.operators, 0)::BIGINT AS operator_count
FROM execution AS e
LEFT JOIN operator AS o ON o.run_id = e.run_id AND o.id = e.id
WHERE {{selected(e.step_id, e.start_ns)}}
ORDER BY e.run_id, e.start_ns, e.pe_index, e.id
