"""Nsight Systems reports in SQLite, built from the published schema: intact, damaged and hostile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from ingest_checks import taken_from
from nsys_builder import call, global_tid, insert, kernel, new_report, node
from processes import TRACECONV, heed_interrupts, wait_until

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.inspection.traces import trace_lines
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.inspect import inspect_trace
from traceconv.provenance.find import why
from traceconv.store.database import open_store

BIG = 9_000_000_000_000_000_123  # too large for a double… and beyond the range of timestamps
T0 = 4_000_000_000_000_000_001  # odd and too large for a double


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Two launches, a copy, a collective, ranges, a wait, metrics and memory."""
    path = tmp_path / "report.sqlite"
    db = new_report(path)
    insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [
        kernel(T0 + 100, T0 + 201, 1, 5),
        kernel(T0 + 300, T0 + 433, 1, 6),
        kernel(T0 + 500, T0 + 600, 3, 8, streamId=13),
    ])  # fmt: skip
    insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", [
        call(T0 + 10, T0 + 20, 10, 5),
        call(T0 + 12, T0 + 18, 11, 99),
        call(T0 + 30, T0 + 38, 10, 6),
        call(T0 + 50, T0 + 60, 12, 7, tid=101),
        call(T0 + 62, T0 + 64, 10, 8),
        call(T0 + 70, T0 + 700, 14, 9),
    ])  # fmt: skip
    insert(db, "CUPTI_ACTIVITY_KIND_MEMCPY", [{
        "start": T0 + 440, "end": T0 + 460, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 7,
        "globalPid": global_tid(100, 0), "bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2,
    }])  # fmt: skip
    insert(db, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", [{
        "start": T0 + 75, "end": T0 + 690, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 9,
        "globalPid": global_tid(100, 0), "syncType": 4, "eventId": 0,
    }])  # fmt: skip
    thread = global_tid(100, 100)
    nvtx = {"start": 0, "end": None, "eventType": 59, "text": None, "textId": None, "globalTid": thread,
            "domainId": None, "category": None, "rangeId": None, "endGlobalTid": None, "int64Value": None}  # fmt: skip
    insert(db, "NVTX_EVENTS", [
        {**nvtx, "start": T0 + 1, "end": T0 + 65, "text": "step 3"},
        {**nvtx, "start": T0 + 5, "end": T0 + 40, "textId": 20, "domainId": 2, "category": 4, "int64Value": BIG},
        {**nvtx, "start": T0 + 66, "text": "never popped"},
        {**nvtx, "start": T0 + 2, "end": T0 + 90, "eventType": 60, "rangeId": 77, "text": "a → b",
         "endGlobalTid": global_tid(100, 101)},
        {**nvtx, "start": T0 + 3, "eventType": 34, "text": "mark"},
        {**nvtx, "start": T0 + 7, "end": T0 + 9, "eventType": 999, "text": "a later type"},
        {**nvtx, "start": T0, "eventType": 75, "text": "cublas", "domainId": 2},
        {**nvtx, "start": T0, "eventType": 33, "text": "math", "domainId": 2, "category": 4},
    ])  # fmt: skip
    osrt = {"start": T0 + 47, "end": T0 + 49, "eventClass": 27, "globalTid": thread, "nameId": 13, "returnValue": 5,
            "callchainId": 0}  # fmt: skip
    started = {**osrt, "start": T0 + 4, "end": T0 + 4, "eventClass": 31, "nameId": 15}
    insert(db, "OSRT_API", [osrt, started])
    db.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (256, 0, 'GPU', 3, 'SM Active [%]')")
    db.execute("INSERT INTO GPU_METRICS VALUES (?, 256, 3, 87)", (T0 + 150,))
    db.execute(
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?, ?, 0, 1, 140000000000, 0, 1024, 2, 0, 'weights')",
        (T0 + 8, global_tid(100, 0)),
    )
    db.commit()
    db.close()
    return path


