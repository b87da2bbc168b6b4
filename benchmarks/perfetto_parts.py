"""Measurements that Perfetto's reader and the exports are compared with; run by benchmarks.parts in new processes."""

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
    """Parse the trace with Perfetto's message classes."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    begin = time.process_time()
    trace = Trace.FromString(Path(path).read_bytes())
    found = _measured("events", len(trace.packet), begin)
    gc.disable()
    return {**found, "events": sum(packet.HasField("track_event") for packet in trace.packet)}


def perfetto_messages(path: str) -> dict[str, Any]:
    """Parse the trace and read the time, type, name and annotations of each event, as any reader of messages does."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    begin = time.process_time()
    gc.disable()
    trace = Trace.FromString(Path(path).read_bytes())
    found: list[tuple[object, ...]] = []
    for packet in trace.packet:
        if packet.HasField("track_event"):
            event = packet.track_event
            annotations = {
                one.name_iid: one.int_value if one.HasField("int_value") else one.string_value
                for one in event.debug_annotations
            }
            found.append((packet.timestamp, packet.trusted_packet_sequence_id, event.type, event.name_iid, annotations))
    return _measured("events", len(found), begin)


def perfetto_reader(path: str) -> dict[str, Any]:
    """Read the trace into batches of columns, without a store."""
    from traceconv.formats.format import ReadRequest
    from traceconv.formats.registry import open_source

    begin = time.process_time()
    reader = open_source("perfetto_proto", ReadRequest(Path(path)))
    return _measured("events", sum(batch.columns.count for batch in reader.batches()), begin)


def _slices(store: str, count: str) -> list[dict[str, Any]]:
    """Return the first `count` rows of the largest table of slices."""
    from traceconv.store.database import open_store

    with open_store(Path(store)) as connection:
        names = ("task", "api", "range")
        counted = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for name in names}  # noqa: S608 - names above
        biggest = max(names, key=lambda name: counted[name])
        rows = connection.execute(f'FROM "{biggest}" LIMIT {int(count)}')
        columns = [column[0] for column in rows.description]
        return [dict(zip(columns, row, strict=True)) for row in rows.fetchall()]


def perfetto_objects(store: str, count: str, with_args: str) -> dict[str, Any]:
    """Build and encode two packets per slice as messages. `with_args`: an empty string for no args."""
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
                annotation = event.debug_annotations.add()
                annotation.name = key
                if isinstance(value, int):
                    annotation.int_value = value
                else:
                    annotation.string_value = str(value)
        packet = trace.packet.add()
        packet.timestamp, packet.trusted_packet_sequence_id = row["start_ns"] + (row["dur_ns"] or 0), 1
        packet.track_event.type, packet.track_event.track_uuid = 2, row["track_id"]
    trace.SerializeToString()
    return _measured("rows", len(rows), begin)


def json_rows(store: str, count: str) -> dict[str, Any]:
    """Encode each slice as an event of trace JSON with json.dumps."""
    rows = _slices(store, count)
    begin = time.process_time()
    for row in rows:
        args = {key: value for key, value in row.items() if value is not None}
        event = {"ph": "X", "name": row["name"], "pid": 1, "tid": row["track_id"], "ts": row["start_ns"] / 1000}
        json.dumps({**event, "dur": (row["dur_ns"] or 0) / 1000, "args": args}, default=str)
    return _measured("rows", len(rows), begin)
