"""Clocks of a Perfetto trace → nanoseconds of its trace clock, in integers.

A snapshot holds what several clocks showed at one moment. A time of one clock becomes that of another by the last
snapshot of both before it (the first one for what is earlier). Clocks 64 to 127 belong to one sequence of packets;
an incremental one holds differences. Source: Perfetto's page on clock synchronisation.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import LARGEST
from traceconv.wire.protobuf import LEN, fields

#: The clock that times are given in when a packet names none.
BOOTTIME = 6
_SEQUENCE_CLOCKS = range(64, 128)
_WIDE = 1 << 62
#: Times below this can be moved by any offset below _WIDE.
_NEAR = 1 << 61
#: Stretches between snapshots in which many times are moved together.
_MAX_ROUNDS = 64
NAMES = {
    1: "REALTIME",
    2: "REALTIME_COARSE",
    3: "MONOTONIC",
    4: "MONOTONIC_COARSE",
    5: "MONOTONIC_RAW",
    6: "BOOTTIME",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a clock showed: nanoseconds."""

    clock: int
    ns: int
    incremental: bool
    unit_ns: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What clocks showed at one moment."""

    readings: tuple[Reading, ...]
    primary: int | None


def parse_snapshot(data: bytes, start: int, end: int) -> Snapshot:
    """A ClockSnapshot. Raises WireError."""
    readings = []
    primary = None
    for number, kind, value, at in fields(data, start, end):
        if number == 2:
            primary = value
        elif number == 1 and kind == LEN:
            clock = dict.fromkeys((1, 2, 3, 4), 0)
            clock.update({n: v for n, _, v, _ in fields(data, at, at + value)})
            unit = clock[4] or 1
            readings.append(Reading(clock[1], clock[2] * unit, bool(clock[3]), unit))
    return Snapshot(tuple(readings), primary)


@dataclass(slots=True)
class _Pairs:
    """Readings of two clocks at the same moments."""

    points: list[tuple[int, int]] = field(default_factory=list)
    is_sorted: bool = True

    def add(self, source: int, target: int) -> None:
        self.is_sorted = False
        self.points.append((source, target))

    def offset(self, ns: int) -> tuple[int, int, int]:
        """What is to be added to `ns`, and from when to when that holds."""
        if not self.is_sorted:
            # One pair a moment: the last one seen.
            self.points = sorted(dict(self.points).items())
            self.is_sorted = True
        place = max(0, bisect_right(self.points, (ns, _WIDE * 4)) - 1)
        low = -_WIDE if place == 0 else self.points[place][0]
        high = self.points[place + 1][0] if place + 1 < len(self.points) else _WIDE
        return self.points[place][1] - self.points[place][0], low, high


class Clocks:
    """Clocks of the whole trace, from all its snapshots."""

    def __init__(self) -> None:
        self._pairs: dict[int, dict[int, _Pairs]] = {}
        self._primary: int | None = None
        self.first: Snapshot | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Takes the next snapshot of the file."""
        if self.first is None:
            self.first = snapshot
        if self._primary is None and snapshot.primary:
            self._primary = snapshot.primary
        shared = [reading for reading in snapshot.readings if reading.clock not in _SEQUENCE_CLOCKS]
        for one in shared:
            for other in shared:
                if one.clock != other.clock and max(one.ns, other.ns) <= LARGEST:
                    self._pairs.setdefault(one.clock, {}).setdefault(other.clock, _Pairs()).add(one.ns, other.ns)

    @property
    def trace_clock(self) -> int:
        return self._primary or BOOTTIME

    def is_known(self, clock: int) -> bool:
        """Whether times of a clock can be told in the trace clock."""
        return self._route(clock) is not None

    def offset(self, clock: int, ns: int) -> tuple[int, int, int] | None:
        """What is to be added to a time of a clock, and from when to when that holds; None: not known."""
        route = self._route(clock)
        if route is None:
            return None
        total, low, high = 0, -_WIDE, _WIDE
        for one, other in pairwise(route):
            step, from_ns, to_ns = self._pairs[one][other].offset(ns + total)
            low, high = max(low, from_ns - total), min(high, to_ns - total)
            total += step
        return total, low, high

    def _route(self, clock: int) -> list[int] | None:
        """The clocks on the shortest way to the trace clock."""
        routes = {clock: [clock]}
        waiting = [clock]
        while waiting:
            here = waiting.pop(0)
            if here == self.trace_clock:
                return routes[here]
            for there in self._pairs.get(here, ()):
                if there not in routes:
                    routes[there] = [*routes[here], there]
                    waiting.append(there)
        return None


