-- title = "Module of each task"
-- doc = "Each task with its module: the innermost module around its launch; in a backward pass, the module that ran the forward operator; otherwise the module path of its op. For tasks of graph replays, the module of the reference (graph_replay), if it is certain."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id)." }
-- module_id = { type = "BIGINT", unit = "id", doc = "Range of the module (range.id); NULL if the module is from op.scope_path or graph_replay, or unknown." }
-- module_name = { type = "VARCHAR", unit = "text", doc = "Name of the module; NULL if unknown." }
-- found_by = { type = "VARCHAR", unit = "enum", doc = "How the module was found: launch (it encloses the launch), backward (it encloses the forward operator, to which a fwdbwd flow leads), replay (it is that of the reference in graph_replay) or op (op.scope_path); NULL if unknown." }
-- range_id = { type = "BIGINT", unit = "id", doc = "Range that launched the task (launching_range.range_id); NULL if unknown." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the task." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL if unknown." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy, collective or sync (waits and events)." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the task." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start time of the task." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
WITH path AS (
  FROM enclosing_range
), launch AS (
  SELECT l.run_id, l.id, l.range_id, p.module_id, p.forward_id
  FROM launching_range AS l
  JOIN path AS p ON p.run_id = l.run_id AND p.id = CASE WHEN l.found_by = 'flow' THEN l.range_id ELSE l.api_id END
), found AS (
  SELECT l.run_id, l.id, l.range_id, coalesce(l.module_id, w.module_id) AS module_id,
         CASE WHEN l.module_id IS NOT NULL THEN 'launch' ELSE 'backward' END AS found_by
  FROM launch AS l
  LEFT JOIN path AS w ON w.run_id = l.run_id AND w.id = l.forward_id
)
SELECT t.run_id, t.id, CASE WHEN g.module_name IS NULL THEN f.module_id END AS module_id,
       coalesce(g.module_name, m.name, o.scope_path) AS module_name,
       CASE WHEN g.module_name IS NOT NULL THEN 'replay' WHEN f.module_id IS NOT NULL THEN f.found_by
            WHEN o.scope_path IS NOT NULL THEN 'op' END AS found_by,
       f.range_id, t.device_id, t.stream_id, t.kind, t.name, t.start_ns, t.dur_ns
FROM task AS t
LEFT JOIN found AS f ON f.run_id = t.run_id AND f.id = t.id
LEFT JOIN "range" AS m ON m.run_id = f.run_id AND m.id = f.module_id
LEFT JOIN op AS o ON o.run_id = t.run_id AND o.op_id = t.op_id
LEFT JOIN graph_replay AS g ON g.run_id = t.run_id AND g.id = t.id
