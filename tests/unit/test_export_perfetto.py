"""A Perfetto trace has every slice, marker, value and flow of its run, by two decoders: ours and Perfetto's."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from round_trip import differences, drawn, drawn_packets
from store_builder import build_store
from stores import query

from traceconv.base.errors import InputError, StoreError
from traceconv.export import perfetto, perfetto_flows, perfetto_texts
from traceconv.export import perfetto_records as wire
from traceconv.export.perfetto import export_perfetto
from traceconv.export.registry import Written
from traceconv.formats.perfetto_proto.field_numbers import OWN
from traceconv.formats.perfetto_proto.own_export import (
    COLUMN,
    COUNT,
    DIFFERENCES,
    DOUBLES,
    HEADER,
    KNOWN,
    NAME,
    ROWS,
    TABLE,
    TEXTS,
)
from traceconv.pipeline.ingest import ingest
from traceconv.store.database import open_store
from traceconv.wire.protobuf import fields

BASE = 1_720_000_000_123_456_789
HOSTILE = 'a"b\\c\x00\x01\x1f\x7f</script>\n\té😀' + "x" * 5000
BIG_ARGS = json.dumps({"text": HOSTILE, "n": 2**63, "deep": [{"a": [1.5, None, True]}]})


def exported(store: Path, name: str = "out.pftrace", **options: Any) -> tuple[Written, Path]:
    output = store.with_name(name)
    with open_store(store) as connection:
        return export_perfetto(connection, 1, output, **options), output


def back(output: Path) -> Path:
    """The trace in a store of its own, without the packets that restore the run: what others see in it."""
    store = output.with_name("back.duckdb")
    store.unlink(missing_ok=True)
    run = ingest([drawn(output)], store)[0]
    assert run.complete and not {e.code.text for e in run.log} - {"for_viewers", "unfinished", "no_name"}
    return store


@pytest.fixture(scope="module")
def odd_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something odd in every table, which no test may change."""
    return build_store(
        tmp_path_factory.mktemp("odd") / "trace.duckdb",
        run=[{"run_id": 1, "start_ns": BASE, "epoch_known": True}],
        process=[{"process_id": 1, "pid_text": "42", "name": HOSTILE}],
        device=[{"device_id": 0, "name": "NPU"}, {"device_id": 1}],
        track=[
            {"track_id": 1, "kind": "thread", "process_id": 1, "device_id": None, "tid_text": "7", "name": HOSTILE},
            {"track_id": 2, "kind": "stream", "device_id": 0, "stream_id": 0},
            {"track_id": 3, "kind": "stream", "device_id": 1, "stream_id": 9, "name": "copy"},
            {"track_id": 4, "kind": "counter", "device_id": 0, "name": "Freq", "unit": "MHz"},
            {"track_id": 5, "kind": "counter", "device_id": None, "process_id": 1, "name": "Rate"},
        ],
        op=[{"op_id": 1, "name": "conv", "op_type": "Conv2D", "input_shapes": "1,3,8,8"}],
        api=[
            {"id": 10, "track_id": 1, "name": HOSTILE, "level": "acl", "start_ns": BASE, "dur_ns": 100, "depth": 0,
             "args": BIG_ARGS},
            {"id": 11, "track_id": 1, "name": "in", "start_ns": BASE, "dur_ns": 100, "depth": 1, "correlation_id": -1,
             "op_id": 1},
            {"id": 12, "track_id": 1, "name": None, "start_ns": BASE + 100, "dur_ns": None, "depth": 0},
        ],
        range=[{"id": 20, "track_id": 1, "name": "r", "category": "c", "start_ns": BASE - 5, "dur_ns": 0, "depth": 0}],
        task=[
            {"id": 30, "track_id": 2, "device_id": 0, "op_id": 1, "name": "t", "task_type": "AI_CORE", "depth": 0,
             "start_ns": BASE + 50, "dur_ns": 30, "hf32_eligible": True, "size_bytes": 2**62},
            {"id": 31, "track_id": 2, "device_id": 0, "name": "over", "start_ns": BASE + 60, "dur_ns": 40, "depth": 0},
            {"id": 32, "track_id": 3, "device_id": 1, "name": "other", "start_ns": BASE + 61, "dur_ns": 1, "depth": 0},
        ],
        event_wait=[{"id": 31, "event_id": 30}, {"id": 32, "event_id": None}],
        step=[
            {"step_id": 1, "device_id": 0, "iteration": 1, "start_ns": BASE, "end_ns": BASE + 70},
            {"step_id": 2, "device_id": 0, "iteration": 2, "start_ns": BASE + 60, "end_ns": BASE + 90},
            {"step_id": 3, "device_id": 0, "iteration": 3, "fp_start_ns": BASE + 95},
        ],
        counter=[
            {"track_id": 4, "ts_ns": BASE, "value": 1650.0, "value_int": 1650},
            {"track_id": 4, "ts_ns": BASE + 9, "value": 0.1},
            {"track_id": 5, "series": "a", "ts_ns": BASE, "value": -3.0, "value_int": -3},
            {"track_id": 5, "series": "b", "ts_ns": BASE, "value": float(2**53), "value_int": 2**53 + 1},
        ],
        marker=[
            {"id": 40, "track_id": 1, "ts_ns": BASE + 3, "name": "m", "scope": "global", "args": '{"k":1}'},
            {"id": 41, "track_id": 1, "ts_ns": None, "name": "timeless"},
        ],
        memory=[
            {"block_id": 1, "device_id": 0, "kind": "block", "size_bytes": 512, "alloc_ns": BASE, "free_ns": BASE + 5},
            {"block_id": 2, "device_id": 0, "kind": "block", "size_bytes": 100, "alloc_ns": BASE + 2},
        ],
        flow=[
            {"flow_id": 1, "src_id": 10, "dst_id": 30, "src_ns": BASE, "dst_ns": BASE + 50},
            {"flow_id": 2, "src_id": 10, "dst_id": 31, "src_ns": BASE, "dst_ns": BASE + 60},
            {"flow_id": 3, "src_id": 10, "dst_id": 40, "src_ns": BASE, "dst_ns": BASE + 3},
            {"flow_id": 4, "src_id": 10, "dst_id": None, "src_ns": BASE},
        ],
    )  # fmt: skip


