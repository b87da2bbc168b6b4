"""Work on a store in a thread, with a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

import duckdb

from traceconv.base.workers import Workers
from traceconv.store.database import close_in_use, new_cursor

Result = TypeVar("Result")


@contextmanager
def in_thread(
    connection: duckdb.DuckDBPyConnection, work: Callable[[duckdb.DuckDBPyConnection], Result]
) -> Iterator[Future[Result]]:
    """Call `work` in a thread within the block, which gets its future result.

    Its connection sees what was committed, and commits each statement. Leaving the block interrupts work that has not
    ended.
    """
    cursor = new_cursor(connection)
    with Workers(1, "traceconv-store") as pool:
        future = pool.submit(work, cursor)
        try:
            yield future
        finally:
            if future.done():
                cursor.close()
            else:
                close_in_use([cursor])
