-- title = "Time by range, as a tree"
-- doc = "How much host and device time does each module, operator, function and annotation take, with and without those inside it? One row per chain of names; the children of a row follow it, those with most device time first. Tasks without a known range are in a row without a name, so that device_self_ns adds up to the durations of all tasks but waits and events. In replays of graphs, the rows inside the launching range are modules and operators of a reference, or the ranges in which their nodes were captured (graph_replay). Tasks of the reference NPU, which a thread of its own launches, are in their inference; modules has their modules. Ranges of kind summary, which repeat others, are left out, unless others are inside. Filter by depth and path, or set min_percent, to see less."
-- needs = ["range"]
-- when_empty = "Ranges come from annotations of a framework or program: PyTorch operators, record_function, NVTX, spans of traceconv.profile."
-- order = ["run_id", "position"]
-- measure = "device_total_ns"
-- shown = ["label", "device_total_ns", "device_self_ns", "device_percent", "host_total_ns", "host_self_ns", "count", "task_count"]
-- selects = { run = true, device = "Only tasks of this device; NULL: all devices.", steps = "Only ranges and tasks of this step (step.step_id); NULL: all." }
-- [parameters]
-- min_percent = { type = "DOUBLE", doc = "Sum the ranges below this share of both the devices' and the host's time, with all inside them, as one row (N smaller) per enclosing range; NULL: show all." }
-- [columns]
-- position = { type = "BIGINT", unit = "index", doc = "Place of the row in the tree, from 1: each row before those inside it." }
-- depth = { type = "BIGINT", unit = "count", doc = "Number of enclosing rows." }
-- label = { type = "VARCHAR", unit = "text", doc = "The name, indented by its depth." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the ranges; ProfilerStep* for the steps of PyTorch's profiler; (other names) for the further names of a run with 65,536 chains, and for all that is inside 1,024 ranges; (N smaller) for N rows below min_percent; NULL for tasks without a known range." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "Kind of the ranges (range.kind)." }
-- path = { type = "VARCHAR", unit = "text", doc = "Names of the enclosing rows and its own, joined by ' > '." }
-- count = { type = "BIGINT", unit = "count", doc = "Number of ranges that ended." }
-- host_total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations." }
-- host_self_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their self times: without the ranges and calls directly inside." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks that they launched, including those of the rows inside; without waits and events." }
-- self_task_count = { type = "BIGINT", unit = "count", doc = "Tasks that they launched directly." }
-- replay_task_count = { type = "BIGINT", unit = "count", doc = "Those of task_count that are part of a graph replay and whose module or operator is that of a reference, or whose node was captured in a known range (graph_replay)." }
-- device_total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the tasks that they launched, including those of the rows inside." }
-- device_self_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the tasks that they launched directly." }
-- device_percent = { type = "DOUBLE", unit = "percent", doc = "100 device_total_ns / the sum of device_self_ns over all rows of the run; NULL if that is 0." }
WITH RECURSIVE spent AS (
  SELECT t.run_id, coalesce(t.path_id, -1) AS path_id, sum(t.range_count) > 0 AS is_asked, sum(t.ended_count) AS ended,
         sum(t.host_total_ns) AS total, sum(t.host_self_ns) AS own,
         sum(CASE WHEN device IS NULL OR t.device_id = device THEN t.task_count ELSE 0 END) AS tasks,
         sum(CASE WHEN device IS NULL OR t.device_id = device THEN t.task_ns ELSE 0 END) AS device_own
  FROM range_path_time AS t
  WHERE {{selected(t.run_id, t.step_id)}}
  GROUP BY t.run_id, coalesce(t.path_id, -1)
), replay AS (
  SELECT g.run_id, coalesce(g.path_id, -1) AS launch_id, g.module_name, g.operator_name,
         bool_or(g.reference_id IS NULL) AS is_captured, count(*) AS tasks, coalesce(sum(t.dur_ns), 0) AS device_own
  FROM graph_replay AS g
  JOIN task AS t ON t.run_id = g.run_id AND t.id = g.id
  WHERE coalesce(g.operator_name, g.module_name) IS NOT NULL AND {{selected(g.run_id, t.device_id, t.step_id)}}
  GROUP BY g.run_id, coalesce(g.path_id, -1), g.module_name, g.operator_name
), moved AS (
  SELECT run_id, launch_id, sum(tasks) AS tasks, sum(device_own) AS device_own
  FROM replay
  GROUP BY run_id, launch_id
), replay_node AS (
  SELECT run_id, launch_id, module_name, operator_name, bool_or(is_captured) AS is_captured, sum(tasks) AS tasks,
         sum(device_own) AS device_own,
         -1 - row_number() OVER (PARTITION BY run_id ORDER BY launch_id, module_name, operator_name) AS path_id
  FROM (
    FROM replay
    UNION ALL
    SELECT run_id, launch_id, module_name, NULL, false, 0, 0 FROM replay WHERE module_name IS NOT NULL
  )
  GROUP BY run_id, launch_id, module_name, operator_name
), enclosing AS (
  SELECT DISTINCT run_id, parent_path_id AS path_id FROM range_path WHERE parent_path_id IS NOT NULL
), node AS (
  SELECT p.run_id, p.path_id, p.parent_path_id AS parent_id, p.depth, p.name, p.kind,
         coalesce(s.is_asked, false) AS is_asked, coalesce(s.ended, 0) AS ended, coalesce(s.total, 0) AS total,
         coalesce(s.own, 0) AS own, 0 AS replays,
         coalesce(s.tasks, 0) - coalesce(m.tasks, 0) AS tasks, coalesce(s.device_own, 0) - coalesce(m.device_own, 0) AS device_own
  FROM range_path AS p
  LEFT JOIN spent AS s ON s.run_id = p.run_id AND s.path_id = p.path_id
  LEFT JOIN moved AS m ON m.run_id = p.run_id AND m.launch_id = p.path_id
  LEFT JOIN enclosing AS e ON e.run_id = p.run_id AND e.path_id = p.path_id
  WHERE {{selected(p.run_id)}}
    AND (p.kind IS DISTINCT FROM 'summary' OR e.path_id IS NOT NULL OR coalesce(s.tasks, 0) > 0)
  UNION ALL
  SELECT s.run_id, s.path_id, NULL, 0, NULL, NULL, false, 0, 0, 0, 0, s.tasks - coalesce(m.tasks, 0),
         s.device_own - coalesce(m.device_own, 0)
  FROM spent AS s
  LEFT JOIN moved AS m ON m.run_id = s.run_id AND m.launch_id = s.path_id
  WHERE s.path_id = -1
  UNION ALL
  SELECT r.run_id, r.path_id, coalesce(o.path_id, nullif(r.launch_id, -1)),
         coalesce(p.depth + 1, 0) + CASE WHEN o.path_id IS NULL THEN 0 ELSE 1 END, coalesce(r.operator_name, r.module_name),
         CASE WHEN r.operator_name IS NULL THEN 'module' WHEN r.is_captured THEN 'annotation' ELSE 'host_op' END, false, 0, 0, 0, r.tasks, r.tasks, r.device_own
  FROM replay_node AS r
  LEFT JOIN replay_node AS o ON r.operator_name IS NOT NULL AND o.run_id = r.run_id AND o.launch_id = r.launch_id
    AND o.module_name = r.module_name AND o.operator_name IS NULL
  LEFT JOIN range_path AS p ON p.run_id = r.run_id AND p.path_id = r.launch_id
), above AS (
  SELECT n.run_id, n.path_id, n.parent_id AS next_id, n.own, n.tasks, n.replays, n.device_own
  FROM node AS n
  WHERE n.is_asked OR n.tasks > 0
  UNION ALL
  SELECT a.run_id, n.path_id, n.parent_id, a.own, a.tasks, a.replays, a.device_own
  FROM above AS a
  JOIN node AS n ON n.run_id = a.run_id AND n.path_id = a.next_id
), inside AS (
  SELECT run_id, path_id, sum(own) AS all_own, sum(tasks) AS all_tasks, sum(replays) AS all_replays, sum(device_own) AS device_total
  FROM above
  GROUP BY run_id, path_id
), sized AS (
  SELECT n.*, i.all_own, i.all_tasks, i.all_replays, i.device_total,
         sum(n.device_own) OVER (PARTITION BY n.run_id) AS run_device,
         sum(CASE WHEN n.parent_id IS NULL THEN n.total ELSE 0 END) OVER (PARTITION BY n.run_id) AS run_host
  FROM node AS n
  JOIN inside AS i ON i.run_id = n.run_id AND i.path_id = n.path_id
), marked AS (
  SELECT *, coalesce(min_percent > 0, false) AND name IS NOT NULL
            AND NOT (device_total > 0 AND 100 * device_total >= min_percent * run_device)
            AND NOT (total > 0 AND 100 * total >= min_percent * run_host) AS is_small
  FROM sized
), summed AS (
  SELECT run_id, path_id, parent_id, is_small, depth, name, kind, ended, total, own, tasks, all_tasks, all_replays, device_own,
         device_total, run_device
  FROM marked
  WHERE NOT is_small
  UNION ALL
  SELECT run_id, -4611686018427387904 - min(path_id), parent_id, true, depth, '(' || count(*) || ' smaller)', NULL, sum(ended),
         sum(total), sum(all_own), sum(all_tasks), sum(all_tasks), sum(all_replays), sum(device_total),
         sum(device_total), any_value(run_device)
  FROM marked
  WHERE is_small
  GROUP BY run_id, parent_id, depth
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY run_id, parent_id ORDER BY is_small, device_total DESC, total DESC, name, path_id) AS place
  FROM summed
), tree AS (
  SELECT r.run_id, r.path_id, [r.place] AS places, r.name AS path
  FROM ranked AS r
  WHERE r.parent_id IS NULL
  UNION ALL
  SELECT r.run_id, r.path_id, t.places || [r.place], t.path || ' > ' || r.name
  FROM tree AS t
  JOIN ranked AS r ON r.run_id = t.run_id AND r.parent_id = t.path_id
), placed AS (
  SELECT r.*, t.path, row_number() OVER (PARTITION BY r.run_id ORDER BY t.places) AS position
  FROM tree AS t
  JOIN ranked AS r ON r.run_id = t.run_id AND r.path_id = t.path_id
)
SELECT run_id, position, depth::BIGINT AS depth, repeat('  ', depth::BIGINT) || coalesce(name, '(no range)') AS label, name, kind, path,
       ended::BIGINT AS count,
       TRY_CAST(total AS BIGINT) AS host_total_ns,
       TRY_CAST(own AS BIGINT) AS host_self_ns,
       all_tasks::BIGINT AS task_count,
       tasks::BIGINT AS self_task_count,
       all_replays::BIGINT AS replay_task_count,
       TRY_CAST(device_total AS BIGINT) AS device_total_ns,
       TRY_CAST(device_own AS BIGINT) AS device_self_ns,
       (100 * device_total)::DOUBLE / nullif(run_device, 0)::DOUBLE AS device_percent
FROM placed
ORDER BY run_id, position
