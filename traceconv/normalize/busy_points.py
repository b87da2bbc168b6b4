"""Cumulative busy time of devices and streams at points of time, from tasks in the order of their start.

Let C be the sum of what each task that starts before a time t adds to the union of those before it. The union's part
after t lasts from t to their latest end, because all of them have started, so the length of the union before t is
C − max(0, latest end − t). Lengths are computed modulo 2^64, which no union exceeds. Points
at which one exceeds 63 bits are omitted: reports then begin at an earlier point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import LARGEST

#: Tasks of a device or stream per point: reports read at most that many for each end of a window.
POINT_TASKS = 1024
#: Gaps before tasks that were launched in time are their start delay below this limit (the default of HTA).
START_WAIT_NS = 30_000
#: Shorter gaps between the tasks of a device are not kept.
GAP_NS = 10_000
#: The bit of each kind of work; other kinds have none.
KIND_BITS = {"compute": 1, "copy": 2, "collective": 4}

_ANY = 8
_NO_NS = -(2**63)

#: Length of a union so far, and the latest end in it.
_Union: TypeAlias = "tuple[int, int]"
UInt64: TypeAlias = "NDArray[np.uint64]"
Places: TypeAlias = "NDArray[np.intp]"


def _unions() -> Iterator[tuple[str, int]]:
    """Yield the column and the bits of each union of kinds."""
    yield "busy_ns", _ANY
    for count in range(1, len(KIND_BITS) + 1):
        for kinds in combinations(KIND_BITS, count):
            yield f"{'_or_'.join(kinds)}_ns", sum(KIND_BITS[kind] for kind in kinds)


_UNIONS = dict(_unions())
#: Columns with the latest end of the tasks that run at the point.
_ENDS = {"busy_until_ns": _ANY, **{f"{kind}_until_ns": bit for kind, bit in KIND_BITS.items()}}


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks in the order of their start and end: kinds as bits, times, and launches, which may be unknown."""

    kinds: Int64
    start_ns: Int64
    end_ns: Int64
    submit_ns: Int64
    is_submitted: Mask

    def __getitem__(self, rows: slice | Places) -> Tasks:
        return Tasks(
            self.kinds[rows], self.start_ns[rows], self.end_ns[rows], self.submit_ns[rows], self.is_submitted[rows]
        )


class DevicePoints:
    """Takes the tasks of a device, batch by batch; returns columns of points at some starts of tasks and at `bounds`.

    bounds  times in ascending order
    """

    def __init__(self, bounds: Int64) -> None:
        self._bounds = bounds
        self._last_ns = _NO_NS
        self._unions = dict.fromkeys(_UNIONS.values(), (0, _NO_NS))

    def gaps(self, tasks: Tasks) -> tuple[Int64, Int64]:
        """Return starts and ends of the gaps before these tasks, which `take` gets next."""
        _, end_ns = self._unions[_ANY]
        reached = np.maximum.accumulate(np.concatenate(([end_ns], tasks.end_ns[:-1])))
        begins = np.maximum(tasks.start_ns, reached)
        # Nothing runs before the first task.
        places = np.flatnonzero(((begins - reached).view(np.uint64) >= GAP_NS) & (reached != _NO_NS))
        return reached[places], begins[places]

    def take(self, tasks: Tasks) -> dict[str, pa.Array]:
        """Return the points up to the last start of these tasks, of which there is at least one task."""
        last_ns = int(tasks.start_ns[-1])
        marks = tasks.start_ns[POINT_TASKS - 1 :: POINT_TASKS]
        # The tasks that start before a time are known once one starts at that time or later.
        count = int(np.searchsorted(self._bounds, last_ns, "right"))
        times = np.unique(np.concatenate((marks[marks > self._last_ns], self._bounds[:count])))
        self._bounds, self._last_ns = self._bounds[count:], last_ns
        places = np.searchsorted(tasks.start_ns, times)
        kinds = np.flatnonzero(np.bincount(tasks.kinds)).tolist()
        # Unions of the same tasks are the same: most devices have tasks of one kind.
        known: dict[tuple[_Union, tuple[int, ...]], tuple[_Union, UInt64, Int64]] = {}
        found = {}
        for bits, before in self._unions.items():
            own = before, tuple(kind for kind in kinds if bits == _ANY or kind & bits)
            if own not in known:
                known[own] = _added(before, bits, tasks, places)
            self._unions[bits], lengths, ends = known[own]
            found[bits] = lengths, ends
        return _device_columns(times, found)

    def rest(self) -> dict[str, pa.Array]:
        """Return the points after the start of the last task."""
        times, self._bounds = self._bounds, self._bounds[:0]
        size = len(times)
        found = {
            bits: (np.full(size, length_ns, np.uint64), np.full(size, end_ns))
            for bits, (length_ns, end_ns) in self._unions.items()
        }
        return _device_columns(times, found)

    def lengths(self) -> dict[str, int]:
        """Return the length of each union of all tasks so far, by its column."""
        return {name: self._unions[bits][0] for name, bits in _UNIONS.items()}


