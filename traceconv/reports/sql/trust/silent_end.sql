-- [finding.silent_end]
-- doc = "No event starts and no task runs in the last tenth of the run or more; in PyTorch traces, which have the time when the profiler stopped, in the last 2 % and 150 µs or more."
-- heuristic = true
-- count = "1"
-- affected = "time of this part"
-- reports = "all"
WITH quiet AS (
  -- Runs in which tasks end early. Only these can end in silence, so only their other events are read.
  SELECT r.run_id, t.until_ns
  FROM run AS r
  LEFT JOIN tested AS t ON t.run_id = r.run_id
  WHERE (t.run_id IS NOT NULL OR r.writer LIKE 'PyTorch%') AND {{selected(r.run_id)}}
    AND ((r.end_ns::HUGEINT - t.until_ns) * 50 > r.end_ns::HUGEINT - r.start_ns) IS NOT FALSE
), last_event AS (
  SELECT run_id, max(until_ns) AS until_ns, max(end_ns) AS end_ns
  FROM (
    SELECT run_id, until_ns, NULL AS end_ns FROM quiet
    UNION ALL
    SELECT a.run_id, max(a.start_ns), max(TRY(a.start_ns + a.dur_ns))
    FROM api AS a SEMI JOIN quiet AS q ON q.run_id = a.run_id GROUP BY a.run_id
    UNION ALL
    SELECT r.run_id, max(r.start_ns), max(TRY(r.start_ns + r.dur_ns))
    FROM "range" AS r SEMI JOIN quiet AS q ON q.run_id = r.run_id GROUP BY r.run_id
  )
  GROUP BY run_id
)
SELECT l.run_id, 'silent_end', NULL, 1, NULL, l.end_ns::HUGEINT - l.until_ns
FROM last_event AS l
JOIN run AS r ON r.run_id = l.run_id
WHERE (l.end_ns::HUGEINT - l.until_ns) * CASE WHEN r.writer LIKE 'PyTorch%' AND l.end_ns::HUGEINT - l.until_ns > 150000
                                              THEN 50 ELSE 10 END > l.end_ns::HUGEINT - r.start_ns
