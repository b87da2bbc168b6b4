"""What a rule takes from the args of its slices → a value a row, for all rows at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.normalize.trace.args import joined_objects
from traceconv.normalize.trace.binary import offsets_of
from traceconv.normalize.trace.column_builder import Numbers, Rows, Values, numbers_of, values_of

_VALUES = msgspec.json.Decoder(list[Any])
#: How the compiled reader says that a row has a plain whole number (native/members.c).
_WHOLE = 1


class ArgColumns:
    """Reads columns from args. `fields`: the keys that each may be taken from; the first that says something counts."""

    def __init__(self, fields: Mapping[str, tuple[str, ...]], numbers: Collection[str]) -> None:
        """`numbers`: which of the columns are of whole numbers."""
        self._fields = fields
        self._numbers = numbers
        self._keys = sorted({key for keys in fields.values() for key in keys})
        texts = {key for column, keys in fields.items() if column not in numbers for key in keys}
        self._wanted = tuple((key.encode(), key not in texts) for key in self._keys)
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def read(self, args: pa.Array, rows: Rows) -> Iterator[tuple[str, Numbers | Values]]:
        """Each column with what these rows of `args` (a text column; NULL is an empty object) say."""
        said = self._at_once(args, rows)
        if said is None:
            said = self._one_by_one(args if rows is None else args.take(pa.array(rows)))
        for column, keys in self._fields.items():
            if column in self._numbers:
                yield column, _first_numbers([_as_numbers(said[key]) for key in keys])
            else:
                values = _first_values([value for key in keys if isinstance(value := said[key], Values)])
                yield column, _without_zeros(values) if column == "parent_span_id" else values

    def _at_once(self, args: pa.Array, rows: Rows) -> dict[str, Numbers | Values] | None:
        """By the compiled reader; None when some args are beyond it."""
        data = args.buffers()[2]
        if not native.AVAILABLE or data is None:
            return None
        found = native.members(offsets_of(args), data, rows, self._wanted)
        if found is None:
            return None
        said: dict[str, Numbers | Values] = {}
        for key, (numbers, known, codes, texts) in zip(self._keys, found, strict=True):
            values = Values(np.frombuffer(codes, np.int32), _decoded(texts))
            if numbers is None or known is None:
                said[key] = values
                continue
            is_whole = np.frombuffer(known, np.uint8) == _WHOLE
            whole = Numbers(np.frombuffer(numbers, np.int64), ~is_whole)
            said[key] = _first_numbers([whole, numbers_of(values)]) if texts else whole
        return said

    def _one_by_one(self, args: pa.Array) -> dict[str, Numbers | Values]:
        if self._decoder is None:
            members = [(f"key_{place}", object, None) for place, _ in enumerate(self._keys)]
            rename = {f"key_{place}": key for place, key in enumerate(self._keys)}
            kind = msgspec.defstruct("RuleArgs", members, rename=rename, gc=False)
            self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type] # made just now
        try:
            found = self._decoder.decode(joined_objects(args))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = [_decoded_one(self._decoder, args.slice(row, 1)) for row in range(len(args))]
        columns = zip(*map(msgspec.structs.astuple, found), strict=True)
        return {key: values_of(values) for key, values in zip(self._keys, columns, strict=True)}


def _as_numbers(said: Numbers | Values) -> Numbers:
    return numbers_of(said) if isinstance(said, Values) else said


def _first_numbers(said: Sequence[Numbers]) -> Numbers:
    """Of each row the first that is known."""
    values, null = said[0].values, said[0].null
    for other in said[1:]:
        values, null = np.where(null, other.values, values), null & other.null
    return Numbers(values, null)


def _first_values(said: Sequence[Values]) -> Values:
    """Of each row the first that is known."""
    codes, distinct = said[0].codes, list(said[0].distinct)
    for other in said[1:]:
        later = np.where(other.codes < 0, np.int32(-1), other.codes + np.int32(len(distinct)))
        codes = np.where(codes < 0, later, codes)
        distinct += other.distinct
    return Values(codes, distinct)


def _without_zeros(said: Values) -> Values:
    """Numbers of spans where they mean one: all zeros is OpenTelemetry's word for none, which roots have as parent."""
    none = np.array([isinstance(text, str) and text != "" and not text.strip("0") for text in said.distinct], np.bool_)
    if not none.any():
        return said
    return Values(np.where(none[said.codes] & (said.codes >= 0), np.int32(-1), said.codes), said.distinct)


def _decoded(texts: list[bytes]) -> list[object]:
    """The values of JSON texts; None for one that can't be held, such as a number beyond all bounds."""
    try:
        return [*_VALUES.decode(b"[" + b",".join(texts) + b"]")]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [None] if len(texts) == 1 else [value for text in texts for value in _decoded([text])]


def _decoded_one(decoder: msgspec.json.Decoder[Any], args: pa.Array) -> Any:
    try:
        return decoder.decode(joined_objects(args))[0]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decoder.decode(b"[{}]")[0]
