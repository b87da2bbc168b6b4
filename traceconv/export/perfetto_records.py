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
PACKET, TIMESTAMP, SNAPSHOT, SEQUENCE, EVENT, INTERNED, FLAGS, DESCRIPTOR, BUNDLE = 1, 8, 6, 10, 11, 12, 13, 60, 5
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


def _group(bits: NDArray[np.uint64], at: int, last: bool) -> UInt8:
    """The seven bits at one place of a varint."""
    group: UInt8 = (bits >> np.uint64(7 * at)).astype(np.uint8)
    return np.bitwise_and(group, 0x7F) if last else np.bitwise_or(group, 0x80)


@dataclass(slots=True)
class Parts:
    """The bytes of records, part by part: bytes that all have, or a column of one byte of each."""

    count: int
    blocks: list[tuple[bytes | UInt8, Mask | None]] = field(default_factory=list)

    def put(self, data: bytes, where: Mask | None = None) -> None:
        """The same bytes in all records, or in some."""
        self.blocks.append((data, where))

    def matrix(self, block: UInt8, where: Mask | None = None) -> None:
        """Bytes of each record: a row for each."""
        self.blocks.extend((block[:, at], where) for at in range(block.shape[1]))

    def varint(self, values: Int64 | int, width: int = 0, where: Mask | None = None) -> None:
        """A number of each record, at least `width` bytes wide."""
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
                # From here on all numbers are the same: the rest is one text.
                self.put(varint((low & (1 << 64) - 1) >> 7 * at, width - at), where)
                return
            self.blocks.append((_group(bits, at, at == width - 1), where))

    def number(self, field_number: int, values: Int64, where: Mask | None = None) -> None:
        """A field with a number."""
        self.put(tag(field_number, 0), where)
        self.varint(values, 0, where)

    def note(self, name: int, form: int, values: Int64, where: Mask | None = None) -> None:
        """A debug annotation with a number, by the number of its name."""
        inner = number_field(NOTE_NAME, name) + tag(form, 0)
        self.put(tag(NOTES, 2) + varint(len(inner) + width_of(values)) + inner, where)
        self.varint(values, 0, where)

    def sizes(self) -> Int64 | int:
        """Bytes of each record; one number when all have the same."""
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
        """A binary array of the records."""
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
        if isinstance(sizes, int):
            ends[:] = np.arange(self.count + 1) * sizes
            data = matrix.reshape(-1)
        else:
            np.cumsum(sizes, out=ends[1:])
            return pa.Array.from_buffers(
                pa.binary(), self.count, [None, pa.py_buffer(ends), self._kept(matrix, widths)]
            )
        return pa.Array.from_buffers(pa.binary(), self.count, [None, pa.py_buffer(ends), pa.py_buffer(data)])

    def _kept(self, matrix: UInt8, widths: Sequence[int]) -> pa.Buffer:
        """The bytes that records have; Arrow's filter takes half of numpy's time."""
        bits = pa.py_buffer(np.packbits(self._mask(widths).reshape(-1), bitorder="little"))
        kept = pa.array(matrix.reshape(-1)).filter(pa.Array.from_buffers(pa.bool_(), matrix.size, [None, bits]))
        return kept.buffers()[1].slice(kept.offset, len(kept))

    def _mask(self, widths: Sequence[int]) -> Mask:
        mask = np.ones((self.count, sum(widths)), np.bool_)
        at = 0
        for (_, where), width in zip(self.blocks, widths, strict=True):
            if where is not None:
                mask[:, at : at + width] = where[:, None]
            at += width
        return mask


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
    head.varint(body, _SIZE_BYTES)
    framed = Parts(event.count)
    framed.put(tag(PACKET, 2))
    framed.varint(head.sizes() + body, _SIZE_BYTES)
    framed.blocks += head.blocks + event.blocks
    if where is not None:
        both = {id(mask): mask & where for _, mask in framed.blocks if mask is not None}
        framed.blocks = [(block, where if mask is None else both[id(mask)]) for block, mask in framed.blocks]
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
