"""Cuts a table into stretches of time of a bounded number of rows, so that each can be sorted in memory."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

#: Rows of a window, unless more than that have the same time. Smaller windows cost queries, larger ones memory.
WINDOW_ROWS = 150_000

_BUCKETS = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """Times `from_ns` ≤ t ≤ `to_ns`."""

    from_ns: int
    to_ns: int


def time_windows(
    connection: duckdb.DuckDBPyConnection, source: str, time: str, rows: int = WINDOW_ROWS
) -> list[Window]:
    """Windows in rising order that hold every row of `source` (a FROM clause) whose `time` is not NULL."""
    [(first, last, count)] = connection.execute(
        f"SELECT min({time}), max({time}), count({time}) FROM {source}"
    ).fetchall()
    return [] if count == 0 else _cut(connection, source, time, Window(first, last), count, rows)


def condition(time: str, window: Window) -> str:
    """The SQL condition that a row lies in a window."""
    return f"{time} BETWEEN {_literal(window.from_ns)} AND {_literal(window.to_ns)}"


def _cut(
    connection: duckdb.DuckDBPyConnection, source: str, time: str, whole: Window, count: int, rows: int
) -> list[Window]:
    if count <= rows or whole.from_ns == whole.to_ns:
        return [whole]
    width = (whole.to_ns - whole.from_ns) // _BUCKETS + 1
    wide = "::HUGEINT" if whole.to_ns - whole.from_ns >= 1 << 63 else ""
    buckets = connection.execute(
        f"SELECT ({time}{wide} - {_literal(whole.from_ns)}) // {width} AS bucket, count(*) FROM {source} "
        f"WHERE {condition(time, whole)} GROUP BY bucket ORDER BY bucket"
    ).fetchall()
    windows: list[Window] = []
    start, held = whole.from_ns, 0
    for bucket, size in buckets:
        bucket_from = whole.from_ns + int(bucket) * width
        bucket_to = min(bucket_from + width - 1, whole.to_ns)
        if held and held + size > rows:
            windows.append(Window(start, bucket_from - 1))
            start, held = bucket_from, 0
        if size > rows:
            windows.extend(_cut(connection, source, time, Window(bucket_from, bucket_to), size, rows))
            start = bucket_to + 1
        else:
            held += size
    if held:
        windows.append(Window(start, whole.to_ns))
    return windows


def _literal(nanoseconds: int) -> str:
    return f"({nanoseconds})"