def test_every_row_is_in_its_table(report: Path, tmp_path: Path) -> None:
    assert choose_reader(report) == "nsys"
    run, store = taken_from(report, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT writer, source_format, start_ns, end_ns FROM run").fetchone() == (
        "Nsight Systems", "nsys", T0 + 1, T0 + 700)  # fmt: skip
    tasks = store.execute(
        "SELECT kind, name, start_ns, dur_ns, device_id, stream_id, correlation_id, submit_ns, size_bytes, depth "
        "FROM task ORDER BY start_ns"
    ).fetchall()
    gemm = "void gemm<float>(float*)"
    assert tasks == [
        ("sync", "Context Synchronize", T0 + 75, 615, 0, 7, 9, T0 + 70, None, 0),
        ("compute", gemm, T0 + 100, 101, 0, 7, 5, T0 + 10, None, 0),
        ("compute", gemm, T0 + 300, 133, 0, 7, 6, T0 + 30, None, 0),
        ("copy", "CUDA memcpy Host-to-Device", T0 + 440, 20, 0, 7, 7, T0 + 50, 4096, 0),
        ("collective", "ncclDevKernel_AllReduce(args)", T0 + 500, 100, 0, 13, 8, T0 + 62, None, 0),
    ]
    assert store.execute("SELECT name, op_type, count::INT, total_ns::INT FROM op_statistic JOIN op USING (op_type)"
                         " ORDER BY name").fetchall() == [
        ("ncclDevKernel_AllReduce(args)", "ncclDevKernel", 1, 100), (gemm, "gemm", 2, 234)]  # fmt: skip
    assert store.execute("SELECT level, name, dur_ns, depth FROM api ORDER BY start_ns").fetchall() == [
        ("runtime", "cudaLaunchKernel", 10, 2),
        ("driver", "cuLaunchKernel", 6, 3),
        ("runtime", "cudaLaunchKernel", 8, 2),
        ("os", "read", 2, 1),
        ("runtime", "cudaMemcpyAsync", 10, 0),
        ("runtime", "cudaLaunchKernel", 2, 1),
        ("runtime", "cudaDeviceSynchronize", 630, 1),
    ]
    assert store.execute("SELECT iteration, start_ns, end_ns FROM step").fetchall() == [(3, T0 + 1, T0 + 65)]
    assert store.execute("SELECT DISTINCT device_id, kind FROM device").fetchall() == [(0, "GPU")]
    arrows = store.execute(
        "SELECT a.correlation_id, t.correlation_id, f.src_ns, f.dst_ns FROM flow f JOIN api a ON a.id = f.src_id "
        "JOIN task t ON t.id = f.dst_id ORDER BY ALL"
    ).fetchall()
    assert arrows == [
        (5, 5, T0 + 10, T0 + 100), (6, 6, T0 + 30, T0 + 300), (7, 7, T0 + 50, T0 + 440), (8, 8, T0 + 62, T0 + 500),
    ]  # fmt: skip


def test_nvtx_ranges(report: Path, tmp_path: Path) -> None:
    _, store = taken_from(report, tmp_path)
    rows = store.execute(
        "SELECT r.name, r.start_ns - ?, r.dur_ns, r.depth, t.kind, t.name, json_extract_string(r.args, '$.domain'), "
        "json_extract_string(r.args, '$.category') FROM range r JOIN track t USING (run_id, track_id) ORDER BY 2",
        [T0],
    ).fetchall()
    assert rows == [
        ("step 3", 1, 64, 0, "thread", "python3", None, None),
        ("a → b", 2, 88, 0, "async", None, None, None),
        ("main loop", 5, 35, 1, "thread", "python3", "cublas", "math"),
        ("a later type", 7, 2, 2, "thread", "python3", None, None),
        ("never popped", 66, None, 0, "thread", "python3", None, None),
    ]
    assert store.execute("SELECT count(*) FROM range WHERE args LIKE ?", [f"%{BIG}%"]).fetchone() == (1,)
    markers = store.execute("SELECT name, ts_ns - ?, args->>'$.name' FROM marker ORDER BY 2", [T0]).fetchall()
    assert markers == [
        ("mark", 3, None),
        ("OS runtime libraries profiling started", 4, None),
        ("allocation", 8, "weights"),
    ]
    counters = store.execute(
        "SELECT t.name, p.name, c.ts_ns - ?, c.value_int FROM counter c JOIN track t USING (run_id, track_id) "
        "JOIN process p USING (run_id, process_id)",
        [T0],
    ).fetchall()
    assert counters == [("SM Active [%]", "GPU 0 NVIDIA H100", 150, 87)]


@pytest.mark.parametrize(("ranks", "found"), [([3], 3), ([0, 1], None), ([b"x"], None), ([], None)])
def test_mpi(ranks: list[object], found: int | None, tmp_path: Path) -> None:
    """A report of one rank is that rank's. Tables that describe communicators have times, but no events."""
    path = tmp_path / "mpi.sqlite"
    db = new_report(path)
    db.execute("CREATE TABLE MPI_RANKS (globalTid INTEGER, rank INTEGER)")
    db.executemany("INSERT INTO MPI_RANKS VALUES (1, ?)", [(rank,) for rank in ranks])
    db.execute("CREATE TABLE MPI_COMMUNICATORS (rank INTEGER, timestamp INTEGER, commHandle INTEGER, size INTEGER)")
    db.executemany("INSERT INTO MPI_COMMUNICATORS VALUES (0, 5, ?, ?)", [(77, 2), (78, b"x")])
    db.execute("CREATE TABLE MPI_COLLECTIVES_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, textId INTEGER)")
    db.execute("INSERT INTO MPI_COLLECTIVES_EVENTS VALUES (100, 180, ?, 20)", (global_tid(100, 100),))
    db.commit()
    db.close()
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert run.rank == found
    assert store.execute("SELECT name, level, dur_ns FROM api").fetchall() == [("main loop", "communication", 80)]
    sizes = store.execute("SELECT options->'$.nsys_export.mpi_communicators' FROM run").fetchall()
    assert sizes == [('{"77":2}',)]


