"""Framing: any split yields the same blocks; damage affects only the blocks that it hits, and is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.schema import record
from traceconv.schema.dtypes import dtype_of
from traceconv.schema.model import Field, RecordSchema
from traceconv.wire.codec import encode_block
from traceconv.wire.frames import Block, Damage, FileHeader, FrameDecoder, encode_block_header, encode_file_header

SCHEMA = record("sync")


@dataclass(frozen=True)
class Log:
    """A log file as it was written; `bounds` are the offsets of its blocks, and its end."""

    data: bytes
    counts: tuple[int, ...]
    bounds: tuple[int, ...]
    first_sequence: int = 0

    @property
    def written(self) -> int:
        return sum(self.counts)


def make_log(counts: Sequence[int], first_sequence: int = 0, seed: int = 0) -> Log:
    generator = np.random.default_rng(seed)
    data = encode_file_header(FileHeader(7, 0, "device", 10**8, first_sequence, 0, (SCHEMA,)))
    bounds = [len(data)]
    sequence = first_sequence
    for count in counts:
        records = np.frombuffer(generator.bytes(count * SCHEMA.size_bytes), dtype_of(SCHEMA))
        data += b"".join(encode_block(SCHEMA, records, sequence))
        sequence += count
        bounds.append(len(data))
    return Log(data, tuple(counts), tuple(bounds), first_sequence)


LOGS = st.builds(
    make_log, st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 1 << 30), st.integers(0, 1 << 16)
)


def read(data: bytes, cuts: Sequence[int] = ()) -> list[Block | Damage]:
    decoder = FrameDecoder()
    got: list[Block | Damage] = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        got += decoder.feed(data[start:end])
    return got + decoder.finish()


def cuts_of(data: bytes) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(data)), max_size=12).map(sorted)


def damaged(log: Log) -> st.SearchStrategy[bytes]:
    """The log after a few accidents."""
    place = st.integers(0, len(log.data))
    accident = st.tuples(st.sampled_from(["flip", "zero", "delete", "insert", "duplicate", "cut"]), place, place)
    return st.lists(st.tuples(accident, st.binary(max_size=40)), min_size=1, max_size=4).map(
        lambda accidents: _apply(log.data, accidents)
    )


def _apply(data: bytes, accidents: list[tuple[tuple[str, int, int], bytes]]) -> bytes:
    for (kind, one, other), extra in accidents:
        start, end = sorted((min(one, len(data)), min(other, len(data))))
        if kind == "flip" and start < len(data):
            data = data[:start] + bytes([data[start] ^ (1 << (end % 8))]) + data[start + 1 :]
        elif kind == "zero":
            data = data[:start] + bytes(min(end - start, 64)) + data[min(end, start + 64) :]
        elif kind == "delete":
            data = data[:start] + data[end:]
        elif kind == "insert":
            data = data[:start] + extra + data[start:]
        elif kind == "duplicate":
            data = data[:end] + data[start:end] + data[end:]
        elif kind == "cut":
            data = data[:end]
    return data


@given(log=LOGS, data=st.data())
def test_any_split_yields_the_same_blocks(log: Log, data: st.DataObject) -> None:
    whole = read(log.data)
    assert [block.record_count for block in whole if isinstance(block, Block)] == list(log.counts)
    assert (
        b"".join(log.data[: log.bounds[0]] for _ in "x")
        + b"".join(log.data[block.byte_offset : block.byte_offset + block.byte_count] for block in whole)
        == log.data
    )
    assert read(log.data, data.draw(cuts_of(log.data))) == whole


@given(log=LOGS)
def test_a_byte_at_a_time_yields_the_same_blocks(log: Log) -> None:
    assert read(log.data, range(1, len(log.data))) == read(log.data)


@settings(max_examples=150)
@given(log=LOGS, data=st.data())
def test_damage_never_invents_records_and_any_split_yields_the_same(log: Log, data: st.DataObject) -> None:
    hurt = data.draw(damaged(log))
    originals = {(block.sequence, bytes(block.payload)) for block in read(log.data) if isinstance(block, Block)}
    try:
        got = read(hurt)
    except InputError:
        return  # the header says another byte order or a newer version
    blocks = [found for found in got if isinstance(found, Block)]
    assert all((block.sequence, bytes(block.payload)) in originals for block in blocks)
    ends = [block.sequence + block.record_count for block in blocks]
    assert all(block.sequence >= end for end, block in zip(ends, blocks[1:], strict=False))
    assert read(hurt, data.draw(cuts_of(hurt))) == got


@settings(max_examples=150)
@given(log=LOGS, data=st.data())
def test_every_byte_is_in_a_block_or_in_damage(log: Log, data: st.DataObject) -> None:
    hurt = data.draw(damaged(log))
    decoder = FrameDecoder()
    try:
        got = [*decoder.feed(hurt), *decoder.finish()]
    except InputError:
        return
    position = 0 if decoder.header is None else int.from_bytes(hurt[12:16], "little")
    for found in got:
        assert found.byte_offset == position
        position += found.byte_count
    assert position == len(hurt)


@settings(max_examples=150)
@given(log=LOGS, data=st.data())
def test_records_are_accounted_for_when_header_and_tail_are_intact(log: Log, data: st.DataObject) -> None:
    """Read + known lost = written, whatever happens between the file header and the last block."""
    inner = Log(log.data[log.bounds[0] : log.bounds[-2]], (), ())
    hurt = log.data[: log.bounds[0]] + data.draw(damaged(inner)) + log.data[log.bounds[-2] :]
    got = read(hurt)
    blocks = [found for found in got if isinstance(found, Block)]
    assert blocks[-1].sequence + blocks[-1].record_count == log.first_sequence + log.written
    lost = [found for found in got if isinstance(found, Damage) and found.code is not Code.REPEATED_RECORDS]
    assert all(one.code is not Code.TRUNCATED for one in lost)
    assert sum(block.record_count for block in blocks) + sum(one.event_count or 0 for one in lost) == log.written
    assert all(one.event_count is not None for one in lost)


@given(log=LOGS, data=st.data())
def test_a_flipped_bit_loses_one_block(log: Log, data: st.DataObject) -> None:
    place = data.draw(st.integers(log.bounds[0], len(log.data) - 1))
    hurt = bytearray(log.data)
    hurt[place] ^= 1 << data.draw(st.integers(0, 7))
    index = max(i for i, bound in enumerate(log.bounds) if bound <= place)
    got = read(bytes(hurt))
    kept = [block.record_count for block in got if isinstance(block, Block)]
    assert kept == [count for i, count in enumerate(log.counts) if i != index]
    (damage,) = [found for found in got if isinstance(found, Damage)]
    assert (damage.byte_offset, damage.byte_count) == (log.bounds[index], log.bounds[index + 1] - log.bounds[index])
    assert damage.code is Code.DAMAGED_BLOCK
    last_header_hurt = index == len(log.counts) - 1 and place < log.bounds[index] + 32
    assert damage.event_count == (None if last_header_hurt else log.counts[index])


@given(log=LOGS, data=st.data())
def test_a_truncated_file_loses_only_its_end(log: Log, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(log.data)))
    got = read(log.data[:end])
    whole = sum(1 for bound in log.bounds[1:] if bound <= end)
    assert [b.record_count for b in got if isinstance(b, Block)] == list(log.counts[:whole])
    damage = [found for found in got if isinstance(found, Damage)]
    if end in log.bounds:
        assert damage == []
    else:
        (one,) = damage
        assert one.code is Code.TRUNCATED
        assert one.byte_offset + one.byte_count == end
        if end >= log.bounds[0] and end - log.bounds[whole] >= 32:
            assert one.event_count == log.counts[whole]  # its header is there and tells


@given(log=LOGS, data=st.data())
def test_missing_blocks_are_counted(log: Log, data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(log.counts) - 1))
    got = read(log.data[: log.bounds[gone]] + log.data[log.bounds[gone + 1] :])
    lost = [found for found in got if isinstance(found, Damage)]
    if gone == len(log.counts) - 1:
        assert lost == []  # only a manifest can tell
    else:
        (one,) = lost
        assert (one.code, one.event_count, one.byte_count) == (Code.MISSING_RECORDS, log.counts[gone], 0)


@given(log=LOGS, data=st.data())
def test_a_repeated_block_is_read_once(log: Log, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(log.counts) - 1))
    start, end = log.bounds[index], log.bounds[index + 1]
    got = read(log.data[:end] + log.data[start:end] + log.data[end:])
    assert [b.record_count for b in got if isinstance(b, Block)] == list(log.counts)
    (damage,) = [found for found in got if isinstance(found, Damage)]
    assert (damage.code, damage.byte_offset, damage.byte_count) == (Code.REPEATED_RECORDS, end, end - start)
    assert damage.event_count == log.counts[index]


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), tag=st.integers(200, 0xFFFF))
def test_blocks_of_unknown_types_are_skipped_and_counted(counts: list[int], tag: int) -> None:
    """The framing needs no schema: types of newer writers come out as blocks with their record counts."""
    schema = RecordSchema("later", tag, "none", "", "", (Field("x", "u32", "count", ""),))
    data = encode_file_header(FileHeader(7, None, "host", 1, 0, 0, (schema,)))
    sequence = 0
    for count in counts:
        payload = bytes(4 * count)
        data += encode_block_header(tag, 4, sequence, payload) + payload
        sequence += count
    got = read(data)
    assert [(b.tag, b.record_size, b.record_count) for b in got if isinstance(b, Block)] == [
        (tag, 4, count) for count in counts
    ]
    assert len(got) == len(counts)


@settings(max_examples=150)
@given(data=st.binary(max_size=300))
def test_bytes_that_are_not_a_log_are_damage(data: bytes) -> None:
    (damage,) = read(data)
    assert isinstance(damage, Damage)
    assert (damage.byte_offset, damage.byte_count) == (0, len(data))
