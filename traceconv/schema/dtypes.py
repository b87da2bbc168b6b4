"""Record schema → numpy dtype of the bytes of a log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.schema.model import RecordSchema

#: An array of records: a structured dtype, one element per record.
RecordArray = NDArray[np.void]

_NUMPY = {"u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i64": "<i8", "f64": "<f8", "str": "<u8"}


def gather(records: RecordArray, index: NDArray[np.intp]) -> RecordArray:
    """Return `records[index]`, via a plain byte view: many times as fast as indexing a structured array."""
    return plain(records)[index].view(records.dtype)


def join(parts: Sequence[RecordArray]) -> RecordArray:
    """Concatenate parts (at least one, all of one dtype) as plain bytes."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([plain(part) for part in parts]).view(parts[0].dtype)


def plain(records: RecordArray) -> RecordArray:
    """Return records as plain bytes, which numpy copies many times as fast; a view, if they are contiguous."""
    return np.ascontiguousarray(records).view(f"V{records.dtype.itemsize}")


def _numpy_type(kind: str) -> str:
    match = re.fullmatch(r"bytes\[(\d+)\]", kind)
    return f"V{match[1]}" if match else _NUMPY[kind]


def dtype_of(schema: RecordSchema, record_size: int | None = None) -> np.dtype[np.void]:
    """Return the packed, little-endian dtype of a record.

    `record_size` is the size in bytes from the block: the unknown tail of a longer record is padding.
    """
    size = schema.size_bytes if record_size is None else record_size
    if size < schema.size_bytes:
        raise ValueError(f"{size} bytes can't hold a {schema.name} record of {schema.size_bytes}")
    return _dtype(tuple((field.name, field.type) for field in schema.fields), size)


@cache
def _dtype(fields: tuple[tuple[str, str], ...], size: int) -> np.dtype[np.void]:
    formats = [_numpy_type(kind) for _, kind in fields]
    offsets = [0]
    for form in formats[:-1]:
        offsets.append(offsets[-1] + np.dtype(form).itemsize)
    return np.dtype({"names": [name for name, _ in fields], "formats": formats, "offsets": offsets, "itemsize": size})
