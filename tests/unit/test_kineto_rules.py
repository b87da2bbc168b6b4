"""The rules for PyTorch traces, on every kind of event and on misleading ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import rows_of, taken

BASE_US = 1_700_000_000_000_000
STREAM = {"stream": 7}
ON = {"device": 0, **STREAM}


def event(cat: str, name: str, us: int, dur: int, **args: Any) -> dict[str, Any]:
    track = {"pid": 0, "tid": args.get("stream", 7)} if args.keys() & {"device", "inDevice"} else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": cat, "name": name, **track, "ts": BASE_US + us, "dur": dur, "args": args}


EVENTS = [
    event("user_annotation", "ProfilerStep#3", 0, 100),
    event("gpu_user_annotation", "ProfilerStep#3", 40, 60, device=0),
    event("cuda_runtime", "cudaLaunchKernel", 10, 2, correlation=1),
    # Launched in the step, started after its end: it belongs to the step.
    event("kernel", "ampere_sgemm", 120, 5, correlation=1, **ON),
    event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 130, 5, **ON),
    event("kernel", "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", 140, 5, **ON),
    # Only the names are like those of copies and collectives.
    event("kernel", "void at::native::memcpy_like<float>(float*)", 150, 5, **ON),
    event("kernel", "triton_red_fused_nccl_like_0", 160, 5, **ON),
    event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 170, 5, bytes=64, **ON),
    event("gpu_memset", "Memset (Device)", 180, 5, bytes=32, **ON),
    event("cuda_sync", "Stream Wait Event", 190, 5, **ON),
    event("cuda_sync", "Context Sync", 195, 5, device=0, stream=-1),
    # The host side of a compiled kernel has the stream on which it will run.
    event("cpu_op", "triton_poi_fused_add_0", 200, 50, stream=7),
    event("mtia_ccp_events", "dma copy", 260, 5, device=1, stream=2),
    event("mtia_ccp_events", "fused_op", 270, 5, device=1, stream=2),
    event("mtia_ccp_events", "dma_request", 272, 2, device=1, stream=3, size=4096),
    event("mtia_ccp_events", "event_wait", 275, 1, device=1, stream=3),
    event("mtia_ccp_events", "event_record", 276, 1, device=1, stream=3),
    # Newer versions of the profiler use one category for all devices.
    event("kernel", "event_wait", 277, 1, device=1, stream=3),
    event("kernel", "dma_request", 278, 1, device=1, stream=3, size=64),
    # Only the name is like that of a wait.
    event("mtia_ccp_events", "event_wait_free_fused_op", 279, 1, device=1, stream=3),
    event("privateuse1_runtime", "launchKernel", 280, 5, correlation=9),
    event("xpu_driver", "zeCommandListAppendLaunchKernel", 290, 5, correlation=10),
    # Some versions use one category for all runtimes, and one for all drivers.
    event("runtime", "anyLaunch", 300, 5, correlation=11),
    event("driver", "anyDriverLaunch", 310, 5, correlation=12),
    event("xpu_sync", "zeCommandQueueSynchronize", 320, 5, correlation=13),
    event("collective_comm", "xccl::allreduce", 330, 5, Communicator_id=7),
    event("mlu_memcpy", "Memcpy DtoH", 340, 5, device=2, stream=1, bytes=8),
    event("GCU_MEMCPY", "Memcpy HtoD", 345, 5, device=2, stream=1, bytes=16),
    event("mlu_memset", "Memset", 350, 5, device=2, stream=1),
    event("GCU_MEMSET", "Memset", 355, 5, device=2, stream=1),
    event("mlu_runtime", "cnInvokeKernel", 360, 5, correlation=14),
    # A copy between devices names three of them; inDevice is that of its process in the trace.
    event(
        "gpu_memcpy",
        "Memcpy PtoP (Device -> Device)",
        370,
        5,
        fromDevice=3,
        inDevice=0,
        toDevice=2,
        inContext=1,
        **STREAM,
    ),
    event("cuda_event", "cudaEvent", 380, 0, event_id=1, **ON),
    # XPUs have queues instead of streams.
    {**event("kernel", "gemm_kernel", 390, 5, device=1, **{"sycl queue": 4}), "tid": 4},
    {**event("gpu_memcpy", "Memcpy M2D", 395, 5, device=1, bytes=24, **{"sycl queue": 5}), "tid": 5},
    # The XPU's hardware counters of gemm_kernel, around it: not another kernel.
    {**event("kernel", "metrics: gemm_kernel", 389, 7, kernel_id=9, queue="0x1", **{"GpuTime::ns": 5000}), "pid": 1},
    event("mtia_ccp_events", "hccl::all_reduce", 400, 5, device=1, stream=2),
    # Of MUSA and MetaX, and of Enflame.
    event("kernel", "mcclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(mcclWorkElem)", 410, 5, **ON),
    event("kernel", "ecclKernel_Broadcast_RING_DIRECT_SIMPLE_Sum_bfloat(ecclWorkElem)", 415, 5, **ON),
    event("musa_sync", "Stream Wait Event", 420, 5, musa_sync_kind="Stream Wait Event", **ON),
    event("mlu_notifier", "notifier", 425, 5, device=2, stream=1),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder: Path = tmp_path_factory.mktemp("kineto")
    _, store = taken({"schemaVersion": 1, "traceEvents": EVENTS}, folder)
    with duckdb.connect(str(store), read_only=True) as connection:
        yield connection


def test_tasks_by_kind(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute(
        "SELECT kind, task_type, list(left(name, 15) ORDER BY start_ns) FROM task GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert rows.fetchall() == [
        (
            "collective",
            "KERNEL",
            ["ncclDevKernel_A", "ncclKernel_Broa", "hccl::all_reduc", "mcclKernel_Send", "ecclKernel_Broa"],
        ),
        (
            "compute",
            "KERNEL",
            ["ampere_sgemm", "void at::native", "triton_red_fuse", "fused_op", "event_wait_free", "gemm_kernel"],
        ),
        ("copy", "DMA", ["dma copy", "dma_request", "dma_request"]),
        ("copy", "MEMCPY", ["Memcpy DtoH (De", "Memcpy DtoH", "Memcpy HtoD", "Memcpy PtoP (De", "Memcpy M2D"]),
        ("copy", "MEMSET", ["Memset (Device)", "Memset", "Memset"]),
        (
            "sync",
            "SYNC",
            [
                "Stream Wait Eve",
                "Context Sync",
                "event_wait",
                "event_record",
                "event_wait",
                "cudaEvent",
                "Stream Wait Eve",
                "notifier",
            ],
        ),
    ]


def test_bytes_of_copies(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute("SELECT name, size_bytes FROM task WHERE kind = 'copy' AND size_bytes IS NOT NULL")
    assert sorted(rows.fetchall()) == [
        ("Memcpy DtoH", 8),
        ("Memcpy DtoH (Device -> Pageable)", 64),
        ("Memcpy HtoD", 16),
        ("Memcpy M2D", 24),
        ("Memset (Device)", 32),
        ("dma_request", 64),
        ("dma_request", 4096),
    ]


def test_devices_and_streams_by_the_names_of_each_runtime(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute(
        "SELECT name, device_id, stream_id, context_id FROM task WHERE start_ns >= ? ORDER BY start_ns",
        [(BASE_US + 370) * 1000],
    )
    assert rows.fetchall() == [
        ("Memcpy PtoP (Device -> Device)", 0, 7, 1),
        ("cudaEvent", 0, 7, None),
        ("gemm_kernel", 1, 4, None),
        ("Memcpy M2D", 1, 5, None),
        ("hccl::all_reduce", 1, 2, None),
        ("mcclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(mcclWorkElem)", 0, 7, None),
        ("ecclKernel_Broadcast_RING_DIRECT_SIMPLE_Sum_bfloat(ecclWorkElem)", 0, 7, None),
        ("Stream Wait Event", 0, 7, None),
        ("notifier", 2, 1, None),
    ]


def test_only_kernels_are_operators(store: duckdb.DuckDBPyConnection) -> None:
    assert store.execute("SELECT sum(count)::BIGINT, sum(total_ns)::BIGINT FROM op_statistic").fetchall() == [
        (11, 51_000)
    ]


def test_a_step_contains_the_tasks_that_were_launched_in_it(store: duckdb.DuckDBPyConnection) -> None:
    steps = store.execute("SELECT iteration, start_ns - ?, end_ns - start_ns FROM step", [BASE_US * 1000]).fetchall()
    assert steps == [(3, 0, 100_000)]
    assert store.execute("SELECT name FROM task WHERE step_id IS NOT NULL").fetchall() == [("ampere_sgemm",)]


def test_annotations_and_host_sides_are_ranges(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute("SELECT kind, category, name FROM range ORDER BY start_ns").fetchall()
    assert rows == [
        ("annotation", "user_annotation", "ProfilerStep#3"),
        ("annotation", "gpu_user_annotation", "ProfilerStep#3"),
        ("host_op", "cpu_op", "triton_poi_fused_add_0"),
        ("summary", "kernel", "metrics: gemm_kernel"),
    ]


def test_calls_of_every_runtime(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute("SELECT level, name, correlation_id FROM api ORDER BY start_ns").fetchall()
    assert rows == [
        ("runtime", "cudaLaunchKernel", 1),
        ("runtime", "launchKernel", 9),
        ("driver", "zeCommandListAppendLaunchKernel", 10),
        ("runtime", "anyLaunch", 11),
        ("driver", "anyDriverLaunch", 12),
        ("runtime", "zeCommandQueueSynchronize", 13),
        ("communication", "xccl::allreduce", None),
        ("runtime", "cnInvokeKernel", 14),
    ]


def test_flows_lead_to_waits_on_a_track_of_their_own(tmp_path: Path) -> None:
    """Since PyTorch 2.13, such as "stream 7 (sync)"; the ends of their flows are still on the track of the stream."""
    calls = [event("cuda_runtime", name, us, 3, correlation=us) for us, name in ((10, "memcpy"), (20, "synchronize"))]
    copy = event("gpu_memcpy", "Memcpy HtoD", 15, 30, correlation=10, **ON)
    wait = {**event("cuda_sync", "Stream Sync", 21, 25, correlation=20, **ON), "tid": 1_000_007}
    track = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1_000_007, "args": {"name": "stream 7 (sync)"}}
    flow = {"cat": "ac2g", "name": "ac2g"}
    ends = [(call, end, call["args"]["correlation"]) for call, end in zip(calls, (copy, wait), strict=True)]
    flows = [{"ph": "s", "id": id, **flow, **{key: call[key] for key in ("pid", "tid", "ts")}} for call, _, id in ends]
    flows += [{"ph": "f", "bp": "e", "id": id, **flow, "pid": 0, "tid": 7, "ts": end["ts"]} for _, end, id in ends]
    _, path = taken({"schemaVersion": 1, "traceEvents": [*calls, track, wait, copy, *flows]}, tmp_path)
    with duckdb.connect(str(path), read_only=True) as store:
        names = (
            "SELECT a.name, t.name FROM flow AS f JOIN api AS a ON a.id = f.src_id JOIN task AS t ON t.id = f.dst_id"
        )
        assert sorted(store.execute(names).fetchall()) == [("memcpy", "Memcpy HtoD"), ("synchronize", "Stream Sync")]
        assert store.execute("SELECT DISTINCT device_id, stream_id FROM task").fetchall() == [(0, 7)]


def test_nodes_of_a_graph_that_are_shown_on_a_lane_keep_their_stream(tmp_path: Path) -> None:
    """PyTorch writes the lane of an annotated CUDA graph as `stream`; an early version wrote that key twice."""
    lane = {"pid": 0, "tid": 60, "ph": "X", "dur": 10}
    cats = ("kernel", "gpu_memcpy", "gpu_memset", "graph_event_node")
    args = (
        '"device": 0, "stream": 60, "graph node id": 5, "original_stream": 13',
        '"device": 0, "stream": 17, "graph node id": 6, "stream": 60, "original_stream": 17',
        '"device": 0, "stream": 60, "annotated_stream": 61',
        '"device": 0, "stream": 60, "graph node id": 8, "original_stream": 19',
    )
    events = [
        json.dumps({**lane, "cat": cat, "name": cat, "ts": BASE_US})[:-1] + f', "args": {{{text}}}}}'
        for cat, text in zip(cats, args, strict=True)
    ]
    trace = f'{{"deviceProperties": [], "cudaGraphInlineAnnotated": true, "traceEvents": [{", ".join(events)}]}}'
    streams = "SELECT w.name, w.stream_id, k.stream_id FROM task AS w JOIN track AS k USING (track_id)"
    rows = rows_of(trace, tmp_path, streams)
    assert sorted(rows, key=repr) == [(cat, n, None) for cat, n in sorted(zip(cats, (13, 17, 60, 19), strict=True))]


def test_npus_that_only_their_process_names(tmp_path: Path) -> None:
    """As Rebellions' NPUs are written: lanes of a device are threads, and a launch is an instant with a flow."""
    lanes = {
        "kernel": "compute",
        "gpu_memcpy": "copy",
        "privateuse1_runtime": "host",
        "privateuse1_driver": "collective",
    }
    events: list[dict[str, Any]] = []
    for device in (0, 1):
        named = {"ph": "M", "pid": device}
        events.append({**named, "name": "process_name", "tid": 0, "args": {"name": f"NPU {device}"}})
        call = {"pid": 500, "tid": 501, "ts": 100 * device}
        flow = {"cat": "ac2g", "name": "ac2g", "id": 4_026_531_840 + device}
        events.append({"ph": "X", "cat": "privateuse1_runtime", "name": "rbln launch", "dur": 0, **call})
        events.append({"ph": "s", **flow, **call})
        for tid, (cat, lane) in enumerate(lanes.items()):
            events.append({**named, "name": "thread_name", "tid": tid, "args": {"name": lane}})
            work = {"pid": device, "tid": tid, "ts": 100 * device + 10 * (tid + 1)}
            events.append({"ph": "X", "cat": cat, "name": lane, "dur": 5, "args": {"launch_id": device + 1}, **work})
            events.append({"ph": "f", "bp": "e", **flow, **work})
    rows = "SELECT t.name, t.kind, t.device_id, t.submit_ns, a.name FROM task AS t JOIN api AS a ON a.id = t.api_id"
    found = rows_of({"schemaVersion": 1, "traceEvents": events}, tmp_path, f"{rows} ORDER BY t.start_ns")
    kinds = ("compute", "copy", "collective")  # the lanes have the same names
    assert found == [(kind, kind, device, 100_000 * device, "rbln launch") for device in (0, 1) for kind in kinds]
