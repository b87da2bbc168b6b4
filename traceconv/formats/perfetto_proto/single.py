"""One event after another, in full: what only some events say, and what depends on the events before."""

from __future__ import annotations

import struct

from msgspec import Raw

from traceconv.events.trace import Label, NamedTrack
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Notes, object_of, quoted
from traceconv.formats.perfetto_proto.batch import Rows
from traceconv.formats.perfetto_proto.clocks import Clocks
from traceconv.formats.perfetto_proto.details import Member, said_beside, unknown_fields
from traceconv.formats.perfetto_proto.events import ABSENT, EventTable, Found
from traceconv.formats.perfetto_proto.legacy import Legacy, parse_legacy
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.sequences import Sequence, Texts
from traceconv.formats.perfetto_proto.tracks import THREAD_INSTRUCTIONS, THREAD_TIME, Descriptors, Place
from traceconv.wire.protobuf import LEN, WireError, signed

PH = {1: "B", 2: "E", 3: "i", 4: "C"}
_END, _COUNTER = 2, 4
#: Steps of flows whose id is free again after an end.
_GOES_ON, _ENDS = 3, 4
NOWHERE = (None, NamedTrack("async", "0"))
_SIMPLE_OTHERS = frozenset((pb.FLOWS, pb.FLOW_ENDS, pb.FLOWS_OLD, pb.FLOW_ENDS_OLD))


