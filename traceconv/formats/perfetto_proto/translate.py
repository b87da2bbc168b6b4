"""Packets → rows of events: sequence by sequence, in stretches of unchanged state.

C takes the events of a stretch up to one with uncommon fields, or a packet that interns texts; Python takes that one
(`events.py`), or all of them where the C extension is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.clocks import SEQUENCE_CLOCKS, clock_of, parse_snapshot
from traceconv.formats.perfetto_proto.events import TrackEvents
from traceconv.formats.perfetto_proto.framing import Packets, Window
from traceconv.formats.perfetto_proto.losses import MAX_TEXT_BYTES
from traceconv.formats.perfetto_proto.memory_packets import MemoryPackets
from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.own_export import ROWS, TABLE, columns_text
from traceconv.formats.perfetto_proto.rows import Rows, TrackCodes
from traceconv.formats.perfetto_proto.sequences import Sequence
from traceconv.formats.perfetto_proto.state import TraceState
from traceconv.formats.perfetto_proto.tracks import BUILTIN_NAMES, DEFAULT
from traceconv.wire.protobuf import LEN, WireError

#: Whether C takes events.
IN_C = native.AVAILABLE
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
#: Packet of native/track_events.c, and what to do with its event: 0 nothing, 1 take it, 2 leave it.
_PACKET = np.dtype([("start", "<i8"), ("end", "<i8"), ("ts", "<i8"), ("packet", "<i4"), ("what", "<i4")])
_LEAVE = 2


@dataclass(frozen=True, slots=True)
class Table:
    """The packets of a window.

    columns        what all packets have
    is_change      packets that change their sequence's state; `is_boundary`: by more than interned texts
    changes        packet → fields that change the state: number, value, byte position
    others         packets with other events (EVENT_PACKETS): packet → field number, start, end
    own            packets of our own exports: packet, start, end
    position       packets of the trace before these
    """

    data: bytes
    columns: Packets
    is_change: Mask
    is_boundary: Mask
    changes: dict[int, list[tuple[int, int, int]]]
    others: dict[int, tuple[int, int, int]]
    own: list[tuple[int, int, int]]
    position: int


class Translator:
    """Turns windows into rows, one after another."""

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self._counts = trace.losses.counts
        self._events = TrackEvents(trace)
        self._memory = MemoryPackets(trace, self._events.typed_fields)

    def open(self, window: Window, position: int) -> Table:
        """Return the packets of a window, with what they change. `position`: packets of the trace before them."""
        found, packets = window.fields, window.packets
        is_changing = np.isin(found.number, _STATE)
        # Only descriptors of sequences whose thread is unknown change their state.
        described = np.flatnonzero(found.number == pb.TRACK_DESCRIPTOR)
        sequences = packets.sequence[found.row[described]]
        without_thread = self._trace.sequences.without_thread(np.unique(sequences).tolist())
        is_changing[described] = np.isin(sequences, np.array(without_thread, np.uint64))
        changing = np.flatnonzero(is_changing)
        is_change = (packets.flags & np.uint64(pb.FLAG_CLEARED)) != 0
        is_boundary = is_change.copy()
        is_change[found.row[changing]] = True
        is_boundary[found.row[changing[found.number[changing] != pb.INTERNED]]] = True
        changes: dict[int, list[tuple[int, int, int]]] = {}
        columns = (column[changing].tolist() for column in (found.row, found.number, found.value, found.at))
        for packet, what, size, place in zip(*columns, strict=True):
            changes.setdefault(packet, []).append((what, size, place))
        return Table(
            window.data,
            packets,
            is_change,
            is_boundary,
            changes,
            _with_other_events(window),
            self._own(window),
            position,
        )

    def _own(self, window: Window) -> list[tuple[int, int, int]]:
        found = window.fields
        of = np.flatnonzero((found.number == pb.OWN) & (found.kind == LEN) & self._trace.is_own)
        ends = found.at[of] + found.value[of].astype(np.int64)
        return list(zip(found.row[of].tolist(), found.at[of].tolist(), ends.tolist(), strict=True))

    def take(self, table: Table, first: int, last: int) -> Rows:
        """Return the events of the packets from `first` to before `last`."""
        self._events.annotations.shared = 0
        rows = Rows(Rows.most_args_of(len(table.data)))
        places = TrackCodes(partial(self._place_codes, rows)), TrackCodes(partial(self._count_codes, rows))
        for number, packets in _stretches(table, first, last):
            self._take_stretch(rows, table, self._trace.sequences[number], packets, places)
        for packet, start, end in table.own:
            if first <= packet < last:
                rows.packet = packet
                self._take_own(rows, table.data, start, end)
        if rows.has_track(DEFAULT):
            self._trace.tracks.use(0)
        tracks = self._trace.tracks
        for track, ns, packet, name in rows.first_named(tracks.asking) if tracks.asking else ():
            tracks.note_event(tracks.asking[track], ns, table.position + packet, name)
        return rows

    def _take_own(self, rows: Rows, data: bytes, start: int, end: int) -> None:
        """Add a metadata event with the rows in a packet of our own exports."""
        try:
            message = Message(data, start, end)
            name, text = message.text(TABLE), message.text(ROWS)
            if name is not None:
                args = columns_text(message) if text is None else text.decode()
                rows.add("M", name.decode(), None, None, None, None, args)
        except (WireError, UnicodeDecodeError):
            self._counts["damaged"] += 1

    def _place_codes(self, rows: Rows, track: int) -> tuple[int, ...]:
        pid, tid = self._trace.tracks.use(track)[:2]
        return rows.pid.code(pid), rows.tid.code(tid)

    def _count_codes(self, rows: Rows, track: int) -> tuple[int, ...]:
        place = self._trace.tracks.counter(track)
        is_plain = place.multiplier == 1 and not place.is_incremental
        multiplier = place.multiplier if 0 < place.multiplier < 1 << 31 else 0  # C leaves others
        of_thread = place.counter_type if place.counter_type in BUILTIN_NAMES else 0
        codes = rows.pid.code(place.pid), rows.name.code(place.name), rows.id.code(place.id)
        return *codes, int(is_plain), multiplier, int(place.is_incremental), of_thread

    def _take_stretch(
        self, rows: Rows, table: Table, sequence: Sequence, packets: Int64, places: tuple[TrackCodes, TrackCodes]
    ) -> None:
        """Add the events of packets of one sequence; only the first may change more state than interned texts."""
        is_change = table.is_change[packets]
        if is_change[0]:
            self._change(sequence, table, int(packets[0]))
            is_change[0] = False
        ns, timed = self._times(sequence, table, packets)
        has_event = table.columns.start[packets] >= 0
        is_other = np.isin(packets, list(table.others)) if table.others else np.zeros(len(packets), np.bool_)
        has_event |= is_other
        if not sequence.is_valid:
            stateless = has_event & ((table.columns.flags[packets] & np.uint64(pb.FLAG_NEEDS_STATE)) != 0)
            self._counts["stateless"] += int(stateless.sum())
            has_event &= ~stateless
        work = np.empty(len(packets), _PACKET)
        work["start"], work["end"], work["ts"] = table.columns.start[packets], table.columns.end[packets], ns
        work["packet"] = packets
        work["what"] = np.where(has_event & (~timed | is_other), _LEAVE, has_event)
        for at in self._left(rows, table, sequence, work, is_change, places):
            packet = int(packets[at])
            if has_event[at]:
                rows.packet, rows.position = packet, table.position + packet
                packet_ns = int(ns[at]) if timed[at] else None
                if packet in table.others:
                    number, start, end = table.others[packet]
                    taker = self._trace.gpu if number in pb.GPU_PACKETS else self._memory
                    taker.take(rows, number, start, end, table.data, sequence, packet_ns)
                    continue
                start, end = int(table.columns.start[packet]), int(table.columns.end[packet])
                self._events.take(rows, table.data, start, end, sequence, packet_ns)

    def _left(
        self,
        rows: Rows,
        table: Table,
        sequence: Sequence,
        work: NDArray[np.void],
        is_change: Mask,
        places: tuple[TrackCodes, TrackCodes],
    ) -> Iterator[int]:
        """Yield the packets that C leaves, each after C has taken those before it, and after its change of state."""
        if not IN_C:
            for at in np.flatnonzero(work["what"] | is_change).tolist():
                if is_change[at]:
                    self._change(sequence, table, int(work["packet"][at]))
                yield at
            return
        known = sequence.texts
        pid, tid = self._events.writer(sequence, table.position + int(work["packet"][0]))
        state = (
            *(known[listed] for listed in ("names", "categories", "annotations", "values")),
            sequence.default_track or 0,
            (rows.pid.code(pid), rows.tid.code(tid)),
            sequence.default_extra,
            sequence.sums,
            sequence.args,
            partial(self._events.args_of, sequence),
            self._events.typed_in_c,
            sequence.locations,
        )
        codes = rows.name.known, rows.name.distinct, rows.cat.known, rows.cat.distinct, *places
        out = rows.rows, rows.args, rows.flows, rows.times["tts"]
        # C takes the event of a packet that interns texts, too, after Python has interned them.
        what = work["what"].copy()
        work["what"][is_change] = _LEAVE
        at = 0
        while at < len(work):
            at, unknown, taken = native.track_events(table.data, work, at, state, codes, out, rows.most_args)
            self._counts["unknown text"] += unknown
            if sequence.is_doubtful:
                self._counts["doubtful"] += taken
            if at < len(work) and is_change[at]:
                self._change(sequence, table, int(work["packet"][at]))
                work["what"][at], is_change[at] = what[at], False
            elif at < len(work):
                yield at
                at += 1

    # -- timestamps --

    def _times(self, sequence: Sequence, table: Table, packets: Int64) -> tuple[Int64, Mask]:
        """Timestamps of a sequence's packets from one boundary to the next, in ns of the trace clock, and which exist.

        BEYOND where 64 bits can't hold one.
        """
        clock, timed = table.columns.clock[packets], table.columns.timed[packets]
        ns = table.columns.time[packets].view(np.int64).copy()
        usual, machine = self._trace.clocks.trace_clock, sequence.clocks.machine
        default = sequence.default_clock or usual
        clocks = pa.array(clock).unique().to_pylist() if clock.any() else [0]
        for one in dict.fromkeys(number or default for number in clocks):
            if one == usual and not machine:
                continue
            of = np.flatnonzero(timed & ((clock == np.uint64(one)) | ((clock == 0) & (one == default))))
            moved = sequence.clocks.trace_ns(one, ns[of]) if len(of) else None
            if moved is not None:
                ns[of] = moved
            elif one in SEQUENCE_CLOCKS:
                timed[of] = False
            else:
                self._trace.losses.clocks[clock_of(machine, one)] += len(of)
        return ns, timed

    # -- state --

    def _change(self, sequence: Sequence, table: Table, packet: int) -> None:
        """Update a sequence's state."""
        changes = table.changes.get(packet, [])
        values = {what: value for what, value, _ in changes}
        # In the order of Perfetto's own reader.
        if values.get(pb.DROPPED) and not values.get(pb.FIRST_ON_SEQUENCE):
            sequence.is_valid = False
            self._counts["dropped"] += 1
        if int(table.columns.flags[packet]) & pb.FLAG_CLEARED or values.get(pb.CLEARED):
            sequence.clear()
        for wanted in (pb.DEFAULTS, pb.INTERNED, pb.CLOCK_SNAPSHOT, pb.THREAD_DESCRIPTOR, pb.TRACK_DESCRIPTOR):
            for what, size, at in changes:
                if what == wanted:
                    self._take_state(sequence, what, table.data, at, at + size)

    def _take_state(self, sequence: Sequence, what: int, data: bytes, start: int, end: int) -> None:
        try:
            if what == pb.DEFAULTS:
                sequence.take_defaults(data, start, end)
            elif what == pb.INTERNED:
                sequence.take_interned(data, start, end, self._trace.texts)
                self._counts["text limit"] += sequence.text_bytes > MAX_TEXT_BYTES
            elif what == pb.CLOCK_SNAPSHOT:
                sequence.clocks.add(parse_snapshot(data, start, end))
                sequence.is_doubtful = False
            elif what == pb.TRACK_DESCRIPTOR:
                # The first thread that a sequence describes writes its events without a track.
                try:
                    message = Message(data, start, end)
                except WireError:
                    return  # counted when the trace's descriptions were read
                for at, stop in message.spans(4)[-1:] if sequence.tid is None else ():
                    sequence.take_thread(data, at, stop)
                    sequence.thread_track = message.number(1) or 0
            else:
                sequence.take_thread(data, start, end)
                sequence.thread_track = None
        except WireError:
            self._counts["state"] += 1


