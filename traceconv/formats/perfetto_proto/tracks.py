"""Descriptors of tracks → where their events belong: a process, a thread, a counter or a separate track."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from traceconv.events.trace import Label, NamedTrack, TrackName
from traceconv.formats.perfetto_proto.annotations import quoted
from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.sequences import Texts

_UNITS = {1: "ns", 2: "count", 3: "bytes"}
#: CounterDescriptor.type of counters whose values are columns of slices.
THREAD_TIME, THREAD_INSTRUCTIONS = 1, 2
_CHROME_PROCESSES = {1: "Browser", 2: "Renderer", 3: "Utility", 4: "Zygote", 5: "Sandbox Helper", 6: "GPU"}
_MAX_DEPTH = 64


@dataclass(slots=True)
class _Track:
    name: str | None = None
    parent: int | None = None
    pid: Label = None
    tid: Label = None
    is_process: bool = False
    is_thread: bool = False
    is_counter: bool = False
    counter_type: int = 0
    unit: str | None = None
    multiplier: int = 1
    is_incremental: bool = False
    order: int | None = None


class Place(NamedTuple):
    """Where events of a track go. All after `tid` is for counters."""

    pid: Label
    tid: Label | NamedTrack
    name: str | None = None
    counter_type: int = 0
    multiplier: int = 1
    is_incremental: bool = False

    @property
    def id(self) -> bytes:
        """The ID of a counter's events, as JSON; empty for none."""
        return quoted(self.tid.key).encode() if isinstance(self.tid, NamedTrack) and self.tid.key else b""


