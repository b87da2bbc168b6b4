"""Give Arrow rows to SQL statements."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from traceconv.store.database import GROUP_ROWS

#: Groups that are inserted at once, one by each of DuckDB's threads, and bytes of rows that don't wait for more.
_GROUPS, _MOST_BYTES = 2, 32 << 20


def execute_with(
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    name: str,
    rows: pa.RecordBatchReader | pa.RecordBatch | pa.Table,
) -> None:
    """Execute a statement that reads `rows` once, as the view `name`."""
    _register(connection, name, rows)
    connection.execute(statement)
    connection.unregister(name)


def fetch_with(
    connection: duckdb.DuckDBPyConnection, query: str, name: str, rows: pa.RecordBatch | pa.Table
) -> pa.Table:
    """Return the result of a query that reads `rows` once, as the view `name`."""
    _register(connection, name, rows)
    result = connection.sql(query).to_arrow_table()
    connection.unregister(name)
    return result


class GroupedInserts:
    """Inserts rows in complete groups, as far as possible.

    One of DuckDB's threads takes a batch. It compresses and stores a complete group, but copies other rows to where the
    rows of all threads are collected, one thread at a time.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement: str, name: str) -> None:
        """`statement`: reads rows from the view `name`."""
        self._connection, self._statement, self._name = connection, statement, name
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Insert rows, or keep them for later."""
        self._waiting.append(rows)
        count = sum(table.num_rows for table in self._waiting)
        if sum(table.nbytes for table in self._waiting) > _MOST_BYTES:
            self._insert(count)
        elif complete := count - count % (_GROUPS * GROUP_ROWS):
            self._insert(complete)

    def end(self) -> None:
        """Insert the rest."""
        self._insert(sum(table.num_rows for table in self._waiting))

    def _insert(self, count: int) -> None:
        if count:
            rows = pa.concat_tables(self._waiting)
            self._waiting = [rows.slice(count)] if count < rows.num_rows else []
            complete = pa.RecordBatchReader.from_batches(rows.schema, _groups(rows.slice(0, count)))
            del rows  # so that parts are free when they were read
            execute_with(self._connection, self._statement, self._name, complete)


def _register(
    connection: duckdb.DuckDBPyConnection, name: str, rows: pa.RecordBatchReader | pa.RecordBatch | pa.Table
) -> None:
    """Create a view.

    DuckDB keeps what a view refers to until the transaction ends, even after the view was dropped. A stream is empty
    once it was read, so that its rows don't fill the memory until then.
    """
    if not isinstance(rows, pa.RecordBatchReader):
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        rows = pa.RecordBatchReader.from_batches(table.schema, _groups(table))
    connection.register(name, rows)


def _groups(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield batches of a row group. Rows are only copied where parts of a table meet."""
    while rows.num_rows:
        group = rows.slice(0, GROUP_ROWS).combine_chunks()
        rows = rows.slice(GROUP_ROWS)
        yield from group.to_batches()
