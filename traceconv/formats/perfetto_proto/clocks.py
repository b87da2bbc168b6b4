"""Clocks of a Perfetto trace → nanoseconds of its trace clock, in integers.

A snapshot has the readings of several clocks at one instant. A timestamp of one clock is converted to another by the
last earlier snapshot of both, or by the first one if there is no earlier. Clocks 64 to 127 belong to one packet
sequence; the timestamps of an incremental clock are differences. Each machine has clocks of its own, which syncs map to
those of the host. Source: Perfetto's page on clock synchronisation, and its trace processor.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST, is_time
from traceconv.formats.perfetto_proto.message import Message
from traceconv.wire.protobuf import WireError

#: The clock of packets that don't specify one.
BOOTTIME, MONOTONIC = 6, 3
SEQUENCE_CLOCKS = range(64, 128)
#: A snapshot has a reading of each clock of a machine, some ten; all pairs of them are kept.
_MOST_READINGS = 256
#: Syncs of the clocks of two machines further apart are not of one round trip.
_ROUND_NS = 30_000_000_000
#: Marks a timestamp that doesn't fit 64 bits: the normalizer rejects it. In an export of ours it may be a shifted one.
BEYOND = -(1 << 63)
#: Offsets apply up to this distance from 0; timestamps nearer than `_NEAR` can be moved by them within 64 bits.
_WIDE, _NEAR = 1 << 62, 1 << 61
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
    """What a clock showed, in nanoseconds."""

    clock: int
    ns: int
    incremental: bool
    unit_ns: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Readings of several clocks at one instant."""

    readings: tuple[Reading, ...]
    primary: int | None


class Offset(NamedTuple):
    """Nanoseconds to add to the timestamps from `low` to before `high`."""

    ns: int
    low: int
    high: int


def clock_of(machine: int, clock: int) -> int:
    """Return the number of a machine's clock; machine 0 is the host."""
    return machine << 32 | clock


def clock_name(clock: int) -> str:
    """Return the name of a machine's clock."""
    machine, number = divmod(clock, 1 << 32)
    name = NAMES.get(number, str(number))
    return f"{name} of machine {machine}" if machine else name


def parse_snapshot(data: bytes, start: int, end: int) -> Snapshot:
    """Parse a ClockSnapshot. Raises WireError, also for more readings than there are clocks."""
    message = Message(data, start, end)
    readings, spans = [], message.spans(1)
    if len(spans) > _MOST_READINGS:
        raise WireError(f"{len(spans)} readings of clocks")
    for first, last in spans:
        clock = Message(data, first, last)
        unit = clock.number(4) or 1
        ns = (clock.number(2) or 0) * unit
        readings.append(Reading(clock.number(1) or 0, ns, bool(clock.number(3)), unit))
    return Snapshot(tuple(readings), message.number(2))


def parse_sync(data: bytes, start: int, end: int) -> list[tuple[Snapshot, Snapshot]]:
    """Parse a RemoteClockSync: snapshots of a machine, each with the one that the host took next. Raises WireError."""
    synced = Message(data, start, end).spans(1)
    parts = [[Message(data, *one).spans(side)[-1:] for side in (2, 3)] for one in synced]
    return [
        (parse_snapshot(data, *client[0]), parse_snapshot(data, *host[0])) for client, host in parts if client and host
    ]


@dataclass(slots=True)
class _Pairs:
    """Readings of two clocks at the same instants."""

    points: list[tuple[int, int]] = field(default_factory=list)
    is_sorted: bool = True

    def add(self, source: int, target: int) -> None:
        self.is_sorted = False
        self.points.append((source, target))

    def offset(self, ns: int) -> Offset:
        if not self.is_sorted:
            # One pair per instant: the last one.
            self.points = sorted(dict(self.points).items())
            self.is_sorted = True
        place = max(0, bisect_right(self.points, (ns, _WIDE * 4)) - 1)
        low = -_WIDE if place == 0 else self.points[place][0]
        high = self.points[place + 1][0] if place + 1 < len(self.points) else _WIDE
        return Offset(self.points[place][1] - self.points[place][0], low, high)


