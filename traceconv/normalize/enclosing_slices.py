"""Which slices of a thread are open at given times, from slices and times in ranges of time.

The slices that are open at a time t are found from the last one that starts by then: itself, and those reached by
following parents. A parent is the nearest earlier slice of the track that ends after its child starts, so that slices
which overlap without one enclosing the other are found, too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import LARGEST

#: Slices around a time that are looked at, from the innermost one outwards.
_MOST_LEVELS = 512

Places: TypeAlias = "NDArray[np.intp]"


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of which none is empty; `track` is unique over all runs. The last two tell what their names match."""

    track: Int64
    start_ns: Int64
    end_ns: Int64
    ids: Int64
    loads: Mask
    syncs: Mask

    def __getitem__(self, rows: Places | Mask) -> Slices:
        return Slices(*(getattr(self, field.name)[rows] for field in fields(self)))

    def __add__(self, other: Slices) -> Slices:
        names = (field.name for field in fields(self))
        return Slices(*(np.concatenate((getattr(self, name), getattr(other, name))) for name in names))


@dataclass(frozen=True, slots=True)
class Probes:
    """Times at which threads are looked at, each within the interval whose halves are compared."""

    track: Int64
    at_ns: Int64
    begin_ns: Int64
    finish_ns: Int64


@dataclass(frozen=True, slots=True)
class Found:
    """For each probe: the innermost open slice that covers at least half of its interval, -1 for none.

    loads, half_syncs  whether such a slice matches
    syncs              whether any open slice does
    """

    ids: Int64
    loads: Mask
    half_syncs: Mask
    syncs: Mask


class OpenSlices:
    """Takes slices and probes of one range of time after another."""

    def __init__(self) -> None:
        none, no = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        self._open = Slices(none, none, none, none, no, no)

    def look(self, slices: Slices, probes: Probes, until_ns: int) -> Found:
        """Take the slices that start in a range of time and answer its probes. The next range begins at `until_ns`."""
        slices = self._open + _relevant(slices, probes, until_ns)
        slices = slices[np.lexsort((slices.ids, -slices.end_ns, slices.start_ns, slices.track))]
        self._open = slices[slices.end_ns > until_ns]
        return _find(slices, probes)


def _relevant(slices: Slices, probes: Probes, until_ns: int) -> Slices:
    """Return the slices that are open at a probe or at `until_ns`, of any track: few, if there are few probes."""
    times = np.sort(np.append(probes.at_ns, until_ns))
    return slices[np.searchsorted(times, slices.start_ns) < np.searchsorted(times, slices.end_ns)]


def _find(slices: Slices, probes: Probes) -> Found:
    """Answer probes from slices in the order of track and start, outer ones first."""
    count = len(probes.at_ns)
    found = Found(np.full(count, -1), *(np.zeros(count, np.bool_) for _ in range(3)))
    parents = _parents(slices)
    at = _last_started(slices, probes)
    rows = np.flatnonzero(at >= 0)
    at = at[rows]
    for _ in range(_MOST_LEVELS):
        if not len(rows):
            break
        ends = slices.end_ns[at]
        is_open = ends > probes.at_ns[rows]
        begin_ns, finish_ns = probes.begin_ns[rows], probes.finish_ns[rows]
        # Differences of times may need 64 bits without a sign.
        covered = (np.minimum(ends, finish_ns) - np.maximum(slices.start_ns[at], begin_ns)).view(np.uint64)
        is_half = is_open & (covered >= (finish_ns - begin_ns).view(np.uint64) - covered)
        found.syncs[rows] |= is_open & slices.syncs[at]
        found.half_syncs[rows] |= is_half & slices.syncs[at]
        found.loads[rows] |= is_half & slices.loads[at]
        is_first = is_half & (found.ids[rows] < 0)
        found.ids[rows[is_first]] = slices.ids[at[is_first]]
        at = parents[at]
        rows, at = rows[at >= 0], at[at >= 0]
    return found


def _parents(slices: Slices) -> Places:
    """Return the place of the nearest earlier slice of the track that ends after each one starts, -1 for none."""
    parents = np.arange(-1, len(slices.ids) - 1)
    if len(parents):
        parents[1:][np.diff(slices.track) != 0] = -1
    left = np.flatnonzero(parents >= 0)
    while len(left):
        # What ended before an earlier slice started ended before this one, too.
        left = left[slices.end_ns[parents[left]] <= slices.start_ns[left]]
        parents[left] = parents[parents[left]]
        left = left[parents[left] >= 0]
    return parents


def _last_started(slices: Slices, probes: Probes) -> Places:
    """Return the place of the last slice of the track that starts by each probe, -1 for none."""
    count = len(slices.ids)
    track = np.concatenate((slices.track, probes.track))
    times = np.concatenate((slices.start_ns, probes.at_ns))
    is_probe = np.arange(len(track)) >= count
    order = np.lexsort((np.where(is_probe, LARGEST, np.arange(len(track))), times, track))
    last = np.maximum.accumulate(np.where(order < count, order, -1))
    at = np.full(len(track), -1)
    at[order] = last
    at = at[count:]
    return np.where((at >= 0) & (slices.track[at] == probes.track), at, -1) if count else at
