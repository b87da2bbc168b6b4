-- title = "Launches by task name"
-- doc = "Which tasks start late after their launch, and which are too short to be worth one? One row per name and device, for tasks with a known launch, except events and waits (kind sync)."
-- needs = ["task", "api"]
-- when_empty = "Launches are known from calls with the correlation IDs of tasks: in PyTorch with ProfilerActivity.CPU and CUDA; of a model with traceconv record MODEL -o DIR. The report trust counts launches that are unclear."
-- order = ["run_id", "device_id", "total_delay_ns DESC", "kind", "name"]
-- measure = "total_delay_ns"
-- shown = ["device_id", "name", "count", "short_count", "total_call_ns", "total_ns", "p50_delay_ns", "max_delay_ns", "uncertain_count"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks launched" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL if unknown." }
-- kind = { type = "VARCHAR", unit = "enum", doc = "compute, copy or collective; NULL if unknown." }
-- name = { type = "VARCHAR", unit = "text", doc = "Name of the tasks." }
-- count = { type = "BIGINT", unit = "count", doc = "Tasks with a known launch." }
-- short_count = { type = "BIGINT", unit = "count", doc = "Those shorter than the call that launched them." }
-- uncertain_count = { type = "BIGINT", unit = "count", doc = "Those whose delay does not exceed the clock error; NULL if the error is unknown." }
-- total_call_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the calls, one for each task." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of the tasks." }
-- total_delay_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the delays: from the start of the call to the start of the task." }
-- min_delay_ns = { type = "BIGINT", unit = "ns", doc = "Shortest delay." }
-- p50_delay_ns = { type = "BIGINT", unit = "ns", doc = "Median of the delays; the smaller one of two." }
-- max_delay_ns = { type = "BIGINT", unit = "ns", doc = "Longest delay." }
WITH by_name AS (
  SELECT d.run_id, d.device_id, d.kind, d.name, count(*) AS launches, count(*) FILTER (WHERE d.dur_ns < d.call_ns) AS short,
         count(*) FILTER (WHERE NOT d.certain) AS uncertain, count(d.certain) AS known, sum(d.call_ns) AS calls,
         sum(d.dur_ns) AS total, sum(d.delay_ns) AS delays, min(d.delay_ns) AS shortest,
         quantile_disc(d.delay_ns, 0.5) AS median, max(d.delay_ns) AS longest
  FROM launch_delay AS d
  WHERE d.kind IS DISTINCT FROM 'sync' AND {{selected(d.run_id, d.device_id, d.step_id, d.submit_ns)}}
  GROUP BY d.run_id, d.device_id, d.kind, d.name
)
SELECT run_id, device_id, kind, name, launches AS count, short AS short_count,
       CASE WHEN known > 0 THEN uncertain END AS uncertain_count, TRY_CAST(calls AS BIGINT) AS total_call_ns,
       TRY_CAST(total AS BIGINT) AS total_ns, TRY_CAST(delays AS BIGINT) AS total_delay_ns, shortest AS min_delay_ns,
       median AS p50_delay_ns, longest AS max_delay_ns
FROM by_name
ORDER BY run_id, device_id, total_delay_ns DESC, kind, name
