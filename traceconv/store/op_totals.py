"""Fill the table op_total from the tasks of stored runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_ROWS = """
INSERT INTO op_total BY NAME
SELECT * REPLACE (sum_ns::BIGINT AS sum_ns)
FROM (
  SELECT run_id, device_id, op_id, core_type, count(dur_ns) AS task_count, count(*) - count(dur_ns) AS unfinished_count,
         sum(dur_ns) AS sum_ns, min(dur_ns) AS min_ns, max(dur_ns) AS max_ns
  FROM task
  WHERE op_id IS NOT NULL AND run_id IN ({runs})
  GROUP BY run_id, device_id, op_id, core_type
  -- op-statistic reads the tasks of a run with a sum of more than 64 bits.
  QUALIFY max(abs(sum(dur_ns))) OVER (PARTITION BY run_id) <= 9223372036854775807 IS NOT FALSE
)
ORDER BY run_id, device_id, op_id, core_type
"""


def fill_op_totals(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> None:
    """Insert the rows of runs that have none."""
    connection.execute(_ROWS.format(runs=", ".join(f"{run_id:d}" for run_id in runs)))
