"""External merge sort of structured rows: sorted runs on disk, merged in windows of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.workers import WorkBehind, Workers
from traceconv.normalize.sort.spool import Spool
from traceconv.schema.dtypes import RecordArray, gather, join

#: Rows of a run, and approximately of a window.
RUN_ROWS = 1 << 17
#: One key in this many is kept in memory, to find the bounds of windows.
_FENCE_ROWS = 1 << 10


class ExternalSort:
    """Rows of one dtype, read in the order of a 64-bit integer field; rows of equal key in the order they were added.

    Memory: one run, one window, and 8 bytes for every `_FENCE_ROWS` rows. Rows of equal key are all in one window.
    """

    def __init__(
        self, dtype: np.dtype[np.void], key: str, run_rows: int = RUN_ROWS, workers: Workers | None = None
    ) -> None:
        """`workers`: sort and write runs; without them, `add` does."""
        self._behind = WorkBehind(workers)
        self._key = key
        self._run_rows = run_rows
        self._spool = Spool(dtype)
        self._pending: list[RecordArray] = []
        self._pending_count = 0
        self._runs: list[tuple[int, int]] = []
        self._fences: list[NDArray[np.int64]] = []
        self.count = 0

    def add(self, rows: RecordArray) -> None:
        """Add rows."""
        if not len(rows):
            return
        self._pending.append(rows)
        self._pending_count += len(rows)
        self.count += len(rows)
        if self._pending_count >= self._run_rows:
            self._behind.submit(self._write_run, self._taken())

    def _taken(self) -> list[RecordArray]:
        pending, self._pending, self._pending_count = self._pending, [], 0
        return pending

    def _sorted(self, pending: list[RecordArray]) -> RecordArray:
        rows = join(pending)
        keys = rows[self._key]
        if len(keys) > 1 and not np.all(keys[1:] >= keys[:-1]):
            rows = gather(rows, np.argsort(keys, kind="stable"))
        return rows

    def _write_run(self, pending: list[RecordArray]) -> None:
        rows = self._sorted(pending)
        self._runs.append((self._spool.count, len(rows)))
        self._fences.append(np.ascontiguousarray(rows[self._key][::_FENCE_ROWS]))
        self._spool.append(rows)

    def windows(self) -> Iterator[RecordArray]:
        """Yield all rows in order, window by window. Can be read once."""
        self._behind.wait()
        if self._pending and not self._runs:
            yield self._sorted(self._taken())
            return
        if self._pending:
            self._write_run(self._taken())
        if not self._runs:
            return
        fences = np.sort(np.concatenate(self._fences))
        bounds = np.unique(fences[:: max(1, self._run_rows // _FENCE_ROWS)])[1:]
        at = [0] * len(self._runs)
        held: list[RecordArray] = [np.zeros(0, self._spool.dtype)] * len(self._runs)
        for bound in (*bounds, None):
            parts = []
            for run in range(len(self._runs)):
                part, held[run], at[run] = self._up_to(run, bound, held[run], at[run])
                if len(part):
                    parts.append(part)
            if parts:
                yield self._sorted(parts)
        self.close()

    def _up_to(self, run: int, bound: int | None, held: RecordArray, at: int) -> tuple[RecordArray, RecordArray, int]:
        """Return the rows of a run with keys below `bound`, the rows read beyond them, and where to read on."""
        first, count = self._runs[run]
        parts = [held] if len(held) else []
        while at < count and (bound is None or not parts or int(parts[-1][self._key][-1]) < bound):
            # Read up to the first fence at or beyond the bound.
            fences = self._fences[run]
            stop = count if bound is None else int(np.searchsorted(fences, bound)) * _FENCE_ROWS
            stop = min(count, max(stop, at + _FENCE_ROWS))
            parts.append(self._spool.read(first + at, stop - at))
            at = stop
        if not parts:
            return held, held, at
        rows = join(parts)
        cut = len(rows) if bound is None else int(np.searchsorted(np.ascontiguousarray(rows[self._key]), bound))
        return rows[:cut], rows[cut:].copy(), at

    def close(self) -> None:
        """Free the disk space."""
        self._spool.close()
        self._pending = []
