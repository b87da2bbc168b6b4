"""Text of whole events → columns: typed and fast where the text is as expected, key by key where it is not."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from traceconv.json_events import LABEL_FIELDS, RAW_FIELDS, EventColumns, Label, TraceEvent, columns_of

_TYPED = msgspec.json.Decoder(list[TraceEvent])
_TYPED_LINES = msgspec.json.Decoder(TraceEvent)
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_ELEMENT_LINES = msgspec.json.Decoder(Raw)
_KEYS = msgspec.json.Decoder(dict[str, Raw])
_VALUE = msgspec.json.Decoder()
_COLON = ord(":")
_KEY = {field: re.compile(rb'"%s"\s*:' % field.encode()) for field in (*LABEL_FIELDS, *RAW_FIELDS)}
#: The kinds of events (ph) that DFTracer numbers from its version 2 on. Source: its core/common/enumeration.h.
_NUMBERED_KINDS = {1: "X", 2: "C", 3: "A", 4: "M"}
#: What may stand between events.
BLANKS = b" \t\r\n,"


class NotWhole(Exception):
    """The text is not a row of whole, sound events."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Events, the places (index) of those that have a key twice, and the number of elements that are no objects."""

    columns: EventColumns
    repeated: tuple[int, ...] = ()
    strangers: int = 0


def decode_events(text: bytes, lines: bool, seen: set[str] | None = None) -> Decoded:
    """The events of `text`, which has commas (`lines`: line breaks) between them, and may have one at its end.

    seen  the fields of events before these: they are tried first, and those of these are added

    Raises NotWhole when any of it is not sound JSON, or not UTF-8.
    """
    seen = set() if seen is None else seen
    body = text.strip(BLANKS)
    if not body:
        return Decoded(columns_of([], ()))
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise NotWhole(str(error)) from None
    try:
        events = _TYPED_LINES.decode_lines(body) if lines else _TYPED.decode(b"[" + body + b"]")
        colons = _colons(body)
        # A key written with escapes is not seen here; then the colons don't come out even.
        columns = columns_of(events, seen)
        if colons == _colons_of(columns):
            return Decoded(columns)
        new = {field for field, key in _KEY.items() if field not in seen and key.search(body)}
        if new:
            seen |= new
            columns = columns_of(events, seen)
            if colons == _colons_of(columns):
                return Decoded(columns)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotWhole(str(error)) from None
    return _decode_loosely(body, lines)


def goes_on(text: bytes) -> bool:
    """Whether the text is the beginning of sound JSON, and ends too early."""
    try:
        _VALUE.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


def _colons(data: bytes | pa.Buffer) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == _COLON))


def _colons_of(columns: EventColumns) -> int:
    """How many colons the text of these events has, if they were written with nothing but their fields.

    Each key has one, and there are those inside of values. A key that has no field, or stands twice, has one more.
    """
    count = 0
    for field, array in columns.raw.items():
        _, ends, data = array.buffers()
        offsets = np.frombuffer(ends, np.int32)
        count += int(np.count_nonzero(offsets[1:] != offsets[:-1]))
        if field in ("args", "id"):
            count += _colons(data) if len(data) else 0
    for field in columns.labels:
        values = columns.label(field)
        for value, rows in zip(values.distinct, values.counts(), strict=True):
            if value is not None:
                count += rows * (1 + value.count(":") if isinstance(value, str) and ":" in value else 1)
    return count


def _decode_loosely(body: bytes, lines: bool) -> Decoded:
    """The same by way of each event's keys: for keys and types that the typed decoder does not expect."""
    try:
        elements = _ELEMENT_LINES.decode_lines(body) if lines else _ELEMENTS.decode(b"[" + body + b"]")
        events: list[TraceEvent] = []
        repeated: list[int] = []
        strangers = 0
        for element in elements:
            text = bytes(element).strip()
            if not text.startswith(b"{"):
                strangers += 1
                continue
            keys = _KEYS.decode(text)
            if text.count(b":") != len(keys) + b"".join(keys.values()).count(b":") + "".join(keys).count(":"):
                repeated.append(len(events))
            events.append(event_of(keys))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotWhole(str(error)) from None
    return Decoded(columns_of(events, typed=True), tuple(repeated), strangers)


def event_of(keys: dict[str, Raw]) -> TraceEvent:
    """An event made of its keys. Values of types that no field takes are spelled as text, and kept in `extra`."""
    event = TraceEvent()
    extra: dict[str, Raw] = {}
    for key, raw in keys.items():
        if key in RAW_FIELDS:
            setattr(event, key, raw)
        elif key not in LABEL_FIELDS:
            extra[key] = raw
        else:
            value = _value(raw)
            known: Label = None
            if isinstance(value, str) or (key in ("pid", "tid") and isinstance(value, (int, float))):
                known = str(value).lower() if isinstance(value, bool) else value
            elif key == "ph" and type(value) is int:
                known = _NUMBERED_KINDS.get(value)
            if known is None and value is not None:
                known = bytes(raw).decode("utf-8", "replace")
                extra[key] = raw
            setattr(event, key, known)
    if extra:
        event.extra = extra
    return event


def _value(raw: Raw) -> object:
    try:
        return _VALUE.decode(raw)
    except msgspec.DecodeError:  # a number too large for a float
        return bytes(raw).decode("utf-8", "replace")
