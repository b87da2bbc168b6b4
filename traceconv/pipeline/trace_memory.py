"""Turn markers of allocations and frees into blocks in `memory`, each from its allocation to its free.

An allocation is paired with the next free of its address on its device. Writers without addresses (PyTorch 1.9) are
paired by size: the memory in use over time is right, but which of two blocks of one size lives longer is a guess.
Memory allocated before the recording is a block without `alloc_ns`. If the writer counts all allocated memory, what it
counted before its first event and was not freed later is one more block, without times. What the allocator reserves is
one segment from each change of its size to the next. The markers stay in `marker`.

PyTorch reports memory that it maps (files, tensors that processes share) with a total of 0, since its allocator doesn't
count it. Such blocks are not part of what the allocator held.
"""

from __future__ import annotations

from traceconv.normalize.trace.classify import MemoryMarkers
from traceconv.pipeline.run_sql import RunSql

#: The number of the host, for memory that is on no device.
HOST_DEVICE = -1

_CHANGES = """
CREATE OR REPLACE TEMP TABLE memory_change AS
WITH read AS (
  SELECT m.id, m.ts_ns, t.process_id, TRY(json_extract_string(m.args, $paths)) AS texts
  FROM marker AS m
  LEFT JOIN track AS t ON t.run_id = m.run_id AND t.track_id = m.track_id
  WHERE m.run_id = $run AND m.name = $name AND m.ts_ns IS NOT NULL
), typed AS MATERIALIZED (
  -- Otherwise the filter below would parse the JSON again.
  SELECT id, ts_ns, process_id, nullif(TRY_CAST(texts[1] AS BIGINT), -9223372036854775808) AS size_bytes,
         TRY_CAST(texts[2] AS HUGEINT) AS address, TRY_CAST(texts[3] AS BIGINT) AS device_id,
         TRY_CAST(texts[4] AS BIGINT) AS device_type, TRY_CAST(texts[5] AS BIGINT) AS total_bytes,
         TRY_CAST(texts[6] AS BIGINT) AS reserved_bytes
  FROM read
), placed AS (
  -- An address above 2^63 may have been written as a signed number.
  SELECT id, ts_ns, process_id, size_bytes,
         TRY_CAST(CASE WHEN address < 0 THEN address + 18446744073709551616::HUGEINT ELSE address END AS UBIGINT)
           AS address,
         CASE WHEN device_type = 0 THEN $host ELSE device_id END AS device_id,
         device_type, total_bytes, reserved_bytes
  FROM typed
  WHERE size_bytes IS DISTINCT FROM 0
), counted AS (
  SELECT *, CASE WHEN address IS NULL THEN abs(size_bytes) END AS alike,
         sum(sign(size_bytes)) OVER (
           PARTITION BY process_id, device_type, device_id, address, CASE WHEN address IS NULL THEN abs(size_bytes) END
           ORDER BY ts_ns, id
         ) AS live
  FROM placed
)
-- On each level of live blocks, allocations and frees alternate.
SELECT *, CASE WHEN size_bytes > 0 THEN live ELSE live + 1 END AS level FROM counted
"""