class Clocks:
    """The clocks of the trace, from all its snapshots."""

    def __init__(self) -> None:
        self._pairs: defaultdict[int, defaultdict[int, _Pairs]] = defaultdict(lambda: defaultdict(_Pairs))
        self._primary: int | None = None
        self.first: Snapshot | None = None

    def add(self, snapshot: Snapshot, machine: int) -> None:
        """Add the next snapshot of the file."""
        if not machine:
            self.first = self.first or snapshot
            self._primary = self._primary or snapshot.primary
        shared = [
            (clock_of(machine, reading.clock), reading.ns)
            for reading in snapshot.readings
            if reading.clock not in SEQUENCE_CLOCKS and reading.ns <= LARGEST
        ]
        for one, ns in shared:
            for other, other_ns in shared:
                if one != other:
                    self._pairs[one][other].add(ns, other_ns)

    def sync(self, synced: list[tuple[Snapshot, Snapshot]], machine: int) -> None:
        """Add the next sync of a machine's clocks with the host's.

        The snapshots are round trips, whose mean is their offset, as for trace processor.
        """
        for client, _ in synced:
            self.add(client, machine)
        rounds: list[dict[int, tuple[int, int]]] = []
        for client, host in synced:
            sent_at, at_host = ({one.clock: one.ns for one in side.readings} for side in (client, host))
            rounds.append({clock: (sent_at[clock], at_host[clock]) for clock in sent_at.keys() & at_host.keys()})
        offsets: defaultdict[int, list[int]] = defaultdict(list)
        for before, after in pairwise(rounds):
            for clock in before.keys() & after.keys():
                (sent, there), (back, then) = before[clock], after[clock]
                if back - sent < _ROUND_NS:
                    offsets[clock] += (sent + back) // 2 - there, back - (there + then) // 2
        for clock, (sent, there) in rounds[0].items() if rounds else ():
            found = offsets[clock] or [sent - there]
            if max(sent, there) <= LARGEST:
                self._pairs[clock_of(machine, clock)][clock].add(sent, sent - sum(found) // len(found))

    @property
    def trace_clock(self) -> int:
        return self._primary or BOOTTIME

    def offset(self, clock: int, ns: int) -> Offset | None:
        """Return the offset from a clock to the trace clock around `ns`; None without a snapshot."""
        route = self._route(clock)
        if route is None:
            return None
        total, low, high = 0, -_WIDE, _WIDE
        for one, other in pairwise(route):
            step = self._pairs[one][other].offset(ns + total)
            low, high = max(low, step.low - total), min(high, step.high - total)
            total += step.ns
        return Offset(total, low, high)

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
    """The clocks of one packet sequence of a machine: its own, and the last timestamps of the incremental ones."""

    def __init__(self, clocks: Clocks, machine: int) -> None:
        self._clocks = clocks
        self.machine = machine
        self._own: dict[int, tuple[Reading, Snapshot]] = {}
        self._last: dict[int, int] = {}
        self._offsets: dict[int, Offset] = {}

    @property
    def has_differences(self) -> bool:
        """Whether a lost packet would shift the timestamps after it."""
        return any(reading.incremental for reading, _ in self._own.values())

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot of this sequence."""
        for reading in snapshot.readings:
            if reading.clock in SEQUENCE_CLOCKS:
                self._own[reading.clock] = reading, snapshot
                self._last[reading.clock] = reading.ns
                self._offsets.pop(reading.clock, None)

    def trace_ns(self, clock: int, values: Int64) -> Int64 | None:
        """Timestamps of a clock (at least one), in their order, in ns of the trace clock.

        BEYOND where one doesn't fit 64 bits; None if no snapshot maps the clock to the trace's.
        """
        times: NDArray[Any] = values
        reading = self._own[clock][0] if clock in self._own else Reading(clock, 0, False, 1)
        base = self._last[clock] if reading.incremental else 0
        far = max(1, -int(values.min()), int(values.max())) * (len(values) if reading.incremental else 1)
        if far * reading.unit_ns + abs(base) >= _NEAR:
            times = values.astype(object)  # integers of any size
        if reading.unit_ns != 1:
            times = times * reading.unit_ns
        if reading.incremental:
            times = base + np.cumsum(times)
            self._last[clock] = int(times[-1])
        return self._moved(clock, times)

    def _moved(self, clock: int, times: NDArray[Any]) -> Int64 | None:
        order = np.argsort(times, kind="stable")
        rising = times[order]
        moved = np.empty(len(times), np.int64)
        at = 0
        while at < len(rising):
            offset = self._offset(clock, int(rising[at]))
            if offset is None:
                return None
            stop = max(at + 1, int(np.searchsorted(rising, min(offset.high, _WIDE))))
            moved[order[at:stop]] = _added(rising[at:stop], offset.ns)
            at = stop
        return moved

    def _offset(self, clock: int, ns: int) -> Offset | None:
        found = self._offsets.get(clock)
        if found is None or not found.low <= ns < found.high:
            found = self._find_offset(clock, ns)
            if found is not None:
                self._offsets[clock] = found
        return found

    def _find_offset(self, clock: int, ns: int) -> Offset | None:
        if clock not in self._own:
            return None if clock in SEQUENCE_CLOCKS else self._clocks.offset(clock_of(self.machine, clock), ns)
        reading, snapshot = self._own[clock]
        for other in sorted(snapshot.readings, key=lambda one: one.clock != self._clocks.trace_clock):
            if other.clock in SEQUENCE_CLOCKS:
                continue
            step = other.ns - reading.ns
            rest = self._clocks.offset(clock_of(self.machine, other.clock), ns + step)
            if rest is not None:
                return Offset(step + rest.ns, rest.low - step, rest.high - step)
        return None


def _added(times: NDArray[Any], ns: int) -> NDArray[Any]:
    """Return times + ns, BEYOND where the sum is not a valid timestamp."""
    if times.dtype != object and abs(ns) < _WIDE:
        return times + ns
    return np.array([one + ns if is_time(one + ns) else BEYOND for one in times.tolist()], np.int64)
