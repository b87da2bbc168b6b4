"""Provenance: the files of a capture, and the ids that came from their byte ranges."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceconv.base.deflate import crc32
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.npulog.discover import LogFile
from traceconv.wire.frames import Block

#: Blocks shorter than this are noted together with the previous block, so that the list stays short.
_SMALL_BYTES = 64 << 10


@dataclass(slots=True)
class SourceFile:
    """A file that is read: its number in the run, its record type and its intact blocks.

    device_id    of the records: from the file's header, or by its folder if that can't be read
    blocks       (first id, events, byte offset, bytes) of each, in the order of the file
    digest       CRC-32 of the block CRCs, chained
    """

    source_id: int
    file: LogFile
    record: str
    device_id: int | None
    blocks: list[tuple[int, int, int, int]] = field(default_factory=list)
    digest: int = 0

    def add_block(self, block: Block) -> int:
        """Note a block; return the id of its first event."""
        first_id = (self.source_id << ORDINAL_BITS) + block.sequence
        self.digest = crc32(block.payload_crc.to_bytes(4, "little"), self.digest)
        if self.blocks and block.byte_count < _SMALL_BYTES:
            last_id, last_count, offset, size = self.blocks[-1]
            adjacent = last_id + last_count == first_id and offset + size == block.byte_offset
            if adjacent and size < _SMALL_BYTES:
                self.blocks[-1] = (last_id, last_count + block.record_count, offset, size + block.byte_count)
                return first_id
        self.blocks.append((first_id, block.record_count, block.byte_offset, block.byte_count))
        return first_id
