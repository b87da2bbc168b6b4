"""The device's memory: segments reserved from the device, with blocks allocated by best fit and reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from traceconv.base.errors import ModelError, option
from traceconv.runtime.cost import ceil_div

_ALIGN_BYTES = 512
_SEGMENT_BYTES = 2 << 20
_BASE_ADDRESS = 0x1000_0000_0000
#: Gap between segments, so that addresses out of bounds are in no segment.
_GAP_BYTES = 2 << 20


@dataclass(slots=True, eq=False)
class Block:
    """A range of a segment, with its neighbours there. `block_id` is 0 while it is free."""

    pool: str
    address: int
    size_bytes: int
    block_id: int = 0
    previous: Block | None = None
    next: Block | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """What changes of memory have in common: an alloc or free (`event`) of blocks or segments (`kind`) of a pool, and
    what for. Logs find it by identity: one object for each op's tensor, not one for each change.
    """

    event: str
    kind: str
    pool: str
    purpose: str = "allocator"
    tensor_name: str | None = None
    op_index: int | None = None


class MemoryEvent(NamedTuple):
    """A change of memory, with the totals after it."""

    host_ns: int
    block_id: int
    address: int
    size_bytes: int
    used_bytes: int
    reserved_bytes: int
    origin: Origin


def use_of(pool: str, purpose: str, tensor: str | None = None, op: int | None = None) -> Origin:
    """Return the origin of allocations of blocks."""
    return Origin("alloc", "block", pool, purpose, tensor, op)


@dataclass(slots=True)
class Allocator:
    """Arena allocator over the memory of one device.

    log     gets every change, as the fields of a `MemoryEvent`: making one takes as long as logging it
    ids     numbers blocks and segments: one source for all devices of a capture
    wanted  returns whether changes are logged at present
    """

    capacity_bytes: int
    log: Callable[..., object]
    ids: Iterator[int] = field(default_factory=lambda: count(1))
    wanted: Callable[[], bool] = lambda: True
    used_bytes: int = 0
    reserved_bytes: int = 0
    #: Whether segments were returned because the device had no more memory.
    has_returned: bool = False
    _free: dict[str, list[Block]] = field(default_factory=dict)
    _frees: dict[str, Origin] = field(default_factory=dict)
    _segments: list[tuple[int, Block, int]] = field(default_factory=list)
    _next_address: int = _BASE_ADDRESS

    def alloc(self, size_bytes: int, origin: Origin, now_ns: int) -> Block:
        """Return the smallest free block of at least `size_bytes`, or one in a new segment.

        Raises ModelError when the device has no more memory.
        """
        pool = origin.pool
        size = max(1, ceil_div(size_bytes, _ALIGN_BYTES)) * _ALIGN_BYTES
        fitting = [block for block in self._free.setdefault(pool, []) if block.size_bytes >= size]
        if fitting:
            block = min(fitting, key=lambda b: (b.size_bytes, b.address))
            self._free[pool].remove(block)
        else:
            block = self._reserve(size, pool, now_ns)
        if block.size_bytes > size:
            rest = Block(pool, block.address + size, block.size_bytes - size, 0, block, block.next)
            if block.next is not None:
                block.next.previous = rest
            block.next, block.size_bytes = rest, size
            self._free[pool].append(rest)
        block.block_id = next(self.ids)
        block.origin = origin
        self.used_bytes += size
        if self.wanted():
            self.log(now_ns, block.block_id, block.address, size, self.used_bytes, self.reserved_bytes, origin)
        return block

    def free(self, block: Block, now_ns: int) -> None:
        """Free a block: it merges with free neighbours and is available to its pool."""
        block_id, block.block_id = block.block_id, 0
        self.used_bytes -= block.size_bytes
        if self.wanted():
            origin = self._frees[block.pool]
            self.log(
                now_ns, block_id, block.address, block.size_bytes, self.used_bytes, self.reserved_bytes, origin
            )  # fmt: skip
        free = self._free[block.pool]
        if block.next is not None and block.next.block_id == 0:
            free.remove(block.next)
            self._absorb(block, block.next)
        if block.previous is not None and block.previous.block_id == 0:
            free.remove(block.previous)
            self._absorb(block.previous, block)
            block = block.previous
        free.append(block)

    def must_reserve(self, size_bytes: int, pool: str) -> bool:
        """Whether an allocation needs a new segment, and the device has, or once had, no memory for one."""
        is_short = self.has_returned or not self.has_memory(size_bytes)
        return is_short and all(block.size_bytes < size_bytes for block in self._free.get(pool, ()))

    def has_memory(self, size_bytes: int) -> bool:
        """Whether the device has memory for a segment of this size."""
        return self.reserved_bytes - -size_bytes // _SEGMENT_BYTES * _SEGMENT_BYTES <= self.capacity_bytes

    def return_unused(self, now_ns: Callable[[], int]) -> None:
        """Return the segments without blocks in use to the device, each at the time that `now_ns` returns."""
        for segment in self._segments[:]:
            _, first, size = segment
            if first.block_id == 0 and first.size_bytes == size:
                self.has_returned = True
                self._free[first.pool].remove(first)
                self._segments.remove(segment)
                self._return(segment, now_ns())

    def _return(self, segment: tuple[int, Block, int], now_ns: int) -> None:
        segment_id, first, size = segment
        self.reserved_bytes -= size
        self._log_segment("free", now_ns, segment_id, first, size)

    def held(self, now_ns: int) -> Iterator[MemoryEvent]:
        """Yield everything that is allocated, as allocations at `now_ns`: for a log that begins now."""
        used = reserved = 0
        for segment_id, first, size in self._segments:
            reserved += size
            origin = Origin("alloc", "segment", first.pool)
            yield MemoryEvent(now_ns, segment_id, first.address, size, used, reserved, origin)
            block: Block | None = first
            while block is not None:
                if block.block_id and block.origin is not None:
                    used += block.size_bytes
                    origin = replace(block.origin, op_index=None)
                    yield MemoryEvent(
                        now_ns, block.block_id, block.address, block.size_bytes, used, reserved, origin
                    )  # fmt: skip
                block = block.next

    def release(self, now_ns: int) -> None:
        """Return every segment to the device; no block may be in use."""
        assert not self.used_bytes, f"{self.used_bytes} bytes are still in use"
        for segment in self._segments:
            self._return(segment, now_ns)
        self._segments.clear()
        self._free.clear()

    def _reserve(self, size: int, pool: str, now_ns: int) -> Block:
        total = ceil_div(size, _SEGMENT_BYTES) * _SEGMENT_BYTES
        if not self.has_memory(size):
            raise ModelError(
                f"the model needs more memory than the device has: {self.used_bytes + size} of "
                f"{self.capacity_bytes} bytes; try a smaller {option('--batch')}"
            )
        block = Block(pool, self._next_address, total)
        self._next_address += total + _GAP_BYTES
        self.reserved_bytes += total
        segment_id = next(self.ids)
        self._segments.append((segment_id, block, total))
        self._log_segment("alloc", now_ns, segment_id, block, total)
        self._frees.setdefault(pool, Origin("free", "block", pool))
        return block

    @staticmethod
    def _absorb(block: Block, following: Block) -> None:
        block.size_bytes += following.size_bytes
        block.next = following.next
        if following.next is not None:
            following.next.previous = block

    def _log_segment(self, event: str, now_ns: int, segment_id: int, block: Block, size: int) -> None:
        if self.wanted():
            origin = Origin(event, "segment", block.pool)
            self.log(now_ns, segment_id, block.address, size, self.used_bytes, self.reserved_bytes, origin)
