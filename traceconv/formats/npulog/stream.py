"""Read one stream of records from all its files: each record once, in order, and which are missing.

If block headers show a gap, a repeat or another order, all blocks are located first and read by sequence number, so
that a copy replaces what is damaged elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from traceconv.base.errors import InputError
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.npulog.discover import LogFile
from traceconv.wire.frames import Block, Damage, FrameDecoder, chained_records, read_block

_CHUNK_BYTES = 2 << 20
#: Maximum bytes of records missing at a gap in sequence numbers, absolute and relative to the size of the stream's
#: files. A larger gap is a wrong sequence number rather than lost records.
_PLAUSIBLE_BYTES = 1 << 30
_PLAUSIBLE_FACTOR = 16


class Ranges:
    """Disjoint ranges of sequence numbers, [first, end)."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in sorted(ranges):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            elif first < end:
                self._firsts.append(first)
                self._ends.append(end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._ends, strict=True)))

    @property
    def count(self) -> int:
        """The number of sequence numbers."""
        return sum(self._ends) - sum(self._firsts)

    def cut(self, first: int, end: int) -> list[tuple[int, int]]:
        """Remove [first, end); return the ranges that were present."""
        low, high = bisect_right(self._ends, first), bisect_left(self._firsts, end)
        if low >= high or first >= end:
            return []
        found = list(zip(self._firsts[low:high], self._ends[low:high], strict=True))
        (start, _), (_, stop) = found[0], found[-1]
        rest = [(f, e) for f, e in ((start, min(first, stop)), (max(end, start), stop)) if f < e]
        self._firsts[low:high], self._ends[low:high] = [f for f, _ in rest], [e for _, e in rest]
        return [(max(first, f), min(end, e)) for f, e in found]

    def take(self, first: int, end: int) -> int:
        """Remove [first, end); return how many numbers were present."""
        return sum(e - f for f, e in self.cut(first, end))

    def take_first(self, count: int) -> None:
        """Remove the first `count` numbers."""
        for first, end in self:
            count -= self.take(first, min(end, first + count))

    def without(self, others: Ranges) -> Ranges:
        """These ranges without those of `others`."""
        rest = Ranges(self)
        for first, end in others:
            rest.take(first, end)
        return rest


def unseen() -> Ranges:
    """All sequence numbers: `cut` then returns what is new in a range."""
    return Ranges([(0, 1 << ORDINAL_BITS)])


def part_of(block: Block, first: int, end: int) -> Block:
    """The records [first, end) of a block, as a block."""
    size = block.record_size
    payload = block.payload[(first - block.sequence) * size : (end - block.sequence) * size]
    return replace(block, record_count=end - first, sequence=first, payload=payload)


def plausible(record_count: int, record_size: int, file_bytes: int) -> bool:
    """Whether `record_count` records can be missing in a stream with files of `file_bytes`."""
    return record_count * max(1, record_size) <= max(_PLAUSIBLE_BYTES, _PLAUSIBLE_FACTOR * file_bytes)


class StreamFile(Protocol):
    """A file of a stream, with its decoder. `tag`: tag of the stream's records; None: unknown."""

    @property
    def file(self) -> LogFile: ...
    @property
    def decoder(self) -> FrameDecoder: ...
    @property
    def tag(self) -> int | None: ...


_F = TypeVar("_F", bound=StreamFile)


@dataclass(slots=True)
class Found(Generic[_F]):
    """A block or damage in a file. Not frozen: creating one for each block would take longer.

    repeated  (records that were read before, whether they are equal)
    """

    file: _F
    item: Block | Damage
    repeated: tuple[int, bool] | None = None


class StreamReader(Generic[_F]):
    """Reads one stream. Use `read` once; then `holes` and `end` show what is missing.

    on_bytes   called with the number of bytes read
    on_refuse  called for a file that can't be read
    """

    def __init__(
        self,
        files: Sequence[_F],
        on_bytes: Callable[[int], None],
        on_refuse: Callable[[_F, OSError | InputError], None],
    ) -> None:
        self._files = files
        self._on_bytes = on_bytes
        self._on_refuse = on_refuse
        self._last: Found[_F] | None = None
        #: (first, end, what follows) of each range without records before the last one found.
        self.holes: list[tuple[int, int, Found[_F]]] = []
        #: Sequence number after the last record found.
        self.end = 0

    def read(self) -> Iterator[Found[_F]]:
        """Blocks with their new records, in order, and damage. `repeated` describes records that were read before."""
        for found in self._in_order() if _is_sound(self._files) else self._sorted():
            yield self._place(found) if isinstance(found.item, Block) and _is_own(found) else found

    def _place(self, found: Found[_F]) -> Found[_F]:
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

    def _in_order(self) -> Iterator[Found[_F]]:
        for file in self._files:
            for item in self._decoded(file):
                if not (isinstance(item, Damage) and item.byte_count == 0):  # a gap, which is in `holes`
                    yield Found(file, item)

    def _sorted(self) -> Iterator[Found[_F]]:
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
                self._on_refuse(file, error)
                continue
            if block is not None:  # otherwise the file has changed meanwhile, and its records are missing
                yield Found(file, block)

    def _decoded(self, file: _F) -> Iterator[Block | Damage]:
        decoder = file.decoder
        try:
            with file.file.path.open("rb", buffering=0) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield from decoder.feed(chunk)
                    self._on_bytes(len(chunk))
            yield from decoder.finish()
        except (OSError, InputError) as error:
            self._on_refuse(file, error)


def _is_own(found: Found[_F]) -> bool:
    """Whether a block belongs to its file's stream: numbers of other blocks count other records."""
    return isinstance(found.item, Block) and found.file.tag in (None, found.item.tag)


def _is_sound(files: Sequence[StreamFile]) -> bool:
    """Whether the files contain the stream in order, each record once, by block headers."""
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
    """The bytes of `count` records of a block, with their type and size."""
    return block.tag, block.record_size, bytes(part_of(block, first, first + count).payload)
