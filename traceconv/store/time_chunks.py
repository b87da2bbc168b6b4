"""Ranges of time with few enough rows to sort in memory, so that tables of any size are read in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import duckdb

from traceconv.base.integers import LARGEST

#: Parts of a range whose rows are counted at once.
_BINS = 4096


def time_chunks(connection: duckdb.DuckDBPyConnection, times: str, max_rows: int) -> list[tuple[int, int]]:
    """Return ranges [start, end) in ns with up to `max_rows` rows, or a single time with more, that include all times.

    times  a query with a column ts_ns without NULL
    """
    return [(start, end) for start, end, _ in time_parts(connection, times, max_rows, max_rows)]


def time_parts(
    connection: duckdb.DuckDBPyConnection, times: str, max_rows: int, part_rows: int
) -> list[tuple[int, int, bool]]:
    """Return the parts of these ranges, each with whether its range ends.

    A part has up to `part_rows` rows, unless a bin has more: up to `max_rows`.
    """
    starts = [*_starts(connection, times, "true", max_rows, part_rows), (LARGEST + 1, True)]
    return [(start, end, is_last) for (start, _), (end, is_last) in pairwise(starts)]


def _starts(
    connection: duckdb.DuckDBPyConnection, times: str, where: str, max_rows: int, part_rows: int
) -> Iterator[tuple[int, bool]]:
    """Yield the starts of parts, each with whether a range starts there."""
    of = f"FROM ({times}) WHERE {where}"
    [(low, high, row_count)] = connection.execute(f"SELECT min(ts_ns), max(ts_ns), count(*) {of}").fetchall()
    if row_count <= part_rows:
        yield from [(low, True)] if row_count else []
        return
    width = (high - low) // _BINS + 1
    # Quotients are rounded towards 0, so the bin 0 is twice as wide.
    counts = connection.execute(f"SELECT ts_ns // {width}, count(*) {of} GROUP BY 1 ORDER BY 1").fetchall()
    bins = [(number * width - (width - 1 if number <= 0 else 0), count) for number, count in counts]
    rows = rows_of_part = 0
    for place, (start, count) in enumerate(bins):
        if count > max_rows and width > 1:
            end = bins[place + 1][0] if place + 1 < len(bins) else LARGEST + 1
            within = f"ts_ns >= {start} AND ts_ns::HUGEINT < {end}"
            yield from _starts(connection, times, within, max_rows, part_rows)
            rows = max_rows
            continue
        is_next = rows + count > max_rows or not place
        if is_next or rows_of_part + count > part_rows:
            yield start, is_next
            rows_of_part = 0
        rows = count if is_next else rows + count
        rows_of_part += count
