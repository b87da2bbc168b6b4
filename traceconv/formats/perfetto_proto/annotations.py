"""Debug annotations of track events → members of a JSON object, with exact numbers."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence as Values

import msgspec

from traceconv.base.errors import InputError
from traceconv.formats.perfetto_proto import rows
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.sequences import Sequence, Texts
from traceconv.wire.protobuf import LEN, WireError, fields, signed

#: Name and value, which is JSON.
Member = tuple[str, str]

_ENCODE = msgspec.json.Encoder().encode
_MAX_DEPTH = 64
#: Field numbers of DebugAnnotation.
_NAME_IID, _BOOL, _UINT, _INT, _DOUBLE, _STRING, _POINTER, _NESTED, _JSON, _NAME = range(1, 11)
_DICT, _ARRAY, _TYPE_IID, _PROTO, _TYPE, _STRING_IID = 11, 12, 13, 14, 16, 17


def quoted(text: str) -> str:
    """Return a text as JSON."""
    if text.isidentifier():  # as most keys are: nothing to escape
        return f'"{text}"'
    try:
        return _ENCODE(text).decode()
    except (UnicodeEncodeError, msgspec.EncodeError):
        return json.dumps(text)


def double(bits: int) -> float:
    """The double with these 64 bits."""
    value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return value


def _number(bits: int) -> str:
    """A double as JSON: its shortest exact text; NaN and infinities as strings."""
    value = double(bits)
    return repr(value) if math.isfinite(value) else f'"{value}"'


class Annotations:
    """Turns annotations into JSON.

    shared    characters of interned texts in the args of a window
    pointers  names of annotations, not of those inside others, that are pointers
    """

    def __init__(self, texts: Texts, losses: Losses) -> None:
        self._texts = texts
        self._counts = losses.counts
        self.shared = 0
        self.pointers: list[str] = []

    def _numbered(self, known: dict[int, str], iid: int) -> str | None:
        text = known.get(iid)
        self._counts["unknown text"] += text is None
        self.shared += len(text or "")
        if self.shared > rows.MAX_SHARED:
            raise InputError(f"interned texts that expand to more than {rows.MAX_SHARED >> 20} MiB in a MiB of packets")
        return text

    def interned(self, known: dict[int, str], iid: int) -> str:
        """An interned text as JSON; null if it is unknown."""
        found = self._numbered(known, iid)
        return "null" if found is None else quoted(found)

    def member(self, data: bytes, start: int, end: int, state: Sequence, depth: int = 0) -> Member:
        """Name and JSON text of an annotation."""
        name, iid, text = "", 0, None
        entries: list[Member] = []
        elements: list[str] = []
        form, is_pointer = 0, False
        if depth > _MAX_DEPTH:
            self._counts["deep"] += 1
            return "", "null"
        try:
            for field, kind, value, at in fields(data, start, end):
                if field == _NAME_IID:
                    iid = value
                elif field == _NAME and kind == LEN:
                    name, iid = self._texts.text(data[at : at + value]), 0
                elif field == _DICT and kind == LEN:
                    form = _DICT
                    entries.append(self.member(data, at, at + value, state, depth + 1))
                elif field == _ARRAY and kind == LEN:
                    form = form or _ARRAY
                    elements.append(self.member(data, at, at + value, state, depth + 1)[1])
                else:
                    is_pointer = field == _POINTER
                    text = self._value_text(data, field, kind, value, at, state, depth) or text
        except WireError:
            self._counts["annotation"] += 1
        if iid:
            numbered = self._numbered(state.texts["annotations"], iid)
            name = f"annotation {iid}" if numbered is None else numbered
        if is_pointer and not depth:
            self.pointers.append(name)
        if form == _DICT:
            text = object_of(entries)
        elif form == _ARRAY:
            text = "[" + ",".join(elements) + "]"
        return name, text if text is not None else "null"

    def _value_text(
        self, data: bytes, field: int, kind: int, value: int, at: int, state: Sequence, depth: int
    ) -> str | None:
        raw = data[at : at + value] if kind == LEN else b""
        if field == _BOOL:
            return "true" if value else "false"
        if field == _UINT:
            return str(value)
        if field == _INT:
            return str(signed(value))
        if field == _DOUBLE:
            return _number(value)
        if field == _POINTER:
            return f'"{value:#x}"'
        if field == _STRING:
            return quoted(self._texts.text(raw))
        if field == _STRING_IID:
            return self.interned(state.texts["values"], value)
        if field == _JSON:
            return as_json(raw, self._texts)
        if field == _NESTED and kind == LEN:
            return self._nested(data, at, at + value, depth + 1)
        if field == _PROTO:
            return f'"{raw.hex()}"'
        return None

    def _nested(self, data: bytes, start: int, end: int, depth: int) -> str:
        """JSON text of a NestedValue (legacy)."""
        if depth > _MAX_DEPTH:
            self._counts["deep"] += 1
            return "null"
        form, text = 0, "null"
        keys: list[str] = []
        values: list[str] = []
        elements: list[str] = []
        for field, kind, value, at in fields(data, start, end):
            if field == 1:
                form = value
            elif field == 2 and kind == LEN:
                keys.append(self._texts.text(data[at : at + value]))
            elif field in (3, 4) and kind == LEN:
                (values if field == 3 else elements).append(self._nested(data, at, at + value, depth + 1))
            elif field == 5:
                text = str(signed(value))
            elif field == 6:
                text = _number(value)
            elif field == 7:
                text = "true" if value else "false"
            elif field == 8 and kind == LEN:
                text = quoted(self._texts.text(data[at : at + value]))
        if form == 1 or keys:
            return object_of(list(zip(keys, values, strict=False)))
        return "[" + ",".join(elements) + "]" if form == 2 or elements else text


def as_json(raw: bytes, texts: Texts) -> str:
    """Text that should be JSON: unchanged if it is, else as a string."""
    try:
        msgspec.json.decode(raw)
        return raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return quoted(texts.text(raw))


def object_of(members: Values[Member]) -> str:
    """A JSON object; a duplicate name has an array of its values."""
    if len(dict(members)) == len(members):
        return "{" + ",".join([f"{quoted(name)}:{text}" for name, text in members]) + "}"
    by_name: dict[str, list[str]] = {}
    for name, text in members:
        by_name.setdefault(name, []).append(text)
    parts = [
        f"{quoted(name)}:{texts[0] if len(texts) == 1 else '[' + ','.join(texts) + ']'}"
        for name, texts in by_name.items()
    ]
    return "{" + ",".join(parts) + "}"
