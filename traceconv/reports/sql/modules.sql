-- title = "Time by module, forward and backward"
-- doc = "Which modules or layers of the model take the time, in the forward and in the backward pass? One row per chain of nested modules, as a tree: the modules inside a row follow it, those with most time first. Modules are those of PyTorch's profiler (with_stack=True), and of torch_npu; in runs whose model ops have paths, the parts of these (op.scope_path). Tasks without a module, such as those of optimizers, are in the last rows, so that device_self_ns adds up to the durations of all tasks but waits and events; traces without modules have only these rows. Backward passes lead to the modules that ran the forward operators, by PyTorch's fwdbwd flows. In replays of graphs, modules are those of a reference (graph_replay), inside the modules around the launch."
-- needs = ["range"]
-- when_empty = "Modules come from PyTorch traces that were recorded with_stack=True, and from the ops of NPU models."
-- order = ["run_id", "position"]
-- measure = "device_total_ns"
-- shown = ["label", "device_total_ns", "device_percent", "forward_ns", "backward_ns", "device_self_ns", "host_forward_ns", "host_backward_ns", "call_count", "task_count"]
-- selects = { run = true, device = "Only tasks of this device; NULL: all devices.", steps = "Only calls and tasks of this step (step.step_id); NULL: all." }
-- [columns]
-- position = { type = "BIGINT", unit = "index", doc = "Place of the row in the tree, from 1: each row before those inside it." }
-- depth = { type = "BIGINT", unit = "count", doc = "Number of enclosing modules." }
-- label = { type = "VARCHAR", unit = "text", doc = "The name, indented by its depth; (optimizer) and (no module) for tasks without a module." }
-- module_name = { type = "VARCHAR", unit = "text", doc = "Name of the module; NULL for tasks without one." }
-- path = { type = "VARCHAR", unit = "text", doc = "Names of the enclosing modules and its own, joined by ' > '." }
-- call_count = { type = "BIGINT", unit = "count", doc = "Calls of the module that ended; NULL if none is recorded." }
-- host_forward_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of its calls on the host; NULL if none is recorded." }
-- host_backward_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the ranges on the host that run its backward functions, including those of the modules inside; NULL if unknown." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Its tasks, including those of the modules inside; without waits and events." }
-- forward_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of those launched in the forward pass: outside backward passes and optimizers, as the names of the ranges around the launch tell (range_phase); 0 for tasks whose launch is unknown." }
-- backward_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of those launched in a backward pass." }
-- device_total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of its tasks, including those of the modules inside." }
-- device_self_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of its tasks, without those of the modules inside." }
-- device_percent = { type = "DOUBLE", unit = "percent", doc = "100 device_total_ns / the sum of device_self_ns over all rows of the run; NULL if that is 0." }
WITH RECURSIVE path AS (
  SELECT p.run_id, p.path_id, CASE WHEN p.kind = 'module' THEN [p.name] ELSE []::VARCHAR[] END AS names,
         p.kind = 'module' AS is_module, range_phase(p.name, p.kind) AS phase
  FROM range_path AS p
  WHERE p.parent_path_id IS NULL AND {{selected(p.run_id)}}
  UNION ALL
  SELECT p.run_id, p.path_id, CASE WHEN p.kind = 'module' THEN u.names || [p.name] ELSE u.names END, p.kind = 'module',
         coalesce(range_phase(p.name, p.kind), u.phase)
  FROM path AS u
  JOIN range_path AS p ON p.run_id = u.run_id AND p.parent_path_id = u.path_id
), of_ops AS (
  SELECT DISTINCT o.run_id
  FROM op AS o
  WHERE o.scope_path IS NOT NULL AND {{selected(o.run_id)}}
), source AS (
  SELECT f.run_id, f.dst_id AS id, min(f.src_id) AS forward_id
  FROM flow AS f
  WHERE (f.name = 'fwdbwd' OR f.category = 'fwdbwd') AND f.src_id IS NOT NULL AND {{selected(f.run_id)}}
  GROUP BY f.run_id, f.dst_id
), linked AS (
  SELECT s.run_id, s.id, s.forward_id, r.dur_ns, r.step_id
  FROM source AS s
  JOIN "range" AS r ON r.run_id = s.run_id AND r.id = s.id
  WHERE range_phase(r.name, r.kind) = 'backward'
), inside AS (
  -- Ranges of runs with such flows, with their innermost module.
  SELECT r.run_id, r.id, r.id AS module_id
  FROM "range" AS r
  WHERE r.kind = 'module' AND r.run_id IN (SELECT l.run_id FROM linked AS l)
  UNION ALL
  SELECT r.run_id, r.id, i.module_id
  FROM inside AS i
  JOIN "range" AS r ON r.run_id = i.run_id AND r.parent_id = i.id
  WHERE r.kind IS DISTINCT FROM 'module'
), call AS MATERIALIZED (
  SELECT r.run_id, r.id, coalesce(r.name, '') AS name, i.module_id AS parent_id
  FROM "range" AS r
  LEFT JOIN inside AS i ON i.run_id = r.run_id AND i.id = r.parent_id
  WHERE r.kind = 'module' AND r.run_id IN (SELECT l.run_id FROM linked AS l)
), chain AS (
  SELECT c.run_id, c.id, [c.name] AS names
  FROM call AS c
  WHERE c.parent_id IS NULL
  UNION ALL
  SELECT c.run_id, c.id, h.names || [c.name]
  FROM chain AS h
  JOIN call AS c ON c.run_id = h.run_id AND c.parent_id = h.id
  WHERE len(h.names) < 1024
), backward AS (
  SELECT l.run_id, l.id, h.id AS module_id, h.names, l.dur_ns, l.step_id
  FROM linked AS l
  JOIN inside AS w ON w.run_id = l.run_id AND w.id = l.forward_id
  JOIN chain AS h ON h.run_id = w.run_id AND h.id = w.module_id
  LEFT JOIN inside AS i ON i.run_id = l.run_id AND i.id = l.id
  WHERE i.id IS NULL
), down AS (
  SELECT b.run_id, b.id, b.id AS linked_id, true AS is_range
  FROM backward AS b
  UNION ALL
  SELECT c.run_id, c.id, d.linked_id, c.is_range
  FROM down AS d
  JOIN (
    SELECT r.run_id, r.id, r.parent_id, r.kind, true AS is_range FROM "range" AS r
    WHERE r.run_id IN (SELECT l.run_id FROM linked AS l)
    UNION ALL
    SELECT a.run_id, a.id, a.parent_id, NULL, false FROM api AS a
    WHERE a.run_id IN (SELECT l.run_id FROM linked AS l)
  ) AS c
    ON c.run_id = d.run_id AND c.parent_id = d.id
  WHERE c.kind IS DISTINCT FROM 'module'
), moved_task AS MATERIALIZED (
  -- Tasks of backward passes, which have no module of their own. Materialized: on Parquet, DuckDB would join them with
  -- the chains of modules by their run alone.
  SELECT d.run_id, d.linked_id, t.dur_ns
  FROM down AS d
  JOIN task AS t ON t.run_id = d.run_id AND t.api_id = d.id
  WHERE t.run_id IN (SELECT l.run_id FROM linked AS l) AND t.kind IS DISTINCT FROM 'sync'
    AND {{selected(t.device_id, t.step_id)}}
  UNION ALL
  -- torch_npu queues its work: the call is on another thread.
  SELECT q.run_id, q.linked_id, t.dur_ns
  FROM (
    SELECT d.run_id, f.dst_id AS id, arg_min(d.linked_id, f.src_id) AS linked_id
    FROM down AS d
    JOIN flow AS f ON f.run_id = d.run_id AND f.src_id = d.id
    WHERE d.is_range
    GROUP BY d.run_id, f.dst_id
  ) AS q
  JOIN task AS t ON t.run_id = q.run_id AND t.id = q.id
  LEFT JOIN down AS c ON c.run_id = t.run_id AND c.id = t.api_id
  WHERE t.run_id IN (SELECT l.run_id FROM linked AS l) AND c.id IS NULL AND t.kind IS DISTINCT FROM 'sync'
    AND {{selected(t.device_id, t.step_id)}}
), moved AS (
  SELECT b.run_id, b.names, t.dur_ns
  FROM moved_task AS t
  JOIN backward AS b ON b.run_id = t.run_id AND b.id = t.linked_id
), spent AS (
  SELECT t.run_id, coalesce(p.names, []) AS names, CASE WHEN p.path_id IS NULL THEN 'unknown' ELSE p.phase END AS phase,
         CASE WHEN p.is_module THEN sum(t.range_count) END AS calls,
         CASE WHEN p.is_module THEN sum(t.host_total_ns) END AS host_forward, NULL AS host_backward,
         sum(CASE WHEN device IS NULL OR t.device_id = device THEN t.task_count ELSE 0 END) AS tasks,
         sum(CASE WHEN device IS NULL OR t.device_id = device THEN t.task_ns ELSE 0 END) AS own
  FROM range_path_time AS t
  LEFT JOIN path AS p ON p.run_id = t.run_id AND p.path_id = t.path_id
  WHERE {{selected(t.run_id)}} AND t.run_id NOT IN (SELECT o.run_id FROM of_ops AS o) AND {{selected(t.step_id)}}
  GROUP BY t.run_id, p.names, p.phase, p.is_module, p.path_id
  UNION ALL
  SELECT m.run_id, m.names, 'backward', NULL, NULL, NULL, count(*), coalesce(sum(m.dur_ns), 0)
  FROM moved AS m
  GROUP BY m.run_id, m.names
  UNION ALL
  SELECT m.run_id, [], 'backward', NULL, NULL, NULL, -count(*), -coalesce(sum(m.dur_ns), 0)
  FROM moved AS m
  GROUP BY m.run_id
  UNION ALL
  SELECT b.run_id, b.names, 'backward', NULL, NULL, sum(b.dur_ns), 0, 0
  FROM backward AS b
  WHERE {{selected(b.step_id)}}
  GROUP BY b.run_id, b.names
  UNION ALL
  SELECT g.run_id, coalesce(p.names, []) || CASE WHEN is_new THEN [g.module_name] ELSE [] END,
         CASE WHEN is_new THEN NULL WHEN p.path_id IS NULL THEN 'unknown' ELSE p.phase END, NULL, NULL, NULL,
         CASE WHEN is_new THEN count(*) ELSE -count(*) END,
         CASE WHEN is_new THEN 1 ELSE -1 END * coalesce(sum(t.dur_ns), 0)
  FROM graph_replay AS g
  JOIN task AS t ON t.run_id = g.run_id AND t.id = g.id
  LEFT JOIN path AS p ON p.run_id = g.run_id AND p.path_id = g.path_id
  CROSS JOIN (VALUES (true), (false)) AS side(is_new)
  WHERE g.module_name IS NOT NULL AND {{selected(g.run_id, t.device_id, t.step_id)}}
  GROUP BY g.run_id, g.module_name, p.path_id, p.names, p.phase, is_new
  UNION ALL
  SELECT t.run_id, string_split(o.scope_path, '/'), CASE WHEN o.scope_path IS NULL THEN 'unknown' END, NULL, NULL, NULL, sum(t.tasks), sum(t.own)
  FROM (
    SELECT run_id, op_id, count(*) AS tasks, coalesce(sum(dur_ns), 0) AS own
    FROM task
    WHERE kind IS DISTINCT FROM 'sync' AND {{selected(run_id, device_id, step_id)}}
      AND run_id IN (SELECT run_id FROM of_ops)
    GROUP BY run_id, op_id
  ) AS t
  LEFT JOIN op AS o ON o.run_id = t.run_id AND o.op_id = t.op_id
  GROUP BY t.run_id, o.scope_path
), one AS (
  SELECT s.run_id, s.is_other,
         CASE WHEN s.is_other THEN [CASE s.phase WHEN 'optimizer' THEN '(optimizer)' ELSE '(no module)' END] ELSE s.names END AS names,
         sum(s.calls) AS calls, sum(s.host_forward) AS host_forward, sum(s.host_backward) AS host_backward,
         sum(s.tasks) AS tasks, sum(CASE WHEN s.phase IS NULL THEN s.own ELSE 0 END) AS forward,
         sum(CASE WHEN s.phase = 'backward' THEN s.own ELSE 0 END) AS backward, sum(s.own) AS own
  FROM (SELECT *, coalesce(len(names), 0) = 0 AS is_other FROM spent) AS s
  GROUP BY s.run_id, s.is_other, CASE WHEN s.is_other THEN [CASE s.phase WHEN 'optimizer' THEN '(optimizer)' ELSE '(no module)' END] ELSE s.names END
), part AS (
  SELECT o.run_id, o.is_other, o.names
  FROM one AS o
  WHERE o.tasks > 0 OR NOT o.is_other
  UNION
  SELECT p.run_id, p.is_other, p.names[:-2]
  FROM part AS p
  WHERE len(p.names) > 1
), node AS (
  SELECT p.run_id, p.is_other, p.names, row_number() OVER (ORDER BY p.run_id, p.is_other, p.names) AS id, o.calls,
         o.host_forward, o.host_backward, coalesce(o.tasks, 0) AS tasks, coalesce(o.forward, 0) AS forward,
         coalesce(o.backward, 0) AS backward, coalesce(o.own, 0) AS own
  FROM part AS p
  LEFT JOIN one AS o ON o.run_id = p.run_id AND o.is_other = p.is_other AND o.names = p.names
), placed AS (
  SELECT n.id, p.id AS parent_id
  FROM node AS n
  LEFT JOIN node AS p ON p.run_id = n.run_id AND p.is_other = n.is_other AND p.names = n.names[:-2]
), above AS (
  SELECT id AS from_id, id
  FROM placed
  UNION ALL
  SELECT a.from_id, p.parent_id
  FROM above AS a
  JOIN placed AS p ON p.id = a.id
  WHERE p.parent_id IS NOT NULL
), summed AS (
  SELECT a.id, sum(n.host_backward) AS host_backward, sum(n.tasks) AS tasks, sum(n.forward) AS forward,
         sum(n.backward) AS backward, sum(n.own) AS total
  FROM above AS a
  JOIN node AS n ON n.id = a.from_id
  GROUP BY a.id
), ranked AS (
  SELECT n.run_id, n.is_other, n.names, n.id, p.parent_id, n.calls, n.host_forward, n.own, s.host_backward, s.tasks, s.forward,
         s.backward, s.total, row_number() OVER (
           PARTITION BY n.run_id, p.parent_id
           ORDER BY n.is_other, s.total DESC, n.host_forward DESC NULLS LAST, n.names
         ) AS place
  FROM node AS n
  JOIN placed AS p ON p.id = n.id
  JOIN summed AS s ON s.id = n.id
), tree AS (
  SELECT r.id, [r.place] AS places
  FROM ranked AS r
  WHERE r.parent_id IS NULL
  UNION ALL
  SELECT r.id, t.places || [r.place]
  FROM tree AS t
  JOIN ranked AS r ON r.parent_id = t.id
)
SELECT r.run_id, row_number() OVER (PARTITION BY r.run_id ORDER BY t.places) AS position, len(r.names) - 1 AS depth,
       repeat('  ', len(r.names) - 1) || r.names[-1] AS label, CASE WHEN NOT r.is_other THEN r.names[-1] END AS module_name,
       CASE WHEN NOT r.is_other THEN array_to_string(r.names, ' > ') END AS path,
       r.calls::BIGINT AS call_count, TRY_CAST(r.host_forward AS BIGINT) AS host_forward_ns,
       TRY_CAST(r.host_backward AS BIGINT) AS host_backward_ns, r.tasks::BIGINT AS task_count,
       TRY_CAST(r.forward AS BIGINT) AS forward_ns, TRY_CAST(r.backward AS BIGINT) AS backward_ns,
       TRY_CAST(r.total AS BIGINT) AS device_total_ns, TRY_CAST(r.own AS BIGINT) AS device_self_ns,
       (100 * r.total)::DOUBLE / nullif(sum(r.own) OVER (PARTITION BY r.run_id), 0)::DOUBLE AS device_percent
FROM ranked AS r
JOIN tree AS t ON t.id = r.id
ORDER BY r.run_id, position
