"""The entries of a device's allocator in order → changes of memory, with what the recording doesn't have."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from traceconv.base.integers import LARGEST
from traceconv.formats.torch_memory.unpickle import CallStack

#: The number of the host, whose pinned memory newer snapshots have.
HOST = -1
#: Actions → whether memory is taken (1) or returned (-1), and whether it is a segment's.
_CHANGES = {
    "alloc": (1, False),
    "free_completed": (-1, False),
    "segment_alloc": (1, True),
    "segment_map": (1, True),
    "segment_free": (-1, True),
    "segment_unmap": (-1, True),
}
#: Characters of a text in a row, which any number of entries may refer to.
_MOST_TEXT, _MOST_FRAMES = 1000, 1000
#: States of blocks that are in use: the second until work on other streams has ended.
_IN_USE = ("active_allocated", "active_pending_free", "active_awaiting_free")
#: The name of all rows that change memory, and of those that describe call stacks.
CHANGE, CALL_STACK = "memory", "call stack"
_PYTHON = re.compile(r"(?:.*\.py|<.*>)\(\d+\): ", re.DOTALL)
_OPERATOR = re.compile(r"(?:.*: )?at::_ops::(?!_?(?:new_)?empty|resize_)(\w+)::", re.DOTALL)
_ALLOCATOR = re.compile(r"(?:.*: )?(?:c10::|torch::unwind|torch::CapturedTraceback|unwind)", re.DOTALL)


class Row(NamedTuple):
    """An event. `size_bytes`: negative for what is returned; `origin`: the position of its entry."""

    ts_ns: int
    name: str
    category: str | None
    device: int
    origin: tuple[str, int]
    address: int | None = None
    size_bytes: int | None = None
    stream: int | None = None
    is_segment: bool = False
    is_before: bool = False
    stack: CallStack | None = None
    device_free: int | None = None
    metadata: str | None = None
    compile_context: str | None = None


class Device:
    """One device: the entries of its trace, then the segments it had when the snapshot was taken."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.entry_count = self.damaged = self.untimed = self.backward = 0
        self.freed_before = self.not_freed = self.in_use_before = 0
        self.first_ns: int | None = None
        #: Blocks in use according to the trace, by address.
        self._live: dict[int, int] = {}
        self._reserved = _Ranges()
        self._blocks: list[tuple[int, int, int | None, str, CallStack | None]] = []
        self._segments: list[tuple[int, int, int | None, CallStack | None]] = []
        self._us = self._ns = -1
        self._rose = False

    @property
    def held_count(self) -> int:
        """Blocks and segments that are kept until the end."""
        return len(self._live) + len(self._reserved) + len(self._blocks) + len(self._segments)

    def entries(self, items: list[Any]) -> Iterator[Row]:
        """Yield the rows of the next entries of the trace."""
        for entry in items:
            number = self.entry_count
            self.entry_count += 1
            action = entry.get("action") if type(entry) is dict else None
            size, stream = (_size(entry.get(key)) for key in ("size", "stream")) if action else (None, None)
            change = _CHANGES.get(action) if type(action) is str else None
            address = _address(entry.get("addr")) if action else None
            if type(action) is not str or len(action) > _MOST_TEXT or (change and (address is None or size is None)):
                self.damaged += 1
                continue
            ns = self._time(entry.get("time_us"), change[0] if change else 0)
            if ns is None:
                self.damaged += 1
                continue
            row = Row(
                ns,
                CHANGE if change else action,
                action,
                self.number,
                ("trace", number),
                address,
                size,
                stream,
                stack=_stack(entry),
                device_free=_size(entry.get("device_free")),
                metadata=text_of(entry.get("user_metadata")),
                compile_context=text_of(entry.get("compile_context")),
            )
            if change is None or address is None or size is None:
                yield row
            elif change[1]:
                yield from self._segment(row._replace(is_segment=True), address, size, change[0])
            else:
                self._count_block(address, size, change[0])
                yield row._replace(size_bytes=change[0] * size)

    def segment(self, segment: Any) -> bool:
        """Take a segment of the snapshot, with its blocks; return whether it is intact."""
        address, size = (_address(segment.get("address")), _size(segment.get("total_size")))
        blocks = segment.get("blocks")
        if address is None or size is None or type(blocks) is not list:
            return False
        stream = _size(segment.get("stream"))
        self._segments.append((address, size, stream, _stack(segment)))
        for block in blocks:
            if type(block) is not dict or (length := _size(block.get("size"))) is None:
                return False
            given, state = _address(block.get("address")), block.get("state")
            at = address if given is None else given
            address = at + length
            if state in _IN_USE:
                requested = _size(block.get("requested_size"))
                self._blocks.append((at, length if requested is None else requested, stream, state, _stack(block)))
        return True

    def before(self, first_ns: int) -> Iterator[Row]:
        """Yield rows for what was in use when the snapshot was taken, but not taken in the trace: before it."""
        origin = ("segments", 0)
        for address, size, stream, state, stack in self._blocks:
            if address not in self._live:
                self.in_use_before += 1
                found = (address, size, stream, False, True, stack)
                yield Row(first_ns, CHANGE, state, self.number, origin, *found)
        for address, size, stream, stack in self._segments:
            for gap, length in self._reserved.gaps(address, address + size):
                yield Row(first_ns, CHANGE, "segment", self.number, origin, gap, length, stream, True, True, stack)

    def _time(self, us: object, sign: int) -> int | None:
        """Return the time of the next entry; None if it is out of range.

        Entries without a time are 1 ns apart. Within a microsecond, memory that is returned after other was taken is
        returned 1 ns later, so that the sum between has a time.
        """
        if type(us) is not int:
            self.untimed += us is None
            ns = self._ns + 1
        elif not 0 <= us <= LARGEST // 1000 - 1:
            return None
        elif us <= self._us:
            self.backward += us < self._us
            ns = self._ns + (sign < 0 and self._rose)
        else:
            self._us, ns = us, max(us * 1000, self._ns)
        self._rose = sign > 0 or (self._rose and ns == self._ns)
        self._ns = ns
        if self.first_ns is None:
            self.first_ns = ns
        return ns

    def _count_block(self, address: int, size: int, sign: int) -> None:
        if sign > 0:
            self.not_freed += address in self._live
            self._live[address] = size
        elif self._live.pop(address, None) is None:
            self.freed_before += 1

    def _segment(self, row: Row, address: int, size: int, sign: int) -> Iterator[Row]:
        """Yield the rows of a segment. If a part is unmapped, the parts that are left are segments from then on."""
        if sign > 0:
            self._reserved.add(address, size)
            yield row._replace(size_bytes=size)
            return
        end = address + size
        for gap, length in list(self._reserved.gaps(address, end)):
            yield row._replace(address=gap, size_bytes=-length)
        for start, length in self._reserved.take(address, end):
            yield row._replace(address=start, size_bytes=-length)
            for left, right in ((start, address), (end, start + length)):
                if left < right:
                    self._reserved.add(left, right - left)
                    yield row._replace(address=left, size_bytes=right - left)


