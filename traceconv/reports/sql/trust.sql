-- title = "What the profiler lost or distorted"
-- doc = "How far can the numbers of other reports be off? One row per finding; none if nothing was found. Rows of place start, middle and end are parts of the run in which launches or tasks are missing: before the first complete one, after the last, and between."
-- needs = ["task"]
-- when_empty = "Without findings, no launches or tasks are missing, and no times contradict each other."
-- order = ["run_id", "finding", "place"]
-- measure = "count"
-- shown = ["finding", "place", "count", "total_count", "affected_ns", "affected_percent", "reports"]
-- selects = { run = true }
-- [columns]
-- finding = { type = "VARCHAR", unit = "enum", doc = "What was found: traceconv schema trust lists the findings." }
-- place = { type = "VARCHAR", unit = "enum", doc = "start, middle or end, by the times of complete launches, functions or steps; NULL for other findings, and if all launches are lost." }
-- count = { type = "BIGINT", unit = "count", doc = "Tasks, calls, steps or others that the finding counts." }
-- total_count = { type = "BIGINT", unit = "count", doc = "Those examined; NULL if unknown." }
-- affected_ns = { type = "BIGINT", unit = "ns", doc = "Time that the finding affects; NULL for findings without one." }
-- affected_percent = { type = "DOUBLE", unit = "percent", doc = "affected_ns in percent of the run's duration; may exceed 100 with several streams; NULL if unknown." }
-- reports = { type = "VARCHAR", unit = "text", doc = "Reports whose numbers it affects." }
WITH called_word AS MATERIALIZED (
  -- A bit for each of 64 consecutive IDs: joining single IDs takes twenty times as long.
  SELECT a.run_id, a.name, a.correlation_id >> 6 AS word, bit_or(1::UBIGINT << (a.correlation_id & 63)::UBIGINT) AS bits
  FROM api AS a
  WHERE a.correlation_id IS NOT NULL AND a.start_ns IS NOT NULL AND {{selected(a.run_id)}}
  GROUP BY ALL
), with_task AS MATERIALIZED (
  SELECT t.run_id, t.correlation_id >> 6 AS word, bit_or(1::UBIGINT << (t.correlation_id & 63)::UBIGINT) AS bits
  FROM task AS t
  WHERE t.correlation_id IS NOT NULL AND {{selected(t.run_id)}}
  GROUP BY ALL
), run_flow AS MATERIALIZED (
  SELECT f.run_id, count(*) AS flows, count(CASE WHEN f.kind = 'launch' THEN f.dst_id END) AS launches,
         count(CASE WHEN f.src_id IS NULL OR f.dst_id IS NULL THEN 1 END) AS broken
  FROM flow AS f
  WHERE {{selected(f.run_id)}}
  GROUP BY f.run_id
), tested AS MATERIALIZED (
  SELECT w.run_id, count(*) AS tasks, count(*) - count(w.dur_ns) AS unfinished, count(w.submit_ns) AS delays,
         count(w.api_id) AS launched,
         max(w.start_ns + coalesce(w.dur_ns, 0)) AS until_ns
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}}
  GROUP BY w.run_id
), found (run_id, finding, place, count, total, affected, reports) AS (
{{trust/*}}
)
SELECT f.run_id, f.finding, f.place, f.count::BIGINT AS count, f.total::BIGINT AS total_count,
       TRY_CAST(f.affected AS BIGINT) AS affected_ns,
       100 * f.affected::DOUBLE / nullif(r.end_ns::HUGEINT - r.start_ns, 0)::DOUBLE AS affected_percent, f.reports
FROM found AS f
LEFT JOIN run AS r ON r.run_id = f.run_id
WHERE f.count > 0
ORDER BY f.run_id, f.finding, f.place
