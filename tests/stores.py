"""Read and change stores in one database for all tests: to create one takes as long as to attach a store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from traceconv.schema.ddl import quote_text
from traceconv.store.database import STORAGE_OPTIONS, connect_memory, temporary_spill_folder


def query(store: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement on a store."""
    with attached(store) as connection:
        return connection.execute(sql).fetchall()


@contextlib.contextmanager
def attached(store: Path, *, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the store, which is not checked, as its current database. Only one store at once."""
    connection = _database()
    options = "READ_ONLY" if read_only else STORAGE_OPTIONS
    connection.execute(f"ATTACH {quote_text(str(store.absolute()))} AS store ({options}); USE store")
    try:
        yield connection
    finally:
        connection.execute("USE memory; DETACH store")


@cache
def _database() -> duckdb.DuckDBPyConnection:
    connection = connect_memory(temporary_spill_folder())
    connection.execute("SET threads = 1; SET wal_autocheckpoint = '0B'")
    with contextlib.suppress(duckdb.CatalogException):  # unknown to DuckDB 1, which Python 3.10 has
        connection.execute("SET fsync_mode = 'NONE'")
    return connection