def test_equal_correlation_ids_of_processes_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "two.sqlite"
    db = new_report(path)
    insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [kernel(100, 200, 1, 5), kernel(150, 250, 3, 5, pid=200)])
    insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", [call(10, 20, 10, 5), call(50, 60, 10, 5, pid=200, tid=200)])
    db.commit()
    db.close()
    _, store = taken_from(path, tmp_path)
    tasks = store.execute("SELECT kind, submit_ns, correlation_id, depth FROM task ORDER BY start_ns").fetchall()
    assert tasks == [("compute", 10, 5, 0), ("collective", 50, 5 + (1 << 32), 0)]
    assert store.execute("SELECT src_ns, dst_ns FROM flow ORDER BY 1").fetchall() == [(10, 100), (50, 150)]
    assert store.execute("SELECT name FROM track WHERE kind = 'stream' ORDER BY 1").fetchall() == [
        ("Stream 7 (process 100)",), ("Stream 7 (process 200)",)]  # fmt: skip


def test_devices_are_gpus_if_processes_number_them_differently(tmp_path: Path) -> None:
    """By CUDA_VISIBLE_DEVICES, both processes use a device 0; the name of the first GPU is known."""
    path = tmp_path / "two.sqlite"
    db = new_report(path)
    db.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT)")
    db.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, 0, ?, '')", [(0, 100), (3, 200)])
    insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [kernel(100, 200, 1, 5), kernel(150, 250, 3, 5, pid=200)])
    db.commit()
    db.close()
    _, store = taken_from(path, tmp_path)
    found = store.execute("SELECT device_id, compute_ns, exposed_collective_ns FROM breakdown()").fetchall()
    assert found == [(0, 100, 0), (3, 0, 100)]
    names = store.execute("SELECT name FROM process ORDER BY 1").fetchall()
    assert names == [("GPU 0 NVIDIA H100",), ("GPU 3",)]


def test_devices_of_an_unlisted_process(tmp_path: Path) -> None:
    """They are those of the others if these agree; a device that is two GPUs is neither."""
    path = tmp_path / "unlisted.sqlite"
    db = new_report(path)
    db.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT)")
    rows = [(0, 0, 100), (3, 0, 200), (5, 1, 200), (5, 1, 400)]
    db.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?, '')", rows)
    work = [kernel(device, 9, 1, 5, pid=300, deviceId=device) for device in (0, 1, 2)]
    insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", work)
    db.commit()
    db.close()
    _, store = taken_from(path, tmp_path)
    found = store.execute("SELECT t.device_id, pid_text FROM task AS t JOIN track USING (track_id) "
                          "JOIN process USING (process_id) ORDER BY start_ns").fetchall()  # fmt: skip
    assert found == [(None, "GPU"), (5, "GPU 5"), (2, "GPU 2")]


def test_devices_are_gpus_if_only_some_are_visible(tmp_path: Path) -> None:
    """With CUDA_VISIBLE_DEVICES=3, CUDA's device 0 is GPU 3; metrics are of all GPUs."""
    path = tmp_path / "one.sqlite"
    db = new_report(path)
    db.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT)")
    db.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (3, 0, 100, '')")
    db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 3, 'NVIDIA H200', 1)")
    insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [kernel(100, 200, 1, 5)])
    db.execute("INSERT INTO GPU_METRICS VALUES (100, 0, 1, 5), (100, 3, 1, 90)")
    db.commit()
    db.close()
    _, store = taken_from(path, tmp_path)
    assert store.execute("SELECT device_id FROM task").fetchall() == [(3,)]
    rows = store.execute(
        "SELECT p.name, max(value) FROM track JOIN process AS p USING (process_id) LEFT JOIN counter USING (track_id) "
        "GROUP BY ALL ORDER BY 1"
    ).fetchall()
    assert rows == [("GPU 3 NVIDIA H200", 90), (None, 5)]


def test_ids_of_nothing_are_null(tmp_path: Path) -> None:
    """CUPTI writes 2^32 - 1 for no stream, and 0 for no correlation: calls with 0 launched nothing."""
    path = tmp_path / "none.sqlite"
    none = 2**32 - 1
    db = new_report(path)
    insert(db, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", [{
        "start": 120, "end": 190, "deviceId": 0, "contextId": 1, "streamId": none, "correlationId": 9,
        "globalPid": global_tid(100, 0), "syncType": 4, "eventId": none,
    }])  # fmt: skip
    copy = {"start": 120, "end": 140, "deviceId": 0, "contextId": none, "streamId": none, "correlationId": 0,
            "globalPid": global_tid(100, 0), "bytes": 4096, "copyKind": 11}  # fmt: skip
    second = {"start": 150, "globalPid": global_tid(200, 0), "correlationId": None, "deviceId": none, "copyKind": 13}
    insert(db, "CUPTI_ACTIVITY_KIND_MEMCPY", [copy, copy | second])
    insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", [call(10, 20, 10, 0), call(100, 200, 14, 9)])
    db.commit()
    db.close()
    run, store = taken_from(path, tmp_path)
    rows = store.execute(
        "SELECT t.name, k.name, t.device_id, t.context_id, t.stream_id, k.stream_id, correlation_id, submit_ns "
        "FROM task AS t JOIN track AS k USING (track_id) ORDER BY t.start_ns, t.name"
    ).fetchall()
    assert rows == [
        ("CUDA memcpy Unified Host-to-Device", "No stream (process 100)", 0, None, None, None, None, None),
        ("Context Synchronize", "No stream waits (process 100)", 0, 1, None, None, 9, 100),
        ("CUDA memcpy Unified Device-to-Device", "No stream (process 200)", None, None, None, None, None, None),
    ]
    assert store.execute("SELECT count(*) FROM flow").fetchone() == (0,)
    assert not any(entry.code is Code.LOOSE_FLOW for entry in run.log)


