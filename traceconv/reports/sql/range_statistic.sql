-- title = "Ranges by name"
-- doc = "Which framework operators, modules and annotations take the most host time, and how much is self time? One row per kind, category and name, over all threads; total_ns includes children of a range, self_ns does not. Ranges that a source shows on streams (gpu_user_annotation) have device time and rows of their own. Ranges of kind summary, which repeat the time of others, are left out. For the time of tasks, see traceconv report op-statistic."
-- needs = ["range"]
-- when_empty = "Ranges come from annotations of a framework or program: PyTorch operators, record_function, NVTX, spans of traceconv.profile."
-- order = ["run_id", "self_ns DESC", "kind", "category", "name", "place"]
-- measure = "self_ns"
-- shown = ["place", "kind", "name", "count", "self_ns", "total_ns", "avg_ns", "max_ns"]
-- selects = { run = true, steps = "ranges", time = "ranges that start, with their full duration" }
-- [columns]
-- kind = { type = "VARCHAR", unit = "enum", doc = "Kind of range: annotation, module, host_op, inference, execution, external_op or frame; NULL if unknown." }
-- category = { type = "VARCHAR", unit = "text", doc = "Category in the source, such as cpu_op; NULL if none." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the ranges; NULL if unknown." }
-- count = { type = "BIGINT", unit = "count", doc = "Ranges that ended; the times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Ranges without an end in the source; not counted in other columns." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations, including nested ranges of the same name." }
-- self_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their self times: without their direct children (ranges and calls) on the same track." }
-- min_ns = { type = "BIGINT", unit = "ns", doc = "Shortest duration; NULL if none ended." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", doc = "total_ns / count, rounded half up to 0.001 ns; NULL if none ended." }
-- max_ns = { type = "BIGINT", unit = "ns", doc = "Longest duration; NULL if none ended." }
-- place = { type = "VARCHAR", unit = "enum", doc = "host, or device for ranges on a stream." }
WITH by_name AS (
  SELECT r.run_id, r.kind, r.category, r.name, count(*) AS started, count(r.dur_ns) AS ended,
         coalesce(sum(r.dur_ns), 0) AS total, coalesce(sum(r.self_ns), 0) AS own,
         min(r.dur_ns) AS shortest, max(r.dur_ns) AS longest,
         CASE WHEN k.track_id IS NULL THEN 'host' ELSE 'device' END AS place
  FROM "range" AS r
  LEFT JOIN track AS k ON k.run_id = r.run_id AND k.track_id = r.track_id AND k.kind = 'stream'
  WHERE r.kind IS DISTINCT FROM 'summary' AND {{selected(r.run_id, r.step_id, r.start_ns)}}
  GROUP BY r.run_id, r.kind, r.category, r.name, place
)
SELECT run_id, kind, category, name,
       ended::BIGINT AS count,
       (started - ended)::BIGINT AS unfinished_count,
       TRY_CAST(total AS BIGINT) AS total_ns,
       TRY_CAST(own AS BIGINT) AS self_ns,
       shortest AS min_ns,
       average_ns(total, ended) AS avg_ns,
       longest AS max_ns, place
FROM by_name
ORDER BY run_id, self_ns DESC, kind, category, name, place
