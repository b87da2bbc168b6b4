"""What Perfetto's reader and the exports are compared with: measured in processes of their own by benchmarks.parts."""

from __future__ import annotations

import gc
import json
import resource
import time
from pathlib import Path
from typing import Any


def _measured(key: str, count: int, begin: float) -> dict[str, Any]:
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {key: count, "cpu_seconds": seconds, "peak_bytes": peak}


def perfetto_parse(path: str) -> dict[str, Any]:
    """The trace parsed by Perfetto's message classes."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    begin = time.process_time()
    trace = Trace.FromString(Path(path).read_bytes())
    found = _measured("events", len(trace.packet), begin)
    gc.disable()
    return {**found, "events": sum(packet.HasField("track_event") for packet in trace.packet)}


def perfetto_messages(path: str) -> dict[str, Any]:
    """The same, and of each event the time, type, name and annotations looked at: what any reader of messages does."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    begin = time.process_time()
    gc.disable()
    trace = Trace.FromString(Path(path).read_bytes())
    found: list[tuple[object, ...]] = []
    for packet in trace.packet:
        if packet.HasField("track_event"):
            event = packet.track_event
            notes = {
                note.name_iid: note.int_value if note.HasField("int_value") else note.string_value
                for note in event.debug_annotations
            }
            found.append((packet.timestamp, packet.trusted_packet_sequence_id, event.type, event.name_iid, notes))
    return _measured("events", len(found), begin)


def perfetto_reader(path: str) -> dict[str, Any]:
    """The trace read by our reader: batches of columns, not yet in a store."""
    from traceconv.formats.format import ReadRequest
    from traceconv.formats.registry import open_source

    begin = time.process_time()
    reader = open_source("perfetto_proto", ReadRequest(Path(path)))
    return _measured("events", sum(batch.columns.count for batch in reader.batches()), begin)


def _slices(store: str, count: str) -> list[dict[str, Any]]:
    """So many rows of the biggest table of slices."""
    from traceconv.store.database import open_store

    with open_store(Path(store)) as connection:
        names = ("task", "api", "range")
        counted = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for name in names}  # noqa: S608 - names above
        biggest = max(names, key=lambda name: counted[name])
        rows = connection.execute(f'FROM "{biggest}" LIMIT {int(count)}')
        columns = [column[0] for column in rows.description]
        return [dict(zip(columns, row, strict=True)) for row in rows.fetchall()]


def perfetto_objects(store: str, count: str, with_args: str) -> dict[str, Any]:
    """Two packets for each slice, filled in and encoded as messages. `with_args`: empty for none."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    rows = _slices(store, count)
    begin = time.process_time()
    trace = Trace()
    for row in rows:
        packet = trace.packet.add()
        packet.timestamp, packet.trusted_packet_sequence_id = row["start_ns"], 1
        event = packet.track_event
        event.type, event.track_uuid, event.name = 1, row["track_id"], row["name"] or ""
        for key, value in row.items() if with_args else ():
            if value is not None and key not in ("run_id", "track_id", "name", "start_ns", "dur_ns"):
                note = event.debug_annotations.add()
                note.name = key
                if isinstance(value, int):
                    note.int_value = value
                else:
                    note.string_value = str(value)
        packet = trace.packet.add()
        packet.timestamp, packet.trusted_packet_sequence_id = row["start_ns"] + (row["dur_ns"] or 0), 1
        packet.track_event.type, packet.track_event.track_uuid = 2, row["track_id"]
    trace.SerializeToString()
    return _measured("rows", len(rows), begin)


def json_rows(store: str, count: str) -> dict[str, Any]:
    """An event of trace JSON for each slice, made by json.dumps."""
    rows = _slices(store, count)
    begin = time.process_time()
    for row in rows:
        args = {key: value for key, value in row.items() if value is not None}
        event = {"ph": "X", "name": row["name"], "pid": 1, "tid": row["track_id"], "ts": row["start_ns"] / 1000}
        json.dumps({**event, "dur": (row["dur_ns"] or 0) / 1000, "args": args}, default=str)
    return _measured("rows", len(rows), begin)
