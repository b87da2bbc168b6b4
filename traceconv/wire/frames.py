"""Sans-IO framing: decode bytes to intact blocks and the damage between them, and encode blocks.

A log file is a header, then blocks. All numbers are little-endian.

File header, 56 bytes, then the schemas as JSON, then a CRC-32 of all of it:
    magic 8s · version u16 · byte-order mark u16 · header_size u32 · writer_id u64 · clock_hz u64 ·
    device_id u32 · clock u32 · first_sequence u64 · slice_index u32 · schema_size u32

Block header, 32 bytes, then the payload of record_count × record_size bytes:
    magic u32 · tag u16 · record_size u16 · record_count u32 · payload_crc u32 · sequence u64 ·
    reserved u32 · header_crc u32

`sequence` is the ordinal of the block's first record among all records of its stream (its slices
together), so that a gap gives the exact number of missing records.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from traceconv.base.deflate import crc32
from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.events.npu import ORDINAL_BITS
from traceconv.schema.model import RecordSchema, parse_record
from traceconv.wire.magic import BLOCK_MAGIC, FILE_MAGIC

FORMAT_VERSION = 1
#: Longest payload that a reader accepts; checked before it is buffered.
MAX_PAYLOAD_BYTES = 64 << 20
#: Longest file header that a reader accepts.
MAX_HEADER_BYTES = 1 << 20
#: Bytes of false blocks (a valid header, a payload with a wrong CRC) that may be read repeatedly, besides a multiple of
#: the file: blocks within blocks would otherwise take quadratic time.
_FREE_WASTE_BYTES = 256 << 20
_WASTE_FACTOR = 4

#: device_id in the header of a host file.
HOST = 0xFFFFFFFF

_FILE_HEADER = struct.Struct("<8sHHIQQIIQII")
_BLOCK_HEADER = struct.Struct("<4sHHIIQII")
_BYTE_ORDER_MARK = 0xFEFF
_SWAPPED_MARK = 0xFFFE
_CRC = struct.Struct("<I")
_CLOCKS = ("none", "host", "device")
BLOCK_HEADER_BYTES = _BLOCK_HEADER.size


@dataclass(frozen=True)
class FileHeader:
    """The header of a log file. `device_id` is None in a host file; `clock_hz`: ticks per second of its clock."""

    writer_id: int
    device_id: int | None
    clock: str
    clock_hz: int
    first_sequence: int
    slice_index: int
    schemas: tuple[RecordSchema, ...]
    version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class Block:
    """An intact block: its CRC-32s are right. `byte_offset` and `byte_count` include the block header."""

    tag: int
    record_size: int
    record_count: int
    sequence: int
    payload: memoryview
    byte_offset: int
    byte_count: int
    payload_crc: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Unusable bytes, or records that are missing by their sequence numbers.

    `event_count` records were lost, the first of them `sequence`; None if unknown.
    """

    code: Code
    byte_offset: int
    byte_count: int
    event_count: int | None
    message: str
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """A valid header of a block: its CRC-32 is right and its numbers are in range."""

    tag: int
    record_size: int
    record_count: int
    payload_crc: int
    sequence: int

    @property
    def payload_size(self) -> int:
        """Bytes after the header."""
        return self.record_size * self.record_count

    @property
    def end_sequence(self) -> int:
        """Sequence number after the block's last record."""
        return self.sequence + self.record_count

    def block(self, payload: memoryview, byte_offset: int) -> Block:
        """The block with this header and payload."""
        shape = (self.tag, self.record_size, self.record_count, self.sequence)
        return Block(*shape, payload, byte_offset, BLOCK_HEADER_BYTES + len(payload), self.payload_crc)


