"""File header and block header, byte by byte."""

from __future__ import annotations

import zlib

from traceconv.schema.model import Field, RecordSchema
from traceconv.wire.frames import (
    Block,
    FileHeader,
    FrameDecoder,
    encode_block_header,
    encode_file_header,
)

SCHEMA = RecordSchema(
    "beat", 77, "device", "", "", (Field("ticks", "u64", "tick", ""), Field("name", "str", "", "", 0))
)
SCHEMA_TEXT = (
    b'[{"name":"beat","tag":77,"clock":"device","fields":'
    b'[{"name":"ticks","type":"u64","unit":"tick"},{"name":"name","type":"str","unit":"","null":0}]}]'
)

FILE_HEADER = bytes.fromhex(
    "89 4e50554c4f47 0a"  # magic: \x89NPULOG\n
    "0100"  # version 1
    "fffe"  # byte-order mark 0xfeff
    "ce000000"  # header_size: 56 + 146 + 4
    "efcdab8967452301"  # writer_id
    "00e1f50500000000"  # clock_hz: 100 000 000
    "03000000"  # device_id 3
    "02000000"  # clock: device
    "0700000000000000"  # first_sequence
    "05000000"  # slice_index
    "92000000"  # schema_size: 146
)
HEADER = FileHeader(0x0123456789ABCDEF, 3, "device", 100_000_000, 7, 5, (SCHEMA,))

PAYLOAD = bytes.fromhex("0100000000000000 0000000000000000 0200000000000000 efbeadde00000000")
BLOCK_HEADER = bytes.fromhex(
    "95424c4b"  # magic: \x95BLK
    "4d00"  # tag 77
    "1000"  # record_size 16
    "02000000"  # record_count
    "5cb58dd6"  # payload_crc: zlib's CRC-32 of the payload
    "0700000000000000"  # sequence
    "00000000"  # reserved
)


def with_crc(head: bytes) -> bytes:
    return head + zlib.crc32(head).to_bytes(4, "little")


def test_file_header_encodes_to_these_bytes() -> None:
    assert encode_file_header(HEADER).hex(" ") == with_crc(FILE_HEADER + SCHEMA_TEXT).hex(" ")


def test_host_file_header_has_no_device() -> None:
    encoded = encode_file_header(FileHeader(1, None, "host", 1_000_000_000, 0, 0, ()))
    assert encoded[32:40].hex(" ") == "ff ff ff ff 01 00 00 00"
    decoder = FrameDecoder()
    assert decoder.feed(encoded) == []
    assert decoder.header is not None
    assert decoder.header.device_id is None


def test_block_header_encodes_to_these_bytes() -> None:
    assert encode_block_header(77, 16, 7, PAYLOAD).hex(" ") == with_crc(BLOCK_HEADER).hex(" ")


def test_bytes_decode_to_header_and_block() -> None:
    decoder = FrameDecoder()
    head = with_crc(FILE_HEADER + SCHEMA_TEXT)
    got = [*decoder.feed(head + with_crc(BLOCK_HEADER) + PAYLOAD), *decoder.finish()]
    assert decoder.header == HEADER
    assert got == [Block(77, 16, 2, 7, memoryview(PAYLOAD), len(head), 64, zlib.crc32(PAYLOAD))]


def test_checksum_is_the_standard_crc_32() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926