def test_call_stacks_are_not_calls(report: Path, tmp_path: Path) -> None:
    """With --cudabacktrace, a second row of a call has its stack, and begins before the call."""
    with sqlite3.connect(report) as db:
        insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", [call(T0 + 9, T0 + 21, 10, 5) | {"eventClass": 67, "callchainId": 3}])
    db.close()
    _, store = taken_from(report, tmp_path)
    assert store.execute("SELECT start_ns - ?, dur_ns FROM api WHERE correlation_id = 5", [T0]).fetchall() == [(10, 10)]
    assert store.execute("SELECT submit_ns - ? FROM task WHERE correlation_id = 5", [T0]).fetchall() == [(10,)]
    rows = store.execute("SELECT ts_ns - ?, name, args->'$.callchainId' FROM marker WHERE category = 'cuda_api'", [T0])
    assert rows.fetchall() == [(9, "cudaLaunchKernel_v7000", "3")]


def test_missing_tables_and_columns_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 1, 2)")
    db.close()
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT name, start_ns, dur_ns, device_id, stream_id FROM task").fetchall() == [
        ("kernel", 5, 4, 1, 2)]  # fmt: skip


def test_values_of_wrong_types_lose_only_their_row(report: Path, tmp_path: Path) -> None:
    with sqlite3.connect(report) as db:
        insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [
            kernel(0, 5, 1, 1) | {"start": "soon"},
            kernel(T0 + 1000, 0, 1, 1) | {"end": b"\x00\xff"},
            kernel(T0 + 2000, T0 + 1990, 1, 1),
            kernel(T0 + 3000, T0 + 3001, 777, 1) | {"streamId": "x\x1b[31m"},
            kernel(-(2**63), 2**63 - 1, 1, 1),
        ])  # fmt: skip
    db.close()
    run, store = taken_from(report, tmp_path)
    assert run.lossy
    account = run.accounts.by_record["X events"]
    assert (account.records, account.lost) == (21, 2)
    rows = store.execute("SELECT name, dur_ns FROM task WHERE start_ns >= ? ORDER BY start_ns", [T0 + 1000]).fetchall()
    assert rows == [("void gemm<float>(float*)", None)] * 2 + [("kernel", 1)]


def test_kernels_of_graphs_have_the_range_that_captured_their_node(tmp_path: Path) -> None:
    """As TensorRT-LLM's tools find it: the node of an executable graph is a copy of the one that was captured.

    A copy may have a row of its creation, without its original, before the one of the copy.
    """
    path = tmp_path / "graphs.sqlite"
    thread = global_tid(100, 100)
    with new_report(path) as db:
        nvtx = {"eventType": 59, "globalTid": thread, "start": T0 + 100, "end": T0 + 200, "text": "layer 0"}
        inner = {**nvtx, "start": T0 + 110, "end": T0 + 150, "text": "attention"}
        replay = {**nvtx, "start": T0 + 1000, "end": T0 + 1100, "text": "decode"}
        insert(db, "NVTX_EVENTS", [nvtx, inner, replay])
        insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", [
            call(T0 + 120, T0 + 130, 10, 1), call(T0 + 160, T0 + 170, 10, 2), call(T0 + 1010, T0 + 1020, 41, 3),
            call(T0 + 1010, T0 + 1020, 41, 3, pid=200, tid=200),
        ])  # fmt: skip
        copies = {17: 7, 18: 8, 19: 99, 20: 21, 21: 20}
        created = [node(T0 + 125, 7), node(T0 + 165, 8)]
        copied = [node(T0 + 300, copy, original) for copy, original in copies.items()]
        created += [node(T0 + 299, 17), node(T0 + 399, 27)]
        insert(db, "CUDA_GRAPH_NODE_EVENTS", [*created, *copied, node(T0 + 400, 27, 17)])
        nodes = {27: 0, 18: 10, 19: 20, 20: 30}
        kernels = [kernel(T0 + 2000 + at, T0 + 2005 + at, 1, 3, graphNodeId=node) for node, at in nodes.items()]
        insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [*kernels, kernel(T0 + 2100, T0 + 2105, 1, 3, 200, graphNodeId=27)])
    db.close()
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    rows = store.execute(
        "SELECT c.start_ns - ?, c.range_name, c.dur_ns, l.name, n.name, n.level, n.start_ns - ? "
        "FROM graph_node_range AS c JOIN api AS l ON l.id = c.launch_id JOIN api AS n ON n.id = c.node_api_id "
        "ORDER BY c.start_ns",
        [T0, T0],
    ).fetchall()
    assert rows == [
        (2000, "attention", 5, "cudaGraphLaunch", "Graph Node Creation", "graph", 125),
        (2010, "layer 0", 5, "cudaGraphLaunch", "Graph Node Creation", "graph", 165),
    ]
    tree = store.execute(
        "SELECT label, kind, task_count, self_task_count, replay_task_count, device_total_ns FROM op_tree "
        "WHERE task_count > 0 ORDER BY position"
    ).fetchall()
    assert tree == [
        ("decode", "annotation", 4, 2, 2, 20),
        ("  attention", "annotation", 1, 1, 1, 5),
        ("  layer 0", "annotation", 1, 1, 1, 5),
        ("(no range)", None, 1, 1, 0, 5),
    ]
    findings = store.execute("SELECT finding, count FROM trust WHERE finding LIKE '%replays'").fetchall()
    assert findings == [("unmatched_replays", 3)]