def encode_file_header(header: FileHeader) -> bytes:
    """The first bytes of a log file."""
    text = json.dumps([schema.to_wire() for schema in header.schemas], separators=(",", ":")).encode()
    size = _FILE_HEADER.size + len(text) + _CRC.size
    fixed = _FILE_HEADER.pack(
        FILE_MAGIC,
        header.version,
        _BYTE_ORDER_MARK,
        size,
        header.writer_id,
        header.clock_hz,
        HOST if header.device_id is None else header.device_id,
        _CLOCKS.index(header.clock),
        header.first_sequence,
        header.slice_index,
        len(text),
    )
    return fixed + text + _CRC.pack(crc32(fixed + text))


def encode_block_header(tag: int, record_size: int, sequence: int, payload: bytes | memoryview) -> bytes:
    """The 32 bytes before `payload` in a file. ValueError if its size isn't a multiple of the record size."""
    count, rest = divmod(len(payload), record_size)
    if rest:
        raise ValueError(f"{len(payload)} bytes are not a multiple of the record size, {record_size} bytes")
    head = _BLOCK_HEADER.pack(BLOCK_MAGIC, tag, record_size, count, crc32(payload), sequence, 0, 0)[: -_CRC.size]
    return head + _CRC.pack(crc32(head))


class FrameDecoder:
    """Decode one log file, in pieces of any size, to blocks and damage in the order of the file.

    The output does not depend on how the bytes are split. `header` is None until the file header is read, and stays
    None if it is damaged; the blocks after it are decoded all the same.

    any_order  also yield blocks whose records come before those of the previous block; otherwise they are damage
    """

    def __init__(self, *, any_order: bool = False) -> None:
        self.header: FileHeader | None = None
        self._any_order = any_order
        self._header_done = False
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._need = _FILE_HEADER.size  # pending bytes below which nothing can be decided
        self._offset = 0  # byte offset in the file of the first pending byte
        self._next_sequence: int | None = None
        self._damage_start: int | None = None  # set: searching for the next intact block
        self._damage_end_sequence = 0  # the end by block headers inside the damage
        self._damage_code = Code.DAMAGED_BLOCK
        self._wasted_bytes = 0  # payloads with a wrong CRC

    def feed(self, chunk: bytes) -> list[Block | Damage]:
        """Decode the next bytes. Payloads are views of memory that is not written again.

        Raises InputError if the file has a newer version of the format, or another byte order.
        """
        if chunk:
            self._pending.append(chunk)
            self._pending_size += len(chunk)
        if self._pending_size < self._need:
            return []
        return list(self._advance(final=False))

    def finish(self) -> list[Block | Damage]:
        """End the file; what is left over is damage."""
        return list(self._advance(final=True))

    def _advance(self, final: bool) -> Iterator[Block | Damage]:
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        position = 0
        if not self._header_done:
            position = self._read_file_header(data, final)
        if self._header_done:
            position = yield from self._read_blocks(data, position, final)
        self._offset += position
        rest = data[position:]
        self._pending = [rest] if rest else []
        self._pending_size = len(rest)

    def _read_blocks(self, data: bytes, position: int, final: bool) -> Generator[Block | Damage, None, int]:
        """Yield what can be decided from `position` on; return where undecided bytes begin."""
        while True:
            if self._damage_start is not None:
                position = _find_block_header(data, position)
            if len(data) - position < BLOCK_HEADER_BYTES:
                self._need = BLOCK_HEADER_BYTES
                break
            head = read_block_header(data, position)
            if head is None or not self._may_try(head, position):
                self._begin_damage(position, Code.DAMAGED_BLOCK)
                position += 1
                continue
            end = position + BLOCK_HEADER_BYTES + head.payload_size
            if end > len(data) and not final:
                self._need = end - position
                break
            payload = memoryview(data)[position + BLOCK_HEADER_BYTES : end]
            if end > len(data) or crc32(payload) != head.payload_crc:
                self._begin_damage(position, Code.TRUNCATED if end > len(data) else Code.DAMAGED_BLOCK)
                self._damage_end_sequence = max(self._damage_end_sequence, head.end_sequence)
                self._wasted_bytes += len(payload)
                position += 1  # a block may begin inside, where bytes are missing from this one
                continue
            yield from self._accept(head, payload, position)
            position = end
        if not final:
            return position
        if position < len(data):
            self._begin_damage(position, Code.TRUNCATED)
        if self._damage_start is not None:
            seen = self._damage_end_sequence
            known = self._next_sequence is not None and seen > 0
            yield self._end_damage(len(data), max(0, seen - (self._next_sequence or 0)) if known else None)
        return len(data)

    def _may_try(self, head: BlockHeader, position: int) -> bool:
        """Whether a payload may be read and checked: always, except in a file made of false blocks."""
        allowed = _FREE_WASTE_BYTES + _WASTE_FACTOR * (self._offset + position)
        return self._wasted_bytes + head.payload_size <= allowed

    def _accept(self, head: BlockHeader, payload: memoryview, position: int) -> Iterator[Block | Damage]:
        """Yield an intact block, after the records that are missing before it by its sequence number."""
        missing = None if self._next_sequence is None else head.sequence - self._next_sequence
        offset = self._offset + position
        if self._damage_start is not None:
            if self._damage_code is Code.TRUNCATED:
                self._damage_code = Code.DAMAGED_BLOCK  # it was not the end: bytes are missing from the middle
            yield self._end_damage(position, None if missing is None else max(missing, 0))
        elif missing is not None and missing > 0:
            message = f"{missing} records are missing before this block"
            yield Damage(Code.MISSING_RECORDS, offset, 0, missing, message, self._next_sequence)
        if missing is not None and missing < 0 and not self._any_order:
            size = BLOCK_HEADER_BYTES + head.payload_size
            message = f"repeats records from {head.sequence} on"
            yield Damage(Code.REPEATED_RECORDS, offset, size, head.record_count, message)
            return
        self._next_sequence = head.end_sequence
        yield head.block(payload, offset)

    def _begin_damage(self, position: int, code: Code) -> None:
        if self._damage_start is None:
            self._damage_start = self._offset + position
            self._damage_end_sequence = 0
            self._damage_code = code

    def _end_damage(self, position: int, event_count: int | None) -> Damage:
        assert self._damage_start is not None
        start, self._damage_start = self._damage_start, None
        size = self._offset + position - start
        return Damage(self._damage_code, start, size, event_count, _DAMAGE_TEXT[self._damage_code], self._next_sequence)

    def _read_file_header(self, data: bytes, final: bool) -> int:
        """Read the file header once it is complete; return its size."""
        size = _FILE_HEADER.size
        if len(data) < size and not final:
            return 0
        saw_magic = data.startswith(FILE_MAGIC)
        fields = _FILE_HEADER.unpack_from(data) if len(data) >= size and saw_magic else None
        if fields is not None:
            if fields[2] == _SWAPPED_MARK:
                raise InputError("written in big-endian byte order; only little-endian logs can be read")
            size = fields[3]
            if size != _FILE_HEADER.size + fields[10] + _CRC.size or size > MAX_HEADER_BYTES:
                fields, size = None, _FILE_HEADER.size
            elif len(data) < size and not final:
                self._need = size
                return 0
        self._header_done = True
        self._need = BLOCK_HEADER_BYTES
        if fields is not None and len(data) >= size:
            self.header = _parse_file_header(fields, data[:size])
        if self.header is not None:
            self._next_sequence = self.header.first_sequence
            return size
        if len(data) < size and FILE_MAGIC.startswith(data[: len(FILE_MAGIC)]):
            code = Code.TRUNCATED
        else:
            code = Code.BAD_FILE_HEADER if saw_magic else Code.NOT_A_LOG
        self._begin_damage(0, code)
        return 0


