"""Steps without times for step numbers whose step events are missing in a truncated recording."""

from __future__ import annotations

from traceconv.pipeline.run_sql import RunSql

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
