"""Output folders as torch_npu writes them, generated from a few kernels with the vendor's arithmetic in doubles."""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

#: A time of today in ns, which no double of µs holds.
T0 = 1_736_408_883_709_301_123
_SHAPES = ('"4,4"', "FLOAT", "ND", '"4,4"', "FLOAT", "ND")
_PIPES = ("aicore_time(us)", "aic_total_cycles", "aic_mac_time(us)", "aic_mac_ratio", "aiv_time(us)", "aiv_vec_ratio")


#: Layers of calls that a recording at level 2 has below the first, as the timeline and as the table name them.
LAYERS = (("Node", "node"), ("Runtime", "runtime"))


@dataclass(frozen=True)
class Task:
    """One row of a device. `core` None: none of the table of kernels, such as an event or a copy."""

    name: str
    op_type: str
    core: str | None
    start_ns: int
    dur_ns: int
    stream: int | None
    number: int | None
    device: int = 0
    step: int | None = None

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns

    @property
    def collective(self) -> bool:
        return (self.core or "").upper() in ("HCCL", "COMMUNICATION")


@dataclass
class Recording:
    """What happened. `steps`: (number, start, end) of the host's steps."""

    tasks: list[Task]
    steps: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def rows(self) -> list[Task]:
        """The rows of the table of kernels, by start."""
        return sorted((task for task in self.tasks if task.core is not None), key=lambda task: task.start_ns)


def made_up(seed: int, *, devices: Sequence[int] = (0,), steps: int = 2, kernels: int = 60) -> Recording:
    """Kernels on several streams, many with one name and at near times, with collectives, events and copies."""
    rng = random.Random(seed)
    found = Recording([])
    number = 100
    at = T0
    for step in range(1, steps + 1):
        begin = at
        for device in devices:
            at = begin + rng.randrange(3000, 9000)
            ends = {2: at, 3: at}
            for kernel in range(kernels):
                stream = rng.choice((2, 2, 2, 3))
                start = ends[stream] + rng.choice((1, 20, 20, 300, 700, 40_000))
                op, core = rng.choice((("Add", "AI_VECTOR_CORE"), ("Mul", "AI_VECTOR_CORE"), ("MatMulV2", "AI_CORE")))
                dur = rng.choice((20, 20, 480, 1_341, 53_841))
                number += 1
                name = f"aclnn{op}_{op}AiCore_{op}"
                found.tasks.append(Task(name, op, core, start, dur, stream, number, device, step))
                ends[stream] = start + dur
                if kernel % 9 == 4:
                    number += 1
                    event = Task("EVENT_WAIT", "", None, ends[stream] + 1, 500, stream, number, device, step)
                    found.tasks.append(event)
                    ends[stream] = event.end_ns
                if kernel % 20 == 10:
                    name = f"hcom_allReduce__586_{step}_{kernel}"
                    begun = max(ends.values()) + rng.randrange(50)
                    long = Task(name, "hcom_allReduce_", "HCCL", begun, 90_001, None, None, device, step)
                    found.tasks.append(long)
            at = max(task.end_ns for task in found.tasks)
        found.steps.append((step, begin, at - rng.randrange(500, 2000)))
        at += rng.randrange(5000)
    return found


def us(ns: int) -> str:
    """µs with three decimals, as new versions print moments."""
    return f"{ns // 1000}.{ns % 1000:03}"


def short(ns: int) -> str:
    """µs by way of a double: what old versions print."""
    return repr(ns / 1000)


def waits(rows: Sequence[Task]) -> list[float]:
    """The vendor's: µs in doubles, by device; 0 for its first row."""
    found: list[float] = []
    before: dict[int, Task] = {}
    for row in rows:
        last = before.get(row.device)
        before[row.device] = row
        if last is None:
            found.append(0)
        else:
            found.append(max(0, round(row.start_ns / 1000 - last.start_ns / 1000 - last.dur_ns / 1000, 3)))
    return found


