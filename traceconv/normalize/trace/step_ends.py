"""Steps of writers that mark only where a step ends: an instant on each thread that takes part.

On each thread the first step starts with the thread's first slice, and each other one where the one before it ends. The
step's times are those of the program's thread. Threads without such instants have no steps: what they do at a time may
be the work of an earlier step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.names import constant
from traceconv.normalize.rows import ColumnData, Nullable, row_batch
from traceconv.normalize.trace.steps import on_devices


class EndedSteps:
    """All steps of a trace whose writer marks their ends; used like `steps.Steps`."""

    def __init__(
        self,
        ends: Mapping[int, Int64],
        first_ns: Mapping[int, int],
        process_of: Callable[[int], int | None],
        is_program: Callable[[int], bool],
    ) -> None:
        """`ends`: by track, the sorted times of its instants. `first_ns`: the start of a track's first slice."""
        parts: list[tuple[Int64, Int64, Int64]] = [(np.zeros(0, np.int64),) * 3]  # number, start and end of steps
        count = 0
        self._times: dict[int, tuple[Int64, Int64]] = {}  # by track: when steps start and end; step_id of each
        found: dict[int | None, Int64] = {}  # by process: step_id of each step
        for track in sorted(ends):
            process, times = process_of(track), ends[track]
            if is_program(track) and process not in found:
                starts = np.concatenate([[min(first_ns.get(track, int(times[0])), int(times[0]))], times[:-1]])
                numbers = np.arange(1, len(times) + 1)
                found[process] = numbers + count
                count += len(times)
                parts.append((numbers, starts, times))
        self._number, self._start, self._end = (np.concatenate(one) for one in zip(*parts, strict=True))
        for track, times in ends.items():
            ids = found.get(process_of(track), np.zeros(0, np.int64))
            steps = min(len(times), len(ids))
            self._times[track] = times[:steps], ids[:steps]

    def __len__(self) -> int:
        return len(self._number)

    def at(
        self, tracks: NDArray[np.int32], ns: Int64, process_of: Callable[[int], int | None], *, tasks: bool
    ) -> tuple[Nullable, Mask]:
        """Return the step of each timestamp on a track; none of them is a device's."""
        del process_of, tasks
        steps, unknown = np.zeros(len(ns), np.int64), np.ones(len(ns), np.bool_)
        for track in np.unique(tracks).tolist():
            ends, ids = self._times.get(track, (None, None))
            if ends is None or ids is None or not len(ids):
                continue
            rows = np.flatnonzero(tracks == track)
            place = np.searchsorted(ends, ns[rows], side="right")
            known = place < len(ids)
            steps[rows[known]], unknown[rows[known]] = ids[place[known]], False
        return Nullable(steps, unknown), np.zeros(len(ns), np.bool_)

    def rows(self, ran: Int64) -> pa.RecordBatch:
        """Return the rows of table step: a step on each device that ran part of it (see `steps.Steps.rows`)."""
        step_ids = np.arange(1, len(self) + 1)
        row, devices = on_devices(step_ids, ran)
        columns: dict[str, ColumnData] = {
            "step_id": step_ids[row],
            "device_id": devices,
            "iteration": self._number[row],
            "step_source": constant("marker", len(row)),
            "start_ns": self._start[row],
            "end_ns": self._end[row],
        }
        return row_batch("step", columns)
