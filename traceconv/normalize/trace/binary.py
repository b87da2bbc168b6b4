"""Fast operations on the buffers of binary and text columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64


def offsets_of(column: pa.Array) -> NDArray[np.int32]:
    """Return the offsets of a binary or text column's values in its data, and the end of the last one."""
    ends = column.buffers()[1]
    if ends is None:
        return np.zeros(1, np.int32)
    return np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]


def taken(column: pa.Array, rows: NDArray[np.intp]) -> pa.Array:
    """Return some rows of a column; fast for binary columns without NULL."""
    if not native.AVAILABLE or column.type != pa.binary() or column.null_count or not len(column):
        return column.take(pa.array(rows))
    ends, data = native.take(offsets_of(column), column.buffers()[2] or b"", rows)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(data)], null_count=0)


def as_text(column: pa.Array) -> pa.Array:
    """Return a binary column that is known to be UTF-8 as text."""
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers(), column.null_count, column.offset)


def codes_of(column: pa.DictionaryArray, null: int = -1) -> NDArray[np.int32]:
    """Return the place of each row's text in the dictionary; `null` for NULL."""
    indices = column.indices
    if not indices.null_count:
        return indices.to_numpy()  # type: ignore[no-any-return]
    # Arrow's function takes five times as long for a few rows.
    known, codes = indices.buffers()
    rows = slice(indices.offset, indices.offset + len(indices))
    valid = np.unpackbits(np.frombuffer(known, np.uint8), count=rows.stop, bitorder="little")[rows].view(np.bool_)
    return np.where(valid, np.frombuffer(codes, np.int32)[rows], np.int32(null))


def parsed_integers(column: pa.Array) -> Int64 | None:
    """Parse integers in canonical notation; None if any value of the column is something else."""
    if native.AVAILABLE:
        found = None if column.null_count else native.integers(offsets_of(column), column.buffers()[2] or b"")
        return None if found is None else np.frombuffer(found, np.int64)
    try:
        texts = as_text(column)
        numbers = texts.cast(pa.int64())
        return numbers.to_numpy() if numbers.cast(pa.string()).equals(texts) else None
    except pa.ArrowInvalid:
        return None
