"""Processes, threads, async tracks and counters of trace JSON, by what the source calls them."""

from __future__ import annotations

import pyarrow as pa

from traceconv.json_events import Label, NamedTrack, TrackName
from traceconv.normalize.rows import rows_from_tuples
from traceconv.normalize.tracks import Tracks


class TraceTracks(Tracks):
    """Tracks by names and numbers of the source: `1` and `"1"` are one and the same."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, str | None] = {}
        self._sort_indices: dict[int, int | None] = {}

    def process_of(self, pid: Label) -> int | None:
        """The id of a process; None when the event names none."""
        return None if pid is None else self.process(str(pid), None)

    def name_process(self, pid: Label, name: str) -> None:
        """Says what a process is called."""
        process_id = self.process_of(pid)
        if process_id is not None:
            self._names[process_id] = name

    def sort_process(self, pid: Label, index: int) -> None:
        """Says where a process is shown."""
        process_id = self.process_of(pid)
        if process_id is not None:
            self._sort_indices[process_id] = index

    def thread_of(self, pid: Label, tid: Label | NamedTrack) -> int:
        """The track of a thread; of an event without tid, the main thread of its process, whose number is the pid."""
        process_id = self.process_of(pid)
        if isinstance(tid, NamedTrack):
            track = self._track(tid.kind, process_id, tid.key)
            track.process_id, track.tid_text = process_id, tid.key
            return track.track_id
        tid = pid if tid is None else tid
        track = self._track("thread", process_id, None if tid is None else str(tid))
        track.process_id, track.tid_text = process_id, None if tid is None else str(tid)
        return track.track_id

    def name_thread(self, pid: Label, tid: Label | NamedTrack, name: str) -> None:
        """Says what a thread is called."""
        self._by_id(self.thread_of(pid, tid)).name = name

    def sort_thread(self, pid: Label, tid: Label | NamedTrack, index: int) -> None:
        """Says where a thread is shown."""
        self._by_id(self.thread_of(pid, tid)).sort_index = index

    def describe(self, track: TrackName) -> None:
        """What a source says of a track elsewhere than in its events."""
        if track.tid is None:
            if track.name is not None:
                self.name_process(track.pid, track.name)
            if track.sort_index is not None:
                self.sort_process(track.pid, track.sort_index)
            return
        if isinstance(track.tid, NamedTrack) and track.tid.kind == "counter":
            self._by_id(self.counter_of(track.pid, track.name, track.tid.key or None)).unit = track.unit
            return
        if track.scope is not None:
            self._by_id(self.thread_of(track.pid, track.tid)).scope = track.scope
        if track.name is not None:
            self.name_thread(track.pid, track.tid, track.name)
        if track.sort_index is not None:
            self.sort_thread(track.pid, track.tid, track.sort_index)

    def async_of(self, pid: Label, category: str | None, id_text: str, scope: str | None, name: str | None) -> int:
        """The track of an asynchronous sequence. `pid` None: its id is unique in the whole trace."""
        process_id = self.process_of(pid)
        track = self._track("async", process_id, category, id_text, scope)
        if track.name is None:
            track.name = name
        track.process_id, track.tid_text = process_id, id_text
        track.scope = scope or ("global" if pid is None else "process")
        return track.track_id

    def counter_of(self, pid: Label, name: str | None, id_text: str | None) -> int:
        """The track of a counter."""
        process_id = self.process_of(pid)
        track = self._track("counter", process_id, name, id_text)
        track.process_id, track.name, track.scope = process_id, name, id_text
        return track.track_id

    def make_stream(self, track_id: int, device_id: int | None, stream_id: int | None) -> None:
        """Says that tasks of a device run on a track."""
        track = self._by_id(track_id)
        if track.kind == "thread":
            track.kind = "stream"
        if track.device_id is None:
            track.device_id = device_id
        if track.stream_id is None:
            track.stream_id = stream_id

    def names(self) -> dict[int, tuple[str | None, str | None]]:
        """Of each track the names of its process and its thread; the source's word for the thread where it has none.

        The id of an asynchronous track is no such word: it tells the track from others, and says nothing of it.
        """
        return {
            track.track_id: (
                self._names.get(track.process_id) if track.process_id is not None else None,
                track.name or (track.tid_text if track.kind != "async" else None),
            )
            for track in self._in_order
        }

    def processes(self) -> dict[int, int | None]:
        """The process of each track."""
        return {track.track_id: track.process_id for track in self._in_order}

    def process_rows(self) -> pa.RecordBatch:
        """The table process."""
        rows = [
            (number, pid_text, self._names.get(number), self._sort_indices.get(number))
            for pid_text, (number, _) in self._processes.items()
        ]
        return rows_from_tuples("process", ("process_id", "pid_text", "name", "sort_index"), rows)