class SequenceClocks:
    """Clocks of one sequence of packets: its own, and the last times of those that hold differences."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._own: dict[int, tuple[Reading, Snapshot]] = {}
        self._last: dict[int, int] = {}
        self._held: dict[int, tuple[int, int, int]] = {}

    @property
    def has_differences(self) -> bool:
        """Whether a lost packet would shift the times of those that follow it."""
        return any(reading.incremental for reading, _ in self._own.values())

    def add(self, snapshot: Snapshot) -> None:
        """A snapshot that stands in this sequence."""
        for reading in snapshot.readings:
            if reading.clock in _SEQUENCE_CLOCKS:
                self._own[reading.clock] = reading, snapshot
                self._last[reading.clock] = reading.ns
                self._held.pop(reading.clock, None)

    def trace_ns(self, clock: int, value: int) -> int | None:
        """A time of a clock in ns of the trace clock; None when no snapshot tells."""
        own = self._own.get(clock)
        if own is not None:
            value *= own[0].unit_ns
            if own[0].incremental:
                value += self._last[clock]
                self._last[clock] = value
        held = self._holding(clock, value)
        return None if held is None else value + held[0]

    def _holding(self, clock: int, value: int) -> tuple[int, int, int] | None:
        """What is to be added to a time of a clock, and from when to when that holds."""
        held = self._held.get(clock)
        if held is None or not held[1] <= value < held[2]:
            held = self._offset(clock, value)
            if held is not None:
                self._held[clock] = held
        return held

    def trace_ns_of(self, clock: int, values: NDArray[np.int64]) -> NDArray[np.int64] | bool:
        """The same for many times (one at least), in their order. False when no snapshot tells.

        True: they could be too large for 64 bits on the way; then nothing was done.
        """
        far = max(-int(values.min()), int(values.max()))
        own = self._own.get(clock)
        if own is not None:
            unit, adds = own[0].unit_ns, own[0].incremental
            base = self._last[clock] if adds else 0
            if unit >= _NEAR or far * unit * (len(values) if adds else 1) + abs(base) >= _NEAR:
                return True
            values = base + np.cumsum(values * unit) if adds else values * unit
        elif far >= _NEAR:
            return True
        moved = self._moved(clock, values)
        if moved is not True and own is not None and own[0].incremental:
            self._last[clock] = int(values[-1])
        return False if moved is None else moved

    def _moved(self, clock: int, values: NDArray[np.int64]) -> NDArray[np.int64] | Literal[True] | None:
        """Times that are each below _NEAR, moved; None when no snapshot tells, True when one moves too far."""
        out = np.empty_like(values)
        left = np.arange(len(values))
        for _ in range(_MAX_ROUNDS):
            here = values[left]
            held = self._holding(clock, int(here[0]))
            if held is None:
                return None
            if abs(held[0]) >= _WIDE:
                return True
            inside = (here >= max(held[1], -_WIDE)) & (here < min(held[2], _WIDE))
            out[left[inside]] = here[inside] + held[0]
            left = left[~inside]
            if not len(left):
                return out
        # Snapshots that are as many as times: each time by itself.
        for place, value in zip(left.tolist(), values[left].tolist(), strict=True):
            held = self._holding(clock, value)
            if held is None or abs(held[0]) >= _WIDE:
                return True
            out[place] = value + held[0]
        return out

    def _offset(self, clock: int, ns: int) -> tuple[int, int, int] | None:
        own = self._own.get(clock)
        if own is None:
            return None if clock in _SEQUENCE_CLOCKS else self._clocks.offset(clock, ns)
        reading, snapshot = own
        for other in sorted(snapshot.readings, key=lambda one: one.clock != self._clocks.trace_clock):
            if other.clock in _SEQUENCE_CLOCKS:
                continue
            step = other.ns - reading.ns
            rest = self._clocks.offset(other.clock, ns + step)
            if rest is not None:
                return step + rest[0], rest[1] - step, rest[2] - step
        return None