def test_all_slices_are_exported(everything: Path) -> None:
    summary, output = exported(everything)
    assert summary.rows == {"range": 1, "api": 3, "task": 3, "step": 3, "marker": 1, "counter": 4, "flow": 3}
    omitted = {name: count for name, count in summary.omitted.items() if count}
    assert omitted == {"instants of markers without a time": 1, "arrows with an end outside the trace": 1}
    assert summary.size_bytes == output.stat().st_size
    store = back(output)
    found = query(store, "SELECT name, category, start_ns, dur_ns, args FROM range ORDER BY 3, 1")
    rows = {(name, start - BASE, dur): json.loads(args or "{}") for name, _, start, dur, args in found}
    assert rows.keys() == {
        (HOSTILE, 0, 100), ("in", 0, 100), (None, 100, None), ("r", -5, 0), ("t", 50, 30), ("over", 60, 40),
        ("other", 61, 1), ("Iteration 1", 0, 70), ("Iteration 2", 60, 30), ("Iteration 3", 95, None),
    }  # fmt: skip
    call = {"level": "acl", "depth": 0, "dur_ns": 100, "no_category": True, "args": json.loads(BIG_ARGS)}
    assert rows[HOSTILE, 0, 100] == {"id": 10, **call}
    inner = {"id": 11, "depth": 1, "dur_ns": 100, "correlation_id": -1, "op_id": 1, "op_name": "conv"}
    assert rows["in", 0, 100] == inner
    task = rows["t", 50, 30]
    assert task["hf32_eligible"] is True and task["size_bytes"] == 2**62
    assert (task["op_name"], task["op_type"], task["input_shapes"]) == ("conv", "Conv2D", "1,3,8,8")
    assert {category for _, category, *_ in found} == {"acl", "c", "AI_CORE", "step", None}


def test_tracks(everything: Path) -> None:
    store = back(exported(everything)[1])
    tracks = query(
        store,
        "SELECT DISTINCT t.kind, t.name, t.unit, p.name FROM track AS t JOIN process AS p USING (process_id)",
    )
    shown = HOSTILE + " (42)"
    assert set(tracks) == {
        ("thread", HOSTILE, None, f"Runtime API: {shown}"),
        ("thread", HOSTILE, None, f"Application: {shown}"),
        ("async", "Stream 0", None, "Device 0: NPU"),
        ("async", "Step Trace", None, "Device 0: NPU"),
        ("async", "Stream 9 (copy)", None, "Device 1"),
        ("counter", "Freq", "MHz", "Device 0: NPU"),
        ("counter", "Memory used", "bytes", "Device 0: NPU"),
        ("counter", "Rate a", None, f"Counters: {shown}"),
        ("counter", "Rate b", None, f"Counters: {shown}"),
    }
    # Slices that overlap lie on siblings: each closes what it opened.
    assert query(store, "SELECT count(DISTINCT track_id) FROM track WHERE name IN ('Stream 0', 'Step Trace')") == [(4,)]


