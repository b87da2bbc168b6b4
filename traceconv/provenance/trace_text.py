"""Where an event of trace JSON stands: found in its block, which the store knows, by its number in it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from traceconv.base.errors import InputError, printable
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.chrome_json.reader import TraceFileReader
from traceconv.formats.common.limits import Limits
from traceconv.formats.format import ReadRequest
from traceconv.provenance.evidence import MAX_BYTES, Evidence
from traceconv.provenance.files import Block, SourceFile, Sources

_ELEMENTS = msgspec.json.Decoder(list[Raw])
_ELEMENT = msgspec.json.Decoder(Raw)
_BLANKS = b" \t\r\n,"


def trace_event(sources: Sources, event_id: int, role: str) -> Evidence:
    """The text of an event. InputError when it is not there any more."""
    source = sources.file(event_id >> ORDINAL_BITS)
    block = sources.block_of(event_id)
    if block is None or block.byte_offset is None or block.byte_count is None:
        raise InputError(f"run {sources.run_id} has no block that event {event_id} came from")
    text = source.text(block.byte_offset, block.byte_count)
    found = element_at(text, event_id - block.first_id, block.event_count)
    if found is None:
        place, size = _parsed_again(source, event_id, block)
        found = place - block.byte_offset, text[place - block.byte_offset : place - block.byte_offset + size]
    return text_evidence(source, role, block.byte_offset + found[0], found[1], f"event {_ordinal(event_id)}")


def text_evidence(source: SourceFile, role: str, offset: int, text: bytes, where: str) -> Evidence:
    """A piece of text as evidence; of a long one the beginning."""
    return Evidence(
        role,
        source.source_id,
        source.name,
        str(source.path),
        source.format,
        offset,
        len(text),
        source.container,
        where,
        data=text[:MAX_BYTES],
    )


def element_at(text: bytes, index: int, count: int) -> tuple[int, bytes] | None:
    """Offset and text of object `index` of `count`; None when the text is not made of just so many sound objects."""
    found: tuple[int, bytes] | None = None
    number = 0
    for offset, element in elements_of(text):
        if element.startswith(b"{"):
            if number == index:
                found = offset, element
            number += 1
    return found if number == count else None


def elements_of(text: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, text) of the values in a stretch of text with commas or line ends between; none when it is not sound."""
    at = 0
    for element in _decoded(text):
        plain = bytes(element).strip(_BLANKS)
        at = text.index(plain, at)
        yield at, plain
        at += len(plain)


def _decoded(text: bytes) -> list[Raw]:
    body = text.strip(_BLANKS)
    try:
        return _ELEMENTS.decode(b"[" + body + b"]")
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _ELEMENT.decode_lines(body)
    except (msgspec.DecodeError, RecursionError):
        return []


def _parsed_again(source: SourceFile, event_id: int, block: Block) -> tuple[int, int]:
    """The place of an event in text that was damaged: by reading the file as ingest did, up to its block."""
    reader = TraceFileReader(ReadRequest(source.path, limits=Limits(ratio=1 << 40)))
    ordinal = _ordinal(event_id)
    for batch in reader.batches():
        if batch.first_ordinal <= ordinal < batch.first_ordinal + batch.columns.count:
            place, size = batch.place(ordinal - batch.first_ordinal)
            if place is not None and size is not None:
                return place, size
    raise InputError(
        f"{printable(str(source.path))}: event {ordinal} is not found again near byte {block.byte_offset}; "
        "was it ingested with other limits?"
    )


def _ordinal(event_id: int) -> int:
    return event_id & ((1 << ORDINAL_BITS) - 1)


__all__ = ["element_at", "elements_of", "text_evidence", "trace_event"]
