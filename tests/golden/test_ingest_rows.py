"""Captures of a few records → the exact rows of each table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder
from ingest_checks import ingested
from stores import query

from traceconv.normalize.npulog.device_passes import METRIC_GROUPS
from traceconv.pipeline.ingest import ingest
from traceconv.schema import Field, records, tables
from traceconv.store.database import open_store

B = 40  # bits of the ordinal in an ID


def synced(builder: CaptureBuilder, device_id: int = 0) -> CaptureBuilder:
    """Clock readings that map tick t to 10·t + 1000 ns."""
    for tick in (0, 1_000, 2_000, 100_000):
        builder.sync(tick, 10 * tick + 1000, device_id=device_id)
    return builder


def base_of(store: Path, record: str, owner: str = "host") -> int:
    """The ID of a file's first event."""
    path = f"{owner}/data/{record}.slice_0.bin"
    return int(query(store, f"SELECT source_id FROM source WHERE path = '{path}'")[0][0]) << B


SIZES = pytest.mark.parametrize(
    ("block_bytes", "slice_bytes"), [(1 << 20, 1 << 28), (64, 1 << 28), (100, 300), (1, 1)], ids=str
)


@SIZES
def test_api_calls_nest_across_blocks_and_slices(tmp_path: Path, block_bytes: int, slice_bytes: int) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1", block_bytes=block_bytes, slice_bytes=slice_bytes)
    b.begin(10, 100, "outer", level="acl")
    b.begin(11, 110, "mid", level="model", op_index=4, step_id=2)
    b.call(12, 120, 125, "leaf", level="node")
    b.begin(20, 121, "other thread", thread_id=2)
    b.call(13, 126, 130, "leaf", level="runtime")
    b.end(11, 150)
    b.call(14, 160, 161, "leaf", level="communication")
    b.end(10, 200)
    b.end(20, 300, thread_id=2)
    ingested(tmp_path / "s.duckdb", b.close())
    sql = """SELECT a.name, t.tid_text, a.level, a.start_ns, a.dur_ns, a.self_ns, a.depth, p.name, a.correlation_id,
        a.op_id, a.step_id FROM api a JOIN track t USING (run_id, track_id) LEFT JOIN api p ON p.id = a.parent_id
        ORDER BY a.start_ns"""
    assert query(tmp_path / "s.duckdb", sql) == [
        ("outer", "1", "acl", 100, 100, 59, 0, None, 10, None, None),
        ("mid", "1", "model", 110, 40, 31, 1, "outer", 11, 4, 2),
        ("leaf", "1", "node", 120, 5, 5, 2, "mid", 12, None, None),
        ("other thread", "2", "runtime", 121, 179, 179, 0, None, 20, None, None),
        ("leaf", "1", "runtime", 126, 4, 4, 2, "mid", 13, None, None),
        ("leaf", "1", "communication", 160, 1, 1, 1, "outer", 14, None, None),
    ]
    assert query(tmp_path / "s.duckdb", "SELECT complete, start_ns, end_ns, epoch_known FROM run") == [
        (True, 100, 300, False)
    ]
    assert query(tmp_path / "s.duckdb", "SELECT count(*) FROM import_log") == [(0,)]


@SIZES
def test_the_group_of_a_collective_is_in_its_stream_name(tmp_path: Path, block_bytes: int, slice_bytes: int) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1", block_bytes=block_bytes, slice_bytes=slice_bytes)
    for stream, name in enumerate(["compute 0", "communication", "communication world", "communication rows 0-3"]):
        b.add("stream", 0, name=name, stream_id=stream)
    for number, (stream, kind) in enumerate([(0, "AI_CORE"), *((n, "HCCL") for n in range(5)), (2, "EVENT_WAIT")]):
        synced(b).task(number, 10 * number, 10 * number + 5, "t", task_type=kind, stream_id=stream)
    ingested(tmp_path / "s.duckdb", b.close())
    groups = [None, None, None, "world", "rows 0-3", None, None]
    assert query(tmp_path / "s.duckdb", "SELECT comm_group FROM task ORDER BY start_ns") == [(one,) for one in groups]


