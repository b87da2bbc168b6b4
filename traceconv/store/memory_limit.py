"""DuckDB's memory limit, and queries that fail although they could sort on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import duckdb

from traceconv.schema.ddl import quote_text

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

Rows = TypeVar("Rows")


@contextmanager
def limit_changed(connection: duckdb.DuckDBPyConnection, change: Callable[[int], int]) -> Iterator[None]:
    """Set DuckDB's memory limit to what `change` makes of its bytes, until the block ends."""
    [(limit,)] = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = limit.split()
    connection.execute(f"SET memory_limit = '{change(int(float(number) * _UNITS[unit])):d}B'")
    try:
        yield
    finally:
        connection.execute(f"SET memory_limit = {quote_text(limit)}")


def sorted_on_disk(connection: duckdb.DuckDBPyConnection, ask: Callable[[], Iterator[Rows]]) -> Iterator[Rows]:
    """Yield what a query returns, which `ask` executes.

    Where rows barely don't fit in memory, DuckDB sometimes expects them to, and fails. With a lower limit it sorts on
    disk, so a query that runs out of memory before its first rows is asked again.
    """
    try:
        found = ask()
        first = next(found, None)
    except duckdb.OutOfMemoryException:
        with limit_changed(connection, lambda limit: limit * 3 // 4):
            yield from ask()
        return
    if first is not None:
        yield first
        yield from found
