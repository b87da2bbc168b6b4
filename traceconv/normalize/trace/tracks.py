"""Processes, threads, async tracks and counters of trace JSON, by what the source calls them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.events.trace import Label, NamedTrack, TrackName
from traceconv.normalize.tracks import Tracks


class TraceTracks(Tracks):
    """Tracks by names and numbers of the source: `1` and `"1"` are one and the same."""

    def process_of(self, pid: Label) -> int | None:
        """The id of a process; None when the event names none."""
        return None if pid is None else self.process(str(pid), None)

    def name_process(self, pid: Label, name: str) -> None:
        """Says what a process is called."""
        process_id = self.process_of(pid)
        if process_id is not None:
            self._processes.change(process_id, name=name)

    def sort_process(self, pid: Label, index: int) -> None:
        """Says where a process is shown."""
        process_id = self.process_of(pid)
        if process_id is not None:
            self._processes.change(process_id, sort_index=index)

    def thread_of(self, pid: Label, tid: Label | NamedTrack) -> int:
        """The track of a thread; of an event without tid, the main thread of its process, whose number is the pid."""
        process_id = self.process_of(pid)
        if isinstance(tid, NamedTrack):
            return self._tracks.number((tid.kind, process_id, tid.key), tid.kind, process_id, None, tid.key)
        tid = pid if tid is None else tid
        tid_text = None if tid is None else str(tid)
        return self._tracks.number(("thread", process_id, tid_text), "thread", process_id, None, tid_text)

    def name_thread(self, pid: Label, tid: Label | NamedTrack, name: str) -> None:
        """Says what a thread is called."""
        self._tracks.change(self.thread_of(pid, tid), name=name)

    def sort_thread(self, pid: Label, tid: Label | NamedTrack, index: int) -> None:
        """Says where a thread is shown."""
        self._tracks.change(self.thread_of(pid, tid), sort_index=index)

    def describe(self, track: TrackName) -> None:
        """What a source says of a track elsewhere than in its events."""
        if track.tid is None:
            if track.name is not None:
                self.name_process(track.pid, track.name)
            if track.sort_index is not None:
                self.sort_process(track.pid, track.sort_index)
            return
        if isinstance(track.tid, NamedTrack) and track.tid.kind == "counter":
            self._tracks.change(self.counter_of(track.pid, track.name, track.tid.key or None), unit=track.unit)
            return
        if track.scope is not None:
            self._tracks.change(self.thread_of(track.pid, track.tid), scope=track.scope)
        if track.name is not None:
            self.name_thread(track.pid, track.tid, track.name)
        if track.sort_index is not None:
            self.sort_thread(track.pid, track.tid, track.sort_index)

    def async_of(self, pid: Label, category: str | None, id_text: str, scope: str | None, name: str | None) -> int:
        """The track of an asynchronous sequence. `pid` None: its id is unique in the whole trace.

        `name`: of the event that comes first.
        """
        process_id = self.process_of(pid)
        lies_in = scope or ("global" if pid is None else "process")
        key = ("async", process_id, category, id_text, scope)
        return self._tracks.number(key, "async", process_id, None, id_text, None, name, None, None, lies_in)

    def counter_of(self, pid: Label, name: str | None, id_text: str | None) -> int:
        """The track of a counter."""
        process_id = self.process_of(pid)
        key = ("counter", process_id, name, id_text)
        return self._tracks.number(key, "counter", process_id, None, None, None, name, None, None, id_text)

    def make_stream(self, track_id: int, device_id: int | None, stream_id: int | None) -> None:
        """Says that tasks of a device run on a track."""
        track = self._tracks.at(track_id)
        was = track.kind, track.device_id, track.stream_id
        kind = "stream" if track.kind == "thread" else track.kind
        device_id = device_id if track.device_id is None else track.device_id
        stream_id = stream_id if track.stream_id is None else track.stream_id
        if was != (kind, device_id, stream_id):
            self._tracks.change(track_id, kind=kind, device_id=device_id, stream_id=stream_id)

    def load(self, track_ids: NDArray[np.signedinteger[Any]]) -> None:
        """To be called before much is asked of these tracks, which may come more than once."""
        if self._tracks.spilled:
            self._tracks.load(np.unique(track_ids).tolist())

    def names_of(self, track_id: int) -> tuple[str | None, str | None]:
        """The names of a track's process and its thread; the source's word for the thread where it has none.

        The id of an asynchronous track is no such word: it tells the track from others, and says nothing of it.
        """
        track = self._tracks.at(track_id)
        process = None if track.process_id is None else self._processes.at(track.process_id).name
        return process, track.name or (track.tid_text if track.kind != "async" else None)

    def process_id_of(self, track_id: int) -> int | None:
        """The process of a track."""
        return self._tracks.at(track_id).process_id

    def process_names(self) -> Iterator[str]:
        """The names of processes, as far as they have any."""
        return (row.name for rows in self._processes.rows() for row in rows if row.name)

    def thread_names(self) -> Iterator[str]:
        """The names of tracks, each as `names_of` says it."""
        for rows in self._tracks.rows():
            for row in rows:
                name = row.name or (row.tid_text if row.kind != "async" else None)
                if name:
                    yield name
