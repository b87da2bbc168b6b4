"""Packets of a Perfetto trace, many at once: columns of numbers become columns of bytes of one width.

Varints are padded to one width for all rows (`0x80` groups that add nothing; every decoder takes them), so that a
record is a row of a matrix; what a row does not have is masked out of it. Texts of any length are joined in at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]

#: Fields: TracePacket, TrackEvent, DebugAnnotation, TrackDescriptor; see Perfetto's published .proto files.
PACKET, TIMESTAMP, SNAPSHOT, SEQUENCE, EVENT, INTERNED, FLAGS, DESCRIPTOR = 1, 8, 6, 10, 11, 12, 13, 60
CATEGORY, NOTES, TYPE, NAME, TRACK, VALUE, DOUBLE_VALUE, FLOWS, FLOW_ENDS = 3, 4, 9, 10, 11, 30, 44, 47, 48
NOTE_NAME, NOTE_BOOL, NOTE_INT, NOTE_TEXT, NOTE_JSON = 1, 2, 4, 17, 9
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
_SIZE_BYTES = 4
_SEQUENCE_ID = 1
_NEEDS_STATE = 2


def varint(value: int, width: int = 0) -> bytes:
    """A number as a varint of at least `width` bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < width:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    """The tag of a field: kind 0 is a varint, 1 eight bytes, 2 bytes with a length."""
    return varint(number << 3 | kind)


def number_field(number: int, value: int) -> bytes:
    """A field with a number."""
    return tag(number, 0) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field with bytes."""
    return tag(number, 2) + varint(len(value)) + value


def packet(*parts: bytes, flags: int = 0) -> bytes:
    """A packet of the one sequence that the trace has."""
    head = number_field(SEQUENCE, _SEQUENCE_ID) + (number_field(FLAGS, flags) if flags else b"")
    return bytes_field(PACKET, head + b"".join(parts))


def width_of(values: Int64) -> int:
    """Bytes that the varints of all values fit into."""
    if not len(values):
        return 1
    low, high = int(values.min()), int(values.max())
    return 10 if low < 0 else max(1, -(-high.bit_length() // 7))


def varints(values: Int64, width: int) -> UInt8:
    """Varints of one width: a row for each value."""
    out = np.empty((len(values), width), np.uint8)
    bits = values.view(np.uint64)
    for at in range(width):
        group = (bits >> np.uint64(7 * at)).astype(np.uint8)
        out[:, at] = group | 0x80 if at < width - 1 else group & 0x7F
    return out


@dataclass(slots=True)
class Parts:
    """The bytes of records, part by part; each is a matrix with a row for each record, or bytes that all have."""

    count: int
    blocks: list[tuple[UInt8, Mask | None]] = field(default_factory=list)

    def put(self, data: bytes, where: Mask | None = None) -> None:
        """The same bytes in all records, or in some."""
        self.add(np.broadcast_to(np.frombuffer(data, np.uint8), (self.count, len(data))), where)

    def add(self, block: UInt8, where: Mask | None = None) -> None:
        """Bytes of each record."""
        self.blocks.append((block, where))

    def number(self, field_number: int, values: Int64, where: Mask | None = None) -> None:
        """A field with a number."""
        self.put(tag(field_number, 0), where)
        self.add(varints(values, width_of(values)), where)

    def note(self, name: int, form: int, values: Int64, where: Mask | None = None) -> None:
        """A debug annotation with a number, by the number of its name."""
        width = width_of(values)
        inner = number_field(NOTE_NAME, name) + tag(form, 0)
        self.put(tag(NOTES, 2) + varint(len(inner) + width) + inner, where)
        self.add(varints(values, width), where)

    def sizes(self) -> Int64:
        """Bytes of each record."""
        total = np.zeros(self.count, np.int64)
        for block, where in self.blocks:
            total += block.shape[1] if where is None else where * block.shape[1]
        return total

    def joined(self) -> tuple[UInt8, Mask | None]:
        """All of it as one matrix, and which of its bytes are there."""
        matrix = np.concatenate([block for block, _ in self.blocks], axis=1)
        if all(where is None for _, where in self.blocks):
            return matrix, None
        mask = np.ones(matrix.shape, np.bool_)
        at = 0
        for block, where in self.blocks:
            if where is not None:
                mask[:, at : at + block.shape[1]] = where[:, None]
            at += block.shape[1]
        return matrix, mask

    def binary(self) -> pa.Array:
        """A binary array of the records."""
        matrix, mask = self.joined()
        ends = np.zeros(self.count + 1, np.int32)
        np.cumsum(self.sizes(), out=ends[1:])
        data = matrix.tobytes() if mask is None else matrix[mask].tobytes()
        return pa.Array.from_buffers(pa.binary(), self.count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def sizes_of(texts: pa.Array) -> Int64:
    """Bytes of each text; 0 for NULL."""
    found: Int64 = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def packets(times: Int64, event: Parts, tail: Int64 | None = None, where: Mask | None = None) -> Parts:
    """Packets with an event each.

    tail   bytes that will follow the fields of each event, and belong to it
    where  which rows have such a packet; None: all
    """
    body = event.sizes() if tail is None else event.sizes() + tail
    head = Parts(event.count)
    head.number(TIMESTAMP, times)
    head.put(number_field(SEQUENCE, _SEQUENCE_ID) + number_field(FLAGS, _NEEDS_STATE) + tag(EVENT, 2))
    head.add(varints(body, _SIZE_BYTES))
    framed = Parts(event.count)
    framed.put(tag(PACKET, 2))
    framed.add(varints(head.sizes() + body, _SIZE_BYTES))
    framed.blocks += head.blocks + event.blocks
    if where is not None:
        framed.blocks = [(block, where if mask is None else mask & where) for block, mask in framed.blocks]
    return framed


def write_rows(columns: Sequence[pa.Array]) -> bytes | memoryview:
    """The columns joined row by row, as bytes."""
    if len(columns) == 1:
        _, ends, data = columns[0].buffers()
        last = np.frombuffer(ends, np.int32)[len(columns[0])]
        return memoryview(data)[:last] if data is not None else b""
    joined = pc.binary_join_element_wise(*columns, b"")
    _, ends, data = joined.buffers()
    bounds = np.frombuffer(ends, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])] if data is not None else b""
