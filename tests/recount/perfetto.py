"""Perfetto traces, read with Perfetto's message classes: each packet in the state of its sequence.

Packets are converted to events of the JSON trace format, which the same code sums.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from recount import chrome, writers
from recount.chrome import Event
from recount.tally import Tally

_MONOTONIC, _BOOTTIME = 3, 6
_NEEDS_STATE, _CLEARED = 2, 1
#: In traceconv's exports: the offset of all times, and IDs of flows that are drawn from their end.
_SHIFT = "traceconv-shift_ns"
_LEADS_BACK = 1 << 62
_PHASES = {1: "B", 2: "E", 3: "i", 4: "C"}
_STATE = 5


@dataclass
class _Sequence:
    """State of a packet sequence."""

    valid: bool = False
    defaults: Any = None
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    #: Own clocks: (unit in ns, incremental, reading in ns, snapshot)
    clocks: dict[int, Any] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    thread: Any = None
    time_us: int | None = None
    thread_counts: dict[str, int] = field(default_factory=lambda: {"thread_instruction_count": 0})
    sums: dict[int, float] = field(default_factory=lambda: defaultdict(int))


class _Clocks:
    """Simultaneous readings of clocks."""

    def __init__(self, packets: Iterable[Any]) -> None:
        self.trace_clock = 0
        self._pairs: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for packet in packets:
            if packet.HasField("clock_snapshot"):
                snapshot = packet.clock_snapshot
                self.trace_clock = self.trace_clock or snapshot.primary_trace_clock
                read = {one.clock_id: one.timestamp * (one.unit_multiplier_ns or 1) for one in snapshot.clocks}
                shared = [clock for clock in read if not 64 <= clock < 128]
                for one in shared:
                    for other in shared:
                        self._pairs[one, other][read[one]] = read[other]
        self.trace_clock = self.trace_clock or _BOOTTIME

    def moved(self, clock: int, ns: int) -> int | None:
        """Convert a time to the trace clock through the fewest clocks; unchanged if no snapshot has the clock."""
        ways = [(clock, ns)]
        seen = {clock}
        while ways:
            here, at = ways.pop(0)
            if here == self.trace_clock:
                return at
            for (one, other), pairs in self._pairs.items():
                if one == here and other not in seen:
                    seen.add(other)
                    moments = sorted(pairs)
                    last = moments[max(bisect_right(moments, at) - 1, 0)]
                    ways.append((other, at + pairs[last] - last))
        return None


def packets_of(path: Path) -> list[Any]:
    """The packets of a trace, decompressed."""
    trace = protos.Trace()
    trace.ParseFromString(path.read_bytes())
    return list(_unpacked(trace.packet))


def _unpacked(packets: Iterable[Any]) -> Iterator[Any]:
    for packet in packets:
        if packet.HasField("compressed_packets"):
            inner = protos.Trace()
            inner.ParseFromString(zlib.decompress(packet.compressed_packets))
            yield from _unpacked(inner.packet)
        else:
            yield packet


def add_up(path: Path) -> Tally:
    """Sum up a trace."""
    packets = packets_of(path)
    one = _Reading(packets)
    is_ours = any(entry.name == _SHIFT for packet in packets for entry in packet.chrome_events.metadata)
    for packet in packets:
        one.take(packet)
    tally = chrome.add_up(one.events, writers.ranges, neighbors=is_ours)
    for number, points in one.flows.items():
        source = None
        for ts_ns, _, ends in sorted(points):
            if source is not None:
                tally.arrow(None, None, source - ts_ns if is_ours and number & _LEADS_BACK else ts_ns - source)
            source = None if ends else ts_ns
    return tally


def shift_of(path: Path) -> int:
    """The offset that an export of traceconv added to all times."""
    metadata = [one for packet in packets_of(path) for one in packet.chrome_events.metadata]
    return next((one.int_value for one in metadata if one.name == _SHIFT), 0)


class _Reading:
    """State of reading a trace."""

    def __init__(self, packets: list[Any]) -> None:
        self.events: list[Event] = []
        self.flows: dict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        self._clocks = _Clocks(packets)
        self._sequences: dict[int, _Sequence] = defaultdict(_Sequence)
        self._tracks: dict[int, Any] = {}
        self._translated: dict[str, str] = {}
        for packet in packets:
            self._translated |= packet.translation_table.process_track_name.raw_to_deobfuscated_name
        #: Tracks in a state: the next one ends it.
        self._open_states: set[int] = set()
        for packet in packets:
            if packet.HasField("track_descriptor"):
                descriptor = packet.track_descriptor
                known = self._tracks.setdefault(descriptor.uuid, protos.TrackDescriptor())
                known.MergeFrom(descriptor)

    def take(self, packet: Any) -> None:
        """Update the sequence, then process the event."""
        sequence = self._sequences[packet.trusted_packet_sequence_id]
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            sequence.valid = False
        if packet.incremental_state_cleared or packet.sequence_flags & _CLEARED:
            clocks, last = sequence.clocks, sequence.last
            sequence = self._sequences[packet.trusted_packet_sequence_id] = _Sequence(True, clocks=clocks, last=last)
        if packet.HasField("trace_packet_defaults"):
            sequence.defaults = packet.trace_packet_defaults
        for entry in packet.interned_data.event_names:
            sequence.names[entry.iid] = entry.name
        for entry in packet.interned_data.event_categories:
            sequence.categories[entry.iid] = entry.name
        for clock in packet.clock_snapshot.clocks:
            if 64 <= clock.clock_id < 128:
                sequence.clocks[clock.clock_id] = (clock, packet.clock_snapshot)
                sequence.last[clock.clock_id] = clock.timestamp * (clock.unit_multiplier_ns or 1)
        if packet.HasField("thread_descriptor"):
            sequence.thread = packet.thread_descriptor
            sequence.time_us = packet.thread_descriptor.reference_timestamp_us
            if packet.thread_descriptor.HasField("reference_thread_time_us"):
                sequence.thread_counts["thread_time"] = packet.thread_descriptor.reference_thread_time_us
            count = packet.thread_descriptor.reference_thread_instruction_count
            sequence.thread_counts["thread_instruction_count"] = count
        ts_ns = self._time(sequence, packet) if packet.HasField("timestamp") else None
        if packet.HasField("track_event") and (sequence.valid or not packet.sequence_flags & _NEEDS_STATE):
            self._event(sequence, packet.track_event, ts_ns)

    def _time(self, sequence: _Sequence, packet: Any) -> int | None:
        clock, value = packet.timestamp_clock_id, packet.timestamp
        if not clock and sequence.defaults is not None:
            clock = sequence.defaults.timestamp_clock_id
        clock = clock or self._clocks.trace_clock
        if not 64 <= clock < 128:
            moved = self._clocks.moved(clock, value)
            return value if moved is None else moved
        if clock not in sequence.clocks:
            return None
        reading, snapshot = sequence.clocks[clock]
        unit = reading.unit_multiplier_ns or 1
        value *= unit
        if reading.is_incremental:
            value += sequence.last[clock]
            sequence.last[clock] = value
        others = [one for one in snapshot.clocks if not 64 <= one.clock_id < 128]
        for other in sorted(others, key=lambda one: one.clock_id != self._clocks.trace_clock):
            at = value - reading.timestamp * unit + other.timestamp * (other.unit_multiplier_ns or 1)
            moved = self._clocks.moved(other.clock_id, at)
            if moved is not None:
                return moved
        return None

    def _event(self, sequence: _Sequence, event: Any, ts_ns: int | None) -> None:
        old_ns = None
        if event.HasField("timestamp_delta_us") and sequence.time_us is not None:
            sequence.time_us += event.timestamp_delta_us
            old_ns = sequence.time_us * 1000
        elif event.HasField("timestamp_absolute_us"):
            old_ns = event.timestamp_absolute_us * 1000
        if old_ns is not None:
            moved = self._clocks.moved(_MONOTONIC, old_ns)
            ts_ns = old_ns if moved is None else moved
        if ts_ns is None or not -(2**63) <= ts_ns < 2**63:
            return
        legacy = event.legacy_event
        phase = _PHASES.get(event.type, chr(legacy.phase) if legacy.phase and not event.type else "")
        name = event.name if event.HasField("name") else None
        iid = event.name_iid or legacy.name_iid
        if iid and name is None:
            name = sequence.names.get(iid)
        words = [sequence.categories[one] for one in event.category_iids if one in sequence.categories]
        track, pid, tid = self._track(sequence, event)
        found: Event = {"ph": phase, "pid": pid, "tid": tid, "ts": Decimal(ts_ns) / 1000}
        if name is not None:
            found["name"] = name
        if words or event.categories:
            found["cat"] = ",".join([*words, *event.categories])
        if legacy.HasField("duration_us"):
            found["dur"] = legacy.duration_us
        self._legacy_ids(found, legacy)
        ends = {*event.terminating_flow_ids, *event.terminating_flow_ids_old}
        for one in [*event.flow_ids, *event.flow_ids_old]:
            self.flows[one].append((ts_ns, len(self.events), False))
        for one in ends:
            self.flows[one].append((ts_ns, len(self.events), True))
        if phase == "C":
            value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
            self._sample(sequence, track, value, ts_ns)
        elif phase:
            self.events.append(found)
        elif event.type == _STATE and self._tracks[track].HasField("state"):
            if track in self._open_states:
                self.events.append({"ph": "E", "pid": pid, "tid": tid, "ts": found["ts"]})
                self._open_states.discard(track)
            if name is not None:
                self.events.append({**found, "ph": "B"})
                self._open_states.add(track)
        defaults = sequence.defaults.track_event_defaults if sequence.defaults is not None else None
        for tracks, usual, values in (
            (event.extra_counter_track_uuids, "extra_counter_track_uuids", event.extra_counter_values),
            (
                event.extra_double_counter_track_uuids,
                "extra_double_counter_track_uuids",
                event.extra_double_counter_values,
            ),
        ):
            listed = list(tracks) or (list(getattr(defaults, usual)) if defaults is not None else [])
            for uuid, value in zip(listed, values, strict=False):
                self._sample(sequence, uuid, value, ts_ns)
        if phase != "C" and tid not in ("nowhere", "track"):
            self._own_counters(sequence, event, ts_ns)

    def _own_counters(self, sequence: _Sequence, event: Any, ts_ns: int) -> None:
        """Thread time and instructions of an event that is on a thread."""
        known = sequence.thread_counts
        found = []
        for name, absolute, delta, unit in (
            ("thread_time", "thread_time_absolute_us", "thread_time_delta_us", 1000),
            ("thread_instruction_count", "thread_instruction_count_absolute", "thread_instruction_count_delta", 1),
        ):
            if event.HasField(absolute):
                found.append((name, getattr(event, absolute) * unit))
            elif event.HasField(delta) and name in known:
                known[name] += getattr(event, delta)
                found.append((name, known[name] * unit))
        for name, value in found:
            self.events.append({"ph": "C", "name": name, "ts": Decimal(ts_ns) / 1000, "args": {"value": value}})

    def _sample(self, sequence: _Sequence, uuid: int, value: float, ts_ns: int) -> None:
        descriptor = self._tracks[uuid] if uuid in self._tracks else protos.TrackDescriptor()
        value *= descriptor.counter.unit_multiplier or 1
        if descriptor.counter.is_incremental:
            value = sequence.sums[uuid] = sequence.sums[uuid] + value
        name = self._name(descriptor)
        args = {"value": Decimal(value) if isinstance(value, float) else value}
        self.events.append({"ph": "C", "name": name, "ts": Decimal(ts_ns) / 1000, "args": args})

    def _track(self, sequence: _Sequence, event: Any) -> tuple[int, Any, Any]:
        """The track's UUID and its key: process and thread, or the UUID."""
        uuid = event.track_uuid
        if not event.HasField("track_uuid") and sequence.defaults is not None:
            uuid = sequence.defaults.track_event_defaults.track_uuid
        legacy = event.legacy_event
        pid: Any = None
        tid: Any = "nowhere"
        if uuid:
            descriptor = self._tracks.get(uuid)
            pid, tid = ("track", uuid), "track"
            if descriptor is not None and descriptor.HasField("thread"):
                pid, tid = descriptor.thread.pid, descriptor.thread.tid
        elif sequence.thread is not None:
            pid, tid = sequence.thread.pid, sequence.thread.tid
        return uuid, legacy.pid_override or pid, legacy.tid_override or tid

    def _name(self, descriptor: Any) -> str | None:
        field_name = descriptor.WhichOneof("static_or_dynamic_name")
        if field_name:
            name = str(getattr(descriptor, field_name))
            return self._translated.get(name, name)
        return {1: "thread_time", 2: "thread_instruction_count"}.get(descriptor.counter.type)

    def _legacy_ids(self, found: Event, legacy: Any) -> None:
        which = legacy.WhichOneof("id")
        if which == "unscoped_id":
            found["id"] = legacy.unscoped_id
        elif which == "local_id":
            found["id2"] = {"local": legacy.local_id}
        elif which == "global_id":
            found["id2"] = {"global": legacy.global_id}
        if legacy.id_scope:
            found["scope"] = legacy.id_scope
