"""Processes, threads, async tracks and counters of trace files, by the source's names and IDs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.workers import Workers
from traceconv.events.trace import Label, NamedTrack, ReusedId, TrackName
from traceconv.normalize.memory_budget import Budget
from traceconv.normalize.trace.async_tracks import AsyncTrack, AsyncTracks
from traceconv.normalize.tracks import Track, Tracks

#: Sides of a pid and tid: those of a thread, or the numbers of a device and a stream. _BOTH: the first track with them
#: is the device's, and there is another one for the host.
HOST, DEVICE, _BOTH = 1, 2, 3
#: The first track with a pid and tid, whatever its side.
FIRST = 4
#: The text before the number of a pid.
_LABEL = re.compile(r".*\D(?=\d+$)", re.DOTALL)
#: Threads and counters that are found again without looking at their rows.
_MOST_RECENT = 1 << 14


class TraceTracks(Tracks):
    """Tracks by names and numbers of the source. `1` and `"1"` are the same."""

    def __init__(self, budget: Budget | None = None, writer: Workers | None = None) -> None:
        """`budget`: see Tracks. `writer`: of the rows of async tracks."""
        super().__init__(budget)
        self.asyncs = AsyncTracks(self._tracks.skip, writer)
        #: By track number: the side that it was first used for.
        self._sides = bytearray()
        #: Pairs of tracks with one pid and tid, by the number of the first: the host's, the device's.
        self.pairs: dict[int, tuple[int, int]] = {}
        #: Tracks whose tasks are of several streams.
        self._mixed: set[int] = set()
        #: Recent tracks, by all that they were asked for by, and its types: True is not 1.
        self._recent: dict[tuple[object, ...], int] = {}

    def process_of(self, pid: Label) -> int | None:
        """Return the ID of a process, None for no pid."""
        if isinstance(pid, ReusedId):
            return self._processes.number(pid, str(pid), None)
        return None if pid is None else self.process(str(pid), None)

    def change_process(self, pid: Label, **values: object) -> None:
        """Set columns of a process; nothing for no pid."""
        process_id = self.process_of(pid)
        if process_id is not None:
            self._processes.change(process_id, **values)

    def thread_of(self, pid: Label, tid: Label | NamedTrack, side: int = 0) -> int:
        """Return the track of a thread; without a tid, of the process's main thread, whose number is the pid.

        side  HOST or DEVICE, if the event shows it; each side has a track of its own if both occur. FIRST: any of them
        """
        key = pid, type(pid), tid, type(tid), side
        number = self._recent.get(key)
        return self._keep(key, self._thread_of(pid, tid, side)) if number is None else number

    def _keep(self, key: tuple[object, ...], number: int) -> int:
        if len(self._recent) >= _MOST_RECENT:
            self._recent.clear()
        self._recent[key] = number
        return number

    def _thread_of(self, pid: Label, tid: Label | NamedTrack, side: int) -> int:
        process_id = self.process_of(pid)
        if isinstance(tid, NamedTrack):
            return self._tracks.number((tid.kind, process_id, tid.key), tid.kind, process_id, None, tid.key)
        tid = pid if tid is None else tid
        tid_text = None if tid is None else str(tid)
        key = ("thread", process_id, tid if isinstance(tid, ReusedId) and tid != pid else tid_text)
        values = "thread", process_id, None, tid_text
        number = self._tracks.number(key, *values)
        if number >= len(self._sides):
            self._sides.extend(bytes(number + 1))
        first = self._sides[number]
        if side == FIRST or (first in (0, side or first) and first != _BOTH):
            self._sides[number] = first or side % FIRST
            return number
        if first == _BOTH and side == DEVICE:
            return number
        other = self._tracks.number((*key, "other"), *values)
        if number not in self.pairs:
            self.pairs[number] = (number, other) if first == HOST else (other, number)
            self._recent.clear()  # from now on, each side has a track of its own
        if first != HOST:
            self._sides[number] = _BOTH
        return other

    def change_thread(self, pid: Label, tid: Label | NamedTrack, **values: object) -> None:
        """Set columns of a thread's track."""
        self._tracks.change(self.thread_of(pid, tid), **values)

    def describe(self, track: TrackName) -> None:
        """Set what a source specifies of a process or track outside of its events."""
        parent = None if track.parent is None else self.thread_of(*track.parent)
        if isinstance(track.tid, NamedTrack) and track.tid.kind == "counter":
            number = self.counter_of(track.pid, track.name, track.tid.key or None)
            self._tracks.change(number, unit=track.unit, parent_track_id=parent, properties=track.properties)
            return
        given = {"parent_track_id": parent, "properties": track.properties}
        given |= {"name": track.name, "sort_index": track.sort_index, "scope": track.scope}
        values = {column: value for column, value in given.items() if value is not None}
        if values and track.tid is None:
            self.change_process(track.pid, **values)
        elif values:
            self.change_thread(track.pid, track.tid, **values)

    def counter_of(self, pid: Label, name: str | None, id_text: str | None) -> int:
        """Return the track of a counter."""
        recent = pid, type(pid), name, id_text
        number = self._recent.get(recent)
        if number is not None:
            return number
        process_id = self.process_of(pid)
        key = ("counter", process_id, name, id_text)
        values = "counter", process_id, None, None, None, name, None, None, id_text
        return self._keep(recent, self._tracks.number(key, *values))

    def make_streams(self, tracks: Int64, device: tuple[Int64, Int64], stream: tuple[Int64, Int64]) -> None:
        """Mark tracks as ones on which a device runs tasks.

        device, stream  the numbers, and whether each is known (1); the first known device of a track is kept,
                        and its stream unless there are several
        """
        is_async = self.asyncs.among(tracks)
        rows = np.flatnonzero(is_async)
        if len(rows):
            found = {"device_id": device, "stream_id": stream}
            own = {column: (values[rows], known[rows]) for column, (values, known) in found.items()}
            self.asyncs.make_streams(tracks[rows], **own)
        for row in np.flatnonzero(~is_async).tolist():
            device_id, stream_id = (int(values[row]) if known[row] else None for values, known in (device, stream))
            self._make_stream(int(tracks[row]), device_id, stream_id)

    def _make_stream(self, track_id: int, device_id: int | None, stream_id: int | None) -> None:
        track = self._tracks.at(track_id)
        was = track.kind, track.device_id, track.stream_id
        kind = "stream" if track.kind == "thread" else track.kind
        device_id = device_id if track.device_id is None else track.device_id
        if track.stream_id is not None and stream_id not in (None, track.stream_id):
            self._mixed.add(track_id)
        stream_id = None if track_id in self._mixed else track.stream_id if stream_id is None else stream_id
        if was != (kind, device_id, stream_id):
            self._tracks.change(track_id, kind=kind, device_id=device_id, stream_id=stream_id)

    def load(self, track_ids: NDArray[np.signedinteger[Any]]) -> None:
        """Read the rows of these tracks together, before they are needed one by one. Track IDs may repeat."""
        distinct = np.unique(track_ids).astype(np.int64)
        is_async = self.asyncs.among(distinct)
        self.asyncs.load(distinct[is_async])
        if self._tracks.spilled:
            self._tracks.load(distinct[~is_async].tolist())

    def _row(self, track_id: int) -> Track | AsyncTrack:
        return self.asyncs.at(track_id) if track_id in self.asyncs else self._tracks.at(track_id)

    def names_of(self, track_id: int) -> tuple[str | None, str | None]:
        """Return the names of a track's process, or else its pid, and of the track (see `_name`)."""
        track = self._row(track_id)
        if track.process_id is None:
            return None, _name(track)
        process = self._processes.at(track.process_id)
        return process.name or process.pid_text, _name(track)

    def process_id_of(self, track_id: int) -> int | None:
        """Return the process of a track."""
        return self._row(track_id).process_id

    def pid_of(self, process_id: int) -> str:
        """Return the source's pid of a process."""
        return self._processes.at(process_id).pid_text

    def by_label(self, processes: Iterable[int | None]) -> Callable[[int | None], int | None]:
        """Return a function from a process to the one of `processes` with the same label, None if not exactly one has.

        Tools that merge the traces of ranks write the rank before all pids: `[TP01] 0` is a device of `[TP01] 4711`.
        """
        found: dict[str, int | None] = {}
        for process in processes:
            if label := self._label(process):
                found[label] = None if label in found else process
        return lambda process: found.get(self._label(process))

    def _label(self, process: int | None) -> str:
        match = None if process is None else _LABEL.match(self.pid_of(process))
        return match[0] if match else ""

    def process_names(self) -> Iterator[str]:
        """Yield the names of processes that have one."""
        return (row.name for rows in self._processes.rows() for row in rows if row.name)

    def thread_names(self) -> Iterator[str]:
        """Yield the names of tracks that have one (see `_name`)."""
        yield from (name for rows in self._tracks.rows() for row in rows if (name := _name(row)))
        yield from filter(None, self.asyncs.names())

    def track_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of table track."""
        yield from super().track_rows()
        yield from self.asyncs.rows()

    def close(self) -> None:
        """Free the disk space."""
        super().close()
        self.asyncs.close()


def _name(track: Track | AsyncTrack) -> str | None:
    """Return a track's name, or else the source's tid. The ID of an async track is not used: it describes nothing."""
    return track.name or (track.tid_text if isinstance(track, Track) and track.kind != "async" else None)
