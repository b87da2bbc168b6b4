"""Rows that viewers don't show, in JSON: the names of the columns, and an array of values for each row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from traceconv.export.json_sql import double, json_text
from traceconv.export.records import JSON_KINDS, Template, fill
from traceconv.schema import table
from traceconv.schema.ddl import quote_identifier

_LEAST_BUFFER_BYTES = 1 << 17
#: A buffer that became larger than this, for long texts, is not kept.
_MOST_KEPT_BYTES = 16 << 20
#: Bytes before the rows, next to the names of the columns.
_MOST_BEFORE = 256


class _Buffers(threading.local):
    """A buffer of each thread: new memory for each batch costs as much time as its rows."""

    def __init__(self) -> None:
        self.kept = bytearray(_LEAST_BUFFER_BYTES)


_buffers = _Buffers()


@dataclass(frozen=True, slots=True)
class RowArrays:
    """Rows of a table.

    query    SELECT of the columns
    row      template of a row, which begins with a comma
    columns  the names, and what is between them and the first row
    """

    query: str
    row: Template
    columns: bytes

    def around(
        self,
        batch: pa.RecordBatch,
        before: Callable[[int], bytes],
        after: bytes = b"",
        result: Callable[[memoryview], bytes] = bytes,
    ) -> bytes:
        """Return the object with the rows of a non-empty batch, `before` and `after` it.

        `before` returns up to _MOST_BEFORE bytes for the size of the object. All of this is passed to `result`, which
        must not keep it.
        """
        buffer = _buffers.kept
        room = _MOST_BEFORE + len(self.columns)
        end = fill(self.row, batch, buffer, room)
        tail = b"]}" + after
        buffer[end : end + len(tail)] = tail
        # The first row's comma is overwritten.
        first = room + 1
        head = before(len(self.columns) + end - first + 2) + self.columns
        buffer[first - len(head) : first] = head
        with memoryview(buffer) as data, data[first - len(head) : end + len(tail)] as found:
            done = result(found)
        if len(buffer) > _MOST_KEPT_BYTES:
            _buffers.kept = bytearray(_LEAST_BUFFER_BYTES)
        return done


def row_arrays(connection: duckdb.DuckDBPyConnection, name: str, source: str) -> RowArrays:
    """Return the rows of `source`, a FROM clause of rows of a table, without the run and columns that are all NULL."""
    columns = {column.name: column.type for column in table(name).columns if column.name != "run_id"}
    counts = ", ".join(f"count({quote_identifier(column)})" for column in columns)
    [found] = connection.execute(f"SELECT {counts} FROM {source}").fetchall()
    chosen = [column for column, count in zip(columns, found, strict=True) if count] or list(columns)[:1]
    row, selected = Template().literal(",["), []
    for column in chosen:
        selected.append(selected_column(column, columns[column]))
        row.put(JSON_KINDS[columns[column]], column, ",").when_null(column, Template().literal(",null"))
    begin = b'{"columns":%s,"rows":[' % json_text(chosen).encode()
    return RowArrays(f"SELECT {', '.join(selected)} FROM {source} AS s", row.literal("]"), begin)


def selected_column(name: str, kind: str) -> str:
    """Return a column as JSON needs it: doubles are text."""
    column = f"s.{quote_identifier(name)}"
    return f"{double(column)} AS {quote_identifier(name)}" if kind == "f64" else column
