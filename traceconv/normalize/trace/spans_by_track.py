"""Spans by start → spans by groups of tracks, if there are too many tracks to nest at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.complete_nesting import SPAN_DTYPE
from traceconv.schema.dtypes import RecordArray, gather, join

#: Tracks that are nested together: each takes about 250 bytes.
TRACKS_AT_ONCE = 1 << 16
#: Maximum number of groups, since each is a temporary file.
_MOST_GROUPS = 128


class SpansByTrack:
    """Iterates over groups of tracks, each as windows by start. Track numbers start at 0 in each group.

    Few tracks are one group, which is not copied. Can be read once.
    """

    def __init__(self, spans: Iterator[RecordArray], track_count: int) -> None:
        self._spans = spans
        self._width = max(TRACKS_AT_ONCE, track_count // _MOST_GROUPS + 1)
        self._groups = [Spool(SPAN_DTYPE) for _ in range(track_count // self._width + 1)]

    def __iter__(self) -> Iterator[Iterator[RecordArray]]:
        if len(self._groups) == 1:
            yield self._spans
            return
        for window in self._spans:
            group = window["track"] // self._width
            window["track"] -= group * self._width
            order = np.argsort(group, kind="stable")
            bounds = np.searchsorted(group[order], np.arange(len(self._groups) + 1))
            rows = gather(window, order)
            for number in np.flatnonzero(np.diff(bounds)).tolist():
                self._groups[number].append(rows[bounds[number] : bounds[number + 1]])
        for spool in self._groups:
            yield _with_ties(spool)
            spool.close()

    def close(self) -> None:
        """Free the disk space."""
        for spool in self._groups:
            spool.close()


def _with_ties(chunks: Spool) -> Iterator[RecordArray]:
    """Yield the same rows, with all rows of one start in one window."""
    held = np.zeros(0, SPAN_DTYPE)
    for chunk in chunks:
        rows = join([held, chunk])
        cut = int(np.searchsorted(np.ascontiguousarray(rows["start_ns"]), rows["start_ns"][-1]))
        if cut:
            yield rows[:cut]
        held = rows[cut:].copy()
    if len(held):
        yield held