def test_sizes_of_collectives_are_in_the_payloads_of_nccl_calls(tmp_path: Path) -> None:
    """As NCCL declares them. Calls of a group are launched when it ends; the fifth payload is truncated."""
    path = tmp_path / "nccl.sqlite"
    comm, reduction = 0xF000_0000_0000_0007, 1 << 24 | 11
    members = {
        1: [("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12), ("CUDA device", 5, 16)],
        2: [
            ("NCCL communicator ID", 18, None),
            ("Message size [bytes]", 22, 8),
            ("Reduction operation", reduction, 16),
        ],
    }

    def payload(schema: int, *values: int, cut: int = 0) -> bytes:
        content = struct.pack("<Qiiii" if schema == 1 else "<QQii", *values)
        return (struct.pack("<QQQQ", 3, schema, 24, 32) + content)[: 56 - cut]

    calls = [
        ("ncclCommInitRank", payload(1, comm, 8, 2, 0, 0)),
        ("ncclAllReduce", payload(2, comm, 4096, 0, 0)),
        ("ncclAllGather", payload(2, comm, 1000, 0, 0)),
        ("ncclAllReduce", payload(2, comm, 64, 0, 0)),
        ("ncclAllReduce", payload(2, comm, 128, 0, 0, cut=4)),
    ]
    launches = [(110, 3), (210, 50), (390, 3), (410, 3)]  # after T0, and the name of the kernel
    with new_report(path) as db:
        db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData BLOB")
        db.execute("CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId, schemaId, name, payloadSize)")
        db.execute("CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, idx, flags, type, name, offset)")
        db.executemany("INSERT INTO NVTX_PAYLOAD_SCHEMAS VALUES (3, ?, NULL, 24)", [(one,) for one in (1, 2, 1, 2)])
        db.executemany(
            "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (3, ?, ?, NULL, ?, ?, ?)",
            [(key, at, kind, name, offset) for key in (1, 2) for at, (name, kind, offset) in enumerate(members[key])],
        )
        db.execute("INSERT INTO StringIds VALUES (50, 'k'), (51, 'ncclDevKernel_AllGather_RING_LL(args)')")
        nvtx = {"eventType": 59, "domainId": 3, "globalTid": global_tid(100, 100)}
        insert(db, "NVTX_EVENTS", [
            {**nvtx, "start": T0 + 100 * at, "end": T0 + 100 * at + 50, "text": name, "binaryData": data}
            for at, (name, data) in enumerate(calls)
        ])  # fmt: skip
        insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", [
            call(T0 + at, T0 + at + 5, 10, number) for number, (at, _) in enumerate(launches, 1)
        ])  # fmt: skip
        insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [
            kernel(T0 + 9000 * number, T0 + 9000 * number + 1000, name, number)
            for number, (_, name) in enumerate(launches, 1)
        ])  # fmt: skip
    db.close()
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    columns = "collective, comm_group, group_size, message_bytes"
    assert store.execute(f"SELECT {columns} FROM collective ORDER BY start_ns").fetchall() == [
        ("all_reduce", str(comm), 8, 4096),
        ("all_gather", str(comm), 8, 8000),
        ("all_reduce", None, None, None),
        ("all_reduce", None, None, None),
    ]
    rates = "SELECT message_bytes, algorithm_bytes_per_s, bus_bytes_per_s FROM collectives WHERE message_bytes > 0"
    assert store.execute(f"{rates} ORDER BY 1").fetchall() == [
        (4096, 4_096_000_000, 7_168_000_000),
        (8000, 8_000_000_000, 7_000_000_000),
    ]
    args = store.execute("SELECT args -> '$.payload' FROM range WHERE name = 'ncclCommInitRank'").fetchall()
    assert json.loads(args[0][0]) == {
        "NCCL communicator ID": comm, "No. of ranks": 8, "Rank": 2, "CUDA device": 0
    }  # fmt: skip


