"""How writers of traces are identified, and how the rules of some classify events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken, taken_from
from perfetto_builder import Fixed64, begin, end, message, packet, process, thread, track

from traceconv.pipeline.ingest import ingest


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
        ({"viztracer_metadata": {}, "trace_id": "A"}, {"cat": "FEE"}, "PyTorch profiler (Kineto)", "frame"),
        ({"beginningOfTime": 1}, {}, "clang -ftime-trace", "annotation"),
        ({"otherData": {}}, {"cat": "action processing"}, "Bazel", "annotation"),
        ({}, {"cat": "node,node.fs,node.fs.sync"}, "Node.js", "annotation"),
        ({}, {"cat": "py-spy"}, "py-spy", "frame"),
        ({}, {"cat": "toplevel"}, "Chrome", "annotation"),
        ({}, {"cat": "dynamo_timed"}, "PyTorch compiler", "annotation"),
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
        assert store.execute("SELECT name, kind FROM range ORDER BY name").fetchall() == [
            ("fusion", "summary"), ("python", "annotation")
        ]  # fmt: skip
        assert store.execute("SELECT name, place FROM range_statistic").fetchall() == [("python", "host")]


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
    """Events of rpd2tracing have no categories: its flows and the names of threads show what wrote them."""

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
        assert store.execute("SELECT writer FROM run").fetchall() == [("rpd2tracing",)]
        assert store.execute("SELECT iteration FROM step").fetchall() == [(3,)]


def test_proton(tmp_path: Path) -> None:
    """Triton's profiler. Its first format has a document for each stream, whose times are in ns."""

    def kernel(name: str, ts: float, dur: float, tid: int, **more: Any) -> dict[str, Any]:
        args = {"call_stack": ["ROOT", name]}
        return {"name": name, "cat": "kernel", "ph": "X", "ts": ts, "dur": dur, "tid": tid, "args": args, **more}

    flow = {"name": "launch->kernel", "cat": "flow", "pid": 0, "id": 3, "bp": "e"}
    events: list[dict[str, Any]] = [
        named(0, "CPU Thread 0", 0),
        named(0, "GPU Stream 7", 200007),
        slice_of("matmul", 1, 10, 0, 0, cat="scope", args={"call_stack": ["ROOT", "matmul"]}),
        {**flow, "ph": "s", "tid": 0, "ts": 1.0},
        {**flow, "ph": "f", "tid": 200007, "ts": 30.125},
        {**flow, "ph": "s", "tid": 0, "ts": 1.0},
        {**flow, "ph": "f", "tid": 200007, "ts": 40.0},
        kernel("matmul_kernel", 30.125, 4.5, 200007, pid=0),
        kernel("ncclDevKernel_AllReduce_Sum", 40.0, 2.0, 200007, pid=0),
    ]
    tasks = "SELECT name, kind, stream_id, start_ns, dur_ns FROM task ORDER BY stream_id, start_ns"
    with stored({"displayTimeUnit": "us", "traceEvents": events}, tmp_path) as store:
        assert store.execute(tasks).fetchall() == [
            ("matmul_kernel", "compute", 7, 30125, 4500),
            ("ncclDevKernel_AllReduce_Sum", "collective", 7, 40000, 2000),
        ]
        assert store.execute("SELECT kind FROM range").fetchall() == [("annotation",)]
        assert store.execute("SELECT kind, src_ns, dst_ns FROM flow").fetchall() == [
            ("launch", 1000, 30125),
            ("launch", 1000, 40000),
        ]
    of_streams = [{"traceEvents": [kernel("k", 0, 1500, tid), kernel("k", 9000, 640, tid)]} for tid in (0, 7)]
    (tmp_path / "first.json").write_text("".join(f"{json.dumps(one)}\n" for one in of_streams))
    [run] = ingest([tmp_path / "first.json"], tmp_path / "first.duckdb")
    assert not run.lossy
    with duckdb.connect(str(tmp_path / "first.duckdb"), read_only=True) as store:
        assert store.execute(tasks).fetchall() == [
            ("k", "compute", stream, start, dur) for stream in (0, 7) for start, dur in ((0, 1500), (9000, 640))
        ]


