"""Small output folders of msprof and torch_npu, written by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

# A time of today in µs, that no double holds to the nanosecond.
T0 = 1_736_408_883_709_301
OP_SUMMARY = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles"
)
TASK_TIME = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
STEP_TRACE = (
    "Device_id,Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),FP to BP Time(us),"
    "Iteration Refresh(us),Data Aug Bound(us),Model ID,Reduce Start(us),Reduce Duration(us)"
)
FUSION_OP = (
    "Device_id,Model Name,Model ID,Fusion Op,Original Ops,Memory Input(KB),Memory Output(KB),Memory Weight(KB),"
    "Memory Workspace(KB),Memory Total(KB)"
)
OP_STATISTIC = "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"
KERNELS = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    "Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID"
)


def write(path: Path, header: str, rows: Sequence[Sequence[object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerows([header.split(","), *rows])
    path.write_text(text.getvalue(), encoding="utf-8", newline="")


def op_row(task: int, name: str, op_type: str, start: str, dur: str, wait: str) -> tuple[object, ...]:
    shapes = ('"1,3,8,8;4,3,3,3"', "FLOAT16;FLOAT16", "NCHW;NCHW", '"1,4,6,6"', "FLOAT16", "NCHW")
    return 0, 7, task, 2, name, op_type, "static", "AI_CORE", start, dur, wait, 8, 0, "NO", *shapes, "N/A", dur, 1234


def msprof_folder(tmp_path: Path) -> Path:
    """Tables without a timeline, as msprof exports them."""
    prof = tmp_path / "PROF_000001_20260101000000_ABCDEF"
    out = prof / "mindstudio_profiler_output"
    out.mkdir(parents=True)
    write(out / "op_summary_20260101000001.csv", OP_SUMMARY, [
        op_row(3, "conv_1", "Conv2D", f"{T0}.001", "10.5", "0"),
        op_row(4, "relu_1", "Relu", f"{T0 + 20}.999\t", "1.002", "10.498"),
        op_row(5, "conv_2", "Conv2D", f"{T0 + 30}.123", "7.25", "8.122"),
    ])  # fmt: skip
    write(out / "task_time_20260101000001.csv", TASK_TIME, [
        (0, "conv_1", "AI_CORE", 2, 3, "10.5", f"{T0}.001", f"{T0 + 10}.501"),
        (0, "relu_1", "AI_CORE", 2, 4, "1.002", f"{T0 + 20}.999", f"{T0 + 22}.001"),
        (0, "conv_2", "AI_CORE", 2, 5, "7.25", f"{T0 + 30}.123", f"{T0 + 37}.373"),
        (0, "EVENT_WAIT", "EVENT_WAIT", 2, 6, "0.02", f"{T0 + 40}", f"{T0 + 40}.02"),
    ])  # fmt: skip
    write(out / "step_trace_20260101000001.csv", STEP_TRACE, [
        (0, 1, f"{T0}", f"{T0 + 15}.5", f"{T0 + 18}", "18", "15.5", "2.5", "N/A", 7, f"{T0 + 16}", "1.5"),
        (0, 2, f"{T0 + 19}", f"{T0 + 39}", f"{T0 + 41}", "22", "20", "2", "1", 7, f"{T0 + 39}", "1"),
    ])  # fmt: skip
    write(out / "fusion_op_20260101000001.csv", FUSION_OP, [
        (0, "net", 7, "conv_1", "conv_1a;bias_1;bn_1", "1.5", "2", "0.25", "0", "3.75"),
    ])  # fmt: skip
    # Conv2D: 10.5 + 7.25; Relu: 1.002; all: 18.752.
    write(out / "op_statistic_20260101000001.csv", OP_STATISTIC, [
        (0, "Conv2D", "AI_CORE", 2, "17.75", "7.25", "8.875", "10.5", "94.657"),
        (0, "Relu", "AI_CORE", 1, "1.002", "1.002", "1.002", "1.002", "5.343"),
    ])  # fmt: skip
    return prof


def torch_npu_folder(tmp_path: Path, *, damaged: bool) -> Path:
    """A timeline with three kernels and the table of the same three."""
    recording = tmp_path / "host_1_20260101000000_ascend_pt"
    out = recording / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 9, "tid": 0, "name": "process_name", "args": {"name": "Ascend Hardware"}},
        {"ph": "M", "pid": 9, "tid": 2, "name": "thread_name", "args": {"name": "Stream 2"}},
    ]
    rows = []
    for task, (name, op_type, dur) in enumerate((("a", "Add", "1.25"), ("b", "Mul", "2.5"), ("c", "Add", "0.75")), 10):
        start = f"{T0 + task * 10}.{task:03}"
        args = {"Task Type": "AI_VECTOR_CORE", "Stream Id": 2, "Task Id": task}
        events.append({"ph": "X", "pid": 9, "tid": 2, "name": name, "ts": start, "dur": dur, "args": args})
        wait = {10: "0", 11: "8.751", 12: "7.501"}[task]
        core = ("dynamic", "AI_VECTOR_CORE")
        shapes = ('"4,4"', "FLOAT", "ND", '"4,4"', "FLOAT", "ND", "N/A")
        rows.append((1, 4294967295, task, 2, name, op_type, *core, start, dur, wait, 4, 0, "NO", *shapes))
    write(out / "kernel_details.csv", KERNELS, rows)
    (out / "trace_view.json").write_text(json.dumps(events), encoding="utf-8")
    if damaged:
        table = out / "kernel_details.csv"
        lines = table.read_bytes().splitlines(keepends=True)
        lines[2] = lines[2][:20] + b"\r\n"
        table.write_bytes(b"".join(lines))
    return recording