def test_counters_markers_and_flows(everything: Path) -> None:
    store = back(exported(everything)[1])
    rows = (
        f"SELECT t.name, ts_ns - {BASE}, value, value_int FROM counter JOIN track AS t USING (track_id) ORDER BY 1, 2"
    )
    assert query(store, rows) == [
        ("Freq", 0, 1650.0, 1650),
        ("Freq", 9, 0.1, None),
        ("Memory used", 0, 512.0, 512),
        ("Memory used", 2, 612.0, 612),
        ("Memory used", 5, 100.0, 100),
        ("Rate a", 0, -3.0, -3),
        ("Rate b", 0, float(2**53), 2**53 + 1),
    ]
    markers = query(store, f"SELECT name, ts_ns - {BASE}, args FROM marker ORDER BY 1")
    assert [(name, ts, json.loads(args)) for name, ts, args in markers] == [
        ("m", 3, {"id": 40, "scope": "global", "args": {"k": 1}}),
    ]
    names = "SELECT id, name FROM range UNION ALL SELECT id, name FROM marker"
    arrows = (
        f"WITH n AS ({names}) SELECT a.name, b.name FROM flow JOIN n AS a ON a.id = src_id JOIN n AS b ON b.id = dst_id"
    )
    assert sorted(query(store, arrows)) == [(HOSTILE, "m"), (HOSTILE, "over"), (HOSTILE, "t")]


def test_flows_are_joined_in_parts(everything: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = exported(everything)[1].read_bytes()
    monkeypatch.setattr(perfetto_flows, "_PART_FLOWS", 1)
    assert exported(everything)[1].read_bytes() == whole


def test_without_args_and_with_one_device(everything: Path) -> None:
    small, output = exported(everything, args=False)
    store = back(output)
    assert query(store, "SELECT count(*), count(args) FROM range") == [(10, 0)]
    assert small.size_bytes < exported(everything)[0].size_bytes - 5000
    one, output = exported(everything, device=1)
    assert one.rows["task"] == 1 and one.rows["step"] == 0 and one.omitted["arrows with an end outside the trace"] == 3
    assert query(
        back(output), "SELECT r.name FROM range AS r JOIN track AS t USING (track_id) WHERE t.name LIKE 'Stream%'"
    ) == [("other",)]
    waits = "SELECT t.name, w.event_id FROM event_wait AS w JOIN task AS t USING (run_id, id)"
    assert query(restored(output), waits) == [("other", None)]


def test_trace_processor_reads_the_same_values(everything: Path) -> None:
    """Perfetto's own message classes: nothing is unknown to them, times and nesting are as in the store."""
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = pb.Trace()
    trace.ParseFromString(exported(everything)[1].read_bytes())
    names: dict[int, str] = {}
    tracks: dict[int, Any] = {}
    stacks: dict[int, list[tuple[str, int]]] = {}
    events = []
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        names.update({entry.iid: entry.name for entry in packet.interned_data.event_names})
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            events.append((packet.timestamp, packet.track_event))
    assert trace.packet[0].sequence_flags == 1
    for descriptor in tracks.values():
        assert not descriptor.parent_uuid or descriptor.parent_uuid in tracks
    found = []
    for ts, event in sorted(events, key=lambda one: one[0]):
        assert event.track_uuid in tracks
        if event.type == event.TYPE_SLICE_BEGIN:
            stacks.setdefault(event.track_uuid, []).append((names[event.name_iid] if event.name_iid else "", ts))
        elif event.type == event.TYPE_SLICE_END:
            name, start = stacks[event.track_uuid].pop()
            found.append((name, start - BASE, ts - start))
    assert sorted(found) == sorted(
        [(HOSTILE, 0, 100), ("in", 0, 100), ("r", -5, 0), ("t", 50, 30), ("over", 60, 40), ("other", 61, 1),
         ("Iteration 1", 0, 70), ("Iteration 2", 60, 30)]
    )  # fmt: skip
    flows = [
        (list(e.flow_ids), list(e.terminating_flow_ids)) for _, e in events if e.flow_ids or e.terminating_flow_ids
    ]
    assert sorted(flows) == [([], [1]), ([], [2]), ([], [3]), ([1, 2, 3], [])]


def test_interned_texts_are_reset_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto_texts, "MAX_TEXTS", 50)
    monkeypatch.setattr(perfetto, "_BATCH_ROWS", 2048)
    count = 5000
    store = build_store(tmp_path / "trace.duckdb", range=[], run=[{"run_id": 1, "start_ns": 0}])
    with open_store(store, read_only=False) as connection:
        connection.execute("INSERT INTO track (run_id, track_id, kind, tid_text) VALUES (1, 1, 'thread', '1')")
        connection.execute(
            "INSERT INTO range (run_id, id, track_id, depth, name, start_ns, dur_ns, args) SELECT 1, i, 1, 0, "
            "'name ' || i % 700, i * 10, 5, CASE WHEN i % 3 = 0 THEN '{\"i\":' || i || '}' END "
            f"FROM range({count}) AS t(i)"
        )
    again = back(exported(store)[1])
    rows = query(again, "SELECT name, start_ns, dur_ns, args::JSON->'$.args.i' FROM range ORDER BY start_ns")
    expected = [(f"name {i % 700}", i * 10, 5, str(i) if i % 3 == 0 else None) for i in range(count)]
    assert rows == expected


