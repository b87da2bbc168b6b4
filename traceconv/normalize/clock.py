"""Device ticks → host nanoseconds: piecewise linear between sync records, in integers, with a bound of the error.

A sync record says: while the host clock went from `before` to `after`, the counter read `ticks`. The middle
of the two is taken for the host time of `ticks`, and half of what lies between them is its uncertainty. Between
two neighbouring records the map is the straight line through both, rounded down:

    host(t) = h₀ + ⌊(t − t₀) · (h₁ − h₀) / (t₁ − t₀)⌋

Before the first and after the last record the line of the nearest two goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

_NS_PER_S = 1_000_000_000
#: Ticks between two knots of the map: their products stay within 63 bits.
_MAX_STEP = 1 << 31
#: Knots kept of a log with more sync records than this: the best of each stretch.
_MAX_KNOTS = 1 << 18
#: A reading this many times as uncertain as the median one was delayed, and says less than its neighbours.
_DELAYED = 4
#: Times beyond this are no times (2^62 ns are 146 years).
TIME_LIMIT_NS = 1 << 62


@dataclass(frozen=True)
class SyncSummary:
    """How the sync records of a device were used."""

    used: int
    delayed: int
    contradicting: int


class DeviceClock:
    """Maps one device's ticks to host ns. Made by `align`.

    It notes how far outside the sync records it was asked, since that widens the bound of the error.
    """

    def __init__(self, ticks: Int64, host_ns: Int64, half_ns: Int64, summary: SyncSummary, clock_hz: int) -> None:
        self.summary = summary
        self._ticks = ticks
        self._host_ns = host_ns
        self._half_ns = half_ns
        self._clock_hz = clock_hz
        self._first_asked: int | None = None
        self._last_asked: int | None = None
        self._knot_ticks, self._knot_ns = self._subdivide()
        steps = np.diff(self._knot_ticks)
        rises = np.diff(self._knot_ns)
        self._steps = steps
        self._whole = rises // steps
        self._rest = rises % steps

    def to_host_ns(self, ticks: NDArray[np.uint64]) -> tuple[Int64, NDArray[np.bool_] | None]:
        """Host ns of each tick, and which are valid (None: all). Invalid are those beyond `TIME_LIMIT_NS`."""
        if not len(ticks):
            return np.zeros(0, np.int64), None
        low, high = int(ticks.min()), int(ticks.max())
        self._first_asked = low if self._first_asked is None else min(low, self._first_asked)
        self._last_asked = high if self._last_asked is None else max(high, self._last_asked)
        limit = np.uint64(TIME_LIMIT_NS)
        valid = None
        if high > limit:
            valid = ticks <= limit
            ticks = np.where(valid, ticks, np.uint64(self._knot_ticks[0]))
        asked = ticks.astype(np.int64)
        segment = np.searchsorted(self._knot_ticks, asked, side="right") - 1
        np.clip(segment, 0, len(self._steps) - 1, out=segment)
        distance = asked - self._knot_ticks[segment]
        far = (distance >= _MAX_STEP) | (distance <= -_MAX_STEP)
        if not far.any():
            return self._interpolate(segment, distance), valid
        result = self._interpolate(segment, np.where(far, 0, distance))
        # Python integers: these lie far outside the sync records, where products leave 64 bits.
        exact = [
            int(self._knot_ns[s])
            + d * (int(self._whole[s]) * int(self._steps[s]) + int(self._rest[s])) // int(self._steps[s])
            for s, d in zip(segment[far].tolist(), distance[far].tolist(), strict=True)
        ]
        fits = np.array([-TIME_LIMIT_NS < value < TIME_LIMIT_NS for value in exact])
        result[far] = [value if fit else 0 for value, fit in zip(exact, fits.tolist(), strict=True)]
        if not fits.all():
            valid = np.ones(len(ticks), np.bool_) if valid is None else valid
            valid[np.flatnonzero(far)[~fits]] = False
        return result, valid

    def _interpolate(self, segment: NDArray[np.intp], distance: Int64) -> Int64:
        part = distance * self._rest[segment] // self._steps[segment]
        return np.asarray(self._knot_ns[segment] + distance * self._whole[segment] + part)

    def error_bound_ns(self) -> int | None:
        """A bound of |mapped − true host time| for all ticks asked so far; None when the records can't give one.

        For a stretch between two sync records: the larger uncertainty of the two, plus how far the stretch's
        length differs from what its neighbours' rates predict (which a jump or a change of drift shows in),
        plus one tick and one ns of rounding. One stretch alone has no neighbour to be judged by: None.
        """
        if len(self._ticks) < 3:
            return None
        rises = np.diff(self._host_ns).tolist()
        steps = np.diff(self._ticks).tolist()
        half = self._half_ns.tolist()
        rounding = 1 + -(-_NS_PER_S // self._clock_hz)
        bounds: list[int] = []
        for index, (rise, step) in enumerate(zip(rises, steps, strict=True)):
            near = [j for j in (index - 1, index + 1) if 0 <= j < len(rises)]
            off = max(abs(rise * steps[j] - rises[j] * step) // steps[j] + 1 for j in near)
            bounds.append(max(half[index], half[index + 1]) + off + rounding)
        for edge, outside in (
            (0, int(self._ticks[0]) - (self._first_asked if self._first_asked is not None else int(self._ticks[0]))),
            (-1, (self._last_asked or 0) - int(self._ticks[-1])),
        ):
            if outside > 0:  # the bound of the edge stretch grows in proportion
                bounds.append(bounds[edge] * (1 + 2 * -(-outside // steps[edge])))
        return max(bounds)

    def _subdivide(self) -> tuple[Int64, Int64]:
        """The knots of the map: the sync records, with exact points between those that lie far apart."""
        gaps = np.diff(self._ticks)
        if gaps.max() < _MAX_STEP:
            return self._ticks, self._host_ns
        ticks: list[int] = []
        host: list[int] = []
        for t0, t1, h0, h1 in zip(
            self._ticks[:-1].tolist(),
            self._ticks[1:].tolist(),
            self._host_ns[:-1].tolist(),
            self._host_ns[1:].tolist(),
            strict=True,
        ):
            # A hostile gap must not become a million knots: past the limit the slow exact path serves.
            pieces = min(-(-(t1 - t0) // (_MAX_STEP - 1)), 1 << 12)
            for piece in range(pieces):
                t = t0 + (t1 - t0) * piece // pieces
                ticks.append(t)
                host.append(h0 + (t - t0) * (h1 - h0) // (t1 - t0))
        ticks.append(int(self._ticks[-1]))
        host.append(int(self._host_ns[-1]))
        return np.array(ticks, np.int64), np.array(host, np.int64)


def align(ticks: NDArray[np.uint64], before_ns: Int64, after_ns: Int64, clock_hz: int) -> DeviceClock | None:
    """A clock from sync records (three arrays of one length); None when none of them can be used.

    `clock_hz` is the counter's nominal frequency, used alone where there is only one record.
    """
    sound = (ticks < TIME_LIMIT_NS) & (after_ns >= before_ns)
    sound &= (np.abs(before_ns) < TIME_LIMIT_NS) & (np.abs(after_ns) < TIME_LIMIT_NS)
    contradicting = int(len(ticks) - sound.sum())
    order = np.argsort(ticks[sound], kind="stable")
    tick = ticks[sound][order].astype(np.int64)
    before, after = before_ns[sound][order], after_ns[sound][order]
    if not len(tick):
        return None
    half = (after - before + 1) // 2
    host = before + (after - before) // 2
    kept = half <= max(_DELAYED * int(np.median(half)), 1)
    delayed = int(len(tick) - kept.sum())
    tick, host, half = tick[kept], host[kept], half[kept]
    rising = _rising(tick, host)
    contradicting += int(len(tick) - rising.sum())
    tick, host, half = tick[rising], host[rising], half[rising]
    if len(tick) > _MAX_KNOTS:
        chosen = _best_of_stretches(half, -(-len(tick) // _MAX_KNOTS))
        tick, host, half = tick[chosen], host[chosen], half[chosen]
    summary = SyncSummary(len(tick), delayed, contradicting)
    if len(tick) == 1:
        # One reading: the nominal frequency gives the second point.
        tick = np.append(tick, tick + clock_hz)
        host = np.append(host, host + _NS_PER_S)
        half = np.append(half, half)
    return DeviceClock(tick, host, half, summary, clock_hz)


def unsynced(first_tick: int, host_ns: int, clock_hz: int) -> DeviceClock:
    """A clock for a device without sync records: its nominal rate, `first_tick` put at `host_ns`."""
    tick = np.array([first_tick, first_tick + clock_hz], np.int64)
    host = np.array([host_ns, host_ns + _NS_PER_S], np.int64)
    return DeviceClock(tick, host, np.zeros(2, np.int64), SyncSummary(0, 0, 0), clock_hz)


def _rising(tick: Int64, host: Int64) -> NDArray[np.bool_]:
    """Which readings to keep so that both clocks rise: those that do not lie behind an earlier one."""
    keep = np.ones(len(tick), np.bool_)
    if len(tick) < 2 or (np.all(np.diff(tick) > 0) and np.all(np.diff(host) > 0)):
        return keep
    highest = np.maximum.accumulate(host)
    keep[1:] = (np.diff(tick) > 0) & (host[1:] > highest[:-1])
    return keep


def _best_of_stretches(half: Int64, length: int) -> NDArray[np.intp]:
    """The index of the least uncertain reading of each stretch of `length`; the first and the last always."""
    starts = np.arange(0, len(half), length)
    best = [start + int(np.argmin(half[start : start + length])) for start in starts.tolist()]
    return np.array(sorted({0, len(half) - 1, *best}), np.intp)