class _Ranges:
    """Disjoint ranges of addresses."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, size: int) -> None:
        self.take(start, start + size)
        if size:
            insort(self._starts, start)
            self._sizes[start] = size

    def take(self, start: int, end: int) -> list[tuple[int, int]]:
        """Remove the ranges that overlap with one; return them."""
        first, last = self._places(start, end)
        found = [(one, self._sizes.pop(one)) for one in self._starts[first:last]]
        del self._starts[first:last]
        return found

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range that are in none of these."""
        first, last = self._places(start, end)
        for one in self._starts[first:last]:
            if start < one:
                yield start, one - start
            start = max(start, one + self._sizes[one])
        if start < end:
            yield start, end - start

    def _places(self, start: int, end: int) -> tuple[int, int]:
        first = bisect_right(self._starts, start)
        if first and self._starts[first - 1] + self._sizes[self._starts[first - 1]] > start:
            first -= 1
        return first, bisect_left(self._starts, end, first)


def allocated_by(stack: CallStack) -> str:
    """Return the innermost function in Python, else the operator, else the function that called the allocator."""
    frames = stack.frames[:_MOST_FRAMES]
    for frame in frames:
        if _PYTHON.match(frame):
            return frame
    for frame in frames:
        if operator := _OPERATOR.match(frame):
            return f"aten::{operator[1]}"
    return next((frame for frame in frames if not _ALLOCATOR.match(frame)), frames[0])


def plain(value: Any, depth: int = 2) -> Any:
    """Return a value of a few levels and items as JSON has it; None for others, which could refer to themselves."""
    if type(value) is dict and depth:
        return {key: plain(one, depth - 1) for key, one in islice(value.items(), 200)}
    if type(value) in (list, tuple) and depth:
        return [plain(one, depth - 1) for one in value[:200]]
    is_int64 = type(value) is int and -LARGEST <= value <= LARGEST
    return value if is_int64 or type(value) in (str, float, bool) else None


def _size(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= LARGEST else None


def _address(value: object) -> int | None:
    if type(value) is not int:
        return None
    unsigned = value + (1 << 64) if value < 0 else value
    return unsigned if 0 <= unsigned < 1 << 64 else None


def _stack(item: dict[str, Any]) -> CallStack | None:
    stack = item.get("frames")
    return stack if type(stack) is CallStack else None


def text_of(value: object) -> str | None:
    """Return a text, cut if it is long; None for anything else, and for what PyTorch writes for no text."""
    return value[:_MOST_TEXT] if type(value) is str and value not in ("", "N/A") else None
