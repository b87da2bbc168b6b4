"""Events that say what most events say, as columns: a type, a name, a category, a track, notes, a value, arrows.

What any other event says is read one by one (`events.EventTable`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.debug_annotations import PlainNotes, double_texts
from traceconv.formats.perfetto_proto.fields import Fields
from traceconv.wire.protobuf import FIXED64, LEN, Int64, Mask, UInt64, walk

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
#: The value of a field that an event does not have, where 0 would say something.
ABSENT = (1 << 64) - 1
#: Steps of flows whose id is free again after an end.
_GOES_ON, _ENDS = 3, 4
#: Fields that name arrows, in the order in which they are told: number, step.
_ARROWS = (
    (pb.FLOWS, _GOES_ON),
    (pb.FLOWS_OLD, _GOES_ON),
    (pb.FLOW_ENDS, _ENDS),
    (pb.FLOW_ENDS_OLD, _ENDS),
)

#: Larger windows are one giant packet, with texts that columns of text may not hold.
_MAX_BYTES = 64 << 20


class PlainEvents:
    """All events of a window, as if they were plain.

    is_plain          which are, and can be told by these columns
    type, name_iid, category_iid, track (ABSENT where it is not said)
    name_at, name_size, category_at, category_size   of texts that stand in the event; −1 where none does
    value, is_double  of counters: a whole number or the bits of a double
    notes             annotations; those of event n are `bounds[n]` to before `bounds[n + 1]`
    """

    def __init__(self, data: NDArray[np.uint8], starts: Int64, ends: Int64, odd_counters: UInt64) -> None:
        found = walk(data, starts, ends)
        count = len(starts)
        fields = Fields(found, count)
        self.type = fields.scalar(pb.TYPE, 0)
        self.name_iid = fields.scalar(pb.NAME_IID, 0)
        self.track = fields.scalar(pb.TRACK_UUID, ABSENT)
        self.category_iid = fields.scalar(pb.CATEGORY_IIDS, 0)
        self.name_at, self.name_size = fields.piece(pb.NAME)
        self.category_at, self.category_size = fields.piece(pb.CATEGORIES)
        self.is_double = np.zeros(count, np.bool_)
        self.value = fields.scalar(pb.COUNTER_VALUE, 0)
        self.notes = PlainNotes(data, fields)
        self.bounds = self.notes.bounds
        self._fields = fields
        self.is_plain = found.sound & self._says_nothing_else(odd_counters) & self.notes.plain_owner
        if len(data) > _MAX_BYTES:
            self.is_plain[:] = False

    def _says_nothing_else(self, odd_counters: UInt64) -> Mask:
        fields, found = self._fields, self._fields.found
        is_slice = (self.type == BEGIN) | (self.type == INSTANT)
        is_counter = self.type == COUNTER
        plain: Mask = is_slice | is_counter | (self.type == END)
        # One category, by its number or as a text.
        of = fields.of(pb.CATEGORY_IIDS)
        numbered = fields.counts(of)
        plain &= numbered + fields.counts(fields.of(pb.CATEGORIES)) <= 1
        plain[found.row[of[found.kind[of] == LEN]]] = False
        arrows = [number for number, _ in _ARROWS]
        for number in fields.numbers():
            if number in arrows:
                of = fields.of(number)
                plain[found.row[of[found.kind[of] == LEN]]] = False
                plain &= is_slice | ~fields.has(number)
            elif number == pb.DOUBLE_VALUE:
                self._take_doubles(fields.of(number), plain)
            elif number not in pb.PLAIN:
                plain &= ~fields.has(number)
        # A counter has a value and no name of its own.
        of = fields.of(pb.COUNTER_VALUE)
        valued = fields.counts(of) == 1
        valued[found.row[of[found.kind[of] == LEN]]] = False
        plain &= ~is_counter | (
            (valued ^ self.is_double) & (self.name_iid == 0) & (self.name_at < 0) & (np.diff(self.bounds) == 0)
        )
        if len(odd_counters):
            plain &= ~is_counter | ((self.track != ABSENT) & ~np.isin(self.track, odd_counters))
        return plain

    def _take_doubles(self, of: NDArray[np.intp], plain: Mask) -> None:
        found = self._fields.found
        row = found.row[of]
        once = np.bincount(row, minlength=len(plain)) == 1
        good = once[row] & (found.kind[of] == FIXED64) & (self.type[row] == COUNTER)
        plain[row[~good]] = False
        self.is_double[row[good]] = True
        whole = self._fields.of(pb.COUNTER_VALUE)
        plain[np.intersect1d(row, found.row[whole])] = False
        self.value[row[good]] = found.value[of[good]]

    def arrows(self, chosen: Mask) -> tuple[Int64, UInt64, NDArray[np.int32]]:
        """The arrows that chosen events name, event by event: which event, key, step."""
        parts = []
        for number, step in _ARROWS:
            of = self._fields.of(number)
            of = of[chosen[self._fields.found.row[of]]]
            if len(of):
                found = self._fields.found
                parts.append((found.row[of], found.value[of], np.full(len(of), step, np.int32)))
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.int32)
        row, key, step_of = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(row, kind="stable")
        return row[order], key[order], step_of[order]

    def counter_args(self, which: Int64) -> pa.Array:
        """The args of events of counters."""
        bits = self.value[which]
        texts = pa.array(bits.view(np.int64)).cast(pa.string())
        doubles = np.flatnonzero(self.is_double[which])
        if len(doubles):
            found = pa.array(double_texts(bits[doubles], as_json=False), pa.string())
            order = np.arange(len(which))
            order[doubles] = len(which) + np.arange(len(doubles))
            texts = pa.concat_arrays([texts, found]).take(pa.array(order))
        return pc.binary_join_element_wise('{"value":', texts, "}", "").cast(pa.binary())
