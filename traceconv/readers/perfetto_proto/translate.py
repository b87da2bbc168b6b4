"""Packets in their order → events: each sequence's state is brought up to date, then its event is told in full."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from msgspec import Raw

from traceconv.json_events import Label, NamedTrack
from traceconv.readers.perfetto_proto import names
from traceconv.readers.perfetto_proto.annotations import Notes, object_of, quoted
from traceconv.readers.perfetto_proto.batch import Rows
from traceconv.readers.perfetto_proto.clocks import Clocks, parse_snapshot
from traceconv.readers.perfetto_proto.details import Member, said_beside, unknown_fields
from traceconv.readers.perfetto_proto.events import ABSENT, EventTable, Found
from traceconv.readers.perfetto_proto.framing import Window
from traceconv.readers.perfetto_proto.legacy import Legacy, parse_legacy
from traceconv.readers.perfetto_proto.losses import Losses
from traceconv.readers.perfetto_proto.sequences import MAX_TEXT_BYTES, Sequence, Sequences, Texts
from traceconv.readers.perfetto_proto.tracks import THREAD_INSTRUCTIONS, THREAD_TIME, Descriptors, Place
from traceconv.wire.protobuf import LEN, WireError, signed

_PH = {1: "B", 2: "E", 3: "i", 4: "C"}
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
#: Steps of flows whose id is free again after an end.
_GOES_ON, _ENDS = 3, 4
#: Fields of a packet that change the state of its sequence.
_STATE = (
    names.CLEARED,
    names.DROPPED,
    names.INTERNED,
    names.DEFAULTS,
    names.CLOCK_SNAPSHOT,
    names.THREAD_DESCRIPTOR,
    names.FIRST_ON_SEQUENCE,
)
_SIGN = 1 << 63
_NOWHERE = (None, NamedTrack("async", "0"))
_SIMPLE_OTHERS = frozenset((names.FLOWS, names.FLOW_ENDS, names.FLOWS_OLD, names.FLOW_ENDS_OLD))


@dataclass(slots=True)
class Table:
    """The packets of a window as columns, and its events."""

    data: bytes
    sequence: list[int]
    time: list[int]
    clock: list[int]
    flags: list[int]
    state: list[bool]
    event: list[int]
    #: packet → what changes its sequence's state: field, value, place
    changes: dict[int, list[tuple[int, int, int]]]
    events: EventTable


class Translator:
    """Takes windows one after another; holds what sequences know between packets."""

    def __init__(
        self,
        tracks: Descriptors,
        clocks: Clocks,
        sequences: Sequences,
        texts: Texts,
        notes: Notes,
        losses: Losses,
    ) -> None:
        self._tracks = tracks
        self._clocks = clocks
        self._sequences = sequences
        self._texts = texts
        self._notes = notes
        self._losses = losses

    def open(self, window: Window, data: bytes) -> Table:
        """The packets of a window, not yet in words."""
        found, count = window.fields, len(window.starts)
        row, what, kind, value, at = found.row, found.number, found.kind, found.value, found.at

        def scalar(wanted: int, missing: int) -> list[int]:
            column = np.full(count, missing, np.uint64)
            of = np.flatnonzero((what == wanted) & (kind != LEN))
            column[row[of]] = value[of]
            out: list[int] = column.tolist()
            return out

        of = np.flatnonzero((what == names.TRACK_EVENT) & (kind == LEN))
        event = np.full(count, -1, np.int64)
        event[row[of]] = np.arange(len(of))
        flags = scalar(names.FLAGS, 0)
        state = np.zeros(count, np.bool_)
        changing = np.flatnonzero(np.isin(what, _STATE))
        changing = changing[np.argsort(row[changing], kind="stable")]
        state[row[changing]] = True
        changes: dict[int, list[tuple[int, int, int]]] = {}
        columns = (column[changing].tolist() for column in (row, what, value, at))
        for packet, number_, size, place in zip(*columns, strict=True):
            changes.setdefault(packet, []).append((number_, size, place))
        events = EventTable(data, window.data, at[of], at[of] + value[of].astype(np.int64), self._texts, self._notes)
        return Table(
            data,
            scalar(names.SEQUENCE, 0),
            scalar(names.TIMESTAMP, ABSENT),
            scalar(names.CLOCK_ID, 0),
            flags,
            (state | ((np.array(flags, np.uint64) & np.uint64(names.FLAG_CLEARED)) != 0)).tolist(),
            event.tolist(),
            changes,
            events,
        )

    def take(self, table: Table, first: int, last: int) -> Rows:
        """The events of the packets from `first` to before `last`."""
        rows = Rows()
        losses = self._losses.counts
        events = table.events
        sequences, trace_clock = self._sequences, self._clocks.trace_clock
        special = events.others.keys() | events.categories.keys() | events.category_texts.keys()
        types, tracks, bounds, sound = events.type, events.track, events.bounds, events.sound
        columns = (table.sequence, table.time, table.clock, table.flags, table.state, table.event)
        listed = zip(*(column[first:last] for column in columns), range(first, last), strict=True)
        # A Python loop: what a packet says depends on all packets of its sequence before it.
        for number, time, said_clock, flags, changes, event, packet in listed:
            sequence = sequences[number]
            if changes:
                self._change(sequence, table, packet, flags)
            clock = said_clock or sequence.default_clock
            ns: int | None = time
            if time == ABSENT:
                ns = None
            elif clock and clock != trace_clock:
                ns = self._trace_ns(sequence, clock, time if time < _SIGN else time - (1 << 64))
            elif time >= _SIGN:
                ns = time - (1 << 64)
            if event < 0:
                continue
            if flags & names.FLAG_NEEDS_STATE and not sequence.is_valid:
                losses["stateless"] += 1
                continue
            if not sound[event]:
                losses["damaged"] += 1
                continue
            if sequence.is_doubtful:
                losses["doubtful"] += 1
            kind = types[event]
            if event in special or not _BEGIN <= kind <= _INSTANT or ns is None:
                others = events.others.get(event)
                if ns is None and (others is None or not {names.DELTA_US, names.ABSOLUTE_US} & others.keys()):
                    losses["timeless"] += 1
                    continue
                self._event(rows, events, event, sequence, ns, others)
                continue
            # What most events are: nothing but a place, a name, a category and annotations.
            track = tracks[event]
            place = self._place(sequence, track)
            name = self._name(events, event, sequence)
            category: str | None = None
            iid = events.category_iid[event]
            if iid:
                category = sequence.texts["categories"].get(iid)
                if category is None:
                    self._notes.unknown += 1
            from_, to = bounds[event], bounds[event + 1]
            args = object_of(events.annotations.members(from_, to, sequence)).encode() if to > from_ else b""
            rows.add(_PH[kind], name, category, place[0], place[1], ns, args)
        return rows

    def _place(self, sequence: Sequence, track: int) -> tuple[Label, Label | NamedTrack]:
        """Where an event goes that names a track, or none (ABSENT)."""
        if track == ABSENT:
            track = sequence.default_track or 0
        if track:
            found = self._tracks.place(track)
            return found.pid, found.tid
        if sequence.tid is not None:
            return sequence.pid, sequence.tid
        return _NOWHERE

    def _trace_ns(self, sequence: Sequence, clock: int, value: int) -> int | None:
        ns = sequence.clocks.trace_ns(clock, value)
        if ns is None and not 64 <= clock < 128:
            self._losses.clocks[clock] += 1
            return value
        return ns

    # -- state --

    def _change(self, sequence: Sequence, table: Table, packet: int, flags: int) -> None:
        changes = table.changes.get(packet, [])
        said = {what: value for what, value, _ in changes}
        # In the order in which Perfetto's own reader takes them.
        if said.get(names.DROPPED) and not said.get(names.FIRST_ON_SEQUENCE):
            sequence.is_valid = False
            self._losses.counts["dropped"] += 1
        if flags & names.FLAG_CLEARED or said.get(names.CLEARED):
            sequence.clear()
        for wanted in (names.DEFAULTS, names.INTERNED, names.CLOCK_SNAPSHOT, names.THREAD_DESCRIPTOR):
            if wanted not in said:
                continue
            for what, size, at in changes:
                if what == wanted:
                    self._take_state(sequence, what, table.data, at, at + size)

    def _take_state(self, sequence: Sequence, what: int, data: bytes, start: int, end: int) -> None:
        try:
            if what == names.DEFAULTS:
                sequence.take_defaults(data, start, end)
            elif what == names.INTERNED:
                sequence.take_interned(data, start, end, self._texts)
                self._losses.text_over += sequence.text_bytes > MAX_TEXT_BYTES
            elif what == names.CLOCK_SNAPSHOT:
                sequence.clocks.add(parse_snapshot(data, start, end))
                sequence.is_doubtful = False
            else:
                sequence.take_thread(data, start, end)
        except WireError:
            self._losses.counts["state"] += 1

    # -- one event --

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
        pid, tid = self._place(sequence, track)
        if others is None:
            args = object_of(members).encode() if members else b""
            rows.add(_PH.get(kind, f"?{kind}"), name, category, pid, tid, ns, args)
            return
        if others.keys() <= _SIMPLE_OTHERS and kind != _END:
            args = object_of(members).encode() if members else b""
            place = rows.add(_PH.get(kind, f"?{kind}"), name, category, pid, tid, ns, args)
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
        elif others is not None and names.DOUBLE_VALUE in others:
            value = _double(others[names.DOUBLE_VALUE][-1][1])
        if value is None:
            self._losses.counts["valueless"] += 1
        if others is not None:
            ns = self._time(sequence, others, ns)
        place = self._tracks.counter(track)
        self._count(rows, sequence, track, place, value, ns)
        rest = dict(others or {})
        for known in (names.DOUBLE_VALUE, names.DELTA_US, names.ABSOLUTE_US):
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
        tracks = events.numbers(others, names.EXTRA_TRACKS) or sequence.default_extra
        pairs += zip(tracks, map(signed, events.numbers(others, names.EXTRA_VALUES)), strict=False)
        tracks = events.numbers(others, names.EXTRA_DOUBLE_TRACKS) or sequence.default_extra_double
        pairs += zip(tracks, map(_double, events.doubles(others, names.EXTRA_DOUBLE_VALUES)), strict=False)
        for used in (names.EXTRA_TRACKS, names.EXTRA_VALUES, names.EXTRA_DOUBLE_TRACKS, names.EXTRA_DOUBLE_VALUES):
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
        ph = _PH.get(kind, f"?{kind}")
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
        found = others.pop(names.LEGACY, None)
        if found is None:
            return None
        _, size, at = found[-1]
        try:
            return parse_legacy(events.data, at, at + size, self._texts)
        except WireError:
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
        delta, absolute = others.pop(names.DELTA_US, None), others.pop(names.ABSOLUTE_US, None)
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
        delta, absolute = others.pop(names.THREAD_DELTA_US, None), others.pop(names.THREAD_ABSOLUTE_US, None)
        if absolute is not None:
            return signed(absolute[-1][1]) * 1000
        if delta is None or sequence.thread_time_ns is None:
            return None
        sequence.thread_time_ns += signed(delta[-1][1]) * 1000
        return sequence.thread_time_ns

    def _flows(self, rows: Rows, place: int, events: EventTable, others: dict[int, list[Found]]) -> None:
        for wanted, step in (
            (names.FLOWS, _GOES_ON),
            (names.FLOWS_OLD, _GOES_ON),
            (names.FLOW_ENDS, _ENDS),
            (names.FLOW_ENDS_OLD, _ENDS),
        ):
            if wanted not in others:
                continue
            fixed = wanted in (names.FLOWS, names.FLOW_ENDS)
            found = events.doubles(others, wanted) if fixed else events.numbers(others, wanted)
            rows.flows.extend((place, one, step) for one in found)


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return value


def _raw(value: int) -> Raw:
    return Raw(str(value).encode())