_BLOCKS = """
INSERT INTO memory (run_id, block_id, device_id, kind, address, size_bytes, alloc_ns, free_ns)
WITH neighbour AS (
  SELECT *, lead(ts_ns) OVER on_level AS next_ns, lag(ts_ns) OVER on_level AS before_ns,
         -- The total before the change: by the last one that the allocator may have counted, else by the next one.
         coalesce(
           lag(CASE WHEN size_bytes < 0 OR total_bytes >= size_bytes THEN total_bytes END IGNORE NULLS) OVER on_device,
           lead(total_bytes::HUGEINT - size_bytes) OVER on_device - size_bytes
         ) AS total_before
  FROM temp.memory_change
  WINDOW on_level AS (PARTITION BY process_id, device_type, device_id, address, alike, level ORDER BY ts_ns, id),
         on_device AS (PARTITION BY process_id, device_type, device_id ORDER BY ts_ns, id)
), block AS (
  SELECT id, process_id, device_type, device_id, address, abs(size_bytes) AS size_bytes,
         CASE WHEN size_bytes > 0 THEN ts_ns END AS alloc_ns,
         CASE WHEN size_bytes > 0 THEN next_ns ELSE ts_ns END AS free_ns,
         total_bytes = 0 AND total_before + size_bytes <> 0 AS is_mapped
  FROM neighbour
  WHERE size_bytes > 0 OR before_ns IS NULL
), first AS (
  SELECT process_id, device_type, device_id, min_by(total_bytes::HUGEINT - size_bytes, (ts_ns, id)) AS held_bytes
  FROM temp.memory_change
  WHERE CASE WHEN size_bytes > 0 THEN total_bytes >= size_bytes ELSE total_bytes <> 0 END
  GROUP BY ALL
), freed AS (
  SELECT process_id, device_type, device_id, sum(size_bytes) AS bytes
  FROM block
  WHERE alloc_ns IS NULL AND is_mapped IS NOT TRUE
  GROUP BY ALL
), rest AS (
  SELECT f.device_id, TRY_CAST(f.held_bytes - coalesce(d.bytes, 0) AS BIGINT) AS size_bytes
  FROM first AS f
  LEFT JOIN freed AS d ON d.process_id IS NOT DISTINCT FROM f.process_id
    AND d.device_type IS NOT DISTINCT FROM f.device_type AND d.device_id IS NOT DISTINCT FROM f.device_id
), reserved AS (
  SELECT *
  FROM temp.memory_change
  WHERE reserved_bytes IS NOT NULL
  QUALIFY reserved_bytes IS DISTINCT FROM
    lag(reserved_bytes) OVER (PARTITION BY process_id, device_type, device_id ORDER BY ts_ns, id)
), segment AS (
  SELECT id, device_id, reserved_bytes AS size_bytes,
         CASE WHEN lag(id) OVER on_device IS NOT NULL THEN ts_ns END AS alloc_ns,
         lead(ts_ns) OVER on_device AS free_ns
  FROM reserved
  WINDOW on_device AS (PARTITION BY process_id, device_type, device_id ORDER BY ts_ns, id)
), every AS (
  SELECT id, device_id, 'block' AS kind, address, size_bytes, alloc_ns, free_ns FROM block
  UNION ALL
  SELECT -1, device_id, 'block', NULL, size_bytes, NULL, NULL FROM rest WHERE size_bytes > 0
  UNION ALL
  SELECT id, device_id, 'segment', NULL, size_bytes, alloc_ns, free_ns FROM segment WHERE size_bytes > 0
)
SELECT $run, row_number() OVER (ORDER BY id, device_id, kind), device_id, kind, address, size_bytes, alloc_ns, free_ns
FROM every
"""

_DEVICES = """
INSERT INTO device (run_id, device_id, kind)
SELECT DISTINCT $run, m.device_id, CASE WHEN m.device_type = 0 THEN 'CPU' END
FROM temp.memory_change AS m
WHERE m.device_id IS NOT NULL
  AND NOT EXISTS (FROM device AS d WHERE d.run_id = $run AND d.device_id = m.device_id)
"""


def insert_blocks(target: RunSql, markers: MemoryMarkers) -> int:
    """Store the blocks of a run from its markers; return the number of markers whose size can't be read."""
    keys = (
        markers.size_bytes,
        markers.address,
        markers.device_id,
        markers.device_type,
        markers.total_bytes,
        markers.reserved_bytes,
    )
    paths = ['$."' + key.replace('"', '\\"') + '"' for key in keys if key is not None]
    target.run_sql(_CHANGES, name=markers.name, host=HOST_DEVICE, paths=paths)
    unread = target.number("SELECT count(*) FROM temp.memory_change WHERE size_bytes IS NULL")
    if unread:
        target.run_sql("DELETE FROM temp.memory_change WHERE size_bytes IS NULL")
    target.run_sql(_BLOCKS)
    target.run_sql(_DEVICES)
    target.run_sql("DROP TABLE temp.memory_change")
    return unread
