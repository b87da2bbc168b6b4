"""The allocator never hands out a byte twice, its totals add up, and it merges free neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.base.errors import ModelError
from traceconv.runtime.memory import Allocator, Block, MemoryEvent, use_of

MIB = 1 << 20


class Log:
    def __init__(self, capacity: int = 1 << 34) -> None:
        self.events: list[MemoryEvent] = []
        self.allocator = Allocator(capacity, self.log)

    def log(self, *fields: Any) -> None:
        self.events.append(MemoryEvent(*fields))

    def alloc(self, size: int, pool: str = "dynamic") -> Block:
        return self.allocator.alloc(size, use_of(pool, "activation", "t", 1), len(self.events))

    def free(self, block: Block) -> None:
        self.allocator.free(block, len(self.events))


@given(st.lists(st.tuples(st.sampled_from(("a", "b")), st.integers(0, 5 * MIB)), max_size=40), st.randoms())
def test_blocks_never_overlap_and_totals_add_up(wishes: list[tuple[str, int]], random: object) -> None:
    log = Log()
    live: list[Block] = []
    for pool, size in wishes:
        block = log.alloc(size, pool)
        assert block.size_bytes >= size and block.address % 512 == 0
        for other in live:
            apart = (
                block.address + block.size_bytes <= other.address or other.address + other.size_bytes <= block.address
            )
            assert apart
        live.append(block)
        if len(live) > 3:
            log.free(live.pop(getattr(random, "randrange")(len(live))))  # noqa: B009 - hypothesis gives no type
        assert log.allocator.used_bytes == sum(b.size_bytes for b in live) <= log.allocator.reserved_bytes
    for block in live:
        log.free(block)
    assert log.allocator.used_bytes == 0
    log.allocator.release(0)
    assert log.allocator.reserved_bytes == 0
    assert log.events == [] or log.events[-1].reserved_bytes == 0
    ids = [event.block_id for event in log.events if event.origin.event == "alloc"]
    assert len(set(ids)) == len(ids) and 0 not in ids


def test_freed_memory_is_used_again_before_more_is_reserved() -> None:
    log = Log()
    first = log.alloc(MIB)
    log.free(first)
    assert log.alloc(MIB).address == first.address
    assert sum(event.origin.kind == "segment" for event in log.events) == 1


def test_the_smallest_hole_that_fits_is_taken() -> None:
    log = Log()
    blocks = [log.alloc(size) for size in (512 * 1024, 1024, 64 * 1024, 1024, 128 * 1024, 1024)]
    for block in (blocks[0], blocks[2], blocks[4]):
        log.free(block)
    assert log.alloc(60 * 1024).address == blocks[2].address
    assert log.alloc(100 * 1024).address == blocks[4].address


def test_neighbours_join_when_they_are_free() -> None:
    log = Log()
    blocks = [log.alloc(MIB // 2) for _ in range(4)]
    for block in (blocks[0], blocks[2], blocks[1], blocks[3]):
        log.free(block)
    assert log.alloc(2 * MIB).address == blocks[0].address
    assert log.allocator.reserved_bytes == 2 * MIB


def test_pools_do_not_share_segments() -> None:
    log = Log()
    a, b = log.alloc(512, "weight"), log.alloc(512, "dynamic")
    assert abs(a.address - b.address) >= 2 * MIB


def test_unused_segments_can_be_returned_to_a_full_device() -> None:
    log = Log(6 * MIB)
    allocator = log.allocator
    unused, used, half = log.alloc(2 * MIB, "a"), log.alloc(2 * MIB, "b"), log.alloc(MIB, "b")
    log.free(unused)
    assert not allocator.must_reserve(2 * MIB, "a") and not allocator.must_reserve(MIB, "b")
    assert allocator.must_reserve(2 * MIB, "b") and not allocator.has_memory(1)
    allocator.return_unused(lambda: 77)
    assert log.events[-1][:6] == (77, 1, unused.address, 2 * MIB, 3 * MIB, 4 * MIB)
    assert allocator.has_memory(2 * MIB) and not allocator.has_memory(2 * MIB + 1)
    assert allocator.must_reserve(1, "a") and not allocator.must_reserve(1, "b")
    assert log.alloc(2 * MIB, "b").address > half.address > used.address
    assert allocator.reserved_bytes == 6 * MIB


def test_the_device_can_be_full() -> None:
    log = Log(capacity=4 * MIB)
    log.alloc(3 * MIB)
    log.alloc(MIB)
    with pytest.raises(ModelError, match="more memory than the device has"):
        log.alloc(512)
