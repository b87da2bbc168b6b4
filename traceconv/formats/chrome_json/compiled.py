"""Text of complete events → columns, by the scanner in C (native/events.c).

The result equals that of decode.py, event by event: a property test compares them.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import has_duplicates
from traceconv.events.trace import LABEL_FIELDS, RAW_FIELDS, Coded, EventColumns, Extras

#: Phases (ph) as numbered by DFTracer from version 2 on. Source: its core/common/enumeration.h.
NUMBERED_KINDS = {1: "X", 2: "C", 3: "A", 4: "M"}
_STRINGS: msgspec.json.Decoder[list[int | str | None]] = msgspec.json.Decoder(list[str | None])
_NAMES = msgspec.json.Decoder(list[int | str | None])
_KEY = msgspec.json.Decoder(str)
_NUMBERED = ("ph", "pid", "tid")
_LABELS = tuple(field.encode() for field in LABEL_FIELDS)
_RAWS = tuple(field.encode() for field in RAW_FIELDS)


def scanned_columns(text: bytes, lines: bool) -> EventColumns | None:
    """Return the events of UTF-8 text with commas (`lines`: line breaks) between them, but not around them.

    None if it isn't strict JSON objects, an event has a duplicate key, or a value has an unexpected type.
    """
    found = native.events(text, lines, _LABELS, _RAWS, False)
    return None if found is None else _columns(text, *found)[0]


def scanned_prefix(text: bytes, lines: bool) -> tuple[EventColumns | None, int]:
    """Return the events before the first that `scanned_columns` rejects, and where that begins; None, 0 for none."""
    found = native.events(text, lines, _LABELS, _RAWS, True)
    columns, end = (None, 0) if found is None or not found[0] else _columns(text, *found)
    return columns, 0 if columns is None else end


def _columns(
    text: bytes,
    count: int,
    end: int,
    label_columns: list[tuple[bytes, list[bytes]] | None],
    raw_columns: list[tuple[bytes, bytes] | None],
    others: bytes,
) -> tuple[EventColumns | None, int]:
    labels: dict[str, Coded] = {}
    for field, label_column in zip(LABEL_FIELDS, label_columns, strict=True):
        if label_column is not None:
            label = _label_of(field, np.frombuffer(label_column[0], np.int32), label_column[1])
            if label is None:
                return None, end
            labels[field] = label
    raw = {
        field: pa.Array.from_buffers(pa.binary(), count, [None, *map(pa.py_buffer, column)], null_count=0)
        for field, column in zip(RAW_FIELDS, raw_columns, strict=True)
        if column is not None
    }
    if not others:
        return EventColumns(count, labels, raw, None), end
    extra = _extras(text, [*np.frombuffer(others, np.int32).reshape(-1, 5).T], count)
    return None if extra is None else EventColumns(count, labels, raw, extra), end


def _label_of(field: str, codes: NDArray[np.int32], tokens: list[bytes]) -> Coded | None:
    """The values of a label field; None if it doesn't accept one of them.

    codes   index of each event's value in `tokens`, -1 for none
    tokens  distinct texts; several may be the same value, written differently. The last ones may be those of a
            rejected event, which no code refers to
    """
    tokens = tokens[: codes.max(initial=-1) + 1]
    decoder = _NAMES if field in _NUMBERED else _STRINGS
    try:
        distinct: list[int | str | None] = [*decoder.decode(b"[" + b",".join(tokens) + b"]")]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if field == "ph" and any(isinstance(value, int) for value in distinct):
        distinct = [NUMBERED_KINDS.get(value) if isinstance(value, int) else value for value in distinct]
        if None in distinct:
            return None
    known = {value: code for code, value in enumerate(dict.fromkeys(distinct))}
    absent = codes.min(initial=0) < 0
    if absent or len(known) != len(distinct):
        new = [known[value] for value in distinct]
        if absent:
            new.append(known.setdefault(None, len(known)))  # the last one: codes of -1
        codes = np.array(new, np.int32)[codes]
    return Coded(codes, list(known))


def _extras(text: bytes, columns: list[NDArray[np.int32]], count: int) -> Extras | None:
    """The values of other keys; None if an event has a duplicate.

    columns  of these keys, in the order of the text: their event, first and last quote, start and end of the value
    """
    event, start, end, value, stop = columns
    bounds = np.empty(4 * len(event) + 1, np.int32)
    bounds[:-1] = np.column_stack((start, end + 1, value, stop)).ravel()
    bounds[-1] = stop[-1]
    # Every second range is a key or a value.
    stretches = pa.Array.from_buffers(pa.binary(), 4 * len(event), [None, pa.py_buffer(bounds), pa.py_buffer(text)])
    tokens = stretches.take(pa.array(np.arange(0, 4 * len(event), 4))).dictionary_encode()
    names = [_KEY.decode(token) for token in tokens.dictionary.to_pylist()]
    known = {name: code for code, name in enumerate(dict.fromkeys(names))}
    # A field's name written with escapes: left to decode.py.
    if not known.keys().isdisjoint((*LABEL_FIELDS, *RAW_FIELDS)):
        return None
    codes = np.array([known[name] for name in names], np.int32)[tokens.indices.to_numpy()]
    if has_duplicates(event.astype(np.int64) * len(known) + codes):
        return None
    texts = stretches.take(pa.array(np.arange(2, 4 * len(event), 4)))
    return Extras(count, event.astype(np.int64), codes, list(known), texts)
