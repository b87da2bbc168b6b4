"""Track and process IDs, in the order in which threads, streams and counters are first seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.normalize.memory_budget import Budget, NumberedRows, Row
from traceconv.normalize.rows import rows_from_tuples


@dataclass(slots=True)
class Track:
    """A row of the table track."""

    track_id: int
    kind: str
    process_id: int | None = None
    device_id: int | None = None
    tid_text: str | None = None
    stream_id: int | None = None
    name: str | None = None
    unit: str | None = None
    sort_index: int | None = None
    scope: str | None = None
    parent_track_id: int | None = None
    properties: str | None = None


#: Its columns.
TRACK_COLUMNS = tuple(field.name for field in fields(Track))


@dataclass(slots=True)
class Process:
    """A row of the table process."""

    process_id: int
    pid_text: str
    name: str | None = None
    sort_index: int | None = None
    properties: str | None = None


class Tracks:
    """Assigns track and process IDs, and produces the rows of both tables."""

    def __init__(self, budget: Budget | None = None) -> None:
        """`budget`: bounds their memory; None: a budget of their own, which `close` frees."""
        self._budget = budget or Budget()
        self._tracks = NumberedRows(self._budget, "track", Track)
        self._processes = NumberedRows(self._budget, "process", Process)

    def close(self) -> None:
        """Free the disk space."""
        self._budget.close()

    @property
    def count(self) -> int:
        """The number of tracks."""
        return self._tracks.count

    @property
    def process_count(self) -> int:
        """How many processes there are."""
        return self._processes.count

    def process(self, pid_text: str, name: str | None) -> int:
        """Return the ID of a process, new or known."""
        return self._processes.number((pid_text,), pid_text, name)

    def describe_thread(self, thread_id: int, process_id: int, name: str | None, sort_index: int | None) -> None:
        """Set the columns of a thread."""
        self._tracks.change(self.thread(thread_id), process_id=process_id, name=name, sort_index=sort_index)

    def describe_stream(self, device_id: int, stream_id: int, name: str | None) -> None:
        """Set the name of a stream."""
        self._tracks.change(self.stream(device_id, stream_id), name=name or f"Stream {stream_id}")

    def thread(self, thread_id: int) -> int:
        """Return the track of a host thread."""
        return self._tracks.number(("thread", thread_id), "thread", None, None, str(thread_id))

    def stream_group(self, device_id: int, stream_id: int) -> str | None:
        """Return the device group of a stream of collectives, as its name ends in it; None: unknown."""
        name = self._tracks.at(self.stream(device_id, stream_id)).name or ""
        kind, _, group = name.partition(" ")
        return group or None if kind == "communication" else None

    def stream(self, device_id: int, stream_id: int) -> int:
        """Return the track of a stream."""
        values = ("stream", None, device_id, None, stream_id, f"Stream {stream_id}", None, stream_id)
        return self._tracks.number(("stream", device_id, stream_id), *values)

    def counter(self, device_id: int, name: str | None, unit: str | None) -> int:
        """Return the track of a device's counter."""
        number = self._tracks.number(("counter", device_id, name), "counter", None, device_id, None, None, name, unit)
        if self._tracks.at(number).unit != unit:
            self._tracks.change(number, unit=unit)
        return number

    def process_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of table process."""
        return _batches("process", Process, self._processes)

    def track_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of table track."""
        return _batches("track", Track, self._tracks)


def _batches(table: str, kind: type[Row], rows: NumberedRows[Row]) -> Iterator[pa.RecordBatch]:
    names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type] # a dataclass
    for some in rows.rows():
        yield rows_from_tuples(table, names, map(attrgetter(*names), some))


def map_distinct(values: NDArray[np.unsignedinteger], function: Callable[[int], int]) -> Int64:
    """Apply `function` to each value, once for each distinct one: for columns with few distinct values."""
    if not len(values):
        return np.zeros(0, np.int64)
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span <= 1 << 16:
        shifted = (values - values.dtype.type(low)).astype(np.intp)
        table = np.zeros(span, np.int64)
        for present in np.flatnonzero(np.bincount(shifted, minlength=span)).tolist():
            table[present] = function(present + low)
        return np.asarray(table[shifted])
    distinct, inverse = np.unique(values, return_inverse=True)
    mapped: Int64 = np.array([function(value) for value in distinct.tolist()], np.int64)[inverse]
    return mapped
