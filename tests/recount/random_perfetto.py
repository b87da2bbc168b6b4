"""Random Perfetto traces encoded by Perfetto's message classes, with all dependencies between packets."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

_T0 = 10**15


class _Writer:
    """A packet sequence. `ns`: reading of its current clock."""

    def __init__(self, trace: Any, random: Random, number: int) -> None:
        self._trace, self._random, self._number = trace, random, number
        self._known: dict[tuple[str, str], int] = {}
        self._last = 0
        self.clock = random.choice([6, 6, 3, 1, 64, 65])
        self.ns = _T0 + random.randrange(10**6)

    def packet(self, ns: int | None = None, *, named: bool = True) -> Any:
        """Add a packet at a time. `named`: it may specify its clock."""
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = self._number
        if ns is None:
            return packet
        packet.timestamp = ns
        if self.clock == 64:
            packet.timestamp, self._last = ns - self._last, ns
        elif self.clock == 65:  # in microseconds, from its own origin
            packet.timestamp = (ns - _T0) // 1000
        if self.clock != 6 and named and self._random.random() < 0.3:
            packet.timestamp_clock_id = self.clock
        return packet

    def clear(self) -> None:
        """Clear the state, and write again what is needed."""
        self._known.clear()
        packet = self.packet()
        if self._random.random() < 0.5:
            packet.sequence_flags = 1
        else:
            packet.incremental_state_cleared = True
        packet.trace_packet_defaults.timestamp_clock_id = self.clock
        packet.trace_packet_defaults.track_event_defaults.track_uuid = self._number
        packet.trace_packet_defaults.track_event_defaults.extra_counter_track_uuids.append(200)
        clock = packet.clock_snapshot.clocks.add()
        clock.clock_id, clock.timestamp = 6, self.ns
        for own in {64, 65} & {self.clock}:
            clock = packet.clock_snapshot.clocks.add()
            clock.clock_id = own
            clock.timestamp = self.ns if own == 64 else (self.ns - _T0) // 1000
            clock.is_incremental = own == 64
            clock.unit_multiplier_ns = 1 if own == 64 else 1000
        self._last = self.ns

    def intern(self, packet: Any, kind: str, text: str) -> int:
        """The interned ID of a text, defined in the packet if it is new; sometimes the definition is missing."""
        if (kind, text) not in self._known:
            self._known[kind, text] = len(self._known) + 1
            if self._random.random() < 0.95:
                entry = getattr(packet.interned_data, kind).add()
                entry.iid, entry.name = self._known[kind, text], text
        return self._known[kind, text]

    def event(self, kind: int) -> tuple[Any, Any]:
        """Add a packet with an event."""
        self.ns += self._random.randrange(5000)
        packet = self.packet(self.ns)
        if self._random.random() < 0.9:
            packet.sequence_flags = 2
        if kind:
            packet.track_event.type = kind
        return packet, packet.track_event


def write(path: Path, seed: int) -> Path:
    """A trace of sequences that write in turns: few events, or enough that they are read in batches."""
    random = Random(seed)
    trace = protos.Trace()
    _describe(trace, random)
    writers = [_Writer(trace, random, number) for number in range(1, random.choice([2, 4]))]
    for writer in writers:
        if random.random() < 0.9:
            writer.clear()
    for _ in range(random.choice([20, 150, 400])):
        _one(random, random.choice(writers))
    if random.random() < 0.5:
        trace = _packed(trace, random)
    path.write_bytes(trace.SerializeToString())
    return path


def _describe(trace: Any, random: Random) -> None:
    for number in range(1, 4):
        track = trace.packet.add().track_descriptor
        track.uuid = number
        track.thread.pid, track.thread.tid, track.thread.thread_name = 9, number, f"thread {number}"
    track = trace.packet.add().track_descriptor
    track.uuid, track.name, track.parent_uuid = 100, "queue", 1
    for number, name in ((200, "count"), (201, "more")):
        track = trace.packet.add().track_descriptor
        track.uuid, track.name = number, name
        track.counter.unit_multiplier = random.choice([0, 1, 1000])
        track.counter.is_incremental = random.random() < 0.3
    at = _T0
    for _ in range(random.choice([1, 3])):  # clocks that drift against each other
        snapshot = trace.packet.add().clock_snapshot
        for clock, offset in ((6, 0), (3, -(10**9)), (1, 10**18)):
            reading = snapshot.clocks.add()
            reading.clock_id, reading.timestamp = clock, at + offset + random.randrange(9)
        at += random.randrange(10**6)


def _one(random: Random, writer: _Writer) -> None:
    choice = random.random()
    if choice < 0.03:
        writer.clear()
    elif choice < 0.05:
        writer.packet().previous_packet_dropped = 1
    elif choice < 0.08:  # another kind of packet, whose timestamp still counts
        writer.packet(writer.ns).track_descriptor.uuid = 300
    elif choice < 0.2:
        _, event = writer.event(4)
        event.track_uuid = random.choice([200, 201, 200 + 100])
        if random.random() < 0.5:
            event.counter_value = random.randrange(-(2**40), 2**40)
        else:
            event.double_counter_value = random.choice([0.5, -3.25, 1e300, 7.0])
    elif choice < 0.3:
        _legacy(random, *writer.event(0))
    else:
        packet, event = writer.event(random.choice([1, 1, 2, 2, 3]))
        if random.random() < 0.4:
            event.track_uuid = random.choice([1, 2, 100, 77])
        _words(random, writer, packet, event)
        if random.random() < 0.3:
            event.flow_ids.append(random.randrange(6))
        if random.random() < 0.1:
            event.terminating_flow_ids.append(random.randrange(6))
        if random.random() < 0.1:
            event.extra_counter_values.append(random.randrange(100))
            if random.random() < 0.5:
                event.extra_counter_track_uuids.append(201)
        if random.random() < 0.1:
            note = event.debug_annotations.add()
            note.name, note.int_value = "n", random.randrange(99)


def _words(random: Random, writer: _Writer, packet: Any, event: Any) -> None:
    if event.type == 2:
        return
    if random.random() < 0.6:
        event.name_iid = writer.intern(packet, "event_names", f"slice {random.randrange(5)}")
    elif random.random() < 0.9:
        event.name = f"slice {random.randrange(5)}"
    for _ in range(random.choice([0, 1, 1, 2])):
        event.category_iids.append(writer.intern(packet, "event_categories", f"cat {random.randrange(3)}"))
    if random.random() < 0.1:
        event.categories.append("said")


def _legacy(random: Random, packet: Any, event: Any) -> None:
    """An event of the legacy form: trace JSON in protobuf."""
    event.name = f"old {random.randrange(3)}"
    event.categories.append("old")
    event.legacy_event.phase = ord(random.choice("XXIbenSF"))
    if chr(event.legacy_event.phase) == "X":
        event.legacy_event.duration_us = random.randrange(9)
    elif chr(event.legacy_event.phase) in "benSF":
        event.legacy_event.unscoped_id = random.randrange(1, 3)
    if random.random() < 0.2:
        packet.ClearField("timestamp")
        packet.ClearField("timestamp_clock_id")
        event.timestamp_absolute_us = _T0 // 1000 - 10**6 + random.randrange(10**4)


def _packed(trace: Any, random: Random) -> Any:
    """The same packets, some of them compressed together."""
    found = protos.Trace()
    at = 0
    while at < len(trace.packet):
        count = random.randrange(1, 40)
        part = protos.Trace()
        part.packet.extend(trace.packet[at : at + count])
        at += count
        if random.random() < 0.5:
            found.packet.add().compressed_packets = zlib.compress(part.SerializeToString())
        else:
            found.packet.extend(part.packet)
    return found
