"""Text of whole events → columns: in C where the text is as expected, else event by event."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from traceconv import native
from traceconv.events.trace import ABSENT, LABEL_FIELDS, RAW_FIELDS, EventColumns, Extras, Label, binary_column, coded
from traceconv.formats.chrome_json.compiled import NUMBERED_KINDS, scanned_columns

_WHOLE = msgspec.json.Decoder(Raw)
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_KEYS = msgspec.json.Decoder(dict[str, Raw])
_VALUE = msgspec.json.Decoder()
_BYTE = re.compile(r"\(byte (\d+)\)$")
#: What may stand between events.
BLANKS = b" \t\r\n,"


class NotWhole(Exception):
    """The text is not a row of whole, sound events. `at`: where it is not sound; None: that is not known."""

    def __init__(self, message: str, at: int | None = None) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class Decoded:
    """Events, the places (index) of those that have a key twice, and the number of elements that are no objects."""

    columns: EventColumns
    repeated: tuple[int, ...] = ()
    strangers: int = 0


def decode_events(text: bytes, lines: bool) -> Decoded:
    """The events of `text`, which has commas (`lines`: line breaks) between them, and may have one at its end.

    Raises NotWhole when any of it is not sound JSON, or not UTF-8.
    """
    body = text.strip(BLANKS)
    try:
        if not body.isascii():
            body.decode()
        columns = scanned_columns(body, lines) if native.AVAILABLE else None
        return _one_by_one(body, lines) if columns is None else Decoded(columns)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = None if lines else _place(error)  # of lines msgspec says the place in its line
        raise NotWhole(str(error), None if place is None else place + text.index(body[:1])) from None


def _place(error: Exception) -> int | None:
    """The place in the events' text that an error names."""
    if isinstance(error, UnicodeDecodeError):
        return error.start
    named = _BYTE.search(str(error))
    return int(named[1]) - 1 if named else None  # the bracket before the events counts


def goes_on(text: bytes | memoryview) -> bool:
    """Whether the text is the beginning of sound JSON, and ends too early."""
    try:
        _WHOLE.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


def _one_by_one(body: bytes, lines: bool) -> Decoded:
    """By way of each event's keys: whatever keys there are, and types of values."""
    elements = _WHOLE.decode_lines(body) if lines else _ELEMENTS.decode(b"[" + body + b"]")
    labels: list[dict[str, Label]] = []
    raws: list[dict[str, Raw]] = []
    extras: list[dict[str, Raw] | None] = []
    repeated: list[int] = []
    strangers = 0
    for element in elements:
        text = bytes(element).strip()
        if not text.startswith(b"{"):
            strangers += 1
            continue
        keys = _KEYS.decode(text)
        if text.count(b":") != len(keys) + b"".join(keys.values()).count(b":") + "".join(keys).count(":"):
            repeated.append(len(labels))
        known, extra = _labels_of(keys)
        labels.append(known)
        raws.append(keys)
        extras.append(extra or None)
    columns = EventColumns(
        len(labels),
        {field: coded([event.get(field) for event in labels], typed=True) for field in LABEL_FIELDS},
        {field: binary_column([event.get(field, ABSENT) for event in raws]) for field in RAW_FIELDS},
        Extras.made_of(extras),
    )
    return Decoded(columns, tuple(repeated), strangers)


def _labels_of(keys: dict[str, Raw]) -> tuple[dict[str, Label], dict[str, Raw]]:
    """The labels among an event's keys, and what no field takes: values of odd types are in both, as text and as is."""
    labels: dict[str, Label] = {}
    extra: dict[str, Raw] = {}
    for key, raw in keys.items():
        if key in RAW_FIELDS:
            continue
        if key not in LABEL_FIELDS:
            extra[key] = raw
            continue
        value = _value(raw)
        known: Label = None
        if isinstance(value, str) or (key in ("pid", "tid") and isinstance(value, (int, float))):
            known = str(value).lower() if isinstance(value, bool) else value
        elif key == "ph" and type(value) is int:
            known = NUMBERED_KINDS.get(value)
        if known is None and value is not None:
            known = bytes(raw).decode("utf-8", "replace")
            extra[key] = raw
        labels[key] = known
    return labels, extra


def _value(raw: Raw) -> object:
    try:
        return _VALUE.decode(raw)
    except msgspec.DecodeError:  # a number too large for a float
        return bytes(raw).decode("utf-8", "replace")
