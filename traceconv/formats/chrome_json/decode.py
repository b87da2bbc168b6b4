"""Text of complete events → columns: by the C scanner if possible, else event by event."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import Raw

from traceconv import native
from traceconv.events.trace import ABSENT, LABEL_FIELDS, RAW_FIELDS, EventColumns, Extras, Label, binary_column, coded
from traceconv.formats.chrome_json.compiled import NUMBERED_KINDS, scanned_columns

_RAW_VALUE = msgspec.json.Decoder(Raw)
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_KEYS = msgspec.json.Decoder(dict[str, Raw])
_VALUE = msgspec.json.Decoder()
#: Bytes between events.
BLANKS = b" \t\r\n,"


class MalformedText(Exception):
    """The text is not a sequence of complete, sound events."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded events.

    repeated     indices of events with a duplicate key
    non_objects  number of elements that are not objects
    lines        they were separated by line breaks
    """

    columns: EventColumns
    repeated: tuple[int, ...] = ()
    non_objects: int = 0
    lines: bool = False


def decode_events(text: bytes, lines: bool) -> Decoded:
    """Decode events separated by commas (`lines`: line breaks); a last separator is allowed. Raises MalformedText."""
    body = text.strip(BLANKS)
    try:
        if not body.isascii():
            body.decode()
        columns = scanned_columns(body, lines) if native.AVAILABLE else None
        return _one_by_one(body, lines) if columns is None else Decoded(columns, lines=lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedText(str(error)) from None


def is_beginning(text: bytes | memoryview) -> bool:
    """Whether the text is the beginning of sound JSON."""
    try:
        _RAW_VALUE.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


def _one_by_one(body: bytes, lines: bool) -> Decoded:
    """Decode events with any keys and types of values."""
    elements = _RAW_VALUE.decode_lines(body) if lines else _ELEMENTS.decode(b"[" + body + b"]")
    labels: list[dict[str, Label]] = []
    raws: list[dict[str, Raw]] = []
    extras: list[dict[str, Raw] | None] = []
    repeated: list[int] = []
    non_objects = 0
    for element in elements:
        text = bytes(element).strip()
        if not text.startswith(b"{"):
            non_objects += 1
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
        Extras.of_events(extras),
    )
    return Decoded(columns, tuple(repeated), non_objects, lines)


def _labels_of(keys: dict[str, Raw]) -> tuple[dict[str, Label], dict[str, Raw]]:
    """Split an event's keys into labels and others; values of unexpected types are in both: as text and unchanged."""
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
