"""Exports keep every flow, including those back in time, and every timestamp, including those below 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from round_trip import differences, drawn
from store_builder import build_store
from stores import query

from traceconv.export.chrome import export_chrome
from traceconv.export.perfetto import export_perfetto
from traceconv.pipeline.ingest import ingest
from traceconv.store.database import open_store

FLOWS = [
    # source and target, their times: forth, back, of one time (either way round), from and to a marker
    (1, 1, 10, 100, 2, 110),
    (2, 2, 110, 110, 1, 10),
    (3, 3, 110, 110, 2, 110),
    (4, 2, 110, 110, 3, 110),
    (5, 1, 10, 10, 40, 110),
    (6, 40, 110, 110, 1, 60),
    (7, 4, -50, -50, 1, 10),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return build_store(
        tmp_path / "trace.duckdb",
        run=[{"run_id": 1, "start_ns": -50, "end_ns": 200}],
        process=[{"process_id": 1, "pid_text": "42", "name": "p"}],
        device=[{"device_id": 0}],
        track=[
            {"track_id": 1, "kind": "thread", "process_id": 1, "device_id": None, "tid_text": "7"},
            {"track_id": 2, "kind": "stream", "device_id": 0, "stream_id": 0},
        ],
        op=[{"op_id": 1, "name": "conv", "op_type": "Conv2D"}],
        api=[{"id": 1, "track_id": 1, "name": "call", "start_ns": 10, "dur_ns": 90, "depth": 0, "op_id": 1}],
        task=[
            {"id": 2, "track_id": 2, "name": "outer", "start_ns": 110, "dur_ns": 50, "depth": 0},
            {"id": 3, "track_id": 2, "name": "inner", "start_ns": 110, "dur_ns": 20, "depth": 1, "parent_id": 2},
        ],
        range=[{"id": 4, "track_id": 1, "name": "early", "start_ns": -50, "dur_ns": 5, "depth": 0}],
        marker=[
            {"id": 40, "track_id": 2, "ts_ns": 110, "name": "m"},
            {"id": 41, "track_id": 1, "ts_ns": None, "name": "timeless", "category": "__metadata", "args": '{"a":1}'},
        ],
        counter=[],
        flow=[
            {"flow_id": flow, "kind": "other", "external_id": str(flow), "src_id": src, "src_ns": src_ns,
             "dst_id": dst, "dst_ns": dst_ns}
            for flow, src, _, src_ns, dst, dst_ns in FLOWS
        ],
    )  # fmt: skip


def arrows(store: Path) -> list[tuple[Any, ...]]:
    names = "SELECT id, name FROM slice UNION ALL SELECT id, name FROM marker"
    return query(
        store,
        f"WITH n AS ({names}) SELECT external_id, a.name, b.name FROM flow "
        "JOIN n AS a ON a.id = src_id JOIN n AS b ON b.id = dst_id ORDER BY external_id",
    )


def test_chrome_trace_reverses_backward_flows_and_restores_them(store: Path) -> None:
    output = store.with_name("out.json")
    with open_store(store) as connection:
        assert export_chrome(connection, 1, output).rows["flow"] == len(FLOWS)
    events = json.loads(output.read_bytes())["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert all(threads[event["pid"], event["tid"]] != "Flows" for event in events if event["ph"] in "sf")
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(starts) == len(ends) == len(FLOWS)
    assert all(starts[flow]["ts"] <= ends[flow]["ts"] for flow in starts)
    assert {flow for flow, event in starts.items() if event["args"].get("reversed")} == {2, 6}
    assert [event["name"] for event in events if event["ph"] == "i"] == ["m"]
    ingest([output], store.with_name("back.duckdb"))
    assert differences(store, store.with_name("back.duckdb")) == []


@pytest.mark.parametrize("kept_ids", [1, 3, 1 << 18])
def test_perfetto_trace_has_no_negative_times_and_restores_all_flows(
    store: Path, kept_ids: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceconv.export.perfetto_flows._KEPT_IDS", kept_ids)
    output = store.with_name("out.pftrace")
    with open_store(store) as connection:
        summary = export_perfetto(connection, 1, output)
    assert summary.rows["flow"] == len(FLOWS)
    assert not any(summary.omitted.values())
    back = store.with_name("back.duckdb")
    ingest([output], store.with_name("restored.duckdb"))
    assert differences(store, store.with_name("restored.duckdb")) == []
    ingest([drawn(output)], back)
    assert arrows(back) == arrows(store)
    moments = "SELECT name, start_ns, dur_ns FROM slice UNION ALL SELECT name, ts_ns, 0 FROM marker ORDER BY ALL"
    assert query(back, moments) == [row for row in query(store, moments) if row[0] != "timeless"]
    assert query(back, "SELECT start_ns FROM run") == [(-50,)]
    [(args,)] = query(back, "SELECT args FROM range WHERE name = 'call'")
    assert json.loads(args)["op_name"] == "conv"


def test_trace_processor_sees_each_flow_start_before_it_ends(store: Path) -> None:
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    output = store.with_name("out.pftrace")
    with open_store(store) as connection:
        export_perfetto(connection, 1, output)
    trace = pb.Trace()
    trace.ParseFromString(output.read_bytes())
    [bundle] = [packet.chrome_events for packet in trace.packet if packet.HasField("chrome_events")]
    assert {one.name: one.int_value for one in bundle.metadata if one.HasField("int_value")} == {
        "traceconv-shift_ns": 50
    }
    events = sorted((packet.timestamp, at) for at, packet in enumerate(trace.packet) if packet.HasField("track_event"))
    assert events[0][0] == 0 and events[-1][0] < 1 << 63
    open_arrows: set[int] = set()
    ended = 0
    for _, at in events:
        event = trace.packet[at].track_event
        for flow in event.terminating_flow_ids:
            open_arrows.remove(flow)
            ended += 1
        open_arrows.update(event.flow_ids)
    assert ended == len(FLOWS) and not open_arrows
