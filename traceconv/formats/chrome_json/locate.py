"""Find an event in the text of a Chrome trace."""

from __future__ import annotations

from traceconv.base.errors import InputError, printable
from traceconv.formats.chrome_json.reader import TraceFileReader
from traceconv.formats.common.elements import element_at
from traceconv.formats.format import ReadRequest
from traceconv.formats.locate import NO_LIMITS, Evidence, Wanted


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the event by its number in its block."""
    text = wanted.block()
    offset, event = element_at(text, wanted.index, wanted.event_count) or _reparsed(wanted, text)
    return [wanted.evidence(offset, event)]


def _reparsed(wanted: Wanted, text: bytes) -> tuple[int, bytes]:
    """Find an event in a damaged block by parsing the file up to it, as ingest did."""
    path, ordinal, block_offset = wanted.source.path, wanted.ordinal, wanted.byte_offset or 0
    for batch in TraceFileReader(ReadRequest(path, limits=NO_LIMITS)).batches():
        if batch.first_ordinal <= ordinal < batch.first_ordinal + batch.columns.count:
            offset, size = batch.place(ordinal - batch.first_ordinal)
            if offset is not None and size is not None:
                return offset - block_offset, text[offset - block_offset : offset - block_offset + size]
    raise InputError(
        f"{printable(str(path))}: event {ordinal} was not found near byte {block_offset}; "
        "if it was ingested with other limits, ingest it again with the default ones"
    )
