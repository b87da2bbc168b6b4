-- title = "Host calls by name"
-- doc = "Which runtime calls take the most host time? One row per layer and name of call, over all threads; a call's time includes the calls inside it."
-- needs = ["api"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log the host's calls."
-- order = ["run_id", "total_ns DESC", "level", "name"]
-- measure = "total_ns"
-- shown = ["level", "name", "total_ns", "count", "avg_ns", "min_ns", "max_ns"]
-- selects = { run = true, steps = "calls", time = "calls that start, with their full duration" }
-- [msprof_constants]
-- Device_id = "host"
-- [columns]
-- level = { type = "VARCHAR", unit = "text", msprof = "Level", doc = "Software layer, such as acl or runtime; NULL if unknown." }
-- name = { type = "VARCHAR", unit = "text", msprof = "API Name", doc = "Name of the call; NULL if unknown." }
-- total_ns = { type = "BIGINT", unit = "ns", msprof = "Time(us)", msprof_as = "short_us", doc = "Sum of the durations of the calls that ended." }
-- count = { type = "BIGINT", unit = "count", msprof = "Count", doc = "Calls that ended; the times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Calls without an end in the source; not counted in other columns." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", msprof = "Avg(us)", msprof_as = "short_us", doc = "total_ns / count, rounded half up to 0.001 ns; NULL if none ended." }
-- min_ns = { type = "BIGINT", unit = "ns", msprof = "Min(us)", msprof_as = "short_us", doc = "Shortest duration; NULL if none ended." }
-- max_ns = { type = "BIGINT", unit = "ns", msprof = "Max(us)", msprof_as = "short_us", doc = "Longest duration; NULL if none ended." }
-- variance_us2 = { type = "DOUBLE", unit = "us²", msprof = "Variance", msprof_as = "ratio", doc = "Population variance of the durations in µs: (Σx² − (Σx)²/n)/n of the durations in ns, over 10⁶, in integer arithmetic except for the last division. NULL if none ended or one lasted 2⁵⁰ ns (13 days) or more." }
WITH by_name AS (
  SELECT a.run_id, a.level, a.name, count(*) AS started, count(a.dur_ns)::HUGEINT AS ended,
         coalesce(sum(a.dur_ns), 0) AS total, min(a.dur_ns) AS shortest, max(a.dur_ns) AS longest,
         -- Bounded, so that sums of squares fit 128 bits; longer durations make the variance NULL below.
         -- (least() of NULL and a number is the number, so NULLs are excluded explicitly.)
         sum(least(a.dur_ns, 1125899906842624)) FILTER (a.dur_ns IS NOT NULL) AS bounded,
         sum(least(a.dur_ns, 1125899906842624)::HUGEINT * least(a.dur_ns, 1125899906842624))
           FILTER (a.dur_ns IS NOT NULL) AS squares
  FROM api AS a
  WHERE {{selected(a.run_id, a.step_id, a.start_ns)}}
  GROUP BY a.run_id, a.level, a.name
)
SELECT run_id, level, name,
       TRY_CAST(total AS BIGINT) AS total_ns,
       ended::BIGINT AS count,
       (started - ended)::BIGINT AS unfinished_count,
       average_ns(total, ended) AS avg_ns,
       shortest AS min_ns,
       longest AS max_ns,
       CASE WHEN longest < 1125899906842624 THEN
         -- (Σx)² = q·n + r, so that Σx² − (Σx)²/n = (Σx² − q) − r/n; the first part is an integer.
         ((squares - bounded * bounded // ended)::DOUBLE - (bounded * bounded % ended)::DOUBLE / ended::DOUBLE)
           / ended::DOUBLE / 1e6
       END AS variance_us2
FROM by_name
ORDER BY run_id, total_ns DESC, level, name
