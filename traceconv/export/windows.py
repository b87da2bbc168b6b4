"""Time windows of a table with a bounded number of rows, so that each window can be sorted in memory."""

from __future__ import annotations

from typing import TypeAlias

import duckdb

#: The first and the last nanosecond of a window, inclusive.
Window: TypeAlias = "tuple[int, int]"

#: Rows of a window, unless more rows have the same time. Smaller windows cost queries, larger ones memory.
WINDOW_ROWS = 150_000

_BUCKETS = 4096


def time_windows(
    connection: duckdb.DuckDBPyConnection, source: str, time: str, rows: int = WINDOW_ROWS
) -> list[Window]:
    """Return windows, in order, that cover all rows of `source` (a FROM clause) whose `time` is not NULL."""
    [(first, last, count)] = connection.execute(
        f"SELECT min({time}), max({time}), count({time}) FROM {source}"
    ).fetchall()
    return [] if count == 0 else _cut(connection, source, time, (first, last), count, rows)


def condition(time: str, window: Window) -> str:
    """Return the SQL condition that a row is in a window."""
    return f"{time} BETWEEN ({window[0]}) AND ({window[1]})"


def _cut(
    connection: duckdb.DuckDBPyConnection, source: str, time: str, window: Window, count: int, rows: int
) -> list[Window]:
    first, last = window
    if count <= rows or first == last:
        return [window]
    width = (last - first) // _BUCKETS + 1
    wide = "::HUGEINT" if last - first >= 1 << 63 else ""
    buckets = connection.execute(
        f"SELECT ({time}{wide} - ({first})) // {width} AS bucket, count(*) FROM {source} "
        f"WHERE {condition(time, window)} GROUP BY bucket ORDER BY bucket"
    ).fetchall()
    windows: list[Window] = []
    start, pending = first, 0
    for bucket, size in buckets:
        bucket_first = first + int(bucket) * width
        bucket_last = min(bucket_first + width - 1, last)
        if pending and pending + size > rows:
            windows.append((start, bucket_first - 1))
            start, pending = bucket_first, 0
        if size > rows:
            windows.extend(_cut(connection, source, time, (bucket_first, bucket_last), size, rows))
            start = bucket_last + 1
        else:
            pending += size
    if pending:
        windows.append((start, last))
    return windows
