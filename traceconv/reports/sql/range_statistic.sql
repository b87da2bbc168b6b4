-- title = "Ranges by name"
-- doc = "Which operators of a framework, modules, annotations take the host's time, and what of it is their own? One row for each kind, category and name, over all threads; total_ns includes what lies inside a range, self_ns does not. What ran on a device: traceconv report op-statistic."
-- needs = ["range"]
-- when_empty = "Ranges are what a framework or a program marks: operators of PyTorch, record_function, NVTX, the marks of traceconv.profile."
-- order = ["run_id", "self_ns DESC", "kind", "category", "name"]
-- measure = "self_ns"
-- shown = ["kind", "name", "count", "self_ns", "total_ns", "avg_ns", "max_ns"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; all when NULL." }
-- step = { type = "BIGINT", doc = "Only ranges of this step (step.step_id); all, also those outside steps, when NULL." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "What the range is: annotation, module, host_op, inference, execution, external_op; NULL when not known." }
-- category = { type = "VARCHAR", unit = "text", doc = "Category as the source gives it, such as cpu_op; NULL when there is none." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the ranges; NULL when not known." }
-- count = { type = "BIGINT", unit = "count", doc = "Ranges that ended: those that the times are of." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Ranges whose end is not in the source; they are in no other column." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations; one inside another of the same name counts as well." }
-- self_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations less those of the ranges and calls directly inside of them, on the same track." }
-- min_ns = { type = "BIGINT", unit = "ns", doc = "Shortest duration; NULL when none ended." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", doc = "total_ns / count, exactly, rounded half up to 0.001 ns; NULL when none ended." }
-- max_ns = { type = "BIGINT", unit = "ns", doc = "Longest duration; NULL when none ended." }
WITH by_name AS (
  SELECT r.run_id, r.kind, r.category, r.name, count(*) AS started, count(r.dur_ns) AS ended,
         coalesce(sum(r.dur_ns), 0) AS total, coalesce(sum(r.self_ns), 0) AS own,
         min(r.dur_ns) AS shortest, max(r.dur_ns) AS longest
  FROM "range" AS r
  WHERE (run IS NULL OR r.run_id = run) AND (step IS NULL OR r.step_id = step)
  GROUP BY r.run_id, r.kind, r.category, r.name
)
SELECT run_id, kind, category, name,
       ended::BIGINT AS count,
       (started - ended)::BIGINT AS unfinished_count,
       TRY_CAST(total AS BIGINT) AS total_ns,
       TRY_CAST(own AS BIGINT) AS self_ns,
       shortest AS min_ns,
       (((2000 * total + ended) // nullif(2 * ended, 0))::DECIMAL(38,0) * 0.001)::DECIMAL(22,3) AS avg_ns,
       longest AS max_ns
FROM by_name
ORDER BY run_id, self_ns DESC, kind, category, name