class StreamPoints:
    """Takes the tasks of a stream, batch by batch; returns columns of points at some of their starts."""

    def __init__(self) -> None:
        self._count = 0
        self._end_ns = self._last_ns = _NO_NS
        self._waits = dict.fromkeys(("idle_ns", "host_wait_ns", "start_wait_ns"), 0)

    def take(self, tasks: Tasks) -> dict[str, pa.Array]:
        """Return the points up to the last start of these tasks, of which there is at least one task."""
        marks = tasks.start_ns[POINT_TASKS - 1 - self._count % POINT_TASKS :: POINT_TASKS]
        times = np.unique(marks[marks > self._last_ns])
        places = np.searchsorted(tasks.start_ns, times)
        reached = np.maximum.accumulate(np.concatenate(([self._end_ns], tasks.end_ns)))
        before = reached[:-1]
        gaps = (np.maximum(tasks.start_ns, before) - before).view(np.uint64)
        if not self._count:
            gaps[0] = 0  # nothing runs before the first task
        is_late = tasks.is_submitted & (tasks.submit_ns > before)
        parts = {
            "idle_ns": gaps,
            "host_wait_ns": np.where(is_late, gaps, 0),
            "start_wait_ns": np.where(tasks.is_submitted & ~is_late & (gaps < START_WAIT_NS), gaps, 0),
        }
        sums: dict[str, UInt64] = {}
        for name, part in parts.items():
            total = np.concatenate((np.array([self._waits[name]], np.uint64), part)).cumsum(dtype=np.uint64)
            self._waits[name] = int(total[-1])
            sums[name] = total[places]
        self._count += len(before)
        self._end_ns, self._last_ns = int(reached[-1]), int(tasks.start_ns[-1])
        if not len(times):
            return {}
        kept = sums["idle_ns"] <= LARGEST
        columns = {"ts_ns": times, **{name: part.view(np.int64) for name, part in sums.items()}}
        columns["busy_until_ns"] = reached[places]
        return {name: pa.array(column[kept]) for name, column in columns.items()}


def _added(before: _Union, bits: int, tasks: Tasks, places: Places) -> tuple[_Union, UInt64, Int64]:
    """Add tasks to a union; return it, and its length and its latest end before each of some places."""
    length_ns, end_ns = before
    # A task of another kind is empty.
    ends = tasks.end_ns if bits == _ANY else np.where(tasks.kinds & bits, tasks.end_ns, tasks.start_ns)
    reached = np.maximum.accumulate(np.concatenate(([end_ns], ends)))
    begins = np.maximum(tasks.start_ns, reached[:-1])
    added = (np.maximum(ends, begins) - begins).view(np.uint64)
    lengths = np.concatenate((np.array([length_ns], np.uint64), added)).cumsum(dtype=np.uint64)
    return (int(lengths[-1]), int(reached[-1])), lengths[places], reached[places]


def _device_columns(times: Int64, unions: dict[int, tuple[UInt64, Int64]]) -> dict[str, pa.Array]:
    """Return the columns of points from each union's length and latest end before them; none if there are no points."""
    if not len(times):
        return {}
    before = {
        bits: lengths - (np.maximum(ends, times) - times).view(np.uint64) for bits, (lengths, ends) in unions.items()
    }
    kept = before[_ANY] <= LARGEST
    columns = {"ts_ns": pa.array(times[kept])}
    for name, bits in _UNIONS.items():
        columns[name] = pa.array(before[bits][kept].view(np.int64))
    for name, bits in _ENDS.items():
        ends = unions[bits][1][kept]
        columns[name] = pa.array(ends, mask=ends <= times[kept])
    return columns
