"""Counters of a device's load over time, for timelines of captures: computed from the exported rows, at every change.

"Pending ops" are the ops that were launched and that the device has not started. "Live tensors" are the tensors that
have device memory. "Utilisation" is the part of the time in which the device runs any task but waits, in windows: the
time from its first task to the end of its last, cut into 100 equal parts; a sample is at the start of its window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.errors import StoreError
from traceconv.base.int64 import Int64
from traceconv.export.busy_time import BusyTime
from traceconv.export.chrome_layout import Layout, Thread
from traceconv.export.timeline import has_format
from traceconv.store.time_chunks import time_chunks

_WINDOWS = 100
_BATCH_ROWS = 1 << 16
#: Rows that are sorted at once.
_CHUNK_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows with a time, of which those without one are left out: a FROM clause, a column of it, and SQL of BIGINTs."""

    source: str
    time: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadCounter:
    """A counter of one device, and the table it belongs to.

    rows  for counts, the changes; for utilisation, the ends of tasks at their starts
    """

    name: str
    unit: str
    source: str
    rows: tuple[Timed, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the values are integers, not doubles."""
        return self.unit == "count"

    def samples(self, connection: duckdb.DuckDBPyConnection, value: str = "value") -> Iterator[pa.RecordBatch]:
        """Yield ts_ns and value, in order. `value`: SQL of a double."""
        if self.is_whole:
            level = 0
            for times, sums in running_sums(connection, self.rows):
                differs = np.diff(sums, prepend=np.int64(level)) != 0
                yield from in_batches({"ts_ns": times[differs], "value": sums[differs]})
                level = int(sums[-1])
        else:
            edges, percents = _utilisation(connection, *self.rows)
            samples = "SELECT unnest($1::BIGINT[]) AS ts_ns, unnest($2::DOUBLE[]) AS value"
            query = f"SELECT ts_ns, {value} AS value FROM ({samples})"
            yield from connection.sql(query, params=[edges, percents]).to_arrow_reader(_BATCH_ROWS)


def in_time_order(connection: duckdb.DuckDBPyConnection, parts: Sequence[Timed]) -> Iterator[tuple[Int64, ...]]:
    """Yield times in order and their values, as one array each, in chunks with all rows of a time.

    DuckDB fails to sort rows that are about as large as its memory limit, if they come from several SELECTs.
    """
    times = _union(f"SELECT {part.time} AS ts_ns FROM {part.source} WHERE {part.time} IS NOT NULL" for part in parts)
    for start, end in time_chunks(connection, times, _CHUNK_ROWS):
        query = _union(
            f"SELECT {part.time}, {', '.join(f'({value})::BIGINT' for value in part.values)} FROM {part.source} "
            f"WHERE {part.time} BETWEEN ({start}) AND ({end - 1})"
            for part in parts
        )
        found = [column.to_numpy() for column in connection.sql(query).to_arrow_table().columns]
        order = np.argsort(found[0], kind="stable")
        yield tuple(column[order] for column in found)


def in_batches(columns: Mapping[str, Int64]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches whose text takes a few MB."""
    rows = pa.RecordBatch.from_pydict(dict(columns))
    yield from (rows.slice(at, _BATCH_ROWS) for at in range(0, rows.num_rows, _BATCH_ROWS))


def _union(selects: Iterable[str]) -> str:
    return " UNION ALL ".join(selects)


def running_sums(connection: duckdb.DuckDBPyConnection, parts: Sequence[Timed]) -> Iterator[tuple[Int64, ...]]:
    """Yield the times of changes in order, and the sum of each value at them.

    Raises StoreError if a sum exceeds 64 bits.
    """
    levels = [0] * len(parts[0].values)
    for times, *values in in_time_order(connection, parts):
        ends = np.flatnonzero(np.append(times[1:] != times[:-1], True))
        sums = [level + np.cumsum(changes) for level, changes in zip(levels, values, strict=True)]
        for one, changes in zip(sums, values, strict=True):
            if bool(((one ^ (one - changes)) & (one ^ changes) < 0).any()):
                raise StoreError("the sum of sizes in table memory exceeds 64 bits; the store is damaged")
        yield times[ends], *(one[ends] for one in sums)
        levels = [int(one[-1]) for one in sums]


def load_counters(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    sources: Mapping[str, str],
    layout: Layout,
    first: str,
    end_ns: int | None = None,
) -> Iterator[tuple[LoadCounter, Thread]]:
    """Yield the counters of each device with the thread to put them on; none for runs that are not captures.

    sources  FROM clauses of the tasks and the memory
    first    SQL of the time when memory from before the recording counts
    end_ns   when an excerpt ends: ops that start then or later are pending until its end
    """
    if not has_format(connection, run_id, "npulog"):
        return
    threads: dict[tuple[str, int], Thread] = {}
    for thread in layout.threads:
        if thread.layer == "device" and thread.owner is not None:
            threads.setdefault((thread.source, thread.owner), thread)
    for device_id in sorted({owner for _, owner in threads}):
        for counter in _of_device(sources, device_id, first, end_ns):
            if (counter.source, device_id) in threads:
                yield counter, threads[counter.source, device_id]


def _of_device(sources: Mapping[str, str], device_id: int, first: str, end_ns: int | None) -> list[LoadCounter]:
    tasks = f"(SELECT * FROM {sources['task']} WHERE device_id = {device_id} AND start_ns IS NOT NULL)"
    # An op that starts before its submission, by the error of the clocks, is never pending.
    ops = f"(SELECT * FROM {tasks} WHERE op_id IS NOT NULL AND start_ns >= submit_ns)"
    started = ops if end_ns is None else f"(SELECT * FROM {ops} WHERE start_ns < {end_ns})"
    pending = (Timed(ops, "submit_ns", ("1",)), Timed(started, "start_ns", ("-1",)))
    work = f"(SELECT * FROM {tasks} WHERE kind IS DISTINCT FROM 'sync' AND dur_ns > 0)"
    tensors = f"(SELECT * FROM {sources['memory']} WHERE device_id = {device_id} AND kind = 'block' AND {_IS_TENSOR})"
    live = allocations(tensors, ("1",), first)
    return [
        LoadCounter("Utilisation", "%", "task", (Timed(work, "start_ns", ("start_ns + dur_ns",)),)),
        LoadCounter("Pending ops", "count", "task", pending),
        LoadCounter("Live tensors", "count", "memory", live),
    ]


def allocations(source: str, sizes: tuple[str, ...], first: str) -> tuple[Timed, ...]:
    """Return how blocks or segments change sums, by SQL of each one's `sizes`.

    Those allocated before the recording count from `first`, an SQL expression.
    """
    return (
        Timed(source, "alloc_ns", sizes),
        Timed(source, "free_ns", tuple(f"-({size})" for size in sizes)),
        Timed(f"(SELECT {first} AS first_ns, * FROM {source} WHERE alloc_ns IS NULL)", "first_ns", sizes),
    )


_IS_TENSOR = "purpose IN ('weight', 'input', 'output', 'activation')"


def _utilisation(connection: duckdb.DuckDBPyConnection, tasks: Timed) -> tuple[list[int], list[float]]:
    """Return the times and values of utilisation in percent."""
    span = f"min({tasks.time}), max({tasks.values[0]}) - min({tasks.time})"
    [(first, length)] = connection.execute(f"SELECT {span} FROM {tasks.source}").fetchall()
    if first is None:
        return [], []
    width = -(-length // _WINDOWS)
    times = [first + passed for passed in (*range(0, length, width), length)]
    busy = BusyTime(np.array(times))
    for start, end in in_time_order(connection, [tasks]):
        busy.add(start, end)
    values = 100.0 * np.diff(busy.before_ns) / np.diff(times)
    return times, [*values.tolist(), 0.0]
