-- title = "Range that captured the node of each graph task"
-- doc = "Each task that a graph ran, if its launch and its node are known, with the range on the host in which the node was created, such as the NVTX range around a kernel while the graph was captured. Only reports of Nsight Systems with CUDA_GRAPH_NODE_EVENTS name the nodes (nsys profile --cuda-graph-trace=node)."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- node_api_id = { type = "BIGINT", unit = "id", doc = "Creation of the node, or of the one that it is a copy of (api.id)." }
-- range_id = { type = "BIGINT", unit = "id", doc = "Innermost range around it: the innermost framework operator (kind host_op), otherwise the innermost other one, except functions (range.id); NULL if none." }
-- range_kind = { type = "VARCHAR", unit = "enum", doc = "Kind of range (range.kind); NULL if none." }
-- range_name = { type = "VARCHAR", unit = "text", doc = "Name of the range; NULL if none." }
-- launch_id = { type = "BIGINT", unit = "id", doc = "Call that launched the graph (api.id)." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the task." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL if unknown." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync (waits and events)." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time of the task." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
WITH RECURSIVE node AS MATERIALIZED (
  -- IDs of nodes are unique in a process. A copy may have a row of its creation too, which has no original.
  SELECT a.run_id, k.process_id, a.id AS api_id, TRY_CAST(a.args ->> '$.graphNodeId' AS BIGINT) AS node_id,
         TRY_CAST(nullif(a.args ->> '$.originalGraphNodeId', '0') AS BIGINT) AS original_id
  FROM api AS a
  JOIN track AS k ON k.run_id = a.run_id AND k.track_id = a.track_id
  WHERE a.category = 'cuda_graph' AND a.args ->> '$.graphNodeId' IS NOT NULL
  QUALIFY row_number() OVER (
    PARTITION BY a.run_id, k.process_id, node_id ORDER BY original_id IS NULL, a.start_ns, a.id
  ) = 1
), ran AS MATERIALIZED (
  SELECT t.run_id, t.id, t.api_id, k.process_id, TRY_CAST(t.args ->> '$.graphNodeId' AS BIGINT) AS node_id
  FROM task AS t
  JOIN api AS a ON a.run_id = t.run_id AND a.id = t.api_id
  JOIN track AS k ON k.run_id = a.run_id AND k.track_id = a.track_id
  WHERE t.args ->> '$.graphNodeId' IS NOT NULL
), origin AS (
  SELECT DISTINCT run_id, process_id, node_id, node_id AS at_id
  FROM ran
  UNION
  SELECT o.run_id, o.process_id, o.node_id, n.original_id
  FROM origin AS o
  JOIN node AS n ON n.run_id = o.run_id AND n.process_id = o.process_id AND n.node_id = o.at_id
  WHERE n.original_id IS NOT NULL
)
SELECT r.run_id, r.id, n.api_id AS node_api_id, g.id AS range_id, g.kind AS range_kind, g.name AS range_name,
       r.api_id AS launch_id, t.device_id, t.stream_id, t.step_id, t.kind, t.name, t.start_ns, t.dur_ns
FROM ran AS r
JOIN origin AS o ON o.run_id = r.run_id AND o.process_id = r.process_id AND o.node_id = r.node_id
JOIN node AS n ON n.run_id = o.run_id AND n.process_id = o.process_id AND n.node_id = o.at_id
JOIN task AS t ON t.run_id = r.run_id AND t.id = r.id
LEFT JOIN enclosing_range AS e ON e.run_id = n.run_id AND e.id = n.api_id
LEFT JOIN "range" AS g ON g.run_id = e.run_id AND g.id = coalesce(e.op_id, e.other_id)
WHERE n.original_id IS NULL
