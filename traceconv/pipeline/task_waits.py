"""Compute waits of tasks in SQL once all tasks of a run are stored, if they could not be computed before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from traceconv.normalize.table_waits import TableWaits
from traceconv.pipeline.run_sql import RunSql
from traceconv.store.table_waits import table_waits


def set_table_waits(target: RunSql) -> None:
    """Set task.wait_ns among the rows of op_summary of each device; NULL for other tasks."""
    target.run_sql(table_waits("run_id = $run"))


def settle_table_waits(target: RunSql, waits: Mapping[int | None, TableWaits]) -> None:
    """Correct the waits that late tasks have changed, by device; the others were stored with their waits."""
    changed: dict[int, int | None] = {}
    for device_id, found in waits.items():
        if found.late:
            where = "run_id = $run AND device_id IS NOT DISTINCT FROM $device"
            target.run_sql(table_waits(where), device=device_id)
        else:
            changed.update(found.changed)
    if changed:
        rows = pa.RecordBatch.from_pydict({"id": list(changed), "wait_ns": pa.array(changed.values(), pa.int64())})
        target.writer.stage("late_wait", iter([rows]), {"id": "BIGINT", "wait_ns": "BIGINT"})
        target.run_sql(
            "UPDATE task SET wait_ns = w.wait_ns FROM temp.late_wait AS w WHERE task.run_id = $run AND task.id = w.id"
        )


def set_stream_waits(target: RunSql, device_id: int, streams: Iterable[int]) -> int:
    """Set task.stream_wait_ns for streams of a device; return the number of tasks that overlap the previous one."""
    values = {"device": device_id, "streams": list(streams)}
    where = "run_id = $run AND device_id = $device AND list_contains($streams, stream_id)"
    target.run_sql(stream_waits(where, "stream_id"), **values)
    return target.number(f"SELECT count(*) FROM task WHERE {where} AND stream_wait_ns < 0", **values)  # noqa: S608


def stream_waits(where: str, partition: str) -> str:
    """Return an UPDATE that sets task.stream_wait_ns of tasks that satisfy a condition, by start in each partition."""
    return (
        "UPDATE task SET stream_wait_ns = found.wait_ns FROM ("  # noqa: S608 - our own words
        "SELECT id, CASE WHEN is_first THEN 0 ELSE TRY(start_ns - before_ns) END AS wait_ns FROM ("
        "SELECT id, start_ns, lag(id) OVER before IS NULL AS is_first, lag(start_ns + dur_ns) OVER before AS before_ns "
        f"FROM task WHERE {where} WINDOW before AS (PARTITION BY {partition} ORDER BY start_ns, id)"
        ")) AS found WHERE task.run_id = $run AND task.id = found.id"
    )
