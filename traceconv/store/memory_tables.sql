--- devices
-- When blocks appear whose allocation is unknown is as in the view memory_usage.
SELECT m.run_id, m.device_id,
       coalesce(least(min(m.alloc_ns), min(CASE WHEN m.free_ns > -{largest} THEN m.free_ns - 1 ELSE m.free_ns END)),
                min(r.start_ns), 0),
       coalesce(bool_or(m.kind = 'segment'), false), count(m.pool) > 0,
       count(*) = count(m.size_bytes) AND sum(abs(m.size_bytes::HUGEINT)) <= {largest}
FROM memory AS m
LEFT JOIN run AS r ON r.run_id = m.run_id
WHERE m.run_id IN ({runs})
GROUP BY ALL
ORDER BY ALL

--- changes
SELECT pool, alloc_ns AS ts_ns, {allocated} FROM memory WHERE {of} AND alloc_ns IS NOT NULL
UNION ALL
SELECT pool, free_ns, {freed} FROM memory
WHERE {of} AND free_ns IS NOT NULL AND (free_ns >= alloc_ns OR alloc_ns IS NULL)
UNION ALL
SELECT pool, {first_ns}::BIGINT, {allocated} FROM memory WHERE {of} AND alloc_ns IS NULL

--- sizes
CASE WHEN kind = 'segment' THEN 0 ELSE {sign}size_bytes END AS used,
CASE WHEN kind = 'segment' THEN {sign}size_bytes ELSE 0 END AS reserved

--- tasks
-- DuckDB reads only the row groups that bounds of a column allow, not those of an expression.
SELECT id, step_id, submit_ns AS ts_ns FROM task WHERE {of} AND op_id IS NOT NULL AND submit_ns IS NOT NULL
UNION ALL
SELECT id, step_id, start_ns FROM task
WHERE {of} AND op_id IS NOT NULL AND submit_ns IS NULL AND start_ns IS NOT NULL

--- inexact_tasks
-- Sums of more than 64 bits, and unknown sizes.
INSERT INTO task_memory BY NAME
SELECT * EXCLUDE (before_bytes), TRY(used_bytes - before_bytes) AS used_change_bytes
FROM (
  SELECT {run}::BIGINT AS run_id, t.id, {device}::BIGINT AS device_id, t.step_id, t.ts_ns AS at_ns, u.used_bytes,
         u.reserved_bytes, lag(u.used_bytes) OVER (ORDER BY t.ts_ns, t.id) AS before_bytes
  FROM ({tasks}) AS t
  ASOF LEFT JOIN (FROM memory_usage WHERE {of} AND level = 'device') AS u ON u.ts_ns <= t.ts_ns
)