@dataclass(slots=True)
class Descriptors:
    """Collects the descriptors of the complete trace; then finds where the events of each track go."""

    texts: Texts
    _tracks: dict[int, _Track] = field(default_factory=dict)
    #: Processes (no tid) and threads, by pid and tid.
    _names: dict[tuple[Label, Label], TrackName] = field(default_factory=dict)
    _places: dict[int, Place] = field(default_factory=dict)
    _counters: dict[int, Place] = field(default_factory=dict)
    _counter_keys: dict[tuple[Label, str | None, str], int] = field(default_factory=dict)
    #: Tracks with events but without a descriptor.
    undescribed: set[int] = field(default_factory=set)

    # -- from packets; all raise WireError --

    def take_track(self, data: bytes, start: int, end: int) -> None:
        """Add a TrackDescriptor. What it lacks stays as in an earlier one."""
        message = Message(data, start, end)
        uuid = message.number(1) or 0
        track = replace(self._tracks.get(uuid) or _Track())
        name = self._text(message, 13, 10, 2)
        track.name = track.name if name is None else name
        track.parent = _or(message.number(5), track.parent)
        track.order = _or(message.signed(12), track.order)
        for at, stop in message.spans(3):
            track.is_process, track.pid = True, self.take_process(data, at, stop)
        for at, stop in message.spans(4):
            track.is_thread = True
            track.pid, track.tid = self.take_thread(data, at, stop)
        for at, stop in message.spans(8):
            self._take_counter(track, Message(data, at, stop))
        if track.is_process or track.is_thread:
            self._name(track.pid, track.tid, None, track.order)
        self._tracks[uuid] = track

    def take_process(self, data: bytes, start: int, end: int) -> Label:
        """Add a ProcessDescriptor; return its pid."""
        message = Message(data, start, end)
        pid = message.signed(1) or 0
        command = message.texts(2)[:1]
        name = self._text(message, 6) or (self.texts.text(command[0]) if command else None)
        self._name(pid, None, name or _CHROME_PROCESSES.get(message.number(4) or 0), message.signed(3))
        return pid

    def take_thread(self, data: bytes, start: int, end: int) -> tuple[Label, Label]:
        """Add a ThreadDescriptor; return its pid and tid."""
        message = Message(data, start, end)
        pid, tid = message.signed(1) or 0, message.signed(2) or 0
        self._name(pid, tid, self._text(message, 5), message.signed(3))
        return pid, tid

    def take_process_tree(self, data: bytes, start: int, end: int) -> None:
        """Add the names of processes and threads of a ProcessTree."""
        message = Message(data, start, end)
        for at, stop in message.spans(1):
            process = Message(data, at, stop)
            command = process.texts(3)[:1]
            self._name(process.signed(1) or 0, None, self.texts.text(command[0]) if command else None)
        for at, stop in message.spans(2):
            thread = Message(data, at, stop)
            self._name(thread.signed(3) or 0, thread.signed(1) or 0, self._text(thread, 2))

    def _text(self, message: Message, *numbers: int) -> str | None:
        """The text of the first of these fields that the message has."""
        texts = (message.text(number) for number in numbers)
        return next((self.texts.text(text) for text in texts if text is not None), None)

    def _name(self, pid: Label, tid: Label, name: str | None, order: int | None = None) -> None:
        before = self._names.get((pid, tid), TrackName(pid, tid, None))
        self._names[pid, tid] = TrackName(pid, tid, name or before.name, _or(order, before.sort_index))

    def _take_counter(self, track: _Track, counter: Message) -> None:
        track.is_counter = True
        track.counter_type = counter.number(1) or 0
        track.unit = self._text(counter, 6) or _UNITS.get(counter.number(3) or 0)
        track.multiplier = counter.signed(4) or 1
        track.is_incremental = bool(counter.number(5))

    # -- for events --

    def place(self, uuid: int) -> Place:
        """Where slices and markers of a track go."""
        found = self._places.get(uuid)
        if found is None:
            found = self._places[uuid] = self._find(uuid)
        return found

    def counter(self, uuid: int) -> Place:
        """Where the samples of a counter go."""
        found = self._counters.get(uuid)
        if found is None:
            track = self._tracks.get(uuid) or self._unknown(uuid)
            found = self._counters[uuid] = Place(
                self._pid(uuid),
                NamedTrack("counter", self._counter_key(uuid)),
                track.name,
                track.counter_type,
                track.multiplier,
                track.is_incremental,
            )
        return found

    def _counter_key(self, uuid: int) -> str:
        """What distinguishes a counter from others of its name: its scope, and its UUID where that is not enough."""
        track = self._tracks.get(uuid)
        if track is None:
            return str(uuid)
        key = self._scope(uuid) or ""
        one = (self._pid(uuid), track.name, key)
        if self._counter_keys.setdefault(one, uuid) == uuid and track.name is not None:
            return key
        return f"{key} / {uuid}" if key else str(uuid)

    def _scope(self, uuid: int) -> str | None:
        """The names of the tracks above this one, below its process."""
        above = [self._title(one) for one in reversed(self._above(uuid)[1:]) if not one.is_process]
        return " / ".join(name for name in above if name) or None

    def _title(self, track: _Track) -> str | None:
        if not track.is_thread:
            return track.name
        named = self._names.get((track.pid, track.tid))
        return named.name if named is not None and named.name else f"thread {track.tid}"

    def _unknown(self, uuid: int) -> _Track:
        self.undescribed.add(uuid)
        return _Track()

    def _find(self, uuid: int) -> Place:
        track = self._tracks.get(uuid) or self._unknown(uuid)
        if track.is_thread:
            return Place(track.pid, track.tid)
        if track.is_process:
            return Place(track.pid, NamedTrack("process", str(track.pid)))
        if track.is_counter:
            return self.counter(uuid)
        return Place(self._pid(uuid), NamedTrack("async", str(uuid)), track.name)

    def _above(self, uuid: int) -> list[_Track]:
        """The track and its ancestors."""
        found: list[_Track] = []
        here: int | None = uuid
        while here is not None and here in self._tracks and len(found) < _MAX_DEPTH:
            found.append(self._tracks[here])
            here = self._tracks[here].parent or None
        return found

    def _pid(self, uuid: int) -> Label:
        return next((track.pid for track in self._above(uuid) if track.is_process or track.is_thread), None)

    def names(self) -> tuple[TrackName, ...]:
        """The names of all described tracks that may have events."""
        names = sorted(self._names.values(), key=lambda name: name.tid is not None)
        for uuid, track in self._tracks.items():
            if track.is_thread or track.is_process:
                continue
            place = self.counter(uuid) if track.is_counter else self.place(uuid)
            if track.counter_type in (THREAD_TIME, THREAD_INSTRUCTIONS):
                continue
            names.append(TrackName(place.pid, place.tid, track.name, track.order, track.unit, self._scope(uuid)))
        return tuple(names)


def _or(value: int | None, default: int | None) -> int | None:
    return default if value is None else value
