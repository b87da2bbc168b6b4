"""How writers of traces are identified, and how the rules of some classify events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken


def stored(trace: Any, folder: Path) -> duckdb.DuckDBPyConnection:
    run, store = taken(trace, folder)
    assert not run.log
    return duckdb.connect(str(store), read_only=True)


def slice_of(name: str, ts: int, dur: int, pid: int = 1, tid: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **more}


def named(pid: int, name: str, tid: int | None = None) -> dict[str, Any]:
    if tid is None:
        return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


@pytest.mark.parametrize(
    ("keys", "event", "writer", "kind"),
    [
        ({"viztracer_metadata": {"version": "1.1.1"}}, {"cat": "fee"}, "VizTracer", "frame"),
        ({"beginningOfTime": 1}, {}, "clang -ftime-trace", "annotation"),
        ({"otherData": {}}, {"cat": "action processing"}, "Bazel", "annotation"),
        ({}, {"cat": "node,node.fs,node.fs.sync"}, "Node.js", "annotation"),
        ({}, {"cat": "py-spy"}, "py-spy", "frame"),
        ({}, {"cat": "toplevel"}, "Chrome", "annotation"),
        ({}, {"cat": "mine"}, None, "annotation"),
    ],
)
def test_writers(keys: dict[str, Any], event: dict[str, Any], writer: str | None, kind: str, tmp_path: Path) -> None:
    with stored({**keys, "traceEvents": [slice_of("a", 1, 2, **event)]}, tmp_path) as store:
        assert store.execute("SELECT writer FROM run").fetchall() == [(writer,)]
        assert store.execute("SELECT name, start_ns, dur_ns, kind FROM range").fetchall() == [("a", 1000, 2000, kind)]


def test_jax_kernels_on_a_gpu(tmp_path: Path) -> None:
    events = [
        named(1, "/device:GPU:1 NVIDIA H100"),
        named(1, "Stream #13(Compute,MemcpyD2D)", 13),
        named(1, "XLA Ops", 14),
        named(701, "/host:CPU"),
        slice_of("loop_fusion", 0, 5, 1, 13, args={"correlation_id": 7, "hlo_op": "fusion"}),
        slice_of("MemcpyD2D", 6, 2, 1, 13, args={"correlation_id": "8"}),
        slice_of("ncclDevKernel_AllReduce_Sum", 9, 3, 1, 13),
        slice_of("fusion", 0, 5, 1, 14),
        slice_of("python", -9, 59, 701, 1),
        slice_of("cuLaunchKernelEx", -7, 2, 701, 1, args={"correlation_id": "7", "context_id": "$$1"}),
        slice_of("hipMemcpyAsync", -3, 1, 701, 1, args={"correlation_id": 8}),
        {},
    ]
    with stored(
        {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events}, tmp_path
    ) as store:
        assert store.execute("SELECT writer FROM run").fetchall() == [("JAX, TensorFlow (XLA profiler)",)]
        tasks = (
            "name, kind, device_id, stream_id, correlation_id, submit_ns, start_ns, dur_ns FROM task ORDER BY start_ns"
        )
        assert store.execute(f"SELECT {tasks}").fetchall() == [
            ("loop_fusion", "compute", 1, 13, 7, -7000, 0, 5000),
            ("MemcpyD2D", "copy", 1, 13, 8, -3000, 6000, 2000),
            ("ncclDevKernel_AllReduce_Sum", "collective", 1, 13, None, None, 9000, 3000),
        ]
        assert store.execute("SELECT name, level FROM api ORDER BY start_ns").fetchall() == [
            ("cuLaunchKernelEx", "driver"), ("hipMemcpyAsync", "runtime")
        ]  # fmt: skip
        assert store.execute("SELECT name FROM range ORDER BY name").fetchall() == [("fusion",), ("python",)]


def test_jax_steps_have_their_numbers_in_args(tmp_path: Path) -> None:
    # As JAX 0.10 writes the annotations StepTraceAnnotation("train", step_num=…).
    events = [
        named(1, "/device:GPU:0 NVIDIA H100"),
        named(1, "Stream #13(Compute)", 13),
        named(701, "/host:CPU"),
        slice_of("train", 0, 50, 701, 1, args={"step_num": "4"}),
        slice_of("PjitFunction(step)", 1, 40, 701, 1),
        slice_of("loop_fusion", 10, 5, 1, 13),
        slice_of("train", 60, 30, 701, 1, args={"step_num": 5, "_r": "1"}),
        slice_of("eval", 95, 5, 701, 1, args={"i": "7"}),
        slice_of("train", 110, 5, 701, 1, args={"step_num": "last"}),
        slice_of("$loop.py:3 run", 0, 99, 701, 2, args={"step_num": "9"}),
    ]
    with stored({"displayTimeUnit": "ns", "traceEvents": events}, tmp_path) as store:
        steps = "SELECT step_id, device_id, iteration, start_ns, end_ns FROM step ORDER BY step_id"
        assert store.execute(steps).fetchall() == [(4, 0, 4, 0, 50000), (5, None, 5, 60000, 90000)]
        assert store.execute("SELECT step_id FROM task").fetchall() == [(4,)]
        functions = "SELECT name FROM range WHERE kind <> 'annotation'"
        assert store.execute(functions).fetchall() == [("$loop.py:3 run",)]
        inside = "SELECT step_id FROM range WHERE name IN ('PjitFunction(step)', 'eval') ORDER BY start_ns"
        assert store.execute(inside).fetchall() == [(4,), (None,)]


def test_each_kernel_of_a_tensorflow_timeline_is_one_task(tmp_path: Path) -> None:
    events = [
        named(3, "/job:localhost/replica:0/task:0/gpu:0 Compute"),
        named(5, "/gpu:0/stream:all Compute"),
        named(7, "/gpu:0/stream:12 Compute"),
        named(9, "/gpu:0/memcpy Compute"),
        named(11, "/gpu:0/stream:13 Compute"),
        *(
            slice_of("MatMul", 1, 4, pid, 0, cat="Op", args={"name": "layer/MatMul", "op": "MatMul"})
            for pid in (3, 5, 7)
        ),
        *(
            slice_of("MEMCPYHtoD", 9, 2, pid, 0, cat="Op", args={"name": "edge_1", "op": "MEMCPYHtoD"})
            for pid in (9, 11)
        ),
    ]
    with stored({"traceEvents": events}, tmp_path) as store:
        assert store.execute("SELECT writer FROM run").fetchall() == [("TensorFlow timeline",)]
        ops = store.execute("SELECT op_type, core_type, count::INT, total_ns::BIGINT FROM op_statistic").fetchall()
        assert ops == [("MatMul", "SM", 1, 4000)]
        tasks = store.execute("SELECT kind, device_id, stream_id FROM task ORDER BY start_ns").fetchall()
        assert tasks == [("compute", 0, 12), ("copy", 0, 13)]
        assert store.execute("SELECT kind FROM range ORDER BY id").fetchall() == [
            ("host_op",),
            ("annotation",),
            ("annotation",),
        ]


def test_rpd2tracing(tmp_path: Path) -> None:
    """Events of rocmProfileData have no categories: its flows and the names of threads show what wrote them."""

    def on_gpu(name: str, ts: float, dur: float, **args: str) -> dict[str, Any]:
        slice_ = slice_of(name, 0, 0, args=args)
        return {**slice_, "pid": "1", "tid": "4", "ts": str(ts), "dur": str(dur)}

    def flow(ph: str, number: int, pid: str, tid: str, ts: float) -> dict[str, Any]:
        return {"ph": ph, "pid": pid, "tid": tid, "cat": "api_op", "name": "api_op", "ts": str(ts), "id": str(number)}

    call = {"pid": "77", "tid": "78"}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": "1", "args": {"name": "GPU1"}},
        {"name": "thread_name", "ph": "M", "pid": "77", "tid": "78", "args": {"name": "Hip 78"}},
        on_gpu("void add<float>(int)", 120.125, 10.5, desc="KernelExecution"),
        on_gpu("ncclDevKernel_AllReduce", 131, 5, desc="KernelExecution"),
        on_gpu("CopyHostToDevice", 137, 4, desc="CopyHostToDevice"),
        on_gpu("Fill", 142, 2, desc="Memcpy"),
        on_gpu("Barrier", 145, 1, desc="Barrier"),
        on_gpu("Graph 0x55", 120.125, 16, kernels="2"),
        on_gpu("forward", 119.125, 27, desc="UserMarker frame: 4 ops"),
        {**slice_of("hipGraphLaunch", 0, 0), **call, "ts": "100.0", "dur": "6.25", "args": {"desc": "stream=0x1"}},
        {**slice_of("step 3", 0, 0), **call, "ts": "90.0", "dur": "30.0", "args": {"desc": "step 3"}},
        {**slice_of("hsa_queue_create", 0, 0), **call, "tid": "79", "ts": "200.0", "dur": "1.0"},
        flow("s", 1, "77", "78", 104.25),
        {**flow("f", 1, "1", "4", 120.125), "bp": "e"},
    ]
    with stored([{}, *events], tmp_path) as store:
        found = "SELECT name, kind, device_id, stream_id, start_ns, submit_ns FROM task ORDER BY start_ns"
        assert store.execute(found).fetchall() == [
            ("void add<float>(int)", "compute", 1, 4, 120125, 100000),
            ("ncclDevKernel_AllReduce", "collective", 1, 4, 131000, None),
            ("CopyHostToDevice", "copy", 1, 4, 137000, None),
            ("Fill", "copy", 1, 4, 142000, None),
            ("Barrier", "sync", 1, 4, 145000, None),
        ]
        assert store.execute("SELECT name, kind FROM range ORDER BY name, kind").fetchall() == [
            ("Graph 0x55", "summary"),
            ("forward", "annotation"),
            ("step 3", "annotation"),
        ]
        assert store.execute("SELECT name, level FROM api ORDER BY start_ns").fetchall() == [
            ("hipGraphLaunch", "runtime"),
            ("hsa_queue_create", "driver"),
        ]
        assert store.execute("SELECT writer FROM run").fetchall() == [("rocmProfileData",)]
        assert store.execute("SELECT iteration FROM step").fetchall() == [(3,)]
