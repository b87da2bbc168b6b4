"""Find the table and rowid of an event in a report of Nsight Systems."""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.formats.common.sqlite_database import ERRORS, Database, Row
from traceconv.formats.locate import Evidence, Wanted
from traceconv.formats.nsys.export import sqlite_file
from traceconv.formats.nsys.names import Names
from traceconv.formats.nsys.nvtx import NAMING
from traceconv.formats.nsys.tables import EVENT_TABLES, MARKER_TABLES, NVTX, SPAN_TABLES, TEXT_IDS

#: Columns that refer to StringIds.
_TEXTS = {*TEXT_IDS, "demangledName", "shortName", "mangledName", "nameId", "textId", "jsonTextId"}
_MARKER_TABLES = {table.table: table for table in MARKER_TABLES}


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the row by its number among all rows that became events."""
    shown = printable(str(wanted.source.path))
    left = wanted.ordinal
    with sqlite_file(wanted.source.path) as path:
        db = Database(path)
    try:
        for table, columns, rows in _event_rows(db):
            if left < len(rows):
                rowid, *cells = rows[left]
                fields = _decoded(db, table, columns, cells)
                return [Evidence(wanted.source, wanted.role, where=f"table {table}, rowid {rowid}", fields=fields)]
            left -= len(rows)
    except ERRORS as error:
        raise InputError(f"can't read {shown}: {printable(str(error))}") from error
    finally:
        db.close()
    raise InputError(f"{shown} has changed since ingest: it has fewer rows; ingest it again")


def _event_rows(db: Database) -> Iterator[tuple[str, list[str], list[Row]]]:
    """Yield (table, its columns, rowid and cells of rows that became events) in the order of ingest."""
    for name in EVENT_TABLES:
        columns = db.columns(name)
        moments = _MARKER_TABLES.get(name)
        needed = {"start", "end"} if name in SPAN_TABLES else {"start"} if name == NVTX else set()
        if moments:
            needed = {moments.time}
        if name not in db.tables or not needed <= set(columns):
            continue
        kind = columns.index("eventType") + 1 if name == NVTX and "eventType" in columns else None
        time = columns.index(moments.time) + 1 if moments and moments.zero_is_unknown else None
        for rows in db.scan(name, columns, numbered=True):
            if kind is not None:
                rows = [row for row in rows if row[kind] not in NAMING]
            elif time is not None:
                rows = [row for row in rows if isinstance(row[time], int) and row[time] > 0]
            yield name, columns, rows


def _decoded(db: Database, table: str, columns: list[str], cells: list[object]) -> dict[str, object]:
    """Return the values of a row by column, with its names and labels as text."""
    names = Names(db, ImportLog(), Accounts())
    moments = _MARKER_TABLES.get(table)
    enums = dict(moments.enums) if moments else {}
    fields: dict[str, object] = {}
    for column, value in zip(columns, cells, strict=True):
        fields[column] = value.hex() if isinstance(value, bytes) else value
        if column in _TEXTS:
            fields[f"{column} (in StringIds)"] = names.text(value)
        if column in enums:
            fields[f"{column} (label)"] = names.labels(enums[column]).get(value)
    return {name: value for name, value in fields.items() if value is not None}
