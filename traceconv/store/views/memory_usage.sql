-- title = "Memory in use over time"
-- doc = "Used and reserved bytes of each device and each of its pools, after each change. Changes with the same timestamp give one row."
-- order = ["run_id", "device_id", "level", "pool", "ts_ns"]
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
-- level = { type = "VARCHAR", unit = "enum", doc = "device: all pools of the device together; pool: one of them." }
-- pool = { type = "VARCHAR", unit = "text", doc = "Allocator pool; NULL for all pools together, and if unknown." }
-- ts_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Time of the change; blocks allocated before the recording count from the first change, 1 ns before it if that is a free." }
-- used_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes in blocks; NULL if they exceed 64 bits." }
-- reserved_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes in segments, which the allocator has reserved from the device; NULL if the source has none." }
WITH first AS (
  SELECT m.run_id, m.device_id,
         coalesce(least(min(m.alloc_ns), min(CASE WHEN m.free_ns > -9223372036854775807 THEN m.free_ns - 1 ELSE m.free_ns END)),
                  min(r.start_ns), 0) AS first_ns,
         bool_or(m.kind = 'segment') AS has_segments
  FROM memory AS m
  LEFT JOIN run AS r ON r.run_id = m.run_id
  GROUP BY m.run_id, m.device_id
), event AS (
  SELECT m.run_id, m.device_id, m.pool, m.kind = 'segment' AS is_segment, m.size_bytes, m.alloc_ns AS ts_ns
  FROM memory AS m
  UNION ALL
  SELECT m.run_id, m.device_id, m.pool, m.kind = 'segment' AS is_segment, TRY(-m.size_bytes) AS size_bytes, m.free_ns AS ts_ns
  FROM memory AS m
  WHERE m.free_ns >= m.alloc_ns OR (m.free_ns IS NOT NULL AND m.alloc_ns IS NULL)
), timed AS (
  SELECT e.run_id, e.device_id, e.pool, coalesce(e.ts_ns, f.first_ns) AS ts_ns,
         CASE WHEN e.is_segment THEN 0 ELSE e.size_bytes END AS used,
         CASE WHEN e.is_segment THEN e.size_bytes WHEN f.has_segments THEN 0 END AS reserved
  FROM event AS e
  JOIN first AS f ON f.run_id = e.run_id AND f.device_id IS NOT DISTINCT FROM e.device_id
), running AS (
  -- The sums include all changes of the same time, of which the last row is kept. Of a query for one level, DuckDB
  -- computes only that.
  SELECT run_id, device_id, 'device' AS level, NULL AS pool, ts_ns, sum(used) OVER of_device AS used,
         sum(reserved) OVER of_device AS reserved
  FROM timed
  WINDOW of_device AS (PARTITION BY run_id, device_id ORDER BY ts_ns)
  QUALIFY lead(ts_ns) OVER of_device IS DISTINCT FROM ts_ns
  UNION ALL
  SELECT run_id, device_id, 'pool' AS level, pool, ts_ns, sum(used) OVER of_pool AS used,
         sum(reserved) OVER of_pool AS reserved
  FROM timed
  WINDOW of_pool AS (PARTITION BY run_id, device_id, pool ORDER BY ts_ns)
  QUALIFY lead(ts_ns) OVER of_pool IS DISTINCT FROM ts_ns
)
SELECT run_id, device_id, level, pool, ts_ns, TRY_CAST(used AS BIGINT) AS used_bytes,
       TRY_CAST(reserved AS BIGINT) AS reserved_bytes
FROM running
