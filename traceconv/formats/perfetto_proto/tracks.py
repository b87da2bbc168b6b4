"""Descriptors of tracks → where their events belong: a process, a thread, a counter or a separate track."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from traceconv.events.trace import Label, NamedTrack, ReusedId, TrackName
from traceconv.formats.perfetto_proto.annotations import quoted
from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.sequences import Texts

_UNITS = {1: "ns", 2: "count", 3: "bytes"}
#: CounterDescriptor.type of counters whose values are columns of slices too, and the names of these counters.
THREAD_TIME, THREAD_INSTRUCTIONS = 1, 2
BUILTIN_NAMES = {THREAD_TIME: "thread_time", THREAD_INSTRUCTIONS: "thread_instruction_count"}
_CHROME_PROCESSES = {1: "Browser", 2: "Renderer", 3: "Utility", 4: "Zygote", 5: "Sandbox Helper", 6: "GPU"}
_ORDERS = {1: "lexicographic", 2: "chronological", 3: "explicit"}
_MAX_DEPTH = 64
#: Larger descriptors are read again if they are repeated.
_LARGEST_KEPT = 1 << 10
#: The track of events without one, and its name.
DEFAULT, DEFAULT_NAME = NamedTrack("async", "0"), "Default Track"


@dataclass(slots=True)
class _Track:
    """What the descriptors of one UUID say.

    names     from which position of the trace on
    pid, tid  of a process or thread; `use`: which process with this pid it was when the thread was described
    last      the last descriptor, and whether the trace has the first packet of its sequence; None for a large one
    """

    name: str | None = None
    names: list[tuple[int, str]] = field(default_factory=list)
    parent: int | None = None
    pid: int = 0
    tid: int = 0
    title: str | None = None
    use: int = 0
    is_process: bool = False
    is_thread: bool = False
    is_counter: bool = False
    is_state: bool = False
    counter_type: int = 0
    unit: str | None = None
    multiplier: int = 1
    is_incremental: bool = False
    order: int | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    process_properties: dict[str, Any] = field(default_factory=dict)
    last: tuple[bytes, bool] | None = None


class Place(NamedTuple):
    """Where events of a track go. All after `tid` is for counters and states."""

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

    @property
    def is_state(self) -> bool:
        """Whether the events are states, each of which ends the one before it."""
        return isinstance(self.tid, NamedTrack) and self.tid.kind == "state"


class _Uses:
    """Numbers the tracks that use one ID: a second one means that the system used the ID again."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        self._positions: dict[object, list[int]] = {}

    def add(self, key: object, uuid: int, position: int = 0) -> None:
        """Note that a track uses an ID from a position in the trace on."""
        if uuid not in self._of:
            positions = self._positions.setdefault(key, [])
            self._of[uuid] = len(positions)
            positions.append(position)

    def at(self, key: object, position: int) -> int:
        """Return the number of an ID's use at a position; the first one before it, -1 if there is none at all."""
        positions = self._positions.get(key)
        return max(0, bisect_right(positions, position) - 1) if positions else -1

    def of(self, uuid: int) -> int:
        """Return the number of a track's use."""
        return self._of.get(uuid, 0)


