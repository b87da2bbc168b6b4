"""State of a packet sequence: interned texts, defaults, clocks, the writing thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.clocks import Clocks, SequenceClocks
from traceconv.formats.perfetto_proto.losses import MAX_TEXT_BYTES, Losses
from traceconv.formats.perfetto_proto.message import Message
from traceconv.wire.protobuf import LEN, fields

_T = TypeVar("_T")
#: Limit of what is kept of a sequence to be used again.
_MAX_MADE = 10_000


class Texts:
    """Decodes UTF-8; counts the invalid texts."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses

    def text(self, value: bytes) -> str:
        """Decode `value`, with U+FFFD for invalid bytes."""
        try:
            return value.decode()
        except UnicodeDecodeError:
            self._losses.counts["not UTF-8"] += 1
            return value.decode("utf-8", "replace")


@dataclass(slots=True)
class Sequence:
    """State of one sequence. Interned texts are by list (`names`, `categories` …), then IID.

    is_valid     the incremental state is known: a packet cleared it
    is_doubtful  packets were lost: timestamps that are differences may be early until the next snapshot
    time_ns, thread_time_ns  last timestamps of events with differences in microseconds (legacy)
    """

    clocks: SequenceClocks
    texts: dict[str, dict[int, str]] = field(default_factory=lambda: {name: {} for name in pb.TEXT_LISTS.values()})
    #: Source code locations: file_name, function_name and line_number, as JSON.
    locations: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    #: Of native code: interned build IDs, the build ID of each mapping, mapping and address of each location.
    build_ids: dict[int, bytes] = field(default_factory=dict)
    mappings: dict[int, int] = field(default_factory=dict)
    addresses: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: Frames: IIDs of function and source file, line and address in the mapping; None if absent. Frames of callstacks.
    frames: dict[int, tuple[int | None, ...]] = field(default_factory=dict)
    callstacks: dict[int, list[int]] = field(default_factory=dict)
    #: Messages that GPU producers intern, by list and IID, and what was made of them and of interned texts.
    messages: dict[tuple[int, int], bytes] = field(default_factory=dict)
    made: dict[Any, Any] = field(default_factory=dict)
    text_bytes: int = 0
    is_valid: bool = False
    is_doubtful: bool = False
    default_clock: int = 0
    default_track: int | None = None
    default_extra: list[int] = field(default_factory=list)
    default_extra_double: list[int] = field(default_factory=list)
    pid: int | None = None
    tid: int | None = None
    #: Track of the writing thread, if a track descriptor describes it.
    thread_track: int | None = None
    time_ns: int | None = None
    thread_time_ns: int | None = None
    instructions: int = 0
    #: Sums of incremental counters, by track.
    sums: dict[int, int | float] = field(default_factory=dict)
    #: Annotations and other fields of events → their args; None if these fields have other effects.
    args: dict[bytes, str | None] = field(default_factory=dict)
    #: References to entries that may be interned later, other than those that are counted as losses.
    misses: int = 0

    def clear(self) -> None:
        """Drop everything that later packets could refer to."""
        for known in self.texts.values():
            known.clear()
        for native in (
            self.locations,
            self.build_ids,
            self.mappings,
            self.addresses,
            self.frames,
            self.callstacks,
            self.messages,
            self.made,
            self.args,
        ):
            native.clear()
        self.text_bytes = 0
        self.default_clock, self.default_track = 0, None
        self.default_extra, self.default_extra_double = [], []
        self.time_ns = self.thread_time_ns = None
        self.sums.clear()
        self.is_valid = True

    def take_defaults(self, data: bytes, start: int, end: int) -> None:
        """Set the TracePacketDefaults. Raises WireError."""
        message = Message(data, start, end)
        clock = message.number(pb.CLOCK_ID)
        self.default_clock = self.default_clock if clock is None else clock
        for event in (Message(data, at, stop) for at, stop in message.spans(11)):
            track = event.number(pb.TRACK_UUID)
            self.default_track = self.default_track if track is None else track
            self.default_extra = event.numbers(pb.EXTRA_TRACKS)
            self.default_extra_double = event.numbers(pb.EXTRA_DOUBLE_TRACKS)

    def take_interned(self, data: bytes, start: int, end: int, texts: Texts) -> None:
        """Add InternedData. Raises WireError."""
        self.made.clear()
        for number, kind, size, at in fields(data, start, end):
            listed = pb.TEXT_LISTS.get(number)
            if kind == LEN and number in pb.NATIVE_LISTS:
                self.text_bytes += size
                if self.text_bytes <= MAX_TEXT_BYTES:
                    self._take_native(number, Message(data, at, at + size))
                continue
            if kind == LEN and number in pb.GPU_LISTS:
                self.text_bytes += size
                if self.text_bytes <= MAX_TEXT_BYTES:
                    self.messages[number, Message(data, at, at + size).number(1) or 0] = data[at : at + size]
                continue
            if kind != LEN or (listed is None and number != pb.LOCATIONS):
                continue
            iid, file, function, line = 0, None, None, None
            for inner, inner_kind, value, place in fields(data, at, at + size):
                if inner == 1:
                    iid = value
                elif inner == 2 and inner_kind == LEN:
                    file = data[place : place + value]
                elif inner == 3 and inner_kind == LEN:
                    function = data[place : place + value]
                elif inner == 4:
                    line = value
            self.text_bytes += size
            if self.text_bytes > MAX_TEXT_BYTES:
                continue
            if listed is not None:
                self._set(self.texts[listed], iid, texts.text(file or b""))
            else:
                self._set(self.locations, iid, location(file, function, line, texts))

    def _set(self, known: dict[int, _T], iid: int, value: _T) -> None:
        """Set what an IID refers to. Args that were made of something else are forgotten."""
        if known.setdefault(iid, value) != value:
            known[iid] = value
            self.args.clear()

    def described(self, listed: int, iid: int, parse: Callable[[Message], _T]) -> _T | None:
        """Return what an interned message describes, None if there is none. Raises WireError."""
        message = self.messages.get((listed, iid))
        return None if message is None else self.make((listed, iid), lambda: parse(Message(message, 0, len(message))))

    def make(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what was made for a key before, or make it: from what the sequence interned and the key."""
        if key not in self.made:
            if len(self.made) > _MAX_MADE:
                self.made.clear()
            self.made[key] = make()
        found: _T = self.made[key]
        return found

    def _take_native(self, number: int, message: Message) -> None:
        iid = message.number(1) or 0
        if number == pb.BUILD_IDS:
            self._set(self.build_ids, iid, message.text(2) or b"")
        elif number == pb.MAPPINGS:
            self._set(self.mappings, iid, message.number(2) or 0)
        elif number == pb.FRAMES:
            self.frames[iid] = tuple(message.number(part) for part in (2, 5, 6, 4))
        elif number == pb.CALLSTACKS:
            self.callstacks[iid] = message.numbers(2)
        else:
            self._set(self.addresses, iid, (message.number(2) or 0, message.number(3) or 0))

    def take_thread(self, data: bytes, start: int, end: int) -> None:
        """Set the writing thread, and where differences begin, from a legacy ThreadDescriptor. Raises WireError."""
        message = Message(data, start, end)
        attributes = {
            "pid": (1, 1),
            "tid": (2, 1),
            "time_ns": (6, 1000),
            "thread_time_ns": (7, 1000),
            "instructions": (8, 1),
        }
        for name, (number, unit) in attributes.items():
            value = message.signed(number)
            if value is not None:
                setattr(self, name, value * unit)


def location(file: bytes | None, function: bytes | None, line: int | None, texts: Texts) -> list[tuple[str, str]]:
    """A source code location as keys and JSON texts."""
    names = {"file_name": file, "function_name": function}
    found = [(key, json.dumps(texts.text(name))) for key, name in names.items() if name is not None]
    return [*found, ("line_number", str(line or 0))]


class Sequences:
    """All sequences of a trace, by ID."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        #: Sequences of other machines than the host.
        self.machines: dict[int, int] = {}
        self._known: dict[int, Sequence] = {}

    def __getitem__(self, number: int) -> Sequence:
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = Sequence(SequenceClocks(self._clocks, self.machines.get(number, 0)))
        return found

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._known.values())

    def without_thread(self, numbers: list[int]) -> list[int]:
        """Return those of the sequences whose writing thread is unknown."""
        return [number for number in numbers if number not in self._known or self._known[number].tid is None]

    def doubt(self) -> None:
        """Mark the sequences whose timestamps are differences as doubtful: packets were lost."""
        for sequence in self._known.values():
            if sequence.clocks.has_differences or sequence.time_ns is not None:
                sequence.is_doubtful = True