_DAMAGE_TEXT = {
    Code.DAMAGED_BLOCK: "damaged bytes",
    Code.TRUNCATED: "truncated",
    Code.BAD_FILE_HEADER: "the file header is damaged",
    Code.NOT_A_LOG: "bad magic",
}


def _parse_file_header(fields: tuple[Any, ...], data: bytes) -> FileHeader | None:
    """The header in `data` (all of its bytes; `fields`: the fixed part); None if it is damaged."""
    _, version, _, size, writer_id, clock_hz, device_id, clock, sequence, slice_index, _ = fields
    if crc32(data[: size - _CRC.size]) != _CRC.unpack_from(data, size - _CRC.size)[0]:
        return None
    if version > FORMAT_VERSION:
        raise InputError(f"written in version {version} of the log format; upgrade traceconv to read it")
    try:
        entries = json.loads(data[_FILE_HEADER.size : size - _CRC.size])
        schemas = tuple(parse_record(entry, documented=False) for entry in entries)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None  # the CRC is right, so it was written like this; the blocks may still have known types
    if clock >= len(_CLOCKS) or sequence >> ORDINAL_BITS:
        return None
    if len({schema.tag for schema in schemas}) < len(schemas) or len({s.name for s in schemas}) < len(schemas):
        return None
    device = None if device_id == HOST else device_id
    return FileHeader(writer_id, device, _CLOCKS[clock], clock_hz, sequence, slice_index, schemas, version)


