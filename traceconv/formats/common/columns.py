"""Untyped values of a source → columns of integers, durations and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import differences
from traceconv.events.trace import TOO_LONG, Coded, EventColumns, EventFlows, binary_column, coded

_ENCODER = msgspec.json.Encoder()


def integers(values: Sequence[Any] | pa.Array) -> pa.Array:
    """Return an int64 column, which may be given as an array; null for values that are not integers of that size."""
    found = _integers_only(values)
    return pa.array([value if _is_int64(value) else None for value in values], pa.int64()) if found is None else found


def integer_array(values: Sequence[Any] | pa.Array) -> NDArray[np.int64]:
    """Return the same as an array, with -1 for null."""
    column = integers(values)
    found: NDArray[np.int64] = (column.fill_null(-1) if column.null_count else column).to_numpy()
    return found


def exact_decimal(text: str) -> Decimal | str:
    """Return the exact number; the text if its exponent is too large for Decimal."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def durations(start: pa.Array, ends: Sequence[Any] | pa.Array) -> pa.Array:
    """Return end minus start; null where either is unknown, TOO_LONG where it doesn't fit 64 bits."""
    end = integers(ends)
    if not start.null_count and not end.null_count:
        found, beyond = differences(end.to_numpy(), start.to_numpy())
        return pa.array(np.where(beyond, TOO_LONG, found))
    unknown = start.is_null().to_numpy(zero_copy_only=False) | end.is_null().to_numpy(zero_copy_only=False)
    found, beyond = differences(end.fill_null(0).to_numpy(), start.fill_null(0).to_numpy())
    for row in [] if isinstance(ends, pa.Array) else np.flatnonzero(unknown).tolist():
        if type(ends[row]) is int and not _is_int64(ends[row]):
            beyond[row], unknown[row] = True, False
    return pa.array(np.where(beyond, TOO_LONG, found), mask=unknown)


def slices(
    names: Sequence[Any],
    categories: Sequence[Any],
    pids: Sequence[Any],
    tids: Sequence[Any],
    start: pa.Array,
    dur: pa.Array,
    args: Sequence[bytes],
    flows: EventFlows | None = None,
) -> EventColumns:
    """Return complete events, with args as JSON and times in ns."""
    labels = {"name": names, "ph": ["X"] * len(names), "cat": categories, "pid": pids, "tid": tids}
    return EventColumns(len(names), labels, {"ts": start, "dur": dur, "args": binary_column(args)}, None, flows)


def json_objects(keys: Sequence[str], columns: Sequence[Sequence[Any] | pa.Array], count: int) -> pa.Array:
    """Return each of `count` rows as a JSON object of its values that are not NULL: a binary array."""
    members = [one for key, values in zip(keys, columns, strict=True) if (one := _members(key, values)) is not None]
    if not members:
        return pa.array([b"{}"] * count, pa.binary())
    if native.AVAILABLE:
        ends, data = native.objects(tuple(map(_native_members, members)), count)
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)], null_count=0)
    joined = pc.binary_join_element_wise(*map(_texts, members), "")
    # Each member begins with a comma: the first one's becomes the bracket.
    objects = pc.binary_join_element_wise(pc.binary_replace_slice(joined, 0, 1, "{"), "}", "")
    return objects.cast(pa.binary())


@dataclass(frozen=True, slots=True)
class _Members:
    """`,"key":value` of each row, nothing where the value is NULL.

    lead   `,"key":`
    rows   int64: the values of rows, or the places of their texts
    texts  with their keys; None for integers
    """

    lead: str
    rows: pa.Array
    texts: pa.Array | None


def _members(key: str, values: Sequence[Any] | pa.Array) -> _Members | None:
    """Return the members of one key; None when all values are NULL."""
    lead = "," + json.dumps(key) + ":"
    if not isinstance(values, Coded):
        numbers = _integers_only(values)
        if numbers is not None:
            return None if numbers.null_count == len(numbers) else _Members(lead, numbers, None)
    # 1, 1.0 and True are the same key of a dict, but differ as text.
    words = coded(values, typed=True)
    if all(word is None for word in words.distinct):
        return None
    texts = pa.array([word and lead + word for word in _json_texts(words.distinct)], pa.string())
    return _Members(lead, pa.array(words.codes.astype(np.int64)), texts)


def _integers_only(values: Sequence[Any] | pa.Array) -> pa.Array | None:
    """Return an int64 column; None if there are other values."""
    if isinstance(values, pa.Array):
        return values
    try:
        found = pa.array(values)  # of a given type, Arrow would truncate floats to integers
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None
    if pa.types.is_null(found.type):
        return found.cast(pa.int64())
    return found if found.type == pa.int64() else None


def _texts(members: _Members) -> pa.Array:
    if members.texts is not None:
        return members.texts.take(members.rows)
    texts = pc.binary_join_element_wise(members.lead, members.rows.cast(pa.string()), "")
    return texts.fill_null("") if members.rows.null_count else texts


def _native_members(members: _Members) -> tuple[bytes, NDArray[np.int64], NDArray[np.bool_] | None, Any, Any]:
    null = members.rows.is_null().to_numpy(zero_copy_only=False) if members.rows.null_count else None
    rows = (members.rows if null is None else members.rows.fill_null(0)).to_numpy()
    if members.texts is None:
        return members.lead.encode(), rows, null, None, None
    _, offsets, data = members.texts.buffers()
    return members.lead.encode(), rows, null, offsets, data if data is not None else b""


def _json_texts(values: Sequence[Any]) -> list[str]:
    """Return the values as JSON, "" for None."""
    try:
        texts = _ENCODER.encode_lines(values).decode().split("\n")  # JSON has no line breaks in texts
    except (msgspec.EncodeError, UnicodeEncodeError, ValueError, TypeError, OverflowError):
        return ["" if value is None else _json(value) for value in values]
    return ["" if value is None else text for value, text in zip(values, texts, strict=False)]


def _json(value: Any) -> str:
    try:
        return _ENCODER.encode(value).decode()
    except (msgspec.EncodeError, UnicodeEncodeError, ValueError, TypeError, OverflowError):
        return json.dumps(str(value))


def _is_int64(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63
