"""Device ticks → host nanoseconds: piecewise linear between sync records, in integers, with a bound of the error.

A sync record means: while the host clock went from `before` to `after`, the counter read `ticks`. The midpoint of the
two is used as the host time of `ticks`, and half of their difference is its uncertainty. Between two neighbouring
records the map is the straight line through both, rounded down:

    host(t) = h₀ + ⌊(t − t₀) · (h₁ − h₀) / (t₁ − t₀)⌋

Before the first and after the last record the line through the nearest two is extended.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, differences, sums
from traceconv.base.integers import LARGEST
from traceconv.normalize.time_bounds import TimeBounds

_NS_PER_S = 1_000_000_000
#: Below this many ticks, products with a remainder of a division fit 63 bits.
_SHORT = 1 << 31
#: Maximum number of knots; of more sync records, the best of each stretch is used.
_MAX_KNOTS = 1 << 18
#: A reading this many times as uncertain as the median was delayed, and is not used.
_DELAYED = 4
#: Limit for ticks, and for distances from the sync records in ns (2^62 ns are 146 years).
LIMIT = 1 << 62
#: Distances in ns from this on are too long; slightly less than the limit, because of float rounding.
_STEEP = LIMIT - (1 << 12)


@dataclass(frozen=True)
class SyncSummary:
    """How the sync records of a device were used."""

    used: int
    delayed: int
    contradicting: int


class DeviceClock:
    """Maps one device's ticks to host ns. Created by `align`.

    It keeps the bounds of the mapped ticks, since ticks outside of the sync records widen the error bound.
    """

    def __init__(self, ticks: Int64, host_ns: Int64, half_ns: Int64, summary: SyncSummary, clock_hz: int) -> None:
        self.summary = summary
        self._ticks = ticks
        self._host_ns = host_ns
        self._half_ns = half_ns
        self._clock_hz = clock_hz
        self._mapped = TimeBounds()
        steps = np.diff(ticks)
        rises = np.diff(host_ns)
        self._steps = steps
        self._quotients = rises // steps
        self._rest = rises % steps
        self._short_steps = int(steps.max()) < _SHORT
        self._steepest = int(np.abs(self._quotients).max())

    def to_host_ns(self, ticks: NDArray[np.uint64]) -> tuple[Int64, NDArray[np.bool_] | None]:
        """Return each tick's host ns, and which are valid (None: all): ticks up to `LIMIT` whose time fits 64 bits."""
        if not len(ticks):
            return np.zeros(0, np.int64), None
        limit = np.uint64(LIMIT)
        valid = None
        if ticks.max() > limit:
            valid = ticks <= limit
            ticks = np.where(valid, ticks, np.uint64(self._ticks[0]))
        asked = ticks.astype(np.int64)
        segment = np.searchsorted(self._ticks, asked, side="right") - 1
        np.clip(segment, 0, len(self._steps) - 1, out=segment)
        distance = asked - self._ticks[segment]
        quotient = self._quotients[segment]
        farthest = max(int(distance.max()), -int(distance.min()))
        if self._steepest * farthest >= _STEEP:
            # Products that exceed 64 bits are not times: a float identifies them accurately enough.
            near = np.abs(quotient.astype(np.float64) * distance) < _STEEP
            distance = np.where(near, distance, 0)
            valid = near if valid is None else valid & near
        if self._short_steps and farthest < _SHORT:
            part = distance * self._rest[segment] // self._steps[segment]
        else:
            part = _multiply_divide(distance, self._rest[segment], self._steps[segment])
        # The product is less than 2^62, and so is the part.
        result, beyond = sums(self._host_ns[segment], distance * quotient + part)
        if beyond.any():
            valid = ~beyond if valid is None else valid & ~beyond
        self._mapped.note_times(asked if valid is None else asked[valid])
        return np.asarray(result if valid is None else np.where(valid, result, 0)), valid

    def error_bound_ns(self) -> int | None:
        """Return a bound of |mapped − true host time| for all ticks mapped so far; None without enough records.

        For a stretch between two sync records: the larger uncertainty of the two, plus the difference between the
        stretch's length and what its neighbours' rates predict (which reveals a jump or a change of drift), plus
        what the uncertainties of all these records may hide of that, plus one tick and one ns of rounding. A single
        stretch has no neighbour to be compared with: None. No record shows a jump before the first or after the last.
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
            if len(near) == 1:  # at an edge: a change over a reading is in the only neighbour as well
                near += [j for j in (index - 2, index + 2) if 0 <= j < len(rises)]
            blur = [half[j] + half[j + 1] for j in (index, *near)]
            off = max(
                (abs(rise * steps[j] - rises[j] * step) + blurred * step) // steps[j] + 1
                for j, blurred in zip(near, blur[1:], strict=True)
            )
            bounds.append(max(half[index], half[index + 1]) + blur[0] + off + rounding)
        for edge, outside in (
            (0, 0 if self._mapped.first_ns is None else int(self._ticks[0]) - self._mapped.first_ns),
            (-1, 0 if self._mapped.last_ns is None else self._mapped.last_ns - int(self._ticks[-1])),
        ):
            if outside > 0:  # the bound of the edge stretch grows in proportion
                bounds.append(bounds[edge] * (1 + 2 * -(-outside // steps[edge])))
        bound = max(bounds)
        return bound if bound < LIMIT else None


def _multiply_divide(distance: Int64, rest: Int64, steps: Int64) -> Int64:
    """⌊distance · rest / steps⌋ for 0 ≤ rest < steps ≤ 2^62, |distance| ≤ 2^62; the product has up to 124 bits.

    Long division in base 2^bits, the base chosen so that each digit's sum, below 2 · steps · 2^bits, fits 64 bits.
    """
    magnitude = np.abs(distance).astype(np.uint64)
    divisor, factor = steps.astype(np.uint64), rest.astype(np.uint64)
    bits = 63 - int(steps.max()).bit_length() if len(steps) else 1
    quotient, remainder = np.zeros_like(magnitude), np.zeros_like(magnitude)
    digits = -(-int(magnitude.max()).bit_length() // bits) if len(magnitude) else 0
    for digit in range(digits - 1, -1, -1):
        value = (magnitude >> np.uint64(digit * bits)) & np.uint64((1 << bits) - 1)
        remainder = (remainder << np.uint64(bits)) + value * factor
        quotient = (quotient << np.uint64(bits)) + remainder // divisor
        remainder %= divisor
    result = quotient.astype(np.int64)
    return np.where(distance < 0, -result - (remainder > 0), result)


def align(ticks: NDArray[np.uint64], before_ns: Int64, after_ns: Int64, clock_hz: int) -> DeviceClock | None:
    """Return a clock from sync records (three arrays of one length); None if none of them can be used.

    `clock_hz` is the counter's nominal frequency, used if there is only one record.
    """
    sound = (ticks < LIMIT) & (after_ns >= before_ns) & (before_ns >= -LARGEST)
    if sound.any():
        # The difference of two readings that are both close to a third fits 64 bits.
        middle = np.full(len(ticks), np.sort(before_ns[sound])[sound.sum() // 2])
        for ns in (before_ns, after_ns):
            apart, beyond = differences(ns, middle)
            sound &= ~beyond & (apart > -LIMIT) & (apart < LIMIT)
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
        tick, host = _nominal(int(tick[0]), int(host[0]), clock_hz)
        half = np.append(half, half)
    return DeviceClock(tick, host, half, summary, clock_hz)


def _nominal(tick: int, host_ns: int, clock_hz: int) -> tuple[Int64, Int64]:
    """Return one reading, and a second point by the nominal frequency: a second later, or earlier if that overflows."""
    later = int(host_ns > LARGEST - _NS_PER_S)
    ticks = [tick + clock_hz * (place - later) for place in (0, 1)]
    times = [host_ns + _NS_PER_S * (place - later) for place in (0, 1)]
    return np.array(ticks, np.int64), np.array(times, np.int64)


def unsynced(first_tick: int, host_ns: int, clock_hz: int) -> DeviceClock:
    """Return a clock for a device without sync records: its nominal rate, with `first_tick` at `host_ns`."""
    tick, host = _nominal(first_tick, host_ns, clock_hz)
    return DeviceClock(tick, host, np.zeros(2, np.int64), SyncSummary(0, 0, 0), clock_hz)


def _rising(tick: Int64, host: Int64) -> NDArray[np.bool_]:
    """Select as many readings as possible so that both clocks rise. `tick` does not fall."""
    if len(tick) < 2 or (np.all(np.diff(tick) > 0) and np.all(np.diff(host) > 0)):
        return np.ones(len(tick), np.bool_)
    # Longest rising subsequence: tails[n] is the place of the lowest reading that n + 1 rising ones can end with.
    # Readings of one tick are visited from the highest down, so that at most one of them is selected.
    order = np.lexsort((-host, tick))
    values = host[order].tolist()
    tails: list[int] = []
    tail_values: list[int] = []
    before = [-1] * len(values)
    for place, value in enumerate(values):
        length = bisect_left(tail_values, value)
        before[place] = tails[length - 1] if length else -1
        if length == len(tails):
            tails.append(place)
            tail_values.append(value)
        else:
            tails[length], tail_values[length] = place, value
    keep = np.zeros(len(tick), np.bool_)
    place = tails[-1]
    while place >= 0:
        keep[order[place]] = True
        place = before[place]
    return keep


def _best_of_stretches(half: Int64, length: int) -> NDArray[np.intp]:
    """Return the least uncertain reading of each stretch of `length`, and always the first and the last."""
    starts = np.arange(0, len(half), length)
    best = [start + int(np.argmin(half[start : start + length])) for start in starts.tolist()]
    return np.array(sorted({0, len(half) - 1, *best}), np.intp)
