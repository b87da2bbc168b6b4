"""The wall clock of a capture: the host clock and when it stopped, which the log records."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceconv.base.int64 import Int64, sums
from traceconv.normalize.rows import Nullable
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of

_LIMIT_NS = 1 << 62


class WallClock:
    """Converts host times to wall-clock times. Times are those of the log, without an offset.

    stops     clock_stop records; those before `start_ns`, the begin of the capture, don't count
    is_known  False: wall-clock times are unknown
    """

    def __init__(self, stops: Iterable[RecordArray] = (), start_ns: int = 0, *, is_known: bool = True) -> None:
        records = np.concatenate([np.zeros(0, dtype_of(record("clock_stop"))), *stops])
        records = np.sort(records[records["host_ns"] >= start_ns], order="host_ns", kind="stable")
        self._ns: Int64 = np.ascontiguousarray(records["host_ns"])
        self._dur_ns: Int64 = np.ascontiguousarray(records["dur_ns"])
        self._thread_id = np.ascontiguousarray(records["thread_id"])
        self.is_valid = not (self._dur_ns < 0).any() and self._dur_ns.sum(dtype=np.float64) < _LIMIT_NS
        self.is_known = is_known and self.is_valid

    def times(self, start_ns: Int64, dur_ns: Int64, unfinished: object, offset_ns: int) -> tuple[Nullable, Nullable]:
        """Return wall-clock starts, and durations, which are NULL where `unfinished`; times include the offset."""
        if not self.is_known:
            nothing = Nullable(np.zeros(len(start_ns), np.int64), np.ones(len(start_ns), np.bool_))
            return nothing, nothing
        before, after = self._before(start_ns - offset_ns), self._before(start_ns + dur_ns - offset_ns)
        start, over = sums(start_ns, before)
        dur, too_long = sums(dur_ns, after - before)
        return Nullable(start, over), Nullable(dur, too_long | np.asarray(unfinished))

    def lost_to_others(self, thread_ids: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
        """Return how long the clock stood between two times because of other threads, for intervals on threads."""
        if not self.is_known:
            return np.zeros(len(start_ns), np.int64)
        lost = self._before(end_ns) - self._before(start_ns)
        for thread_id in np.intersect1d(thread_ids, self._thread_id).tolist():
            own, here = self._thread_id == thread_id, thread_ids == thread_id
            ns, total = self._ns[own], _totals(self._dur_ns[own])
            lost[here] -= total[np.searchsorted(ns, end_ns[here])] - total[np.searchsorted(ns, start_ns[here])]
        return lost

    def _before(self, ns: Int64) -> Int64:
        found: Int64 = _totals(self._dur_ns)[np.searchsorted(self._ns, ns)]
        return found


def _totals(dur_ns: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(dur_ns)])
