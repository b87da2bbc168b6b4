"""Records of CSV files: the one with an id, and those that completed a row which came from elsewhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.furiosa_csv.format import BEGINS
from traceconv.formats.vendor_folder.records import CsvRecords, RecordBatch
from traceconv.normalize.vendor_csv.spec import FileKind, spec
from traceconv.normalize.vendor_csv.typed import Odd, typed
from traceconv.pipeline.vendor_folder.task_sql import NEAR_NS
from traceconv.provenance.evidence import Evidence
from traceconv.provenance.files import SourceFile, Sources
from traceconv.provenance.trace_text import text_evidence

#: What takes the columns of a typed record: whether it is the one.
Test = Callable[[Mapping[str, Any]], bool]


def kind_of(source: SourceFile) -> FileKind | None:
    """What a CSV file of a vendor's folder holds; None for other files."""
    return next((kind for kind in spec().kinds if kind.kind == source.format), None)


def csv_record(sources: Sources, event_id: int, role: str) -> Evidence:
    """The record with an id. InputError when it is not there any more."""
    source = sources.file(event_id >> ORDINAL_BITS)
    block = sources.block_of(event_id)
    if block is None or block.byte_offset is None or block.byte_count is None:
        raise InputError(f"run {sources.run_id} has no block that record {event_id} came from")
    header = _header(source)
    lead = _line(header)
    text = source.text(block.byte_offset, block.byte_count)
    records = CsvRecords([lead + text], ImportLog(), Account(), source.name)
    records.open()
    index = event_id - block.first_id
    for batch in records.batches():
        place = index - batch.first_ordinal
        if 0 <= place < len(batch.rows):
            whole = _whole(text, batch.offsets[place] - len(lead))
            offset = block.byte_offset + batch.offsets[place] - len(lead)
            return _evidence(source, role, header, batch.rows[place], offset, whole, f"record {index}")
    raise InputError(f"{printable(str(source.path))} was changed since it was ingested: record {index} is not there")


def matching(source: SourceFile, role: str, test: Test, limit: int = 4) -> list[Evidence]:
    """The first records of a vendor's file that pass a test on their typed columns."""
    kind = kind_of(source)
    if kind is None or kind.becomes == "nothing":
        return []
    found: list[Evidence] = []
    for header, batch, rows in _typed(source, kind):
        columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
        for place in range(rows.num_rows):
            if test({name: values[place] for name, values in columns.items()}):
                text = source.text(batch.offsets[place], 1 << 16)
                where = f"line {batch.lines[place]}"
                whole = _whole(text, 0)
                found.append(_evidence(source, role, header, batch.rows[place], batch.offsets[place], whole, where))
                if len(found) == limit:
                    return found
    return found


def completing_task(source: SourceFile, row: Mapping[str, Any]) -> list[Evidence]:
    """The records that a task of the timeline was completed by: by its start and name, or by its number."""
    kind = kind_of(source)
    if kind is None or kind.becomes not in ("task", "attach"):
        return []
    role = f"what {source.name} says of it"

    def same_stream(one: Mapping[str, Any]) -> bool:
        return bool(one["stream_id"] == row["stream_id"])

    def same_number(one: Mapping[str, Any]) -> bool:
        return one["source_task_id"] == row["source_task_id"] and one["source_task_id"] is not None

    def apart(one: Mapping[str, Any]) -> int | None:
        return None if one["start_ns"] is None or row["start_ns"] is None else abs(one["start_ns"] - row["start_ns"])

    if kind.becomes == "attach":
        return matching(source, role, lambda one: one["name"] == row["name"] and same_number(one) and same_stream(one))
    tests: tuple[Test, ...] = (
        lambda one: apart(one) == 0 and one["name"] == row["name"] and same_stream(one),
        lambda one: (d := apart(one)) is not None and d < NEAR_NS and one["name"] == row["name"] and same_stream(one),
        lambda one: apart(one) == 0 and same_number(one) and same_stream(one),
    )
    for test in tests:
        found = matching(source, role, test)
        if found:
            return found
    return []


def furiosa_record(sources: Sources, row: Mapping[str, Any], role: str) -> list[Evidence]:
    """The record of a span of Furiosa's CSV: by its times and name, in the stretch of lines that it came from."""
    source = sources.file(int(row["id"]) >> ORDINAL_BITS)
    block = sources.block_of(int(row["id"]))
    if block is None or block.byte_offset is None or not block.byte_count:
        return []
    header = _header(source)
    text = source.text(block.byte_offset, block.byte_count)
    batches = list(CsvRecords([text], ImportLog(), Account(), source.name, ragged=BEGINS).batches())
    end = None if row["dur_ns"] is None else str(row["start_ns"] + row["dur_ns"])
    # A name with a line feed makes a record of several lines, of which only the first has times.
    rows = [(offset, cells) for batch in batches for offset, cells in zip(batch.offsets, batch.rows, strict=True)]
    firsts = [place for place, (_, cells) in enumerate(rows) if _begins(cells)]
    found: list[tuple[int, Evidence]] = []
    for number, place in enumerate(firsts):
        offset, cells = rows[place]
        if cells[3] != str(row["start_ns"]) or end not in (None, cells[4]):
            continue
        following = firsts[number + 1] if number + 1 < len(firsts) else len(rows)
        size = rows[following][0] - offset if following < len(rows) else len(text) - offset
        whole = text[offset : offset + size].rstrip(b"\r\n")
        where = f"record {int(row['id']) & ((1 << ORDINAL_BITS) - 1)}"
        found.append((number, _evidence(source, role, header, cells, block.byte_offset + offset, whole, where)))
    exact = [one for number, one in found if number == int(row["id"]) - block.first_id]
    return exact if len(firsts) == block.event_count and exact else [one for _, one in found[:4]]


def _begins(cells: list[str]) -> bool:
    return len(cells) > 6 and all(cell.lstrip("-").isdigit() for cell in cells[3:5])


# -- files --


def _typed(source: SourceFile, kind: FileKind) -> Iterator[tuple[tuple[str, ...], RecordBatch, pa.RecordBatch]]:
    records = CsvRecords(source.source_text().chunks(), ImportLog(), Account(), source.name)
    layout = spec().layout(kind, records.open())
    if layout.missing:
        return
    for batch in records.batches():
        ids = np.arange(batch.first_ordinal, batch.first_ordinal + len(batch.rows), dtype=np.int64)
        yield records.header, batch, typed(layout, batch.rows, ids, Odd())


def _header(source: SourceFile) -> tuple[str, ...]:
    return CsvRecords(source.source_text().chunks(), ImportLog(), Account(), source.name, ragged=BEGINS).open()


def _line(cells: tuple[str, ...]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode()


def _whole(text: bytes, at: int) -> bytes:
    """The record that begins at a byte: up to a line end outside of quotes; else its first line."""
    end, first = at, None
    while True:
        found = text.find(b"\n", end)
        end = len(text) if found < 0 else found + 1
        first = end if first is None else first
        if text.count(b'"', at, end) % 2 == 0:
            return text[at:end].rstrip(b"\r\n")
        if found < 0:
            return text[at:first].rstrip(b"\r\n")


def _evidence(
    source: SourceFile, role: str, header: tuple[str, ...], cells: list[str], offset: int, text: bytes, where: str
) -> Evidence:
    names = [name or f"column {place + 1}" for place, name in enumerate(header)]
    names += [f"cell {place + 1}" for place in range(len(names), len(cells))]
    told = dict(zip(names, cells, strict=False))
    return replace(text_evidence(source, role, offset, text, where), fields=told)
