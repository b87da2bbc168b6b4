"""Profiles of JAX in protobuf: rows, fields in any order, damage, and which file of a recording is read."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import xplane_builder as xb
import zstandard
from ingest_checks import taken
from perfetto_builder import message
from stores import query

from traceconv import native
from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.events.trace import TraceBatch
from traceconv.formats.format import ReadRequest
from traceconv.formats.registry import choose_reader
from traceconv.formats.xplane import planes
from traceconv.formats.xplane.reader import XplaneReader
from traceconv.normalize.trace.rule_files import parse_rules
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.inspect import inspect_trace
from traceconv.pipeline.trace_file import TraceOptions
from traceconv.provenance.find import why
from traceconv.store.database import open_store

SMALL = xb.small_space()
ROWS = """SELECT p.name, t.tid_text, t.name, s.name, s.start_ns, s.dur_ns FROM slice s
JOIN track t USING (run_id, track_id) JOIN process p USING (run_id, process_id) ORDER BY ALL"""


def read(path: Path, data: bytes) -> tuple[list[TraceBatch], ReadRequest]:
    path.write_bytes(data)
    request = ReadRequest(path)
    return list(XplaneReader(request).batches()), request


def events(batches: list[TraceBatch]) -> list[tuple[Any, ...]]:
    """Name, start, duration and args of all events."""
    found = []
    for batch in batches:
        columns = batch.columns
        args = columns.raw["args"].to_pylist() if "args" in columns.raw else [b""] * columns.count
        times = (columns.raw[key].to_pylist() for key in ("ts", "dur"))
        found += list(zip(columns.label("name"), *times, map(bytes.decode, args), strict=True))
    return found


def of_one_line(*found: bytes, kinds: tuple[str, ...] = ("f",), **options: Any) -> bytes:
    return xb.space(xb.plane("/host:CPU", xb.line(1, "t", 0, *found), events=xb.names(*kinds), **options))


def test_a_profile_has_all_events_whatever_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(of_one_line(*(xb.event(1, 1_000_000 * n, 1_000) for n in range(4))))
    rules = (
        parse_rules("title = 'JSON'\npriority = 99\nevent_limit = 2\n[detect]\nprocesses = ['/host:CPU']", "x.toml"),
    )
    [run] = ingest([path], tmp_path / "a.duckdb", trace_options=TraceOptions(rules=rules))
    assert not run.log
    assert query(tmp_path / "a.duckdb", "SELECT writer FROM run") == [("JSON",)]
    assert not inspect_trace(path, "xplane", rules=rules).log


def test_rows(tmp_path: Path) -> None:
    path, store = tmp_path / "a.xplane.pb", tmp_path / "a.duckdb"
    path.write_bytes(SMALL)
    assert choose_reader(path) == "xplane"
    [run] = ingest([path], store)
    assert {entry.code.text for entry in run.log} == {"fine_time", "profiler_warning"}
    messages = [entry.message for entry in run.log if entry.code is Code.PROFILER_WARNING]
    assert messages == ["error of the profiler: an error", "warning of the profiler: a warning"]
    thread = ("/host:CPU", str(1 << 40), "python")
    assert query(store, ROWS) == [
        ("/device:GPU:0", "7", "Stream #7(Compute)", "MemcpyH2D", 3501, 1000),
        ("/device:GPU:0", "7", "Stream #7(Compute)", "gemm", 1500, 2001),
        ("/device:GPU:0", "8", "XLA Ops", "fusion.1", 1500, 3000),
        (*thread, "$f.py:1 g", 1500, 0),
        (*thread, "cuLaunchKernel", 1000, 100),
        (*thread, "cuLaunchKernel", 1100, 200),
        (*thread, "train", 100, 9000),
    ]
    tasks = "SELECT t.name, stream_id, t.correlation_id, submit_ns, a.start_ns, t.args FROM task t JOIN api a "
    assert query(store, tasks + "ON a.id = t.api_id ORDER BY 1") == [
        ("MemcpyH2D", 7, 42, 1100, 1100, '{"correlation_id":42,"flops":18446744073709551615}'),
        ("gemm", 7, 41, 1000, 1000, '{"correlation_id":41,"tf_op":"a name"}'),
    ]
    assert query(store, "SELECT name, args FROM range ORDER BY name") == [
        ("$f.py:1 g", '{"number":"nan","text":-3}'),
        ("fusion.1", '{"long_name":"%fusion.1 = f32[]","flops":2.5}'),
        ("train", '{"step_num":3,"_src":"é\\"\\n"}'),
    ]
    assert query(store, "SELECT step_id, start_ns, end_ns FROM step") == [(3, 100, 9100)]
    assert query(store, "SELECT device_id, kind, name FROM device") == [(0, "GPU", "NVIDIA H100 PCIe")]
    [(host, epoch_ns, options)] = query(store, "SELECT host, epoch_offset_ns, options FROM run")
    assert (host, epoch_ns) == ("h1", 1_790_000_000_000_000_000)
    about = json.loads(options)["xplane"]
    assert (about["errors"], about["warnings"]) == (["an error"], ["a warning"])
    with open_store(store) as connection:
        for table, name in (("task", "gemm"), ("api", "cuLaunchKernel"), ("range", "train")):
            [(row_id, start_ns), *_] = query(
                store, f"SELECT id, start_ns FROM {table} WHERE name = '{name}' ORDER BY 1"
            )
            [piece] = why(connection, store, table, str(row_id)).evidence
            assert piece.byte_offset is not None
            assert SMALL[piece.byte_offset :][: piece.byte_count] == piece.data
            base_ns = 1000 if table == "task" else 0
            assert round(Decimal(piece.fields["offset_ps"]) / 1000) + base_ns == start_ns


def test_streams_of_a_gpu_also_have_events_that_are_not_kernels(tmp_path: Path) -> None:
    """CUPTI's records of allocations, unified memory and graphs, as XLA's writer puts them on lines of streams."""
    correlation = xb.stat(1, xb.UNSIGNED, 5)
    residency = xb.stat(2, xb.TEXT, "kind:device num_bytes:64 addr:0x0")
    gpu = xb.plane(
        "/device:GPU:0",
        xb.line(0, "Stream #0(MemoryResidency)", 0, xb.event(1, 0, 90_000, residency)),
        xb.line(9, "Stream #9(Compute,CudaGraph)", 0, xb.event(2, 30_000, 2_000, correlation), xb.event(3, 0, 7_000)),
        xb.line(1 << 28 | 1, f"Stream #{1 << 28 | 1}(UnifiedMemory)", 0, xb.event(4, 2_000, 3_000)),
        xb.line(1 << 28 | 3, f"Stream #{1 << 28 | 3}(UnifiedMemory)", 0, xb.event(5, 2_000, 1_000)),
        events=xb.names("Memory Device", "CudaGraphExec:5", "gemm", "UM_BYTES_TRANSFER_HTOD", "UM_CPU_PAGE_FAULT"),
        stats=xb.names("correlation_id", "MemoryResidency_details"),
    )
    host = xb.plane(
        "/host:CPU",
        xb.line(1, "t", 0, xb.event(1, 1_000, 1_000, correlation)),
        events=xb.names("cuGraphLaunch (CudaGraph:3)"),
        stats=xb.names("correlation_id"),
    )
    _, store = taken(xb.space(gpu, host), tmp_path, "a.pb")
    tasks = "SELECT t.name, t.kind, task_type, stream_id, t.dur_ns, t.op_id IS NOT NULL, a.name FROM task t "
    assert query(store, tasks + "LEFT JOIN api a ON a.id = api_id ORDER BY 1") == [
        ("CudaGraphExec:5", "compute", "GRAPH", 9, 2, False, "cuGraphLaunch"),
        ("UM_BYTES_TRANSFER_HTOD", "copy", "MEMCPY", None, 3, False, None),
        ("gemm", "compute", "KERNEL", 9, 7, True, None),
    ]
    assert query(store, "SELECT kind, name, dur_ns FROM range ORDER BY name") == [
        ("annotation", "Memory Device", 90),
        ("annotation", "UM_CPU_PAGE_FAULT", 1),
    ]


def test_operations_of_a_tpu(tmp_path: Path) -> None:
    """Loops contain other operations; collectives run next to them and are no further ops."""
    ops = {
        "while.3": ("while", 0, 90), "fusion.1": ("convolution fusion", 0, 30), "copy-done.2": ("copy-done", 30, 10),
        "copy.5": ("copy", 40, 5), "all-gather-done.1": ("async-done", 60, 10),
        "fusion.2": ("all-reduce fusion", 70, 20),
    }  # fmt: skip
    meanwhile = {
        "copy-start.2": ("copy-start", 5, 30), "all-gather-start.1": ("async-start", 20, 45),
        "call-start.7": ("async-start", 0, 90),
    }  # fmt: skip
    kinds = {**ops, **meanwhile, "7": ("", 0, 95), "jit_f(1)": ("", 0, 95), "gather.1": ("gather", 92, 6)}
    number = {name: place for place, name in enumerate(kinds, 1)}
    names = [
        xb.named(number[name], f"%{name} = f32[]", (4, name), (5, xb.stat(1, xb.TEXT, kinds[name][0]))) for name in ops
    ]
    names += [
        xb.named(number[name], name, (5, xb.stat(1, xb.TEXT, kinds[name][0]))) for name in kinds if name not in ops
    ]

    def line(id: int, title: str, *found: str) -> bytes:
        return xb.line(id, title, 0, *(xb.event(number[one], *(1_000 * ns for ns in kinds[one][1:])) for one in found))

    lines = line(1, "Steps", "7"), line(2, "XLA Modules", "jit_f(1)"), line(3, "XLA Ops", *ops)
    more: dict[str, Any] = {"events": names, "stats": xb.names("hlo_category")}
    tpu = xb.plane("/device:TPU:2", *lines, line(4, "Async XLA Ops", *meanwhile), **more)
    sparse = xb.plane("/device:TPU:2 SparseCore 1", line(1, "Sparse Core Ops", "gather.1"), **more)
    _, store = taken(xb.space(tpu, sparse), tmp_path, "a.pb")
    tasks = "SELECT t.name, kind, op_type, t.core_type, stream_id, dur_ns, step_id FROM task t "
    assert query(store, tasks + "LEFT JOIN op o USING (run_id, op_id) ORDER BY start_ns, t.name") == [
        ("fusion.1", "compute", "convolution fusion", "TensorCore", 0, 30, 7),
        ("all-gather-start.1", "collective", None, None, None, 45, 7),
        ("copy-done.2", "copy", "copy-done", "TensorCore", 0, 10, 7),
        ("copy.5", "compute", "copy", "TensorCore", 0, 5, 7),
        ("all-gather-done.1", "collective", "async-done", "TensorCore", 0, 10, 7),
        ("fusion.2", "collective", "all-reduce fusion", "TensorCore", 0, 20, 7),
        ("gather.1", "compute", "gather", "SparseCore", None, 6, 7),
    ]
    columns = "compute_ns, exposed_collective_ns, exposed_copy_ns, idle_ns, overlapped_collective_ns"
    assert query(store, f"SELECT device_id, {columns} FROM breakdown") == [(2, 41, 55, 0, 2, 15)]
    assert query(store, "SELECT sum(total_ns) FROM op_statistic") == [(81,)]
    assert query(store, "SELECT name, kind FROM range ORDER BY name") == [
        ("7", "summary"), ("call-start.7", "summary"), ("copy-start.2", "summary"), ("jit_f(1)", "summary"),
        ("while.3", "annotation"),
    ]  # fmt: skip
    assert query(store, "SELECT name, place FROM range_statistic") == [("while.3", "device")]
    assert query(store, "SELECT kind FROM device") == [("TPU",)]
    assert query(store, "SELECT device_id, step_id, start_ns, end_ns FROM step") == [(2, 7, 0, 95)]


def test_counters(tmp_path: Path) -> None:
    """Samples of clocks, power and performance counters, which are not slices of zero length."""
    samples = [xb.event(1, 1_000 * n, 0, xb.stat(1, xb.DOUBLE, n + 0.5)) for n in range(2)]
    gpu = xb.plane("/device:GPU:1", xb.line(1, "_counters_", 5, *samples), events=xb.names("W"), stats=xb.names("W"))
    run, store = taken(xb.space(gpu), tmp_path, "a.pb")
    assert run.accounts["C events"].records == 2
    samples_of = "SELECT p.name, series, ts_ns, value, track_id FROM counter JOIN track USING (run_id, track_id) "
    rows = query(store, samples_of + "JOIN process p USING (run_id, process_id) ORDER BY ts_ns")
    assert [row[:-1] for row in rows] == [("/device:GPU:1", "W", 5, 0.5), ("/device:GPU:1", "W", 6, 1.5)]
    assert query(store, "FROM range") == []
    with open_store(store) as connection:
        [piece] = why(connection, store, "counter", f"{rows[1][-1]}@6").evidence
    assert piece.data.endswith(samples[1])


def test_processes_that_the_recording_one_registered(tmp_path: Path) -> None:
    """`jax.profiler.register_subprocess`: their planes have their PIDs in their names."""
    names, stats = xb.names("train", "$f.py:1 g", "dot.1", "next"), xb.names("step_num", "hlo_op")
    found = [xb.event(2, 0, 5_000), xb.event(3, 1_000, 1_000, xb.stat(2, xb.TEXT, "dot.1"))]
    planes = [
        xb.plane(
            plane,
            xb.line(1, "t", 0, *found, xb.event(kind, 6_000, 9_000, xb.stat(1, 4, step))),
            events=names,
            stats=stats,
        )
        for plane, kind, step in (("/host:CPU [1195]", 4, 70), ("/host:CPU", 1, 3))
    ]
    _, store = taken(xb.space(*planes), tmp_path, "a.pb")
    kinds = "SELECT p.name, r.name, r.kind FROM range r JOIN track USING (run_id, track_id) "
    of_one = [("$f.py:1 g", "frame"), ("dot.1", "host_op")]
    assert query(store, kinds + "JOIN process p USING (run_id, process_id) ORDER BY ALL") == [
        *(("/host:CPU", *one) for one in (*of_one, ("train", "annotation"))),
        *(("/host:CPU [1195]", *one) for one in (of_one[0], of_one[1], ("next", "annotation"))),
    ]
    assert query(store, "SELECT step_id FROM step ORDER BY 1") == [(3,), (70,)]


def test_packed_files_and_python_give_the_same(tmp_path: Path) -> None:
    expected, _ = read(tmp_path / "a.pb", SMALL)
    assert len(events(expected)) == 7
    for data in (gzip.compress(SMALL), zstandard.compress(SMALL)):
        assert events(read(tmp_path / "a.pb", data)[0]) == events(expected)
    with mock.patch.object(native, "AVAILABLE", False):
        assert events(read(tmp_path / "a.pb", SMALL)[0]) == events(expected)


def test_fields_may_be_in_any_order_and_repeated(tmp_path: Path) -> None:
    """Names first, the name and start of the line last, a plane and a line in several parts."""
    kinds = [(4, entry) for entry in xb.names("f", "g")]
    parts = [
        message((5, xb.named(1, "k")), *kinds, (3, message((4, xb.event(1, 1000, 2000, xb.stat(1, 4, -1))), (1, 5)))),
        message((3, message((4, xb.event(2, 3000, 4000)), (3, 10), (99, "new"), (11, "shown"), (2, "t"), (10, 6)))),
    ]
    data = message((1, parts[0] + message((2, "/host:CPU"))), (1, message((2, "/host:CPU")) + parts[1] + parts[0]))
    batches, request = read(tmp_path / "a.pb", data)
    assert events(batches) == [("f", 1, 2, '{"k":-1}'), ("g", 13, 4, ""), ("f", 1, 2, '{"k":-1}')]
    assert {pid for batch in batches for pid in batch.columns.label("pid")} == {701}
    assert [tid for batch in batches for tid in batch.columns.label("tid")] == [5, 6, 5]
    assert [(name.tid, name.name) for name in batches[0].names] == [(None, "/host:CPU"), (5, None), (6, "shown")]
    assert not request.log.lossy


def test_slices_stay_nested_when_picoseconds_are_rounded(tmp_path: Path) -> None:
    """Half a nanosecond is rounded to the even one: of both ends, not of durations."""
    found = [xb.event(1, 500, 3000), xb.event(1, 1500, 2000), xb.event(1, 2501, 999), xb.event(1, -1500, 1)]
    batches, _ = read(tmp_path / "a.pb", of_one_line(*found))
    assert [event[1:3] for event in events(batches)] == [(0, 4), (2, 2), (3, 1), (-2, 1)]


def test_strange_values(tmp_path: Path) -> None:
    lines = [
        xb.line(1, "a", 2**63 - 1, xb.event(1, 5000, 1000), xb.event(1, -5000, 1000), xb.event(1, 0, 2**63 - 1)),
        xb.line(2, "b", 0, xb.event(1, 0, -7000), xb.event(9, 0, 1000, xb.stat(8, 4, 1)), message((1, 1), (5, 3))),
    ]
    run, store = taken(xb.space(xb.plane("/host:CPU", *lines, events=xb.names("f", "g"))), tmp_path, "a.pb")
    assert run.accounts["X events"].lost == 2
    log = {(entry.code.text, entry.event_count) for entry in run.log}
    assert {("no_time", 1), ("bad_duration", 1), ("backward", 1), ("missing_text", 2)} <= log
    assert query(store, "SELECT name, start_ns, dur_ns, args::VARCHAR FROM range ORDER BY start_ns, name") == [
        ("f", 0, None, '{"trace_event":{"dur":-7}}'),
        (None, 0, 1, '{"metadata_id":9,"unknown":1}'),
        ("f", 2**63 - 6, 1, None),
        ("f", 2**63 - 1, None, '{"trace_event":{"ph":"X"}}'),
    ]


def test_texts_that_are_not_utf_8(tmp_path: Path) -> None:
    found = [xb.event(1, 0, 1000, xb.stat(1, xb.TEXT, text)) for text in (b"\xff", b"\xff", "\ufffd")]
    batches, request = read(tmp_path / "a.pb", of_one_line(*found, stats=xb.names("k")))
    assert {event[3] for event in events(batches)} == {'{"k":"\ufffd"}'}
    assert [(entry.code.text, entry.event_count) for entry in request.log] == [("bad_bytes", 1)]


def test_every_event_before_the_end_of_a_truncated_file_is_read(tmp_path: Path) -> None:
    whole, _ = read(tmp_path / "a.pb", SMALL)
    ends = [batch.byte_offset + batch.byte_count for batch in whole if batch.byte_offset and batch.byte_count]
    counts = set()
    for size in range(1, len(SMALL), 3):
        batches, request = read(tmp_path / "a.pb", SMALL[:size])
        count = len(events(batches))
        counts.add(count)
        assert [event[1:3] for event in events(batches)] == [event[1:3] for event in events(whole)][:count]
        assert count >= sum(batch.columns.count for batch, end in zip(whole, ends, strict=True) if end <= size)
        codes = [entry.code.text for entry in request.log]
        assert ("cut_event" in codes) == (len(request.accounts.by_record) > 0), size
    assert counts == set(range(8))


def test_damage_costs_the_events_that_it_touches(tmp_path: Path) -> None:
    good = [xb.event(1, number * 1000, 500, xb.stat(1, 4, number)) for number in range(40)]
    data = of_one_line(*good, stats=xb.names("n"))
    at = data.index(good[20])
    for place, byte in ((at - 1, b"\xff"), (at, b"\x0f"), (at - 2, b"\x00"), (at - 1, b"\x03")):
        batches, request = read(tmp_path / "a.pb", data[:place] + byte + data[place + 1 :])
        left = [event[1] for event in events(batches)]
        assert set(range(40)) - set(left) <= {19, 20, 21}, (place, byte)
        assert len(left) < 40 and left == sorted(set(left))
        assert request.log.lossy
        assert sum(account.lost for account in request.accounts.by_record.values()) >= 1
    plane = xb.plane("/host:CPU", b"\x22\xff\xff\xff\xff\x0f" + bytes(30), xb.line(1, "t", 0, good[0]))
    assert len(events(read(tmp_path / "a.pb", xb.space(plane))[0])) == 1


def test_sizes_that_are_too_large_cost_no_memory(tmp_path: Path) -> None:
    for size in (b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01", b"\xff" * 12):
        data = b"\x0a\xff\xff\xff\xff\x7f\x12\x01p" + b"\x1a\xff\xff\xff\x7f" + b"\x22" + size + bytes(9)
        batches, request = read(tmp_path / "a.pb", data)
        assert not events(batches) and request.log.lossy


def test_statistics_of_kinds_are_bounded(tmp_path: Path) -> None:
    """Many events repeat large statistics of their kind: in batches of bounded size."""
    entry = xb.named(1, "f", *((5, xb.stat(1, 5, "x" * 60_000)) for _ in range(1)))
    data = xb.space(xb.plane("p", xb.line(1, "t", 0, *[xb.event(1, 0, 1)] * 2000), events=[entry], stats=xb.names("k")))
    batches, _ = read(tmp_path / "a.pb", data)
    assert [batch.columns.count for batch in batches] == [1118, 882]
    assert sum(batch.columns.count for batch in batches) == 2000


def test_a_recording_is_read_from_its_xspace(tmp_path: Path) -> None:
    """`jax.profiler.trace(create_perfetto_trace=True)` writes the events three times."""
    folder = tmp_path / "plugins" / "profile" / "1"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(SMALL)
    text = b'{"traceEvents":[{"ph":"X","name":"f","pid":1,"tid":1,"ts":1,"dur":2}]}'
    for name in ("host.trace.json.gz", "perfetto_trace.json.gz", "other.trace.json.gz"):
        (folder / name).write_bytes(gzip.compress(text))
    runs = ingest([tmp_path / "plugins"], tmp_path / "a.duckdb")
    assert [Path(run.source_path).name for run in runs] == ["host.xplane.pb", "other.trace.json.gz"]
    # Named, or without the other, a file is read.
    assert len(ingest([folder / "host.trace.json.gz"], tmp_path / "b.duckdb")) == 1
    (folder / "host.xplane.pb").unlink()
    (folder / "other.trace.json.gz").unlink()
    runs = ingest([tmp_path / "plugins"], tmp_path / "c.duckdb")
    assert [Path(run.source_path).name for run in runs] == ["host.trace.json.gz"]


def test_a_space_without_events(tmp_path: Path) -> None:
    run, store = taken(xb.space(xb.plane("/host:CPU"), xb.plane("/host:metadata")), tmp_path, "a.pb")
    assert run.record_count == 0
    assert query(store, "FROM process") == []


def test_statistics_of_kinds_are_joined_once_unless_an_event_replaces_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event of a kind with many statistics has all of them; one that an event has itself comes last."""
    names = [xb.named(number, f"s{number}") for number in range(1, 501)]
    entry = xb.named(1, "f", *((5, xb.stat(number, 4, number)) for number in range(1, 501)))
    lines = xb.line(1, "t", 0, *[xb.event(1, 0, 1)] * 99, xb.event(1, 0, 1, xb.stat(7, 4, 1000)))
    monkeypatch.setattr(planes, "_MOST_REPLACED", 500)
    batches, _ = read(tmp_path / "a.pb", xb.space(xb.plane("p", lines, events=[entry], stats=names)))
    args = [json.loads(text) for batch in batches for text in batch.columns.raw["args"].to_pylist()]
    own = {f"s{number}": number for number in range(1, 501)}
    assert args == [*[own] * 99, {**own, "s7": 1000}]
    assert list(args[-1])[-1] == "s7"
    monkeypatch.setattr(planes, "_MOST_REPLACED", 499)
    with pytest.raises(InputError, match="replace one of more than 499 statistics"):
        read(tmp_path / "a.pb", xb.space(xb.plane("p", lines, events=[entry], stats=names)))
