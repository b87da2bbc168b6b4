"""The order of the rows of a time window, and whether its slices overlap, computed on numbers only.

Ingest writes rows in a few sorted runs. Sorting the numbers of a window costs far less than sorting its texts, or than
a window function over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.export.sorted_runs import find_runs, merged, one_thread
from traceconv.export.windows import condition, time_windows

Places = NDArray[np.intp]
#: Rows whose numbers are in memory together.
_NUMBERS_ROWS = 262_144
#: Tracks times depths.
_MOST_LINES = 1 << 20
#: Rows in an array of a window.
BATCH_ROWS = 16_384
#: Size of a window's slices and of a slice without args, and the maximum number of slices in a window.
_WINDOW_BYTES = 12 << 20
_ROW_BYTES = 200
_WINDOW_ROWS = 131_072
_SAMPLE_ROWS = 2048
#: Rows after which an earlier row begins another run, at most.
_MOST_LATE = 4096


def order_of(keys: Sequence[NDArray[np.signedinteger]]) -> Places | None:
    """Return the sort order of the rows by the first key, then the second and so on; None if they are sorted."""
    first = keys[0]
    order = None
    if bool((first[1:] < first[:-1]).any()):
        order = np.argsort(first, kind="stable")
        first = first[order]
    same = first[1:] == first[:-1]
    if not same.any():
        return order
    others = [key if order is None else key[order] for key in keys[1:]]
    if not _any_falls(others, same):
        return order
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    sorted_ties = tied[np.lexsort([*(key[tied] for key in reversed(others)), first[tied]])]
    places = np.arange(len(first)) if order is None else order.copy()
    places[tied] = places[sorted_ties]
    return places


def slice_order(
    start_ns: pa.ChunkedArray, dur_ns: pa.ChunkedArray, depth: pa.ChunkedArray, ids: pa.ChunkedArray
) -> Places | None:
    """Return the order of slices in a trace; None if they are sorted.

    Slices are ordered by start, then the longest first (an unknown end is the latest), then the outermost.
    """
    lengths = dur_ns.fill_null(2**63 - 1).to_numpy()
    return order_of([start_ns.to_numpy(), -lengths, depth.fill_null(0).to_numpy(), ids.to_numpy()])


def time_ordered(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    time: str,
    query: Callable[[str], str],
    order: Callable[[pa.Table], Places | None],
    size: int,
    tables: Mapping[str, pa.Table] | None = None,
) -> Iterator[tuple[pa.RecordBatch, Places | None]]:
    """Yield the rows of a source in time order, in batches, each with the order of its rows (None: as they are).

    `source` is a FROM clause with the column ROW. `query` returns a SELECT for a condition on the source, which it
    calls `s`, and `order` the order of the rows of a window, which has up to about `size` of them. `tables` are the
    temporary tables that the query refers to; None: they are too large to be copied. DuckDB must use one thread.
    """
    late = max(min(_MOST_LATE, size // 8), 1)
    runs = None if tables is None else find_runs(connection, source, time, late)
    if runs is None or tables is None:
        for window in time_windows(connection, source, time, size):
            yield from ordered_batches(connection, query(condition(f"s.{time}", window)), order)
    else:
        for found in merged(connection, runs, time, query, late, size // 2, tables):
            batches = _in_order(found, order(found))
            del found  # which would keep what the batches may be copies of
            yield from batches


def ordered_batches(
    connection: duckdb.DuckDBPyConnection, query: str, order: Callable[[pa.Table], Places | None]
) -> Iterator[tuple[pa.RecordBatch, Places | None]]:
    """Yield the rows of a window in batches, each with the order of its rows (None: as they are).

    `order` returns that of all rows.
    """
    found = connection.sql(query).to_arrow_table(BATCH_ROWS)
    yield from _in_order(found, order(found))


def _in_order(found: pa.Table, places: Places | None) -> Iterator[tuple[pa.RecordBatch, Places | None]]:
    if places is None:
        yield from ((batch, None) for batch in found.to_batches() if batch.num_rows)
        return
    joined = found.combine_chunks()
    del found
    batches = joined.to_batches()
    if len(batches) == 1:
        yield batches[0], places
        return
    # Texts of more than 2 GB are in several arrays.
    for at in range(0, len(places), BATCH_ROWS):
        yield from ((batch, None) for batch in joined.take(pa.array(places[at : at + BATCH_ROWS])).to_batches())


def small_batches(
    connection: duckdb.DuckDBPyConnection, query: str, most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query in non-empty batches of limited size, unless a single row is larger."""
    for batch in connection.sql(query).to_arrow_reader(BATCH_ROWS):
        waiting = [batch.slice(at, most_rows) for at in range(0, batch.num_rows, most_rows)][::-1]
        while waiting:
            piece = waiting.pop()
            if piece.num_rows > 1 and piece.nbytes > most_bytes:
                half = piece.num_rows // 2
                waiting += [piece.slice(half), piece.slice(0, half)]
            else:
                yield piece


