"""Waits of tasks, made in SQL once all tasks of a run are stored, where they were not as the tasks came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from traceconv.normalize.table_waits import TableWaits
from traceconv.store.table_waits import table_waits
from traceconv.store.writer import StoreWriter


def set_table_waits(writer: StoreWriter, run_id: int) -> None:
    """Makes task.wait_ns: of the rows of op_summary of each device, by start; NULL of other tasks."""
    writer.run_sql(table_waits("run_id = $run"), {"run": run_id})


def settle_table_waits(writer: StoreWriter, run_id: int, waits: Mapping[int | None, TableWaits]) -> None:
    """Puts right what tasks that came late have changed, by device; the others were stored with their waits."""
    changed: dict[int, int | None] = {}
    for device_id, found in waits.items():
        if found.late:
            where = "run_id = $run AND device_id IS NOT DISTINCT FROM $device"
            writer.run_sql(table_waits(where), {"run": run_id, "device": device_id})
        else:
            changed.update(found.changed)
    if changed:
        rows = pa.RecordBatch.from_pydict({"id": list(changed), "wait_ns": pa.array(changed.values(), pa.int64())})
        writer.stage("late_wait", iter([rows]), {"id": "BIGINT", "wait_ns": "BIGINT"})
        writer.run_sql(
            "UPDATE task SET wait_ns = w.wait_ns FROM temp.late_wait AS w WHERE task.run_id = $run AND task.id = w.id",
            {"run": run_id},
        )


def set_stream_waits(writer: StoreWriter, run_id: int, device_id: int, streams: Iterable[int]) -> int:
    """Makes task.stream_wait_ns of some streams of a device; returns how many tasks overlap the one before."""
    values = {"run": run_id, "device": device_id, "streams": list(streams)}
    where = "run_id = $run AND device_id = $device AND list_contains($streams, stream_id)"
    writer.run_sql(
        "UPDATE task SET stream_wait_ns = found.wait_ns FROM ("  # noqa: S608 - our own words
        "SELECT id, CASE WHEN is_first THEN 0 ELSE TRY(start_ns - before_ns) END AS wait_ns FROM ("
        "SELECT id, start_ns, lag(id) OVER before IS NULL AS is_first, lag(start_ns + dur_ns) OVER before AS before_ns "
        f"FROM task WHERE {where} WINDOW before AS (PARTITION BY stream_id ORDER BY start_ns, id)"
        ")) AS found WHERE task.run_id = $run AND task.id = found.id",
        values,
    )
    return int(writer.fetch(f"SELECT count(*) FROM task WHERE {where} AND stream_wait_ns < 0", values)[0][0])  # noqa: S608
