"""What a sequence of packets holds between them: numbered texts, defaults, clocks, the thread that writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from traceconv.events.trace import Label
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.clocks import Clocks, SequenceClocks
from traceconv.wire.protobuf import LEN, fields, signed, varint

#: Bytes of numbered texts of all sequences that are kept at once.
MAX_TEXT_BYTES = 256 << 20


class Texts:
    """Turns bytes into text; counts those that are not UTF-8."""

    _KEPT = 1 << 16

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self.bad = 0

    def text(self, value: bytes) -> str:
        """The text of some bytes."""
        found = self._known.get(value)
        if found is None:
            try:
                found = value.decode()
            except UnicodeDecodeError:
                self.bad += 1
                return value.decode("utf-8", "replace")
            if len(value) < 256:
                if len(self._known) >= self._KEPT:
                    self._known.clear()
                self._known[found.encode()] = found
        return found


@dataclass(slots=True)
class Sequence:
    """State of one sequence. Interned texts are by list (`names`, `categories` …), then number.

    is_valid   its incremental state is known: it began with a packet that cleared it
    time_ns, thread_time_ns  last ones of events with differences of microseconds (old form)
    """

    clocks: SequenceClocks
    texts: dict[str, dict[int, str]] = field(default_factory=lambda: {name: {} for name in pb.TEXT_LISTS.values()})
    locations: dict[int, str] = field(default_factory=dict)
    text_bytes: int = 0
    is_valid: bool = False
    is_doubtful: bool = False
    default_clock: int = 0
    default_track: int | None = None
    default_extra: list[int] = field(default_factory=list)
    default_extra_double: list[int] = field(default_factory=list)
    pid: Label = None
    tid: Label = None
    time_ns: int | None = None
    thread_time_ns: int | None = None
    instructions: int = 0
    #: What incremental counters add up to, by track.
    sums: dict[int, int | float] = field(default_factory=dict)

    def clear(self) -> None:
        """Everything that later packets could refer to is gone."""
        for known in self.texts.values():
            known.clear()
        self.locations.clear()
        self.text_bytes = 0
        self.default_clock, self.default_track = 0, None
        self.default_extra, self.default_extra_double = [], []
        self.time_ns = self.thread_time_ns = None
        self.sums.clear()
        self.is_valid = True

    def take_defaults(self, data: bytes, start: int, end: int) -> None:
        """TracePacketDefaults. Raises WireError."""
        for number, kind, value, at in fields(data, start, end):
            if number == pb.CLOCK_ID:
                self.default_clock = value
            elif number == 11 and kind == LEN:
                self.default_extra, self.default_extra_double = [], []
                for inner, inner_kind, inner_value, inner_at in fields(data, at, at + value):
                    if inner == pb.TRACK_UUID:
                        self.default_track = inner_value
                    elif inner == pb.EXTRA_TRACKS:
                        self.default_extra += repeated(data, inner_kind, inner_value, inner_at)
                    elif inner == pb.EXTRA_DOUBLE_TRACKS:
                        self.default_extra_double += repeated(data, inner_kind, inner_value, inner_at)

    def take_interned(self, data: bytes, start: int, end: int, texts: Texts) -> None:
        """InternedData. Raises WireError."""
        for number, kind, size, at in fields(data, start, end):
            listed = pb.TEXT_LISTS.get(number)
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
                self.texts[listed][iid] = texts.text(file or b"")
            else:
                self.locations[iid] = location(file, function, line, texts)

    def take_thread(self, data: bytes, start: int, end: int) -> None:
        """A ThreadDescriptor of the old form: who writes the sequence, and where its differences begin."""
        for number, _, value, _ in fields(data, start, end):
            if number == 1:
                self.pid = signed(value)
            elif number == 2:
                self.tid = signed(value)
            elif number == 6:
                self.time_ns = signed(value) * 1000
            elif number == 7:
                self.thread_time_ns = signed(value) * 1000
            elif number == 8:
                self.instructions = signed(value)


def location(file: bytes | None, function: bytes | None, line: int | None, texts: Texts) -> str:
    """A place in source code as JSON."""
    said: dict[str, object] = {}
    if file is not None:
        said["file_name"] = texts.text(file)
    if function is not None:
        said["function_name"] = texts.text(function)
    if line is not None:
        said["line_number"] = line
    return json.dumps(said)


def repeated(data: bytes, kind: int, value: int, at: int) -> list[int]:
    """The numbers of a repeated field: one, or a packed list."""
    if kind != LEN:
        return [value]
    found = []
    end = at + value
    while at < end:
        one, at = varint(data, at, end)
        found.append(one)
    return found


class Sequences:
    """All sequences of a trace, by their numbers."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._known: dict[int, Sequence] = {}

    def __getitem__(self, number: int) -> Sequence:
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = Sequence(SequenceClocks(self._clocks))
        return found

    def doubt(self) -> None:
        """Packets were lost: times that are differences may be early until the next snapshot."""
        for sequence in self._known.values():
            if sequence.clocks.has_differences or sequence.time_ns is not None:
                sequence.is_doubtful = True
