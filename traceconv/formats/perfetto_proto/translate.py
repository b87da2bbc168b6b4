"""Packets → events: sequence by sequence, in stretches in which its state stays as it is.

Plain events of a stretch are told together, all others one by one, between the texts that are given numbers meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import is_time
from traceconv.events.trace import TraceBatch, TrackName
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Notes
from traceconv.formats.perfetto_proto.batch import Rows, make_batch
from traceconv.formats.perfetto_proto.clocks import Clocks, parse_snapshot
from traceconv.formats.perfetto_proto.codes import Change, distinct
from traceconv.formats.perfetto_proto.events import EventTable
from traceconv.formats.perfetto_proto.fields import Fields
from traceconv.formats.perfetto_proto.framing import Window
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.plain import PlainEvents
from traceconv.formats.perfetto_proto.plain_rows import PlainRows
from traceconv.formats.perfetto_proto.sequences import MAX_TEXT_BYTES, Sequence, Sequences, Texts
from traceconv.formats.perfetto_proto.single import SingleEvents
from traceconv.formats.perfetto_proto.together import Together
from traceconv.formats.perfetto_proto.tracks import Descriptors
from traceconv.wire.protobuf import LEN, Int64, Mask, UInt64, WireError

#: Fewer packets than this are told one by one: a column costs as much for one as for many.
MIN_TOGETHER = 48
#: Fields of a packet that change the state of its sequence.
_STATE = (
    pb.CLEARED,
    pb.DROPPED,
    pb.INTERNED,
    pb.DEFAULTS,
    pb.CLOCK_SNAPSHOT,
    pb.THREAD_DESCRIPTOR,
    pb.FIRST_ON_SEQUENCE,
)
_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class Table:
    """The packets of a window as columns, and its events.

    timed          which packets say a time
    event          of each packet, −1 for none; `starts`, `ends` of the events in the data
    is_change      packets that change their sequence's state; `is_turn`: by more than numbered texts
    changes        packet → what changes: field, value, place
    """

    window: Window
    data: bytes
    sequence: UInt64
    time: UInt64
    timed: Mask
    clock: UInt64
    flags: UInt64
    is_change: Mask
    is_turn: Mask
    event: Int64
    starts: Int64
    ends: Int64
    changes: dict[int, list[tuple[int, int, int]]]
    events: PlainEvents


@dataclass(frozen=True, slots=True)
class Told:
    """The events of some packets, told."""

    plain: PlainRows
    rows: Rows

    def __len__(self) -> int:
        return len(self.plain.packets) + len(self.rows.ph)

    def batch(self, first_ordinal: int, byte_offset: int, byte_count: int, said: tuple[TrackName, ...]) -> TraceBatch:
        """All of it as a batch."""
        return make_batch(self.plain, self.rows, first_ordinal, byte_offset, byte_count, said)


@dataclass(frozen=True, slots=True)
class _Times:
    """Times of packets in ns of the trace clock. `said`: the packet has one; `fits`: within 64 bits, else in `wide`."""

    ns: Int64
    said: Mask
    fits: Mask
    wide: dict[int, int]

    def __getitem__(self, at: int) -> int | None:
        if not self.said[at]:
            return None
        return int(self.ns[at]) if self.fits[at] else self.wide[at]


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
        self._single = SingleEvents(tracks, clocks, texts, notes, losses)
        self._odd_counters = tracks.odd_counters()

    def open(self, window: Window, data: bytes) -> Table:
        """The packets of a window, not yet in words."""
        found, count = window.fields, len(window.starts)
        fields = Fields(found, count)
        of = fields.of(pb.TRACK_EVENT)
        of = of[found.kind[of] == LEN]
        of = of[np.argsort(found.at[of], kind="stable")]
        event = np.full(count, -1, np.int64)
        event[found.row[of]] = np.arange(len(of))
        starts = found.at[of]
        ends = starts + found.value[of].astype(np.int64)
        flags = fields.scalar(pb.FLAGS, 0)
        changing = np.concatenate([fields.of(number) for number in _STATE])
        changing = changing[np.lexsort((changing, found.row[changing]))]
        is_change = (flags & np.uint64(pb.FLAG_CLEARED)) != 0
        is_turn = is_change.copy()
        is_change[found.row[changing]] = True
        is_turn[found.row[changing[found.number[changing] != pb.INTERNED]]] = True
        changes: dict[int, list[tuple[int, int, int]]] = {}
        columns = (column[changing].tolist() for column in (found.row, found.number, found.value, found.at))
        for packet, what, size, place in zip(*columns, strict=True):
            changes.setdefault(packet, []).append((what, size, place))
        return Table(
            window,
            data,
            fields.scalar(pb.SEQUENCE, 0),
            fields.scalar(pb.TIMESTAMP, 0),
            fields.has(pb.TIMESTAMP),
            fields.scalar(pb.CLOCK_ID, 0),
            flags,
            is_change,
            is_turn,
            event,
            starts,
            ends,
            changes,
            PlainEvents(window.data, starts, ends, self._odd_counters),
        )

    def take(self, table: Table, first: int, last: int) -> Told:
        """The events of the packets from `first` to before `last`."""
        return _Part(self, table, first, last).told()

    # -- times --

    def times(self, sequence: Sequence, table: Table, packets: Int64) -> _Times:
        """The times of packets of a sequence, in their order, between two turns of its state."""
        time, clock = table.time[packets], table.clock[packets]
        said = table.timed[packets]
        ns = time.view(np.int64).copy()
        fits = np.ones(len(ns), np.bool_)
        wide: dict[int, int] = {}
        default, usual = sequence.default_clock, self._clocks.trace_clock
        _, clocks = distinct(clock) if clock.any() else (None, [0])
        for one in dict.fromkeys(number or default for number in clocks):
            if not one or one == usual:
                continue
            of = np.flatnonzero(said & ((clock == np.uint64(one)) | ((clock == 0) & (one == default))))
            if not len(of):
                continue
            moved = sequence.clocks.trace_ns_of(one, ns[of])
            if moved is True:
                self._times_one_by_one(sequence, one, of, (ns, said, fits), wide)
            elif moved is not False:
                ns[of] = moved
            elif not 64 <= one < 128:
                self._losses.clocks[one] += len(of)
            else:
                said[of] = False
        return _Times(ns, said, fits, wide)

    def _times_one_by_one(
        self,
        sequence: Sequence,
        clock: int,
        of: NDArray[np.intp],
        columns: tuple[Int64, Mask, Mask],
        wide: dict[int, int],
    ) -> None:
        ns, said, fits = columns
        for at in of.tolist():
            found = self.trace_ns(sequence, clock, int(ns[at]))
            if found is None:
                said[at] = False
            elif is_time(found):
                ns[at] = found
            else:
                fits[at], wide[at] = False, found

    def trace_ns(self, sequence: Sequence, clock: int, value: int) -> int | None:
        """A time of a clock in ns of the trace clock; None: not known."""
        ns = sequence.clocks.trace_ns(clock, value)
        if ns is None and not 64 <= clock < 128:
            self._losses.clocks[clock] += 1
            return value
        return ns

    def time(self, sequence: Sequence, table: Table, packet: int) -> int | None:
        """The time of one packet."""
        if not table.timed[packet]:
            return None
        time = int(table.time[packet])
        if time >= _SIGN:
            time -= 1 << 64
        clock = int(table.clock[packet]) or sequence.default_clock
        return self.trace_ns(sequence, clock, time) if clock and clock != self._clocks.trace_clock else time

    # -- state --

    def change(self, sequence: Sequence, table: Table, packet: int) -> None:
        """Brings a sequence's state up to date."""
        changes = table.changes.get(packet, [])
        said = {what: value for what, value, _ in changes}
        # In the order in which Perfetto's own reader takes them.
        if said.get(pb.DROPPED) and not said.get(pb.FIRST_ON_SEQUENCE):
            sequence.is_valid = False
            self._losses.counts["dropped"] += 1
        if int(table.flags[packet]) & pb.FLAG_CLEARED or said.get(pb.CLEARED):
            sequence.clear()
        for wanted in (pb.DEFAULTS, pb.INTERNED, pb.CLOCK_SNAPSHOT, pb.THREAD_DESCRIPTOR):
            if wanted not in said:
                continue
            for what, size, at in changes:
                if what == wanted:
                    self._take_state(sequence, what, table.data, at, at + size)

    def _take_state(self, sequence: Sequence, what: int, data: bytes, start: int, end: int) -> None:
        try:
            if what == pb.DEFAULTS:
                sequence.take_defaults(data, start, end)
            elif what == pb.INTERNED:
                sequence.take_interned(data, start, end, self._texts)
                self._losses.text_over += sequence.text_bytes > MAX_TEXT_BYTES
            elif what == pb.CLOCK_SNAPSHOT:
                sequence.clocks.add(parse_snapshot(data, start, end))
                sequence.is_doubtful = False
            else:
                sequence.take_thread(data, start, end)
        except WireError:
            self._losses.counts["state"] += 1