def test_protons_perfetto_traces(tmp_path: Path) -> None:
    """Their flows have no category. Of several ends of one, only the first is drawn, as Perfetto's viewer does.

    Later versions name the devices.
    """
    slices = [
        (1000, 1000, 11000, "matmul", "scope", (36, 3)),
        (2007, 30125, 34625, "matmul_kernel", "kernel", (42, 3)),
        (3008, 35000, 36000, "ncclDevKernel_AllReduce_Sum", "kernel", (42, 3)),
    ]
    packets = [packet((60, message((1, 1), (2, "Trace"), (3, message((1, 0), (6, "Trace"))))))]
    packets += [track(1000, "CPU Thread 0", (5, 1)), track(2007, "GPU Stream 7", (5, 1))]
    packets += [track(3008, "GPU Device 1 Stream 8", (5, 1))]
    for uuid, start_ns, end_ns, name, category, flow in slices:
        note = (4, message((10, "call_stack_0"), (6, "ROOT")))
        packets += [begin(start_ns, uuid, name, (22, category), note, flow), end(end_ns, uuid)]
    (tmp_path / "proton.pftrace").write_bytes(b"".join(packets))
    _, store = taken_from(tmp_path / "proton.pftrace", tmp_path)
    tasks = "SELECT name, kind, device_id, stream_id, start_ns, dur_ns FROM task ORDER BY start_ns"
    assert store.execute(tasks).fetchall() == [
        ("matmul_kernel", "compute", None, 7, 30125, 4500),
        ("ncclDevKernel_AllReduce_Sum", "collective", 1, 8, 35000, 1000),
    ]
    assert store.execute("SELECT kind, src_ns, dst_ns FROM flow").fetchall() == [("launch", 1000, 30125)]


def test_proton_inside_of_a_kernel(tmp_path: Path) -> None:
    """Flows between the warps of an instrumented kernel launch nothing."""
    warp = {"pid": "matmul Core3 CTA0", "args": {"call_stack": ["ROOT"]}, "ph": "X"}
    end = {**warp, "cat": "flow", "name": "tma", "dur": 0, "bind_id": 1}
    events = [
        {**warp, "cat": "matmul", "name": "mma", "tid": "warp 0 (line 0)", "ts": 0.057, "dur": 0.5},
        {**end, "tid": "warp 0 (line 0)", "ts": 0.1, "flow_out": True},
        {**end, "tid": "warp 1 (line 0)", "ts": 0.3, "flow_in": True},
    ]
    with stored({"displayTimeUnit": "ns", "traceEvents": events}, tmp_path) as store:
        assert store.execute("SELECT writer FROM run").fetchall() == [("Proton (instrumented kernels)",)]
        assert store.execute("SELECT name, start_ns, dur_ns FROM range ORDER BY start_ns").fetchall() == [
            ("mma", 57, 500),
            ("tma", 100, 0),
            ("tma", 300, 0),
        ]
        assert store.execute("SELECT kind, src_ns, dst_ns FROM flow").fetchall() == [("other", 100, 300)]


def test_kernels_of_webgpu_in_onnxruntime(tmp_path: Path) -> None:
    """Its provider gives the kernels of the GPU the category of calls; nodes are only their launches."""
    web, cpu = ({"provider": f"{kind}ExecutionProvider", "op_name": "Conv"} for kind in ("WebGpu", "CPU"))
    kernel = {"shapes": "inputs[0] = {1,3,8,8} outputs[0] = {1,4,8,8} ", "cache_key": "Conv2dMM"}
    events = [
        slice_of("/a/Conv_kernel_time", 10, 4, cat="Node", args=web),
        slice_of("/b/Conv_kernel_time", 15, 2, cat="Node", args=cpu),
        slice_of("graph_execute", 30, 5, cat="Api", args={}),
        slice_of("/a/Conv&Conv&Transpose", 40, 31, -1, -1, cat="Api", args=kernel),
        slice_of("/a/Conv&Conv&Conv2dMM", 71, 90, -1, -1, cat="Api", args=kernel),
    ]
    tasks = (
        "SELECT t.name, o.op_type, t.device_id, t.start_ns, t.dur_ns FROM task AS t JOIN op AS o USING (run_id, op_id) "
        "ORDER BY t.start_ns"
    )
    with stored(events, tmp_path) as store:
        assert store.execute(tasks).fetchall() == [
            ("/b/Conv_kernel_time", "Conv", 0, 15000, 2000),
            ("/a/Conv&Conv&Transpose", "Conv", None, 40000, 31000),
            ("/a/Conv&Conv&Conv2dMM", "Conv", None, 71000, 90000),
        ]
        assert store.execute("SELECT name, kind FROM range").fetchall() == [("/a/Conv_kernel_time", "host_op")]
        assert store.execute("SELECT name FROM api").fetchall() == [("graph_execute",)]


