"""Fill the tables task_queue, stream_queue and reordered_task from the launches and starts of stored tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.normalize.queue_lengths import Changes, StreamQueues
from traceconv.normalize.trace.distinct import distinct_rows
from traceconv.store.time_chunks import time_parts

#: Launches and starts in a stretch of time, and in its parts, which are sorted at once: two, as they end at bins.
_STRETCH_ROWS, _PART_ROWS = 500_000, 260_000
_TIMES = "SELECT {column} AS ts_ns FROM task WHERE {where}"
_CHANGES = (
    "SELECT run_id, device_id, stream_id, id, {column} AS ts_ns, submit_ns, start_ns FROM task "
    "WHERE {where} AND {column} BETWEEN {start} AND {last}"
)
_COLUMNS = ("submit_ns", "start_ns")

#: A run, a device and a stream; the last two may be unknown.
_Stream: TypeAlias = "tuple[int, int | None, int | None]"


def queue_rows(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield rows of these tables, each with its table, for runs that have none. Rows may be inserted in between."""
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    where = f"run_id IN ({chosen}) AND kind IS DISTINCT FROM 'sync' AND submit_ns IS NOT NULL AND start_ns IS NOT NULL"
    times = " UNION ALL ".join(_TIMES.format(column=column, where=where) for column in _COLUMNS)
    streams: dict[_Stream, int] = {}
    queues = StreamQueues()
    for start, end, is_last in time_parts(connection, times, _STRETCH_ROWS, _PART_ROWS):
        launches, starts = (
            _changes(connection, _CHANGES.format(column=column, where=where, start=start, last=end - 1), streams)
            for column in _COLUMNS
        )
        stream, ids, lengths = queues.take(launches, starts)
        columns = {"id": pa.array(ids), "queue_length": pa.array(lengths)}
        yield "task_queue", _rows(streams, stream, ("run_id",), columns)
        stream, ids = queues.reordered(starts)
        yield "reordered_task", _rows(streams, stream, ("run_id",), {"id": pa.array(ids)})
        found = queues.end_stretch() if is_last else []
        if not found:
            continue
        part = np.repeat(np.arange(len(found)), [len(counts.dur_ns) for _, counts in found])
        columns = {
            name: pa.array(np.concatenate([getattr(counts, name) for _, counts in found]))
            for name in ("queue_length", "change_count", "dur_ns")
        }
        for name in ("start_ns", "end_ns"):
            times = pa.array([getattr(counts, name) for _, counts in found], pa.int64())
            columns[name] = times.take(pa.array(part))
        numbers = np.array([number for number, _ in found])[part]
        yield "stream_queue", _rows(streams, numbers, ("run_id", "device_id", "stream_id"), columns)


def _rows(
    streams: Iterable[_Stream], stream: NDArray[np.integer], names: Sequence[str], columns: dict[str, pa.Array]
) -> pa.RecordBatch:
    """Return columns with these IDs of the stream of each row, given its place in `streams`."""
    places = pa.array(stream)
    ids = zip(names, zip(*streams, strict=True), strict=False)
    return pa.RecordBatch.from_pydict({**{name: pa.array(of, pa.int64()).take(places) for name, of in ids}, **columns})


def _changes(connection: duckdb.DuckDBPyConnection, sql: str, streams: dict[_Stream, int]) -> Changes:
    """Return rows with the place of each one's stream in `streams`, which gets new ones."""
    rows = connection.sql(sql).to_arrow_table()
    # Arrays are views of the columns of integers without NULL.
    columns = [rows.column("run_id").combine_chunks().to_numpy()]
    for column in (rows.column(name).combine_chunks() for name in ("device_id", "stream_id")):
        columns.append(column.fill_null(0).to_numpy() if column.null_count else column.to_numpy())
        if column.null_count:
            columns.append(column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64))
    firsts, number = distinct_rows(*columns)
    names = rows.select(["run_id", "device_id", "stream_id"]).take(pa.array(firsts)).to_pylist()
    places = [streams.setdefault(tuple(name.values()), len(streams)) for name in names]
    numbers = (rows.column(name).combine_chunks().to_numpy() for name in ("id", "ts_ns", "submit_ns", "start_ns"))
    return Changes(np.array(places, np.int32)[number], *numbers)
