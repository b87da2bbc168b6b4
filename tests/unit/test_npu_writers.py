"""Rules for traces of accelerators: what the tools of Cambricon, MetaX, Qualcomm, Rebellions and FuriosaAI write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest_checks import rows_of, taken, taken_from
from perfetto_builder import begin, end, process, thread
from stores import query

#: Events of a real file of cnperf 5.9.1 (MLU370-S4): two calls, one inside the other, that launch a kernel, and a copy.
CNPERF = """{"metadata": {"systemInformation": {"07#cnperf version": "5.9.1 db5b667"}},
"traceEvents":[ {},
{"name":"start_tracing","ph":"i","cat":"mark_point","s":"g","ts":0.0},
{"cat":"","ph":"X","tid":"stack trace","ts":1097746.121,"pid":4702,"dur":24.115,"self":24.115,"name":"cnMemcpyDtoH"},
{"cat":"","ph":"X","tid":"stack trace","ts":1097743.646,"pid":4702,"dur":27.141,"self":3.026,"name":"cnrtMemcpy"},
{"cat":"","ph":"X","tid":"stack trace","ts":1086575.366,"pid":4702,"dur":11128.796,"name":"cnInvokeKernel"},
{"cat":"","ph":"X","tid":"stack trace","ts":842692.113,"pid":4702,"dur":255014.554,"name":"cnrtInvokeKernel"},
{"ph":"X","cat":"kernel","pid":"Device0 task[Async]","tid":"[PID 4587] Ctx:1 Q:1","ts":1086635.049,"dur":735.88,
 "args":{"dimx":4,"dimy":6,"dimz":1},"name":"KernelInt8(peakPerformance::ConvParam)[U1]"},
{"name":"flow event","ph":"s","cat":"kernel","tid":"stack trace","id":1,"pid":4702,"ts":1086575.366},
{"name":"flow event","cat":"kernel","ph":"f","bp":"e","id":1,"pid":"Device0 task[Async]","tid":"[PID 4587] Ctx:1 Q:1",
 "ts":1086635.049},
{"ph":"X","cat":"notifier","pid":"Device0 task[Async]","tid":"[PID 4587] Ctx:1 Q:1","ts":1087370.94,"dur":0.0,
 "args":{"notifier_id":"2","type":"[PLACE]"},"name":"notifier[PLACE]"},
{"ph":"X","cat":"memcpy","pid":"Device0 task[Sync]","tid":"[PID 4587] Ctx:1 Q:0","ts":1097746.732,"dur":20.668,
 "args":{"bytes":480,"copy_type":"[DtoH]"},"name":"memcpy[DtoH]"},
{"name":"flow event","ph":"s","cat":"memcpy","tid":"stack trace","id":2,"pid":4702,"ts":1097746.121},
{"name":"flow event","cat":"memcpy","ph":"f","bp":"e","id":2,"pid":"Device0 task[Sync]","tid":"[PID 4587] Ctx:1 Q:0",
 "ts":1097746.732},
{"name":"process_name","ph":"M","pid":4702,"args":{"name":"TID 4702"}}
]}
"""


def test_cnperf(tmp_path: Path) -> None:
    """Each thread of the host is a process; the queues of a device are threads, and no process has its name."""
    tasks = "name, kind, device_id, stream_id, submit_ns, start_ns, dur_ns, size_bytes"
    run, store = taken(CNPERF, tmp_path)
    assert not run.log
    assert query(store, f"SELECT {tasks} FROM task ORDER BY start_ns") == [
        ("KernelInt8(peakPerformance::ConvParam)[U1]", "compute", 0, 1, 1086575366, 1086635049, 735880, None),
        ("notifier[PLACE]", "sync", 0, 1, None, 1087370940, 0, None),
        ("memcpy[DtoH]", "copy", 0, 0, 1097746121, 1097746732, 20668, 480),
    ]
    assert query(store, "SELECT name, level, self_ns FROM api ORDER BY start_ns") == [
        ("cnrtInvokeKernel", "runtime", 243885758), ("cnInvokeKernel", "driver", 11128796),
        ("cnrtMemcpy", "runtime", 3026), ("cnMemcpyDtoH", "driver", 24115),
    ]  # fmt: skip


def mctracer_events(start: int) -> list[dict[str, Any]]:
    """A call, a kernel and a fill: the form of events that mcTracer 3.5 writes for a MetaX C500."""
    device = {"device_id": 0, "queue_id": 3, "co_id": 5, "queue_ts": start + 100, "mtreg_occupancy(%)": 1}
    grid = {"grid": {"x": 4096, "y": 1, "z": 1}, "block": {"x": 256, "y": 1, "z": 1}}
    where = {"pid": 2, "tid": 1024}
    return [
        {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "Device"}},
        {"ph": "X", "name": "mcLaunchKernel", "pid": 1, "tid": 77, "ts": start, "dur": 9001, "args": {}},
        {"ph": "s", "name": "flow", "id": 5, "pid": 1, "tid": 77, "ts": start},
        {"ph": "f", "bp": "e", "name": "flow", "id": 5, **where, "ts": start + 44736},
        {"ph": "X", "cat": "0", "name": "saxpy", **where, "ts": start + 44736, "dur": 18944, "args": device | grid},
        {"ph": "X", "cat": "0", "name": "memset", **where, "ts": start + 70000, "dur": 256, "args": device},
    ]


def test_mctracer_writes_nanoseconds(tmp_path: Path) -> None:
    """As µs, its times would be in the year 56,000,000, which no int64 in ns can express."""
    start = 1789465586316840000
    tasks = "name, kind, device_id, stream_id, submit_ns, start_ns, dur_ns, correlation_id"
    run, store = taken({"traceEvents": mctracer_events(start)}, tmp_path)
    assert not run.log
    assert query(store, f"SELECT {tasks} FROM task ORDER BY start_ns") == [
        ("saxpy", "compute", 0, 3, start, start + 44736, 18944, 5),
        ("memset", "copy", 0, 3, None, start + 70000, 256, 5),
    ]
    assert query(store, "SELECT name, level, dur_ns FROM api") == [("mcLaunchKernel", "runtime", 9001)]
    assert query(store, "SELECT epoch_known FROM run") == [(True,)]


def test_one_time_that_is_too_large_does_not_change_the_unit(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": "a", "ts": ts, "dur": 5, "pid": 1, "tid": 1} for ts in (1789465586316840000, 7)]
    run, store = taken(events, tmp_path)
    assert query(store, "SELECT start_ns, dur_ns FROM range") == [(7000, 5000)]
    assert [entry.event_count for entry in run.log] == [1]


def test_qaic_opstats(tmp_path: Path) -> None:
    """Its threads are the engines of the cores of each card."""
    names = {
        1: "QAicGraph_slice02_Core_5", 2: "QAicGraph_slice02_Core_5_HMX", 3: "QAicGraph_slice02_Core_5_HVX",
        4: "QAicGraph_slice02_Core_5_DMAIssue_DMA", 5: "QAicGraph_slice02_Core_5_HMX_Barrier",
        6: "QAicGraph_Core_0_HVX_DMA", 7: "QAicGraph_slice02_Core_5_DMAIssue",
    }  # fmt: skip
    found = [
        (1, "Core-5-Execution", 0, 90, {}),
        (2, "aicconvolutiond32 x", 1, 40, {"opKind": "aicconvolutiond32", "opName": "/mlp/MatMul/__1"}),
        (2, "sync HMX", 41, 3, {}),
        (3, "aicmulticastvtcm_out x", 5, 4, {"opKind": "aicmulticastvtcm_out", "PortType": "P2P"}),
        (3, "blockdequantize_mxfp6 x", 10, 6, {"opKind": "blockdequantize_mxfp6"}),
        (4, "aiccopytovtcm x", 20, 8, {"opKind": "aiccopytovtcm", "opMemory": "DDR"}),
        (5, "barrier HMX", 50, 2, {}),
        (6, "aiccopytovtcm x", 60, 1, {"opKind": "aiccopytovtcm"}),
        (7, "aiccopytovtcm x", 70, 1, {"opKind": "aiccopytovtcm"}),
    ]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": name}} for tid, name in names.items()
    ]
    for tid, name, ts, dur, args in found:
        events.append({"ph": "X", "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args})
    _, store = taken({"traceEvents": events}, tmp_path)
    tasks = "kind, core_type, device_id, start_ns, dur_ns, op_type FROM task LEFT JOIN op USING (run_id, op_id)"
    assert query(store, f"SELECT {tasks} ORDER BY start_ns") == [
        ("compute", "HMX", 2, 1000, 40000, "aicconvolutiond32"),
        ("collective", None, 2, 5000, 4000, "aicmulticastvtcm_out"),
        ("compute", "HVX", 2, 10000, 6000, "blockdequantize_mxfp6"),
        ("copy", None, 2, 20000, 8000, None),
        ("sync", None, 2, 41000, 3000, None),
        ("sync", None, 2, 50000, 2000, None),
        ("copy", None, None, 60000, 1000, None),
        (None, None, 2, 70000, 1000, None),
    ]
    assert query(store, "SELECT kind FROM range") == [("summary",)]


def test_rbln_profiler(tmp_path: Path) -> None:
    """Its threads are kinds of commands; an op's name has the number of its execution, its own and its command's."""
    commands = [
        ("Host", "0_embedding_1_0"), ("External HDMA", "0_input_0"), ("Task DMA", "0_linear_196_0"),
        ("Neural DMA", "0_linear_196_1"), ("Neural Engine Clusters", "0_linear_196_2"),
        ("Neural Engine Clusters", "i0_12_W3_fused(add+mul)_7_0"), ("Device HDMA", "0_all_reduce_3_0"),
        ("Device Sync", "0_all_reduce_3_1"), ("General Compute Engine", "0_W1_topk_9_0"),
    ]  # fmt: skip
    threads = {name: place + 2 for place, name in enumerate(dict.fromkeys(name for name, _ in commands))}
    packets = [process(1, 7, "RBLN"), *(thread(uuid, 7, 100 + uuid, name) for name, uuid in threads.items())]
    for place, (name, command) in enumerate(commands):
        packets += [begin(1000 * place, threads[name], command, (22, name)), end(1000 * place + 500, threads[name])]
    path = tmp_path / "rbln.pb"
    path.write_bytes(b"".join(packets))
    _, store = taken_from(path, tmp_path)
    tasks = "SELECT start_ns, kind, core_type, op_type FROM task LEFT JOIN op USING (run_id, op_id) ORDER BY start_ns"
    assert store.execute(tasks).fetchall() == [
        (1000, "copy", None, None), (2000, "copy", None, None), (3000, "copy", None, None),
        (4000, "compute", "NEURAL_ENGINE", "linear"), (5000, "compute", "NEURAL_ENGINE", "fused(add+mul)"),
        (6000, "collective", None, "all_reduce"), (7000, "sync", None, None),
        (8000, "compute", "GENERAL_COMPUTE_ENGINE", "topk"),
    ]  # fmt: skip
    assert store.execute("SELECT name, kind FROM range").fetchall() == [("0_embedding_1_0", "host_op")]


def test_furiosa_torch(tmp_path: Path) -> None:
    """The profiler of furiosa-torch: an execution on a cluster, and what its units do."""
    found = ["Task", "Cluster", "Renegade::TuExec", "Renegade::ParallelCopy", "Renegade::StoTrf", "DMA (3)", "enqueue"]
    events = [
        {"ph": "X", "cat": "FuriosaTorch", "name": name, "ts": place, "dur": 1, "pid": 1, "tid": place,
         "args": {"span_id": str(place), "device_index": "4", "cluster_index": "1"}}
        for place, name in enumerate(found)
    ]  # fmt: skip
    text = json.dumps({"traceEvents": events})
    tasks = "SELECT name, kind, device_id FROM task ORDER BY start_ns"
    assert rows_of(text, tmp_path, tasks) == [
        ("TuExec", "compute", 4), ("Renegade::ParallelCopy", "copy", 4), ("Renegade::StoTrf", "copy", 4),
        ("DMA (3)", "copy", 4),
    ]  # fmt: skip
    ranges = "SELECT name, kind, pe_index FROM range ORDER BY start_ns"
    assert query(tmp_path / "trace.duckdb", ranges) == [
        ("Task", "execution", 1), ("Cluster", "summary", None), ("enqueue", "annotation", None)
    ]  # fmt: skip