@SIZES
def test_tasks_of_two_devices_pair_across_blocks_and_slices(tmp_path: Path, block_bytes: int, slice_bytes: int) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1", devices=(0, 3), block_bytes=block_bytes, slice_bytes=slice_bytes)
    b.call(50, 900, 990, "LaunchKernel")
    b.call(51, 991, 995, "LaunchKernel")
    synced(b).task(1, 10, 25, "conv", correlation_id=50, op_index=6, step_id=1, execution_id=9, block_count=8)
    b.task(2, 30, 40, "copy", task_type="SDMA", correlation_id=51, size_bytes=4096, block_count=0)
    b.task(3, 12, 20, "vector", task_type="AI_VECTOR_CORE", stream_id=7, hf32_eligible=1, mix_block_count=2)
    b.task(4, 45, 46, "", op_index=6, context_id=3)
    synced(b, 3).task(1, 50, 60, "all reduce", device_id=3, task_type="HCCL", size_bytes=0)
    b.add("op", name="conv1", op_type="Conv2D", op_index=6)
    ingested(tmp_path / "s.duckdb", b.close())
    sql = """SELECT device_id, stream_id, source_task_id, name, task_type, core_type, kind, start_ns, dur_ns, self_ns,
        stream_wait_ns, submit_ns, correlation_id, op_id, step_id, execution_id, context_id, size_bytes, block_count,
        mix_block_count, hf32_eligible, depth, parent_id, comm_group, args FROM task ORDER BY device_id, start_ns"""
    none = (None,)
    assert query(tmp_path / "s.duckdb", sql) == [
        (
            *(0, 0, 1, "conv", "AI_CORE", "AI_CORE", "compute", 1100, 150, 150, 0, 900, 50),
            *(6, 1, 9, None, None, 8, 0, False, 0),
            *none * 3,
        ),
        (
            *(0, 7, 3, "vector", "AI_VECTOR_CORE", "AI_VECTOR_CORE", "compute", 1120, 80, 80, 0, None, None),
            *(None, None, None, None, None, 1, 2, True, 0),
            *none * 3,
        ),
        (
            *(0, 0, 2, "copy", "SDMA", None, "copy", 1300, 100, 100, 50, 991, 51),
            *(None, None, None, None, 4096, None, None, None, 0),
            *none * 3,
        ),
        (
            *(0, 0, 4, "conv1", "AI_CORE", "AI_CORE", "compute", 1450, 10, 10, 50, None, None),
            *(6, None, None, 3, None, 1, 0, False, 0),
            *none * 3,
        ),
        (
            *(3, 0, 1, "all reduce", "HCCL", None, "collective", 1500, 100, 100, 0, None, None),
            *(None, None, None, None, 0, None, None, None, 0),
            *none * 3,
        ),
    ]
    flows = "SELECT flow_id, kind, src_id - ?, src_ns, dst_ns FROM flow ORDER BY flow_id"
    first = base_of(tmp_path / "s.duckdb", "api")
    if slice_bytes > 1000:
        assert query(tmp_path / "s.duckdb", flows.replace("?", str(first))) == [
            (1, "launch", 0, 900, 1100),
            (2, "launch", 2, 991, 1300),
        ]
    bound = "SELECT a.correlation_id, t.source_task_id, src_ns = a.start_ns, dst_ns = t.start_ns FROM flow"
    bound += " JOIN api a ON a.id = src_id JOIN task t ON t.id = dst_id ORDER BY 1"
    assert query(tmp_path / "s.duckdb", bound) == [(50, 1, True, True), (51, 2, True, True)]
    tracks = "SELECT kind, device_id, stream_id, tid_text, name, process_id FROM track ORDER BY track_id"
    assert query(tmp_path / "s.duckdb", tracks) == [
        ("thread", None, None, "1", None, None),
        ("stream", 0, 0, None, "Stream 0", None),
        ("stream", 0, 7, None, "Stream 7", None),
        ("stream", 3, 0, None, "Stream 0", None),
    ]
    assert query(tmp_path / "s.duckdb", "SELECT device_id, kind, clock_error_ns FROM device ORDER BY 1") == [
        (0, None, 12),
        (3, None, 12),
    ]


def test_ids_are_positions_of_the_first_event_and_lead_to_its_bytes(tmp_path: Path) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1", block_bytes=1, slice_bytes=1)
    synced(b).task(1, 10, 25, "a").task(2, 30, 35, "b")
    folder = b.close()
    ingested(tmp_path / "s.duckdb", folder)
    sql = """SELECT t.source_task_id, t.id & ((1::BIGINT << 40) - 1), s.path, b.byte_offset, b.byte_count FROM task t
        JOIN source_block b ON t.id BETWEEN b.first_id AND b.first_id + b.event_count - 1
        JOIN source s USING (source_id) ORDER BY 1"""
    found = query(tmp_path / "s.duckdb", sql)
    assert [(task, ordinal, path) for task, ordinal, path, *_ in found] == [
        (1, 0, "device_0/data/task.slice_0.bin"),
        (2, 2, "device_0/data/task.slice_2.bin"),
    ]
    for task, _, path, offset, count in found:
        block = (folder / path).read_bytes()[offset : offset + count]
        assert block[:4] == b"\x95BLK"
        assert block[32 + 32 : 32 + 36] == task.to_bytes(4, "little")  # task_id is at byte 32 of the record