def test_kernels_of_gpus_in_onnxruntime(tmp_path: Path) -> None:
    """ROCm names a copy by its call and a stream by its address; the plug-in for CUDA names the node of a kernel."""
    node = {"ort_event_name": "/a/MatMul_kernel_time", "ort_op_name": "MatMul", "ort_node_index": "3"}
    events = [
        slice_of("/a/MatMul_kernel_time", 20, 10, cat="Node", args={"provider": "CUDAExecutionProvider"}),
        slice_of("sgemm", 60, 30, -1, -1, cat="Kernel", args={"stream": "7", **node}),
        slice_of("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 95, 20, -1, -1, cat="Kernel", args={"stream": "13"}),
        slice_of("hipMemcpyAsync", 120, 40, -1, -1, cat="Kernel", args={"stream": "0x55d0c8a0", "kind": "D2H"}),
        slice_of("hipMemset", 170, 5, -1, -1, cat="Kernel", args={"stream": "0", "size": "256"}),
        slice_of("MemcpyHostToDevice", 180, 8, -1, -1, cat="Kernel", args={"stream": "7"}),
    ]
    tasks = (
        "SELECT t.name, kind, stream_id, size_bytes, op_type, source_task_id FROM task AS t "
        "LEFT JOIN op AS o USING (run_id, op_id) ORDER BY t.start_ns"
    )
    with stored(events, tmp_path) as store:
        assert store.execute(tasks).fetchall() == [
            ("sgemm", "compute", 7, None, "MatMul", 3),
            ("ncclDevKernel_AllReduce_Sum_f16_RING_LL", "collective", 13, None, events[2]["name"], None),
            ("hipMemcpyAsync", "copy", 0x55D0C8A0, None, None, None),
            ("hipMemset", "copy", 0, 256, None, None),
            ("MemcpyHostToDevice", "copy", 7, None, None, None),
        ]
        assert store.execute("SELECT name, kind FROM range").fetchall() == [("/a/MatMul_kernel_time", "host_op")]


def test_executions_of_qnn_in_onnxruntime(tmp_path: Path) -> None:
    """Qualcomm's library reports the same execution several times, from the host to the NPU, and numbers without a time
    as kernels of no duration: only the time of the NPU is a task.
    """

    def number(name: str, ts: int, dur: int, event_type: str, unit: str = "US", **args: str) -> dict[str, Any]:
        args = {"qnn_event_type": event_type, "qnn_graph_name": "QNN_1", "unit": unit, **args}
        return slice_of(name, ts, dur, 1, 77, cat="Kernel", args=args)

    node = {"provider": "QNNExecutionProvider", "op_name": "QNN_1"}
    events = [
        number("QNN (finalize) time", 100, 8000, "FINALIZE"),
        slice_of("QNN_1_0_kernel_time", 10000, 1000, cat="Node", args=node),
        number("Number of HVX threads used", 10010, 0, "BACKEND", "COUNT", value="4"),
        number("RPC (execute) time", 10010, 950, "BACKEND"),
        number("QNN accelerator (execute) time", 10010, 900, "BACKEND"),
        number("Accelerator (execute) time (cycles)", 10010, 0, "BACKEND", "CYCLES", value="123456"),
        number("Conv_0:OpId_20 (cycles)", 10010, 0, "NODE", "CYCLES", value="100000"),
        number("Accelerator (execute) time", 10010, 800, "BACKEND"),
        number("Accelerator (execute excluding wait) time", 10010, 700, "BACKEND"),
        number("QNN (execute) time", 10010, 970, "EXECUTE"),
        number("Softmax_1", 20000, 30, "NODE"),
        number("QNN execute", 30000, 60, "HOST_OPERATION", "us", qnn_operation="execute"),
        number("QNN finalize", 31000, 60, "HOST_OPERATION", "us", qnn_operation="finalize"),
    ]
    tasks = (
        "SELECT t.name, kind, op_type, start_ns, dur_ns FROM task AS t JOIN op USING (run_id, op_id) ORDER BY start_ns"
    )
    with stored(events, tmp_path) as store:
        assert store.execute(tasks).fetchall() == [
            ("Accelerator (execute) time", "compute", "QNN_1", 10_010_000, 800_000),
            ("Softmax_1", "compute", "Softmax_1", 20_000_000, 30_000),
            ("QNN execute", "compute", "QNN_1", 30_000_000, 60_000),
        ]
        ranges = "SELECT kind, count(*), max(dur_ns) FROM range GROUP BY kind ORDER BY kind"
        assert store.execute(ranges).fetchall() == [("host_op", 1, 1_000_000), ("summary", 9, 8_000_000)]


def test_reports_of_intel_npus(tmp_path: Path) -> None:
    """A task per engine and cluster; parts of tasks, and layers, repeat their time."""
    names = {
        (0, None): "DMA", (0, 0): "DMA", (1, None): "Cluster (0)", (1, 1): "DPU", (1, 2): "DPU Variants",
        (1, 3): "Shave0", (2, None): "Cluster (1)", (2, 4): "DPU", (3, None): "Layers", (3, 5): "Layers",
    }  # fmt: skip
    events = [
        *(named(pid, name, tid) for (pid, tid), name in names.items()),
        slice_of("conv1?t_Convolution/_input", 0, 4, 0, 0, cat="DMA"),
        slice_of("conv1?t_Convolution/cluster_0", 4, 5, 1, 1, cat="DPU"),
        slice_of("conv1?t_Convolution/cluster_0/variant_0", 4, 3, 1, 2, cat="DPU"),
        slice_of("relu2?t_Relu/tile_0/cluster_0", 12, 7, 1, 3, cat="Shave", args={"Total cycles": "12119"}),
        slice_of("conv1?t_Convolution/cluster_1", 4, 6, 2, 4, cat="DPU"),
        slice_of("conv1", 0, 10, 3, 5, cat="Layer", args={"Layer type": "Convolution"}),
    ]
    with stored({"traceEvents": events, "taskStatistics": {"total duration": 19.0}}, tmp_path) as store:
        times = "SELECT compute_ns, exposed_copy_ns, idle_ns FROM breakdown"
        assert store.execute(times).fetchall() == [(13000, 4000, 2000)]
        ops = "SELECT op_type, core_type, count, total_ns FROM op_statistic ORDER BY op_type"
        assert store.execute(ops).fetchall() == [("Convolution", "DPU", 2, 11000), ("Relu", "SHAVE", 1, 7000)]
        ranges = "SELECT name, kind FROM range ORDER BY name"
        assert store.execute(ranges).fetchall() == [
            ("conv1", "summary"),
            ("conv1?t_Convolution/cluster_0/variant_0", "summary"),
        ]


def test_ops_on_hexagon_npus(tmp_path: Path) -> None:
    """The processes of ops repeat the events of the core; tensors that need no execution are none of its work."""

    def op(name: str, ts: int, dur: int, tid: int, *flags: str) -> list[dict[str, Any]]:
        args = {"HTP Op Type": name, "QNN Op Name": "conv1", "Start Cycle": 1000 + ts, "Flags": flags}
        return [slice_of(name, ts, dur, pid, tid, args=args) for pid in (0, 1)]

    names = {
        (0, None): "Core 0 Overview", (0, 1): "Non Executed Tensors", (0, 256): "Type: DMA", (0, 512): "Type: HVX",
        (0, 513): "Type: HVX", (0, 768): "Type: HMX", (1, None): "QNN::Conv2d conv1",
    }  # fmt: skip
    events = [
        *(named(pid, name, tid) for (pid, tid), name in names.items()),
        op("$Const", 0, 5, 1)[0],
        *op("weights_to_vtcm", 0, 100, 256, "dma"),
        *op("dma_checkpoint_set", 100, 3, 256, "dma_set"),
        *op("dma_checkpoint_wait", 110, 20, 512, "dma_wait"),
        *op("q::ConvLayer.opt", 130, 200, 768, "uses_hmx"),
        *op("q::Add", 140, 50, 512, "uses_hvx"),
        *op("q::Add", 140, 60, 513, "uses_hvx"),
    ]
    with stored({"header": {"artifact_type": "OP_TRACE"}, "traceEvents": events}, tmp_path) as store:
        tasks = "SELECT name, kind, device_id, core_type, start_ns, dur_ns FROM task ORDER BY start_ns, dur_ns"
        assert store.execute(tasks).fetchall() == [
            ("weights_to_vtcm", "copy", 0, None, 0, 100_000),
            ("dma_checkpoint_set", None, 0, None, 100_000, 3_000),
            ("dma_checkpoint_wait", "sync", 0, None, 110_000, 20_000),
            ("q::ConvLayer.opt", "compute", 0, "HMX", 130_000, 200_000),
            ("q::Add", "compute", 0, "HVX", 140_000, 50_000),
            ("q::Add", "compute", 0, "HVX", 140_000, 60_000),
        ]
        assert store.execute("SELECT kind, count(*) FROM range GROUP BY ALL").fetchall() == [("summary", 7)]


def test_launches_of_unitrace_in_perfetto(tmp_path: Path) -> None:
    """As it writes them with `--output-format=protobuf`: calls and commands have the same flow."""
    path = tmp_path / "unitrace.pftrace"
    path.write_bytes(
        b"".join(
            [
                process(1, 10, "HOST<node1>"), thread(2, 10, 11, "Thread 11"),
                process(3, 20, "DEVICE<node1>[Intel(R) Arc(TM) B580] 0:3:0:0 #0"),
                thread(4, 20, 21, "Thread 11 Compute<0,0>"),
                begin(150, 4, "gemm[SIMD16 {256; 1; 1} {64; 1; 1}]", (22, "gpu_op"), (47, Fixed64(1))), end(250, 4),
                begin(100, 2, "zeCommandListAppendLaunchKernel", (22, "cpu_op"), (47, Fixed64(1))), end(105, 2),
            ]
        )
    )  # fmt: skip
    ingest([path], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        found = store.execute("SELECT kind, device_id, submit_ns, start_ns, call_ns FROM task").fetchall()
        assert found == [("compute", 0, 100, 150, 5)]


def test_iree(tmp_path: Path) -> None:
    """Perfetto traces of iree-profile-render: dispatches of processors and of GPUs, on tracks without a process."""
    slices = [
        (1, 100, 900, "execute cb#1: main_dispatch_0_matmul_64x64x64_f32", "execute", 0),
        (2, 150, 800, "main_dispatch_0_matmul_64x64x64_f32", "dispatch", 0),
        (1, 950, 970, "host:fill", "fill", 0),
        (1, 980, 985, "host:alloca", "alloca", 0),
        (3, 1000, 1300, "main_dispatch_1", None, 1),
        (4, 1000, 1400, "queue-device:execute", "execute", 1),
        (4, 1500, 1600, "queue-device:copy", "copy", 1),
    ]
    names = ["host execution", "host execution lane 1", "dispatch lane 1", "device queue ops"]
    packets = [track(uuid, name) for uuid, name in enumerate(names, 1)]
    for uuid, start_ns, end_ns, name, op, device in slices:
        numbers = {"physical_device_ordinal": device, "queue_ordinal": 3, "payload_length": 64}
        notes = [(4, message((10, key), (4, value))) for key, value in numbers.items()]
        texts = {"iree_perfetto_time_domain": "iree_host_time_ns", **({"op": op} if op else {})}
        notes += [(4, message((10, key), (6, value))) for key, value in texts.items()]
        packets += [begin(start_ns, uuid, name, *notes), end(end_ns, uuid)]
    (tmp_path / "iree.pftrace").write_bytes(b"".join(packets))
    _, store = taken_from(tmp_path / "iree.pftrace", tmp_path)
    tasks = "SELECT start_ns, dur_ns, kind, task_type, device_id, stream_id, op_type, size_bytes FROM task"
    tasks += " LEFT JOIN op USING (run_id, op_id) ORDER BY start_ns"
    assert store.execute(tasks).fetchall() == [
        (150, 650, "compute", "DISPATCH", 0, 3, "matmul", None),
        (950, 20, "copy", "fill", 0, 3, None, 64),
        (1000, 300, "compute", "DISPATCH", 1, 3, "main_dispatch_1", None),
        (1500, 100, "copy", "copy", 1, 3, None, 64),
    ]
    assert store.execute("SELECT start_ns FROM range ORDER BY start_ns").fetchall() == [(100,), (980,), (1000,)]
    assert store.execute("SELECT writer FROM run").fetchall() == [("IREE",)]


def test_apex(tmp_path: Path) -> None:
    """Names of threads tell device, context and stream. Calls of OpenACC are on a stream, but not its work."""
    events = [named(0, "Process 0"), named(0, "CPU Thread 0", 0)]
    streams = ["CUDA [1:2:00007]", "HIP [1:00007]", "GPU [1]", "GPU [1:7]", "GPU [1:2:7]"]
    events += [named(0, name, tid) for tid, name in enumerate(streams, 1)]
    events.append(slice_of("cudaLaunchKernel: foo(float*)", 10, 5, 0, 0, cat="CPU", args={"GUID": 3, "Parent GUID": 1}))
    for tid in range(1, 6):
        args = {"GUID": 10 + tid, "Parent GUID": 3}
        events.append(slice_of("GPU: foo(float*)", 100 * tid, 50, 0, tid, cat="GPU", args=args))
    others = (
        "Memcpy DtoH",
        "Memset",
        "CopyDeviceToHost",
        "Unified Memcpy HTOD",
        "Stream Wait",
        "OpenACC enqueue launch",
    )
    for place, name in enumerate((*others, "Unified Memory GPU Page Fault"), 10):
        args = {"GUID": 20 + place, "Parent GUID": 0}
        events.append(slice_of(f"GPU: {name}", 100 * place, 9, 0, 1, cat="GPU", args=args))
    with stored(events, tmp_path) as store:
        kernels = "SELECT device_id, stream_id, submit_ns FROM task WHERE kind = 'compute' ORDER BY start_ns"
        expected = [(1, 7, 10_000), (1, 7, 10_000), (1, None, 10_000), (1, 7, 10_000), (1, 7, 10_000)]
        assert store.execute(kernels).fetchall() == expected
        kinds = "SELECT kind, count(*) FROM task GROUP BY kind ORDER BY kind"
        assert store.execute(kinds).fetchall() == [("compute", 5), ("copy", 4), ("sync", 1)]
        assert store.execute("SELECT op_type, total_ns FROM op_statistic").fetchall() == [("foo(float*)", 250_000)]
        assert store.execute("SELECT name FROM api").fetchall() == [("cudaLaunchKernel",)]
        assert store.execute("SELECT count(*) FROM range").fetchall() == [(2,)]


@pytest.mark.parametrize("stages", [False, True])
def test_opencl_intercept_layer(stages: bool, tmp_path: Path) -> None:
    """Commands are on the thread of their queue or, in stages, on threads without names. IDs begin at 0."""
    queue = "IOQ 0xaaab0630b770.0.0 Intel(R) Arc(TM) A770 Graphics (CL_DEVICE_TYPE_GPU)"
    commands = [
        ("clEnqueueWriteBuffer", "clEnqueueWriteBuffer", 100, 200, 30),
        ("clEnqueueNDRangeKernel( matmul )", "matmul", 120, 240, 100),
        ("clEnqueueMarkerWithWaitList", "clEnqueueMarkerWithWaitList", 130, 345, 1),
    ]
    events = [
        named(9, "app"),
        named(9, "Host Thread 4000", 4000),
        {**named(9, queue), "name": "thread_name", "tid": 1.1},
    ]
    for number, (call, name, called, start, dur) in enumerate(commands):
        args = {"id": number}
        events.append(slice_of(call, called, 5, 9, 4000, args=args))
        if stages:
            events.append(slice_of(f"{name} (Queued)", called, 20, 9, 0, args=args) | {"tid": number + 1.1})
            events.append(slice_of(f"{name} (Submitted)", called + 20, 40, 9, 0, args=args) | {"tid": number + 1.1})
            name = f"{name} (Execution)"
        events.append(slice_of(name, start, dur, 9, 0, args=args) | {"tid": number + 1.1 if stages else 1.1})
    with stored(events, tmp_path) as store:
        tasks = "SELECT kind, submit_ns, start_ns, dur_ns FROM task ORDER BY start_ns"
        assert store.execute(tasks).fetchall() == [
            ("copy", 100_000, 200_000, 30_000),
            ("compute", 120_000, 240_000, 100_000),
            ("sync", 130_000, 345_000, 1_000),
        ]
        assert store.execute("SELECT op_type, total_ns FROM op_statistic").fetchall() == [("matmul", 100_000)]
        assert store.execute("SELECT name FROM api WHERE correlation_id = 1").fetchall() == [
            ("clEnqueueNDRangeKernel",)
        ]
        assert store.execute("SELECT count(*) FROM range WHERE kind = 'summary'").fetchall() == [(6 * stages,)]


def test_ggml_on_opencl(tmp_path: Path) -> None:
    """A kernel waits in the queue while others do. Its execution follows in the file, not in time."""
    kernels = [("mul_mat", 10, 50, 90, 130), ("norm", 20, 50, 130, 130), ("mul_mat", 30, 50, 140, 170)]
    trace = [
        {"name": name, "cat": "OpenCL", "ph": kind, "ts": ts, "pid": "", "tid": side}
        for name, queued, submit, start, end in kernels
        for kind, ts, side in (
            ("B", queued, "Host"),
            ("E", submit, "Host"),
            ("B", start, "Device"),
            ("E", end, "Device"),
        )
    ]
    db = stored(trace, tmp_path)
    assert db.sql("SELECT name, kind, dur_ns FROM task ORDER BY start_ns, id").fetchall() == [
        ("mul_mat", "compute", 40_000),
        ("norm", "compute", 0),
        ("mul_mat", "compute", 30_000),
    ]
    assert db.sql("SELECT name, kind, dur_ns FROM range ORDER BY start_ns").fetchall() == [
        ("mul_mat", "summary", 40_000),
        ("norm", "summary", 30_000),
        ("mul_mat", "summary", 20_000),
    ]


def test_nsys2json(tmp_path: Path) -> None:
    """A pid and a tid are texts, which name the device and the stream or thread."""

    def event(category: str, name: str, tid: str, ts: float, **args: int) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": "Device 1",
            "tid": tid,
            "ts": ts,
            "dur": 5.5,
            "args": args,
        }

    events = [
        event("cuda", "gemm", "Stream 7", 1000.125),
        event("cuda", "ncclDevKernel_AllReduce_Sum", "Stream 13", 1010.125),
        event("nvtx", "layer", "NVTX Thread 55", 900),
        event("nvtx-kernel", "layer", "NVTX Kernel Thread 55", 1000.125),
        event("cuda_api", "cudaLaunchKernel_v7000", "CUDA API Thread 55", 950, correlationId=9),
    ]
    with stored(events, tmp_path) as store:
        assert store.execute("SELECT name, kind, device_id, stream_id, start_ns FROM task ORDER BY id").fetchall() == [
            ("gemm", "compute", 1, 7, 1000125),
            ("ncclDevKernel_AllReduce_Sum", "collective", 1, 13, 1010125),
        ]
        assert store.execute("SELECT name, kind FROM range").fetchall() == [("layer", "annotation")] * 2
        assert store.execute("SELECT name, correlation_id FROM api").fetchall() == [("cudaLaunchKernel", 9)]