def rows_of_window(connection: duckdb.DuckDBPyConnection, source: str) -> int:
    """Return how many slices of `source`, a FROM clause, take some tens of MB, by a sample of their args."""
    [(size_bytes,)] = connection.execute(
        f"SELECT avg(strlen(args))::BIGINT FROM (SELECT args FROM {source} LIMIT {_SAMPLE_ROWS})"
    ).fetchall()
    return max(min(_WINDOW_BYTES // (_ROW_BYTES + (size_bytes or 0)), _WINDOW_ROWS), _SAMPLE_ROWS)


def _any_falls(keys: Sequence[NDArray[np.signedinteger]], same: NDArray[np.bool_]) -> bool:
    """Whether a key decreases from one row to the next, among rows with equal earlier keys (`same`)."""
    ties = same
    for key in keys:
        if bool((ties & (key[1:] < key[:-1])).any()):
            return True
        ties = ties & (key[1:] == key[:-1])
    return False


def has_no_overlaps(connection: duckdb.DuckDBPyConnection, source: str) -> bool:
    """Whether every slice of `source` starts after the previous one of its track and depth ended.

    `source` is a FROM clause of all slices of its tracks. Also False if that can't be checked cheaply: values are NULL,
    or there are too many tracks or depths.
    """
    found = connection.execute(
        "SELECT min(track_id), max(track_id), min(depth), max(depth), count(*), count(track_id), count(depth), "
        f"count(start_ns), bool_or(TRY(start_ns + coalesce(dur_ns, 0)) IS NULL) FROM {source}"
    ).fetchall()
    [(first_track, last_track, first_depth, last_depth, count, *counts, unknown_end)] = found
    if count == 0:
        return True
    if unknown_end or any(known < count for known in counts):
        return False
    depths = last_depth - first_depth + 1
    if (last_track - first_track + 1) * depths > _MOST_LINES:
        return False
    last = np.full((last_track - first_track + 1) * depths, -(2**63), np.int64)

    def query(where: str) -> str:
        return (
            f"SELECT (track_id - ({first_track})) * {depths} + (depth - ({first_depth})) AS line, start_ns, "
            f"start_ns + coalesce(dur_ns, 0) AS end_ns FROM {source} AS s WHERE {where}"
        )

    def order(found: pa.Table) -> Places | None:
        return order_of([found.column(name).to_numpy() for name in ("start_ns", "end_ns")])

    with one_thread(connection):
        for batch, places in time_ordered(connection, source, "start_ns", query, order, _NUMBERS_ROWS):
            line, start, end = (column.to_numpy() for column in batch.columns)
            if not _are_apart(line, start, end, np.arange(len(line)) if places is None else places, last):
                return False
    return True


def _are_apart(line: Int64, start: Int64, end: Int64, order: Places, last: Int64) -> bool:
    """Check slices in time order. `last` has the end of the previous slice of each line."""
    if native.AVAILABLE:
        return native.apart(line, start, end, order, last)
    for row in order.tolist():
        if start[row] < last[line[row]]:
            return False
        last[line[row]] = end[row]
    return True
