"""Blocks, headers and records of log files, read one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from traceconv.base.errors import InputError
from traceconv.formats.npulog.discover import CaptureFolder, LogFile, find_captures
from traceconv.schema import Field, RecordSchema, record, record_by_tag
from traceconv.schema.dtypes import RecordArray
from traceconv.wire.codec import decode_block
from traceconv.wire.frames import Block, Damage, FileHeader, FrameDecoder
from traceconv.wire.text import TextCollector

_CHUNK_BYTES = 1 << 20
_TEXT_LIMIT_BYTES = 256 << 20
_DICTIONARY = record("dictionary")


def read_header(path: Path) -> FileHeader | None:
    """The header of a log file; None if it is damaged or can't be read."""
    decoder = FrameDecoder()
    try:
        with path.open("rb") as stream:
            while decoder.header is None and (chunk := stream.read(_CHUNK_BYTES)):
                if decoder.feed(chunk):
                    break
    except (OSError, InputError):
        return None
    return decoder.header


def blocks_of(path: Path, decoder: FrameDecoder, start: int = 0, end: int | None = None) -> Iterator[Block | Damage]:
    """Blocks and damage in a byte range of a file. Raises OSError, or InputError for a file of a newer version."""
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        left = _CHUNK_BYTES if end is None else end - start
        while chunk := stream.read(min(left, _CHUNK_BYTES)):
            left -= 0 if end is None else len(chunk)
            yield from (replace(item, byte_offset=item.byte_offset + start) for item in decoder.feed(chunk))
    yield from (replace(item, byte_offset=item.byte_offset + start) for item in decoder.finish())


def records_of(file: LogFile, schema: RecordSchema) -> Iterator[RecordArray]:
    """The records of a type in a file, block by block. Damage is not reported."""
    decoder = FrameDecoder()
    try:
        for item in blocks_of(file.path, decoder):
            if isinstance(item, Block) and item.tag == schema.tag:
                written = schema_of(item, decoder.header)
                if written.name == schema.name:
                    yield decode_block(item, written, schema)
    except (OSError, InputError):
        return  # reported when the file itself is read


def schema_of(block: Block, header: FileHeader | None) -> RecordSchema:
    """The layout of the block's records: from the file, or of the known type, or plain bytes.

    Bytes of a record that the schema doesn't define become the field `_rest`.
    """
    known = record_by_tag().get(block.tag)
    schema = next((one for one in header.schemas if one.tag == block.tag), known) if header else known
    if schema is None or block.record_size < schema.size_bytes:
        return RecordSchema(f"tag_{block.tag}", block.tag, "none", "", "", (_plain_bytes("_bytes", block.record_size),))
    if block.record_size == schema.size_bytes:
        return schema
    rest = _plain_bytes("_rest", block.record_size - schema.size_bytes)
    return RecordSchema(schema.name, schema.tag, schema.clock, "", "", (*schema.fields, rest))


def _plain_bytes(name: str, size: int) -> Field:
    return Field(name, f"bytes[{size}]", "none", "")


def part_of(block: Block, first: int, end: int) -> Block:
    """The records [first, end) of a block, as a block."""
    size = block.record_size
    payload = block.payload[(first - block.sequence) * size : (end - block.sequence) * size]
    return replace(block, record_count=end - first, sequence=first, payload=payload)


def dictionary_of(capture: CaptureFolder) -> Mapping[int, str]:
    """The texts of the capture by hash, even if only some of its files are read."""
    files = [file for file in capture.files if file.record == _DICTIONARY.name]
    if not files and os.path.isdir(capture.path / "host" / "data"):
        try:
            (complete,) = find_captures([capture.path])
        except (InputError, ValueError):
            return {}
        files = [file for file in complete.files if file.record == _DICTIONARY.name]
    collector = TextCollector(_TEXT_LIMIT_BYTES)
    for file in files:
        for records in records_of(file, _DICTIONARY):
            collector.add(records)
    return collector.texts
