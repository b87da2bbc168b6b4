"""Columns that a rule takes from the args of its slices, for all rows at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from traceconv import native
from traceconv.events.trace import coded
from traceconv.normalize.trace.args import joined_objects
from traceconv.normalize.trace.binary import offsets_of
from traceconv.normalize.trace.column_builder import Numbers, Rows, Values, numbers_of

_VALUES = msgspec.json.Decoder(list[Any])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Raw]])
#: The C parser's mark for a row with a plain integer (native/members.c).
_INTEGER = 1


class ArgColumns:
    """Reads columns from args. `fields`: the keys that each may be taken from; the first with a value is used."""

    def __init__(self, fields: Mapping[str, tuple[str, ...]], numbers: Collection[str]) -> None:
        """`numbers`: the columns that contain integers."""
        self._fields = fields
        self._numbers = numbers
        self._keys = sorted({key for keys in fields.values() for key in keys})
        texts = {key for column, keys in fields.items() if column not in numbers for key in keys}
        self._wanted = tuple((key.encode(), key not in texts) for key in self._keys)
        self._of_devices = frozenset(fields.get("device_id", ()))

    def read(self, args: pa.Array, rows: Rows) -> Iterator[tuple[str, Numbers | Values]]:
        """Yield each column with its values in these rows of `args` (a text column; NULL is an empty object)."""
        found = self._native(args, rows)
        if found is None:
            found = self._decoded(args if rows is None else args.take(pa.array(rows)))
        for column, keys in self._fields.items():
            if column in self._numbers:
                yield column, _first_numbers([self._numbers_of(key, found[key]) for key in keys])
            else:
                values = _first_values([value for key in keys if isinstance(value := found[key], Values)])
                yield column, _without_zeros(values) if column == "parent_span_id" else values

    def _native(self, args: pa.Array, rows: Rows) -> dict[str, Numbers | Values] | None:
        """Decode args with the C parser; None if it does not support some of them."""
        data = args.buffers()[2]
        if not native.AVAILABLE or data is None:
            return None
        members = native.members(offsets_of(args), data, rows, self._wanted)
        if members is None:
            return None
        found: dict[str, Numbers | Values] = {}
        for key, (numbers, known, codes, texts) in zip(self._keys, members, strict=True):
            values = Values(np.frombuffer(codes, np.int32), _decoded_values(texts))
            if numbers is None or known is None:
                found[key] = values
                continue
            integers = Numbers(np.frombuffer(numbers, np.int64), np.frombuffer(known, np.uint8) != _INTEGER)
            found[key] = _first_numbers([integers, self._numbers_of(key, values)]) if texts else integers
        return found

    def _numbers_of(self, key: str, found: Numbers | Values) -> Numbers:
        return numbers_of(found, of_devices=key in self._of_devices) if isinstance(found, Values) else found

    def _decoded(self, args: pa.Array) -> dict[str, Numbers | Values]:
        objects = _decoded_objects(args)
        found: dict[str, Numbers | Values] = {}
        for key in self._keys:
            texts = coded([bytes(one.get(key, b"null")) for one in objects])
            null = texts.mask(lambda text: text == b"null")
            found[key] = Values(np.where(null, np.int32(-1), texts.codes), _decoded_values(texts.distinct))
        return found


def _first_numbers(found: Sequence[Numbers]) -> Numbers:
    """Return the first known value of each row."""
    values, null = found[0].values, found[0].null
    for other in found[1:]:
        values, null = np.where(null, other.values, values), null & other.null
    return Numbers(values, null)


def _first_values(found: Sequence[Values]) -> Values:
    """Return the first known value of each row."""
    codes, distinct = found[0].codes, list(found[0].distinct)
    for other in found[1:]:
        later = np.where(other.codes < 0, np.int32(-1), other.codes + np.int32(len(distinct)))
        codes = np.where(codes < 0, later, codes)
        distinct += other.distinct
    return Values(codes, distinct)


def _without_zeros(found: Values) -> Values:
    """Return span IDs without those of only zeros: in OpenTelemetry they mean none, which roots have as parent."""
    none = np.array([isinstance(text, str) and text != "" and not text.strip("0") for text in found.distinct], np.bool_)
    if not none.any():
        return found
    return Values(np.where(none[found.codes] & (found.codes >= 0), np.int32(-1), found.codes), found.distinct)


def _decoded_values(texts: list[bytes]) -> list[object]:
    """Decode JSON texts; None for unsupported values, such as a number beyond all bounds."""
    try:
        return [*_VALUES.decode(b"[" + b",".join(texts) + b"]")]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [None] if len(texts) == 1 else [value for text in texts for value in _decoded_values([text])]


def _decoded_objects(args: pa.Array) -> list[dict[str, Raw]]:
    """Decode a text column of objects; a malformed one has no keys."""
    try:
        return _OBJECTS.decode(joined_objects(args))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        rows = range(len(args))
        return [{}] if len(args) == 1 else [one for row in rows for one in _decoded_objects(args.slice(row, 1))]
