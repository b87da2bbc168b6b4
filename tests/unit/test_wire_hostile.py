"""Hostile log files: huge numbers, deep JSON, false blocks. None of them costs much."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.wire import frames
from traceconv.wire.frames import (
    BLOCK_MAGIC,
    FILE_MAGIC,
    MAX_PAYLOAD_BYTES,
    Block,
    Damage,
    FileHeader,
    FrameDecoder,
    encode_block_header,
    encode_file_header,
)

BEAT = {"name": "beat", "tag": 77, "clock": "host", "fields": [{"name": "x", "type": "u64", "unit": "count"}]}


def file_header(
    text: bytes,
    *,
    version: int = 1,
    mark: int = 0xFEFF,
    header_size: int | None = None,
    schema_size: int | None = None,
    clock: int = 1,
    first_sequence: int = 0,
) -> bytes:
    """A file header whose CRC is right, whatever else is wrong."""
    size = 56 + len(text) + 4 if header_size is None else header_size
    fixed = struct.pack(
        "<8sHHIQQIIQII",
        FILE_MAGIC,
        version,
        mark,
        size,
        1,
        10**9,
        0xFFFFFFFF,
        clock,
        first_sequence,
        0,
        len(text) if schema_size is None else schema_size,
    )
    return fixed + text + struct.pack("<I", zlib.crc32(fixed + text))


def block_header(record_size: int, record_count: int, *, tag: int = 77, crc: int = 0, sequence: int = 0) -> bytes:
    head = struct.pack("<4sHHIIQI", BLOCK_MAGIC, tag, record_size, record_count, crc, sequence, 0)
    return head + struct.pack("<I", zlib.crc32(head))


def good_block(sequence: int = 0) -> bytes:
    return encode_block_header(77, 8, sequence, bytes(16)) + bytes(16)


def read(data: bytes) -> tuple[FileHeader | None, list[Block], list[Damage]]:
    decoder = FrameDecoder()
    got = [*decoder.feed(data), *decoder.finish()]
    blocks = [found for found in got if isinstance(found, Block)]
    return decoder.header, blocks, [found for found in got if isinstance(found, Damage)]


def schema_text(**changes: Any) -> bytes:
    return json.dumps([{**BEAT, **changes}]).encode()


def field_text(**changes: Any) -> bytes:
    return schema_text(fields=[{"name": "x", "type": "u64", "unit": "count", **changes}])


BAD_TEXTS = {
    "no JSON": b"{",
    "empty": b"",
    "not UTF-8": b'[{"name":"\xff\xfe"}]',
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a number": b"5",
    "NaN": b"NaN",
    "no list": b'{"a": 1}',
    "null": b"null",
    "an entry that is no object": b"[1]",
    "long number": b'[{"name":"a","tag":' + b"9" * 5000 + b"}]",
    "tag 0": schema_text(tag=0),
    "tag too large": schema_text(tag=1 << 16),
    "tag is a truth value": schema_text(tag=True),
    "tag is NaN": schema_text(tag=float("nan")),
    "name with a control character": schema_text(name="a\x1b[2J"),
    "name with upper case": schema_text(name="Beat"),
    "long name": schema_text(name="a" * 65),
    "name is a list": schema_text(name=[]),
    "clock unknown": schema_text(clock="sun"),
    "clock is a list": schema_text(clock=[]),
    "no fields": schema_text(fields=[]),
    "fields is a number": schema_text(fields=3),
    "too many fields": schema_text(fields=[{"name": f"x{i}", "type": "u8"} for i in range(257)]),
    "record too large": schema_text(fields=[{"name": f"x{i}", "type": "bytes[9999]"} for i in range(7)]),
    "field twice": schema_text(fields=[{"name": "x", "type": "u8"}] * 2),
    "field is text": schema_text(fields=["x"]),
    "unknown type": field_text(type="u128"),
    "type is a list": field_text(type=["u8"]),
    "no bytes": field_text(type="bytes[0]"),
    "huge bytes": field_text(type="bytes[99999999999]"),
    "null is NaN": field_text(null=float("nan")),
    "null is negative": field_text(null=-1),
    "null is huge": field_text(null=1 << 64),
    "values is a list": field_text(values=[1]),
    "values has no numbers": field_text(values={"one": "a"}),
    "values has a long number": field_text(values={"9" * 5000: "a"}),
    "too many values": field_text(values={str(i): "a" for i in range(257)}),
    "tag twice": json.dumps([BEAT, {**BEAT, "name": "other"}]).encode(),
    "name twice": json.dumps([BEAT, {**BEAT, "tag": 78}]).encode(),
}


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_a_bad_schema_text_loses_the_header_but_no_block(text: bytes) -> None:
    header, blocks, damage = read(file_header(text) + good_block())
    assert header is None
    assert [block.sequence for block in blocks] == [0]
    assert [one.code for one in damage] == [Code.BAD_FILE_HEADER]


@pytest.mark.parametrize(
    "bad",
    [
        file_header(schema_text(), header_size=0xFFFFFFFF, schema_size=0xFFFFFFFF - 60),
        file_header(schema_text(), header_size=(1 << 20) + 1, schema_size=(1 << 20) - 59),
        file_header(schema_text(), header_size=0),
        file_header(schema_text(), header_size=60, schema_size=0),
        file_header(schema_text(), clock=9),
        file_header(schema_text(), first_sequence=1 << 40),
        file_header(schema_text())[:-1] + b"\0",
    ],
)
def test_a_header_with_wrong_numbers_loses_the_header_but_no_block(bad: bytes) -> None:
    header, blocks, damage = read(bad + good_block())
    assert header is None
    assert [block.sequence for block in blocks] == [0]
    assert [one.code for one in damage] == [Code.BAD_FILE_HEADER]


def test_a_newer_version_is_refused_with_a_clear_error() -> None:
    with pytest.raises(InputError, match="version 2 of the log format; upgrade traceconv"):
        read(file_header(schema_text(), version=2))


def test_the_other_byte_order_is_refused_with_a_clear_error() -> None:
    with pytest.raises(InputError, match="big-endian"):
        read(file_header(schema_text(), mark=0xFFFE))


@pytest.mark.parametrize(
    "bad",
    [
        block_header(0xFFFF, 0xFFFFFFFF),
        block_header(8, 0xFFFFFFFF),
        block_header(1, MAX_PAYLOAD_BYTES + 1),
        block_header(0, 5),
        block_header(8, 0),
        block_header(8, 2, sequence=(1 << 64) - 1),
        block_header(8, 2, sequence=(1 << 40) - 2),
    ],
)
def test_impossible_block_headers_are_damage_and_nothing_waits_for_them(bad: bytes) -> None:
    decoder = FrameDecoder()
    got = decoder.feed(encode_file_header(FileHeader(1, None, "host", 1, 0, 0, ())) + bad + good_block())
    assert [type(found) for found in got] == [Damage, Block]
    assert decoder.finish() == []


def test_a_block_larger_than_the_file_is_damage_at_its_end() -> None:
    data = encode_file_header(FileHeader(1, None, "host", 1, 0, 0, ()))
    _, blocks, damage = read(data + block_header(8, 8_000_000) + good_block(8_000_000))
    assert [block.sequence for block in blocks] == [8_000_000]
    assert [(one.code, one.event_count) for one in damage] == [(Code.DAMAGED_BLOCK, 8_000_000)]


def test_a_false_block_inside_a_payload_is_payload() -> None:
    inner = good_block()
    payload = inner + bytes(-len(inner) % 8)
    data = encode_file_header(FileHeader(1, None, "host", 1, 0, 0, ()))
    _, blocks, damage = read(data + encode_block_header(77, 8, 0, payload) + payload)
    assert [bytes(block.payload) for block in blocks] == [payload]
    assert damage == []


class CrcCounter:
    """Replaces crc32, and counts the bytes that it gets."""

    def __init__(self) -> None:
        self.total = 0

    def crc32(self, data: bytes | memoryview) -> int:
        self.total += len(data)
        return zlib.crc32(data)


@pytest.mark.parametrize("chunk_size", [1 << 12, 1 << 20])
def test_false_blocks_in_false_blocks_cost_time_in_proportion_to_the_file(
    monkeypatch: pytest.MonkeyPatch, chunk_size: int
) -> None:
    """Each header is sound and promises a long payload, in which all the others stand."""
    counter = CrcCounter()
    monkeypatch.setattr(frames, "crc32", counter.crc32)
    monkeypatch.setattr(frames, "_FREE_WASTE_BYTES", 1 << 16)
    count = 8192
    data = encode_file_header(FileHeader(1, None, "host", 1, 0, 0, ())) + block_header(8, 10_000, crc=1) * count
    data += good_block()
    decoder = FrameDecoder()
    got: list[Block | Damage] = []
    for start in range(0, len(data), chunk_size):
        got += decoder.feed(data[start : start + chunk_size])
    got += decoder.finish()
    assert [type(found) for found in got] == [Damage, Block]
    assert counter.total < 8 * len(data) + (1 << 17)  # without a limit: 80 000 bytes for each of 8192 headers


def test_magic_bytes_everywhere_cost_time_in_proportion_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CrcCounter()
    monkeypatch.setattr(frames, "crc32", counter.crc32)
    data = BLOCK_MAGIC * (1 << 16)
    decoder = FrameDecoder()
    got: list[Block | Damage] = []
    for start in range(0, len(data), 1 << 10):
        got += decoder.feed(data[start : start + (1 << 10)])
    got += decoder.finish()
    assert [type(found) for found in got] == [Damage]
    assert counter.total < 8 * len(data)


def test_an_empty_file_and_the_start_of_a_header_are_truncated() -> None:
    for data in (b"", FILE_MAGIC[:3], FILE_MAGIC, file_header(schema_text())[:-1]):
        _, _, (damage,) = read(data)
        assert (damage.code, damage.byte_count) == (Code.TRUNCATED, len(data))


def test_zeros_are_not_a_log() -> None:
    _, _, (damage,) = read(bytes(100_000))
    assert (damage.code, damage.byte_offset, damage.byte_count) == (Code.NOT_A_LOG, 0, 100_000)
