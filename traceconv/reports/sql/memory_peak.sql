-- title = "Memory peaks"
-- doc = "What was the peak of used and reserved memory, when, for which op, and what was in it? One row per device (pool NULL), and one per pool if the source names pools. A used peak far below the reserved memory indicates fragmentation."
-- needs = ["memory"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR), or a PyTorch or Paddle trace with profile_memory=True, to log allocations and frees."
-- order = ["run_id", "device_id", "level", "pool"]
-- measure = "peak_used_bytes"
-- shown = ["device_id", "level", "pool", "peak_used_bytes", "peak_ns", "reserved_bytes", "fragmentation_bytes", "peak_reserved_bytes", "peak_op"]
-- selects = { run = true, device = true, time = ["Only from this time on, including what is in use at that time; NULL: no limit.", "Only before this time; NULL: no limit."] }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
-- level = { type = "VARCHAR", unit = "enum", doc = "device: all pools together; pool: one of them." }
-- pool = { type = "VARCHAR", unit = "text", doc = "Allocator pool; NULL for all pools together, and for blocks of unknown pools." }
-- peak_used_bytes = { type = "BIGINT", unit = "byte", doc = "Peak bytes in blocks." }
-- peak_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "First time of this peak." }
-- reserved_bytes = { type = "BIGINT", unit = "byte", doc = "Bytes reserved by the allocator at that time; NULL if the source has no segments." }
-- fragmentation_bytes = { type = "BIGINT", unit = "byte", doc = "reserved_bytes − peak_used_bytes: reserved but unused at that time; NULL if one is NULL." }
-- peak_reserved_bytes = { type = "BIGINT", unit = "byte", doc = "Peak bytes in segments; NULL if the source has none." }
-- peak_reserved_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "First time of this peak." }
-- live_count = { type = "BIGINT", unit = "count", doc = "Blocks in use at peak_ns." }
-- peak_op = { type = "VARCHAR", unit = "text", doc = "Op of the last block allocated before the peak; NULL if it has none." }
-- top_live = { type = "VARCHAR", unit = "text", doc = "The five largest blocks in use at that time, as tensor (op) = bytes, joined by '; '. For all blocks, see traceconv report memory-live." }
WITH usage AS MATERIALIZED (
  SELECT run_id, device_id, level, pool, ts_ns, used_bytes, reserved_bytes
  FROM memory_in_window(run, device, from_ns, to_ns)
), most AS (
  SELECT u.run_id, u.device_id, u.level, u.pool, max(u.used_bytes) AS used, max(u.reserved_bytes) AS reserved
  FROM usage AS u
  -- Without known pools, a row of all blocks without a pool would repeat the device's row.
  WHERE u.level = 'device' OR EXISTS (
    SELECT 1 FROM memory_interval AS n
    WHERE n.run_id = u.run_id AND n.device_id IS NOT DISTINCT FROM u.device_id AND n.pool IS NOT NULL
  )
  GROUP BY u.run_id, u.device_id, u.level, u.pool
), first_used AS (
  SELECT m.run_id, m.device_id, m.level, m.pool, min(u.ts_ns) AS used_ns,
         min_by({ 'bytes': u.reserved_bytes }, u.ts_ns).bytes AS reserved_then
  FROM most AS m
  JOIN usage AS u ON u.run_id = m.run_id AND u.device_id IS NOT DISTINCT FROM m.device_id AND u.level = m.level
    AND u.pool IS NOT DISTINCT FROM m.pool AND u.used_bytes = m.used
  GROUP BY m.run_id, m.device_id, m.level, m.pool
), first_reserved AS (
  SELECT m.run_id, m.device_id, m.level, m.pool, min(u.ts_ns) AS reserved_ns
  FROM most AS m
  JOIN usage AS u ON u.run_id = m.run_id AND u.device_id IS NOT DISTINCT FROM m.device_id AND u.level = m.level
    AND u.pool IS NOT DISTINCT FROM m.pool AND u.reserved_bytes = m.reserved
  GROUP BY m.run_id, m.device_id, m.level, m.pool
), peak AS (
  SELECT m.*, u.used_ns, u.reserved_then, r.reserved_ns
  FROM most AS m
  JOIN first_used AS u ON u.run_id = m.run_id AND u.device_id IS NOT DISTINCT FROM m.device_id AND u.level = m.level
    AND u.pool IS NOT DISTINCT FROM m.pool
  LEFT JOIN first_reserved AS r ON r.run_id = m.run_id AND r.device_id IS NOT DISTINCT FROM m.device_id
    AND r.level = m.level AND r.pool IS NOT DISTINCT FROM m.pool
), live AS (
  SELECT p.run_id, p.device_id, p.level, p.pool, m.block_id, m.size_bytes, m.alloc_ns, m.tensor_name, m.purpose,
         m.op_id, o.name AS op_name,
         row_number() OVER (
           PARTITION BY p.run_id, p.device_id, p.level, p.pool ORDER BY m.size_bytes DESC, m.block_id
         ) AS place,
         row_number() OVER (
           PARTITION BY p.run_id, p.device_id, p.level, p.pool ORDER BY m.alloc_ns DESC NULLS LAST, m.block_id DESC
         ) AS newest
  FROM peak AS p
  JOIN memory AS m ON m.run_id = p.run_id AND m.device_id IS NOT DISTINCT FROM p.device_id
    AND (p.level = 'device' OR m.pool IS NOT DISTINCT FROM p.pool)
  LEFT JOIN op AS o ON o.run_id = m.run_id AND o.op_id = m.op_id
  WHERE m.kind IS DISTINCT FROM 'segment' AND (m.alloc_ns IS NULL OR m.alloc_ns <= p.used_ns)
    AND (m.free_ns IS NULL OR m.free_ns > p.used_ns OR m.free_ns < m.alloc_ns)
), described AS (
  SELECT run_id, device_id, level, pool, count(*) AS blocks,
         max(op_name) FILTER (WHERE newest = 1) AS peak_op,
         string_agg(
           concat(coalesce(tensor_name, purpose, '?'), CASE WHEN op_name IS NULL THEN '' ELSE concat(' (', op_name, ')') END,
                  ' = ', size_bytes),
           '; ' ORDER BY place
         ) FILTER (WHERE place <= 5) AS top_live
  FROM live
  GROUP BY run_id, device_id, level, pool
)
SELECT p.run_id, p.device_id, p.level, p.pool, p.used AS peak_used_bytes, p.used_ns AS peak_ns,
       p.reserved_then AS reserved_bytes, p.reserved_then - p.used AS fragmentation_bytes,
       p.reserved AS peak_reserved_bytes, p.reserved_ns AS peak_reserved_ns,
       coalesce(d.blocks, 0) AS live_count, d.peak_op, d.top_live
FROM peak AS p
LEFT JOIN described AS d ON d.run_id = p.run_id AND d.device_id IS NOT DISTINCT FROM p.device_id
  AND d.level = p.level AND d.pool IS NOT DISTINCT FROM p.pool
ORDER BY p.run_id, p.device_id, p.level, p.pool
