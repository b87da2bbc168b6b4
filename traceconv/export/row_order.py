"""Whether slices lie in the store in the order in which a trace wants them, so that no text must be sorted.

Within a track: what begins earlier first; of what begins together the longest first, and of what is as long the
outermost. Ingest writes rows nearly so, and mostly exactly so; looking costs a tenth of sorting.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.export.arrow_rows import arrow_batches

#: Rows that are looked at together.
_BATCH_ROWS = 65_536

_Keys = list[NDArray[np.int64]]


def in_order(connection: duckdb.DuckDBPyConnection, source: str) -> bool:
    """Whether the slices of `source`, a FROM clause, lie in order on each track.

    An end that is not known is later than all.
    """
    query = (
        f"SELECT track_id, start_ns, -coalesce(dur_ns, {2**63 - 1}) AS shorter, "
        f"coalesce(depth, 0)::BIGINT AS depth, id FROM {source}"
    )
    return _rising(arrow_batches(connection, query, _BATCH_ROWS))


def _rising(batches: Iterable[pa.RecordBatch]) -> bool:
    last: dict[int, tuple[int, ...]] = {}
    for batch in batches:
        if batch.num_rows == 0:
            continue
        keys = [column.to_numpy() for column in batch.columns]
        # Narrow numbers are sorted by radix, several times as fast.
        narrow = keys[0].astype(np.uint16) if keys[0].min() >= 0 and keys[0].max() < 1 << 16 else keys[0]
        order = np.argsort(narrow, kind="stable")
        track, *others = (key[order] for key in keys)
        same = track[1:] == track[:-1]
        if _any_falls(others, same):
            return False
        ends = np.append(np.flatnonzero(~same), len(track) - 1)
        for first, end in zip(np.append(0, ends[:-1] + 1), ends, strict=True):
            number = int(track[first])
            if number in last and tuple(int(key[first]) for key in others) < last[number]:
                return False
            last[number] = tuple(int(key[end]) for key in others)
    return True


def _any_falls(keys: _Keys, same: NDArray[np.bool_]) -> bool:
    """Whether a row is less than the one before it, where `same` says that they are of one track."""
    ties = same
    for key in keys:
        if bool((ties & (key[1:] < key[:-1])).any()):
            return True
        ties = ties & (key[1:] == key[:-1])
    return False


def lies_neatly(connection: duckdb.DuckDBPyConnection, source: str) -> bool:
    """Whether no slice of `source` begins before the one before it ends, of those of its track and depth.

    False too when the rows do not lie in the order of their starts: then nothing is known without sorting.
    """
    query = f"SELECT track_id, depth, start_ns, start_ns + coalesce(dur_ns, 0) AS end_ns FROM {source}"
    last: dict[int, int] = {}
    for batch in arrow_batches(connection, query, _BATCH_ROWS):
        if batch.num_rows == 0:
            continue
        if any(column.null_count for column in batch.columns):
            return False
        track, depth, start, end = (column.to_numpy().astype(np.int64) for column in batch.columns)
        if min(track.min(), depth.min()) < 0 or track.max() >= 1 << 40 or depth.max() >= 1 << 20:
            return False
        lines, key = np.unique(track << 20 | depth, return_inverse=True)
        order = np.argsort(key.astype(np.uint16) if len(lines) <= 1 << 16 else key, kind="stable")
        key, start, end = key[order], start[order], end[order]
        same = key[1:] == key[:-1]
        if bool((same & (start[1:] < end[:-1])).any()):
            return False
        firsts = np.flatnonzero(np.append(True, ~same))
        ends = np.append(firsts[1:], len(key)) - 1
        for line, first, stop in zip(lines.tolist(), firsts.tolist(), ends.tolist(), strict=True):
            if start[first] < last.get(line, start[first]):
                return False
            last[line] = int(end[stop])
    return True