class SingleEvents:
    """Takes events one after another; each sequence's state is what it is at that event."""

    def __init__(self, tracks: Descriptors, clocks: Clocks, texts: Texts, notes: Notes, losses: Losses) -> None:
        self._tracks = tracks
        self._clocks = clocks
        self._texts = texts
        self._notes = notes
        self._losses = losses

    def take(self, rows: Rows, events: EventTable, event: int, sequence: Sequence, ns: int | None) -> None:
        """One event that can be told. `ns`: the time that its packet has."""
        losses = self._losses.counts
        if not events.sound[event]:
            losses["damaged"] += 1
            return
        if sequence.is_doubtful:
            losses["doubtful"] += 1
        others = events.others.get(event)
        if ns is None and (others is None or not {pb.DELTA_US, pb.ABSOLUTE_US} & others.keys()):
            losses["timeless"] += 1
            return
        self._event(rows, events, event, sequence, ns, others)

    def place(self, sequence: Sequence, track: int) -> tuple[Label, Label | NamedTrack]:
        """Where an event goes that names a track, or none (ABSENT)."""
        if track == ABSENT:
            track = sequence.default_track or 0
        if track:
            found = self._tracks.place(track)
            return found.pid, found.tid
        if sequence.tid is not None:
            return sequence.pid, sequence.tid
        return NOWHERE

    def _event(
        self,
        rows: Rows,
        events: EventTable,
        event: int,
        sequence: Sequence,
        ns: int | None,
        others: dict[int, list[Found]] | None,
    ) -> None:
        kind = events.type[event]
        track = events.track[event]
        if track == ABSENT:
            track = sequence.default_track or 0
        name = self._name(events, event, sequence)
        first, last = events.bounds[event], events.bounds[event + 1]
        members = events.annotations.members(first, last, sequence) if last > first else []
        if kind == _COUNTER:
            self._counter(rows, events, event, sequence, ns, track, others, members)
            return
        category = self._category(events, event, sequence)
        pid, tid = self.place(sequence, track)
        if others is None:
            args = object_of(members).encode() if members else b""
            rows.add(PH.get(kind, f"?{kind}"), name, category, pid, tid, ns, args)
            return
        if others.keys() <= _SIMPLE_OTHERS and kind != _END:
            args = object_of(members).encode() if members else b""
            place = rows.add(PH.get(kind, f"?{kind}"), name, category, pid, tid, ns, args)
            self._flows(rows, place, events, others)
            return
        self._rich(rows, events, event, sequence, ns, others, members, name, category, pid, tid)

    def _name(self, events: EventTable, event: int, sequence: Sequence) -> str | None:
        iid = events.name_iid[event]
        if iid:
            name = sequence.texts["names"].get(iid)
            if name is None:
                self._notes.unknown += 1
            return name
        inline = events.name[event]
        return self._texts.text(events.data[inline[0] : inline[0] + inline[1]]) if inline is not None else None

    def _category(self, events: EventTable, event: int, sequence: Sequence) -> str | None:
        iid = events.category_iid[event]
        several = events.categories.get(event) if events.categories else None
        texts = events.category_texts.get(event) if events.category_texts else None
        if several is None and texts is None:
            if not iid:
                return None
            found = sequence.texts["categories"].get(iid)
            if found is None:
                self._notes.unknown += 1
            return found
        known = sequence.texts["categories"]
        words = [known.get(one) for one in (several if several is not None else [iid] if iid else [])]
        self._notes.unknown += words.count(None)
        found_words = [word for word in words if word is not None]
        return ",".join(found_words + [self._texts.text(text) for text in texts or ()]) or None

    # -- counters --

    def _counter(
        self,
        rows: Rows,
        events: EventTable,
        event: int,
        sequence: Sequence,
        ns: int | None,
        track: int,
        others: dict[int, list[Found]] | None,
        members: list[Member],
    ) -> None:
        value: int | float | None = None
        bits = events.value[event]
        if bits is not None:
            value = signed(bits)
        elif others is not None and pb.DOUBLE_VALUE in others:
            value = _double(others[pb.DOUBLE_VALUE][-1][1])
        if value is None:
            self._losses.counts["valueless"] += 1
        if others is not None:
            ns = self._time(sequence, others, ns)
        place = self._tracks.counter(track)
        self._count(rows, sequence, track, place, value, ns)
        rest = dict(others or {})
        for known in (pb.DOUBLE_VALUE, pb.DELTA_US, pb.ABSOLUTE_US):
            rest.pop(known, None)
        if members or rest:
            # A counter has no column for them: a moment beside it has.
            self._extra_values(rows, events, sequence, rest, None, ns)
            members += unknown_fields(events, rest)
            if members:
                name = place.name or self._name(events, event, sequence)
                at = NamedTrack("async", str(track))
                category = self._category(events, event, sequence)
                rows.add("i", name, category, place.pid, at, ns, object_of(members).encode())

    def _count(
        self, rows: Rows, sequence: Sequence, track: int, place: Place, value: int | float | None, ns: int | None
    ) -> None:
        """One value of a counter."""
        if value is not None:
            value *= place.multiplier
            if place.is_incremental:
                value = sequence.sums[track] = sequence.sums.get(track, 0) + value
        text = "null" if value is None else repr(value)
        at = rows.add("C", place.name, None, place.pid, None, ns, b'{"value":%s}' % text.encode())
        key = place.tid.key if isinstance(place.tid, NamedTrack) else ""
        if key:
            rows.ids[at] = quoted(key).encode()

    def _extra_values(
        self,
        rows: Rows,
        events: EventTable,
        sequence: Sequence,
        others: dict[int, list[Found]],
        place: int | None,
        ns: int | None,
    ) -> list[Member]:
        """Values of other counters that an event brings along: of its thread they are its own. Uses up the fields."""
        pairs: list[tuple[int, int | float]] = []
        tracks = events.numbers(others, pb.EXTRA_TRACKS) or sequence.default_extra
        pairs += zip(tracks, map(signed, events.numbers(others, pb.EXTRA_VALUES)), strict=False)
        tracks = events.numbers(others, pb.EXTRA_DOUBLE_TRACKS) or sequence.default_extra_double
        pairs += zip(tracks, map(_double, events.doubles(others, pb.EXTRA_DOUBLE_VALUES)), strict=False)
        for used in (pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.EXTRA_DOUBLE_VALUES):
            others.pop(used, None)
        members: list[Member] = []
        for track, value in pairs:
            counter = self._tracks.counter(track)
            if place is None or counter.counter_type not in (THREAD_TIME, THREAD_INSTRUCTIONS):
                self._count(rows, sequence, track, counter, value, ns)
                continue
            value *= counter.multiplier
            if counter.is_incremental:
                value = sequence.sums[track] = sequence.sums.get(track, 0) + value
            if counter.counter_type == THREAD_TIME:
                rows.set_time("tts", place, int(value))
            else:
                members.append(("thread_instruction_count", repr(value)))
        return members

    # -- events that say more --

    def _rich(
        self,
        rows: Rows,
        events: EventTable,
        event: int,
        sequence: Sequence,
        ns: int | None,
        others: dict[int, list[Found]],
        members: list[Member],
        name: str | None,
        category: str | None,
        pid: Label,
        tid: Label | NamedTrack,
    ) -> None:
        others = dict(others)
        kind = events.type[event]
        ph = PH.get(kind, f"?{kind}")
        legacy = self._legacy(events, others)
        ns = self._time(sequence, others, ns)
        thread_ns = self._thread_time(sequence, others)
        if legacy is not None:
            if kind == 0 and legacy.phase is not None:
                ph = legacy.phase
            if legacy.name_iid and name is None:
                name = sequence.texts["names"].get(legacy.name_iid)
            pid, tid = legacy.pid or pid, legacy.tid or tid
        place = rows.add(ph, name, category, pid, tid, ns, b"")
        if legacy is not None:
            self._put_legacy(rows, place, ph, legacy)
        rows.set_time("tts", place, thread_ns)
        if ph != "E":  # an end is no row that an arrow could be bound to: there its args keep them
            self._flows(rows, place, events, others)
            for used in _SIMPLE_OTHERS:
                others.pop(used, None)
        members = members + self._extra_values(rows, events, sequence, others, place, ns)
        members += said_beside(events, sequence, others, self._texts, self._notes) + unknown_fields(events, others)
        if members:
            rows.args[place] = object_of(members).encode()

    def _legacy(self, events: EventTable, others: dict[int, list[Found]]) -> Legacy | None:
        found = others.pop(pb.LEGACY, None)
        if found is None:
            return None
        kind, size, at = found[-1]
        try:
            if kind == LEN:
                return parse_legacy(events.data, at, at + size, self._texts)
        except WireError:
            pass
        self._losses.counts["state"] += 1
        return None

    def _put_legacy(self, rows: Rows, place: int, ph: str, legacy: Legacy) -> None:
        rows.set_time("dur", place, legacy.dur_ns)
        rows.set_time("tdur", place, legacy.thread_dur_ns)
        rows.set_label("scope", place, legacy.scope)
        rows.set_label("s", place, legacy.instant_scope)
        if legacy.binds_enclosing and ph in ("s", "t", "f"):
            rows.set_label("bp", place, "e")
        if legacy.id:
            rows.ids[place] = legacy.id
        if legacy.instructions is not None:
            legacy.extra["thread_instruction_delta"] = _raw(legacy.instructions)
        if legacy.extra:
            rows.extra[place] = legacy.extra

    def _time(self, sequence: Sequence, others: dict[int, list[Found]], ns: int | None) -> int | None:
        """The time of events that have it in microseconds (old form), which is on the monotonic clock."""
        delta, absolute = others.pop(pb.DELTA_US, None), others.pop(pb.ABSOLUTE_US, None)
        if delta is not None and sequence.time_ns is not None:
            sequence.time_ns += signed(delta[-1][1]) * 1000
            ns = sequence.time_ns
        elif absolute is not None:
            ns = signed(absolute[-1][1]) * 1000
        else:
            return ns
        moved = self._clocks.offset(3, ns)
        return ns + moved[0] if moved is not None else ns

    def _thread_time(self, sequence: Sequence, others: dict[int, list[Found]]) -> int | None:
        delta, absolute = others.pop(pb.THREAD_DELTA_US, None), others.pop(pb.THREAD_ABSOLUTE_US, None)
        if absolute is not None:
            return signed(absolute[-1][1]) * 1000
        if delta is None or sequence.thread_time_ns is None:
            return None
        sequence.thread_time_ns += signed(delta[-1][1]) * 1000
        return sequence.thread_time_ns

    def _flows(self, rows: Rows, place: int, events: EventTable, others: dict[int, list[Found]]) -> None:
        for wanted, step in (
            (pb.FLOWS, _GOES_ON),
            (pb.FLOWS_OLD, _GOES_ON),
            (pb.FLOW_ENDS, _ENDS),
            (pb.FLOW_ENDS_OLD, _ENDS),
        ):
            if wanted not in others:
                continue
            fixed = wanted in (pb.FLOWS, pb.FLOW_ENDS)
            found = events.doubles(others, wanted) if fixed else events.numbers(others, wanted)
            rows.flows.extend((place, one, step) for one in found)


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return value


def _raw(value: int) -> Raw:
    return Raw(str(value).encode())
