"""Steps that a recording which was cut off names, and whose marks it has not: rows without times."""

from __future__ import annotations

from traceconv.store.writer import StoreWriter

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


def add_unfinished_steps(writer: StoreWriter, run_id: int) -> int:
    """Adds those of a run, one a device whose tasks name them; how many."""
    values = {"run": run_id}
    [(before,)] = writer.fetch("SELECT count(*) FROM step WHERE run_id = $run", values)
    writer.run_sql(f"INSERT INTO step (run_id, step_id, device_id) {_STEPS}", values)
    [(after,)] = writer.fetch("SELECT count(*) FROM step WHERE run_id = $run", values)
    return int(after) - int(before)
