-- title = "Allocating range of each block"
-- doc = "Each block of memory whose allocation PyTorch's or Paddle's profiler recorded, and the innermost ranges around the allocation on its thread. Ranges that end at that time are around it, too."
-- order = ["run_id", "alloc_ns", "block_id"]
-- [columns]
-- block_id = { type = "BIGINT", unit = "id", doc = "Block (memory.block_id)." }
-- track_id = { type = "BIGINT", unit = "id", doc = "Track of the thread." }
-- range_id = { type = "BIGINT", unit = "id", doc = "Innermost operator (range.id, of kind host_op) that does more than allocate, as aten::empty and aten::resize_ do; otherwise the innermost operator, otherwise the innermost other range except functions. NULL if none." }
-- range_name = { type = "VARCHAR", unit = "text", doc = "Name of the range, such as aten::cudnn_convolution." }
-- frame_id = { type = "BIGINT", unit = "id", doc = "Innermost function of the program (range.id, of kind frame or module); NULL if none." }
-- frame_name = { type = "VARCHAR", unit = "text", doc = "Name of the function." }
-- module_id = { type = "BIGINT", unit = "id", doc = "Innermost module (range.id); NULL if none, as in a backward pass." }
-- module_name = { type = "VARCHAR", unit = "text", doc = "Name of the module." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the block." }
-- size_bytes = { type = "BIGINT", unit = "byte", doc = "Size." }
-- alloc_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Allocation time." }
-- free_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Free time; NULL if it was not freed during the recording." }
WITH RECURSIVE event AS MATERIALIZED (
  SELECT k.run_id, k.track_id, k.ts_ns,
         TRY_CAST(coalesce(k.texts[1], k.texts[3]) AS BIGINT) AS size_bytes,
         TRY_CAST(coalesce(k.texts[2], k.texts[4]) AS HUGEINT) AS address
  FROM (
    SELECT *, TRY(json_extract_string(args, ['$.Bytes', '$.Addr', '$.increase_bytes', '$.addr'])) AS texts
    FROM marker
    WHERE name = '[memory]' AND (category NOT LIKE 'Reserved%') IS NOT FALSE
  ) AS k
), allocation AS MATERIALIZED (
  SELECT m.run_id, m.block_id, m.alloc_ns, min(e.track_id) AS track_id
  FROM memory AS m
  JOIN event AS e ON e.run_id = m.run_id AND e.ts_ns = m.alloc_ns AND e.size_bytes = m.size_bytes
  WHERE m.kind = 'block'
    AND CASE WHEN e.address < 0 THEN e.address + 18446744073709551616::HUGEINT ELSE e.address END
      IS NOT DISTINCT FROM m.address::HUGEINT
  GROUP BY m.run_id, m.block_id, m.alloc_ns
), begun AS (
  SELECT r.run_id, r.track_id, r.start_ns, max_by(r.id, r.depth) AS id
  FROM "range" AS r
  SEMI JOIN (SELECT DISTINCT run_id, track_id FROM allocation) AS a ON a.run_id = r.run_id AND a.track_id = r.track_id
  GROUP BY r.run_id, r.track_id, r.start_ns
), candidate AS (
  -- From the last range that began before, up to the first one that had not ended.
  SELECT a.run_id, a.block_id, a.alloc_ns, r.id, r.parent_id, TRY(r.start_ns + r.dur_ns) < a.alloc_ns AS is_past
  FROM allocation AS a
  ASOF JOIN begun AS b ON b.run_id = a.run_id AND b.track_id = a.track_id AND b.start_ns <= a.alloc_ns
  JOIN "range" AS r ON r.run_id = b.run_id AND r.id = b.id
  UNION ALL
  SELECT c.run_id, c.block_id, c.alloc_ns, r.id, r.parent_id, TRY(r.start_ns + r.dur_ns) < c.alloc_ns
  FROM candidate AS c
  JOIN "range" AS r ON r.run_id = c.run_id AND r.id = c.parent_id
  WHERE c.is_past
), inside AS MATERIALIZED (
  SELECT run_id, block_id, id FROM candidate WHERE is_past IS NOT TRUE
), outward AS (
  SELECT i.run_id, i.id, i.id AS next_id, 0 AS distance
  FROM (SELECT DISTINCT run_id, id FROM inside) AS i
  UNION ALL
  SELECT o.run_id, o.id, r.parent_id, o.distance + 1
  FROM outward AS o
  JOIN "range" AS r ON r.run_id = o.run_id AND r.id = o.next_id
  WHERE r.parent_id IS NOT NULL
), around AS (
  SELECT o.run_id, o.id,
         min_by(r.id, o.distance) FILTER (
           r.kind = 'host_op' AND NOT regexp_matches(r.name, '^aten::(_?(new_)?empty|resize_$)')
         ) AS op_id,
         min_by(r.id, o.distance) FILTER (r.kind = 'host_op') AS allocator_id,
         min_by(r.id, o.distance) FILTER (r.kind NOT IN ('host_op', 'frame')) AS other_id,
         min_by(r.id, o.distance) FILTER (r.kind IN ('frame', 'module')) AS frame_id,
         min_by(r.id, o.distance) FILTER (r.kind = 'module') AS module_id
  FROM outward AS o
  JOIN "range" AS r ON r.run_id = o.run_id AND r.id = o.next_id
  GROUP BY o.run_id, o.id
)
SELECT a.run_id, a.block_id, a.track_id, r.id AS range_id, r.name AS range_name, f.id AS frame_id, f.name AS frame_name,
       m.id AS module_id, m.name AS module_name, b.device_id, b.size_bytes, b.alloc_ns, b.free_ns
FROM allocation AS a
JOIN memory AS b ON b.run_id = a.run_id AND b.block_id = a.block_id
LEFT JOIN inside AS i ON i.run_id = a.run_id AND i.block_id = a.block_id
LEFT JOIN around AS o ON o.run_id = i.run_id AND o.id = i.id
LEFT JOIN "range" AS r ON r.run_id = o.run_id AND r.id = coalesce(o.op_id, o.allocator_id, o.other_id)
LEFT JOIN "range" AS f ON f.run_id = o.run_id AND f.id = o.frame_id
LEFT JOIN "range" AS m ON m.run_id = o.run_id AND m.id = o.module_id
