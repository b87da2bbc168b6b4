"""Random small Chrome traces of several writers, by seed, as irregular as real files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from recount import writers
from recount.chrome import Classify

#: JSON text of an event's values by key.
Members = dict[str, str]


def write(folder: Path, seed: int) -> tuple[Path, Classify, bool]:
    """Write a trace file; return its path, its classifier, and whether all flow events of an ID are one chain."""
    random = Random(seed)
    name = random.choice(sorted(_WRITERS))
    slices, classify, keys, heads = _WRITERS[name]
    events = [*heads(random)]
    body = _events(random, slices)
    events = events + body if random.random() < 0.6 else body + events
    text = _document(random, events, keys)
    data = text.encode()
    packed = random.random() < 0.1
    path = folder / f"{name}_{seed}.json{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    return path, classify, name == "megengine"


def _document(random: Random, events: Sequence[Members], keys: str) -> str:
    blank = random.choice(["", " ", "\n", "\n    "])
    each = [
        "{" + ",".join(f'{blank}"{key}":{random.choice(["", " "])}{value}' for key, value in event.items()) + "}"
        for event in events
    ]
    body = f",{blank}".join(each)
    kind = random.random()
    if keys:
        before = random.random() < 0.5
        return f'{{{keys},"traceEvents":[{body}]}}' if before else f'{{"traceEvents":[{body}],{keys}}}'
    if kind < 0.4:
        behind = random.choice(["", ',"displayTimeUnit":"ns"'])
        return f'{{"traceEvents": [{body}]{behind}}}'
    if kind < 0.8:
        return f"[{body}]"
    return f"[{body}{random.choice(['', ',', chr(10)])}"  # no end


def _events(random: Random, slices: Callable[[Random], Members]) -> list[Members]:
    """Slices, markers, counter samples and flows, sometimes sorted by time."""
    count = random.choice([0, 1, 3, 20, 60])
    base = random.choice([0, 0, 1, -500, 1_720_000_000_123_456, -(10**12), 4_000_000_000_000_000])
    span = random.choice([1, 10, 200, 10**6])
    spelling = random.choice(["whole", "decimal", "mixed"])

    def time(value: int) -> str:
        return _time(random, spelling, value)

    timed: list[tuple[int, Members]] = []
    for _ in range(count):
        start = base + random.randrange(span)
        what = random.random()
        event = slices(random)
        if what < 0.55:
            dur = random.choice([0, random.randrange(span), random.randrange(span)])
            timed.append((start, {**event, "ph": '"X"', "ts": time(start), "dur": time(dur)}))
            _spoil(random, timed[-1][1])
        elif what < 0.75:
            begin, end = ('"B"', '"E"') if random.random() < 0.7 else random.choice([('"b"', '"e"'), ('"S"', '"F"')])
            event = {**event, **_id(random)} if begin != '"B"' else event
            last = start + random.randrange(span)
            timed.append((start, {**event, "ph": begin, "ts": time(start)}))
            closing = {key: event[key] for key in event if key != "name" or random.random() < 0.9}
            if random.random() < 0.92:
                timed.append((last, {**closing, "ph": end, "ts": time(last)}))
            elif random.random() < 0.5:
                timed.pop()
                timed.append((last, {**closing, "ph": end, "ts": time(last)}))
        elif what < 0.83:
            series = {
                key: random.choice(["1", "2.5", '"7"', "1e3", "-3", "9007199254740993", "1e300", "-1.5E-300"])
                for key in "ab"[: 1 + _bit(random)]
            }
            values = ",".join(f'"{key}":{value}' for key, value in series.items())
            place = {key: event[key] for key in ("pid", "tid") if key in event}
            timed.append(
                (
                    start,
                    {
                        "name": f'"count {_bit(random)}"',
                        **place,
                        "ph": '"C"',
                        "ts": time(start),
                        "args": f"{{{values}}}",
                    },
                )
            )
        elif what < 0.9:
            timed.append(
                (
                    start,
                    {
                        **event,
                        "ph": random.choice(['"i"', '"I"', '"R"', '"n"', '"N"', '"O"']),
                        "ts": time(start),
                        **_id(random),
                    },
                )
            )
        else:
            last = start + random.randrange(-span, span)
            arrow = {
                "name": '"arrow"',
                "cat": random.choice(['"flow"', '"async_flow"']),
                "id": random.choice(["1", '"1"', '"0x2"', "3"]),
            }
            place = {key: event[key] for key in ("pid", "tid") if key in event}
            timed.append((start, {**arrow, **place, "ph": '"s"', "ts": time(start)}))
            if _bit(random):
                timed.append((last, {**arrow, **place, "ph": '"t"', "ts": time(last)}))
            if random.random() < 0.8:
                timed.append((last, {**arrow, **place, "ph": '"f"', "bp": '"e"', "ts": time(last)}))
    order = random.random()
    if order < 0.5:
        timed.sort(key=lambda one: one[0])
    elif order < 0.75:
        random.shuffle(timed)
    return [event for _, event in timed]


def _bit(random: Random) -> int:
    return random.randrange(2)


def _time(random: Random, spelling: str, value: int) -> str:
    """A time of `value` microseconds or slightly more, in a format of one of the writers."""
    if spelling == "whole":
        return str(value)
    fraction = random.choice(["", ".0", ".5", ".001", ".25", ".999", ".1234", ".0005", ".123456789"])
    text = f"{value}{fraction}"
    if spelling == "decimal":
        return text
    return random.choice([text, f'"{text}"', f"{value}e0", f"{value}E+0", f'"{value}"', f"{value}.000"])


def _spoil(random: Random, event: Members) -> None:
    """Randomly remove or change a key of an event."""
    if random.random() < 0.85:
        return
    what = random.choice(["dur", "ts", "pid", "tid", "args", "name", "cat", "null", "below", "text", "ph"])
    if what == "null":
        event["dur"] = "null"
    elif what == "below":
        event["dur"] = "-5"
    elif what == "text":
        event["dur"] = '"long"'
    elif what == "ph":
        event["ph"] = random.choice(['"Q"', '""', "null"])
    elif what == "args":
        event["args"] = random.choice(["null", "[]", '"text"', "{}", "7"])
    else:
        event.pop(what, None)


def _id(random: Random) -> Members:
    one = random.choice(["1", '"1"', '"0x1f"'])
    return random.choice([{"id": one}, {"id": one}, {"id2": f'{{"local":{one}}}'}, {"id2": f'{{"global":{one}}}'}])


def _number(random: Random, most: int) -> str:
    """A small number for args."""
    value = random.randrange(most)
    return random.choices(
        [str(value), f'"{value}"', f"{value}.0", "null", '"none"', "true", f"{value}.5", "{}"],
        [80, 6, 4, 2, 2, 2, 2, 2],
    )[0]


def _args(random: Random, **members: str) -> str:
    """An object with most of these members."""
    return "{" + ",".join(f'"{key}":{text}' for key, text in members.items() if random.random() < 0.95) + "}"


def _place(random: Random) -> Members:
    """A process and a thread: numbers, strings of numbers, or names."""
    pid = random.choice(["1", '"1"', "2", "0", '"main"'])
    tid = random.choice(["1", '"1"', "7", "0", "-1", '"stream 7"', "4294967296123"])
    return {"pid": pid, "tid": tid}


def _nothing(_: Random) -> list[Members]:
    return []


def _kineto(random: Random) -> Members:
    category = random.choice(
        ["kernel", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "cpu_op",
         "user_annotation", "python_function", "Trace", "cuda_sync", "hip_runtime",
         "gpu_user_annotation", "overhead", "xpu_runtime"]
    )  # fmt: skip
    names = {
        "kernel": ["void gemm<float>(int)", "ncclDevKernel_AllReduce", "ncclKernel_x", "triton_poi", "nccl", "Nccl x",
                   "event_wait", "dma_request"],
        "gpu_memcpy": ["Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD"],
        "cuda_runtime": ["cudaLaunchKernel", "cudaMemcpyAsync"],
        "cpu_op": ["aten::mm", f"ProfilerStep#{random.randrange(10_000, 20_000)}", "aten::add\\n"],
        "python_function": ["nn.Module: Linear_0", "train.py(7): step", "<built-in function launch>"],
        "user_annotation": [f"ProfilerStep#{random.randrange(10_000)}", "Optimizer.step#SGD.step"],
    }  # fmt: skip
    name = random.choice(names.get(category, ["other", "ProfilerStep#5x"]))
    args = _args(
        random,
        device=_number(random, 3),
        stream=_number(random, 40),
        correlation=_number(random, 500),
        **{"External id": _number(random, 100), "bytes": _number(random, 10**9), "grid": "[1,2,3]"},
    )
    return {"name": f'"{name}"', "cat": f'"{category}"', **_place(random), "args": args}


def _mtia(random: Random) -> Members:
    category = random.choice(["mtia_ccp_events", "mtia_ccp_events", "mtia_runtime", "cpu_op"])
    name = random.choice(
        [
            "event_wait",
            "event_record",
            "dma_request",
            "dma_response",
            "kernel_fc",
            "event_wait_12",
            "eventful",
            "DMA copy",
        ]
    )
    args = _args(random, device=_number(random, 3), stream=_number(random, 9), size=_number(random, 10**6))
    return {"name": f'"{name}"', "cat": f'"{category}"', **_place(random), "args": args}


def _ascend_heads(random: Random) -> list[Members]:
    named = [
        (10, "Ascend Hardware", [(3, "Stream 3"), (4, "Stream 4"), (5, "Stream 5 (Default)"), (6, "Other")]),
        (11, "CANN", [(1, "Thread 1")]),
        (12, "Communication", [(1, "Group 0 Communication"), (2, "Plane 0")]),
        (13, "HCCL", [(1, "Group 1 Communication")]),
        (14, "Overlap Analysis", [(1, "Computing")]),
        (15, "Python", [(1, "Thread 9")]),
    ]
    events = []
    for pid, process, threads in named:
        events.append({"name": '"process_name"', "ph": '"M"', "pid": str(pid), "args": f'{{"name":"{process}"}}'})
        for tid, thread in threads:
            head = {"name": '"thread_name"', "ph": '"M"', "pid": str(pid), "tid": str(tid)}
            events.append({**head, "args": f'{{"name":"{thread}"}}'})
    random.shuffle(events)
    return events


def _ascend(random: Random) -> Members:
    pid, tid = random.choice(
        [(10, 3), (10, 4), (10, 5), (10, 6), (11, 1), (12, 1), (12, 2), (13, 1), (14, 1), (15, 1)]
    )  # fmt: skip
    name = random.choice(
        ["MatMulV2", "EVENT_WAIT", "Event Record", "MEMCPY_ASYNC", "hcom_allReduce__1", "AscendCL@aclopExecute",
         "Node@launch", "Model@run", "Runtime@KernelLaunch", "aclrtSynchronizeStream", "NOTIFY_WAIT_SQE", "Notify_Wait",
         "Memcpy", "reduce_async", "Eventually", "SDMA_SQE", "ReduceAsync", "Profiling Trace", "GE@x",
         "PLACE_HOLDER_SQE", f"Iteration {random.randrange(10**6)}", f"ProfilerStep#{random.randrange(10**6, 10**7)}"]
    )  # fmt: skip
    category = random.choice([None, None, "cpu_op", "user_annotation", "Iteration Time", "enqueue", "dequeue"])
    args = _args(
        random,
        **{"Task Type": '"AI_CORE"', "Stream Id": _number(random, 9), "Task Id": _number(random, 65536)},
        level=random.choice(['"acl"', '"node"', '"runtime"']),
        connection_id=_number(random, 10**6),
    )
    event = {"name": f'"{name}"', "pid": str(pid), "tid": str(tid), "args": args}
    return {**event, "cat": f'"{category}"'} if category else event


def _raf(random: Random) -> Members:
    lane = random.choice(
        ["Default Stream", "Stream 1", "Stream 2", "VMInstruction", "MemoryRequest", "Stream 11", "my range", "3"]
    )
    name = random.choice(
        ["raf_op_tvm_cast_76", "raf_op_tvm_broadcast_to_3", "raf_op_nccl__allreduce_4", "nccl_broadcast",
         "raf_op__allgather_2", "InvokePacked", "AllocTensor", "raf_op_cublas_matmul",
         "raf_op_tvm_sum", "raf_op_tvm_reduce_sum_1", "allreduced"]
    )  # fmt: skip
    shapes = random.choice(["T<768xf32>,|T<768xf16>", "", "T<1x3xf32>;T<3xf32>,|T<1xf32>", "x,|y"])
    return {
        "name": f'"{name}"',
        "cat": f'"{lane}"',
        "pid": "0",
        "tid": f'"{lane}"',
        "args": f'{{"args_string":"{shapes}"}}',
    }


def _any(random: Random) -> Members:
    category = random.choice([None, "toplevel", "v8,devtools", "toplevel.flow", "rail"])
    event = {"name": random.choice(['"RunTask"', '"a"', '"b"', '"\\u00e9\\""', '"FunctionCall"']), **_place(random)}
    if random.random() < 0.5:
        event["args"] = _args(random, data='{"x":[1,{"y":2}]}', device=_number(random, 5))
    return {**event, "cat": f'"{category}"'} if category else event


def _megengine_heads(random: Random) -> list[Members]:
    threads = [(0, "interpreter"), (1, "worker"), (2, "gpu0:0"), (3, "xpux:0"), (4, "cpu12:1")]
    return [
        {"name": '"thread_name"', "ph": '"M"', "pid": "5", "tid": str(tid), "args": f'{{"name":"{name}"}}'}
        for tid, name in threads
    ]


def _megengine(random: Random) -> Members:
    event = {
        "name": random.choice(['"matmul"', '"Input 1"', '"fc0"', '"sync"']),
        "pid": "5",
        "tid": str(random.randrange(5)),
    }
    return {**event, "cat": '"Kernel"'} if _bit(random) else event


def _furiosa(random: Random) -> Members:
    category, name = random.choice(
        [("NPU", "Execution"), ("NPU", "Load"), ("NPU", "Store"), ("NPU", "Conv_0"), ("Runtime", "Inference"),
         ("Nux", "Inference"), ("Runtime", "Lower"), ("", "Inference"), ("Runtime", "Quantize"), ("NPU", "Lower")]
    )  # fmt: skip
    ids = {key: json.dumps(f"{random.randrange(16):032x}") for key in ("trace_id", "span_id", "parent_span_id")}
    args = _args(
        random,
        pe_index=_number(random, 4),
        execution_index=_number(random, 9),
        operator_index=_number(random, 9),
        **ids,
    )
    return {"name": f'"{name}"', "cat": f'"{category}"', "pid": "1", "tid": str(random.randrange(3)), "args": args}


def _tensorflow_heads(random: Random) -> list[Members]:
    names = [
        "/device:GPU:0/stream:13 Compute",
        "/gpu:1/stream:all Compute",
        "/job:localhost/replica:0/task:0/cpu:0 Compute",
        "other",
    ]
    return [
        {"name": '"process_name"', "ph": '"M"', "pid": str(pid), "args": f'{{"name":"{name}"}}'}
        for pid, name in enumerate(names)
    ]


def _tensorflow(random: Random) -> Members:
    name = random.choice(["MatMul", "MEMCPYDtoH", "memset", "Conv2D"])
    args = _args(random, name='"layer/x"', op='"MatMul"')
    return {
        "name": f'"{name}"',
        "cat": random.choice(['"Op"', '"Tensor"']),
        "pid": str(random.randrange(4)),
        "tid": "0",
        "args": args,
    }


#: Name → slices, their writer, top-level keys that identify the writer, and metadata.
_WRITERS: dict[str, tuple[Callable[[Random], Members], Classify, str, Callable[[Random], list[Members]]]] = {
    "kineto": (_kineto, writers.kineto, '"schemaVersion":1,"deviceProperties":[]', _nothing),
    "mtia": (_mtia, writers.kineto, '"deviceProperties":[]', _nothing),
    "ascend": (_ascend, writers.ascend, "", _ascend_heads),
    "raf": (_raf, writers.raf, "", lambda _: [{"name": '"x"', "cat": '"Default Stream"', "ph": '"M"'}]),
    "megengine": (_megengine, writers.megengine, "", _megengine_heads),
    "furiosa": (_furiosa, writers.furiosa, "", lambda _: [{"name": '"x"', "cat": '"Nux"', "ph": '"M"'}]),
    "tensorflow": (_tensorflow, writers.tensorflow, "", _tensorflow_heads),
    "any": (_any, writers.ranges, "", _nothing),
}
