"""Fill the tables task_queue, stream_queue and reordered_task from the launches and starts of stored tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.queue_lengths import Changes, StreamQueues
from traceconv.normalize.trace.distinct import distinct_rows
from traceconv.store.time_chunks import time_chunks

#: Launches and starts that are sorted at once.
_CHUNK_ROWS = 500_000
_TIMES = "SELECT {column} AS ts_ns FROM task WHERE {where}"
_CHANGES = (
    "SELECT run_id, device_id, stream_id, id, {column} AS ts_ns, submit_ns FROM task "
    "WHERE {where} AND {column} BETWEEN {start} AND {last}"
)
_COLUMNS = ("submit_ns", "start_ns")

#: A run, a device and a stream; the last two may be unknown.
_Stream: TypeAlias = "tuple[int, int | None, int | None]"


def queue_rows(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield rows of these tables for runs that have none, as (table, run, rows without the run).

    Rows may be inserted in between.
    """
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    where = f"run_id IN ({chosen}) AND kind IS DISTINCT FROM 'sync' AND submit_ns IS NOT NULL AND start_ns IS NOT NULL"
    times = " UNION ALL ".join(_TIMES.format(column=column, where=where) for column in _COLUMNS)
    streams: dict[_Stream, int] = {}
    queues = StreamQueues()
    for start, end in time_chunks(connection, times, _CHUNK_ROWS):
        launches, starts = (
            _changes(connection, _CHANGES.format(column=column, where=where, start=start, last=end - 1), streams)
            for column in _COLUMNS
        )
        launches, lengths, found = queues.take(launches, starts)
        known = list(streams)
        run_of = np.array([run_id for run_id, _, _ in known], np.int64)
        for run_id, rows in _by_run(run_of[launches.stream]):
            columns = {"id": pa.array(launches.ids[rows]), "queue_length": pa.array(lengths[rows])}
            yield "task_queue", run_id, pa.RecordBatch.from_pydict(columns)
        reordered = queues.reordered(starts)
        for run_id, rows in _by_run(run_of[reordered.stream]):
            yield "reordered_task", run_id, pa.RecordBatch.from_pydict({"id": pa.array(reordered.ids[rows])})
        if not found:
            continue
        # Together, because each insert takes about a millisecond.
        part = np.repeat(np.arange(len(found)), [len(counts.dur_ns) for _, counts in found])
        stream = np.array([number for number, _ in found])[part]
        for run_id, rows in _by_run(run_of[stream]):
            columns = {
                name: pa.array([one[place] for one in known], pa.int64()).take(pa.array(stream[rows]))
                for place, name in ((1, "device_id"), (2, "stream_id"))
            }
            for name in ("queue_length", "change_count", "dur_ns"):
                columns[name] = pa.array(np.concatenate([getattr(counts, name) for _, counts in found])[rows])
            for name in ("start_ns", "end_ns"):
                columns[name] = pa.array([getattr(counts, name) for _, counts in found], pa.int64()).take(
                    pa.array(part[rows])
                )
            yield "stream_queue", run_id, pa.RecordBatch.from_pydict(columns)


def _by_run(run_of: Int64) -> Iterator[tuple[int, Mask | slice]]:
    if len(run_of) and np.all(run_of == run_of[0]):
        yield int(run_of[0]), slice(None)
        return
    for run_id in np.unique(run_of).tolist():
        yield run_id, run_of == run_id


def _changes(connection: duckdb.DuckDBPyConnection, sql: str, streams: dict[_Stream, int]) -> Changes:
    """Return rows with the place of each one's stream in `streams`, which gets new ones."""
    rows = connection.sql(sql).to_arrow_table()
    columns = [rows.column("run_id").to_numpy()]
    for column in (rows.column(name) for name in ("device_id", "stream_id")):
        columns.append(column.fill_null(0).to_numpy())
        if column.null_count:
            columns.append(column.is_valid().to_numpy().astype(np.int64))
    firsts, number = distinct_rows(*columns)
    names = rows.select(["run_id", "device_id", "stream_id"]).take(pa.array(firsts)).to_pylist()
    places = [streams.setdefault(tuple(name.values()), len(streams)) for name in names]
    numbers = (rows.column(name).to_numpy() for name in ("id", "ts_ns", "submit_ns"))
    return Changes(np.array(places, np.int32)[number], *numbers)
