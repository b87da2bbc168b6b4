-- title = "Time by range, as a tree"
-- doc = "How much host and device time does each module, operator, function and annotation take, with and without those inside it? One row per chain of names; the children of a row follow it, those with most device time first. Tasks without a known range are in a row without a name, so that device_self_ns adds up to the durations of all tasks but waits and events. Filter by depth and path to see less."
-- needs = ["range"]
-- when_empty = "Ranges come from annotations of a framework or program: PyTorch operators, record_function, NVTX, spans of traceconv.profile."
-- order = ["run_id", "position"]
-- measure = "device_total_ns"
-- shown = ["label", "count", "host_total_ns", "host_self_ns", "task_count", "device_total_ns", "device_self_ns", "device_percent"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; NULL: all runs." }
-- device = { type = "BIGINT", doc = "Only tasks of this device; NULL: all devices." }
-- step = { type = "BIGINT", doc = "Only ranges and tasks of this step (step.step_id); NULL: all." }
-- first_step = { type = "BIGINT", doc = "Only steps from this one on; NULL: no limit." }
-- last_step = { type = "BIGINT", doc = "Only steps up to this one; NULL: no limit." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
-- position = { type = "BIGINT", unit = "index", doc = "Place of the row in the tree, from 1: each row before those inside it." }
-- depth = { type = "BIGINT", unit = "count", doc = "Number of enclosing rows." }
-- label = { type = "VARCHAR", unit = "text", doc = "The name, indented by its depth." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the ranges; ProfilerStep* for the steps of PyTorch's profiler; NULL for tasks without a known range." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "Kind of the ranges (range.kind)." }
-- path = { type = "VARCHAR", unit = "text", doc = "Names of the enclosing rows and its own, joined by ' > '." }
-- count = { type = "BIGINT", unit = "count", doc = "Number of ranges that ended." }
-- host_total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations." }
-- host_self_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations minus those of the ranges and calls directly inside." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks that they launched, including those of the rows inside; without waits and events." }
-- self_task_count = { type = "BIGINT", unit = "count", doc = "Tasks that they launched directly." }
-- device_total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the tasks that they launched, including those of the rows inside." }
-- device_self_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the tasks that they launched directly." }
-- device_percent = { type = "DOUBLE", unit = "percent", doc = "100 device_total_ns / the sum of device_self_ns over all rows of the run; NULL if that is 0." }
WITH RECURSIVE place AS MATERIALIZED (
  FROM enclosing_range
), linked AS (
  SELECT f.run_id, f.dst_id AS id, min(f.src_id) AS range_id
  FROM flow AS f
  JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id
  JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
  WHERE run IS NULL OR f.run_id = run
  GROUP BY f.run_id, f.dst_id
), launch AS (
  -- As in launching_range: operators before other ranges, and those around the call before those linked by a flow.
  SELECT t.run_id, t.dur_ns,
         CASE WHEN c.op_id IS NULL AND (w.op_id IS NOT NULL OR (c.other_id IS NULL AND w.other_id IS NOT NULL)) THEN w.path_key
              ELSE coalesce(c.path_key, w.path_key) END AS path_key
  FROM task AS t
  LEFT JOIN launch_delay AS d ON d.run_id = t.run_id AND d.id = t.id
  LEFT JOIN place AS c ON c.run_id = d.run_id AND c.id = d.api_id
  LEFT JOIN linked AS k ON k.run_id = t.run_id AND k.id = t.id
  LEFT JOIN place AS w ON w.run_id = k.run_id AND w.id = k.range_id
  WHERE t.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR t.run_id = run) AND (device IS NULL OR t.device_id = device)
    AND (step IS NULL OR t.step_id = step) AND (first_step IS NULL OR t.step_id >= first_step)
    AND (last_step IS NULL OR t.step_id <= last_step)
), device_time AS (
  SELECT l.run_id, coalesce(l.path_key, 0) AS path_key, count(*) AS tasks, coalesce(sum(l.dur_ns), 0) AS time
  FROM launch AS l
  GROUP BY l.run_id, coalesce(l.path_key, 0)
), host AS (
  SELECT r.run_id, p.path_key, p.parent_key, p.path_depth, r.kind, r.dur_ns, r.self_ns,
         regexp_replace(coalesce(r.name, ''), '^ProfilerStep#[0-9]+$', 'ProfilerStep*') AS name,
         coalesce((step IS NULL OR r.step_id = step) AND (first_step IS NULL OR r.step_id >= first_step)
                  AND (last_step IS NULL OR r.step_id <= last_step), false) AS is_asked
  FROM "range" AS r
  JOIN track AS k ON k.run_id = r.run_id AND k.track_id = r.track_id
  JOIN place AS p ON p.run_id = r.run_id AND p.id = r.id
  -- Ranges on a device's tracks are copies of those of the host.
  WHERE (run IS NULL OR r.run_id = run) AND k.device_id IS NULL
), host_time AS (
  SELECT run_id, path_key, min(parent_key) AS parent_key, min(path_depth) AS depth,
         CASE WHEN min(name) <> max(name) OR min(parent_key) <> max(parent_key) THEN error('two paths have the same hash') ELSE min(name) END AS name, min(kind) AS kind,
         bool_or(is_asked) AS is_asked, count(dur_ns) FILTER (WHERE is_asked) AS ended,
         coalesce(sum(dur_ns) FILTER (WHERE is_asked), 0) AS total,
         coalesce(sum(self_ns) FILTER (WHERE is_asked), 0) AS own
  FROM host
  GROUP BY run_id, path_key
), node AS (
  SELECT h.*, coalesce(d.tasks, 0) AS tasks, coalesce(d.time, 0) AS device_own
  FROM host_time AS h
  LEFT JOIN device_time AS d ON d.run_id = h.run_id AND d.path_key = h.path_key
  UNION ALL
  SELECT d.run_id, 0, NULL, 0, NULL, NULL, true, 0, 0, 0, d.tasks, d.time
  FROM device_time AS d
  WHERE d.path_key = 0
), above AS (
  SELECT n.run_id, n.path_key, n.parent_key AS next_key, n.tasks, n.device_own
  FROM node AS n
  WHERE n.is_asked OR n.tasks > 0
  UNION ALL
  SELECT a.run_id, n.path_key, n.parent_key, a.tasks, a.device_own
  FROM above AS a
  JOIN node AS n ON n.run_id = a.run_id AND n.path_key = a.next_key
), inside AS (
  SELECT run_id, path_key, sum(tasks) AS all_tasks, sum(device_own) AS device_total
  FROM above
  GROUP BY run_id, path_key
), summed AS (
  SELECT n.*, i.all_tasks, i.device_total
  FROM node AS n
  JOIN inside AS i ON i.run_id = n.run_id AND i.path_key = n.path_key
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY run_id, parent_key ORDER BY device_total DESC, total DESC, name, path_key) AS place
  FROM summed
), tree AS (
  SELECT r.run_id, r.path_key, [r.place] AS places, r.name AS path
  FROM ranked AS r
  WHERE r.parent_key IS NULL
  UNION ALL
  SELECT r.run_id, r.path_key, t.places || [r.place], t.path || ' > ' || r.name
  FROM tree AS t
  JOIN ranked AS r ON r.run_id = t.run_id AND r.parent_key = t.path_key
), placed AS (
  SELECT r.*, t.path, row_number() OVER (PARTITION BY r.run_id ORDER BY t.places) AS position,
         sum(r.device_own) OVER (PARTITION BY r.run_id) AS run_device
  FROM tree AS t
  JOIN ranked AS r ON r.run_id = t.run_id AND r.path_key = t.path_key
)
SELECT run_id, position, depth::BIGINT AS depth, repeat('  ', depth::BIGINT) || coalesce(name, '(no range)') AS label, name, kind, path,
       ended::BIGINT AS count,
       TRY_CAST(total AS BIGINT) AS host_total_ns,
       TRY_CAST(own AS BIGINT) AS host_self_ns,
       all_tasks::BIGINT AS task_count,
       tasks::BIGINT AS self_task_count,
       TRY_CAST(device_total AS BIGINT) AS device_total_ns,
       TRY_CAST(device_own AS BIGINT) AS device_self_ns,
       (100 * device_total)::DOUBLE / nullif(run_device, 0)::DOUBLE AS device_percent
FROM placed
ORDER BY run_id, position
