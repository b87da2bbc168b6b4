"""The rows of a query as Arrow batches, as they come: nothing holds all of them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa


def arrow_batches(connection: duckdb.DuckDBPyConnection, query: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of at most about `rows` rows. The connection can't be used otherwise until they are at an end."""
    yield from connection.sql(query).to_arrow_reader(rows)