def test_unmatched_begins_and_ends_and_negative_durations(tmp_path: Path) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1")
    b.begin(1, 100, "lost its end").call(2, 110, 120, "whole")
    b.end(77, 130)
    b.call(3, 200, 150, "backwards")
    synced(b).task(1, 10, None, "unfinished").task(2, 30, 20, "backwards").task(3, 50, 60, "after it")
    b.add("task", 0, ticks=70, task_id=99, event="end")
    runs = ingested(tmp_path / "s.duckdb", b.close())
    sql = "SELECT name, start_ns, dur_ns, self_ns, depth FROM api ORDER BY start_ns"
    assert query(tmp_path / "s.duckdb", sql) == [
        ("lost its end", 100, None, None, 0),
        ("whole", 110, 10, 10, 1),
        ("backwards", 200, None, None, 1),
    ]
    sql = "SELECT name, start_ns, dur_ns, self_ns, stream_wait_ns FROM task ORDER BY start_ns"
    assert query(tmp_path / "s.duckdb", sql) == [
        ("unfinished", 1100, None, None, 0),
        ("backwards", 1300, None, None, None),
        ("after it", 1500, 100, 100, None),
    ]
    assert query(tmp_path / "s.duckdb", "SELECT severity, code, event_count FROM import_log ORDER BY 1, 2") == [
        ("data_loss", "negative_duration", 1),
        ("data_loss", "negative_duration", 1),
        ("data_loss", "unmatched_end", 1),
        ("data_loss", "unmatched_end", 1),
        ("info", "unfinished", 1),
        ("info", "unfinished", 1),
    ]
    accounts = runs[0].accounts.by_record
    assert (accounts["api"].rows, accounts["api"].paired, accounts["api"].used) == (3, 2, 1)
    assert (accounts["task"].rows, accounts["task"].paired, accounts["task"].used) == (3, 2, 1)


