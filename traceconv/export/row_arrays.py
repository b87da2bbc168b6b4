"""Rows that viewers don't show, in JSON: the names of the columns, and an array of values for each row."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from traceconv.export.fill import fill
from traceconv.export.json_sql import double, json_text
from traceconv.export.record_kinds import JSON_KINDS
from traceconv.export.templates import Template
from traceconv.schema import table
from traceconv.schema.ddl import quote_identifier

_LEAST_BUFFER_BYTES = 1 << 17
#: A buffer that became larger than this, for long texts, is not kept.
_MOST_KEPT_BYTES = 16 << 20
_END = b"]}}"


class _Buffers(threading.local):
    """A buffer of each thread: new memory for each batch costs as much time as its rows."""

    def __init__(self) -> None:
        self.kept = bytearray(_LEAST_BUFFER_BYTES)


_buffers = _Buffers()


@dataclass(frozen=True, slots=True)
class RowArrays:
    """Rows of a table, in the args of metadata events.

    query  SELECT of the columns
    row    template of a row, which begins with a comma
    begin  the event up to the first row
    """

    query: str
    row: Template
    begin: bytes

    def event(self, batch: pa.RecordBatch) -> bytes:
        """Return the event with the rows of a non-empty batch."""
        buffer = _buffers.kept
        end = fill(self.row, batch, buffer, len(self.begin) - 1)
        buffer[: len(self.begin)] = self.begin  # over the first row's comma
        buffer[end : end + len(_END)] = _END
        with memoryview(buffer) as data:
            event = bytes(data[: end + len(_END)])
        if len(buffer) > _MOST_KEPT_BYTES:
            _buffers.kept = bytearray(_LEAST_BUFFER_BYTES)
        return event


def row_arrays(connection: duckdb.DuckDBPyConnection, name: str, source: str) -> RowArrays:
    """Return the rows of `source`, a FROM clause of rows of a table, without the run and columns that are all NULL."""
    columns = used_columns(connection, name, source)
    row, selected = Template().literal(",["), []
    for column, kind in columns.items():
        selected.append(selected_column(column, kind))
        row.put(JSON_KINDS[kind], column, ",").when_null(column, Template().literal(",null"))
    begin = f',\n{{"pid":1,"ph":"M","name":"{name}","args":{{"columns":{json_text(list(columns))},"rows":['
    return RowArrays(f"SELECT {', '.join(selected)} FROM {source} AS s", row.literal("]"), begin.encode())


def used_columns(connection: duckdb.DuckDBPyConnection, name: str, source: str) -> dict[str, str]:
    """Return the columns of a table, at least one, that are not NULL in all rows of `source`, and their types."""
    columns = {column.name: column.type for column in table(name).columns if column.name != "run_id"}
    counts = ", ".join(f"count({quote_identifier(column)})" for column in columns)
    [found] = connection.execute(f"SELECT {counts} FROM {source}").fetchall()
    used = [column for column, count in zip(columns, found, strict=True) if count] or list(columns)[:1]
    return {column: columns[column] for column in used}


def selected_column(name: str, kind: str) -> str:
    """Return a column as JSON needs it: doubles are text."""
    column = f"s.{quote_identifier(name)}"
    return f"{double(column)} AS {quote_identifier(name)}" if kind == "f64" else column
