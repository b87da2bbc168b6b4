"""Find the row of an event in a database whose reader notes the rowids of its batches."""

from __future__ import annotations

from collections.abc import Callable

from traceconv.base.errors import InputError, printable
from traceconv.formats.common.elements import json_object
from traceconv.formats.common.sqlite_reader import SqliteReader
from traceconv.formats.format import ReadRequest
from traceconv.formats.locate import NO_LIMITS, Evidence, Wanted


def locate_row(wanted: Wanted, open_reader: Callable[[ReadRequest], SqliteReader]) -> list[Evidence]:
    """Read the file again up to the batch with the event."""
    path = wanted.source.path
    reader = open_reader(ReadRequest(path, limits=NO_LIMITS))
    for batch in reader.batches():
        place = wanted.ordinal - batch.first_ordinal
        if place < batch.columns.count:
            table, rowids = reader.place
            # Names and details are in other tables.
            details = json_object(batch.columns.raw["args"][place].as_py())
            name = batch.columns.label("name")[place]
            fields = {**reader.row(table, int(rowids[place])), **details, "name": name}
            where = f"table {table}, rowid {rowids[place]}"
            return [Evidence(wanted.source, wanted.role, where=where, fields=fields)]
    raise InputError(f"{printable(str(path))} has changed since ingest: it has fewer rows; ingest it again")
