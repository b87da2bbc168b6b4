"""Time windows of a table with a bounded number of rows, so that each window can be sorted in memory."""

from __future__ import annotations

from typing import TypeAlias

import duckdb

from traceconv.store.time_chunks import time_chunks

#: The first and the last nanosecond of a window, inclusive.
Window: TypeAlias = "tuple[int, int]"

#: Rows of a window, unless more rows have the same time. Smaller windows cost queries, larger ones memory.
WINDOW_ROWS = 150_000


def time_windows(
    connection: duckdb.DuckDBPyConnection, source: str, time: str, rows: int = WINDOW_ROWS
) -> list[Window]:
    """Return windows, in order, that cover all rows of `source` (a FROM clause) whose `time` is not NULL."""
    times = f"SELECT {time} AS ts_ns FROM {source} WHERE {time} IS NOT NULL"
    return [(start, end - 1) for start, end in time_chunks(connection, times, rows)]


def condition(time: str, window: Window) -> str:
    """Return the SQL condition that a row is in a window."""
    return f"{time} BETWEEN ({window[0]}) AND ({window[1]})"
