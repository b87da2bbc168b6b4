"""Find a span in the CSV of Furiosa's profiler."""

from __future__ import annotations

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.formats.furiosa_csv.format import BEGINS
from traceconv.formats.locate import Evidence, Wanted
from traceconv.formats.vendor_folder.locate import header_of, named_cells
from traceconv.formats.vendor_folder.records import CsvRecords


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the record by its number and times; in a damaged block, all records with its times."""
    if not wanted.byte_count or wanted.row.get("start_ns") is None:
        return []
    start_ns, dur_ns = wanted.row["start_ns"], wanted.row["dur_ns"]
    ends = None if dur_ns is None else str(start_ns + dur_ns)
    header = header_of(wanted.source, BEGINS)
    text = wanted.block()
    batches = CsvRecords([text], ImportLog(), Account(), wanted.source.name, ragged=BEGINS).batches()
    rows = [row for batch in batches for row in zip(batch.offsets, batch.rows, strict=True)]
    # A name with a line feed splits its record into several lines; only the first has times.
    rows = [(offset, cells) for offset, cells in rows if _has_times(cells)]
    bounds = [*(offset for offset, _ in rows), len(text)]
    found = {
        number: wanted.evidence(
            offset,
            text[offset : bounds[number + 1]].rstrip(b"\r\n"),
            f"record {wanted.ordinal}",
            fields=named_cells(header, cells),
        )
        for number, (offset, cells) in enumerate(rows)
        if cells[3] == str(start_ns) and ends in (None, cells[4])
    }
    if len(rows) == wanted.event_count and wanted.index in found:
        return [found[wanted.index]]
    return list(found.values())[:4]


def _has_times(cells: list[str]) -> bool:
    return len(cells) > 6 and all(cell.lstrip("-").isdigit() for cell in cells[3:5])
