"""Turn markers of allocations and frees into blocks in `memory`, each from its allocation to its free.

An allocation is paired with the next free of its address on its device. Writers without addresses (PyTorch 1.9) are
paired by size: the memory in use over time is right, but which of two blocks of one size lives longer is a guess.
Memory allocated before the recording is a block without `alloc_ns`. If the writer counts all allocated memory, what it
counted before its first event and was not freed later is one more block, without times. What the allocator reserves is
one segment from each change of its size to the next; a writer that marks each segment has these instead. The markers
stay in `marker`.

Paddle writes the device as a place, such as Place(gpu:0), and marks changes of what its allocator reserves, too: of
these markers only the new total counts. It doesn't count what is reserved on the host.

PyTorch reports memory that it maps (files, tensors that processes share) with a total of 0, since its allocator doesn't
count it. Such blocks are not part of what the allocator held. Their reserved size is their own size, not a total; the
allocator of the host reserves nothing.
"""

from __future__ import annotations

from traceconv.normalize.trace.classify import MemoryMarkers
from traceconv.pipeline.run_sql import RunSql

#: The number of the host, for memory that is on no device.
HOST_DEVICE = -1

_CHANGES = """
CREATE OR REPLACE TEMP TABLE memory_change AS
WITH read AS (
  SELECT m.id, m.ts_ns, t.process_id, TRY(json_extract_string(m.args, $paths)) AS texts,
         coalesce(NOT list_contains(string_split($categories, '|'), coalesce(m.category, '')), false) AS is_reserve
  FROM marker AS m
  LEFT JOIN track AS t ON t.run_id = m.run_id AND t.track_id = m.track_id
  WHERE m.run_id = $run AND m.name = $name AND m.ts_ns IS NOT NULL
), typed AS MATERIALIZED (
  -- Otherwise the filter below would parse the JSON again.
  SELECT id, ts_ns, process_id, nullif(TRY_CAST(texts[1] AS BIGINT), -9223372036854775808) AS size_bytes, is_reserve,
         TRY_CAST(texts[2] AS HUGEINT) AS address,
         TRY_CAST(coalesce(nullif(regexp_extract(texts[3], '^Place\\([^:]+:([0-9]+)\\)$', 1), ''), texts[3]) AS BIGINT)
           AS device_id,
         -- Page-locked memory is counted as the host's.
         texts[4] IN ('Place(cpu)', 'Place(gpu_pinned)') AS is_host_place,
         CASE WHEN is_host_place THEN 0 ELSE TRY_CAST(texts[4] AS BIGINT) END AS device_type,
         CASE WHEN NOT is_reserve THEN TRY_CAST(texts[5] AS BIGINT) END AS total_bytes,
         CASE WHEN device_type = 0 THEN NULL ELSE TRY_CAST(texts[6] AS BIGINT) END AS reserved_bytes,
         coalesce(texts[7] = 'segment', false) AS is_segment,
         coalesce(texts[8] = 'true', false) AS is_before, 'stream ' || texts[9] AS pool,
         TRY(TRY_CAST(texts[10] AS BIGINT) + $first_op) AS op_id
  FROM read
), placed AS (
  -- An address above 2^63 may have been written as a signed number.
  SELECT id, ts_ns, process_id, size_bytes,
         TRY_CAST(CASE WHEN address < 0 THEN address + 18446744073709551616::HUGEINT ELSE address END AS UBIGINT)
           AS address,
         CASE WHEN device_type = 0 THEN $host ELSE device_id END AS device_id,
         is_reserve, device_type, total_bytes, reserved_bytes, is_segment, is_before, pool, op_id
  FROM typed
  WHERE size_bytes IS DISTINCT FROM 0
), counted AS (
  SELECT *, CASE WHEN address IS NULL THEN abs(size_bytes) END AS alike,
         sum(sign(size_bytes)) OVER (
           PARTITION BY process_id, device_type, device_id, is_reserve, is_segment, address,
             CASE WHEN address IS NULL THEN abs(size_bytes) END
           ORDER BY ts_ns, id
         ) AS live
  FROM placed
)
-- On each level of live blocks, allocations and frees alternate.
SELECT *, CASE WHEN size_bytes > 0 THEN live ELSE live + 1 END AS level FROM counted
"""

