"""DuckDB's memory limit: what is cached within it, and queries that fail although they could sort on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TypeVar

import duckdb

from traceconv.schema.ddl import quote_text
from traceconv.store.database import MEMORY_LIMIT

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

Rows = TypeVar("Rows")


@contextmanager
def limit_changed(connection: duckdb.DuckDBPyConnection, change: Callable[[int], str]) -> Iterator[None]:
    """Set DuckDB's memory limit to what `change` makes of its bytes, such as "1GB", until the block ends."""
    [(limit,)] = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = limit.split()
    try:
        # DuckDB 1 also keeps a limit that it says it can't keep.
        connection.execute(f"SET memory_limit = {quote_text(change(int(float(number) * _UNITS[unit])))}")
        yield
    finally:
        with suppress(duckdb.ConnectionException):  # closed before all rows were read
            connection.cursor().execute(f"SET memory_limit = {quote_text(limit)}")


def shrink_cache(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove blocks from DuckDB's cache, beyond a third of its memory limit, unless they are in use."""
    with suppress(duckdb.OutOfMemoryException), limit_changed(connection, lambda limit: f"{limit // 3}B"):
        pass  # a lower limit evicts them


def sorted_on_disk(connection: duckdb.DuckDBPyConnection, ask: Callable[[], Iterator[Rows]]) -> Iterator[Rows]:
    """Yield what a query returns, which `ask` executes.

    Where rows barely don't fit in memory, DuckDB sometimes expects them to, and fails. With a lower limit it sorts on
    disk, so a query that runs out of memory before its first rows is asked again. Joins may need more instead: it is
    asked a third time with the limit of reports.
    """

    def begun() -> Iterator[Rows] | None:
        try:
            found = ask()
            first = next(found, None)
        except duckdb.OutOfMemoryException:
            return None
        return found if first is None else chain([first], found)

    rows = begun()
    if rows is not None:
        yield from rows
        return
    with limit_changed(connection, lambda limit: f"{limit * 3 // 4}B"):
        rows = begun()
        if rows is not None:
            yield from rows
            return
    with limit_changed(connection, lambda _: MEMORY_LIMIT):
        yield from ask()
