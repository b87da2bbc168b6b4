"""One track event in full → its rows. Most events are taken in C (native/track_events.c), which says the same of them.

What an event says depends on what its sequence knows at that packet, and may change it.
"""

from __future__ import annotations

import math
import struct

from msgspec import Raw

from traceconv.events.trace import Label, NamedTrack
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Annotations, Member, Notes, object_of, quoted
from traceconv.formats.perfetto_proto.clocks import Clocks
from traceconv.formats.perfetto_proto.legacy import Legacy, parse_legacy
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.rows import PH, Rows
from traceconv.formats.perfetto_proto.sequences import Sequence, Texts, location, repeated
from traceconv.formats.perfetto_proto.tracks import THREAD_INSTRUCTIONS, THREAD_TIME, Descriptors
from traceconv.wire.protobuf import LEN, WireError, fields, signed

_END, _COUNTER = 2, 4
#: Fields that name arrows, in the order in which they are told; a step whose id is free again after an end is 4, not 3.
_ARROWS = {pb.FLOWS: 3, pb.FLOWS_OLD: 3, pb.FLOW_ENDS: 4, pb.FLOW_ENDS_OLD: 4}
#: Fields of 64 bits each; lists of others are of varints.
_FIXED = (pb.FLOWS, pb.FLOW_ENDS, pb.EXTRA_DOUBLE_VALUES)
#: Lists of varints, one after another.
_PACKED = (pb.CATEGORY_IIDS, pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.FLOWS_OLD,
           pb.FLOW_ENDS_OLD)  # fmt: skip
_EXTRAS = frozenset((pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.EXTRA_DOUBLE_VALUES))
NOWHERE = (None, NamedTrack("async", "0"))