_BLOCKS = """
INSERT INTO memory (run_id, block_id, device_id, pool, kind, address, size_bytes, alloc_ns, free_ns, op_id)
WITH neighbour AS (
  SELECT *, lead(ts_ns) OVER on_level AS next_ns, lag(ts_ns) OVER on_level AS before_ns,
         -- The total before the change: by the last one that the allocator may have counted, else by the next one.
         coalesce(
           lag(CASE WHEN size_bytes < 0 OR total_bytes >= size_bytes THEN total_bytes END IGNORE NULLS) OVER on_device,
           lead(total_bytes::HUGEINT - size_bytes) OVER on_device - size_bytes
         ) AS total_before
  FROM temp.memory_change
  WINDOW on_level AS (
           PARTITION BY process_id, device_type, device_id, is_reserve, is_segment, address, alike, level
           ORDER BY ts_ns, id
         ), on_device AS (PARTITION BY process_id, device_type, device_id ORDER BY ts_ns, id)
), block AS (
  SELECT id, process_id, device_type, device_id, pool, is_segment, address, abs(size_bytes) AS size_bytes, op_id,
         CASE WHEN size_bytes > 0 AND NOT is_before THEN ts_ns END AS alloc_ns,
         CASE WHEN size_bytes > 0 THEN next_ns ELSE ts_ns END AS free_ns,
         total_bytes = 0 AND total_before + size_bytes <> 0 AS is_mapped
  FROM neighbour
  WHERE NOT is_reserve AND (size_bytes > 0 OR before_ns IS NULL)
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
         CASE WHEN is_reserve OR lag(id) OVER on_device IS NOT NULL THEN ts_ns END AS alloc_ns,
         lead(ts_ns) OVER on_device AS free_ns,
         CASE WHEN is_reserve AND lag(id) OVER on_device IS NULL
              THEN TRY_CAST(reserved_bytes::HUGEINT - size_bytes AS BIGINT) END AS held_bytes
  FROM reserved
  WINDOW on_device AS (PARTITION BY process_id, device_type, device_id ORDER BY ts_ns, id)
), every AS (
  SELECT id, device_id, pool, CASE WHEN is_segment THEN 'segment' ELSE 'block' END AS kind, address, size_bytes,
         alloc_ns, free_ns, CASE WHEN alloc_ns IS NOT NULL OR free_ns IS NULL THEN op_id END AS op_id
  FROM block
  UNION ALL
  SELECT -1, device_id, NULL, 'block', NULL, size_bytes, NULL, NULL, NULL FROM rest WHERE size_bytes > 0
  UNION ALL
  SELECT id, device_id, NULL, 'segment', NULL, size_bytes, alloc_ns, free_ns, NULL FROM segment WHERE size_bytes > 0
  UNION ALL
  SELECT -1, device_id, NULL, 'segment', NULL, held_bytes, NULL, alloc_ns, NULL FROM segment WHERE held_bytes > 0
)
SELECT $run, row_number() OVER (ORDER BY id, device_id, kind), device_id, pool, kind, address, size_bytes, alloc_ns,
       free_ns, op_id
FROM every
"""

_DEVICES = """
INSERT INTO device (run_id, device_id, kind)
SELECT DISTINCT $run, m.device_id, CASE WHEN m.device_type = 0 THEN 'CPU' END
FROM temp.memory_change AS m
WHERE m.device_id IS NOT NULL
  AND NOT EXISTS (FROM device AS d WHERE d.run_id = $run AND d.device_id = m.device_id)
"""

_OPS = """
INSERT INTO op (run_id, op_id, name)
SELECT $run, op_id, any_value(name)
FROM (
  SELECT TRY(TRY_CAST(texts[1] AS BIGINT) + $first_op) AS op_id, texts[2] AS name
  FROM (SELECT TRY(json_extract_string(args, $paths)) AS texts FROM marker WHERE run_id = $run AND name = $name)
)
WHERE op_id > $first_op
GROUP BY op_id
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
        markers.kind,
        markers.is_before,
        markers.stream_id,
        markers.op_id,
    )
    # Ops of tasks have numbers already.
    first_op = target.number("SELECT coalesce(max(op_id), 0) FROM op WHERE run_id = $run")
    target.run_sql(
        _CHANGES,
        name=markers.name,
        categories=markers.categories,
        host=HOST_DEVICE,
        paths=_paths(*keys),
        first_op=first_op,
    )
    unread = target.number("SELECT count(*) FROM temp.memory_change WHERE size_bytes IS NULL")
    if unread:
        target.run_sql("DELETE FROM temp.memory_change WHERE size_bytes IS NULL")
    target.run_sql(_BLOCKS)
    target.run_sql(_DEVICES)
    if markers.ops is not None:
        target.run_sql(_OPS, name=markers.ops, paths=_paths(markers.op_id, markers.op_name), first_op=first_op)
    target.run_sql("DROP TABLE temp.memory_change")
    return unread


def _paths(*keys: str | None) -> list[str]:
    """Return JSON paths of keys; of no key, one that nothing is at."""
    return ["$[0][0]" if key is None else '$."' + key.replace('"', '\\"') + '"' for key in keys]
