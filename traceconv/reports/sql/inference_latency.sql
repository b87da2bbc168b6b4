-- title = "Inference latency"
-- doc = "How long do inferences take, and how much does it vary? One row per run: count, minimum, maximum, mean, median and percentiles of all its inferences, including warm-ups."
-- needs = ["range"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its inferences; Furiosa's traces have them too."
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
), place AS (
  SELECT l.*, p.thousandths, p.thousandths * (l.ended - 1) // 1000 + 1 AS lower_place,
         p.thousandths * (l.ended - 1) % 1000 AS rest
  FROM latency AS l
  CROSS JOIN (VALUES (NULL), (500), (900), (950), (970), (990), (999)) AS p(thousandths)
), fraction AS (
  -- The percentiles in thousandths, and the mean as another fraction: all are rounded in one place below.
  SELECT run_id, started, ended, sorted[1] AS shortest, sorted[ended] AS longest, thousandths,
         CASE WHEN thousandths IS NULL THEN total
              ELSE sorted[lower_place] * 1000
                   + (coalesce(sorted[lower_place + 1], sorted[lower_place]) - sorted[lower_place]) * rest
         END AS part,
         CASE WHEN thousandths IS NULL THEN nullif(ended, 0) ELSE 1000 END AS divisor
  FROM place
), rounded AS (
  SELECT run_id, started, ended, shortest, longest, thousandths,
         part // divisor + CASE WHEN 2 * (part % divisor) > divisor THEN 1
                              WHEN 2 * (part % divisor) = divisor THEN part // divisor % 2 ELSE 0 END AS value
  FROM fraction
)
SELECT run_id, max(ended)::BIGINT AS count, max(started - ended)::BIGINT AS unfinished_count,
       max(shortest)::BIGINT AS min_ns, max(longest)::BIGINT AS max_ns,
       max(value) FILTER (WHERE thousandths IS NULL)::BIGINT AS mean_ns,
       max(value) FILTER (WHERE thousandths = 500)::BIGINT AS median_ns,
       max(value) FILTER (WHERE thousandths = 900)::BIGINT AS p90_ns,
       max(value) FILTER (WHERE thousandths = 950)::BIGINT AS p95_ns,
       max(value) FILTER (WHERE thousandths = 970)::BIGINT AS p97_ns,
       max(value) FILTER (WHERE thousandths = 990)::BIGINT AS p99_ns,
       max(value) FILTER (WHERE thousandths = 999)::BIGINT AS p99_9_ns
FROM rounded
GROUP BY run_id
ORDER BY run_id
