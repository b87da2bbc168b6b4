"""Fill templates: the loop over the rows is in C (`native/records.c`); without C, it is here, one row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.int64 import Int64
from traceconv.export.record_kinds import FORMS, Kind
from traceconv.export.templates import SKIPS, Bound, Buffers, Template, first_member
from traceconv.wire.protobuf import encode_varint


def fill(template: Template, batch: pa.RecordBatch, buffer: bytearray, start: int) -> int:
    """Write the records of all rows from `start` on; return their end. The buffer doubles while it is too small."""
    bound, order = template.bind(batch), np.arange(batch.num_rows, dtype=np.int64)
    at = 0
    while at < len(order):
        with memoryview(buffer) as data, data[start:] as free:
            at, size = fill_some(bound, order, at, free)
        start += size
        if at < len(order):
            buffer.extend(bytes(len(buffer)))
    return start


def fill_some(bound: Bound, order: Int64, first: int, buffer: bytearray | memoryview) -> tuple[int, int]:
    """Write records from row `first` of the order on; return the first that didn't fit, and the size of the others."""
    if native.AVAILABLE:
        return native.records(bound.parts, tuple(bound.columns), order, first, buffer)
    at, size = first, 0
    for record in _records(bound, order[first:]):
        if size + len(record) > len(buffer):
            break
        buffer[size : size + len(record)] = record
        at, size = at + 1, size + len(record)
    return at, size


def _records(bound: Bound, order: Int64) -> Iterator[bytes]:
    columns = [_values(column) for column in bound.columns]
    for row in order.tolist():
        out = bytearray()
        opened: list[int] = []
        skip = 0
        for kind, place, listed, number, before, inner in bound.parts:
            if skip:
                skip -= 1
                continue
            value = columns[place](row) if place >= 0 else None
            if kind in SKIPS:
                skip = number if (value is None) == (kind == Kind.SKIP_IF_NULL) else 0
                continue
            if kind == Kind.LOOKUP and value is not None:
                value = columns[listed](value) if 0 <= value < bound.columns[listed][4] else None
            if place >= 0 and value is None:
                continue
            out += first_member(before, out)
            if kind == Kind.OPEN:
                opened.append(len(out))
            elif kind == Kind.CLOSE:
                start = opened.pop()
                out[start:start] = _length(len(out) - start)
            elif kind != Kind.LITERAL:
                out += FORMS[Kind(kind)](value, number, inner)
        yield bytes(out)


def _length(size: int) -> bytes:
    """Encode a length in two bytes, or more if they don't suffice, as C does: it reserves two."""
    return encode_varint(size) if size >= 1 << 14 else bytes([size & 127 | 128, size >> 7])


def _values(column: Buffers) -> Callable[[int], Any]:
    valid, values, data, offset, count = column
    bits = None
    if valid is not None:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=offset + count, bitorder="little")[offset:]
    if data is None:
        numbers = np.frombuffer(values, np.int64)[offset : offset + count]
        return lambda row: None if bits is not None and not bits[row] else int(numbers[row])
    ends, texts = np.frombuffer(values, np.int32)[offset:], memoryview(data)
    return lambda row: None if bits is not None and not bits[row] else bytes(texts[ends[row] : ends[row + 1]])
