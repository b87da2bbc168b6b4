"""Binary and text columns by their buffers: what Arrow's own functions take long for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv import native

Int64 = NDArray[np.int64]


def offsets_of(column: pa.Array) -> NDArray[np.int32]:
    """Where the values of a binary or text column begin in its data, and where the last one ends."""
    ends = column.buffers()[1]
    if ends is None:
        return np.zeros(1, np.int32)
    return np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]


def taken(column: pa.Array, rows: NDArray[np.intp]) -> pa.Array:
    """Some rows of a column; quickly where it is binary and has no NULL."""
    if not native.AVAILABLE or column.type != pa.binary() or column.null_count or not len(column):
        return column.take(pa.array(rows))
    ends, data = native.take(offsets_of(column), column.buffers()[2] or b"", rows)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(data)], null_count=0)


def as_text(column: pa.Array) -> pa.Array:
    """A binary column as text: that it is UTF-8 is known."""
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers(), column.null_count, column.offset)


def whole_numbers(column: pa.Array) -> Int64 | None:
    """The numbers that the values of a binary column spell, all as they would be printed; None when one is no such."""
    if native.AVAILABLE:
        found = None if column.null_count else native.whole_numbers(offsets_of(column), column.buffers()[2] or b"")
        return None if found is None else np.frombuffer(found, np.int64)
    try:
        texts = as_text(column)
        numbers = texts.cast(pa.int64())
        return numbers.to_numpy() if numbers.cast(pa.string()).equals(texts) else None
    except pa.ArrowInvalid:
        return None