def test_scheduling_samples_faults_and_host_functions_are_read(report: Path, tmp_path: Path) -> None:
    """Outside of containers, nsys records scheduling and samples without being asked to."""
    thread, process = global_tid(100, 100), global_tid(100, 0)
    with sqlite3.connect(report) as db:
        db.executescript("""
            CREATE TABLE COMPOSITE_EVENTS (id INT, start INT, cpu INT, threadState INT, globalTid INT, cpuCycles INT);
            CREATE TABLE ENUM_SAMPLING_THREAD_STATE (id INT, name TEXT, label TEXT);
            CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start INT, globalPid INT, address INT, CpuInstruction INT,
                sourceLine INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH (start INT, end INT, nameId INT, globalTid INT, lineNo INT,
                srcFile INT);
            INSERT INTO StringIds VALUES (60, 'fill+0x10'), (61, 'a.c');
            CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (timestamp INT, deviceId INT, streamId INT, globalPid INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH (start INT, end INT, deviceId INT,
                contextId INT, streamId INT, correlationId INT, globalPid INT);
            CREATE TABLE UCP_EVENTS (start INT, end INT, globalTid INT, textId INT);
            CREATE TABLE SOC_METRICS (rawTimestamp INT, timestamp INT, typeId INT, metricId INT, value INT);
            CREATE TABLE TARGET_INFO_SOC_METRICS (typeId INT, metricId INT, metricName TEXT);
            CREATE TABLE NET_NIC_METRIC (start INT, end INT, globalId INT, portId INT, metricsListId INT,
                metricsIdx INT, value INT);
            CREATE TABLE TARGET_INFO_NETWORK_METRICS (metricsListId INT, metricsIdx INT, name TEXT);
            CREATE TABLE TARGET_INFO_NIC_INFO (nicId INT, name TEXT);
            CREATE TABLE NIC_ID_MAP (nicId INT, globalId INT);
            INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (1, 0, 'IB: Bytes sent');
            INSERT INTO TARGET_INFO_NIC_INFO VALUES (3, 'mlx5_0');
            INSERT INTO NIC_ID_MAP VALUES (3, 99);
            INSERT INTO ENUM_SAMPLING_THREAD_STATE VALUES (1, 'RUNNING', 'Running'), (2, 'WAITING', 'Waiting');
            INSERT INTO StringIds VALUES (50, 'ucp_worker_progress');
            INSERT INTO TARGET_INFO_SOC_METRICS VALUES (9, 1, 'DRAM read [%]');
        """)
        insert(db, "SCHED_EVENTS", [
            {"start": T0, "cpu": 3, "isSchedIn": 0, "globalTid": thread, "threadState": 2},
            {"start": T0 + 9, "cpu": 4, "isSchedIn": 1, "globalTid": thread, "threadState": None},
        ])  # fmt: skip
        db.execute("INSERT INTO COMPOSITE_EVENTS VALUES (1, ?, 3, 1, ?, 12345)", (T0 + 11, thread))
        db.execute("INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS VALUES (?, ?, 4096, 60, 7)", (T0 + 12, process))
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH VALUES (?, ?, 1, ?, 9, 61)",
                   (T0 + 90, T0 + 91, thread))  # fmt: skip
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (0, 0, 7, ?), (?, 0, 7, ?)",
                   (process, T0 + 13, process))  # fmt: skip
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH VALUES (?, ?, 0, 1, 7, 6, ?)",
                   (T0 + 434, T0 + 439, process))  # fmt: skip
        db.execute("INSERT INTO UCP_EVENTS VALUES (?, ?, ?, 50)", (T0 + 80, T0 + 81, thread))
        db.execute("INSERT INTO SOC_METRICS VALUES (0, ?, 9, 1, 55)", (T0 + 15,))
        for card, port, value in ((99, 1, 1024), (99, 2, 7), (98, 1, 8)):
            db.execute("INSERT INTO NET_NIC_METRIC VALUES (?, ?, ?, ?, 1, 0, ?)", (T0, T0 + 9, card, port, value))
    db.close()
    run, store = taken_from(report, tmp_path)
    assert not run.lossy
    markers = store.execute(
        "SELECT m.ts_ns - ?, m.category, m.name, k.tid_text, m.args::VARCHAR "
        "FROM marker AS m JOIN track AS k USING (track_id) "
        "WHERE m.category IN ('scheduling', 'cpu_sample', 'page_fault', 'cuda_event') ORDER BY m.ts_ns",
        [T0],
    ).fetchall()
    assert markers == [
        (0, "scheduling", "scheduled out", "100", '{"cpu":3,"isSchedIn":0,"threadState":"Waiting"}'),
        (9, "scheduling", "scheduled in", "100", '{"cpu":4,"isSchedIn":1}'),
        (11, "cpu_sample", "CPU sample", "100", '{"id":1,"cpu":3,"threadState":"Running","cpuCycles":12345}'),
        (12, "page_fault", "CPU page fault", "100", '{"address":4096,"CpuInstruction":"fill+0x10","sourceLine":7}'),
        (13, "cuda_event", "CUDA event", "100", '{"deviceId":0,"streamId":7}'),
    ]
    assert run.accounts.by_record["CUPTI_ACTIVITY_KIND_CUDA_EVENT rows"].used == 1
    assert store.execute("SELECT kind, name, dur_ns FROM task WHERE task_type = 'HOST_FUNCTION'").fetchall() == [
        ("sync", "CUDA host function", 5)]  # fmt: skip
    assert store.execute("SELECT level, dur_ns FROM api WHERE name = 'ucp_worker_progress'").fetchall() == [
        ("communication", 1)]  # fmt: skip
    assert store.execute("SELECT args::VARCHAR FROM range WHERE category = 'openacc'").fetchall() == [
        ('{"lineNo":9,"srcFile":"a.c"}',)]  # fmt: skip
    metrics = store.execute(
        "SELECT p.pid_text, k.name, value FROM counter JOIN track AS k USING (track_id) "
        "JOIN process AS p USING (process_id) WHERE p.pid_text NOT LIKE 'GPU%' ORDER BY ALL"
    )
    assert metrics.fetchall() == [
        ("NIC 98 port 1", "IB: Bytes sent", 8),
        ("NIC mlx5_0 port 1", "IB: Bytes sent", 1024),
        ("NIC mlx5_0 port 2", "IB: Bytes sent", 7),
        ("SoC", "DRAM read [%]", 55),
    ]
    event = store.execute("SELECT id FROM marker WHERE category = 'cuda_event'").fetchone()
    assert event is not None
    store.close()
    with open_store(tmp_path / "trace.duckdb") as connection:
        [evidence] = why(connection, tmp_path / "trace.duckdb", "marker", str(event[0])).evidence
    assert evidence.where == "table CUPTI_ACTIVITY_KIND_CUDA_EVENT, rowid 2"


