"""Waits of tasks on tracks that hold other slices too: what an annotation lies around is no gap between tasks.

While a trace is nested, the gap before a slice is from the slice before it on its track, whatever that is. PyTorch
draws annotations (`gpu_user_annotation`) on the streams themselves, onnxruntime its kernels inside of its calls: there
the gaps are made again from the tasks alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import differences, is_time
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.complete_nesting import UNKNOWN
from traceconv.schema.dtypes import RecordArray, gather

Int64 = NDArray[np.int64]

_DTYPE = np.dtype(
    [("start_ns", "<i8"), ("dur_ns", "<i8"), ("id", "<i8"), ("row", "<i8"), ("track", "<i4"), ("endless", "<i4")]
)
_GAP_DTYPE = np.dtype([("row", "<i8"), ("gap_ns", "<i8")])


class TaskWaits:
    """Takes the tasks of shared tracks, in any order; then `put` writes their gaps over those of all slices."""

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
        endless: NDArray[np.bool_],
    ) -> None:
        """Takes tasks. `row`: their places among all slices. `endless`: whose end is unknown."""
        tasks = np.zeros(len(row), _DTYPE)
        tasks["start_ns"], tasks["dur_ns"], tasks["id"] = start_ns, dur_ns, ids
        tasks["row"], tasks["track"], tasks["endless"] = row, track, endless
        self._tasks.add(tasks)

    def put(self, nested: Spool) -> None:
        """Writes the gaps into the rows of `nested`, which has one for each slice."""
        for window in self._tasks.windows():
            self._gaps.add(self._of_window(window))
        for gaps in self._gaps.windows():
            nested.put(np.ascontiguousarray(gaps["row"]), "gap_ns", gaps["gap_ns"])

    def _of_window(self, tasks: RecordArray) -> RecordArray:
        # As slices are nested: by start, the longest first.
        endless = tasks["endless"] != 0
        rank = np.where(endless, np.iinfo(np.int64).min, -tasks["dur_ns"])
        order = np.lexsort((tasks["id"], rank, tasks["start_ns"], tasks["track"]))
        tasks, endless = gather(tasks, order), endless[order]
        track, start = tasks["track"], tasks["start_ns"]
        end = start + tasks["dur_ns"]
        gaps = np.zeros(len(tasks), _GAP_DTYPE)
        gaps["row"] = tasks["row"]
        found, beyond = differences(start[1:], end[:-1])
        gaps["gap_ns"][1:] = np.where(endless[:-1] | beyond, UNKNOWN, found)
        first = np.ones(len(tasks), np.bool_)
        first[1:] = track[1:] != track[:-1]
        heads = np.flatnonzero(first)
        for place in heads.tolist():  # tracks, not tasks
            before = self._last_end.get(int(track[place]), int(start[place]))
            gap = None if before is None else int(start[place]) - before
            gaps["gap_ns"][place] = gap if gap is not None and is_time(gap) else UNKNOWN
        for place in np.append(heads[1:] - 1, len(tasks) - 1).tolist():
            self._last_end[int(track[place])] = None if endless[place] else int(end[place])
        return gaps

    def close(self) -> None:
        """Frees the disk space."""
        self._tasks.close()
        self._gaps.close()