def read_block_header(data: bytes, position: int = 0) -> BlockHeader | None:
    """The block header at `position`, which must be complete; None if it is invalid."""
    magic, tag, record_size, count, payload_crc, sequence, _, header_crc = _BLOCK_HEADER.unpack_from(data, position)
    if magic != BLOCK_MAGIC:
        return None
    if crc32(data[position : position + BLOCK_HEADER_BYTES - _CRC.size]) != header_crc:
        return None
    head = BlockHeader(tag, record_size, count, payload_crc, sequence)
    sound = 0 < head.payload_size <= MAX_PAYLOAD_BYTES and head.end_sequence >> ORDINAL_BITS == 0
    return head if sound else None


def first_block_header(data: bytes) -> BlockHeader | None:
    """The first valid header of a block in `data`."""
    found = _find_block_header(data, 0)
    return read_block_header(data, found) if found + BLOCK_HEADER_BYTES <= len(data) else None


def chained_records(file: BinaryIO, size: int) -> tuple[int, int] | None:
    """(first, end) sequence number of a file of `size` bytes in which all blocks follow each other without a gap.

    None if they don't; the last block may be truncated. Only headers are read: payloads may be damaged.
    """
    head = file.read(_FILE_HEADER.size)
    position = _FILE_HEADER.unpack(head)[3] if len(head) == _FILE_HEADER.size else size
    first: BlockHeader | None = None
    end = 0
    while position + BLOCK_HEADER_BYTES <= size:
        block = os.pread(file.fileno(), BLOCK_HEADER_BYTES, position)
        found = read_block_header(block) if len(block) == BLOCK_HEADER_BYTES else None
        if found is None or (first is not None and (found.sequence, found.tag) != (end, first.tag)):
            return None
        position += BLOCK_HEADER_BYTES + found.payload_size
        first = first or found
        end = found.end_sequence
    return None if first is None else (first.sequence, end)


def read_block(file: BinaryIO, byte_offset: int) -> Block | None:
    """The block at `byte_offset`; None if it is not intact."""
    file.seek(byte_offset)
    data = file.read(BLOCK_HEADER_BYTES)
    head = read_block_header(data) if len(data) == BLOCK_HEADER_BYTES else None
    payload = b"" if head is None else file.read(head.payload_size)
    if head is None or len(payload) < head.payload_size or crc32(payload) != head.payload_crc:
        return None
    return head.block(memoryview(payload), byte_offset)


def _find_block_header(data: bytes, position: int) -> int:
    """Where the next valid block header begins at or after `position`, or may begin if there is none yet."""
    while (found := data.find(BLOCK_MAGIC, position)) >= 0 and found + BLOCK_HEADER_BYTES <= len(data):
        if read_block_header(data, found) is not None:
            return found
        position = found + 1
    return max(position, len(data) - BLOCK_HEADER_BYTES + 1)
