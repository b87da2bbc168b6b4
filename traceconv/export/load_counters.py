"""Counters of a device's load over time, for timelines of captures: computed from the exported rows, at every change.

"Pending ops" are the ops that were launched and that the device has not started. "Live tensors" are the tensors that
have device memory. "Utilisation" is the part of the time in which the device runs any task but waits, in windows: the
time from its first task to the end of its last, cut into 100 equal parts; a sample is at the start of its window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.base.errors import StoreError
from traceconv.export.chrome_layout import Layout, Thread

_WINDOWS = 100
_BATCH_ROWS = 1 << 16
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoadCounter:
    """A counter of one device, and the table it belongs to.

    `sql` is a SELECT in any order: for counts, of ts_ns and change; for utilisation, of the start and end of tasks.
    """

    name: str
    unit: str
    source: str
    sql: str

    @property
    def is_whole(self) -> bool:
        """Whether the values are integers, not doubles."""
        return self.unit == "count"

    def samples(self, connection: duckdb.DuckDBPyConnection, value: str = "value") -> Iterator[pa.RecordBatch]:
        """Yield ts_ns and value, in order. `value`: SQL of a double."""
        if self.is_whole:
            for times, sums, differs in running_sums(connection, self.sql):
                yield pa.RecordBatch.from_arrays(
                    [pa.array(times[differs], pa.int64()), pa.array(sums[differs], pa.int64())], ["ts_ns", "value"]
                )
        else:
            edges, percents = _utilisation(connection, self.sql)
            samples = "SELECT unnest($1::BIGINT[]) AS ts_ns, unnest($2::DOUBLE[]) AS value"
            query = f"SELECT ts_ns, {value} AS value FROM ({samples})"
            yield from connection.sql(query, params=[edges, percents]).to_arrow_reader(_BATCH_ROWS)


def running_sums(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[tuple[Int64, Int64, NDArray[np.bool_]]]:
    """Yield the times of changes in order, the sum at each, and whether it differs from the previous one.

    `sql` is a SELECT of ts_ns and change. Raises StoreError if a sum exceeds 64 bits.
    """
    query = f"SELECT ts_ns, change::BIGINT AS change FROM ({sql}) ORDER BY ts_ns"
    # The last time of a batch may go on in the next one.
    level, last_time, last_change = 0, np.zeros(0, np.int64), np.zeros(0, np.int64)
    for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
        if not batch.num_rows:
            continue
        times = np.concatenate([last_time, batch.column(0).to_numpy()])
        changes = np.concatenate([last_change, batch.column(1).to_numpy()])
        sums = level + np.cumsum(changes)
        if bool(((sums ^ (sums - changes)) & (sums ^ changes) < 0).any()):
            raise StoreError("the sum of sizes in table memory exceeds 64 bits; the store is damaged")
        ends = np.flatnonzero(times[1:] != times[:-1])
        yield times[ends], sums[ends], _differs(sums[ends], level)
        level = int(sums[ends[-1]]) if len(ends) else level
        last_time, last_change = times[-1:], sums[-1:] - level
    sums = level + last_change
    yield last_time, sums, _differs(sums, level)


def _differs(sums: Int64, level: int) -> NDArray[np.bool_]:
    """Return whether each sum differs from the previous one. `level`: the one before the first."""
    differs: NDArray[np.bool_] = np.diff(sums, prepend=np.int64(level)) != 0
    return differs


def load_counters(
    connection: duckdb.DuckDBPyConnection, run_id: int, sources: Mapping[str, str], layout: Layout, first: str
) -> Iterator[tuple[LoadCounter, Thread]]:
    """Yield the counters of each device with the thread to put them on; none for runs that are not captures.

    `sources`: FROM clauses of the exported rows. `first`: SQL of the time when memory from before the recording counts.
    """
    query = "SELECT 1 FROM run WHERE run_id = ? AND source_format = 'npulog'"
    if not connection.execute(query, [run_id]).fetchall():
        return
    threads: dict[tuple[str, int], Thread] = {}
    for thread in layout.threads:
        if thread.layer == "device" and thread.owner is not None:
            threads.setdefault((thread.source, thread.owner), thread)
    for device_id in sorted({owner for _, owner in threads}):
        for counter in _of_device(sources, device_id, first):
            if (counter.source, device_id) in threads:
                yield counter, threads[counter.source, device_id]


def _of_device(sources: Mapping[str, str], device_id: int, first: str) -> list[LoadCounter]:
    tasks = f"(SELECT * FROM {sources['task']} WHERE device_id = {device_id} AND start_ns IS NOT NULL)"
    ops = f"(SELECT * FROM {tasks} WHERE op_id IS NOT NULL AND submit_ns IS NOT NULL)"
    # The clocks of host and device differ by their error.
    pending = (
        f"SELECT submit_ns AS ts_ns, 1 AS change FROM {ops} "
        f"UNION ALL SELECT greatest(start_ns, submit_ns) AS ts_ns, -1 AS change FROM {ops}"
    )
    work = (
        f"SELECT start_ns, start_ns + dur_ns AS end_ns FROM {tasks} WHERE kind IS DISTINCT FROM 'sync' AND dur_ns > 0"
    )
    tensors = f"(SELECT * FROM {sources['memory']} WHERE device_id = {device_id} AND kind = 'block' AND {_IS_TENSOR})"
    live = (
        f"SELECT coalesce(alloc_ns, {first}) AS ts_ns, 1 AS change FROM {tensors} "
        f"UNION ALL SELECT free_ns, -1 FROM {tensors} WHERE free_ns IS NOT NULL"
    )
    return [
        LoadCounter("Utilisation", "%", "task", work),
        LoadCounter("Pending ops", "count", "task", pending),
        LoadCounter("Live tensors", "count", "memory", live),
    ]


_IS_TENSOR = "purpose IN ('weight', 'input', 'output', 'activation')"


def _utilisation(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[int], list[float]]:
    """Return the times and values of utilisation in percent. `sql` is a SELECT of start_ns and end_ns, not empty."""
    [(first, length)] = connection.execute(f"SELECT min(start_ns), max(end_ns) - min(start_ns) FROM ({sql})").fetchall()
    if first is None:
        return [], []
    width = -(-length // _WINDOWS)
    times = [first + passed for passed in (*range(0, length, width), length)]
    edges = np.array(times)
    # Nanoseconds before each edge in which a task runs.
    busy = np.zeros(len(edges), np.int64)
    last_end = first
    for batch in connection.sql(f"{sql} ORDER BY start_ns").to_arrow_reader(_BATCH_ROWS):
        start, end = (column.to_numpy() for column in batch.columns)
        ends = np.maximum.accumulate(np.append(last_end, end))
        last_end = ends[-1]
        # The time of each task after the end of all tasks before it; what is after an edge is covered by one task.
        sums = np.append(0, np.cumsum(ends[1:] - np.maximum(start, ends[:-1])))
        before = np.searchsorted(start, edges)
        busy += sums[before] - np.maximum(ends[before] - np.maximum(edges, ends[0]), 0)
    values = 100.0 * np.diff(busy) / np.diff(edges)
    return times, [*values.tolist(), 0.0]
