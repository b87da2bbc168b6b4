"""Records as text, straight from the blocks: what a log says, before anything is made of it.

Shares nothing with normalize, so that sums over a dump can be held against the reports. Values become text a
column at a time: a block of records is one template, filled by zip.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.errors import InputError, printable
from traceconv.readers.npulog.discover import CaptureFolder, LogFile, find_captures
from traceconv.schema import Field, RecordSchema, record, record_by_tag
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire.frames import BLOCK_HEADER_BYTES, Block, Damage, FileHeader, FrameDecoder
from traceconv.wire.text import TextCollector

_CHUNK_BYTES = 1 << 20
_TEXT_LIMIT_BYTES = 256 << 20
_SHOWN_TEXT = 60
_DICTIONARY = record("dictionary")


@dataclass(slots=True)
class DumpOptions:
    """What is dumped, and how.

    record     name of the only record type; None for all
    limit      number of records over all files; None for all
    as_json    one JSON object a line, with every field; else columns for people
    on_damage  is told, in a sentence, of everything that could not be read
    """

    record: str | None = None
    limit: int | None = None
    as_json: bool = False
    on_damage: Callable[[str], None] = lambda message: None
    texts: Mapping[int, str] = field(default_factory=dict)


def dump_capture(capture: CaptureFolder, options: DumpOptions) -> Iterator[str]:
    """The records of a capture as text, some thousand lines at a time, in the order of its files.

    JSON keys that begin with '_' say where a record is from: type, file, sequence in its stream, byte offset in
    the file. A str field is its text; the number of its hash where the dictionary does not have it; null for none.
    """
    options.texts = _dictionary_of(capture)
    left = options.limit
    for problem in problems_of(capture):
        options.on_damage(problem)
    for file in capture.files:
        for count, text in _dump_file(file, options, left):
            yield text
            if left is not None:
                left -= count
                if left <= 0:
                    return


def problems_of(capture: CaptureFolder) -> Iterator[str]:
    """What is wrong with a capture as a whole, a sentence each."""
    name = printable(capture.path.name)
    if capture.manifest_problem is not None:
        yield f"{name}: manifest.json is {capture.manifest_problem}"
    for path in capture.missing:
        yield f"{name}: {printable(path)} is missing; the manifest names it"
    for path in capture.unreadable:
        yield f"{name}: {printable(path)} can't be listed"


def record_types(capture: CaptureFolder) -> set[str]:
    """The record types that the files of a capture say they hold."""
    types: set[str] = set()
    for file in capture.files:
        header = read_header(file)
        types.update([schema.name for schema in header.schemas] if header else [file.record])
    return types


def read_header(file: LogFile) -> FileHeader | None:
    """The header of a log file; None when it is damaged or can't be read."""
    decoder = FrameDecoder()
    try:
        with file.path.open("rb") as stream:
            while decoder.header is None and (chunk := stream.read(_CHUNK_BYTES)):
                if decoder.feed(chunk):
                    break
    except (OSError, InputError):
        return None
    return decoder.header


def blocks_of(file: LogFile, decoder: FrameDecoder) -> Iterator[Block | Damage]:
    """Blocks and damage of a file, streamed. Raises OSError, or InputError for one of a newer version."""
    with file.path.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield from decoder.feed(chunk)
    yield from decoder.finish()


def describe_damage(damage: Damage) -> str:
    """A damage as a sentence: what, where, how much."""
    place = f"byte {damage.byte_offset:,}"
    if damage.byte_count:
        place += f" to {damage.byte_offset + damage.byte_count:,}"
    lost = "unknown number of records" if damage.event_count is None else f"{damage.event_count:,} records"
    return f"{damage.message} ({place}; {lost})"


def _dump_file(file: LogFile, options: DumpOptions, limit: int | None) -> Iterator[tuple[int, str]]:
    """(number of records, their lines) for each block."""
    decoder = FrameDecoder()
    columns: _Columns | None = None
    name = printable(file.relative_path)
    try:
        for item in blocks_of(file, decoder):
            if isinstance(item, Damage):
                options.on_damage(f"{name}: {describe_damage(item)}")
                continue
            schema = _schema_of(item, decoder.header)
            if options.record is not None and schema.name != options.record:
                continue
            data = item.payload
            if limit is not None:
                data = data[: limit * item.record_size]
            rows = np.frombuffer(data, dtype_of(schema, item.record_size))
            if options.as_json:
                yield len(rows), _json_lines(rows, schema, item, file, options.texts)
            else:
                cells = _text_cells(rows, schema, item, options.texts)
                head = ""
                if columns is None or columns.schema is not schema:
                    columns = _Columns.fit(schema, cells)
                    head = f"# {name}: {schema.name}\n# {columns.head()}\n"
                yield len(rows), head + columns.lines(cells)
            if limit is not None:
                limit -= len(rows)
                if limit <= 0:
                    return
    except OSError as error:
        options.on_damage(f"{name}: can't be read: {error.strerror or error}")
    except InputError as error:
        options.on_damage(f"{name}: {error}")


def _schema_of(block: Block, header: FileHeader | None) -> RecordSchema:
    """How the block's records are laid out: as the file says, else as we know the type, else as plain bytes.

    Bytes of a record that the schema does not name become the field `rest`.
    """
    known = record_by_tag().get(block.tag)
    schema = next((one for one in header.schemas if one.tag == block.tag), known) if header else known
    if schema is None or block.record_size < schema.size_bytes:
        return RecordSchema(f"tag_{block.tag}", block.tag, "none", "", "", (_plain_bytes("bytes", block.record_size),))
    if block.record_size == schema.size_bytes:
        return schema
    rest = _plain_bytes("rest", block.record_size - schema.size_bytes)
    return RecordSchema(schema.name, schema.tag, schema.clock, "", "", (*schema.fields, rest))


def _plain_bytes(name: str, size: int) -> Field:
    return Field(name, f"bytes[{size}]", "none", "")
