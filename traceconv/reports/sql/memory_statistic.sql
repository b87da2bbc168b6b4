-- title = "Memory by what allocated it"
-- doc = "Which ops or operators allocate device memory, and how much of it is in use at the peak? One row per device and op, or operator of PyTorch; with by_module, per module, too. The peak is that of memory-live."
-- needs = ["memory"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR), or a PyTorch or Paddle trace with profile_memory=True, to log allocations and frees."
-- order = ["run_id", "device_id", "peak_bytes DESC", "allocated_bytes DESC", "allocated_by", "module_name"]
-- measure = "peak_bytes"
-- shown = ["device_id", "allocated_by", "module_name", "block_count", "allocated_bytes", "largest_bytes", "peak_count", "peak_bytes", "peak_percent"]
-- selects = { run = true, device = true, time = "blocks in use" }
-- [parameters]
-- by_module = { type = "BOOLEAN", doc = "true: rows per module, too; NULL: not." }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
-- allocated_by = { type = "VARCHAR", unit = "text", doc = "Name of the op, or of the operator of PyTorch that allocated the blocks (allocating_range.range_name); NULL for weights and inputs, for blocks from before the recording, and if unknown." }
-- module_name = { type = "VARCHAR", unit = "text", doc = "With by_module, the module that allocated them (allocating_range.module_name), or that the op belongs to (op.scope_path); NULL if unknown." }
-- block_count = { type = "BIGINT", unit = "count", doc = "Number of blocks." }
-- allocated_bytes = { type = "BIGINT", unit = "byte", doc = "Sum of their sizes, whether they were freed or not." }
-- largest_bytes = { type = "BIGINT", unit = "byte", doc = "Size of the largest." }
-- peak_count = { type = "BIGINT", unit = "count", doc = "Number of those in use when the device used the most memory." }
-- peak_bytes = { type = "BIGINT", unit = "byte", doc = "Sum of the sizes of these." }
-- peak_percent = { type = "DOUBLE", unit = "percent", doc = "100 peak_bytes / the sum of peak_bytes over the rows of the device; NULL if that is 0." }
WITH placed AS (
  SELECT m.run_id, m.device_id, coalesce(o.name, a.range_name) AS allocated_by,
         CASE WHEN by_module THEN coalesce(o.scope_path, a.module_name) END AS module_name, m.size_bytes, false AS is_live
  FROM memory AS m
  LEFT JOIN op AS o ON o.run_id = m.run_id AND o.op_id = m.op_id
  LEFT JOIN allocating_range AS a ON a.run_id = m.run_id AND a.block_id = m.block_id
  WHERE m.kind IS DISTINCT FROM 'segment' AND {{selected(m.run_id, m.device_id)}}
    AND coalesce(from_ns < to_ns, true) AND (to_ns IS NULL OR m.alloc_ns IS NULL OR m.alloc_ns < to_ns)
    AND (from_ns IS NULL OR m.free_ns IS NULL OR m.free_ns > from_ns OR m.free_ns < m.alloc_ns)
  UNION ALL
  -- The few blocks at the peak, again: joined with all blocks, these would become the hash table.
  SELECT run_id, device_id, allocated_by, CASE WHEN by_module THEN module_name END, size_bytes, true
  FROM memory_live(run := run, device := device, from_ns := from_ns, to_ns := to_ns)
), summed AS (
  SELECT run_id, device_id, allocated_by, module_name, count(CASE WHEN NOT is_live THEN 1 END) AS block_count,
         sum(CASE WHEN NOT is_live THEN size_bytes END) AS allocated, max(size_bytes) AS largest_bytes,
         count(CASE WHEN is_live THEN 1 END) AS peak_count,
         coalesce(sum(CASE WHEN is_live THEN size_bytes END), 0) AS peak
  FROM placed
  GROUP BY run_id, device_id, allocated_by, module_name
)
SELECT run_id, device_id, allocated_by, module_name, block_count, TRY_CAST(allocated AS BIGINT) AS allocated_bytes,
       largest_bytes, peak_count, TRY_CAST(peak AS BIGINT) AS peak_bytes,
       (100 * peak)::DOUBLE / nullif(sum(peak) OVER (PARTITION BY run_id, device_id), 0)::DOUBLE AS peak_percent
FROM summed
ORDER BY run_id, device_id, peak_bytes DESC, allocated_bytes DESC, allocated_by, module_name
