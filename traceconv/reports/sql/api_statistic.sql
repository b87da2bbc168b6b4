-- title = "Calls of the host by name"
-- doc = "Which calls into the runtime take the host's time? One row for each layer and name of call, over all threads; a call's time includes the calls inside it."
-- needs = ["api"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR): the host's calls are logged."
-- order = ["run_id", "total_ns DESC", "level", "name"]
-- measure = "total_ns"
-- shown = ["level", "name", "total_ns", "count", "avg_ns", "min_ns", "max_ns"]
-- [msprof_constants]
-- Device_id = "host"
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; all when NULL." }
-- step = { type = "BIGINT", doc = "Only calls of this step (step.step_id); all, also those outside steps, when NULL." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run that the row belongs to." }
-- level = { type = "VARCHAR", unit = "text", msprof = "Level", doc = "Layer of the software, such as acl or runtime; NULL when not known." }
-- name = { type = "VARCHAR", unit = "text", msprof = "API Name", doc = "Name of the call; NULL when not known." }
-- total_ns = { type = "BIGINT", unit = "ns", msprof = "Time(us)", msprof_as = "us", doc = "Sum of the durations of the calls that ended." }
-- count = { type = "BIGINT", unit = "count", msprof = "Count", doc = "Calls that ended: those that the times are of." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Calls whose end is not in the source; they are in no other column." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", msprof = "Avg(us)", msprof_as = "us", doc = "total_ns / count, exactly, rounded half up to 0.001 ns; NULL when none ended." }
-- min_ns = { type = "BIGINT", unit = "ns", msprof = "Min(us)", msprof_as = "us", doc = "Shortest duration; NULL when none ended." }
-- max_ns = { type = "BIGINT", unit = "ns", msprof = "Max(us)", msprof_as = "us", doc = "Longest duration; NULL when none ended." }
-- variance_us2 = { type = "DOUBLE", unit = "us²", msprof = "Variance", msprof_as = "ratio", doc = "Population variance of the durations in µs: (Σx² − (Σx)²/n)/n over whole ns, in integers but for the last division, over 10⁶. NULL when none ended, or when one lasted 2⁵⁰ ns (13 days) or more." }
WITH by_name AS (
  SELECT a.run_id, a.level, a.name, count(*) AS started, count(a.dur_ns)::HUGEINT AS ended,
         coalesce(sum(a.dur_ns), 0) AS total, min(a.dur_ns) AS shortest, max(a.dur_ns) AS longest,
         -- Bounded, so that no sum of squares can leave 128 bits; longer ones make the variance NULL below.
         -- (least() of a NULL and a number is the number: NULLs are left out by hand.)
         sum(least(a.dur_ns, 1125899906842624)) FILTER (a.dur_ns IS NOT NULL) AS bounded,
         sum(least(a.dur_ns, 1125899906842624)::HUGEINT * least(a.dur_ns, 1125899906842624))
           FILTER (a.dur_ns IS NOT NULL) AS squares
  FROM api AS a
  WHERE (run IS NULL OR a.run_id = run) AND (step IS NULL OR a.step_id = step)
  GROUP BY a.run_id, a.level, a.name
)
SELECT run_id, level, name,
       TRY_CAST(total AS BIGINT) AS total_ns,
       ended::BIGINT AS count,
       (started - ended)::BIGINT AS unfinished_count,
       (((2000 * total + ended) // nullif(2 * ended, 0))::DECIMAL(38,0) * 0.001)::DECIMAL(22,3) AS avg_ns,
       shortest AS min_ns,
       longest AS max_ns,
       CASE WHEN longest < 1125899906842624 THEN
         -- (Σx)² = q·n + r, so that Σx² − (Σx)²/n = (Σx² − q) − r/n; the first part is an integer.
         ((squares - bounded * bounded // ended)::DOUBLE - (bounded * bounded % ended)::DOUBLE / ended::DOUBLE)
           / ended::DOUBLE / 1e6
       END AS variance_us2
FROM by_name
ORDER BY run_id, total_ns DESC, level, name
