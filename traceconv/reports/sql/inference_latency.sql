-- title = "Inference latency"
-- doc = "How long do inferences take, and how much does it vary? One row per run: count, minimum, maximum, mean, median and percentiles of all its inferences, including warm-ups."
-- needs = ["range"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its inferences; traces of onnxruntime and Furiosa have them too."
-- order = ["run_id"]
-- measure = "mean_ns"
-- shown = ["count", "min_ns", "max_ns", "mean_ns", "median_ns", "p90_ns", "p95_ns", "p97_ns", "p99_ns", "p99_9_ns"]
-- selects = { run = true, steps = "Only the inference of this step (step.step_id); NULL: all inferences.", time = "inferences that start" }
-- [columns]
-- count = { type = "BIGINT", unit = "count", doc = "Inferences that ended; the times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Inferences without an end in the source; not counted in other columns." }
-- min_ns = { type = "BIGINT", unit = "ns", doc = "Shortest latency." }
-- max_ns = { type = "BIGINT", unit = "ns", doc = "Longest latency." }
-- mean_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the latencies / count, rounded to the nearest integer, half to even." }
-- median_ns = { type = "BIGINT", unit = "ns", doc = "The 50th percentile, computed like p90_ns." }
-- p90_ns = { type = "BIGINT", unit = "ns", doc = "The 90th percentile: of the n sorted latencies, the value at index 90 (n − 1) / 100, from 0, interpolated linearly between the two adjacent ones and rounded like mean_ns, in integer arithmetic." }
-- p95_ns = { type = "BIGINT", unit = "ns", doc = "The 95th percentile, computed like p90_ns." }
-- p97_ns = { type = "BIGINT", unit = "ns", doc = "The 97th percentile, computed like p90_ns." }
-- p99_ns = { type = "BIGINT", unit = "ns", doc = "The 99th percentile, computed like p90_ns." }
-- p99_9_ns = { type = "BIGINT", unit = "ns", doc = "The 99.9th percentile, computed like p90_ns." }
WITH latency AS (
  SELECT r.run_id, count(*) AS started, count(r.dur_ns) AS ended, sum(r.dur_ns) AS total,
         list(r.dur_ns::HUGEINT ORDER BY r.dur_ns) FILTER (WHERE r.dur_ns IS NOT NULL) AS sorted
  FROM "range" AS r
  WHERE r.kind = 'inference' AND {{selected(r.run_id, r.step_id, r.start_ns)}}
  GROUP BY r.run_id
)
SELECT run_id, ended AS count, started - ended AS unfinished_count, sorted[1]::BIGINT AS min_ns,
       sorted[ended]::BIGINT AS max_ns, half_even(total, ended)::BIGINT AS mean_ns,
       percentile_ns(sorted, ended, 500) AS median_ns, percentile_ns(sorted, ended, 900) AS p90_ns,
       percentile_ns(sorted, ended, 950) AS p95_ns, percentile_ns(sorted, ended, 970) AS p97_ns,
       percentile_ns(sorted, ended, 990) AS p99_ns, percentile_ns(sorted, ended, 999) AS p99_9_ns
FROM latency
ORDER BY run_id
