"""The gap between a row and the previous row of its track."""

from __future__ import annotations

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask, differences
from traceconv.base.integers import is_time


def track_gaps(
    track: NDArray[np.integer], start_ns: Int64, end_ns: Int64, endless: Mask, last_end: dict[int, int | None]
) -> tuple[Int64, Mask]:
    """Return each row's gap since the end of the previous row of its track, and where it is unknown.

    Rows are sorted by track, then by start. A track's first row has a gap of 0.

    endless   rows whose end is unknown
    last_end  track → end of its last row so far, None: unknown; updated
    """
    gap, unknown = np.zeros(len(track), np.int64), np.zeros(len(track), np.bool_)
    if not len(track):
        return gap, unknown
    gap[1:], beyond = differences(start_ns[1:], end_ns[:-1])
    unknown[1:] = endless[:-1] | beyond
    heads = np.flatnonzero(np.concatenate([[True], track[1:] != track[:-1]]))
    for place in heads.tolist():  # tracks, not rows
        start = int(start_ns[place])
        before = last_end.get(int(track[place]), start)
        unknown[place] = before is None or not is_time(start - before)
        gap[place] = 0 if before is None or unknown[place] else start - before
    for place in np.append(heads[1:] - 1, len(track) - 1).tolist():
        last_end[int(track[place])] = None if endless[place] else int(end_ns[place])
    return gap, unknown
