-- title = "Memory content at the peak"
-- doc = "Which blocks were in use when a device used the most memory? One row per block, the largest first; the peak is that of all pools together."
-- needs = ["memory"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR), or a PyTorch or Paddle trace with profile_memory=True, to log allocations and frees."
-- order = ["run_id", "device_id", "size_bytes DESC", "block_id"]
-- measure = "size_bytes"
-- shown = ["device_id", "tensor_name", "allocated_by", "module_name", "purpose", "pool", "size_bytes", "share_percent"]
-- selects = { run = true, device = true, time = ["Only from this time on, including what is in use at that time; NULL: no limit.", "Only before this time; NULL: no limit."] }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
-- block_id = { type = "BIGINT", unit = "id", doc = "Block (memory.block_id)." }
-- tensor_name = { type = "VARCHAR", unit = "text", doc = "Tensor stored in it; NULL for scratch memory and if unknown." }
-- op_id = { type = "BIGINT", unit = "id", doc = "Op that it was allocated for; NULL for weights and inputs, and if unknown." }
-- op_name = { type = "VARCHAR", unit = "text", doc = "Name of the op; NULL if none." }
-- allocated_by = { type = "VARCHAR", unit = "text", doc = "Name of the op, or of the operator of PyTorch that allocated it (allocating_range.range_name); NULL if unknown." }
-- module_name = { type = "VARCHAR", unit = "text", doc = "Module that allocated it (allocating_range.module_name), or that the op belongs to (op.scope_path); NULL if unknown." }
-- purpose = { type = "VARCHAR", unit = "text", doc = "What it was used for: weight, input, output, activation or workspace; NULL if unknown." }
-- pool = { type = "VARCHAR", unit = "text", doc = "Allocator pool; NULL if unknown." }
-- size_bytes = { type = "BIGINT", unit = "byte", doc = "Size." }
-- share_percent = { type = "DOUBLE", unit = "percent", doc = "100 size_bytes / all bytes in use at that time; NULL if that is 0." }
-- alloc_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Allocation time; NULL if it was before the recording." }
-- free_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Free time; NULL if it was not freed during the recording." }
-- peak_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Time of the peak." }
WITH usage AS MATERIALIZED (
  SELECT run_id, device_id, ts_ns, used_bytes
  FROM memory_in_window(run, device, from_ns, to_ns)
  WHERE level = 'device'
), most AS (
  SELECT run_id, device_id, max(used_bytes) AS used FROM usage GROUP BY run_id, device_id
), peak AS (
  SELECT m.run_id, m.device_id, m.used, min(u.ts_ns) AS peak_ns
  FROM most AS m
  JOIN usage AS u ON u.run_id = m.run_id AND u.device_id IS NOT DISTINCT FROM m.device_id AND u.used_bytes = m.used
  GROUP BY m.run_id, m.device_id, m.used
)
SELECT m.run_id, m.device_id, m.block_id, m.tensor_name, m.op_id, o.name AS op_name,
       coalesce(o.name, a.range_name) AS allocated_by, coalesce(o.scope_path, a.module_name) AS module_name, m.purpose, m.pool,
       m.size_bytes, 100 * m.size_bytes::DOUBLE / nullif(p.used, 0)::DOUBLE AS share_percent, m.alloc_ns, m.free_ns,
       p.peak_ns
FROM peak AS p
JOIN memory AS m ON m.run_id = p.run_id AND m.device_id IS NOT DISTINCT FROM p.device_id
LEFT JOIN op AS o ON o.run_id = m.run_id AND o.op_id = m.op_id
LEFT JOIN allocating_range AS a ON a.run_id = m.run_id AND a.block_id = m.block_id
WHERE m.kind IS DISTINCT FROM 'segment' AND (m.alloc_ns IS NULL OR m.alloc_ns <= p.peak_ns)
  AND (m.free_ns IS NULL OR m.free_ns > p.peak_ns OR m.free_ns < m.alloc_ns)
ORDER BY m.run_id, m.device_id, m.size_bytes DESC, m.block_id