def test_unsupported_tables_are_counted(report: Path, tmp_path: Path) -> None:
    with sqlite3.connect(report) as db:
        db.execute("CREATE TABLE DX12_WORKLOAD (start INT, cpu INT)")
        db.execute("INSERT INTO DX12_WORKLOAD VALUES (1, 2), (3, 4)")
        db.execute("CREATE TABLE SETTINGS (name TEXT)")
        db.execute("INSERT INTO SETTINGS VALUES ('a'), ('b'), ('c')")
        db.execute("CREATE VIEW MPI_OTHER_EVENTS AS SELECT 1 AS start, 2 AS end, load_extension('x') AS nameId")
    db.close()
    run, store = taken_from(report, tmp_path)
    lost = run.accounts.by_record["DX12_WORKLOAD rows"]
    assert (lost.records, lost.lost) == (2, 2)
    codes = store.execute("SELECT code, event_count FROM import_log WHERE message LIKE '%read%'").fetchall()
    assert set(codes) == {("unknown_record", 2), ("not_read", 3), ("not_read", None)}
    state = inspect_trace(report, "nsys")
    assert state.intact
    assert "intact, but 2 records are of unknown types" in "\n".join(trace_lines(state))


def test_warnings_of_the_profiler_are_reported(report: Path, tmp_path: Path) -> None:
    with sqlite3.connect(report) as db:
        db.execute("CREATE TABLE ENUM_DIAGNOSTIC_SEVERITY_LEVEL (id INT, name TEXT, label TEXT)")
        db.execute("INSERT INTO ENUM_DIAGNOSTIC_SEVERITY_LEVEL VALUES (1, 'Info', 'Information'), (2, 'Warning', NULL)")
        db.execute("CREATE TABLE DIAGNOSTIC_EVENT (timestamp INT, severity INT, text TEXT)")
        db.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 'started'), (2, 2, 'not all events\n'), (3, 2, NULL)")
    db.close()
    run, _ = taken_from(report, tmp_path)
    messages = [entry.message for entry in run.log if entry.code is Code.PROFILER_WARNING]
    assert messages == [r"warning of the profiler: not all events\x0a"]
    assert not run.lossy


def big_report(tmp_path: Path, count: int) -> Path:
    path = tmp_path / "big.sqlite"
    db = new_report(path)
    insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [kernel(10 * n, 10 * n + 7, 1, n) for n in range(count)])
    db.commit()
    db.close()
    return path


def test_reading_resumes_after_a_damaged_page(tmp_path: Path) -> None:
    path = big_report(tmp_path, 30_000)
    data = bytearray(path.read_bytes())
    page = len(data) // 2 // 4096 * 4096
    data[page : page + 4096] = b"\xee" * 4096
    path.write_bytes(data)
    run, store = taken_from(path, tmp_path)
    assert run.lossy
    row = store.execute("SELECT count(*), sum(dur_ns)::BIGINT FROM task").fetchone()
    assert row is not None
    lost = run.accounts.by_record["CUPTI_ACTIVITY_KIND_KERNEL rows"].lost
    assert 0 < lost < 200
    assert row == (30_000 - lost, 7 * (30_000 - lost))


@pytest.mark.parametrize("share", [0.9, 0.5, 0.01])
def test_a_truncated_file(tmp_path: Path, share: float) -> None:
    path = big_report(tmp_path, 5_000)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    try:
        run, _ = taken_from(path, tmp_path)
    except InputError as error:
        assert "big.sqlite" in str(error)
    else:
        assert run.lossy


def test_other_databases_are_refused_with_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rocpd.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE rocpd_op (id INT)")
    db.close()
    with pytest.raises(InputError, match="rocmProfileData; specify --reader rpd"):
        ingest([path], tmp_path / "trace.duckdb", reader="nsys")
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(InputError, match="as SQLite"):
        ingest([path], tmp_path / "trace.duckdb")
    assert not (tmp_path / "trace.duckdb").exists()


