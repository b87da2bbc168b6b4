"""SQL statements that compute waits of stored tasks."""

from __future__ import annotations


def op_summary_waits(where: str) -> str:
    """Return the UPDATE that sets task.wait_ns of tasks that satisfy a condition; NULL for those not in op_summary."""
    return (
        "UPDATE task SET wait_ns = found.wait FROM ("  # noqa: S608 - our own words
        "SELECT run_id AS of_run, id AS of_id, CASE WHEN NOT is_row THEN NULL WHEN is_first THEN 0 "
        "WHEN start_ns < before_ns THEN 0 ELSE TRY(start_ns - before_ns) END AS wait FROM ("
        "SELECT run_id, id, start_ns, is_row, lag(id) OVER before IS NULL AS is_first, "
        "lag(start_ns + dur_ns) OVER before AS before_ns FROM ("
        "SELECT *, start_ns IS NOT NULL AND (op_id IS NOT NULL OR coalesce(kind = 'collective', false)) AS is_row "
        f"FROM task WHERE {where}) "
        "WINDOW before AS (PARTITION BY run_id, device_id, is_row ORDER BY start_ns, id)"
        ")) AS found WHERE run_id = of_run AND id = of_id AND wait_ns IS DISTINCT FROM found.wait"
    )


def stream_waits(where: str, partition: str) -> str:
    """Return the UPDATE that sets task.stream_wait_ns of tasks of $run, by start in each partition."""
    return (
        "UPDATE task SET stream_wait_ns = found.wait_ns FROM ("  # noqa: S608 - our own words
        "SELECT id, CASE WHEN is_first THEN 0 ELSE TRY(start_ns - before_ns) END AS wait_ns FROM ("
        "SELECT id, start_ns, lag(id) OVER before IS NULL AS is_first, lag(start_ns + dur_ns) OVER before AS before_ns "
        f"FROM task WHERE {where} WINDOW before AS (PARTITION BY {partition} ORDER BY start_ns, id)"
        ")) AS found WHERE task.run_id = $run AND task.id = found.id"
    )
