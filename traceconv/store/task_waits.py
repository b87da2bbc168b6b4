"""Waits of tasks, made in SQL once all tasks of a run are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from traceconv.store.writer import StoreWriter


def set_table_waits(writer: StoreWriter, run_id: int, device_id: int | None = None) -> None:
    """Makes task.wait_ns: of the rows of op_summary of each device (or of one), by start; NULL of other tasks."""
    writer.run_sql(
        "UPDATE task SET wait_ns = found.wait_ns FROM ("
        "SELECT id, CASE WHEN lag(id) OVER before IS NULL THEN 0 WHEN lag(dur_ns) OVER before IS NULL THEN NULL "
        "ELSE greatest(start_ns - lag(start_ns + dur_ns) OVER before, 0) END AS wait_ns "
        "FROM task WHERE run_id = $run AND ($device IS NULL OR device_id = $device) "
        "AND (op_id IS NOT NULL OR kind = 'collective') AND start_ns IS NOT NULL "
        "WINDOW before AS (PARTITION BY device_id ORDER BY start_ns, id)"
        ") AS found WHERE task.run_id = $run AND task.id = found.id AND task.wait_ns IS DISTINCT FROM found.wait_ns",
        {"run": run_id, "device": device_id},
    )


def put_table_waits(writer: StoreWriter, run_id: int, waits: Mapping[int, int | None]) -> None:
    """Puts a few values of task.wait_ns, by id."""
    rows = pa.RecordBatch.from_pydict({"id": list(waits), "wait_ns": pa.array(waits.values(), pa.int64())})
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
        "SELECT id, CASE WHEN lag(id) OVER before IS NULL THEN 0 "
        "ELSE start_ns - lag(start_ns + dur_ns) OVER before END AS wait_ns "
        f"FROM task WHERE {where} WINDOW before AS (PARTITION BY stream_id ORDER BY start_ns, id)"
        ") AS found WHERE task.run_id = $run AND task.id = found.id",
        values,
    )
    return int(writer.fetch(f"SELECT count(*) FROM task WHERE {where} AND stream_wait_ns < 0", values)[0][0])  # noqa: S608
