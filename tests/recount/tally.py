"""Sums of a trace: rows, nanoseconds and values, by table and key."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from math import fsum
from typing import Any

#: Times are integer nanoseconds; finer ones are rounded, half to even (docs/reference/diagnostics.md, fine_time).
NS_OF_US = Decimal(1000)


def nanoseconds(microseconds: Decimal | int, unit: Decimal = NS_OF_US) -> int:
    """An exact time of the source."""
    return int((Decimal(microseconds) * unit).to_integral_value(ROUND_HALF_EVEN))


@dataclass
class Slices:
    """`timed`: number of rows with a duration."""

    count: int = 0
    timed: int = 0
    start_ns: int = 0
    dur_ns: int = 0

    def add(self, other: Slices) -> None:
        """Add the sums of another."""
        self.count += other.count
        self.timed += other.timed
        self.start_ns += other.start_ns
        self.dur_ns += other.dur_ns


@dataclass
class Samples:
    """Values of a series, and the integer ones."""

    count: int = 0
    ts_ns: int = 0
    whole_count: int = 0
    whole_sum: int = 0
    values: list[float] = field(default_factory=list)

    def add(self, other: Samples) -> None:
        """Add the sums of another."""
        self.count += other.count
        self.ts_ns += other.ts_ns
        self.whole_count += other.whole_count
        self.whole_sum += other.whole_sum
        self.values += other.values

    def shown(self) -> tuple[object, ...]:
        """The sums to compare, independent of the order."""
        return self.count, self.ts_ns, self.whole_count, self.whole_sum, fsum(self.values)


@dataclass
class Tally:
    """Sums of one file. `event_count`: all events of a Chrome trace."""

    event_count: int = 0
    #: (table, kind, device, stream, name)
    slices: dict[tuple[Any, ...], Slices] = field(default_factory=lambda: defaultdict(Slices))
    #: (track, series)
    counters: dict[tuple[Any, ...], Samples] = field(default_factory=lambda: defaultdict(Samples))
    #: (category, name): count, sum of ts
    markers: dict[tuple[Any, ...], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    #: (category, name): count, sum of the flows' durations
    flows: dict[tuple[Any, ...], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    #: (iteration, start, end)
    steps: set[tuple[Any, ...]] = field(default_factory=set)
    #: (device): blocks, bytes
    memory: dict[tuple[Any, ...], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def slice(self, key: tuple[Any, ...], start_ns: int, dur_ns: int | None) -> None:
        """Add a row of task, api or range."""
        found = self.slices[key]
        found.count += 1
        found.start_ns += start_ns
        found.timed += dur_ns is not None
        found.dur_ns += dur_ns or 0

    def sample(self, key: tuple[Any, ...], ts_ns: int, value: Decimal | int) -> None:
        """Add a row of counter."""
        found = self.counters[key]
        found.count += 1
        found.ts_ns += ts_ns
        found.values.append(float(value))
        if value == int(value) and -(2**63) <= value < 2**63:
            found.whole_count += 1
            found.whole_sum += int(value)

    def moment(self, category: str | None, name: str | None, ts_ns: int | None) -> None:
        """Add a row of marker."""
        found = self.markers[category, name]
        found[0] += 1
        found[1] += ts_ns or 0

    def arrow(self, category: str | None, name: str | None, length_ns: int) -> None:
        """Add a row of flow."""
        found = self.flows[category, name]
        found[0] += 1
        found[1] += length_ns

    def block(self, key: tuple[Any, ...], size_bytes: int) -> None:
        """Add a row of memory."""
        found = self.memory[key]
        found[0] += 1
        found[1] += size_bytes

    def without_devices(self) -> Tally:
        """The sums without memory, devices of rows, and the file and stream of counters (in brackets)."""
        found = Tally(markers=self.markers, flows=self.flows, steps=self.steps)
        for (track, series), samples in self.counters.items():
            found.counters[re.sub(r" \(.*\)$", "", str(track)), series].add(samples)
        for (table, kind, _, *rest), one in self.slices.items():
            found.slices[(table, kind, None, *rest)].add(one)
        return found

    def moved(self, ns: int) -> Tally:
        """The sums with all times shifted by a number of nanoseconds."""
        found = Tally(flows=self.flows, steps={(step, *(at + ns for at in ends)) for step, *ends in self.steps})
        for key, one in self.slices.items():
            found.slices[key] = Slices(one.count, one.timed, one.start_ns + ns * one.count, one.dur_ns)
        for key, samples in self.counters.items():
            found.counters[key].add(samples)
            found.counters[key].ts_ns += ns * samples.count
        for key, (count, ts_ns) in self.markers.items():
            found.markers[key] = [count, ts_ns + ns * count]
        return found

    def shown(self) -> dict[tuple[Any, ...], Any]:
        """All sums, as one flat dictionary."""
        flat: dict[tuple[Any, ...], Any] = {
            key: (one.count, one.timed, one.start_ns, one.dur_ns) for key, one in self.slices.items()
        }
        flat.update({("counter", *key): one.shown() for key, one in self.counters.items()})
        for table in ("markers", "flows", "memory"):
            flat.update({(table, *key): tuple(one) for key, one in getattr(self, table).items()})
        flat.update({("step", step): True for step in self.steps})
        return flat


def differences(counted: Tally, stored: Tally) -> list[tuple[str, str]]:
    """(table, difference) for each key whose sums differ."""
    ours, theirs = counted.shown(), stored.shown()
    return [
        (str(key[0]), f"{key[1:]}: counted {ours.get(key)}, stored {theirs.get(key)}")
        for key in sorted(ours.keys() | theirs.keys(), key=repr)
        if ours.get(key) != theirs.get(key)
    ]
