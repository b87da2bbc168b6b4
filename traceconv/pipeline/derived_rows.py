"""What SQL derives from the stored rows of a run: steps, reduces and sizes of collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceconv.pipeline.run_sql import RunSql
from traceconv.store.collective_table import element_widths

if TYPE_CHECKING:
    from traceconv.store.writer import StoreWriter

#: Steps whose events are missing in a truncated recording, though other rows have their numbers.
_STEPS = """
WITH named AS (
  SELECT step_id, device_id FROM task WHERE run_id = $run AND step_id IS NOT NULL
  UNION SELECT step_id, NULL FROM api WHERE run_id = $run AND step_id IS NOT NULL
  UNION SELECT step_id, NULL FROM "range" WHERE run_id = $run AND step_id IS NOT NULL
), missing AS (
  SELECT step_id, device_id, max(device_id) OVER (PARTITION BY step_id) AS any_device
  FROM named WHERE step_id NOT IN (SELECT step_id FROM step WHERE run_id = $run)
)
SELECT $run, step_id, device_id FROM missing WHERE device_id IS NOT NULL OR any_device IS NULL ORDER BY ALL
"""


def add_unfinished_steps(target: RunSql) -> int:
    """Add a step for each device whose tasks name it; return the number of steps."""
    return target.number(f"INSERT INTO step (run_id, step_id, device_id) {_STEPS}")


def settle_reduces(target: RunSql) -> None:
    """Turn ranges of kind `reduce` into tasks of their step's device, unless it has collectives: the same work.

    The waits of tasks must then be recomputed.
    """
    target.run_sql(
        "CREATE OR REPLACE TEMP TABLE step_reduce AS "
        "SELECT r.*, (SELECT min(s.device_id) FROM step AS s WHERE s.run_id = $run AND s.step_id = r.step_id "
        "HAVING count(DISTINCT s.device_id) = 1) AS device_id "
        "FROM range AS r WHERE r.run_id = $run AND r.kind = 'reduce'"
    )
    target.run_sql(
        "DELETE FROM temp.step_reduce AS r WHERE EXISTS (FROM task AS t WHERE t.run_id = $run "
        "AND t.kind = 'collective' AND (t.device_id IS NULL OR r.device_id IS NULL OR t.device_id = r.device_id))"
    )
    columns = "run_id, id, track_id, parent_id, depth, step_id, category, name, start_ns, dur_ns, self_ns, args"
    target.run_sql(
        f"INSERT INTO task ({columns}, device_id, kind, kind_source, task_type) "  # noqa: S608 - our own words
        f"SELECT {columns}, device_id, 'collective', 'recorded', 'REDUCE' FROM temp.step_reduce"
    )
    target.run_sql("DELETE FROM range WHERE run_id = $run AND id IN (SELECT id FROM temp.step_reduce)")


#: Keys in args: elements, their type. Ascend (HCCL), and PyTorch (NCCL).
_KEYS = (("count", "data_type"), ("In msg nelems", "dtype"))


def size_collectives(writer: StoreWriter, runs: str) -> None:
    """Set task.size_bytes of collectives from their args; NULL for unknown types. `runs`: their IDs, as SQL."""
    for count, kind in _KEYS:
        writer.run_sql(
            "UPDATE task SET size_bytes = found.size_bytes FROM ("  # noqa: S608 - our own words
            "SELECT run_id, id, elements * width AS size_bytes FROM ("
            f"SELECT run_id, id, lower(args->>'{kind}') AS type, TRY_CAST(args->>'{count}' AS BIGINT) AS elements "
            f"FROM task WHERE run_id IN ({runs}) AND kind = 'collective' AND size_bytes IS NULL) AS c "
            f"JOIN (VALUES {element_widths()}) AS w(type, width) USING (type) WHERE elements BETWEEN 0 AND {2**58}"
            f") AS found WHERE task.run_id IN ({runs}) AND task.run_id = found.run_id AND task.id = found.id"
        )
