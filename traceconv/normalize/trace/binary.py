"""Fast operations on the buffers of binary and text columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray


def offsets_of(column: pa.Array) -> NDArray[np.int32]:
    """Return the offsets of a binary or text column's values in its data, and the end of the last one."""
    ends = column.buffers()[1]
    if ends is None:
        return np.zeros(1, np.int32)
    return np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]


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
