"""The views launch_delay and launching_range use correlation IDs and need no flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ingest_checks import rows_of

BASE_US = 1_700_000_000_000_000


def torch(events: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schemaVersion": 1, "traceEvents": events}


def slice_of(cat: str, name: str, us: int, dur: int, correlation: int, **args: Any) -> dict[str, Any]:
    track = {"pid": 0, "tid": 7} if "stream" in args else {"pid": 1, "tid": 1}
    place = {"ts": BASE_US + us, "dur": dur, "args": {"correlation": correlation, **args}}
    return {"ph": "X", "cat": cat, "name": name, **track, **place}


def test_delays_of_a_trace_without_flows(tmp_path: Path) -> None:
    on = {"device": 0, "stream": 7}
    events = [
        slice_of("cuda_runtime", "cudaLaunchKernel", 10, 5, 1),
        slice_of("kernel", "late", 40, 7, 1, **on),
        slice_of("cuda_runtime", "cudaLaunchKernel", 50, 9, 2),
        slice_of("kernel", "before its call returned", 56, 1, 2, **on),
        # One call launches a graph of two kernels.
        slice_of("cuda_runtime", "cudaGraphLaunch", 70, 4, 3),
        slice_of("kernel", "first of graph", 80, 2, 3, **on),
        slice_of("kernel", "second of graph", 90, 2, 3, **on),
        # The driver call starts with the runtime call and has the same ID.
        slice_of("cuda_runtime", "cudaMemcpyAsync", 100, 4, 4),
        slice_of("cuda_driver", "cuMemcpyAsync", 100, 3, 4),
        slice_of("gpu_memcpy", "Memcpy HtoD", 110, 2, 4, **on, bytes=8),
        # Its call is not in the trace.
        slice_of("kernel", "unknown", 120, 2, 99, **on),
    ]
    rows = rows_of(
        torch(events),
        tmp_path,
        "SELECT name, kind, call_ns, dur_ns, delay_ns, after_call_ns FROM launch_delay ORDER BY start_ns",
    )
    assert rows == [
        ("late", "compute", 5000, 7000, 30000, 25000),
        ("before its call returned", "compute", 9000, 1000, 6000, -3000),
        ("first of graph", "compute", 4000, 2000, 10000, 6000),
        ("second of graph", "compute", 4000, 2000, 20000, 16000),
        ("Memcpy HtoD", "copy", 4000, 2000, 10000, 6000),
    ]


def host_slice(cat: str, name: str, us: int, dur: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": BASE_US + us, "dur": dur, "args": args}


def test_a_task_belongs_to_the_innermost_range_around_its_call(tmp_path: Path) -> None:
    on = {"device": 0, "stream": 7}
    events = [
        host_slice("user_annotation", "forward", 0, 100),
        host_slice("cpu_op", "aten::linear", 10, 50),
        slice_of("cuda_runtime", "cudaLaunchKernel", 12, 3, 1),
        slice_of("kernel", "bias", 20, 2, 1, **on),
        host_slice("cpu_op", "aten::addmm", 20, 30),
        # The driver call is inside the runtime call and has its own ID.
        slice_of("cuda_runtime", "cudaLaunchKernelExC", 25, 9, 2),
        slice_of("cuda_driver", "cuLaunchKernelEx", 26, 5, 3),
        slice_of("kernel", "gemm", 40, 30, 3, **on),
        slice_of("cuda_runtime", "cudaMemsetAsync", 120, 3, 4),
        slice_of("gpu_memset", "Memset (Device)", 130, 1, 4, **on, bytes=4),
        slice_of("kernel", "unknown", 140, 1, 77, **on),
    ]
    rows = rows_of(
        torch(events), tmp_path, "SELECT name, range_kind, range_name, dur_ns FROM launching_range ORDER BY start_ns"
    )
    assert rows == [
        ("bias", "host_op", "aten::linear", 2000),
        ("gemm", "host_op", "aten::addmm", 30000),
        ("Memset (Device)", None, None, 1000),
    ]


def test_a_flow_identifies_the_operator_if_another_thread_makes_the_call(tmp_path: Path) -> None:
    """torch_npu queues its work: the call is in no operator, but flows lead from both of them to the task."""

    def at(pid: int, tid: int, us: int, **more: Any) -> dict[str, Any]:
        return {"pid": pid, "tid": tid, "ts": BASE_US + us, **more}

    def arrow(name: str, category: str, number: int) -> dict[str, Any]:
        return {"cat": category, "name": name, "id": number}

    queued, launched = arrow("torch_to_npu", "async_npu", 1), arrow("HostToDevice5", "HostToDevice", 5)
    connection = {"args": {"connection_id": 5}}
    events = [
        *(
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
            for pid, name in ((1, "Python"), (2, "CANN"), (3, "Ascend Hardware"))
        ),
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 2, "args": {"name": "Stream 2"}},
        at(1, 1, 0, ph="X", cat="cpu_op", name="aten::add", dur=5),
        at(1, 1, 1, ph="s", **queued),
        at(2, 7, 20, ph="X", name="Node@launch", dur=3, **connection),
        at(2, 7, 20, ph="s", **launched),
        at(3, 2, 40, ph="X", name="Add", dur=9, **connection),
        at(3, 2, 40, ph="f", bp="e", **launched),
        at(3, 2, 40, ph="f", bp="e", **queued),
    ]
    rows = rows_of(
        events,
        tmp_path,
        "SELECT l.name, a.name, l.range_kind, l.range_name FROM launching_range AS l JOIN api AS a ON a.id = l.api_id",
    )
    assert rows == [("Add", "launch", "host_op", "aten::add")]


def test_program_functions_are_not_operators(tmp_path: Path) -> None:
    on = {"device": 0, "stream": 7}
    events = [
        host_slice("python_function", "train.py(7): step", 0, 400),
        host_slice("user_annotation", "forward", 1, 300),
        host_slice("python_function", "nn.Module: Linear_0", 2, 60),
        host_slice("cpu_op", "aten::linear", 5, 50),
        # The operator calls a function, which launches.
        host_slice("python_function", "<built-in function launch>", 10, 20),
        slice_of("cuda_runtime", "cudaLaunchKernel", 12, 3, 1),
        slice_of("kernel", "inside of a function of an operator", 20, 2, 1, **on),
        host_slice("python_function", "triton.py(3): run", 100, 50),
        slice_of("cuda_driver", "cuLaunchKernel", 110, 3, 2),
        slice_of("kernel", "without an operator", 120, 2, 2, **on),
        host_slice("cpu_op", "graph replay", 200, 50),
        slice_of("cuda_runtime", "cudaGraphLaunch", 210, 9, 3),
        slice_of("kernel", "of a graph", 220, 2, 3, **on),
        slice_of("kernel", "of the same graph", 230, 2, 3, **on),
        slice_of("cuda_runtime", "cudaLaunchKernel", 350, 3, 4),
        slice_of("kernel", "in a function alone", 360, 2, 4, **on),
    ]
    rows = rows_of(
        torch(events),
        tmp_path,
        "SELECT name, found_by, range_kind, range_name, frame_name FROM launching_range ORDER BY start_ns",
    )
    step = "train.py(7): step"
    assert rows == [
        ("inside of a function of an operator", "call", "host_op", "aten::linear", "<built-in function launch>"),
        ("without an operator", "call", "annotation", "forward", "triton.py(3): run"),
        ("of a graph", "graph", "host_op", "graph replay", step),
        ("of the same graph", "graph", "host_op", "graph replay", step),
        ("in a function alone", "call", None, None, step),
    ]


def test_flows_identify_the_operator_if_calls_are_not_recorded(tmp_path: Path) -> None:
    """torch_npu at Level0 records no CANN calls. With Python stacks, a flow may start in a function."""
    names = ((1, "Python"), (3, "Ascend Hardware"))
    events: list[dict[str, Any]] = [
        *({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names),
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 2, "args": {"name": "Stream 2"}},
        host_slice("python_function", "main", 0, 90),
        host_slice("cpu_op", "aten::add", 10, 10),
        host_slice("cpu_op", "aten::mul", 30, 20),
        host_slice("python_function", "<built-in function mul>", 35, 10),
    ]
    for number, (begins, name) in enumerate([(10, "Add"), (36, "Mul"), (70, "Other")]):
        arrow = {"cat": "async_npu", "name": "torch_to_npu", "id": number}
        task = {"pid": 3, "tid": 2, "ts": BASE_US + 100 + 10 * number}
        events += [
            {"ph": "s", "pid": 1, "tid": 1, "ts": BASE_US + begins, **arrow},
            {"ph": "X", "name": name, "dur": 5, **task},
            {"ph": "f", "bp": "e", **task, **arrow},
        ]
    rows = rows_of(
        events,
        tmp_path,
        "SELECT name, api_id, found_by, range_name, frame_name FROM launching_range ORDER BY start_ns",
    )
    assert rows == [
        ("Add", None, "flow", "aten::add", "main"),
        ("Mul", None, "flow", "aten::mul", "<built-in function mul>"),
        ("Other", None, "flow", None, "main"),
    ]
