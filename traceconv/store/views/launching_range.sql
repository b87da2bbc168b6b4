-- title = "Which range each task was launched in"
-- doc = "Each task whose launch is known, with the range that launched it: the innermost around the call, such as an operator of the framework; where there is none, that from which an arrow leads to the task. Summed over its tasks, it is a range's own time on the device."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- id = { type = "BIGINT", unit = "id", doc = "The task (task.id)." }
-- api_id = { type = "BIGINT", unit = "id", doc = "The call that launched it (api.id)." }
-- range_id = { type = "BIGINT", unit = "id", doc = "The range (range.id); NULL when there is none." }
-- range_kind = { type = "VARCHAR", unit = "enum", doc = "What the range is (range.kind)." }
-- range_name = { type = "VARCHAR", unit = "text", doc = "Name of the range, such as aten::mm." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device that the task ran on." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream that it ran on." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync: waits and events, which some profilers tie to their calls too." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- start_ns = { type = "BIGINT", unit = "ns", moment = true, doc = "When the task started." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "How long it ran; NULL when its end is not in the source." }
WITH RECURSIVE call AS (
  SELECT d.run_id, d.id, d.api_id, d.device_id, d.stream_id, d.kind, d.name, d.start_ns, d.dur_ns, a.parent_id
  FROM launch_delay AS d
  JOIN api AS a ON a.run_id = d.run_id AND a.id = d.api_id
), climb AS (
  -- A call may lie in another call: up to the first slice that is none.
  SELECT DISTINCT run_id, parent_id, parent_id AS above_id
  FROM call
  WHERE parent_id IS NOT NULL
  UNION ALL
  SELECT c.run_id, c.parent_id, a.parent_id AS above_id
  FROM climb AS c
  JOIN api AS a ON a.run_id = c.run_id AND a.id = c.above_id
  WHERE a.parent_id IS NOT NULL
), around AS (
  SELECT c.run_id, c.parent_id, r.id AS range_id, r.kind AS range_kind, r.name AS range_name
  FROM climb AS c
  JOIN "range" AS r ON r.run_id = c.run_id AND r.id = c.above_id
), drawn AS (
  -- torch_npu queues its work: the call is another thread's, and an arrow leads from the operator to the task.
  SELECT f.run_id, f.dst_id, min(r.id) AS range_id, min_by(r.kind, r.id) AS range_kind,
         min_by(r.name, r.id) AS range_name
  FROM flow AS f
  JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
  GROUP BY f.run_id, f.dst_id
)
SELECT c.run_id, c.id, c.api_id, coalesce(o.range_id, d.range_id) AS range_id,
       CASE WHEN o.range_id IS NULL THEN d.range_kind ELSE o.range_kind END AS range_kind,
       CASE WHEN o.range_id IS NULL THEN d.range_name ELSE o.range_name END AS range_name,
       c.device_id, c.stream_id, c.kind, c.name, c.start_ns, c.dur_ns
FROM call AS c
LEFT JOIN around AS o ON o.run_id = c.run_id AND o.parent_id = c.parent_id
LEFT JOIN drawn AS d ON d.run_id = c.run_id AND d.dst_id = c.id