class Descriptors:
    """Collects the descriptors of the complete trace; then finds where the events of each track go.

    A process or thread is identified by its track: if two tracks have the same pid, the pid was used again.
    """

    def __init__(self, texts: Texts, translated: Mapping[str, str]) -> None:
        """`translated`: names of tracks to replace."""
        self.texts = texts
        self._translated = translated
        self._tracks: dict[int, _Track] = {}
        #: The last descriptor of each track: writers repeat them.
        self._last: set[tuple[bytes, bool]] = set()
        self._process_uses, self._thread_uses = _Uses(), _Uses()
        #: Names from other packets than track descriptors, by pid and tid (None for a process).
        self._names: dict[tuple[Label, Label], TrackName] = {}
        self._places: dict[int, Place] = {}
        self._counters: dict[int, Place] = {}
        self._counter_keys: dict[tuple[Label, str | None, str], int] = {}
        self._thread_counters: dict[tuple[Label, Label, int], Place] = {}
        self._used: dict[int, None] = {}
        #: Packets before the one being read, and whether the trace has the first packet of its sequence.
        self.position = 0
        self.is_first = False
        #: Tracks whose names depend on their first event; time, position and name of that event.
        self.asking: dict[NamedTrack, int] = {}
        self._first_events: dict[int, tuple[int, int, str]] = {}
        #: Tracks with events but without a descriptor.
        self.undescribed: set[int] = set()

    # -- from packets; all raise WireError --

    def take_track(self, data: bytes, start: int, end: int) -> None:
        """Add a TrackDescriptor. What it lacks stays as in an earlier one."""
        last = (data[start:end], self.is_first) if end - start <= _LARGEST_KEPT else None
        if last is not None and last in self._last:
            return
        message = Message(data, start, end)
        uuid = message.number(1) or 0
        track = self._tracks.get(uuid) or _Track()
        if track.last is not None:
            self._last.discard(track.last)
        track.last = last
        if last is not None:
            self._last.add(last)
        name = self._text(message, 13, 10, 2)
        if name is not None and name != track.name:
            track.names.append((self.position, name))
            track.name = name
        track.parent = _or(message.number(5), track.parent)
        track.order = _or(message.signed(12), track.order)
        for one in message.messages(3):
            self._take_process(track, uuid, one)
        for one in message.messages(6):
            self._take_chrome_process(track, one)
        for one in message.messages(4):
            self._take_thread(track, one, any(chrome.number(3) for chrome in message.messages(7)))
        for one in message.messages(8):
            self._take_counter(track, one)
        track.is_state = track.is_state or 18 in message
        found = {
            "description": self._text(message, 14),
            "child_ordering": _ORDERS.get(message.number(11) or 0),
            "has_first_packet_on_sequence": self.is_first or None,
        }
        track.properties |= {key: value for key, value in found.items() if value is not None}
        self._tracks[uuid] = track

    def _take_process(self, track: _Track, uuid: int, process: Message) -> None:
        pid = process.signed(1) or 0
        if not track.is_process and not track.is_thread:
            track.pid, track.is_process = pid, True
            self._process_uses.add(pid, uuid, self.position)
        track.title = self._process_name(process) or track.title
        track.order = _or(process.signed(3), track.order)

    def _process_name(self, process: Message) -> str | None:
        command = process.texts(2)[:1]
        name = self._text(process, 6) or (self.texts.text(command[0]) if command else None)
        return name or _CHROME_PROCESSES.get(process.number(4) or 0)

    def _take_chrome_process(self, track: _Track, chrome: Message) -> None:
        found = {"host_app_package_name": self._text(chrome, 4), "crash_trace_id": chrome.number(5)}
        known = {key: value for key, value in found.items() if value is not None}
        if known:
            track.process_properties.setdefault("chrome", {}).update(known)

    def _take_thread(self, track: _Track, thread: Message, is_sandboxed: bool) -> None:
        pid, tid = thread.signed(1) or 0, thread.signed(2) or 0
        if track.is_process:  # one descriptor of both
            self._name(self.process_at(track.pid, self.position), None, track.title)
            track.title = None
        if not track.is_thread:
            # A sandboxed thread's number is unique in its process only.
            track.pid, track.tid = pid, (pid << 32 | tid) if is_sandboxed else tid
            track.is_thread, track.is_process = True, False
            track.use = self._process_uses.at(pid, self.position)
        track.title = self._text(thread, 5) or track.title
        track.order = _or(thread.signed(3), track.order)

    def take_process(self, data: bytes, start: int, end: int) -> None:
        """Add a ProcessDescriptor without a track."""
        process = Message(data, start, end)
        self._name(self._here(process), None, self._process_name(process), process.signed(3))

    def take_thread(self, data: bytes, start: int, end: int) -> None:
        """Add a ThreadDescriptor without a track."""
        thread = Message(data, start, end)
        pid, tid = self._here(thread), thread.signed(2) or 0
        self._name(pid, tid, self._text(thread, 5), thread.signed(3))

    def take_process_tree(self, data: bytes, start: int, end: int) -> None:
        """Add the names of processes and threads of a ProcessTree."""
        message = Message(data, start, end)
        for process in message.messages(1):
            command = process.texts(3)[:1]
            name = self.texts.text(command[0]) if command else None
            self._name(self._here(process), None, name)
        for thread in message.messages(2):
            self._name(self._here(thread, 3), thread.signed(1) or 0, self._text(thread, 2))

    def _here(self, message: Message, number: int = 1) -> Label:
        """The process whose pid is in a field of a message."""
        return self.process_at(message.signed(number) or 0, self.position)

    def _text(self, message: Message, *numbers: int) -> str | None:
        """The text of the first of these fields that the message has."""
        texts = (message.text(number) for number in numbers)
        return next((self.texts.text(text) for text in texts if text is not None), None)

    def _name(self, pid: Label, tid: Label, name: str | None, order: int | None = None) -> None:
        before = self._names.get((pid, tid), TrackName(pid, tid, None))
        self._names[pid, tid] = before._replace(name=name or before.name, sort_index=_or(order, before.sort_index))

    def _take_counter(self, track: _Track, counter: Message) -> None:
        track.is_counter = True
        track.counter_type = counter.number(1) or 0
        if track.counter_type in BUILTIN_NAMES and track.name is None:
            track.name = BUILTIN_NAMES[track.counter_type]
        unit = self._text(counter, 6) or _UNITS.get(counter.number(3) or 0)
        track.unit = unit or ("ns" if track.counter_type == THREAD_TIME else None)
        track.multiplier = counter.signed(4) or 1
        track.is_incremental = bool(counter.number(5))

    # -- processes and threads --

    def process_at(self, pid: int, position: int) -> Label:
        """The process with a pid at a position of the trace."""
        return _label(pid, self._process_uses.at(pid, position))

    def _process(self, uuid: int) -> Label:
        """The process of a track; None for a track of the trace."""
        chain = self._above(uuid)
        at = next((one for one in chain if self._tracks[one].is_process), None)
        thread = next((self._tracks[one] for one in chain if self._tracks[one].is_thread), None)
        if at is not None and (thread is None or thread.pid == self._tracks[at].pid):
            return _label(self._tracks[at].pid, self._process_uses.of(at))
        # Without a track for its process, a thread belongs to the last one described before.
        return None if thread is None else _label(thread.pid, thread.use)

    def _above(self, uuid: int) -> list[int]:
        """The track and its ancestors."""
        found: list[int] = []
        here: int | None = uuid
        while here in self._tracks and here not in found and len(found) < _MAX_DEPTH:
            found.append(here)
            here = self._tracks[here].parent or None
        return found

    # -- for events --

    def use(self, uuid: int) -> Place:
        """Where slices and markers of a track go, which has events."""
        self._used[uuid] = None
        return self.place(uuid)

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
                self._process(uuid),
                NamedTrack("counter", self._counter_key(uuid)),
                self._shown(track.name),
                track.counter_type,
                track.multiplier,
                track.is_incremental,
            )
        return found

    def thread_counter(self, pid: Label, tid: Label, counter_type: int) -> Place:
        """A counter of a thread that events sample without a track."""
        key = (pid, tid, counter_type)
        found = self._thread_counters.get(key)
        if found is None:
            use = f" ({tid.use})" if isinstance(tid, ReusedId) else ""
            track = NamedTrack("counter", f"thread {tid}{use}")
            found = self._thread_counters[key] = Place(pid, track, BUILTIN_NAMES[counter_type], counter_type)
        return found

    def _counter_key(self, uuid: int) -> str:
        """What distinguishes a counter from others of its name: its scope, and its UUID where that is not enough."""
        track = self._tracks.get(uuid)
        if track is None:
            return str(uuid)
        key = self._scope(uuid) or ""
        one = (self._process(uuid), track.name, key)
        if self._counter_keys.setdefault(one, uuid) == uuid and track.name is not None:
            return key
        return f"{key} / {uuid}" if key else str(uuid)

    def _scope(self, uuid: int) -> str | None:
        """The names of the tracks above this one, below its process."""
        above = [self._title(one) for one in reversed(self._above(uuid)[1:]) if not self._tracks[one].is_process]
        return " / ".join(name for name in above if name) or None

    def _title(self, uuid: int) -> str | None:
        track = self._tracks[uuid]
        if not track.is_thread:
            return track.name
        named = self._names.get(self.place(uuid)[:2])  # type: ignore[arg-type] # a thread's
        return track.title or (named.name if named is not None else None) or f"thread {track.tid}"

    def _unknown(self, uuid: int) -> _Track:
        self.undescribed.add(uuid)
        return _Track()

    def _find(self, uuid: int) -> Place:
        if not uuid and uuid not in self._tracks:
            return Place(None, DEFAULT)
        track = self._tracks.get(uuid) or self._unknown(uuid)
        pid = self._process(uuid)
        if track.is_thread:
            self._thread_uses.add((pid, track.tid), uuid)
            return Place(pid, _label(track.tid, self._thread_uses.of(uuid)))
        if track.is_process:
            return Place(pid, NamedTrack("process", str(track.pid)))
        if track.is_counter:
            return self.counter(uuid)
        return Place(pid, NamedTrack("state" if track.is_state else "async", str(uuid)), self._shown(track.name))

    # -- names --

    def names(self) -> tuple[TrackName, ...]:
        """The names of all described tracks that may have events: processes first, then threads."""
        processes = dict.fromkeys(uuid for uuid, track in self._tracks.items() if track.is_process)
        threads = dict.fromkeys(uuid for uuid, track in self._tracks.items() if track.is_thread)
        named = dict(self._names)
        for uuid in (*processes, *threads):
            track, place = self._tracks[uuid], self.place(uuid)
            tid = place.tid if track.is_thread else None
            known = named.get((place.pid, tid), TrackName(place.pid, tid, None))  # type: ignore[arg-type]
            properties = _json(track.properties if track.is_thread else track.process_properties)
            name, order = track.title or known.name, _or(track.order, known.sort_index)
            named[place.pid, tid] = TrackName(place.pid, tid, name, order, properties=properties)  # type: ignore[index]
        found = sorted(named.values(), key=lambda name: name.tid is not None)
        for uuid, track in self._tracks.items():
            if track.is_thread or track.is_process:
                continue
            place = self.counter(uuid) if track.is_counter else self.place(uuid)
            if isinstance(place.tid, NamedTrack) and not track.is_counter and len(track.names) != 1:
                self.asking[place.tid] = uuid
            found.append(
                TrackName(
                    place.pid,
                    place.tid,
                    place.name,
                    track.order,
                    track.unit,
                    self._scope(uuid),
                    self._parent(uuid),
                    _json(track.properties),
                )
            )
        return tuple(found)

    def _parent(self, uuid: int) -> tuple[Label, Label | NamedTrack] | None:
        """The track above a track, unless it is a process or counter, or part of a loop."""
        chain = self._above(uuid)
        if len(chain) < 2 or uuid in self._above(chain[1]):
            return None
        above = self._tracks[chain[1]]
        return None if above.is_process or above.is_counter else self.place(chain[1])[:2]

    def _shown(self, name: str | None) -> str | None:
        return None if name is None else self._translated.get(name, name)

    def note_event(self, uuid: int, ns: int, position: int, name: str) -> None:
        """Note an event of a track that asks for its first one."""
        known = self._first_events.get(uuid)
        if known is None or ns < known[0]:
            self._first_events[uuid] = ns, position, name

    def late_names(self) -> tuple[TrackName, ...]:
        """Names that depend on events: a track has its last name before its first event, or else that event's."""
        found = []
        for uuid, (_, position, event) in self._first_events.items():
            names, place = self._tracks[uuid].names, self.place(uuid)
            before = [name for at, name in names if at < position] or [name for _, name in names[:1]] or [event]
            found.append(TrackName(place.pid, place.tid, self._shown(before[-1])))
        for uuid in self._used:
            track, place = self._tracks.get(uuid), self.place(uuid)
            if track is not None and track.is_process:
                found.append(TrackName(place.pid, place.tid, None, properties=_json(track.properties)))
            elif not uuid and (track is None or track.name is None):
                found.append(TrackName(place.pid, place.tid, DEFAULT_NAME))
        for (pid, tid, _), place in self._thread_counters.items():
            found.append(TrackName(place.pid, place.tid, place.name, parent=(pid, tid)))
        return tuple(found)


def _label(number: int, use: int) -> Label:
    return ReusedId(number, use) if use > 0 else number


def _json(properties: dict[str, Any]) -> str | None:
    return json.dumps(properties) if properties else None


def _or(value: int | None, default: int | None) -> int | None:
    return default if value is None else value
