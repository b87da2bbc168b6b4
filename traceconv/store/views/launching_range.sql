-- title = "Launching range of each task"
-- doc = "Each task with a known launch, and the range that launched it: the innermost framework operator (kind host_op) that encloses the call or is linked to the task by a flow; otherwise the innermost other range, such as the inference of a task of the reference NPU, except functions of the program, which are in frame_id. The sum over its tasks is a range's device self time."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- api_id = { type = "BIGINT", unit = "id", doc = "Call that launched it (api.id); NULL if the range was found by a flow." }
-- range_id = { type = "BIGINT", unit = "id", doc = "Range (range.id); NULL if none." }
-- range_kind = { type = "VARCHAR", unit = "enum", doc = "Kind of range (range.kind)." }
-- range_name = { type = "VARCHAR", unit = "text", doc = "Name of the range, such as aten::mm." }
-- frame_id = { type = "BIGINT", unit = "id", doc = "Innermost enclosing function of the program (range.id, of kind frame or module); NULL if none." }
-- frame_name = { type = "VARCHAR", unit = "text", doc = "Name of the enclosing function; NULL if none." }
-- found_by = { type = "VARCHAR", unit = "enum", doc = "How the range was found: call (it encloses the launching call), graph (it encloses the launch of the task's graph) or flow (a flow of the source leads from it to the task, or it is the inference that the task is part of)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the task." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL if unknown." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync (waits and events)." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time of the task." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
WITH around AS MATERIALIZED (
  FROM enclosing_range
), linked AS (
  -- torch_npu queues its work: the call is on another thread, and a flow leads from the operator to the task.
  SELECT f.run_id, f.dst_id AS id, min(r.id) AS range_id
  FROM flow AS f
  JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
  JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id
  GROUP BY f.run_id, f.dst_id
  UNION ALL
  -- Another thread launches the tasks of an inference.
  SELECT t.run_id, t.id, min(i.id)
  FROM task AS t
  JOIN "range" AS e ON e.run_id = t.run_id AND e.correlation_id = t.execution_id AND e.kind = 'execution'
  JOIN "range" AS i ON i.run_id = e.run_id AND i.span_id = e.parent_span_id AND i.kind = 'inference'
  GROUP BY t.run_id, t.id
), launched AS (
  SELECT d.run_id, d.id, d.api_id, regexp_matches(coalesce(a.name, ''), '^(cuda|cu|hip)GraphLaunch') AS of_graph,
         o.op_id, o.other_id, o.frame_id, NULL::BIGINT AS flow_op_id, NULL::BIGINT AS flow_other_id,
         NULL::BIGINT AS flow_frame_id
  FROM launch_delay AS d
  JOIN api AS a ON a.run_id = d.run_id AND a.id = d.api_id
  LEFT JOIN around AS o ON o.run_id = d.run_id AND o.id = d.api_id
  UNION ALL
  SELECT f.run_id, f.id, NULL, NULL, NULL, NULL, NULL, o.op_id, o.other_id, o.frame_id
  FROM linked AS f
  JOIN around AS o ON o.run_id = f.run_id AND o.id = f.range_id
), merged AS (
  SELECT l.run_id, l.id, max(l.api_id) AS api_id, bool_or(l.of_graph) AS of_graph, max(l.op_id) AS op_id,
         max(l.other_id) AS other_id, max(l.frame_id) AS frame_id, max(l.flow_op_id) AS flow_op_id,
         max(l.flow_other_id) AS flow_other_id, max(l.flow_frame_id) AS flow_frame_id
  FROM launched AS l
  GROUP BY l.run_id, l.id
), chosen AS (
  SELECT d.run_id, d.id, d.api_id, coalesce(d.op_id, d.flow_op_id, d.other_id, d.flow_other_id) AS range_id,
         CASE WHEN d.op_id IS NULL AND d.flow_op_id IS NOT NULL THEN 'flow'
              WHEN d.op_id IS NULL AND d.other_id IS NULL AND d.flow_other_id IS NOT NULL THEN 'flow'
              WHEN d.of_graph THEN 'graph'
              WHEN d.api_id IS NOT NULL THEN 'call' ELSE 'flow' END AS found_by,
         CASE WHEN d.op_id IS NULL AND d.flow_op_id IS NOT NULL THEN coalesce(d.flow_frame_id, d.frame_id)
              ELSE coalesce(d.frame_id, d.flow_frame_id) END AS frame_id
  FROM merged AS d
)
SELECT t.run_id, t.id, c.api_id, c.range_id, r.kind AS range_kind, r.name AS range_name, c.frame_id,
       k.name AS frame_name, c.found_by, t.device_id, t.stream_id, t.kind, t.name, t.start_ns, t.dur_ns
FROM chosen AS c
JOIN task AS t ON t.run_id = c.run_id AND t.id = c.id
LEFT JOIN "range" AS r ON r.run_id = c.run_id AND r.id = c.range_id
LEFT JOIN "range" AS k ON k.run_id = c.run_id AND k.id = c.frame_id
