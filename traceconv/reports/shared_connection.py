"""A connection to a store that several threads read with cursors, and that may be closed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from traceconv.base.errors import StoreError, TraceconvError, printable
from traceconv.reports.current_store import open_current_store
from traceconv.reports.fetch import reading
from traceconv.store.database import close_in_use, new_cursor


class SharedConnection:
    """The connection to an open store. `name`: what errors call the store."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.connection = open_current_store(path)
        self.cursors: dict[int, duckdb.DuckDBPyConnection] = {}
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Close the file. Running reads, also those in other threads, end with a StoreError."""
        with self._lock:
            self._closed = True
            cursors = list(self.cursors.values())
            self.cursors.clear()
        close_in_use(cursors)
        self.connection.close()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Close the file while it is changed."""
        self.check_open()
        self.close()
        try:
            yield
        finally:
            self.connection = open_current_store(self.path)
            self._closed = False

    def check_open(self) -> None:
        """Raise StoreError if the file is closed."""
        if self._closed:
            raise StoreError(f"{printable(self.name)} is closed: open it again")

    def open_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a cursor, to be closed with `close_cursor`. Raises StoreError if the file is closed."""
        with self._lock:
            self.check_open()
            cursor = new_cursor(self.connection)
            self.cursors[id(cursor)] = cursor
        return cursor

    def close_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Close a cursor, unless `close` has removed it to close it itself."""
        if self.cursors.pop(id(cursor), None) is not None:
            cursor.close()

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a cursor. DuckDB's errors become those of `reading`, or a StoreError if the file was closed."""
        cursor = self.open_cursor()
        try:
            with self.checking_closed(), reading():
                yield cursor
        finally:
            self.close_cursor(cursor)

    @contextmanager
    def checking_closed(self) -> Iterator[None]:
        """Raise StoreError if the block fails because the file was closed."""
        connection = self.connection
        try:
            yield
        except (duckdb.Error, TraceconvError, KeyboardInterrupt) as error:
            by_user = isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, duckdb.Error)
            if by_user or (not self._closed and self.connection is connection):
                raise
            raise StoreError(f"{printable(self.name)} was closed before all rows were read") from error
