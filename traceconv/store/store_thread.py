"""Use a store in a thread, with a connection of its own, while the caller uses it, too."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb

from traceconv.base.workers import Workers
from traceconv.store.database import close_in_use, new_cursor

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class StoreThread:
    """A thread with a connection to a store, which sees what was committed and commits each statement.

    Use as a context manager: leaving it interrupts work that has not ended.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._cursor = new_cursor(connection)
        self._pool = Workers(1, "traceconv-store")
        self._work: list[Future[Any]] = []

    def submit(
        self,
        function: Callable[Concatenate[duckdb.DuckDBPyConnection, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Result]:
        """Call a function with the connection and return its future result."""
        future = self._pool.submit(function, self._cursor, *args, **kwargs)
        self._work.append(future)
        return future

    def __enter__(self) -> StoreThread:
        return self

    def __exit__(self, *error: object) -> None:
        if all(work.done() for work in self._work):
            self._cursor.close()
        else:
            close_in_use([self._cursor])
        self._pool.shutdown()