def restored(output: Path) -> Path:
    store = output.with_name("restored.duckdb")
    store.unlink(missing_ok=True)
    ingest([output], store)
    return store


def test_the_run_is_restored(everything: Path) -> None:
    output = exported(everything)[1]
    assert differences(everything, restored(output)) == []
    ingest([output], everything.with_name("log.duckdb"))
    assert query(everything.with_name("log.duckdb"), "SELECT count(*) FROM import_log") == [(0,)]


def test_memory_from_before_a_negative_excerpt(tmp_path: Path) -> None:
    """It counts from the start of the excerpt, which precedes all of its slices; viewers drop negative times."""
    store = build_store(
        tmp_path / "trace.duckdb",
        run=[{"run_id": 1, "start_ns": -1000, "end_ns": 0}],
        memory=[{"block_id": 1, "kind": "block", "size_bytes": 5, "alloc_ns": None, "free_ns": -10}],
    )
    with open_store(store) as connection:
        export_perfetto(connection, 1, tmp_path / "t.pftrace", from_ns="-900")
    ingest([drawn(tmp_path / "t.pftrace")], tmp_path / "back.duckdb")
    found = query(tmp_path / "back.duckdb", "SELECT ts_ns, value FROM counter ORDER BY 1")
    assert found == [(-900, 5), (-10, 0)]


def test_steps_that_overlap_on_some_devices(tmp_path: Path) -> None:
    """Steps 1 and 2 overlap on devices 0 and 1, and on an unknown one; device 2 has step 2 only."""
    steps = [
        {"step_id": step, "device_id": device, "iteration": step, "start_ns": 10 * step, "end_ns": 10 * step + 15}
        for step, device in [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2), (1, None), (2, None)]
    ]
    store = build_store(tmp_path / "trace.duckdb", run=[{"run_id": 1}], step=steps)
    summary, output = exported(store)
    assert summary.rows["step"] == 7
    assert differences(store, restored(output)) == []


def test_steps_without_a_start_or_longer_than_64_bits(tmp_path: Path) -> None:
    most = 2**63 - 1
    steps = [{"step_id": place, "start_ns": start, "end_ns": 5} for place, start in enumerate((1, -most, None))]
    store = build_store(tmp_path / "trace.duckdb", run=[{"run_id": 1}], step=steps)
    summary, output = exported(store)
    assert (summary.rows["step"], summary.omitted["steps without a start"]) == (2, 1)
    assert differences(store, restored(output)) == []


