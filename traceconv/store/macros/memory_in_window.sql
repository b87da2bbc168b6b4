-- doc = "Bytes in use at some times of a window, among them those of the peaks of each device and pool: run_id, device_id, level, pool, ts_ns, used_bytes, reserved_bytes."
-- # Intervals within the window have their peaks. In those at its ends, changes are added to what was in use before.
memory_in_window(of_run, of_device, from_ns, to_ns) AS TABLE
WITH piece AS (
  SELECT i.*, coalesce(lag(used_bytes) OVER of_pool, 0) AS before_used,
         CASE WHEN has_segments THEN coalesce(lag(reserved_bytes) OVER of_pool, 0) END AS before_reserved,
         min(start_ns) OVER (PARTITION BY run_id, device_id) AS first_ns,
         coalesce(peak_used_ns IS NULL OR (start_ns <= from_ns AND end_ns > from_ns)
           OR (start_ns < to_ns AND end_ns >= to_ns), false) AS is_cut
  FROM memory_interval AS i
  WHERE (of_run IS NULL OR run_id = of_run) AND (of_device IS NULL OR device_id = of_device)
  WINDOW of_pool AS (PARTITION BY run_id, device_id, level, pool ORDER BY start_ns)
), cut AS MATERIALIZED (
  SELECT * FROM piece WHERE is_cut
), change AS (
  SELECT c.*, coalesce(m.alloc_ns, c.first_ns) AS ts_ns, m.kind, m.size_bytes AS bytes
  FROM memory AS m
  JOIN cut AS c ON c.run_id = m.run_id AND c.device_id IS NOT DISTINCT FROM m.device_id
    AND (c.level = 'device' OR c.pool IS NOT DISTINCT FROM m.pool)
    AND coalesce(m.alloc_ns, c.first_ns) BETWEEN c.start_ns AND c.end_ns
  UNION ALL
  SELECT c.*, m.free_ns AS ts_ns, m.kind, TRY(-m.size_bytes) AS bytes
  FROM memory AS m
  JOIN cut AS c ON c.run_id = m.run_id AND c.device_id IS NOT DISTINCT FROM m.device_id
    AND (c.level = 'device' OR c.pool IS NOT DISTINCT FROM m.pool) AND m.free_ns BETWEEN c.start_ns AND c.end_ns
  WHERE m.free_ns >= m.alloc_ns OR m.alloc_ns IS NULL
), at_time AS (
  SELECT run_id, device_id, level, pool, start_ns, before_used, before_reserved, ts_ns,
         sum(CASE WHEN kind = 'segment' THEN 0 ELSE bytes END) AS used,
         sum(CASE WHEN kind = 'segment' THEN bytes WHEN has_segments THEN 0 END) AS reserved
  FROM change
  GROUP BY ALL
), known AS (
  SELECT run_id, device_id, level, pool, ts_ns, TRY_CAST(before_used + sum(used) OVER so_far AS BIGINT) AS used_bytes,
         TRY_CAST(before_reserved + sum(reserved) OVER so_far AS BIGINT) AS reserved_bytes
  FROM at_time
  WINDOW so_far AS (PARTITION BY run_id, device_id, level, pool, start_ns ORDER BY ts_ns)
  UNION ALL
  SELECT run_id, device_id, level, pool, end_ns AS ts_ns, used_bytes, reserved_bytes
  FROM piece
  WHERE NOT is_cut AND end_ns <= from_ns
)
SELECT run_id, device_id, level, pool, ts_ns, used_bytes, reserved_bytes
FROM known
WHERE (from_ns IS NULL OR ts_ns > from_ns) AND (to_ns IS NULL OR ts_ns < to_ns)
UNION ALL
-- What is in use at from_ns, since the last change until then, counts too.
SELECT run_id, device_id, level, pool, from_ns AS ts_ns,
       unnest(max_by({ 'used_bytes': used_bytes, 'reserved_bytes': reserved_bytes }, ts_ns))
FROM known
WHERE ts_ns <= from_ns AND (to_ns IS NULL OR from_ns < to_ns)
GROUP BY run_id, device_id, level, pool
UNION ALL
SELECT run_id, device_id, level, pool, peak_used_ns AS ts_ns, peak_used_bytes AS used_bytes,
       reserved_at_peak_bytes AS reserved_bytes
FROM piece
WHERE NOT is_cut AND (from_ns IS NULL OR start_ns > from_ns) AND (to_ns IS NULL OR end_ns < to_ns)
UNION ALL
SELECT run_id, device_id, level, pool, peak_reserved_ns AS ts_ns, NULL AS used_bytes,
       peak_reserved_bytes AS reserved_bytes
FROM piece
WHERE NOT is_cut AND (from_ns IS NULL OR start_ns > from_ns) AND (to_ns IS NULL OR end_ns < to_ns)
