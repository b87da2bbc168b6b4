"""Debug annotations with one plain value each, of many events → the text of each event's args, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv.base.errors import InputError
from traceconv.formats.perfetto_proto import annotations as one_by_one
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.codes import Change, Coder, decoded, resolve
from traceconv.formats.perfetto_proto.fields import Fields
from traceconv.formats.perfetto_proto.sequences import Texts
from traceconv.wire.protobuf import FIXED64, LEN, VARINT, Int64, UInt64, walk

Int32 = NDArray[np.int32]

#: Numbers of fields of DebugAnnotation.
_NAME_IID, _BOOL, _UINT, _INT, _DOUBLE, _STRING, _POINTER, _NAME, _STRING_IID = 1, 2, 3, 4, 5, 6, 7, 10, 17
#: The kind that the field of a plain value has; −1: not plain.
_KINDS = np.full(256, -1, np.int8)
_KINDS[[_BOOL, _UINT, _INT, _POINTER, _STRING_IID]] = VARINT
_KINDS[_DOUBLE], _KINDS[_STRING] = FIXED64, LEN
#: Characters that the numbered texts of a window may come to in all its args.
MAX_SHARED = 256 << 20
#: Annotations of an event of which each is compared with each.
_MAX_LAGS = 12


class PlainNotes:
    """The annotations of a window's events, event by event.

    bounds       those of event n are `bounds[n]` to before `bounds[n + 1]`
    plain_owner  which events have only annotations that are plain
    """

    def __init__(self, data: NDArray[np.uint8], events: Fields) -> None:
        of = events.of(pb.ANNOTATIONS)
        kind, row = events.found.kind[of], events.found.row[of]
        self.plain_owner = np.ones(events.count, np.bool_)
        self.plain_owner[row[kind != LEN]] = False
        of = of[kind == LEN]
        of = of[np.argsort(events.found.row[of], kind="stable")]
        self.owner = events.found.row[of]
        self.bounds = np.searchsorted(self.owner, np.arange(events.count + 1))
        count = len(of)
        starts = events.found.at[of]
        found = walk(data, starts, starts + events.found.value[of].astype(np.int64))
        fields = Fields(found, count)
        of = fields.of(_NAME_IID)
        plain = found.sound.copy()
        plain[found.row[of[found.kind[of] != VARINT]]] = False
        self._name_iid = fields.scalar(_NAME_IID, 0)
        self._name_at, self._name_size = fields.piece(_NAME)
        values = np.flatnonzero((found.number != _NAME_IID) & (found.number != _NAME))
        row = found.row[values]
        plain &= np.bincount(row, minlength=count) == 1
        number = np.minimum(found.number[values], 255)
        plain[row[_KINDS[number] != found.kind[values]]] = False
        self._form = np.zeros(count, np.uint8)
        self._value = np.zeros(count, np.uint64)
        self._at = np.zeros(count, np.int64)
        self._form[row], self._value[row], self._at[row] = number, found.value[values], found.at[values]
        self.plain_owner[self.owner[~plain]] = False
        #: What each is called, and what numbered texts say, as places in these.
        self._name = np.zeros(count, np.int32)
        self._text = np.zeros(count, np.int32)
        self._names = Coder()
        self._words = Coder()

    def of_events(self, which: Int64) -> Int64:
        """The annotations of some events, one event after another."""
        first, last = self.bounds[which], self.bounds[which + 1]
        sizes = last - first
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        if total and total == int(last[-1] - first[0]):
            return np.arange(first[0], last[-1])
        found: Int64 = np.arange(total) + np.repeat(first - (ends - sizes), sizes)
        return found

    def look_up(
        self,
        which: Int64,
        packets: Int64,
        known: Mapping[str, Mapping[int, str]],
        changes: Mapping[str, Sequence[Change]],
    ) -> int:
        """Finds the texts that annotations name by numbers; gives how many numbers nothing explains.

        which    annotations, and the packet that each stands in
        known    lists of texts, after all packets
        changes  of those lists, in the order of packets
        """
        numbered = self._name_iid[which] != 0
        mine = which[numbered]
        unknown = 0
        if len(mine):
            iids = self._name_iid[mine]
            codes, texts = resolve(known["annotations"], changes.get("annotations", ()), iids, packets[numbered])
            missing = [code for code, text in enumerate(texts) if text is None]
            if missing:
                of = np.flatnonzero(np.isin(codes, missing))
                unknown += len(of)
                lost, invented = np.unique(iids[of], return_inverse=True)
                codes = codes.copy()
                codes[of] = len(texts) + invented
                texts += [f"annotation {iid}" for iid in lost.tolist()]
            self._name[mine] = self._names.used(codes, texts)
        said = self._form[which] == _STRING_IID
        mine = which[said]
        if len(mine):
            codes, texts = resolve(known["values"], changes.get("values", ()), self._value[mine], packets[said])
            unknown += int(np.isin(codes, [code for code, text in enumerate(texts) if text is None]).sum())
            self._text[mine] = self._words.used(codes, texts)
        return unknown

    def args(self, which: Int64, data: bytes, texts: Texts) -> pa.Array:
        """The args of some events, in rising order, as a binary array: empty where an event has none."""
        notes = self.of_events(which)
        sizes = self.bounds[which + 1] - self.bounds[which]
        bounds = np.append(0, np.cumsum(sizes))
        self._take_names(notes, data, texts)
        name = self._name[notes]
        self._check_size(notes, name)
        values = self._value_texts(notes, data, texts)
        # A member begins with a comma, the first one with the bracket; behind the last one the bracket is closed.
        leads = [f"{one_by_one.quoted(text)}:" for text in self._names.distinct]
        starts = pa.array([f"{{{lead}" for lead in leads] + [f",{lead}" for lead in leads], pa.string())
        follows = np.ones(len(notes), np.int64)
        follows[bounds[:-1][sizes > 0]] = 0
        is_last = np.zeros(len(notes), np.int8)
        is_last[bounds[1:][sizes > 0] - 1] = 1
        members = pc.binary_join_element_wise(
            starts.take(pa.array(name + follows * len(leads))),
            values,
            pa.array(["", "}"], pa.string()).take(pa.array(is_last)),
            "",
        )
        ends = np.frombuffer(members.buffers()[1], np.int32, len(members) + 1, 4 * members.offset)
        found = pa.Array.from_buffers(
            pa.binary(), len(which), [None, pa.py_buffer(ends[bounds].copy()), members.buffers()[2]], null_count=0
        )
        twice = self._named_twice(name, np.repeat(np.arange(len(which)), sizes), int(sizes.max(initial=0)))
        if len(twice):
            found = self._with_lists(found, twice, bounds, name, values)
        return found

    def _check_size(self, notes: Int64, name: Int32) -> None:
        """A numbered text stands in the file once, and may be named by every event. Raises InputError."""
        sizes = [
            np.array([0, *(len(text or "") for text in coder.distinct)], np.int64)[1:]
            for coder in (self._names, self._words)
        ]
        said = self._text[notes[self._form[notes] == _STRING_IID]]
        if int(sizes[0][name].sum()) + int(sizes[1][said].sum()) > MAX_SHARED:
            raise InputError(f"numbered texts that unfold to more than {MAX_SHARED >> 20} MiB in a MiB of packets")

    def _take_names(self, notes: Int64, data: bytes, texts: Texts) -> None:
        inline = notes[(self._name_iid[notes] == 0) & (self._name_at[notes] >= 0)]
        if len(inline):
            codes, words = decoded(data, self._name_at[inline], self._name_size[inline], texts)
            self._name[inline] = self._names.used(codes, words)
        nameless = notes[(self._name_iid[notes] == 0) & (self._name_at[notes] < 0)]
        if len(nameless):
            self._name[nameless] = self._names.code("")

    def _value_texts(self, notes: Int64, data: bytes, texts: Texts) -> pa.Array:
        """The values as JSON."""
        form, value = self._form[notes], self._value[notes]
        order = np.empty(len(notes), np.int64)
        parts: list[pa.Array] = []
        total = 0
        for number in np.flatnonzero(np.bincount(form, minlength=_STRING_IID + 1)).tolist():
            of = np.flatnonzero(form == number)
            part, places = self._texts_of(number, notes[of], value[of], data, texts)
            if places is None and len(of) == len(notes):
                return part
            order[of] = total + (np.arange(len(of)) if places is None else places)
            total += len(part)
            parts.append(part)
        return pa.concat_arrays([pa.array([], pa.string()), *parts]).take(pa.array(order))

    def _texts_of(
        self, form: int, notes: Int64, value: UInt64, data: bytes, texts: Texts
    ) -> tuple[pa.Array, NDArray[np.integer] | None]:
        """Texts of values of one form, and which one each has; None: each its own."""
        if form == _INT:
            return pa.array(value.view(np.int64)).cast(pa.string()), None
        if form == _UINT:
            return pa.array(value).cast(pa.string()), None
        if form == _BOOL:
            return pa.array(["false", "true"], pa.string()), (value != 0).astype(np.int64)
        if form == _DOUBLE:
            return pa.array(double_texts(value), pa.string()), None
        if form == _POINTER:
            return pa.array([f'"{one:#x}"' for one in value.tolist()], pa.string()), None
        if form == _STRING_IID:
            words = ["null" if text is None else one_by_one.quoted(text) for text in self._words.distinct]
            return pa.array(words, pa.string()), self._text[notes]
        codes, found = decoded(data, self._at[notes], value.astype(np.int64), texts)
        return pa.array([one_by_one.quoted(text) for text in found], pa.string()), codes

    def _named_twice(self, name: Int32, owner: Int64, most: int) -> list[int]:
        """The events, by their places, that have two annotations of one name."""
        if most > _MAX_LAGS:
            key = np.sort(owner * len(self._names.distinct) + name)
            twice = key[1:][key[1:] == key[:-1]] // len(self._names.distinct)
        else:
            same = [owner[lag:][(owner[lag:] == owner[:-lag]) & (name[lag:] == name[:-lag])] for lag in range(1, most)]
            twice = np.concatenate(same) if same else np.zeros(0, np.int64)
        found: list[int] = np.unique(twice).tolist()
        return found

    def _with_lists(self, found: pa.Array, twice: list[int], bounds: Int64, name: Int32, values: pa.Array) -> pa.Array:
        """The args with those of some events anew: a name that stands twice has the array of its values."""
        anew = []
        for event in twice:
            first, last = int(bounds[event]), int(bounds[event + 1])
            words = [self._names.distinct[code] for code in name[first:last].tolist()]
            members = list(zip(words, values[first:last].to_pylist(), strict=True))
            anew.append(one_by_one.object_of(members).encode())
        order = np.arange(len(found))
        order[twice] = len(found) + np.arange(len(twice))
        return pa.concat_arrays([found, pa.array(anew, pa.binary())]).take(pa.array(order))


def double_texts(bits: UInt64, *, as_json: bool = True) -> list[str]:
    """Doubles by their 64 bits: the shortest text that reads as the same. `as_json`: what is no number is a string."""
    numbers = bits.view(np.float64)
    texts = list(map(repr, numbers.tolist()))
    if as_json:
        for place in np.flatnonzero(~np.isfinite(numbers)).tolist():
            texts[place] = f'"{texts[place]}"'
    return texts