def test_metadata_of_the_report_is_kept(report: Path, tmp_path: Path) -> None:
    _, store = taken_from(report, tmp_path)
    row = store.execute("SELECT options FROM run").fetchone()
    assert row is not None
    about = json.loads(row[0])["nsys_export"]
    assert about["META_DATA_EXPORT"] == {"EXPORT_SCHEMA_VERSION": "3.11.0"}
    assert about["session_start"]["utcEpochNs"] == 1720000000123456789
    store.close()
    with sqlite3.connect(report) as db:
        db.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = x'ff', utcTime = 1")
    db.close()
    _, store = taken_from(report, tmp_path)
    assert store.execute("SELECT options->>'$.nsys_export.session_start' FROM run").fetchone() == (
        '{"utcEpochNs":null,"utcTime":"1"}',
    )


#: Its reports are SQLite files after 8 bytes. Others hang, or fail, or export nothing, or need an older version.
_NSYS = r"""#!/bin/sh
echo "$*" >> "$LOG"
all="$*"
shift $(($# - 2))
case "$2" in
*old*) case "$all" in *--include-blobs*) echo "unrecognised option" >&2; exit 1 ;; esac ;;
*hang*) echo $$ >> "$PIDS"; sleep 60 & echo $! >> "$PIDS"; wait ;;
*fail*) printf 'progress\nunknown\033[1m version\n\n' >&2; exit 3 ;;
*full*) : > "$1"; exit 0 ;;
esac
tail -c +9 "$2" > "$1"
"""


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `nsys` on PATH; temporary files are in `temporary`."""
    for name in ("bin", "temporary"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin/nsys"
    program.write_text(_NSYS)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return program


def in_own_format(report: Path, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(8) + report.read_bytes())
    return path


def test_reports_in_their_own_format_are_exported(
    nsys: Path, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(in_own_format(report, tmp_path / "all/-r.nsys-rep").parent)
    run, store = taken_from(Path("-r.nsys-rep"), tmp_path)
    assert store.execute("SELECT source_path, source_format, (SELECT count(*) FROM task) FROM run").fetchall() == [
        ("-r.nsys-rep", "nsys", 5)
    ]
    assert not run.lossy
    [(slice_id,)] = store.execute("SELECT id FROM task WHERE correlation_id = 7").fetchall()
    store.close()
    with open_store(tmp_path / "trace.duckdb") as connection:
        [piece] = why(connection, tmp_path / "trace.duckdb", "task", str(slice_id)).evidence[:1]
    assert (piece.source.name, piece.fields["bytes"]) == ("-r.nsys-rep", 4096)
    assert " ".join(trace_lines(inspect_trace(Path("-r.nsys-rep"), "nsys"))).count("Nsight Systems")
    assert (tmp_path / "log").read_text().count(f" {tmp_path}/all/-r.nsys-rep\n") >= 3

    # The other file of the recording is skipped; two processes read the rest.
    in_own_format(report, tmp_path / "all/old.qdrep")
    for name in ("-r", "old"):
        shutil.copy(report, tmp_path / f"all/{name}.sqlite")
    os.utime(tmp_path / "all/old.sqlite", ns=(1, 1))
    runs = ingest([tmp_path / "all"], tmp_path / "two.duckdb", jobs=2)
    assert sorted(Path(run.source_path).name for run in runs) == ["-r.sqlite", "old.qdrep"]
    assert sorted((one.path.name, one.message) for one in runs.others) == [
        ("-r.nsys-rep", "is the same recording as -r.sqlite, which is read instead"),
        ("old.sqlite", "is the same recording as old.qdrep, which is read instead"),
    ]
    assert not list((tmp_path / "temporary").iterdir())


def test_reports_that_nsys_can_not_export(
    nsys: Path, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, message in (
        ("fail", r"fail.nsys-rep: \S+/bin/nsys ended with code 3: unknown\\x1b\[1m version; TRACECONV_NSYS selects"),
        ("full", "ended with code 0: it gave no reason"),
    ):
        with pytest.raises(InputError, match=message):
            ingest([in_own_format(report, tmp_path / f"{name}.nsys-rep")], tmp_path / "s.duckdb")
    monkeypatch.setenv("TRACECONV_NSYS", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"can't run .*none to export .*No such file"):
        ingest([tmp_path / "fail.nsys-rep"], tmp_path / "s.duckdb")
    assert not list((tmp_path / "temporary").iterdir())


def is_running(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_ends_nsys(nsys: Path, report: Path, tmp_path: Path, jobs: int) -> None:
    for name in ("hang1", "hang2"):
        in_own_format(report, tmp_path / f"all/{name}.nsys-rep")
    process = subprocess.Popen(
        [*TRACECONV, "ingest", str(tmp_path / "all"), "--db", str(tmp_path / "s.duckdb"), "--jobs", str(jobs)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    pids = tmp_path / "pids"
    wait_until(process, lambda: pids.exists() and len(pids.read_text().split()) >= 2)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1].endswith("traceconv: interrupted\n")
    for pid in map(int, pids.read_text().split()):
        until = time.monotonic() + 20
        while is_running(pid):
            assert time.monotonic() < until
            time.sleep(0.01)
    assert not list((tmp_path / "temporary").iterdir())
    assert not (tmp_path / "s.duckdb").exists()