def test_a_slice_without_an_end_keeps_that_of_the_slice_around_it(tmp_path: Path) -> None:
    """In viewers, an end is that of the innermost slice of its track, in the order of time."""
    slices = [(0, 100, None), (10, None, 1), (20, 5, 2), (120, None, None)]
    rows = [
        {"id": id_, "track_id": 1, "start_ns": start, "dur_ns": dur, "parent_id": parent, "depth": parent or 0}
        for id_, (start, dur, parent) in enumerate(slices, 1)
    ]
    store = build_store(tmp_path / "trace.duckdb", run=[{"run_id": 1}], track=[{"track_id": 1}], range=rows)
    data = exported(store)[1].read_bytes()
    events = []
    for _, _, size, at in fields(data, 0, len(data)):
        packet = {number: (value, place) for number, _, value, place in fields(data, at, at + size)}
        if wire.EVENT in packet:
            length, place = packet[wire.EVENT]
            event = {number: value for number, _, value, _ in fields(data, place, place + length)}
            events.append((packet[wire.TIMESTAMP][0], event[wire.TYPE] == wire.END, event[wire.TRACK]))
    found: dict[int, int | None] = {}
    running: dict[int, list[int]] = defaultdict(list)
    for ns, is_end, track in sorted(events):
        if is_end:
            start = running[track].pop()
            found[start] = ns - start
        else:
            running[track].append(ns)
            found[ns] = None
    assert found == {start: dur for start, dur, _ in slices}
    assert differences(store, restored(tmp_path / "out.pftrace")) == []


#: Each returns the bytes of an export after a change.
MODIFICATIONS: list[Callable[[bytes], bytes]] = [
    lambda data: data + data,
    lambda data: data + wire.packet(OTHER_SLICE),
    lambda data: data + own_packet(ROWS, rows_text(["block_id"], [[]]), "memory"),
    lambda data: data + own_packet(ROWS, rows_text(["block_id"], [1, 2]), "memory"),
    lambda data: data + own_packet(ROWS, rows_text(["block_id", "pool"], [1]), "memory"),
    lambda data: data + own_packet(ROWS, rows_text(["block_id", "block_id"], [1, 2]), "memory"),
    lambda data: data + own_packet(ROWS, rows_text(["run_id"], [1]), "memory"),
    lambda data: data + own_packet(ROWS, b'[{"block_id":1}]', "memory"),
    lambda data: data + own_packet(ROWS, rows_text(["run_id"], [1]), "run"),
    lambda data: data + own_packet(ROWS, b"[[[", "memory"),
    lambda data: data + own_packet(ROWS, rows_text(["id"], [7], [8]), "marker"),
    lambda data: data + own_packet(ROWS, rows_text(["name"], ["x"]), "marker"),
    lambda data: data + own_packet(ROWS, rows_text(["id"], [7]), "task"),
    lambda data: data + own_packet(ROWS, b"[0]", "drawn"),
    lambda data: data + own_packet(HEADER, b'{"writer":"traceconv x","form":99}'),
    lambda data: drawn_of(data) + own_packet(HEADER, b'{"writer":"traceconv x","form":99}'),
    lambda data: drawn_of(data) + own_packet(HEADER, b'{"writer":"traceconv x","base_ns":0,"form":3,"run":[{}],'
                                             b'"device":[],"process":[],"track":[],"thread":[]}'),
    lambda data: drawn_of(data) + own_packet(HEADER, b'{"writer":"traceconv ' + b"[" * 100_000),
    lambda data: drawn_of(data) + own_packet(ROWS, rows_text(["block_id"], [1]), "memory"),
    lambda data: data + columns_packet(1, {NAME: b"unknown"}),
    lambda data: data + columns_packet(1, {NAME: b"block_id", DOUBLES: struct.pack("<d", 0.5)}),
    lambda data: data + columns_packet(1, {NAME: b"block_id", TEXTS: b"text"}),
]  # fmt: skip


def test_a_modified_export_is_read_like_any_trace(odd_trace: bytes, tmp_path: Path) -> None:
    """Nothing is added to the restored run, and the slices are the drawn ones."""
    paths = [tmp_path / f"{number}.pftrace" for number in range(len(MODIFICATIONS))]
    for path, change in zip(paths, MODIFICATIONS, strict=True):
        path.write_bytes(change(odd_trace))
    store = tmp_path / "restored.duckdb"
    runs = ingest(paths, store)
    assert len(runs) == len(paths)
    assert query(store, "SELECT count(*) FROM task") == [(0,)]
    slices = dict(query(store, "SELECT run_id, count(*) FROM range GROUP BY 1"))
    assert all(slices[run.run_id] >= 10 for run in runs)