class _Part:
    """Some packets of a window on their way to events."""

    def __init__(self, translator: Translator, table: Table, first: int, last: int) -> None:
        self._translator = translator
        self._table = table
        self._first, self._last = first, last
        self._losses = translator._losses.counts
        self._rows = Rows()
        self._together = Together(table.events, first, last, translator._tracks, translator._texts, translator._notes)

    def told(self) -> Told:
        """The events."""
        table, translator = self._table, self._translator
        stretches = list(self._stretches())
        # Events that are told one by one: those that are not plain, and those of short stretches.
        single = ~table.events.is_plain
        for _, packets in stretches:
            if len(packets) < MIN_TOGETHER:
                events = table.event[packets]
                single[events[events >= 0]] = True
        mine = table.event[self._first : self._last]
        here = np.zeros(len(single), np.bool_)
        here[mine[mine >= 0]] = True
        of = np.flatnonzero(single & here)
        # One more: where a packet without an event looks.
        self._slot = np.full(len(single) + 1, -1, np.int64)
        self._slot[of] = np.arange(len(of))
        self._events = EventTable(
            table.data, table.window.data, table.starts[of], table.ends[of], translator._texts, translator._notes
        )
        for number, packets in stretches:
            sequence = translator._sequences[number]
            if len(packets) < MIN_TOGETHER:
                self._one_by_one(sequence, packets)
            else:
                self._all_together(sequence, packets)
            sequence.changes.clear()
        return Told(self._together.rows(table.data), self._rows)

    def _stretches(self) -> Iterator[tuple[int, Int64]]:
        """Sequences, and their packets from one turn of its state to before the next."""
        table = self._table
        codes, numbers = distinct(table.sequence[self._first : self._last])
        order = np.arange(len(codes))
        if len(numbers) > 1:
            order = np.argsort(codes.astype(np.uint16) if len(numbers) <= 1 << 16 else codes, kind="stable")
        bounds = np.append(0, np.cumsum(np.bincount(codes, minlength=len(numbers)))).tolist()
        packets = order + self._first
        for number, from_, to in zip(numbers, bounds, bounds[1:], strict=False):
            mine = packets[from_:to]
            turns = np.flatnonzero(table.is_turn[mine]).tolist()
            cuts = [0, *turns, len(mine)] if not turns or turns[0] else [*turns, len(mine)]
            for start, stop in pairwise(cuts):
                yield number, mine[start:stop]

    def _one_by_one(self, sequence: Sequence, packets: Int64) -> None:
        table, translator, rows = self._table, self._translator, self._rows
        is_change, event = table.is_change[packets].tolist(), table.event[packets]
        slots = self._slot[event].tolist()
        needs_state = ((table.flags[packets] & np.uint64(pb.FLAG_NEEDS_STATE)) != 0).tolist()
        for packet, changes, slot, needs in zip(packets.tolist(), is_change, slots, needs_state, strict=True):
            if changes:
                translator.change(sequence, table, packet)
            ns = translator.time(sequence, table, packet)
            if slot < 0:
                continue
            if needs and not sequence.is_valid:
                self._losses["stateless"] += 1
                continue
            rows.packet = packet
            translator._single.take(rows, self._events, slot, sequence, ns)

    def _all_together(self, sequence: Sequence, packets: Int64) -> None:
        table, translator, rows = self._table, self._translator, self._rows
        is_change = table.is_change[packets]
        if is_change[0]:
            translator.change(sequence, table, int(packets[0]))
            is_change[0] = False
        sequence.changes.clear()
        times = translator.times(sequence, table, packets)
        event = table.event[packets]
        tellable = event >= 0
        if not sequence.is_valid:
            stateless = tellable & ((table.flags[packets] & np.uint64(pb.FLAG_NEEDS_STATE)) != 0)
            self._losses["stateless"] += int(stateless.sum())
            tellable &= ~stateless
        slot = self._slot[event]
        single = tellable & (slot >= 0)
        plain = tellable & (slot < 0)
        changed: dict[str, list[Change]] = {}
        # A Python loop: such an event's words are those that its sequence knows at that packet.
        for at in np.flatnonzero(is_change | single).tolist():
            packet = int(packets[at])
            if is_change[at]:
                translator.change(sequence, table, packet)
                for listed, iid, before, after in sequence.changes:
                    changed.setdefault(listed, []).append(Change(packet, iid, before, after))
                sequence.changes.clear()
            if single[at]:
                rows.packet = packet
                translator._single.take(rows, self._events, int(slot[at]), sequence, times[at])
        if sequence.is_doubtful:
            self._losses["doubtful"] += int(plain.sum())
        self._losses["timeless"] += int((plain & ~times.said).sum())
        of = np.flatnonzero(plain & times.said)
        if len(of):
            self._together.take(sequence, event[of], packets[of], times.ns[of], times.fits[of], changed)
