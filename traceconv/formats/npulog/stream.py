"""Read one stream of records from its files: each record once, in order, with the gaps.

If block headers show a gap, a repeat or another order, all blocks are located first and read by sequence number, so
that a copy replaces what is damaged elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.base.errors import InputError
from traceconv.formats.npulog.blocks import part_of
from traceconv.formats.npulog.file_reading import FileReading
from traceconv.wire.frames import Block, Damage, chained_records, read_block

_CHUNK_BYTES = 2 << 20
#: Maximum bytes of records missing at a gap in sequence numbers, absolute and relative to the size of the stream's
#: files. A larger gap is a wrong sequence number rather than lost records.
_PLAUSIBLE_BYTES = 1 << 30
_PLAUSIBLE_FACTOR = 16


def plausible(record_count: int, record_size: int, file_bytes: int) -> bool:
    """Whether `record_count` records can be missing in a stream with files of `file_bytes`."""
    return record_count * max(1, record_size) <= max(_PLAUSIBLE_BYTES, _PLAUSIBLE_FACTOR * file_bytes)


@dataclass(slots=True)
class Found:
    """A block or damage in a file. Not frozen, since frozen objects are slower to create.

    repeated  (number of leading records that were read before, whether they are equal)
    """

    file: FileReading
    item: Block | Damage
    repeated: tuple[int, bool] | None = None


class StreamReader:
    """Reads one stream. Call `read` once; `holes` and `end` then show what is missing."""

    def __init__(self, files: Sequence[FileReading], on_bytes: Callable[[int], None]) -> None:
        self._files = files
        self._on_bytes = on_bytes
        self._last: Found | None = None
        #: (first, end, what follows) of each range without records before the last one found.
        self.holes: list[tuple[int, int, Found]] = []
        #: Sequence number after the last record found.
        self.end = 0

    def read(self) -> Iterator[Found]:
        """Yield blocks with their new records, in order, and damage."""
        for found in self._in_order() if _is_in_order(self._files) else self._sorted():
            yield self._place(found) if isinstance(found.item, Block) and _is_own(found) else found

    def _place(self, found: Found) -> Found:
        block = found.item
        assert isinstance(block, Block)
        end = block.sequence + block.record_count
        if block.sequence > self.end:
            self.holes.append((self.end, block.sequence, found))
        if block.sequence >= self.end:
            self.end, self._last = end, found
            return found
        known = min(end, self.end) - block.sequence
        before = self._last.item if self._last else None
        same = isinstance(before, Block) and _records(before, block.sequence, known) == _records(
            block, block.sequence, known
        )
        if end > self.end:
            self.end, self._last = end, found
        return Found(found.file, part_of(block, block.sequence + known, end), (known, same))

    def _in_order(self) -> Iterator[Found]:
        for file in self._files:
            for item in self._decoded(file):
                if not (isinstance(item, Damage) and item.byte_count == 0):  # a gap, which is in `holes`
                    yield Found(file, item)

    def _sorted(self) -> Iterator[Found]:
        places: list[list[int]] = [[], [], []]
        for number, file in enumerate(self._files):
            for item in self._decoded(file):
                found = Found(file, item)
                if isinstance(item, Block) and _is_own(found):
                    for column, value in zip(places, (item.sequence, number, item.byte_offset), strict=True):
                        column.append(value)
                elif isinstance(item, Block) or item.byte_count:
                    yield found
        columns = [np.array(column, np.int64) for column in places]
        order = np.lexsort(columns[::-1])
        for number, offset in zip(columns[1][order].tolist(), columns[2][order].tolist(), strict=True):
            file = self._files[number]
            try:
                with file.file.path.open("rb", buffering=0) as stream:
                    block = read_block(stream, offset)
            except OSError as error:
                file.refuse(error)
                continue
            if block is not None:  # otherwise the file has changed, and its records count as missing
                yield Found(file, block)

    def _decoded(self, file: FileReading) -> Iterator[Block | Damage]:
        decoder = file.decoder
        try:
            with file.file.path.open("rb", buffering=0) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield from decoder.feed(chunk)
                    self._on_bytes(len(chunk))
            yield from decoder.finish()
        except (OSError, InputError) as error:
            file.refuse(error)


def _is_own(found: Found) -> bool:
    """Whether a block belongs to its file's stream. Others have sequence numbers of another stream."""
    return isinstance(found.item, Block) and found.file.tag in (None, found.item.tag)


def _is_in_order(files: Sequence[FileReading]) -> bool:
    """Whether the block headers show each record once, in order."""
    known_to = 0
    for file in files:
        try:
            with file.file.path.open("rb", buffering=0) as stream:
                chained = chained_records(stream, file.file.size_bytes)
        except OSError:
            continue  # reported when it is read
        if chained is None or chained[0] < known_to:
            return False
        known_to = chained[1]
    return True


def _records(block: Block, first: int, count: int) -> tuple[int, int, bytes]:
    """Return type, size and bytes of `count` records of a block."""
    return block.tag, block.record_size, bytes(part_of(block, first, first + count).payload)