#: Rows of a packet, and a column that can't have this number of values.
DAMAGED_COLUMNS: list[tuple[int, dict[int, bytes]]] = [
    (1 << 30, {NAME: b"block_id"}),
    (1, {NAME: b"\xff"}),
    (1, {NAME: b"block_id", DIFFERENCES: b"\x02\x02"}),  # two numbers
    (1, {NAME: b"block_id", DIFFERENCES: b"\x80"}),
    (1, {NAME: b"block_id", DIFFERENCES: b"\x80" * 10 + b"\x01"}),
    (2, {NAME: b"block_id", DOUBLES: bytes(8)}),
    (9, {NAME: b"block_id", KNOWN: b"\xff"}),
    (1, {NAME: b"pool", TEXTS: b"text", DIFFERENCES: b"\x02"}),  # the second of one text
    (1 << 16, {NAME: b"pool", TEXTS: b"x" * 2000}),  # 130 MB
]


def test_damaged_columns_are_lost(odd_trace: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged.pftrace"
    path.write_bytes(odd_trace + b"".join(columns_packet(*damaged) for damaged in DAMAGED_COLUMNS))
    store = tmp_path / "restored.duckdb"
    [run] = ingest([path], store)
    assert [(entry.code.text, entry.event_count) for entry in run.log] == [("damaged_event", len(DAMAGED_COLUMNS))]
    path.write_bytes(odd_trace)
    ingest([path], tmp_path / "whole.duckdb")
    assert differences(store, tmp_path / "whole.duckdb") == []


@pytest.fixture
def everything(odd_store: Path, tmp_path: Path) -> Path:
    """A copy of `odd_store`."""
    return Path(shutil.copy(odd_store, tmp_path))


@pytest.fixture(scope="module")
def odd_trace(odd_store: Path) -> bytes:
    return exported(odd_store)[1].read_bytes()


def rows_text(columns: list[str], *rows: list[object]) -> bytes:
    return json.dumps({"columns": columns, "rows": rows}).encode()


def own_packet(number: int, text: bytes, name: str = "") -> bytes:
    return wire.packet(wire.bytes_field(OWN, wire.bytes_field(TABLE, name.encode()) + wire.bytes_field(number, text)))


def columns_packet(count: int, column: dict[int, bytes]) -> bytes:
    fields = b"".join(wire.bytes_field(number, value) for number, value in column.items())
    table = wire.bytes_field(TABLE, b"memory") + wire.number_field(COUNT, count)
    return wire.packet(wire.bytes_field(OWN, table + wire.bytes_field(COLUMN, fields)))


def drawn_of(data: bytes) -> bytes:
    return b"".join(drawn_packets(data))


#: A slice on a track of its own.
OTHER_SLICE = wire.number_field(wire.TIMESTAMP, 5) + wire.bytes_field(
    wire.EVENT, wire.number_field(wire.TYPE, wire.BEGIN) + wire.number_field(wire.TRACK, 999_999)
)


def test_files(everything: Path, tmp_path: Path) -> None:
    _, plain = exported(everything)
    _, packed = exported(everything, "out.pftrace.gz")
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    first = plain.read_bytes()
    assert exported(everything)[1].read_bytes() == first


def test_run_without_times_is_an_error(tmp_path: Path) -> None:
    store = build_store(tmp_path / "a.duckdb", task=[{"id": 1, "track_id": 1, "name": "t"}])
    with pytest.raises(InputError, match="no timeline"):
        exported(store)
    store = build_store(tmp_path / "b.duckdb", api=[{"id": 1, "track_id": 1, "name": "t", "start_ns": 4}])
    with pytest.raises(StoreError, match="a track"):
        exported(store)


def test_an_empty_run(tmp_path: Path) -> None:
    store = build_store(tmp_path / "a.duckdb", run=[{"run_id": 1}])
    summary, output = exported(store)
    assert not any(summary.rows.values()) and output.stat().st_size == summary.size_bytes


@pytest.mark.parametrize("track_id", [-5, 1 << 40])
def test_damaged_tracks_of_a_store_are_a_one_line_error(track_id: int, tmp_path: Path) -> None:
    """Such indexes would count from the end of a table, or need a table larger than memory."""
    store = build_store(
        tmp_path / "s.duckdb",
        run=[{"run_id": 1}],
        process=[{"process_id": 1, "pid_text": "1"}],
        track=[{"track_id": track_id, "kind": "thread", "process_id": 1, "tid_text": "1"}],
        range=[{"id": 1, "track_id": track_id, "name": "a", "start_ns": 1, "dur_ns": 1, "depth": 0}],
    )
    with pytest.raises(StoreError, match=rf"range.track_id ranges from {track_id} to {track_id}"):
        exported(store)
    assert not list(tmp_path.glob("out*"))