def test_a_reused_task_id_leaves_the_first_task_unfinished(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    b.task(0, 5, 8, "before").task(1, 10, None, "lost its end").task(1, 30, 40, "again").task(2, 50, 60, "next")
    ingested(tmp_path / "s.duckdb", b.close())
    sql = "SELECT name, start_ns, dur_ns, stream_wait_ns FROM task ORDER BY start_ns"
    assert query(tmp_path / "s.duckdb", sql) == [
        ("before", 1050, 30, 0),
        ("lost its end", 1100, None, 20),
        ("again", 1300, 100, None),
        ("next", 1500, 100, 100),
    ]


def test_a_wait_follows_the_previous_task_by_start(tmp_path: Path) -> None:
    """In any order of ends: overlapping tasks, and a task without an end among complete ones."""
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    b.task(1, 100, 120, "a").task(2, 130, None, "lost its end").task(3, 150, 200, "b").task(4, 180, 190, "overlaps b")
    b.task(5, 300, 310, "c").task(6, 90, 95, "other stream", stream_id=1)
    ingested(tmp_path / "s.duckdb", b.close())
    sql = "SELECT name, stream_wait_ns FROM task ORDER BY stream_id, start_ns"
    assert query(tmp_path / "s.duckdb", sql) == [
        ("a", 0),
        ("lost its end", 100),
        ("b", None),
        ("overlaps b", -200),
        ("c", 1100),
        ("other stream", 0),
    ]
    assert query(tmp_path / "s.duckdb", "SELECT event_count FROM import_log WHERE code = 'overlap'") == [(1,)]


def test_waits_do_not_depend_on_batch_boundaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(name: str) -> Path:
        b = synced(CaptureBuilder(tmp_path / name, block_bytes=1))
        row = {"task_type": "HCCL"}
        b.add("task", 0, ticks=100, task_id=1, event="start", **row)
        b.task(2, 110, 120, **row)
        b.task(3, 130, None, **row)
        b.task(4, 140, 145, stream_id=1, **row)
        b.add("task", 0, ticks=135, task_id=1, event="end", **row)
        b.task(5, 150, 160, **row).task(6, 155, 156, stream_id=1, **row).task(7, 158, 159, task_type="SDMA")
        return b.close()

    sql = "SELECT source_task_id, stream_wait_ns FROM task ORDER BY 1"
    ingested(tmp_path / "whole.duckdb", capture("PROF_1"))
    monkeypatch.setattr("traceconv.formats.npulog.reader._BATCH_BYTES", 1)
    ingested(tmp_path / "pieces.duckdb", capture("PROF_2"))
    wanted = [(1, 0), (2, -250), (3, 100), (4, 0), (5, None), (6, 100), (7, -20)]
    assert query(tmp_path / "whole.duckdb", sql) == wanted
    assert query(tmp_path / "pieces.duckdb", sql) == wanted
    waits = "SELECT source_task_id, wait_ns FROM task ORDER BY 1"
    rows = [
        (1, 0),
        (2, 0),
        (3, 100),
        (4, None),
        (5, 50),
        (6, 0),
        (7, None),
    ]  # wait_ns of op_summary: both streams, by start
    assert query(tmp_path / "whole.duckdb", waits) == rows
    assert query(tmp_path / "pieces.duckdb", waits) == rows


def test_waits_continue_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceconv.formats.npulog.reader._BATCH_BYTES", 1)
    b = synced(CaptureBuilder(tmp_path / "PROF_1", block_bytes=1))
    b.task(1, 10, 20).task(2, 25, 30).task(3, 5, 8, stream_id=1).task(4, 40, 50).task(5, 9, 10, stream_id=1)
    ingested(tmp_path / "s.duckdb", b.close())
    assert query(tmp_path / "s.duckdb", "SELECT source_task_id, stream_wait_ns FROM task ORDER BY 1") == [
        (1, 0),
        (2, 50),
        (3, 0),
        (4, 100),
        (5, 10),
    ]


def test_ranges_keep_ids_as_text_and_args_as_json(tmp_path: Path) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1")
    big = 2**64 - 1
    one = {"thread_id": 5, "span_id": big, "event": "begin"}
    b.add("range", host_ns=10, name="inference", category="Runtime", kind="inference", trace_id=big,
          parent_span_id=7, step_id=3, args='{"b": 1, "a": [2, null]}', **one)  # fmt: skip
    two = {"thread_id": 5, "event": "begin", "kind": "host_op"}
    b.add("range", host_ns=12, span_id=1, name="Lower", args="not { json", **two)
    b.add("range", host_ns=15, span_id=1, thread_id=5, event="end")
    b.add("range", host_ns=16, span_id=2, name="list", args="[1]", **two)
    b.add("range", host_ns=17, span_id=2, thread_id=5, event="end")
    b.add("range", host_ns=18, span_id=3, name="nan", args='{"x": NaN}', **two)
    b.add("range", host_ns=18, span_id=3, thread_id=5, event="end")
    b.add("range", host_ns=20, span_id=big, thread_id=5, event="end")
    ingested(tmp_path / "s.duckdb", b.close())
    sql = """SELECT name, kind, category, trace_id, span_id, parent_span_id, step_id, start_ns, dur_ns, self_ns, depth,
        args FROM range ORDER BY start_ns"""
    u64 = str(big)
    assert query(tmp_path / "s.duckdb", sql) == [
        ("inference", "inference", "Runtime", u64, u64, "7", 3, 10, 10, 6, 0, '{"b": 1, "a": [2, null]}'),
        ("Lower", "host_op", None, None, "1", None, None, 12, 3, 3, 1, '{"text": "not { json"}'),
        ("list", "host_op", None, None, "2", None, None, 16, 1, 1, 1, '{"text": "[1]"}'),
        ("nan", "host_op", None, None, "3", None, None, 18, 0, 0, 1, '{"text": "{\\"x\\": NaN}"}'),
    ]
    assert query(tmp_path / "s.duckdb", "SELECT count(*) FROM range WHERE NOT json_valid(args)") == [(0,)]


def test_memory_blocks_and_their_counters(tmp_path: Path) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1")
    b.add("memory", host_ns=10, block_id=1, address=2**64 - 4096, size_bytes=4096, used_bytes=4096, kind="block",
          reserved_bytes=1 << 20, pool="arena", tensor_name="w", event="alloc", alloc_by="weight")  # fmt: skip
    b.add("memory", host_ns=20, block_id=2, size_bytes=64, used_bytes=4160, reserved_bytes=1 << 20, event="alloc",
          kind="segment", alloc_by="activation", op_index=3)  # fmt: skip
    b.add("memory", host_ns=30, block_id=1, used_bytes=64, reserved_bytes=1 << 20, event="free")
    b.add("memory", host_ns=31, block_id=8, used_bytes=64, reserved_bytes=1 << 20, event="free")
    ingested(tmp_path / "s.duckdb", b.close())
    sql = """SELECT block_id, device_id, pool, kind, address, size_bytes, alloc_ns, free_ns, op_id, purpose,
        tensor_name FROM memory ORDER BY block_id"""
    assert query(tmp_path / "s.duckdb", sql) == [
        (1, 0, "arena", "block", 2**64 - 4096, 4096, 10, 30, None, "weight", "w"),
        (2, 0, None, "segment", 0, 64, 20, None, 3, "activation", None),
    ]
    sql = "SELECT name, unit, ts_ns, value, value_int FROM counter JOIN track USING (run_id, track_id) ORDER BY 1, 3"
    mib = 1 << 20
    assert query(tmp_path / "s.duckdb", sql) == [
        *(("Memory reserved", "byte", ns, float(mib), mib) for ns in (10, 20, 30, 31)),
        *(("Memory used", "byte", ns, float(v), v) for ns, v in ((10, 4096), (20, 4160), (30, 64), (31, 64))),
    ]


def test_steps_with_and_without_their_marks(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    b.task(1, 1, 2)
    marks = [(10, 1, "start"), (11, 1, "fp_start"), (19, 1, "end"), (20, 2, "start"), (21, 2, "bp_end")]
    for tick, step, mark in marks:
        b.add("step_mark", 0, ticks=tick, step_id=step, model_id=4, iteration=step + 100, mark=mark)
    runs = ingested(tmp_path / "s.duckdb", b.close())
    sql = (
        "SELECT step_id, device_id, model_id, iteration, start_ns, fp_start_ns, bp_end_ns, end_ns FROM step ORDER BY 1"
    )
    assert query(tmp_path / "s.duckdb", sql) == [
        (1, 0, 4, 101, 1100, 1110, None, 1190),
        (2, 0, 4, 102, 1200, None, 1210, None),
    ]
    assert runs[0].accounts["step_mark"].used == 5


def test_marks_of_a_step_become_one_row_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a mark follows the end mark; lost marks are reported."""
    monkeypatch.setattr("traceconv.formats.npulog.reader._BATCH_BYTES", 1)
    b = synced(CaptureBuilder(tmp_path / "PROF_1", block_bytes=1)).task(1, 1, 2)
    for tick, step, mark in [(10, 1, "start"), (19, 1, "end"), (15, 1, "fp_start"), (20, 2, "start"), (30, 2, "end")]:
        b.add("step_mark", 0, ticks=tick, step_id=step, model_id=4, iteration=step, mark=mark)
    ingested(tmp_path / "s.duckdb", b.close())
    assert query(tmp_path / "s.duckdb", "SELECT step_id, start_ns, fp_start_ns, end_ns FROM step ORDER BY 1") == [
        (1, 1100, 1150, 1190),
        (2, 1200, None, 1300),
    ]


def test_a_capture_with_only_steps_is_stored(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    b.add("step_mark", 0, ticks=10, step_id=1, iteration=1, mark="start")
    ingested(tmp_path / "s.duckdb", b.close())
    assert query(tmp_path / "s.duckdb", "SELECT step_id, start_ns FROM step") == [(1, 1100)]


def test_counters_of_a_device(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    for tick, name, unit, value in [(1, "freq", "MHz", 1850), (2, "freq", "MHz", -(2**63)), (3, "", None, 2**63 - 1)]:
        b.add("counter", 0, ticks=tick, name=name, value_unit=unit, value=value)
    ingested(tmp_path / "s.duckdb", b.close())
    sql = """SELECT name, unit, kind, device_id, ts_ns, value, value_int FROM counter JOIN track
        USING (run_id, track_id) ORDER BY ts_ns"""
    assert query(tmp_path / "s.duckdb", sql) == [
        ("freq", "MHz", "counter", 0, 1010, 1850.0, 1850),
        ("freq", "MHz", "counter", 0, 1020, -(2.0**63), -(2**63)),
        (None, None, "counter", 0, 1030, 2.0**63, 2**63 - 1),
    ]


def test_metadata_of_the_capture_its_threads_ops_and_devices(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    epoch = 1_720_000_000_123_456_789
    b.add("capture", host_ns=500, epoch_ns=epoch + 500, host_name="box", model_name="net", writer="npu 1",
          options='{"level": 2}')  # fmt: skip
    b.add("thread", process_id=2**64 - 1, process_name="python", thread_name="main", thread_id=1, sort_index=4)
    b.add("model", name="net", graph_name="g", model_id=1, op_count=1)
    b.add("op", name="conv1", op_type="Conv2D", scope_path="net/conv1", input_shapes="1,3;4", input_dtypes="f32;f32",
          input_formats="NCHW;ND", output_shapes="1,4", output_dtypes="f32", output_formats="ND", flops=12,
          input_bytes=1, output_bytes=2, weight_bytes=3, workspace_bytes=4, op_index=0, model_id=1, fusion_id=5,
          state="dynamic", phase="backward")  # fmt: skip
    b.add("fusion", fusion_id=5, op_index=0, original_index=1, original_name="relu_0", original_type="Relu")
    b.add("device", 0, kind="NPU", name="sim", peak_flops=10**12, peak_bytes_per_s=2, memory_bytes=3, clock_hz=10**8,
          core_clock_hz=10**9, device_id=0, ai_core_count=8, ai_vector_core_count=16, ai_cpu_count=2)  # fmt: skip
    b.add("stream", 0, name="compute", stream_id=2)
    b.call(1, 600, 700, "x")
    b.task(1, 10, 20, stream_id=2)
    b.add("pmu_pipe_utilization", 0, ticks=20, task_id=1, stream_id=2, aic_total_cycles=77, aiv_mte3_cycles=2**63)
    b.add("pmu_pipe_utilization", 0, ticks=20, task_id=5, stream_id=2, aic_total_cycles=1)
    ingested(tmp_path / "s.duckdb", b.close())
    store = tmp_path / "s.duckdb"
    sql = "SELECT label, host, source_format, writer, model_name, epoch_known, complete, options FROM run"
    assert query(store, sql) == [("PROF_1", "box", "npulog", "npu 1", "net", True, False, '{"level": 2}')]
    assert query(store, "SELECT start_ns, dur_ns FROM api") == [(epoch + 600, 100)]
    assert query(store, "SELECT start_ns, dur_ns FROM task") == [(epoch + 1100, 100)]
    assert query(store, "SELECT start_ns, end_ns FROM run") == [(epoch + 600, epoch + 1200)]
    assert query(store, "SELECT process_id, pid_text, name FROM process") == [(1, str(2**64 - 1), "python")]
    tracks = "SELECT kind, process_id, device_id, tid_text, stream_id, name, sort_index FROM track ORDER BY kind DESC"
    assert query(store, tracks) == [
        ("thread", 1, None, "1", None, "main", 4),
        ("stream", None, 0, None, 2, "compute", 2),
    ]
    assert query(store, "FROM op") == [
        (1, 0, 1, "conv1", "Conv2D", "recorded", "dynamic", "net", "net/conv1", "backward", 5, "1,3;4", "f32;f32",
         "NCHW;ND", "1,4", "f32", "ND", 12, 1, 2, 3, 4, None)
    ]  # fmt: skip
    assert query(store, "SELECT fusion_id, op_id, original_index, original_name, original_type FROM fusion") == [
        (5, 0, 1, "relu_0", "Relu")
    ]
    assert query(store, "SELECT * EXCLUDE (run_id, clock_error_ns) FROM device") == [
        (0, "NPU", "sim", 10**12, 2, 3, 10**8, 10**9, 8, 16, 2)
    ]
    pmu = "SELECT source_task_id, metric_group, aic_total_cycles, aic_mac_cycles, aiv_mte3_cycles FROM task_pmu"
    assert query(store, f"{pmu} JOIN task USING (run_id, id)") == [(1, "PipeUtilization", 77, 0, None)]
    assert query(store, "SELECT code, event_count FROM import_log ORDER BY 1") == [
        ("orphan_pmu", 1),
        ("out_of_range", 1),
    ]


def test_null_values_of_the_log_are_null_in_the_store(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    b.add("op", op_index=0).call(1, 1, 2, "").task(1, 10, 20)
    b.add("range", host_ns=1, span_id=1, event="begin", thread_id=1)
    b.add("range", host_ns=2, span_id=1, event="end", thread_id=1)
    b.add("fusion", fusion_id=0, op_index=0)
    b.add("device", 0, device_id=0)
    ingested(tmp_path / "s.duckdb", b.close())
    for table, columns in {
        "op": "name, op_type, scope_path, input_shapes, fusion_id, model_name",
        "api": "name, op_id, step_id, parent_id, args",
        "task": "op_id, step_id, execution_id, context_id, correlation_id, submit_ns, name, size_bytes, parent_id",
        "range": "trace_id, parent_span_id, step_id, name, category, args, parent_id",
        "fusion": "original_name, original_type",
        "device": "kind, name",
    }.items():
        found = query(tmp_path / "s.duckdb", f"SELECT {columns} FROM {table}")
        assert found == [(None,) * len(columns.split(","))], table
    assert query(tmp_path / "s.duckdb", "SELECT count(*) FROM import_log") == [(0,)]


def test_missing_texts_and_unknown_enum_values(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    writer = b.writer
    from traceconv.wire.log_writer import new_records

    api = new_records("api", 2)
    api["name"], api["host_ns"], api["correlation_id"], api["event"], api["level"] = 12345, [1, 5], 1, [0, 1], 200
    writer.append("api", api)
    tasks = new_records("task", 3)
    tasks["ticks"], tasks["task_id"], tasks["event"], tasks["task_type"] = [1, 2, 3], [1, 1, 2], [0, 1, 9], 77
    writer.append("task", tasks, 0)
    marks = new_records("step_mark", 1)
    marks["mark"] = 9
    writer.append("step_mark", marks, 0)
    runs = ingested(tmp_path / "s.duckdb", b.close())
    store = tmp_path / "s.duckdb"
    assert query(store, "SELECT name, level, dur_ns FROM api") == [(None, None, 4)]
    assert query(store, "SELECT task_type, core_type, kind, dur_ns, block_count FROM task") == [
        (None, None, None, 10, None)
    ]
    assert query(store, "SELECT code, sum(event_count) FROM import_log GROUP BY 1 ORDER BY 1") == [
        ("missing_text", 1),
        ("unknown_value", 4),
    ]
    assert runs[0].accounts["task"].lost == 1
    assert runs[0].accounts["step_mark"].lost == 1
    assert runs[0].lossy


def test_numbers_beyond_63_bits_are_null_and_reported(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    big = 2**63
    b.call(big + 5, 1, 2, "launch")
    b.task(1, 10, 20, correlation_id=big + 5, size_bytes=big)
    b.add("op", op_index=0, op_type="Add x9999999999", flops=big)
    b.add("device", 0, device_id=0, memory_bytes=big)
    b.add("memory", host_ns=1, block_id=big, size_bytes=1, used_bytes=big, event="alloc")
    ingested(tmp_path / "s.duckdb", b.close())
    store = tmp_path / "s.duckdb"
    assert query(store, "SELECT correlation_id, dur_ns FROM api") == [(None, 1)]
    # The flow is still bound: only the column is too small for the number.
    assert query(store, "SELECT correlation_id, size_bytes, submit_ns FROM task") == [(None, None, 1)]
    # Reports couldn't count executions times tasks in 64 bits.
    assert query(store, "SELECT flops, op_type, executions_per_task FROM op") == [(None, "Add x9999999999", None)]
    assert query(store, "SELECT memory_bytes FROM device") == [(None,)]
    assert query(store, "SELECT block_id FROM memory") == [(None,)]
    assert query(store, "SELECT count(*) FROM counter") == [(1,)]
    assert query(store, "SELECT code, event_count FROM import_log") == [("out_of_range", 7)]


def test_times_out_of_range_lose_only_their_records(tmp_path: Path) -> None:
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    b.call(1, -100, 2**63 - 1, "ends at the end of time").call(2, 200, 210, "good")
    b.task(1, 10, 2**64 - 1, "ends at the end of time").task(2, 30, 40, "good").task(3, 2**63, None, "starts there")
    b.add("counter", 0, ticks=2**64 - 1, name="c", value=1).add("counter", 0, ticks=5, name="c", value=2)
    b.add("step_mark", 0, ticks=2**64 - 1, step_id=1, mark="start")
    b.add("memory", host_ns=-(2**63), block_id=1, event="alloc").add("memory", host_ns=7, block_id=2, event="alloc")
    runs = ingested(tmp_path / "s.duckdb", b.close())
    store = tmp_path / "s.duckdb"
    assert query(store, "SELECT name, dur_ns FROM api ORDER BY start_ns") == [
        ("ends at the end of time", None),
        ("good", 10),
    ]
    assert ("good", 100) in query(store, "SELECT name, dur_ns FROM task")
    assert query(store, "SELECT value_int FROM counter JOIN track USING (run_id, track_id) WHERE name = 'c'") == [(2,)]
    assert query(store, "SELECT start_ns, end_ns FROM run") == [(-100, 2**63 - 1)]
    accounts = runs[0].accounts.by_record
    assert {name: account.lost for name, account in accounts.items() if account.lost} == {
        "task": 3, "counter": 1, "step_mark": 1, "memory": 1,
    }  # fmt: skip
    # Both records of the call are stored; only its duration exceeds 64 bits.
    assert query(store, "SELECT event_count FROM import_log WHERE code = 'bad_duration'") == [(1,)]
    assert query(store, "SELECT clock_error_ns FROM device") == [(12,)]


def test_a_device_without_sync_records_starts_with_the_host(tmp_path: Path) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1")
    b.add("capture", host_ns=0, epoch_ns=10**18)
    b.call(1, 500, 600, "x").task(1, 70, 80)
    ingested(tmp_path / "s.duckdb", b.close())
    store = tmp_path / "s.duckdb"
    assert query(store, "SELECT start_ns, dur_ns FROM task") == [(10**18 + 500, 100)]
    assert query(store, "SELECT clock_error_ns FROM device") == [(None,)]
    assert query(store, "SELECT severity, code FROM import_log") == [("error", "no_clock_sync")]


def test_options_that_are_not_a_json_object_are_kept_as_text(tmp_path: Path) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1").call(1, 1, 2)
    b.add("capture", options="--level 2")
    ingested(tmp_path / "s.duckdb", b.close())
    assert query(tmp_path / "s.duckdb", "SELECT options FROM run") == [('{"text": "--level 2"}',)]


#: Fields that are not in the column of their name, by record and table.
_ELSEWHERE = {
    ("model", "op"): {"name", "model_id"},  # op.model_name; of each op
    ("thread", "process"): {"process_id", "sort_index"},  # pid_text; of threads
    ("thread", "track"): {"process_id"},  # a number of the store
}
#: Which rows a record becomes, where several record types fill a table.
_ROWS_OF = {
    "range": "category <> 'stream'",
    "stream_range": "category = 'stream'",
    "thread": "tid_text IS NOT NULL",
    "stream": "kind = 'stream'",
    **{kind: f"metric_group = '{group}'" for kind, group in METRIC_GROUPS.items()},
}
_ON_HOST = {"api", "capture", "fusion", "memory", "model", "op", "range", "thread"}


def value_of(field: Field) -> int | str:
    """A value other than NULL. Fields of one name have one value, so that records refer to each other."""
    number = sorted({one.name for schema in records().values() for one in schema.fields}).index(field.name) + 2
    if field.name in ("options", "args"):
        return json.dumps({"a": number})
    if field.name == "device_id":
        return 0
    if field.name in ("task_type", "mark", "hf32_eligible"):
        return 1
    if field.values is not None:
        return next(value for value in field.values if value != field.null)
    return f"text {number}" if field.type == "str" else number


def test_every_field_reaches_the_column_of_its_name(tmp_path: Path) -> None:
    """A new field of a record and a table can't be forgotten in between, which would make it NULL."""
    b = synced(CaptureBuilder(tmp_path / "PROF_1"))
    kinds = {name: schema for name, schema in records().items() if name not in ("dictionary", "sync", "clock_stop")}
    for kind, schema in kinds.items():
        values = {field.name: value_of(field) for field in schema.fields if not field.name.startswith("pad")}
        for event in (0, 1) if "event" in values else (None,):
            b.add(kind, None if kind in _ON_HOST else 0, **values if event is None else {**values, "event": event})
    ingest([b.close()], tmp_path / "s.duckdb")
    missing = []
    with open_store(tmp_path / "s.duckdb") as connection:
        for kind, schema in kinds.items():
            becomes = tables().keys() & set(re.findall("[a-z_]+", schema.becomes))
            assert becomes
            for table in becomes:
                shared = {column.name for column in tables()[table].columns} & {field.name for field in schema.fields}
                for name in shared - _ELSEWHERE.get((kind, table), set()):
                    field = schema.field(name)
                    value = value_of(field) if field.values is None else field.values[int(value_of(field))]
                    sql = f'SELECT DISTINCT "{name}" FROM "{table}" WHERE {_ROWS_OF.get(kind, "true")}'
                    if not {(value,), (str(value),)} & set(connection.execute(sql).fetchall()):
                        missing.append(f"field {name} of record {kind} is not in {table}.{name}")
    assert not missing
