"""The order of the rows of a time window, and whether its slices overlap, computed on numbers only.

Ingest writes rows in a few sorted runs. Sorting the numbers of a window costs far less than sorting its texts, or than
a window function over all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.export.windows import condition, time_windows

Int64 = NDArray[np.int64]
#: Rows whose numbers are in memory together.
_NUMBERS_ROWS = 262_144
#: Size of a window's slices and of a slice without args, and the maximum number of slices in a window.
_WINDOW_BYTES = 16 << 20
_ROW_BYTES = 200
_WINDOW_ROWS = 131_072
_SAMPLE_ROWS = 2048


def order_of(keys: Sequence[NDArray[np.signedinteger]]) -> NDArray[np.intp] | None:
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
) -> NDArray[np.intp] | None:
    """Return the order of slices in a trace; None if they are sorted.

    Slices are ordered by start, then the longest first (an unknown end is the latest), then the outermost.
    """
    lengths = dur_ns.fill_null(2**63 - 1).to_numpy()
    return order_of([start_ns.to_numpy(), -lengths, depth.fill_null(0).to_numpy(), ids.to_numpy()])


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
    """Whether every slice of `source`, a FROM clause, starts after the previous one of its track and depth ended.

    Also False if that can't be checked cheaply: values are NULL, or there are too many tracks or depths.
    """
    query = f"SELECT track_id, depth, start_ns, start_ns + coalesce(dur_ns, 0) AS end_ns FROM {source}"
    last: dict[int, int] = {}
    seen = 0
    for window in time_windows(connection, source, "start_ns", _NUMBERS_ROWS):
        batch = connection.sql(f"{query} WHERE {condition('start_ns', window)}").to_arrow_table()
        if any(column.null_count for column in batch.columns):
            return False
        seen += batch.num_rows
        track, depth, start, end = (column.to_numpy().astype(np.int64, copy=False) for column in batch.columns)
        if min(track.min(), depth.min()) < 0 or track.max() >= 1 << 40 or depth.max() >= 1 << 20:
            return False
        order = order_of([start, end])
        if order is not None:
            track, depth, start, end = track[order], depth[order], start[order], end[order]
        if not _no_overlaps(track, depth, start, end, last):
            return False
    [(count,)] = connection.execute(f"SELECT count(*) FROM {source}").fetchall()
    return bool(count == seen)


def _no_overlaps(track: Int64, depth: Int64, start: Int64, end: Int64, last: dict[int, int]) -> bool:
    """Check slices in time order. `last` has the end of the previous slice of each track and depth."""
    line = track << 20 | depth
    first_track, depths = int(track.min()), int(depth.max()) + 1
    # Narrow numbers are radix-sorted, several times as fast.
    narrow = (int(track.max()) - first_track + 1) * depths <= 1 << 16
    order = np.argsort(((track - first_track) * depths + depth).astype(np.uint16) if narrow else line, kind="stable")
    line, start, end = line[order], start[order], end[order]
    same = line[1:] == line[:-1]
    if bool((same & (start[1:] < end[:-1])).any()):
        return False
    firsts = np.flatnonzero(np.append(True, ~same))
    ends = np.append(firsts[1:], len(line)) - 1
    for number, first, stop in zip(line[firsts].tolist(), firsts.tolist(), ends.tolist(), strict=True):
        if start[first] < last.get(number, start[first]):
            return False
        last[number] = int(end[stop])
    return True
