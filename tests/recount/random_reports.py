"""Random small files of Nsight Systems, speedscope and other formats, by seed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from nsys_builder import call, global_tid, insert, kernel, new_report, node


def write_nsys(path: Path, seed: int) -> Path:
    """Two processes with equal correlation IDs, two devices, a few streams; rows in random order."""
    random = Random(seed)
    base = random.choice([0, 5, 10**9, 4_000_000_000_000_000_001])
    db = new_report(path)

    def times(most: int = 1000) -> dict[str, int]:
        start = base + random.randrange(100_000)
        return {"start": start, "end": start + random.choice([0, random.randrange(most)])}

    kernels, calls, copies, fills, waits, ranges, reads, nodes, switches = ([] for _ in range(9))
    thread = global_tid(100, 100)
    for number in range(random.choice([1, 5, 60])):
        pid, correlation = random.choice([100, 100, 200]), 2 * number + random.randrange(2)
        when = times()
        place = {"deviceId": random.randrange(2), "contextId": 1, "streamId": random.choice([7, 13])}
        own = {**place, "correlationId": correlation, "globalPid": global_tid(pid, 0)}
        kind = random.randrange(4)
        if kind < 2:
            kernels.append(kernel(when["start"], when["end"], random.choice([1, 3]), correlation, pid, **place))
        elif kind == 2:
            copy = {"bytes": random.randrange(10**12), "copyKind": random.choice([1, 2, 8])}
            copies.append({**when, **own, **copy, "srcKind": 0, "dstKind": 2})
        else:
            fills.append({**when, **own, "value": 0, "bytes": random.randrange(10**6)})
        if random.random() < 0.9:
            name = random.choice([10, 11, 12])
            one = times()
            calls.append(call(one["start"], one["end"], name, correlation, pid, random.choice([pid, pid + 1])))
        if number % 4 == 0:
            waits.append({**times(), **own, "correlationId": 10_000 + number, "syncType": 3, "eventId": 0})
            reads.append(
                {**times(), "eventClass": 27, "globalTid": thread, "nameId": 13, "returnValue": 1, "callchainId": 0}
            )
            text = random.choice([f"step {number}", "forward", None])
            nvtx = {
                **times(),
                "eventType": random.choice([59, 60, 34]),
                "text": text,
                "textId": 20,
                "globalTid": thread,
            }
            nvtx["end"] = None if nvtx["eventType"] == 34 or random.random() < 0.1 else nvtx["end"]
            ranges.append({**nvtx, "globalTid": thread, "rangeId": number})
            nodes.append(node(times()["start"], number, random.choice([None, number + 4]), pid))
            switches.append(
                {"start": times()["start"], "cpu": 1, "isSchedIn": random.randrange(2), "globalTid": thread}
            )
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies, "CUPTI_ACTIVITY_KIND_MEMSET": fills,
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": waits, "OSRT_API": reads,
        "NVTX_EVENTS": ranges, "CUDA_GRAPH_NODE_EVENTS": nodes, "SCHED_EVENTS": switches,
    }  # fmt: skip
    for table, rows in tables.items():
        if rows:
            random.shuffle(rows)
            insert(db, table, rows)
    db.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (256, 0, 'GPU', 3, 'SM Active [%]')")
    db.execute("INSERT INTO GPU_METRICS VALUES (?, 256, 3, 87)", (base + 150,))
    db.commit()
    db.close()
    return path


def write_speedscope(path: Path, seed: int) -> Path:
    """Evented and sampled profiles, each in its unit."""
    random = Random(seed)
    frames = [{"name": random.choice(["main", "load", "f", "é<T>"])} for _ in range(4)]
    profiles: list[dict[str, Any]] = []
    for number in range(random.choice([1, 2, 4])):
        unit = random.choice(["nanoseconds", "microseconds", "milliseconds", "seconds"])
        start = random.choice([0, 10, 1_720_000_000])
        head = {"name": f"thread {number}", "unit": unit, "startValue": start}
        if random.random() < 0.5:
            events, stack, at = [], [], start
            for _ in range(random.choice([0, 4, 30])):
                at = round(at + random.choice([0, 1, 0.5, 0.125]), 3)
                if stack and random.random() < 0.5:
                    events.append({"type": "C", "frame": stack.pop(), "at": at})
                else:
                    stack.append(random.randrange(len(frames)))
                    events.append({"type": "O", "frame": stack[-1], "at": at})
            events += [{"type": "C", "frame": frame, "at": at} for frame in reversed(stack)]
            profiles.append({**head, "type": "evented", "endValue": at, "events": events})
        else:
            count = random.choice([0, 5, 30])
            samples = [[random.randrange(len(frames)) for _ in range(random.randrange(4))] for _ in range(count)]
            weights = [random.choice([1, 2, 0.5, 0]) for _ in samples]
            ends = {"endValue": start + sum(weights)}
            profiles.append({**head, **ends, "type": "sampled", "samples": samples, "weights": weights})
    schema = "https://www.speedscope.app/file-format-schema.json"
    path.write_text(
        json.dumps({"$schema": schema, "shared": {"frames": frames}, "profiles": profiles}), encoding="utf-8"
    )
    return path


_FURIOSA_HEAD = "trace_id,parent_span_id,span_id,start,end,cat,name,thread.id,dram_base,pe_index,execution_index"
_FURIOSA_NAMES = (
    *(
        "Inference",
        "Execution",
        "Load",
        "Conv, 1",
        "a\nb",
        'say "hi"',
        'it is 5"',
        '"',
        "\n",
        ",",
        "",
        'x,\n"y,9',
        "层",
    ),
    "Quantize",
)


def write_furiosa(path: Path, seed: int) -> Path:
    """A table of the native writer, which doesn't quote; every third one is truncated in its last line."""
    rng = Random(seed)
    start = 1_700_000_000_000_000_000
    lines = [_FURIOSA_HEAD]
    for number in range(rng.randint(1, 40)):
        start += rng.randrange(10**6)
        end = start + rng.randrange(10**5)
        category = rng.choice(["NPU", "Runtime", "Nux", ""])
        name = rng.choice(_FURIOSA_NAMES)
        element = rng.choice(["", "0", "1"])
        lines.append(f"feed,0,{number:x},{start},{end},{category},{name},{rng.choice([1, 2**32 - 1])},,{element},3")
    text = "\n".join(lines) + "\n"
    path.write_text(text[: len(text) - rng.randrange(30)] if seed % 3 == 0 else text, "utf-8", newline="")
    return path


