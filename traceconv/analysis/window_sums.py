"""Sums over windows of time on devices, exact to the ns: durations of pieces of work, busy time and idle times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from traceconv.base.errors import IncomparableError
from traceconv.base.int64 import Int64, Mask

#: A sum near the limit of 64 bits.
_LARGEST_SUM = 2.0**62

#: Device, op, start, end of pieces, by device and start, and whether each is the first of its op's execution.
Pieces: TypeAlias = tuple[Int64, Int64, Int64, Int64, Mask]


def sums_of(
    pieces: Iterator[Pieces], windows: Int64, sample_of: Int64, ops: int, devices: int, samples: int
) -> tuple[Int64, Int64, Int64, Int64]:
    """Return [op] started pieces, [op, sample] durations inside the windows, [sample] busy time, and [op, sample] idle
    times inside the windows that ended with a piece of the op.

    windows    [window] device, start, end …; by device and start
    sample_of  [window] its sample

    Raises IncomparableError if the durations exceed 64 bits.
    """
    lanes = _lanes(windows, sample_of)
    count = np.zeros(ops, np.int64)
    op_ns, idle_ns = np.zeros((2, ops, samples), np.int64)
    busy_ns = np.zeros(samples, np.int64)
    # Where the pieces seen so far end, by device: what comes after it is busy time that isn't counted yet.
    reached = np.full(devices, np.iinfo(np.int64).min, np.int64)
    total = sum(lane.total for lane in lanes)
    of_device: dict[int, list[_Lane]] = {}
    for lane in lanes:
        of_device.setdefault(lane.device, []).append(lane)
    for device, op, start, end, is_first in pieces:
        found_devices, firsts = np.unique(device, return_index=True)
        for one, first, stop in zip(found_devices.tolist(), firsts, np.append(firsts[1:], len(device)), strict=True):
            starts, ends, of = start[first:stop], end[first:stop], op[first:stop]
            before = np.maximum.accumulate(np.concatenate([reached[one : one + 1], ends]))
            reached[one] = before[-1]
            free = np.maximum(starts, before[:-1])
            for lane in of_device.get(one, ()):
                started = lane.started(starts)
                np.add.at(count, of[started], is_first[first:stop][started])
                found, sample, ns = lane.inside(starts, ends)
                np.add.at(op_ns, (of[found], sample), ns)
                total += float(ns.astype(np.float64).sum())
                _, sample, ns = lane.inside(free, ends)
                np.add.at(busy_ns, sample, ns)
                found, sample, ns = lane.inside(before[:-1], free)
                np.add.at(idle_ns, (of[found], sample), ns)
    if total > _LARGEST_SUM:
        raise IncomparableError(["the durations add up to more than 64 bits of ns"])
    return count, op_ns, busy_ns, idle_ns


class _Lane:
    """Windows of one device that don't overlap, by start."""

    def __init__(self, windows: Int64, samples: Int64) -> None:
        self.device = int(windows[0, 0])
        self._starts = np.ascontiguousarray(windows[:, 1])
        self._ends = np.ascontiguousarray(windows[:, 2])
        self._samples = samples
        self.total = float((self._ends - self._starts).astype(np.float64).sum())

    def started(self, starts: Int64) -> Int64:
        """Return which of these times are inside a window."""
        place = np.searchsorted(self._starts, starts, "right") - 1
        return np.flatnonzero((place >= 0) & (starts < self._ends[place]))

    def inside(self, starts: Int64, ends: Int64) -> tuple[Int64, Int64, Int64]:
        """Return the parts of intervals that are inside a window: index of the interval, sample, duration in ns."""
        first = np.searchsorted(self._ends, starts, "right")
        count = np.where(ends > starts, np.maximum(np.searchsorted(self._starts, ends, "left") - first, 0), 0)
        rows = np.repeat(np.arange(len(starts)), count)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        window = first[rows] + nth
        ns = np.minimum(ends[rows], self._ends[window]) - np.maximum(starts[rows], self._starts[window])
        return rows, self._samples[window], ns


def _lanes(windows: Int64, samples: Int64) -> list[_Lane]:
    """Divide windows, which are by device and start, into groups of one device without overlaps."""
    open_until: dict[tuple[int, int], int] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for row, (device, start, end, _) in enumerate(windows.tolist()):
        lane = 0
        while open_until.get((device, lane), start) > start:
            lane += 1
        open_until[device, lane] = end
        groups.setdefault((device, lane), []).append(row)
    return [_Lane(windows[rows], samples[rows]) for rows in groups.values()]
