"""Gaps between tasks on tracks that also have other slices.

Nesting computes the gap from a slice to the previous slice on its track, whatever that is. PyTorch puts annotations
(`gpu_user_annotation`) on the streams themselves, onnxruntime its kernels inside of its calls: on such tracks the gaps
are recomputed from the tasks alone.
"""

from __future__ import annotations

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.complete_nesting import UNKNOWN
from traceconv.normalize.track_gaps import track_gaps
from traceconv.schema.dtypes import RecordArray, gather

_DTYPE = np.dtype(
    [("start_ns", "<i8"), ("dur_ns", "<i8"), ("id", "<i8"), ("row", "<i8"), ("track", "<i4"), ("endless", "<i4")]
)
_GAP_DTYPE = np.dtype([("row", "<i8"), ("gap_ns", "<i8")])


class SharedTrackGaps:
    """Takes the tasks of shared tracks, in any order; then `put` overwrites their gaps."""

    def __init__(self) -> None:
        self._tasks = ExternalSort(_DTYPE, "start_ns")
        self._gaps = ExternalSort(_GAP_DTYPE, "row")
        #: Track → end of its last task; None: unknown.
        self._last_end: dict[int, int | None] = {}

    def add(
        self,
        row: Int64,
        ids: Int64,
        track: NDArray[np.int32],
        start_ns: Int64,
        dur_ns: Int64,
        endless: Mask,
    ) -> None:
        """Add tasks. `row`: their places among all slices. `endless`: tasks whose end is unknown."""
        tasks = np.zeros(len(row), _DTYPE)
        tasks["start_ns"], tasks["dur_ns"], tasks["id"] = start_ns, dur_ns, ids
        tasks["row"], tasks["track"], tasks["endless"] = row, track, endless
        self._tasks.add(tasks)

    def put(self, nested: Spool) -> None:
        """Write the gaps into `nested`, which has a row for each slice."""
        for window in self._tasks.windows():
            self._gaps.add(self._of_window(window))
        for gaps in self._gaps.windows():
            nested.put(np.ascontiguousarray(gaps["row"]), "gap_ns", gaps["gap_ns"])

    def _of_window(self, tasks: RecordArray) -> RecordArray:
        # In the order of nesting: by start, the longest first.
        endless = tasks["endless"] != 0
        rank = np.where(endless, np.iinfo(np.int64).min, -tasks["dur_ns"])
        order = np.lexsort((tasks["id"], rank, tasks["start_ns"], tasks["track"]))
        tasks, endless = gather(tasks, order), endless[order]
        start = np.ascontiguousarray(tasks["start_ns"])
        gap, unknown = track_gaps(tasks["track"], start, start + tasks["dur_ns"], endless, self._last_end)
        gaps = np.zeros(len(tasks), _GAP_DTYPE)
        gaps["row"], gaps["gap_ns"] = tasks["row"], np.where(unknown, UNKNOWN, gap)
        return gaps

    def close(self) -> None:
        """Free the disk space."""
        self._tasks.close()
        self._gaps.close()
