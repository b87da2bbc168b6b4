"""Find a record in the tables of rocprof."""

from __future__ import annotations

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.formats.locate import Evidence, SourceFile, Wanted, text_evidence
from traceconv.formats.rocprof_csv.format import column_names, tables
from traceconv.formats.vendor_folder.locate import header_of, named_cells
from traceconv.formats.vendor_folder.records import CsvRecords


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the record by its times in the table that has the block."""
    if wanted.byte_offset is None or not wanted.byte_count:
        return []
    source, offset = _table_at(wanted.source, wanted.byte_offset)
    header = header_of(source, None)
    start_ns, dur_ns = wanted.row.get("start_ns"), wanted.row.get("dur_ns")
    wanted_cells = {"Start_Timestamp": str(start_ns)}
    if start_ns is not None and dur_ns is not None:
        wanted_cells["End_Timestamp"] = str(start_ns + dur_ns)
    text = source.text(offset, wanted.byte_count)
    records = CsvRecords([text], ImportLog(), Account(), source.name)
    found = []
    for batch in records.batches():
        bounds = [*batch.offsets, len(text)]
        for number, cells in enumerate(batch.rows):
            named = dict(zip(column_names(header), cells, strict=False))
            if all(named.get(key) == value for key, value in wanted_cells.items()):
                data = text[bounds[number] : bounds[number + 1]].rstrip(b"\r\n")
                where = f"a record of {source.path.name}"
                fields = named_cells(header, cells)
                found.append(text_evidence(source, wanted.role, offset + bounds[number], data, where, fields=fields))
    return found[:4]


def _table_at(source: SourceFile, offset: int) -> tuple[SourceFile, int]:
    """Return the table and the offset in it: those of a block are in the texts of all tables, one after another."""
    for path in tables(source.path):
        table = source._replace(path=path, name=str(path) if path != source.path else source.name)
        size = sum(map(len, table.chunks()))
        if offset < size:
            return table, offset
        offset -= size
    return source, offset
