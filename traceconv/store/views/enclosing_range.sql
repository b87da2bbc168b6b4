-- title = "Enclosing ranges of each range and call"
-- doc = "Each range and call with the ranges around it."
-- order = ["run_id", "id"]
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Range or call (range.id, api.id)." }
-- parent_range_id = { type = "BIGINT", unit = "id", doc = "Innermost range around it; NULL if none." }
-- path_depth = { type = "BIGINT", unit = "count", doc = "Number of enclosing ranges." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Innermost range of kind host_op: the range itself or one around it; NULL if none." }
-- other_id = { type = "BIGINT", unit = "id", doc = "The same of other kinds, except functions (frame); NULL if none." }
-- frame_id = { type = "BIGINT", unit = "id", doc = "The same of kind frame or module; NULL if none." }
-- module_id = { type = "BIGINT", unit = "id", doc = "The same of kind module; NULL if none." }
-- forward_id = { type = "BIGINT", unit = "id", doc = "For work of a backward pass, the range that ran the forward operator: the source of the innermost fwdbwd flow to the range or one around it; NULL if none." }
WITH RECURSIVE forward AS (
  SELECT f.run_id, f.dst_id AS id, min(f.src_id) AS forward_id
  FROM flow AS f
  WHERE (f.name = 'fwdbwd' OR f.category = 'fwdbwd') AND f.src_id IS NOT NULL
  GROUP BY f.run_id, f.dst_id
), part AS MATERIALIZED (
  SELECT r.run_id, r.id, r.parent_id,
         r.id AS range_id,
         CASE WHEN r.kind = 'host_op' THEN r.id END AS op_id,
         CASE WHEN r.kind NOT IN ('host_op', 'frame') THEN r.id END AS other_id,
         CASE WHEN r.kind IN ('frame', 'module') THEN r.id END AS frame_id,
         CASE WHEN r.kind = 'module' THEN r.id END AS module_id, f.forward_id
  FROM "range" AS r
  LEFT JOIN forward AS f ON f.run_id = r.run_id AND f.id = r.id
  UNION ALL
  SELECT a.run_id, a.id, a.parent_id, NULL, NULL, NULL, NULL, NULL, NULL
  FROM api AS a
), down AS (
  SELECT p.run_id, p.id, p.range_id, NULL::BIGINT AS parent_range_id, 0::BIGINT AS path_depth,
         CASE WHEN p.range_id IS NULL THEN 0 ELSE 1 END::BIGINT AS range_count, p.op_id, p.other_id, p.frame_id,
         p.module_id, p.forward_id
  FROM part AS p
  WHERE p.parent_id IS NULL
  UNION ALL
  SELECT p.run_id, p.id, coalesce(p.range_id, d.range_id), d.range_id, d.range_count,
         d.range_count + CASE WHEN p.range_id IS NULL THEN 0 ELSE 1 END,
         coalesce(p.op_id, d.op_id), coalesce(p.other_id, d.other_id), coalesce(p.frame_id, d.frame_id),
         coalesce(p.module_id, d.module_id), coalesce(p.forward_id, d.forward_id)
  FROM down AS d
  JOIN part AS p ON p.run_id = d.run_id AND p.parent_id = d.id
)
SELECT run_id, id, parent_range_id, path_depth, op_id, other_id, frame_id, module_id, forward_id
FROM down
