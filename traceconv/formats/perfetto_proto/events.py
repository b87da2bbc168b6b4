"""Track events of a window → columns: which fields each has, by number."""

from __future__ import annotations

import numpy as np

from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Annotations, Notes
from traceconv.formats.perfetto_proto.sequences import Texts, repeated
from traceconv.wire.protobuf import LEN, Int64, WireError, walk

#: The value of a field that an event does not have, where 0 would say something.
ABSENT = (1 << 64) - 1

#: Lists of numbers, one after another.
_PACKED = (pb.CATEGORY_IIDS, pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.FLOWS_OLD,
           pb.FLOW_ENDS_OLD)  # fmt: skip
_REPEATED = (pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.EXTRA_DOUBLE_VALUES)

#: A field of an event: kind, value (size of a LEN field), place.
Found = tuple[int, int, int]


class EventTable:
    """The events of a window, each column a list.

    sound            whether the event can be read
    type, name_iid, track (ABSENT when not said), category_iid (the last, 0 for none)
    name             (place, size), or None
    categories       event → all its category iids, where it has several
    category_texts   event → its categories as bytes
    value            of counters, (kind, bits); None when the event has none
    others           event → field number → all its fields, of fields that few events have
    """

    def __init__(self, data: bytes, array: np.ndarray, starts: Int64, ends: Int64, texts: Texts, notes: Notes) -> None:
        self.data = data
        count = len(starts)
        found = walk(array, starts, ends)
        self.sound: list[bool] = found.sound.tolist()
        self.starts, self.ends = starts.tolist(), ends.tolist()
        row, number, kind, value, at = found.row, found.number, found.kind, found.value, found.at

        def scalar(wanted: int, missing: int) -> list[int]:
            column = np.full(count, missing, np.uint64)
            of = np.flatnonzero((number == wanted) & (kind != LEN))
            column[row[of]] = value[of]
            out: list[int] = column.tolist()
            return out

        self.type = scalar(pb.TYPE, 0)
        self.name_iid = scalar(pb.NAME_IID, 0)
        self.track = scalar(pb.TRACK_UUID, ABSENT)
        self.category_iid = scalar(pb.CATEGORY_IIDS, 0)
        self.name: list[tuple[int, int] | None] = [None] * count
        of = np.flatnonzero((number == pb.NAME) & (kind == LEN))
        for event, place, size in zip(row[of].tolist(), at[of].tolist(), value[of].tolist(), strict=True):
            self.name[event] = place, size
        self.value: list[int | None] = [None] * count
        of = np.flatnonzero((number == pb.COUNTER_VALUE) & (kind != LEN))
        for event, bits in zip(row[of].tolist(), value[of].tolist(), strict=True):
            self.value[event] = bits
        self._check_packed(row, number, kind, value, at)
        self.categories: dict[int, list[int]] = {}
        self._several_categories(found.row, found.number, found.kind, found.value, found.at, count)
        self.category_texts: dict[int, list[bytes]] = {}
        of = np.flatnonzero((number == pb.CATEGORIES) & (kind == LEN))
        for event, place, size in zip(row[of].tolist(), at[of].tolist(), value[of].tolist(), strict=True):
            self.category_texts.setdefault(event, []).append(data[place : place + size])
        self.others: dict[int, dict[int, list[Found]]] = {}
        of = np.flatnonzero(~np.isin(number, list(pb.PLAIN)))
        columns = (column[of].tolist() for column in (row, number, kind, value, at))
        for event, what, form, bits, place in zip(*columns, strict=True):
            self.others.setdefault(event, {}).setdefault(what, []).append((form, bits, place))
        self.annotations = Annotations(data, found, array, texts, notes)
        self.bounds = self.annotations.bounds(count)

    def _check_packed(self, row: Int64, number: np.ndarray, kind: np.ndarray, value: np.ndarray, at: Int64) -> None:
        """An event with a list of numbers that can't be read to its end is not sound."""
        of = np.flatnonzero((kind == LEN) & np.isin(number, _PACKED))
        columns = (column[of].tolist() for column in (row, value, at))
        for event, size, place in zip(*columns, strict=True):
            try:
                repeated(self.data, LEN, size, place)
            except WireError:
                self.sound[event] = False

    def _several_categories(
        self, row: Int64, number: np.ndarray, kind: np.ndarray, value: np.ndarray, at: Int64, count: int
    ) -> None:
        of = np.flatnonzero(number == pb.CATEGORY_IIDS)
        if not len(of):
            return
        several = np.bincount(row[of], minlength=count) > 1
        several[row[of[kind[of] == LEN]]] = True
        of = of[several[row[of]] & np.array(self.sound, np.bool_)[row[of]]]
        columns = (column[of].tolist() for column in (row, kind, value, at))
        for event, form, bits, place in zip(*columns, strict=True):
            self.categories.setdefault(event, []).extend(repeated(self.data, form, bits, place))

    def numbers(self, fields: dict[int, list[Found]], wanted: int) -> list[int]:
        """All numbers of a repeated field of an event."""
        return [one for form, bits, at in fields.get(wanted, ()) for one in repeated(self.data, form, bits, at)]

    def doubles(self, fields: dict[int, list[Found]], wanted: int) -> list[int]:
        """The bits of all doubles of a repeated field of an event."""
        found = []
        for form, bits, at in fields.get(wanted, ()):
            if form != LEN:
                found.append(bits)
            else:
                found += [int.from_bytes(self.data[p : p + 8], "little") for p in range(at, at + bits - 7, 8)]
        return found
