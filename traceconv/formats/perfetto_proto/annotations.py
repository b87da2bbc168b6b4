"""Debug annotations of track events → members of a JSON object, digit by digit."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence as Values
from dataclasses import dataclass

import msgspec

from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.sequences import Sequence, Texts
from traceconv.wire.protobuf import LEN, FieldTable, fields, signed, walk

_ENCODE = msgspec.json.Encoder().encode
_MAX_DEPTH = 64
#: Numbers of the fields of DebugAnnotation.
_NAME_IID, _BOOL, _UINT, _INT, _DOUBLE, _STRING, _POINTER, _NESTED, _JSON, _NAME = range(1, 11)
_DICT, _ARRAY, _TYPE_IID, _PROTO, _TYPE, _STRING_IID = 11, 12, 13, 14, 16, 17


@dataclass(slots=True)
class Notes:
    """What went wrong: names or texts whose number nothing explains, and annotations that can't be read."""

    unknown: int = 0
    damaged: int = 0
    deep: int = 0


def quoted(text: str) -> str:
    """A text as JSON."""
    try:
        return _ENCODE(text).decode()
    except (UnicodeEncodeError, msgspec.EncodeError):
        return json.dumps(text)


def number(bits: int) -> str:
    """A double, by its 64 bits, as JSON: the shortest text that reads as the same; as a string when it is none."""
    value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return repr(value) if math.isfinite(value) else f'"{value}"'


