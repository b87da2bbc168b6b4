"""Random traces encoded by Perfetto's message classes give the rows that were computed for them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import taken
from stores import query

perfetto_trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
Trace = perfetto_trace_pb2.Trace

T0 = 1_720_000_000_123_456_789


def annotate(holder: Any, value: Any) -> None:
    """A JSON value as a debug annotation."""
    if isinstance(value, bool):
        holder.bool_value = value
    elif isinstance(value, int):
        if value > 2**63 - 1:
            holder.uint_value = value
        else:
            holder.int_value = value
    elif isinstance(value, float):
        holder.double_value = value
    elif isinstance(value, str):
        holder.string_value = value
    elif isinstance(value, dict):
        for key, inner in value.items():
            entry = holder.dict_entries.add()
            entry.name = key
            annotate(entry, inner)
    else:
        for inner in value:
            annotate(holder.array_values.add(), inner)


class Writer:
    """A sequence with interned strings and incremental timestamps, as the SDK writes it."""

    def __init__(self, trace: Any, sequence: int) -> None:
        self.trace, self.sequence = trace, sequence
        self.known: dict[tuple[str, str], int] = {}
        self.last = 0

    def packet(self) -> Any:
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = self.sequence
        return packet

    def clear(self, ns: int, default_track: int) -> None:
        self.known.clear()
        packet = self.packet()
        packet.sequence_flags = 1
        packet.trace_packet_defaults.timestamp_clock_id = 64
        packet.trace_packet_defaults.track_event_defaults.track_uuid = default_track
        clock = packet.clock_snapshot.clocks.add()
        clock.clock_id, clock.timestamp, clock.is_incremental = 64, ns - T0, True
        clock = packet.clock_snapshot.clocks.add()
        clock.clock_id, clock.timestamp = 6, ns
        self.last = ns

    def intern(self, packet: Any, kind: str, text: str) -> int:
        if (kind, text) not in self.known:
            self.known[kind, text] = len(self.known) + 1
            entry = getattr(packet.interned_data, kind).add()
            entry.iid, entry.name = self.known[kind, text], text
        return self.known[kind, text]

    def event(self, kind: int, ns: int, track: int | None = None) -> tuple[Any, Any]:
        packet = self.packet()
        packet.sequence_flags = 2
        packet.timestamp = ns - self.last
        self.last = ns
        packet.track_event.type = kind
        if track is not None:
            packet.track_event.track_uuid = track
        return packet, packet.track_event


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 3 else 5)
    if kind == 5:
        return {f"k{n}": random_value(rng, depth + 1) for n in range(rng.randint(1, 3))}
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    return [rng.random() < 0.5, rng.randint(-(2**63), 2**63 - 1), rng.uniform(-1, 1), 'té"xt\n', 2**64 - 1][kind]


@pytest.mark.parametrize("seed", range(4))
def test_random_traces_yield_the_encoded_rows(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    trace = Trace()
    expected: list[tuple[str, str, int, int, int, str, str]] = []
    counters: list[tuple[int, float]] = []
    markers: list[tuple[int, str]] = []
    for sequence in range(1, 4):
        writer = Writer(trace, sequence)
        descriptor = writer.packet().track_descriptor
        descriptor.uuid = sequence
        descriptor.thread.pid, descriptor.thread.tid, descriptor.thread.thread_name = 9, sequence, f"thread {sequence}"
        descriptor = writer.packet().track_descriptor
        descriptor.uuid, descriptor.name, descriptor.parent_uuid = 100 + sequence, f"count {sequence}", sequence
        descriptor.counter.unit = 3
        ns = T0 + rng.randrange(10**6)
        writer.clear(ns, sequence)
        open_: list[tuple[str, str, int, Any]] = []
        for _ in range(300):
            ns += rng.randrange(1000)
            choice = rng.random()
            if choice < 0.02:
                writer.clear(ns, sequence)
            elif choice < 0.12:
                value: float = rng.choice([rng.randint(-(2**50), 2**50), rng.uniform(-9, 9)])
                _, event = writer.event(4, ns, 100 + sequence)
                if isinstance(value, int):
                    event.counter_value = value
                else:
                    event.double_counter_value = value
                counters.append((ns, float(value)))
            elif choice < 0.2:
                _, event = writer.event(3, ns)
                event.name = f"mark {rng.randrange(5)}"
                markers.append((ns, event.name))
            elif open_ and choice < 0.6:
                writer.event(2, ns)
                name, category, start, args = open_.pop()
                text = json.dumps(args, sort_keys=True)
                expected.append((f"thread {sequence}", name, start, ns - start, len(open_), category, text))
            else:
                packet, event = writer.event(1, ns)
                name, category = f"slice {rng.randrange(9)}", f"cat {rng.randrange(3)}"
                event.name_iid = writer.intern(packet, "event_names", name)
                event.category_iids.append(writer.intern(packet, "event_categories", category))
                args = {f"a{n}": random_value(rng) for n in range(rng.randrange(3))}
                for key, value in args.items():
                    note = event.debug_annotations.add()
                    note.name_iid = writer.intern(packet, "debug_annotation_names", key)
                    annotate(note, value)
                open_.append((name, category, ns, args))
        while open_:
            ns += 1
            writer.event(2, ns)
            name, category, start, args = open_.pop()
            text = json.dumps(args, sort_keys=True)
            expected.append((f"thread {sequence}", name, start, ns - start, len(open_), category, text))
    run, store = taken(trace.SerializeToString(), tmp_path, "trace.pftrace")
    assert run.complete and not [e for e in run.log if e.code.text != "partial_overlap"]
    found = query(
        store,
        "SELECT t.name, r.name, start_ns, dur_ns, depth, category, args FROM range AS r "
        "JOIN track AS t USING (track_id)",
    )
    rows = [(*row[:6], json.dumps(json.loads(row[6] or "{}"), sort_keys=True)) for row in found]
    assert sorted(rows) == sorted(expected)
    assert sorted(query(store, "SELECT ts_ns, value FROM counter")) == sorted(counters)
    assert sorted(query(store, "SELECT ts_ns, name FROM marker")) == sorted(markers)
    assert query(store, "SELECT DISTINCT kind, unit FROM track ORDER BY 1") == [("counter", "bytes"), ("thread", None)]