def write_kernels(
    path: Path, rows: Sequence[Task], level: int, *, step_id: bool = True, device_id: bool = False, old: bool = False
) -> None:
    """kernel_details.csv of a level. `old`: moments went through a double."""
    header = ["Step Id"] * step_id + ["Device_id"] * device_id
    header += ["Model ID", "Task ID", "Stream ID"] if level else []
    header += ["Name", "Type", *(["OP State"] if level else []), "Accelerator Core", "Start Time(us)", "Duration(us)"]
    header += ["Wait Time(us)", "Block Dim" if old else "Block Num"]
    header += ["Input Shapes", "Input Data Types", "Input Formats"] if level else []
    header += ["Output Shapes", "Output Data Types", "Output Formats"] if level else []
    header += _PIPES if level else []
    table = []
    for row, wait in zip(rows, waits(rows), strict=True):
        cells: dict[str, object] = dict.fromkeys(header, "N/A")
        cells |= {"Step Id": row.step, "Device_id": row.device, "Name": row.name, "Type": row.op_type}
        cells |= {"Accelerator Core": row.core, "Duration(us)": row.dur_ns / 1000, "Wait Time(us)": wait}
        cells["Start Time(us)"] = short(row.start_ns) if old else us(row.start_ns) + "\t"
        cells |= {"Block Dim": 8, "Block Num": 8}
        if level and not row.collective:
            cells |= {"Model ID": 2**32 - 1, "Task ID": row.number, "Stream ID": row.stream, "OP State": "dynamic"}
            shapes = ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types")
            cells |= dict(zip((*shapes, "Output Formats"), _SHAPES, strict=True))
            cells |= dict(zip(_PIPES, (1.25, 1000, 0.5, 0.4, 0.75, 0.321), strict=True))
        table.append([cells[name] for name in header])
    write_csv(path, header, table)


def write_sums(path: Path, rows: Sequence[Task], *, device_id: bool = False) -> None:
    """op_statistic.csv: all but collectives, by type and core."""
    groups: dict[tuple[object, ...], list[int]] = {}
    totals: dict[int, int] = {}
    for row in rows:
        if not row.collective:
            device = row.device if device_id else 0
            groups.setdefault((device, row.op_type, row.core), []).append(row.dur_ns)
            totals[device] = totals.get(device, 0) + row.dur_ns
    table = []
    for (device, *key), durs in sorted(groups.items(), key=lambda item: -sum(item[1])):
        share = round(100 * sum(durs) / totals[device], 3)
        mean = round(sum(durs) / len(durs) / 1000, 3)
        figures = (len(durs), sum(durs) / 1000, min(durs) / 1000, mean, max(durs) / 1000, share)
        table.append([*([device] if device_id else []), *key, *figures])
    times = [f"{what} Time(us)" for what in ("Total", "Min", "Avg", "Max")]
    write_csv(path, [*["Device_id"] * device_id, "OP Type", "Core Type", "Count", *times, "Ratio(%)"], table)