class Annotations:
    """All annotations of the events of a window, by event."""

    def __init__(self, data: bytes, padded: FieldTable, array: object, texts: Texts, notes: Notes) -> None:
        """`padded`: the fields of the events; `array`: their bytes as walk takes them."""
        import numpy as np

        self._data = data
        self._texts = texts
        self._notes = notes
        chosen = np.flatnonzero((padded.number == pb.ANNOTATIONS) & (padded.kind == LEN))
        chosen = chosen[np.argsort(padded.row[chosen], kind="stable")]
        starts = padded.at[chosen]
        ends = starts + padded.value[chosen].astype(np.int64)
        self._owner = padded.row[chosen]
        self._starts, self._ends = starts.tolist(), ends.tolist()
        count = len(chosen)
        found = walk(array, starts, ends)  # type: ignore[arg-type] # the array that walk took before
        name_iid = np.zeros(count, np.uint64)
        kind = np.zeros(count, np.int8)
        value = np.zeros(count, np.uint64)
        place = np.zeros(count, np.int64)
        inline = np.zeros(count, np.int64)
        inline_size = np.zeros(count, np.uint64)
        of = found.number == _NAME_IID
        name_iid[found.row[of]] = found.value[of]
        of = (found.number == _NAME) & (found.kind == LEN)
        inline[found.row[of]], inline_size[found.row[of]] = found.at[of], found.value[of]
        of = (found.number != _NAME_IID) & (found.number != _NAME)
        row = found.row[of]
        kind[row] = np.minimum(found.number[of], 127)
        value[row], place[row] = found.value[of], found.at[of]
        # Everything but one plain value goes the slow way.
        kind[np.bincount(row, minlength=count) != 1] = 0
        kind[~found.sound] = 0
        self._name_iid, self._kind, self._value = name_iid.tolist(), kind.tolist(), value.tolist()
        self._place, self._inline, self._inline_size = place.tolist(), inline.tolist(), inline_size.tolist()

    def bounds(self, count: int) -> list[int]:
        """Where the annotations of each of `count` events begin; one more at the end."""
        import numpy as np

        bounds: list[int] = np.searchsorted(self._owner, np.arange(count + 1)).tolist()
        return bounds

    def members(self, first: int, last: int, state: Sequence) -> list[tuple[str, str]]:
        """Name and JSON text of the annotations from `first` to before `last`."""
        found = []
        interned = state.texts["annotations"]
        for at in range(first, last):
            kind = self._kind[at]
            value = self._value[at]
            if kind == _INT:
                text = str(signed(value))
            elif kind == _UINT:
                text = str(value)
            elif kind == _STRING_IID:
                text = self._interned(state.texts["values"], value)
            elif kind == _STRING:
                text = quoted(self._texts.text(self._data[self._place[at] : self._place[at] + value]))
            elif kind == _BOOL:
                text = "true" if value else "false"
            elif kind == _DOUBLE:
                text = number(value)
            elif kind == _POINTER:
                text = f'"{value:#x}"'
            else:
                found.append(self._slowly(self._starts[at], self._ends[at], state, 0))
                continue
            iid = self._name_iid[at]
            if iid:
                name = interned.get(iid)
                if name is None:
                    self._notes.unknown += 1
                    name = f"annotation {iid}"
            else:
                inline = self._inline[at]
                name = self._texts.text(self._data[inline : inline + self._inline_size[at]])
            found.append((name, text))
        return found

    def _interned(self, known: dict[int, str], iid: int) -> str:
        text = known.get(iid)
        if text is None:
            self._notes.unknown += 1
            return "null"
        return quoted(text)

    def _slowly(self, start: int, end: int, state: Sequence, depth: int) -> tuple[str, str]:
        """An annotation of any form."""
        data, name, text = self._data, "", None
        entries: list[tuple[str, str]] = []
        elements: list[str] = []
        form = 0
        if depth > _MAX_DEPTH:
            self._notes.deep += 1
            return "", "null"
        try:
            for field, kind, value, at in fields(data, start, end):
                raw = data[at : at + value] if kind == LEN else b""
                if field == _NAME_IID:
                    known = state.texts["annotations"].get(value)
                    self._notes.unknown += known is None
                    name = known if known is not None else f"annotation {value}"
                elif field == _NAME:
                    name = self._texts.text(raw)
                elif field == _DICT and kind == LEN:
                    form = _DICT
                    entries.append(self._slowly(at, at + value, state, depth + 1))
                elif field == _ARRAY and kind == LEN:
                    form = form or _ARRAY
                    elements.append(self._slowly(at, at + value, state, depth + 1)[1])
                else:
                    text = self._value_text(field, kind, value, at, raw, state, depth) or text
        except ValueError:
            self._notes.damaged += 1
        if form == _DICT:
            text = object_of(entries)
        elif form == _ARRAY:
            text = "[" + ",".join(elements) + "]"
        return name, text if text is not None else "null"

    def _value_text(
        self, field: int, kind: int, value: int, at: int, raw: bytes, state: Sequence, depth: int
    ) -> str | None:
        if field == _BOOL:
            return "true" if value else "false"
        if field == _UINT:
            return str(value)
        if field == _INT:
            return str(signed(value))
        if field == _DOUBLE:
            return number(value)
        if field == _POINTER:
            return f'"{value:#x}"'
        if field == _STRING:
            return quoted(self._texts.text(raw))
        if field == _STRING_IID:
            return self._interned(state.texts["values"], value)
        if field == _JSON:
            return as_json(raw, self._texts)
        if field == _NESTED and kind == LEN:
            return self._nested(at, at + value, depth + 1)
        if field == _PROTO:
            return f'"{raw.hex()}"'
        return None

    def _nested(self, start: int, end: int, depth: int) -> str:
        """A NestedValue (old form)."""
        if depth > _MAX_DEPTH:
            self._notes.deep += 1
            return "null"
        form, text = 0, "null"
        keys: list[str] = []
        values: list[str] = []
        elements: list[str] = []
        data = self._data
        for field, kind, value, at in fields(data, start, end):
            if field == 1:
                form = value
            elif field == 2 and kind == LEN:
                keys.append(self._texts.text(data[at : at + value]))
            elif field in (3, 4) and kind == LEN:
                (values if field == 3 else elements).append(self._nested(at, at + value, depth + 1))
            elif field == 5:
                text = str(signed(value))
            elif field == 6:
                text = number(value)
            elif field == 7:
                text = "true" if value else "false"
            elif field == 8 and kind == LEN:
                text = quoted(self._texts.text(data[at : at + value]))
        if form == 1 or keys:
            return object_of(list(zip(keys, values, strict=False)))
        return "[" + ",".join(elements) + "]" if form == 2 or elements else text


def as_json(raw: bytes, texts: Texts) -> str:
    """Text that is to be JSON, as it is when it is; else as a string."""
    try:
        msgspec.json.decode(raw)
        return raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return quoted(texts.text(raw))


def object_of(members: Values[tuple[str, str]]) -> str:
    """A JSON object; a name that stands twice has the array of its values."""
    if len(members) == 1:
        return f"{{{quoted(members[0][0])}:{members[0][1]}}}"
    by_name: dict[str, list[str]] = {}
    for name, text in members:
        by_name.setdefault(name, []).append(text)
    parts = [
        f"{quoted(name)}:{texts[0] if len(texts) == 1 else '[' + ','.join(texts) + ']'}"
        for name, texts in by_name.items()
    ]
    return "{" + ",".join(parts) + "}"
