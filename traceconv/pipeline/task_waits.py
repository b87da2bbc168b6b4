"""Set the waits of stored tasks that could not be computed before all tasks of their run were known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from traceconv.normalize.op_summary_waits import OpSummaryWaits
from traceconv.pipeline.run_sql import RunSql
from traceconv.store.wait_sql import op_summary_waits, stream_waits


def set_op_summary_waits(target: RunSql) -> None:
    """Set task.wait_ns among the rows of op_summary of each device; NULL for other tasks."""
    target.run_sql(op_summary_waits("run_id = $run"))


def settle_op_summary_waits(target: RunSql, waits: Mapping[int | None, OpSummaryWaits]) -> None:
    """Correct the waits that late tasks have changed, by device; the others were stored with their waits."""
    changed: dict[int, int | None] = {}
    for device_id, found in waits.items():
        if found.late:
            where = "run_id = $run AND device_id IS NOT DISTINCT FROM $device"
            target.run_sql(op_summary_waits(where), device=device_id)
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
