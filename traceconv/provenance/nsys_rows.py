"""Rows of a report in SQLite: the table and rowid that an event came from, by its number among all that were read."""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.nsys.database import ERRORS, Damage, Database
from traceconv.formats.nsys.names import Names
from traceconv.formats.nsys.nvtx import CATEGORY, DOMAIN, END_DOMAIN, THREAD
from traceconv.formats.nsys.tables import CALL_TABLES, DEVICE_TABLES, GPU_METRICS, MEMORY_USAGE, NVTX
from traceconv.provenance.evidence import Evidence
from traceconv.provenance.files import SourceFile, Sources

#: Rows of NVTX_EVENTS that name something and are no events.
_NAMING = frozenset((CATEGORY, DOMAIN, END_DOMAIN, THREAD))
#: Columns with the number of a text in StringIds.
_TEXTS = ("demangledName", "shortName", "mangledName", "nameId", "textId", "jsonTextId")


def nsys_event(sources: Sources, event_id: int, role: str) -> Evidence:
    """The row of an event. InputError when it is not there any more."""
    source = sources.file(event_id >> ORDINAL_BITS)
    left = event_id & ((1 << ORDINAL_BITS) - 1)
    db = Database(source.path)
    try:
        for table, columns, rows in _portions(db):
            if left < len(rows):
                return _evidence(source, db, role, table, columns, rows[left])
            left -= len(rows)
    except ERRORS as error:
        raise InputError(f"can't read {printable(str(source.path))}: {printable(str(error))}") from error
    finally:
        db.close()
    raise InputError(f"{printable(str(source.path))} was changed since it was ingested: it has fewer rows")


def nsys_moment(source: SourceFile, table: str, column: str, value: int, role: str) -> list[Evidence]:
    """The first rows of a table with a value."""
    db = Database(source.path)
    found: list[Evidence] = []
    try:
        for name, columns, rows in _portions(db):
            if name == table and column in columns:
                at = columns.index(column) + 1
                found += [_evidence(source, db, role, name, columns, row) for row in rows if row[at] == value][:8]
    finally:
        db.close()
    return found[:8]


def _portions(db: Database) -> Iterator[tuple[str, list[str], list[tuple[object, ...]]]]:
    """(table, its columns, rowid and cells of rows that became events), in the order in which ingest reads them."""
    spans = [table.table for table in (*DEVICE_TABLES, *CALL_TABLES)]
    for name in (*spans, NVTX, GPU_METRICS, MEMORY_USAGE):
        columns = db.columns(name)
        needed = {"start", "end"} if name in spans else {"start"} if name == NVTX else set()
        if name not in db.tables or not needed <= set(columns):
            continue
        damage: list[Damage] = []
        kind = columns.index("eventType") + 1 if name == NVTX and "eventType" in columns else None
        for rows in db.scan(name, columns, damage, numbered=True):
            yield name, columns, rows if kind is None else [row for row in rows if row[kind] not in _NAMING]


def _evidence(
    source: SourceFile, db: Database, role: str, table: str, columns: list[str], row: tuple[object, ...]
) -> Evidence:
    names = Names(db, ImportLog(), Accounts())
    fields: dict[str, object] = {}
    for column, value in zip(columns, row[1:], strict=True):
        fields[column] = value.hex() if isinstance(value, bytes) else value
        text = names.text(value) if column in _TEXTS else None
        if text is not None:
            fields[f"{column} (in StringIds)"] = text
    return Evidence(
        role,
        source.source_id,
        source.name,
        str(source.path),
        source.format,
        None,
        None,
        where=f"table {table}, rowid {row[0]}",
        fields={name: value for name, value in fields.items() if value is not None},
    )
