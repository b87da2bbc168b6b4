"""Descriptors of tracks → where events of a track belong: a process, a thread, a counter, a line of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from traceconv.events.trace import Label, NamedTrack, TrackName
from traceconv.formats.perfetto_proto.annotations import quoted
from traceconv.formats.perfetto_proto.sequences import Texts
from traceconv.wire.protobuf import LEN, fields, signed

_UNITS = {1: "ns", 2: "count", 3: "bytes"}
#: Of CounterDescriptor.type: counters whose values are columns of slices.
THREAD_TIME, THREAD_INSTRUCTIONS = 1, 2
_CHROME_PROCESSES = {1: "Browser", 2: "Renderer", 3: "Utility", 4: "Zygote", 5: "Sandbox Helper", 6: "GPU"}
_MAX_DEPTH = 64


@dataclass(slots=True)
class _Described:
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
    """Where events of a track go. The rest is of counters."""

    pid: Label
    tid: Label | NamedTrack
    name: str | None = None
    counter_type: int = 0
    multiplier: int = 1
    is_incremental: bool = False

    @property
    def id(self) -> bytes:
        """Of a counter: the id that its events have, as JSON; empty for none."""
        return quoted(self.tid.key).encode() if isinstance(self.tid, NamedTrack) and self.tid.key else b""


@dataclass(slots=True)
class Descriptors:
    """Takes the descriptors of a whole trace; then tells of each track where its events go."""

    texts: Texts
    _tracks: dict[int, _Described] = field(default_factory=dict)
    _processes: dict[Label, TrackName] = field(default_factory=dict)
    _threads: dict[tuple[Label, Label], TrackName] = field(default_factory=dict)
    _places: dict[int, Place] = field(default_factory=dict)
    _counters: dict[int, Place] = field(default_factory=dict)
    _counter_keys: dict[tuple[Label, str | None, str], int] = field(default_factory=dict)
    #: Tracks with events that nothing describes.
    undescribed: set[int] = field(default_factory=set)

    # -- what the packets say --

    def take_track(self, data: bytes, start: int, end: int) -> None:
        """A TrackDescriptor. Raises WireError. What it does not say stays as an earlier one said it."""
        found = _Described()
        uuid = 0
        said: set[str] = set()
        for number, kind, value, at in fields(data, start, end):
            stop = at + value
            if number == 1:
                uuid = value
            elif number in (2, 10, 13) and kind == LEN:
                found.name = self.texts.text(data[at:stop])
                said.add("name")
            elif number == 5:
                found.parent = value
                said.add("parent")
            elif number == 12:
                found.order = signed(value)
                said.add("order")
            elif number == 3 and kind == LEN:
                found.is_process, found.pid = True, self.take_process(data, at, stop)
                said |= {"is_process", "pid"}
            elif number == 4 and kind == LEN:
                found.is_thread = True
                found.pid, found.tid = self.take_thread(data, at, stop)
                said |= {"is_thread", "pid", "tid"}
            elif number == 8 and kind == LEN:
                self._counter(found, data, at, stop)
                said |= {"is_counter", "counter_type", "unit", "multiplier", "is_incremental"}
        known = self._tracks.setdefault(uuid, found)
        for name in said:
            setattr(known, name, getattr(found, name))

    def take_process(self, data: bytes, start: int, end: int) -> Label:
        """A ProcessDescriptor; gives its pid. Raises WireError."""
        pid, name, command, order, kind_of = 0, None, None, None, 0
        for number, kind, value, at in fields(data, start, end):
            if number == 1:
                pid = signed(value)
            elif number == 2 and kind == LEN and command is None:
                command = self.texts.text(data[at : at + value])
            elif number == 3:
                order = signed(value)
            elif number == 4:
                kind_of = value
            elif number == 6 and kind == LEN:
                name = self.texts.text(data[at : at + value])
        self._name_process(pid, name or command or _CHROME_PROCESSES.get(kind_of), order)
        return pid

    def _name_process(self, pid: int, name: str | None, order: int | None = None) -> None:
        before = self._processes.get(pid)
        if before is not None:
            name, order = name or before.name, order if order is not None else before.sort_index
        self._processes[pid] = TrackName(pid, None, name, order)

    def take_thread(self, data: bytes, start: int, end: int) -> tuple[Label, Label]:
        """A ThreadDescriptor; gives pid and tid. Raises WireError."""
        pid, tid, name, order = 0, 0, None, None
        for number, kind, value, at in fields(data, start, end):
            if number == 1:
                pid = signed(value)
            elif number == 2:
                tid = signed(value)
            elif number == 3:
                order = signed(value)
            elif number == 5 and kind == LEN:
                name = self.texts.text(data[at : at + value])
        self._name_thread(pid, tid, name, order)
        return pid, tid

    def _name_thread(self, pid: int, tid: int, name: str | None, order: int | None = None) -> None:
        before = self._threads.get((pid, tid))
        if before is not None:
            name, order = name or before.name, order if order is not None else before.sort_index
        self._threads[pid, tid] = TrackName(pid, tid, name, order)

    def take_process_tree(self, data: bytes, start: int, end: int) -> None:
        """A ProcessTree: names of processes and threads. Raises WireError."""
        for number, kind, size, at in fields(data, start, end):
            if kind != LEN or number not in (1, 2):
                continue
            numbers: dict[int, int] = {}
            name = None
            for inner, inner_kind, value, place in fields(data, at, at + size):
                if inner_kind != LEN:
                    numbers[inner] = signed(value)
                elif name is None and inner == (3 if number == 1 else 2):
                    name = self.texts.text(data[place : place + value])
            if number == 1:
                self._name_process(numbers.get(1, 0), name)
            else:
                self._name_thread(numbers.get(3, 0), numbers.get(1, 0), name)

    def _counter(self, found: _Described, data: bytes, start: int, end: int) -> None:
        found.is_counter = True
        for number, kind, value, at in fields(data, start, end):
            if number == 1:
                found.counter_type = value
            elif number == 3 and found.unit is None:
                found.unit = _UNITS.get(value)
            elif number == 4:
                found.multiplier = signed(value) or 1
            elif number == 5:
                found.is_incremental = bool(value)
            elif number == 6 and kind == LEN:
                found.unit = self.texts.text(data[at : at + value])

    # -- what follows for events --

    def place(self, uuid: int) -> Place:
        """Where slices and moments of a track go."""
        found = self._places.get(uuid)
        if found is None:
            found = self._places[uuid] = self._find(uuid)
        return found

    def counter(self, uuid: int) -> Place:
        """Where values of a counter go."""
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
        """What tells a counter from others of its name: what it lies in, and its number where that is not enough."""
        track = self._tracks.get(uuid)
        if track is None:
            return str(uuid)
        key = self._scope(uuid) or ""
        one = (self._pid(uuid), track.name, key)
        if self._counter_keys.setdefault(one, uuid) == uuid and track.name is not None:
            return key
        return f"{key} / {uuid}" if key else str(uuid)

    def _scope(self, uuid: int) -> str | None:
        """The names of what a track lies in, below its process."""
        above = [self._texted(one) for one in reversed(self._above(uuid)[1:]) if not one.is_process]
        return " / ".join(name for name in above if name) or None

    def _texted(self, track: _Described) -> str | None:
        if not track.is_thread:
            return track.name
        named = self._threads.get((track.pid, track.tid))
        return named.name if named is not None and named.name else f"thread {track.tid}"

    def _unknown(self, uuid: int) -> _Described:
        self.undescribed.add(uuid)
        return _Described()

    def _find(self, uuid: int) -> Place:
        track = self._tracks.get(uuid) or self._unknown(uuid)
        if track.is_thread:
            return Place(track.pid, track.tid)
        if track.is_process:
            return Place(track.pid, NamedTrack("process", str(track.pid)))
        if track.is_counter:
            return self.counter(uuid)
        return Place(self._pid(uuid), NamedTrack("async", str(uuid)), track.name)

    def _above(self, uuid: int) -> list[_Described]:
        """The track and those that it lies in."""
        line: list[_Described] = []
        here: int | None = uuid
        while here is not None and here in self._tracks and len(line) < _MAX_DEPTH:
            line.append(self._tracks[here])
            here = self._tracks[here].parent or None
        return line

    def _pid(self, uuid: int) -> Label:
        return next((track.pid for track in self._above(uuid) if track.is_process or track.is_thread), None)

    def names(self) -> tuple[TrackName, ...]:
        """What tracks are called, of all that are described and may have events."""
        said = [*self._processes.values(), *self._threads.values()]
        for uuid, track in self._tracks.items():
            if track.is_thread or track.is_process:
                continue
            place = self.counter(uuid) if track.is_counter else self.place(uuid)
            if track.counter_type in (THREAD_TIME, THREAD_INSTRUCTIONS):
                continue
            said.append(TrackName(place.pid, place.tid, track.name, track.order, track.unit, self._scope(uuid)))
        return tuple(said)
