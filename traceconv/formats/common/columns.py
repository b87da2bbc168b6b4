"""Untyped values of a source → columns of integers, durations and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv.base.int64 import differences
from traceconv.events.trace import TOO_LONG, coded

_ENCODER = msgspec.json.Encoder()


def integers(values: Sequence[Any]) -> pa.Array:
    """Return an int64 column; null for values that are not integers of that size."""
    try:
        return pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([value if _is_int64(value) else None for value in values], pa.int64())


def integer_array(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return the same as an array, with -1 for null."""
    found: NDArray[np.int64] = integers(values).fill_null(-1).to_numpy()
    return found


def exact_decimal(text: str) -> Decimal | str:
    """Return the exact number; the text if its exponent is too large for Decimal."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def durations(start: pa.Array, ends: Sequence[Any]) -> pa.Array:
    """Return end minus start; null where either is unknown, TOO_LONG where it doesn't fit 64 bits."""
    end = integers(ends)
    unknown = start.is_null().to_numpy(zero_copy_only=False) | end.is_null().to_numpy(zero_copy_only=False)
    found, beyond = differences(end.fill_null(0).to_numpy(), start.fill_null(0).to_numpy())
    for row in np.flatnonzero(unknown).tolist():
        if type(ends[row]) is int and not _is_int64(ends[row]):
            beyond[row], unknown[row] = True, False
    return pa.array(np.where(beyond, TOO_LONG, found), mask=unknown)


def json_objects(keys: Sequence[str], columns: Sequence[Sequence[Any] | pa.Array], count: int) -> pa.Array:
    """Return each of `count` rows as a JSON object of its values that are not NULL: a binary array."""
    members = [_members(key, values) for key, values in zip(keys, columns, strict=True)]
    found = [one for one in members if one is not None]
    if not found:
        return pa.array([b"{}"] * count, pa.binary())
    joined = pc.binary_join_element_wise(*found, "")
    # Each member begins with a comma: the first one's becomes the bracket.
    objects = pc.binary_join_element_wise(pc.binary_replace_slice(joined, 0, 1, "{"), "}", "")
    return objects.cast(pa.binary())


def _members(key: str, values: Sequence[Any] | pa.Array) -> pa.Array | None:
    """`,"key":value` of each row, nothing where the value is NULL; None when all are."""
    lead = "," + json.dumps(key) + ":"
    try:
        numbers = values if isinstance(values, pa.Array) else pa.array(values, pa.int64())
        if numbers.null_count == len(numbers):
            return None
        texts = pc.binary_join_element_wise(lead, numbers.cast(pa.string()), "")
        return texts.fill_null("") if numbers.null_count else texts
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    if set(map(type, values)) <= {str, type(None)}:
        words = coded(values)
        texts = pa.array(["" if word is None else lead + _json(word) for word in words.distinct], pa.string())
        return texts.take(pa.array(words.codes))
    known: dict[Any, str] = {None: ""}
    found = []
    for value in values:
        # 1, 1.0 and True are the same key of a dict, but differ as text.
        text = known.get(value) if type(value) is str or value is None else None
        if text is None:
            text = lead + _json(value)
            if type(value) is str and len(known) < 4096:
                known[value] = text
        found.append(text)
    return pa.array(found, pa.string())


def _json(value: Any) -> str:
    try:
        return _ENCODER.encode(value).decode()
    except (msgspec.EncodeError, UnicodeEncodeError, ValueError, TypeError, OverflowError):
        return json.dumps(str(value))


def _is_int64(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63