class Event:
    """The fields of one event, by their numbers: kind, value (size of a LEN field), place. Each is used up once."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        """Raises WireError, of a list of numbers too that can't be read to its end."""
        self.data = data
        self._fields: dict[int, list[tuple[int, int, int]]] = {}
        for number, kind, value, at in fields(data, start, end):
            self._fields.setdefault(number, []).append((kind, value, at))
            if kind == LEN and number in _PACKED:
                repeated(data, kind, value, at)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def has(self, numbers: frozenset[int]) -> bool:
        """Whether there is a field of any of these numbers."""
        return not self._fields.keys().isdisjoint(numbers)

    def __len__(self) -> int:
        return len(self._fields)

    def take(self, number: int) -> list[tuple[int, int, int]]:
        """All fields of a number."""
        return self._fields.pop(number, [])

    def scalar(self, number: int) -> int | None:
        """The last number; None where there is none."""
        found = None
        for kind, value, _ in self._fields.pop(number, ()):
            if kind != LEN:
                found = value
        return found

    def last(self, number: int) -> int | None:
        """The last value of any kind."""
        found = self.take(number)
        return found[-1][1] if found else None

    def texts(self, number: int) -> list[bytes]:
        """All texts."""
        return [self.data[at : at + size] for kind, size, at in self.take(number) if kind == LEN]

    def numbers(self, number: int) -> list[int]:
        """All numbers of a repeated field, or the bits of its doubles."""
        if number not in _FIXED:
            return [one for kind, value, at in self.take(number) for one in repeated(self.data, kind, value, at)]
        found = []
        for kind, value, at in self.take(number):
            words = struct.iter_unpack("<Q", self.data[at : at + value // 8 * 8]) if kind == LEN else [(value,)]
            found += [bits for (bits,) in words]
        return found

    def message(self, number: int) -> list[tuple[int, int, int, int]]:
        """The fields of all messages of a number that can be read."""
        found: list[tuple[int, int, int, int]] = []
        for kind, size, at in self.take(number):
            try:
                found += list(fields(self.data, at, at + size)) if kind == LEN else []
            except WireError:
                continue
        return found

    def rest(self) -> list[Member]:
        """Fields that are not known here, as they are: bytes in hexadecimal."""
        members = []
        for number in sorted(self._fields.keys() - pb.PLAIN):
            for kind, value, at in self._fields[number]:
                text = f'"{self.data[at : at + value].hex()}"' if kind == LEN else str(value)
                members.append((f"field_{number}", text))
        return members


class TrackEvents:
    """Takes events one after another; each sequence's state is what it is at that event."""

    def __init__(self, tracks: Descriptors, clocks: Clocks, texts: Texts, notes: Notes, losses: Losses) -> None:
        self._tracks = tracks
        self._clocks = clocks
        self._texts = texts
        self._notes = notes
        self._losses = losses
        self.annotations = Annotations(texts, notes)

    def take(self, rows: Rows, data: bytes, start: int, end: int, sequence: Sequence, ns: int | None) -> None:
        """One event. `ns`: the time that its packet has."""
        losses = self._losses.counts
        try:
            event = Event(data, start, end)
        except WireError:
            losses["damaged"] += 1
            return
        if sequence.is_doubtful:
            losses["doubtful"] += 1
        if ns is None and pb.DELTA_US not in event and pb.ABSOLUTE_US not in event:
            losses["timeless"] += 1
            return
        kind, track = event.scalar(pb.TYPE) or 0, event.scalar(pb.TRACK_UUID)
        if track is None:
            track = sequence.default_track or 0
        name = self._name(event, sequence)
        notes = [(at, at + size) for form, size, at in event.take(pb.ANNOTATIONS) if form == LEN]
        members = [self.annotations.member(data, first, last, sequence) for first, last in notes]
        if kind == _COUNTER:
            self._counter(rows, event, sequence, ns, track, name, members)
        else:
            self._slice(rows, event, sequence, ns, track, name, PH.get(kind, f"?{kind}"), members)

    def place(self, sequence: Sequence, track: int) -> tuple[Label, Label | NamedTrack]:
        """Where an event goes that names a track, or none (0)."""
        if track:
            return self._tracks.place(track)[:2]
        return (sequence.pid, sequence.tid) if sequence.tid is not None else NOWHERE

    def _name(self, event: Event, sequence: Sequence) -> str | None:
        iid, inline = event.scalar(pb.NAME_IID), event.texts(pb.NAME)
        if not iid:
            return self._texts.text(inline[-1]) if inline else None
        name = sequence.texts["names"].get(iid)
        self._notes.unknown += name is None
        return name

    def _category(self, event: Event, sequence: Sequence) -> str | None:
        iids, texts = event.numbers(pb.CATEGORY_IIDS), event.texts(pb.CATEGORIES)
        if iids == [0]:
            iids = []
        if not texts and not iids:
            return None
        words = [sequence.texts["categories"].get(iid) for iid in iids]
        self._notes.unknown += words.count(None)
        if len(words) == 1 and not texts:
            return words[0]
        return ",".join([word for word in words if word is not None] + [*map(self._texts.text, texts)]) or None

    # -- counters --

    def _counter(
        self,
        rows: Rows,
        event: Event,
        sequence: Sequence,
        ns: int | None,
        track: int,
        name: str | None,
        members: list[Member],
    ) -> None:
        bits, double = event.scalar(pb.COUNTER_VALUE), event.last(pb.DOUBLE_VALUE)
        value: int | float | None = None
        if bits is not None:
            value = signed(bits)
        elif double is not None:
            value = _double(double)
        else:
            self._losses.counts["valueless"] += 1
        ns = self._time(sequence, event, ns)
        self._count(rows, sequence, track, value, ns)
        for other, one in self._extra_values(event, sequence):
            self._count(rows, sequence, other, one, ns)
        members += event.rest()
        if members:
            # A counter has no column for them: a moment beside it has.
            place = self._tracks.counter(track)
            category, at = self._category(event, sequence), NamedTrack("async", str(track))
            rows.add("i", place.name or name, category, place.pid, at, ns, object_of(members))

    def _count(self, rows: Rows, sequence: Sequence, track: int, value: int | float | None, ns: int | None) -> None:
        """One value of a counter."""
        place = self._tracks.counter(track)
        text = "null" if value is None else repr(self._sum(sequence, track, value))
        rows.add("C", place.name, None, place.pid, None, ns, f'{{"value":{text}}}', place.id)

    def _sum(self, sequence: Sequence, track: int, value: int | float) -> int | float:
        """What a counter stands at."""
        place = self._tracks.counter(track)
        value *= place.multiplier
        if place.is_incremental:
            value = sequence.sums[track] = sequence.sums.get(track, 0) + value
        return value

    def _extra_values(self, event: Event, sequence: Sequence) -> list[tuple[int, int | float]]:
        """Values of other counters that an event brings along."""
        if not event.has(_EXTRAS):
            return []
        tracks = event.numbers(pb.EXTRA_TRACKS) or sequence.default_extra
        pairs: list[tuple[int, int | float]] = []
        pairs += zip(tracks, map(signed, event.numbers(pb.EXTRA_VALUES)), strict=False)
        tracks = event.numbers(pb.EXTRA_DOUBLE_TRACKS) or sequence.default_extra_double
        pairs += zip(tracks, map(_double, event.numbers(pb.EXTRA_DOUBLE_VALUES)), strict=False)
        return pairs

    # -- all others --

    def _slice(
        self,
        rows: Rows,
        event: Event,
        sequence: Sequence,
        ns: int | None,
        track: int,
        name: str | None,
        ph: str,
        members: list[Member],
    ) -> None:
        category = self._category(event, sequence)
        pid, tid = self.place(sequence, track)
        legacy = self._legacy(event)
        ns = self._time(sequence, event, ns)
        thread_ns = self._thread_time(sequence, event)
        if legacy is not None:
            if ph == "?0" and legacy.phase is not None:
                ph = legacy.phase
            if legacy.name_iid and name is None:
                name = sequence.texts["names"].get(legacy.name_iid)
            pid, tid = legacy.pid or pid, legacy.tid or tid
        arrows: list[tuple[list[int], int]] = []
        counts: list[tuple[int, int | float]] = []
        if event:
            arrows, counts, thread_ns = self._more(event, sequence, members, ph, thread_ns)
        args = object_of(members) if members else ""
        place = rows.add(ph, name, category, pid, tid, ns, args, legacy.id if legacy is not None else b"")
        rows.set_time("tts", place, thread_ns)
        if legacy is not None:
            _put_legacy(rows, place, ph, legacy)
        for keys, step in arrows:
            rows.add_flows(place, keys, step)
        for other, value in counts:
            self._count(rows, sequence, other, value, ns)

    def _more(
        self, event: Event, sequence: Sequence, members: list[Member], ph: str, thread_ns: int | None
    ) -> tuple[list[tuple[list[int], int]], list[tuple[int, int | float]], int | None]:
        """Arrows, values of counters and the time of the thread: what few events say. `members` takes the rest."""
        # An end is no row that an arrow could be bound to: there its args keep them.
        arrows = (
            [] if ph == "E" else [(event.numbers(number), step) for number, step in _ARROWS.items() if number in event]
        )
        counts = []
        for other, value in self._extra_values(event, sequence):
            kind = self._tracks.counter(other).counter_type
            if kind == THREAD_TIME and math.isfinite(value):
                thread_ns = int(self._sum(sequence, other, value))
            elif kind == THREAD_INSTRUCTIONS:
                members.append(("thread_instruction_count", repr(self._sum(sequence, other, value))))
            else:
                counts.append((other, value))
        members += self._said_beside(event, sequence) + event.rest()
        return arrows, counts, thread_ns

    def _legacy(self, event: Event) -> Legacy | None:
        found = event.take(pb.LEGACY)
        if not found:
            return None
        kind, size, at = found[-1]
        try:
            if kind == LEN:
                return parse_legacy(event.data, at, at + size, self._texts)
        except WireError:
            pass
        self._losses.counts["state"] += 1
        return None

    def _time(self, sequence: Sequence, event: Event, ns: int | None) -> int | None:
        """The time of events that have it in microseconds (old form), which is on the monotonic clock."""
        delta, absolute = event.last(pb.DELTA_US), event.last(pb.ABSOLUTE_US)
        if delta is not None and sequence.time_ns is not None:
            ns = sequence.time_ns = sequence.time_ns + signed(delta) * 1000
        elif absolute is not None:
            ns = signed(absolute) * 1000
        else:
            return ns
        moved = self._clocks.offset(3, ns)
        return ns + moved[0] if moved is not None else ns

    def _thread_time(self, sequence: Sequence, event: Event) -> int | None:
        delta, absolute = event.last(pb.THREAD_DELTA_US), event.last(pb.THREAD_ABSOLUTE_US)
        if absolute is not None:
            return signed(absolute) * 1000
        if delta is None or sequence.thread_time_ns is None:
            return None
        sequence.thread_time_ns += signed(delta) * 1000
        return sequence.thread_time_ns

    def _said_beside(self, event: Event, sequence: Sequence) -> list[Member]:
        """What few events say, and no column holds: of their source, task, log line, correlation."""
        data = event.data
        members = [("source", self._location(sequence, iid)) for _, iid, _ in event.take(pb.LOCATION_IID)]
        for kind, size, at in event.take(pb.LOCATION):
            if kind == LEN:
                try:
                    said = {n: (v, p) for n, _, v, p in fields(data, at, at + size)}
                except WireError:
                    said = {}
                names = [data[said[n][1] : said[n][1] + said[n][0]] if n in said else None for n in (2, 3)]
                members.append(("source", location(names[0], names[1], said.get(4, (None, 0))[0], self._texts)))
        for n, _, iid, _ in event.message(pb.TASK_EXECUTION):
            if n == 1:
                members.append(("posted_from", self._location(sequence, iid)))
        for n, _, iid, _ in event.message(pb.LOG_MESSAGE):
            if n == 1:
                members.append(("log_source", self._location(sequence, iid)))
            elif n == 2:
                members.append(("log_message", quoted(sequence.texts["log"].get(iid, f"text {iid}"))))
            elif n == 3:
                members.append(("log_priority", str(iid)))
        for _, value, _ in event.take(pb.CORRELATION_ID):
            members.append(("correlation_id", str(value)))
        for text in event.texts(pb.CORRELATION_TEXT):
            members.append(("correlation_id", quoted(self._texts.text(text))))
        for _, iid, _ in event.take(pb.CORRELATION_IID):
            members.append(("correlation_id", quoted(sequence.texts["correlations"].get(iid, f"text {iid}"))))
        for _, value, _ in event.take(pb.INSTRUCTIONS):
            members.append(("thread_instruction_count", str(signed(value))))
        for _, value, _ in event.take(pb.INSTRUCTIONS_DELTA):
            sequence.instructions += signed(value)
            members.append(("thread_instruction_count", str(sequence.instructions)))
        return members

    def _location(self, sequence: Sequence, iid: int) -> str:
        found = sequence.locations.get(iid)
        self._notes.unknown += found is None
        return "null" if found is None else found


def _put_legacy(rows: Rows, place: int, ph: str, legacy: Legacy) -> None:
    rows.set_time("dur", place, legacy.dur_ns)
    rows.set_time("tdur", place, legacy.thread_dur_ns)
    rows.set_label("scope", place, legacy.scope)
    rows.set_label("s", place, legacy.instant_scope)
    if legacy.binds_enclosing and ph in ("s", "t", "f"):
        rows.set_label("bp", place, "e")
    if legacy.instructions is not None:
        legacy.extra["thread_instruction_delta"] = Raw(str(legacy.instructions).encode())
    if legacy.extra:
        rows.extra[place] = legacy.extra


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return value
