"""SQL statements that compute waits of stored tasks."""

from __future__ import annotations

from traceconv.store.sections import section


def op_summary_waits(where: str) -> str:
    """Return the UPDATE that sets task.wait_ns of tasks that satisfy a condition; NULL for those not in op_summary."""
    return section(__name__, "op_summary", where=where)


def stream_waits(where: str, partition: str) -> str:
    """Return the UPDATE that sets task.stream_wait_ns of tasks of $run, by start in each partition."""
    return section(__name__, "stream", where=where, partition=partition)
