-- [finding.shared_threads]
-- doc = "Operators and calls of a thread whose process and number are also those of a device and its stream, as in containers, where processes have small numbers: all are on one track, so tasks count as inside of operators."
-- count = "operators and calls"
-- affected = "sum of the durations"
-- reports = "op-tree, range-statistic, roofline, exports"
SELECT k.run_id, 'shared_threads', NULL, count(*), NULL, sum(h.dur_ns)
FROM track AS k
JOIN (
  SELECT run_id, track_id, dur_ns FROM "range" WHERE kind = 'host_op'
  UNION ALL
  SELECT run_id, track_id, dur_ns FROM api WHERE level IN ('runtime', 'driver')
) AS h ON h.run_id = k.run_id AND h.track_id = k.track_id
WHERE k.kind = 'stream' AND (run IS NULL OR k.run_id = run)
GROUP BY k.run_id
