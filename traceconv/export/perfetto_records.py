"""Packets of a Perfetto trace, encoded in bulk: columns of numbers become columns of bytes of a fixed width.

Varints are padded to the same width in all rows (with `0x80` groups, which every decoder accepts), so that a record is
a row of a matrix; fields that a row doesn't have are masked out. Texts of variable length are joined at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv.export.output import text_bytes

Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]

#: Fields: TracePacket, TrackEvent, DebugAnnotation, TrackDescriptor; see Perfetto's published .proto files.
PACKET, TIMESTAMP, SNAPSHOT, SEQUENCE, EVENT, INTERNED, FLAGS, DESCRIPTOR, BUNDLE = 1, 8, 6, 10, 11, 12, 13, 60, 5
CATEGORY, NOTES, TYPE, NAME, TRACK, VALUE, DOUBLE_VALUE, FLOWS, FLOW_ENDS = 3, 4, 9, 10, 11, 30, 44, 47, 48
NOTE_NAME, NOTE_BOOL, NOTE_INT, NOTE_TEXT, NOTE_JSON = 1, 2, 4, 17, 9
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
_SIZE_BYTES = 4
_SEQUENCE_ID = 1
_NEEDS_STATE = 2


def varint(value: int, width: int = 0) -> bytes:
    """Encode a number as a varint of at least `width` bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < width:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    """Encode the tag of a field: wire type 0 is a varint, 1 eight bytes, 2 bytes with a length."""
    return varint(number << 3 | kind)