def _with_other_events(window: Window) -> dict[int, tuple[int, int, int]]:
    """Return the packets with events that are not track events: packet → field number, start, end."""
    found = window.fields
    of = np.flatnonzero(np.isin(found.number, pb.EVENT_PACKETS) & (found.kind == LEN))
    ends = found.at[of] + found.value[of].astype(np.int64)
    places = zip(found.number[of].tolist(), found.at[of].tolist(), ends.tolist(), strict=True)
    return dict(zip(found.row[of].tolist(), places, strict=True))


def _stretches(table: Table, first: int, last: int) -> Iterator[tuple[int, Int64]]:
    """Yield sequences, and their packets from one boundary to before the next."""
    found = pa.array(table.columns.sequence[first:last]).dictionary_encode()
    codes, numbers = found.indices.to_numpy(), found.dictionary.to_pylist()
    order = np.arange(len(codes))
    if len(numbers) > 1:
        order = np.argsort(codes.astype(np.uint16) if len(numbers) <= 1 << 16 else codes, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(codes, minlength=len(numbers)))).tolist()
    packets = order + first
    for number, from_, to in zip(numbers, bounds, bounds[1:], strict=False):
        mine = packets[from_:to]
        boundaries = np.flatnonzero(table.is_boundary[mine]).tolist()
        cuts = [0, *boundaries, len(mine)] if not boundaries or boundaries[0] else [*boundaries, len(mine)]
        for start, stop in pairwise(cuts):
            yield number, mine[start:stop]
