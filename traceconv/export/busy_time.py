"""The time in which at least one of many intervals runs, before each of some moments."""

from __future__ import annotations

import numpy as np

from traceconv.base.int64 import Int64


class BusyTime:
    """The union of intervals that are added in the order of their starts.

    moments    [moment] times in ns, in order
    before_ns  [moment] length of the union before each of them
    """

    def __init__(self, moments: Int64) -> None:
        self._moments = moments
        self._last_end: int | None = None
        self.before_ns: Int64 = np.zeros(len(moments), np.int64)

    def add(self, starts: Int64, ends: Int64) -> None:
        """Add intervals that don't start before those added earlier."""
        if not len(starts):
            return
        known_ns = starts[0] if self._last_end is None else self._last_end
        latest = np.maximum.accumulate(np.append(known_ns, ends))
        self._last_end = int(latest[-1])
        # The time of each interval after the end of all before it; what is after a moment is covered by one interval.
        sums = np.append(0, np.cumsum(latest[1:] - np.maximum(starts, latest[:-1])))
        count = np.searchsorted(starts, self._moments)
        self.before_ns += sums[count] - np.maximum(latest[count] - np.maximum(self._moments, known_ns), 0)