def write_megengine(path: Path, seed: int) -> Path:
    """A profile of a static graph; some operators never ran, some also belong to another node."""
    rng = Random(seed)
    operators = {str(one): {"name": f"op{one % 4}", "type": "Elemwise"} for one in range(12)}
    sides: dict[str, dict[str, object]] = {"device": {}, "host": {}}
    for nodes in sides.values():
        for one in rng.sample(range(14), 9):
            times = {}
            for place in rng.sample(['CompNode("gpu0:0" from "gpux:0")', 'CompNode("cpu1:0" from "cpu1:0")'], 1):
                start = rng.randrange(10**6)
                seconds = [round((start + more) / 10**7, 7) for more in sorted(rng.sample(range(500), 2))]
                times[place] = {"start": seconds[0], "kern": seconds[0], "end": seconds[1]}
            nodes[str(one)] = times
    document = {"profiler": {**sides, "opr_footprint": {}}, "graph_exec": {"operator": operators, "var": {}}}
    path.write_text(json.dumps(document), "utf-8")
    return path


def write_msprof(folder: Path, seed: int) -> Path:
    """Tables of one or two devices: operators on streams, collectives without one, events and copies."""
    random = Random(seed)
    out = folder / f"PROF_{seed}" / "mindstudio_profiler_output"
    out.mkdir(parents=True)
    tables: dict[str, list[list[object]]] = {name: [_MSPROF[name].split(",")] for name in _MSPROF}
    at = 1_736_408_883_709_301_123
    number = 0
    for step in range(1, 4):
        begin = at
        for _ in range(random.randrange(1, 25)):
            at += random.choice([1, 20, 700, 40_000])
            number += 1
            dur, device = random.choice([20, 480, 53_841]), seed % 2 and random.randrange(2)
            stream, what = random.choice([2, 3]), random.randrange(5)
            times = [_micro(dur), _micro(at) + "\t", _micro(at + dur)]
            if what == 0:
                kind = random.choice(["EVENT_WAIT", "EVENT_RECORD", "MEMCPY_ASYNC", "NOTIFY_WAIT"])
                tables["task_time"].append([device, kind, kind, stream, number, *times])
            elif what == 1:
                cells = [device, 7, "N/A", "N/A", f"hcom_allReduce__{number}_1", "hcom_allReduce_", "HCCL"]
                tables["op_summary"].append([*cells, times[1], times[0], 0])
            else:
                op, core = random.choice([("Add", "AI_VECTOR_CORE"), ("Conv2D", "AI_CORE"), ("Add", "MIX_AIV")])
                name = f"{op}_{random.randrange(3)}"
                tables["op_summary"].append([device, 7, number, stream, name, op, core, times[1], times[0], 0])
                if random.random() < 0.8:
                    tables["task_time"].append([device, name, core, stream, number, *times])
            at += dur
        first = _micro(begin) if seed % 3 else "N/A"
        # An iteration begins before its forward pass; 0: unknown.
        time = random.choice([0, _micro(at - begin), _micro(at - begin + 70)])
        tables["step_trace"].append([0, step, first, _micro(at - 5), _micro(at), time, 0, 0, "N/A", 7])
    for name, rows in tables.items():
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        (out / f"{name}_20260101000001.csv").write_text(text, "utf-8")
    return out.parent


_MSPROF = {
    "op_summary": "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),"
    "Task Duration(us),Task Wait Time(us)",
    "task_time": "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)",
    "step_trace": "Device_id,Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),"
    "FP to BP Time(us),Iteration Refresh(us),Data Aug Bound(us),Model ID",
}


def _micro(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03}"