def number_field(number: int, value: int) -> bytes:
    """Encode a varint field."""
    return tag(number, 0) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field of bytes."""
    return tag(number, 2) + varint(len(value)) + value


def packet(*parts: bytes, flags: int = 0) -> bytes:
    """Encode a packet; the trace has a single sequence."""
    head = number_field(SEQUENCE, _SEQUENCE_ID) + (number_field(FLAGS, flags) if flags else b"")
    return bytes_field(PACKET, head + b"".join(parts))


def width_of(values: Int64) -> int:
    """Return the width that fits the varints of all values."""
    if not len(values):
        return 1
    low, high = int(values.min()), int(values.max())
    return 10 if low < 0 else max(1, -(-high.bit_length() // 7))


def _group(bits: NDArray[np.uint64], at: int, last: bool) -> UInt8:
    """Return the byte at one position of a varint."""
    group: UInt8 = (bits >> np.uint64(7 * at)).astype(np.uint8)
    return np.bitwise_and(group, 0x7F) if last else np.bitwise_or(group, 0x80)


@dataclass(slots=True)
class Parts:
    """The bytes of records, in parts: bytes that all records share, or a column with a byte for each record."""

    count: int
    blocks: list[tuple[bytes | UInt8, Mask | None]] = field(default_factory=list)

    def put(self, data: bytes, where: Mask | None = None) -> None:
        """Add the same bytes to all records, or to some."""
        self.blocks.append((data, where))

    def matrix(self, block: UInt8, where: Mask | None = None) -> None:
        """Add bytes that differ between records, a row each."""
        self.blocks.extend((block[:, at], where) for at in range(block.shape[1]))

    def varint(self, values: Int64 | int, width: int = 0, where: Mask | None = None) -> None:
        """Add a varint to each record, at least `width` bytes wide."""
        if isinstance(values, int):
            self.put(varint(values, width), where)
            return
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        width = max(width, width_of(values))
        bits = values.view(np.uint64)
        for at in range(width):
            if low >> 7 * at == high >> 7 * at:
                # The remaining bits are the same in all numbers.
                self.put(varint((low & (1 << 64) - 1) >> 7 * at, width - at), where)
                return
            self.blocks.append((_group(bits, at, at == width - 1), where))

    def number(self, field_number: int, values: Int64, where: Mask | None = None) -> None:
        """Add a varint field."""
        self.put(tag(field_number, 0), where)
        self.varint(values, 0, where)

    def note(self, name: int, form: int, values: Int64, where: Mask | None = None) -> None:
        """Add a debug annotation; `name` is the ID of its interned name."""
        inner = number_field(NOTE_NAME, name) + tag(form, 0)
        self.put(tag(NOTES, 2) + varint(len(inner) + width_of(values)) + inner, where)
        self.varint(values, 0, where)

    def sizes(self) -> Int64 | int:
        """Return the size of each record, a single number if all have the same."""
        fixed = 0
        varying: dict[int, tuple[Mask, int]] = {}
        for block, where in self.blocks:
            width = len(block) if isinstance(block, bytes) else 1
            if where is None:
                fixed += width
            else:
                varying[id(where)] = where, width + varying.get(id(where), (where, 0))[1]
        total: Int64 | int = fixed
        for where, width in varying.values():
            total = total + where * np.int64(width)
        return total

    def binary(self) -> pa.Array:
        """Return the records as a binary array."""
        widths = [len(block) if isinstance(block, bytes) else 1 for block, _ in self.blocks]
        template = b"".join(block if isinstance(block, bytes) else b"\0" for block, _ in self.blocks)
        matrix = np.empty((self.count, len(template)), np.uint8)
        matrix[:] = np.frombuffer(template, np.uint8)
        at = 0
        for (block, _), width in zip(self.blocks, widths, strict=True):
            if not isinstance(block, bytes):
                matrix[:, at] = block
            at += width
        sizes = self.sizes()
        ends = np.zeros(self.count + 1, np.int32)
        ends[1:] = np.cumsum(np.broadcast_to(sizes, self.count))
        data = pa.py_buffer(matrix.reshape(-1)) if isinstance(sizes, int) else self._kept(matrix, widths)
        return pa.Array.from_buffers(pa.binary(), self.count, [None, pa.py_buffer(ends), data])

    def _kept(self, matrix: UInt8, widths: Sequence[int]) -> pa.Buffer:
        """Return the bytes that are not masked out. Arrow's filter takes half the time of numpy's."""
        mask = np.ones(matrix.shape, np.bool_)
        at = 0
        for (_, where), width in zip(self.blocks, widths, strict=True):
            if where is not None:
                mask[:, at : at + width] = where[:, None]
            at += width
        bits = pa.py_buffer(np.packbits(mask.reshape(-1), bitorder="little"))
        kept = pa.array(matrix.reshape(-1)).filter(pa.Array.from_buffers(pa.bool_(), matrix.size, [None, bits]))
        return kept.buffers()[1].slice(kept.offset, len(kept))


def sizes_of(texts: pa.Array) -> Int64:
    """Return the size of each text, 0 for NULL."""
    found: Int64 = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def packets(times: Int64, event: Parts, tail: Int64 | None = None, where: Mask | None = None) -> Parts:
    """Wrap each event into a packet.

    tail   size of what is appended to each event later
    where  rows that have a packet; None: all
    """
    body = event.sizes() if tail is None else event.sizes() + tail
    head = Parts(event.count)
    head.number(TIMESTAMP, times)
    head.put(number_field(SEQUENCE, _SEQUENCE_ID) + number_field(FLAGS, _NEEDS_STATE) + tag(EVENT, 2))
    head.varint(body, _SIZE_BYTES)
    framed = Parts(event.count)
    framed.put(tag(PACKET, 2))
    framed.varint(head.sizes() + body, _SIZE_BYTES)
    framed.blocks += head.blocks + event.blocks
    if where is not None:
        both = {id(mask): mask & where for _, mask in framed.blocks if mask is not None}
        framed.blocks = [(block, where if mask is None else both[id(mask)]) for block, mask in framed.blocks]
    return framed


def write_rows(columns: Sequence[pa.Array]) -> memoryview:
    """Join the columns row by row."""
    return text_bytes(columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, b""))
