"""Give Arrow rows to SQL statements."""

from __future__ import annotations

import duckdb
import pyarrow as pa

#: DuckDB's threads take a batch each.
_BATCH_ROWS = 1 << 14


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


def _register(
    connection: duckdb.DuckDBPyConnection, name: str, rows: pa.RecordBatchReader | pa.RecordBatch | pa.Table
) -> None:
    """Create a view.

    DuckDB keeps what a view refers to until the transaction ends, even after the view was dropped. A stream is empty
    once it was read, so that its rows don't fill the memory until then.
    """
    if not isinstance(rows, pa.RecordBatchReader):
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        batches = table.to_batches(_BATCH_ROWS)
        rows = pa.RecordBatchReader.from_batches(rows.schema, iter(batches))
    connection.register(name, rows)
