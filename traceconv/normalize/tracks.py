"""The lines of the timeline: which thread, stream or counter is which track, in the order they are met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.normalize.rows import rows_from_tuples

Int64 = NDArray[np.int64]


@dataclass(slots=True)
class _Track:
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


class Tracks:
    """Gives out track and process ids, and makes the rows of both tables."""

    def __init__(self) -> None:
        self._processes: dict[str, tuple[int, str | None]] = {}
        self._tracks: dict[tuple[object, ...], _Track] = {}
        self._in_order: list[_Track] = []

    def process(self, pid_text: str, name: str | None) -> int:
        """The id of a process, which is made when it is new."""
        if pid_text not in self._processes:
            self._processes[pid_text] = (len(self._processes) + 1, name)
        return self._processes[pid_text][0]

    def _track(self, kind: str, *key: object) -> _Track:
        full = (kind, *key)
        if full not in self._tracks:
            self._tracks[full] = _Track(len(self._tracks) + 1, kind)
            self._in_order.append(self._tracks[full])
        return self._tracks[full]

    def _by_id(self, track_id: int) -> _Track:
        return self._in_order[track_id - 1]

    def describe_thread(self, thread_id: int, process_id: int, name: str | None, sort_index: int | None) -> None:
        """What is known of a thread."""
        track = self._track("thread", thread_id)
        track.tid_text, track.process_id, track.name, track.sort_index = str(thread_id), process_id, name, sort_index

    def describe_stream(self, device_id: int, stream_id: int, name: str | None) -> None:
        """What is known of a stream."""
        self.stream(device_id, stream_id)
        self._track("stream", device_id, stream_id).name = name or f"Stream {stream_id}"

    def thread(self, thread_id: int) -> int:
        """The track of a host thread."""
        track = self._track("thread", thread_id)
        track.tid_text = str(thread_id)
        return track.track_id

    def stream_group(self, device_id: int, stream_id: int) -> str | None:
        """The group of devices that a stream of collectives belongs to, which its name ends in; None: not known."""
        name = self._track("stream", device_id, stream_id).name or ""
        kind, _, group = name.partition(" ")
        return group or None if kind == "communication" else None

    def stream(self, device_id: int, stream_id: int) -> int:
        """The track of a stream."""
        track = self._track("stream", device_id, stream_id)
        if track.stream_id is None:
            track.device_id, track.stream_id = device_id, stream_id
            track.name, track.sort_index = f"Stream {stream_id}", stream_id
        return track.track_id

    def counter(self, device_id: int, name: str | None, unit: str | None) -> int:
        """The track of a device's counter."""
        track = self._track("counter", device_id, name)
        track.device_id, track.name, track.unit = device_id, name, unit
        return track.track_id

    def process_rows(self) -> pa.RecordBatch:
        """The table process."""
        rows = [(number, pid_text, name) for pid_text, (number, name) in self._processes.items()]
        return rows_from_tuples("process", ("process_id", "pid_text", "name"), rows)

    def track_rows(self) -> pa.RecordBatch:
        """The table track."""
        names = _Track.__slots__
        rows = [tuple(getattr(track, name) for name in names) for track in self._tracks.values()]
        return rows_from_tuples("track", tuple(names), rows)


def map_distinct(values: NDArray[np.unsignedinteger], function: Callable[[int], int]) -> Int64:
    """`function` of each value, called once for each distinct one: for columns with few distinct values."""
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
