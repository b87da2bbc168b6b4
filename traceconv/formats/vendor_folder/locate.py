"""Find a record in a CSV file of a vendor's folder."""

from __future__ import annotations

import csv
import io
import re

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.formats.locate import Evidence, SourceFile, Wanted, text_evidence
from traceconv.formats.vendor_folder.records import CsvRecords, RecordBatch


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the record by its number in its block."""
    source = wanted.source
    header = header_of(source)
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(header)
    lead = line.getvalue().encode()
    text = wanted.block()
    records = CsvRecords([lead + text], ImportLog(), Account(), source.name)
    records.open()
    for batch in records.batches():
        place = wanted.index - batch.first_ordinal
        if 0 <= place < len(batch.rows):
            offset = batch.offsets[place] - len(lead)
            cells = named_cells(header, batch.rows[place])
            return [wanted.evidence(offset, record_text(text, offset), f"record {wanted.index}", fields=cells)]
    raise InputError(
        f"{printable(str(source.path))} has changed since ingest: record {wanted.index} is missing; ingest it again"
    )


def header_of(source: SourceFile, ragged: re.Pattern[bytes] | None = None) -> tuple[str, ...]:
    """Return the header of a CSV file."""
    return CsvRecords(source.chunks(), ImportLog(), Account(), source.name, ragged=ragged).open()


def record_of(source: SourceFile, role: str, header: tuple[str, ...], batch: RecordBatch, number: int) -> Evidence:
    """Return a record of a batch as evidence."""
    offset = batch.offsets[number]
    text = record_text(source.text(offset, 1 << 16), 0)
    cells = named_cells(header, batch.rows[number])
    return text_evidence(source, role, offset, text, f"line {batch.lines[number]}", fields=cells)


def named_cells(header: tuple[str, ...], cells: list[str]) -> dict[str, object]:
    """Return cells by the headings of their columns."""
    names = [name or f"column {number}" for number, name in enumerate(header, 1)]
    names += [f"cell {number}" for number in range(len(names) + 1, len(cells) + 1)]
    return dict(zip(names, cells, strict=False))


def record_text(text: bytes, at: int) -> bytes:
    """Return the record that begins at a byte: up to a line end outside quotes, or its first line if there is none."""
    end, first = at, None
    while True:
        found = text.find(b"\n", end)
        end = len(text) if found < 0 else found + 1
        first = end if first is None else first
        if text.count(b'"', at, end) % 2 == 0:
            return text[at:end].rstrip(b"\r\n")
        if found < 0:
            return text[at:first].rstrip(b"\r\n")
