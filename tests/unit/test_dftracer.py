"""DFTracer from version 2 on: kinds of events are numbers, and a metadata event specifies the unit of times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import taken
from stores import query

from traceconv.pipeline.result import IngestedRun

HOST = "6882804a826580cd"


def line(**keys: Any) -> str:
    return json.dumps(keys, separators=(",", ":"))


def metadata(kind: str, name: str, value: str) -> str:
    args = {"hhash": HOST, "name": name, "value": value}
    return line(name=kind, cat="dftracer", type=1, pid=7, tid=7, ph=4, args=args)


def stored(lines: list[str], folder: Path) -> tuple[IngestedRun, Path]:
    return taken("\n".join(lines) + "\n", folder, "app.pfw")


def test_kinds_are_numbers(tmp_path: Path) -> None:
    lines = [
        metadata("HH", "node1", HOST),
        metadata("CM", "time_metric", "US"),
        line(id=2, name="open64", cat="POSIX", type=3, pid=7, tid=7, ts=10, dur=5, ph=1, args={"fhash": "ab"}),
        line(id=3, name="epoch", cat="APP", type=6, pid=7, tid=7, ts=9, dur=20, ph=1),
        line(name="cpu", cat="sys", type=7, pid=7, tid=7, ts=11, ph=2, args={"user_pct": 12.5}),
        line(name="write", cat="POSIX", type=3, pid=7, tid=7, ts=12, ph=3, args={"dft_cnt": 39, "dur_sum": 729}),
    ]
    run, store = stored(lines, tmp_path)
    assert not run.log
    assert run.host == "node1"
    assert {title: account.records for title, account in run.accounts.by_record.items()} == {
        "A events": 1,
        "C events": 1,
        "M events": 2,
        "X events": 2,
    }
    assert query(store, "SELECT name, level, start_ns, dur_ns FROM api") == [("open64", "posix", 10_000, 5000)]
    [(name, start_ns, dur_ns, args)] = query(store, "SELECT name, start_ns, dur_ns, args FROM range")
    assert (name, start_ns, dur_ns) == ("epoch", 9000, 20_000)
    assert json.loads(args) == {"trace_event": {"type": 6, "id": 3}}
    assert query(store, "SELECT series, ts_ns, value FROM counter") == [("user_pct", 11_000, 12.5)]
    [(ts_ns, args)] = query(store, "SELECT ts_ns, args FROM marker WHERE name = 'write'")
    assert ts_ns == 12_000
    assert json.loads(args) == {"dft_cnt": 39, "dur_sum": 729, "trace_event": {"ph": "A", "type": 3}}


@pytest.mark.parametrize(("unit", "factor"), [("NS", 1), ("US", 1000), ("MS", 1_000_000), ("SEC", 1_000_000_000)])
def test_the_unit_of_times(unit: str, factor: int, tmp_path: Path) -> None:
    start = 1_795_287_003_327_305_123 // factor
    lines = [
        metadata("CM", "time_metric", unit),
        line(id=1, name="read", cat="POSIX", pid=7, tid=7, ts=start, dur=7, ph=1),
        line(id=2, name="read", cat="POSIX", pid=7, tid=7, ts=str(start), dur="8", ph="X"),
        f'{{"id":3,"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":{start}.0,"dur":9e0,"ph":1}}',
    ]
    run, store = stored(lines, tmp_path)
    assert not run.log
    found = query(store, "SELECT start_ns, dur_ns FROM api ORDER BY id")
    assert found == [(start * factor, dur * factor) for dur in (7, 8, 9)]


@pytest.mark.parametrize(("unit", "factor"), [("NS", 1), ("US", 1000), ("MS", 1_000_000), ("SEC", 1_000_000_000)])
def test_the_unit_of_newest_versions(unit: str, factor: int, tmp_path: Path) -> None:
    """Their only record of the unit is in the last event. Times are since 1970."""
    start = 1_795_287_003_327_305_123 // factor
    lines = [
        metadata("HH", "node1", HOST),
        line(id=1, name="read", cat="POSIX", pid=7, tid=7, ts=start, dur=7, ph=1),
        line(id=2, name="end", cat="dftracer", pid=7, tid=7, ts=start, ph=1, args={"cfg": {"time_metric": unit}}),
    ]
    _, store = stored(lines, tmp_path)
    assert query(store, "SELECT start_ns, dur_ns FROM api") == [(start * factor, 7 * factor)]


def test_counters_repeat_the_host(tmp_path: Path) -> None:
    """Its hash may look like a number."""
    lines = [
        line(name="cpu", cat="sys", pid=7, tid=7, ts=ts, ph=2, args={"hhash": host, "user_pct": ts})
        for ts, host in ((1, HOST), (2, "6882804826580123"))
    ]
    run, store = stored([metadata("HH", "node1", HOST), *lines], tmp_path)
    assert not run.log
    assert query(store, "SELECT series, value FROM counter ORDER BY ts_ns") == [("user_pct", 1), ("user_pct", 2)]


def gpu_event(name: str, category: str, start: int, dur: int, /, **args: Any) -> str:
    """Make an event as CUPTI's buffer or rocprofiler's is emptied: all on the thread that does so."""
    args = {"hhash": HOST, **args}
    return line(name=name, cat=category, type=5, pid=7, tid=9, ts=start, dur=dur, ph=1, args=args)


def test_work_on_cuda_devices(tmp_path: Path) -> None:
    def device(correlation: int, stream: int = 7, **args: int) -> dict[str, int]:
        return {"device_id": 1, "context_id": 3, "stream_id": stream, "correlation_id": correlation, **args}

    lines = [
        metadata("HH", "node1", HOST),
        gpu_event("_Z4gemmPf", "CUDA_KERNEL", 12, 30, **device(1)),
        gpu_event("OverheadBufferFlush", "CUDA_OVERHEAD", 95, 50, overhead_kind=2),
        gpu_event("cudaLaunchKernel_v7000", "CUDA_RUNTIME_API", 10, 4, correlation_id=1),
        gpu_event("cuMemcpyHtoDAsync_v2", "CUDA_DRIVER_API", 15, 3, correlation_id=2),
        gpu_event("MemcpyHtoD", "CUDA_MEMCPY", 17, 33, **device(2, stream=8, bytes=4096)),
        gpu_event("Memset", "CUDA_MEMSET", 50, 5, **device(3, bytes=64)),
        gpu_event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "CUDA_KERNEL", 60, 20, **device(4)),
        gpu_event("GraphTrace", "CUDA_GRAPH", 80, 10, **device(5, graph_id=3)),
        gpu_event("StreamSynchronize", "CUDA_SYNC", 29, 60, context_id=3, stream_id=7, correlation_id=6),
        gpu_event("ContextSynchronize", "CUDA_SYNC", 90, 5, context_id=3, stream_id=2**32 - 1, correlation_id=7),
    ]
    _, store = stored(lines, tmp_path)
    sql = """SELECT t.name, t.kind, t.device_id, t.stream_id, t.size_bytes, a.name
             FROM task t LEFT JOIN api a ON a.id = t.api_id ORDER BY t.correlation_id"""
    assert query(store, sql) == [
        ("_Z4gemmPf", "compute", 1, 7, None, "cudaLaunchKernel"),
        ("MemcpyHtoD", "copy", 1, 8, 4096, "cuMemcpyHtoDAsync_v2"),
        ("Memset", "copy", 1, 7, 64, None),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective", 1, 7, None, None),
        ("GraphTrace", "compute", 1, 7, None, None),
        ("StreamSynchronize", "sync", None, 7, None, None),
        ("ContextSynchronize", "sync", None, None, None, None),
    ]
    assert query(store, "SELECT name, place FROM range_statistic") == [("OverheadBufferFlush", "host")]


def test_work_on_hip_devices(tmp_path: Path) -> None:
    """Neither the device is recorded, nor which call launched a kernel: the ID is what the application sets."""
    lines = [
        metadata("HH", "node1", HOST),
        gpu_event("12_ZN2at6native1", "KERNEL_DISPATCH", 7, 40, correlation_id=0),
        gpu_event("SCRATCH_MEMORY_ALLOC", "SCRATCH_MEMORY", 60, 9, extern_cid=0),
        gpu_event("hipLaunchKernel", "HIP_RUNTIME_API", 5, 4, extern_cid=0),
        gpu_event("13ncclDevKernel_G", "KERNEL_DISPATCH", 47, 3, correlation_id=0),
        gpu_event("MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY", 50, 9, extern_cid=0),
    ]
    _, store = stored(lines, tmp_path)
    assert query(store, "SELECT kind, dur_ns, correlation_id FROM task ORDER BY start_ns") == [
        ("compute", 40_000, None),
        ("collective", 3000, None),
        ("copy", 9000, None),
    ]
    assert query(store, "SELECT name FROM api") == [("hipLaunchKernel",)]
    assert query(store, "SELECT name, place FROM range_statistic") == [("SCRATCH_MEMORY_ALLOC", "host")]


def test_the_unit_needs_a_known_writer(tmp_path: Path) -> None:
    """Without a record of DFTracer that says so, times are microseconds."""
    other = line(name="CM", ph="M", pid=7, tid=7, args={"name": "something", "value": "NS"})
    _, store = stored([other, line(name="a", ph="X", pid=7, tid=7, ts=1, dur=2)], tmp_path)
    assert query(store, "SELECT start_ns, dur_ns FROM range") == [(1000, 2000)]


def test_events_with_an_unknown_kind_are_lost(tmp_path: Path) -> None:
    lines = [line(name="a", ph=ph, pid=7, tid=7, ts=1, dur=2) for ph in (1, 0, 5, -1, 1.0)]
    run, store = stored(lines, tmp_path)
    assert query(store, "SELECT count(*) FROM range") == [(1,)]
    assert {entry.code.text for entry in run.log} == {"unknown_phase"}
