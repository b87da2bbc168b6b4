"""Which tasks or host slices of a run a prediction makes faster."""

from __future__ import annotations

import duckdb
import numpy as np

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.base.int64 import Int64
from traceconv.store.catalogue import define

# Names are compared once per op, and tasks by numbers.
_KERNELS = """
WITH kernel AS (
  SELECT DISTINCT op_id, kind, CASE WHEN op_id IS NULL THEN name END AS name
  FROM task
  WHERE run_id = $run
), chosen AS (
  SELECT k.*, unnest({values}) AS value
  FROM kernel AS k
  LEFT JOIN op AS o ON o.run_id = $run AND o.op_id = k.op_id
)
"""
_OF_KERNELS = """
SELECT t.id
FROM task AS t
JOIN chosen AS c ON c.op_id IS NOT DISTINCT FROM t.op_id AND c.kind IS NOT DISTINCT FROM t.kind
  AND c.name IS NOT DISTINCT FROM CASE WHEN t.op_id IS NULL THEN t.name END
WHERE t.run_id = $run AND c.value = $name
ORDER BY t.id
"""
# Reports show types, names, and of tasks without an op also names without the numbers at their end.
_OP_TYPE = _KERNELS.format(
    values="list_distinct([o.op_type, coalesce(o.name, k.name), "
    "CASE WHEN k.op_id IS NULL THEN regexp_replace(k.name, '(_[0-9]+)+$', '') END])"
)
# As in the report kernels, where waits and events have none.
_CATEGORY = _KERNELS.format(
    values="[CASE k.kind WHEN 'collective' THEN 'communication' WHEN 'copy' THEN 'memory' WHEN 'sync' THEN NULL "
    "ELSE kernel_category(coalesce(kernel_name(o.name, o.op_type), k.name)) END]"
)
_INSIDE = """
WITH RECURSIVE inside AS (
  SELECT s.id
  FROM (
    SELECT id, track_id FROM range WHERE run_id = $run AND name = $name
    UNION ALL
    SELECT id, track_id FROM api WHERE run_id = $run AND name = $name
  ) AS s
  JOIN track AS k ON k.run_id = $run AND k.track_id = s.track_id AND k.kind = 'thread'
  UNION
  SELECT s.id
  FROM inside AS i
  JOIN (
    SELECT id, parent_id FROM range WHERE run_id = $run
    UNION ALL
    SELECT id, parent_id FROM api WHERE run_id = $run
  ) AS s ON s.parent_id = i.id
)
"""
_HOST_SLICES = "SELECT id FROM inside ORDER BY id"
# torch_npu queues its work: a flow leads from the operator to the task, which another thread launches. So does another
# thread for an inference of the reference NPU, whose ops know their modules.
_LAUNCHED = """
SELECT t.id
FROM task AS t
WHERE t.run_id = $run AND t.kind IS DISTINCT FROM 'sync' AND (
  t.api_id IN (FROM inside)
  OR t.id IN (SELECT f.dst_id FROM flow AS f SEMI JOIN inside AS i ON i.id = f.src_id WHERE f.run_id = $run)
  OR t.execution_id IN (
    SELECT e.correlation_id
    FROM range AS e
    JOIN range AS i ON i.run_id = e.run_id AND i.span_id = e.parent_span_id AND i.kind = 'inference'
    SEMI JOIN inside AS s ON s.id = i.id
    WHERE e.run_id = $run AND e.kind = 'execution'
  )
  OR t.op_id IN (
    SELECT o.op_id FROM op AS o WHERE o.run_id = $run AND list_contains(string_split(o.scope_path, '/'), $name)
  )
)
ORDER BY t.id
"""
_RANGES = "SELECT DISTINCT name FROM range WHERE run_id = $run AND name IS NOT NULL"
_CALLS = "SELECT DISTINCT name FROM api WHERE run_id = $run AND name IS NOT NULL"
_VALUES = "SELECT DISTINCT value FROM chosen WHERE value IS NOT NULL"
#: How slices are chosen → what has such a name, and the queries for their IDs and for all names.
CHOICES = {
    "op_type": ("op of the type or name", _OP_TYPE + _OF_KERNELS, _OP_TYPE + _VALUES),
    "category": ("kernel of the category", _CATEGORY + _OF_KERNELS, _CATEGORY + _VALUES),
    "launched_by": ("task launched inside a range called", _INSIDE + _LAUNCHED, _RANGES),
    "host_range": ("range or call on the host called", _INSIDE + _HOST_SLICES, f"{_RANGES} UNION {_CALLS}"),
}


def faster_slices(connection: duckdb.DuckDBPyConnection, run_id: int, by: str, name: str) -> Int64:
    """Return the IDs of what gets faster, in order.

    by  op_type: tasks of ops of this type or name, and tasks without an op that have this name, perhaps with numbers at
        its end; category: tasks of this category of kernels; launched_by: tasks that are launched inside ranges of
        this name; host_range: ranges and calls of this name, with those inside them

    Raises UsageError if there are none.
    """
    what, matching, known = CHOICES[by]
    define(connection, matching)
    rows = connection.execute(matching, {"run": run_id, "name": name}).fetchnumpy()
    ids = np.asarray(rows["id"], np.int64)
    if not len(ids):
        names = [one for (one,) in connection.execute(known, {"run": run_id}).fetchall() if one != name]
        raise UsageError(f"the run has no {what} '{printable(name, 60)}'.{suggestion(name, names)}")
    return ids