def timeline(recording: Recording, level: int, *, labels: bool = False) -> list[dict[str, object]]:
    """trace_view.json: the device's slices, their launches, the host's steps and the vendor's Overlap Analysis."""
    events: list[dict[str, object]] = [meta("process_name", 7, 0, "Python"), meta("thread_name", 7, 7, "Thread 7")]
    events += [meta("process_name", 50, 0, "CANN"), meta("thread_name", 50, 8, "Thread 8")]
    for step, start, end in recording.steps:
        place: dict[str, object] = {"ph": "X", "pid": 7, "tid": 7, "ts": us(start), "dur": (end - start) / 1000}
        events.append({**place, "name": f"ProfilerStep#{step}", "cat": "cpu_op", "args": {}})
    host = {step: start for step, start, _ in recording.steps}
    for device in sorted({task.device for task in recording.tasks}):
        own = [task for task in recording.tasks if task.device == device]
        hardware, hccl, overlap = 1000 + device, 2000 + device, 3000 + device
        for pid, name in ((hardware, "Ascend Hardware"), (hccl, "HCCL"), (overlap, "Overlap Analysis")):
            events.append(meta("process_name", pid, 0, name))
            label = f"NPU {device}" if labels else "NPU"
            events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_labels", "args": {"labels": label}})
        for stream in sorted({task.stream for task in own if task.stream is not None}):
            events.append(meta("thread_name", hardware, stream, f"Stream {stream}"))
        events.append(meta("thread_name", hccl, 0, "Group 0 Communication"))
        for task in own:
            flow = len(events)
            pid, tid = (hccl, 0) if task.stream is None else (hardware, task.stream)
            place = {"ph": "X", "pid": pid, "tid": tid, "ts": us(task.start_ns), "dur": task.dur_ns / 1000}
            kind = {"Task Type": task.core or "EVENT_WAIT_SQE", "Physic Stream Id": task.stream, "Task Id": task.number}
            if level == 2:
                kind["Subtask Id"] = 0 if str(task.core).startswith("MIX") else 2**32 - 1
            events.append(
                {**place, "name": task.name, "args": {**(kind if task.stream else {}), "connection_id": flow}}
            )
            if task.step is not None:
                called = host[task.step] + 1000 + flow
                call = {"ph": "X", "pid": 50, "tid": 8, "ts": us(called), "dur": 0.5, "name": "AscendCL@launch"}
                events.append(
                    {**call, "args": {"level": "acl", "connection_id": flow}} if level else {**call, "args": {}}
                )
                if level == 2:  # the same launch in the layers below
                    for depth, (layer, of) in enumerate(LAYERS, 1):
                        inner = {**call, "ts": us(called + 10 * depth), "dur": 0.5 - depth / 10, "name": f"{layer}@run"}
                        events.append({**inner, "args": {"level": of, "connection_id": flow}})
                arrow = {"cat": "HostToDevice", "name": "HostToDevice", "id": str(flow)}
                events.append({**arrow, "ph": "s", "pid": 50, "tid": 8, "ts": us(called)})
                end = {**arrow, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": us(task.start_ns)}
                events.append(end)
        events += overlap_analysis(own, overlap)
    return events


def meta(what: str, pid: int, tid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def overlap_analysis(tasks: Iterable[Task], pid: int) -> list[dict[str, object]]:
    """Busy and free intervals of one device, one after another by their start."""
    rows = [task for task in tasks if task.core is not None]
    computing = merged([(row.start_ns, row.end_ns) for row in rows if not row.collective])
    talking = merged([(row.start_ns, row.end_ns) for row in rows if row.collective])
    busy = merged([*computing, *talking])
    free = [(end, start) for (_, end), (start, _) in itertools.pairwise(busy)]
    alone = without(talking, computing)
    names = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    found = [
        (start, {"ph": "X", "pid": pid, "tid": tid, "ts": us(start), "dur": (end - start) / 1000, "name": names[tid]})
        for tid, spans in enumerate((computing, talking, alone, free))
        for start, end in spans
    ]
    return [*(meta("thread_name", pid, tid, name) for tid, name in enumerate(names)),
            *(event for _, event in sorted(found, key=lambda one: one[0]))]  # fmt: skip


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def without(spans: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found = []
    for begin, end in spans:
        at = begin
        for other_start, other_end in others:
            if other_end <= at or other_start >= end:
                continue
            if other_start > at:
                found.append((at, other_start))
            at = max(at, other_end)
        if at < end:
            found.append((at, end))
    return found


def write_step_times(path: Path, recording: Recording, events: Sequence[dict[str, object]], *, device_id: bool) -> None:
    """step_trace_time.csv: sums in doubles over the slices of Overlap Analysis that begin in a step on its device."""
    table = []
    for device in sorted({task.device for task in recording.tasks}):
        slices = [event for event in events if event.get("pid") == 3000 + device and event["ph"] == "X"]
        for step, begun, ended in recording.steps:
            launched = sorted((task for task in recording.tasks if task.step == step), key=lambda task: task.device)
            low, high = launched[0].start_ns / 1000, max(launched[-1].end_ns, ended) / 1000
            sums = dict.fromkeys(("Computing", "Communication", "Communication(Not Overlapped)", "Free"), 0.0)
            first = last = task_start = -1.0
            for event in slices:
                start, dur = float(str(event["ts"])), float(str(event["dur"]))
                if low <= start < high:
                    sums[str(event["name"])] += dur
                    first = start if first < 0 else min(first, start)
                    last = max(last, start + dur)
                    if event["name"] in ("Computing", "Communication"):
                        task_start = start if task_start < 0 else min(task_start, start)
            alone = sums["Communication(Not Overlapped)"]
            row = [step, sums["Computing"], alone, sums["Communication"] - alone, sums["Communication"], sums["Free"]]
            table.append([*([device] if device_id else []), *row, last - first, 0, alone, task_start - begun / 1000])
    names = "Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"
    last_names = ["Communication(Not Overlapped and Exclude Receive)", "Preparing"]
    write_csv(path, ["Device_id"] * device_id + ["Step", *names.split(","), *last_names], table)


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header, *rows])
    path.write_text(text.getvalue(), encoding="utf-8", newline="")


def as_level_2(recording: Recording) -> Recording:
    """The same with what level 2 adds: AI CPU, cores of both kinds, and the newer word for collectives."""
    cores = itertools.cycle(("AI_CPU", "MIX_AIC", "AI_VECTOR_CORE", "MIX_AIV", "AI_CORE", "DSA"))
    renamed = {"HCCL": "communication", None: None}
    tasks = [replace(task, core=renamed.get(task.core) or (task.core and next(cores))) for task in recording.tasks]
    return Recording(tasks, recording.steps)


def write_calls(path: Path, events: Sequence[dict[str, object]]) -> None:
    """api_statistic.csv of the calls in a timeline: sums in doubles, by level and name."""
    groups: dict[tuple[str, str], list[float]] = {}
    for event in events:
        args = event.get("args")
        if event["ph"] == "X" and isinstance(args, dict) and "level" in args:
            groups.setdefault((args["level"], str(event["name"]).partition("@")[2]), []).append(
                float(str(event["dur"]))
            )
    table = []
    for key, durs in sorted(groups.items()):
        mean = sum(durs) / len(durs)
        variance = sum((dur - mean) ** 2 for dur in durs) / len(durs)
        figures = (round(sum(durs), 3), len(durs), round(mean, 3), min(durs), max(durs), round(variance, 3))
        table.append(["host", *key, *figures])
    header = "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance"
    write_csv(path, header.split(","), table)


def write_folder(
    folder: Path, recording: Recording, level: int, *, device_id: bool = False, old: bool = False, step_id: bool = True
) -> Path:
    """All of it, as `folder/ASCEND_PROFILER_OUTPUT`."""
    out = folder / "host_1_20260101000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    events = timeline(recording, level, labels=device_id)
    (out / "trace_view.json").write_text(json.dumps(events), encoding="utf-8")
    write_kernels(out / "kernel_details.csv", recording.rows, level, step_id=step_id, device_id=device_id, old=old)
    write_sums(out / "op_statistic.csv", recording.rows, device_id=device_id)
    write_step_times(out / "step_trace_time.csv", recording, events, device_id=device_id)
    if level == 2:
        write_calls(out / "api_statistic.csv", events)
        (out / "msprof_20260101000000.json").write_text(json.dumps(events), encoding="utf-8")
        for name in ("communication.json", "communication_matrix.json", "data_preprocess.csv", "analysis.db"):
            (out / name).write_text("{}", encoding="utf-8")
    return out
