"""The slices of each writer of Chrome traces, by the writers' documentation rather than the rule files."""

from __future__ import annotations

import re
from typing import Any

from recount.chrome import Row, Slice, whole
from recount.tally import nanoseconds

_COLLECTIVE = ("nccl", "rccl", "Nccl", "ncclDev", "mscclpp")
#: Ascend's names of tasks that don't compute, with "_" for spaces.
_NO_WORK = frozenset(
    ("EVENT_RECORD", "EVENT_WAIT", "EVENT_RESET", "NOTIFY_RECORD", "NOTIFY_WAIT", "CAPTURE_RECORD", "CAPTURE_WAIT",
     "WRITE_VALUE", "PLACE_HOLDER", "MODEL_EXECUTE", "MODEL_MAINTAINCE", "END_GRAPH", "PROFILING_ENABLE",
     "PROFILING_DISABLE", "TASK_TIMEOUT_SET", "FFTS_PLUS")
)  # fmt: skip
_ANNOTATION = Row("range", "annotation")


def _starts(name: str | None, *words: str) -> bool:
    return (name or "").startswith(words)


def _any_case(name: str | None, *words: str) -> bool:
    return (name or "").lower().startswith(words)


def kineto(one: Slice) -> Row:
    """PyTorch: by category; device and stream are in args."""
    category, name = one.category, one.name
    device, stream = whole(one.args.get("device")), whole(one.args.get("stream"))
    if category in ("mtia_ccp_events", "kernel") and name in ("event_wait", "event_record"):
        return Row("task", "sync", device, stream)
    if (category == "mtia_ccp_events" and _any_case(name, "dma")) or (category == "kernel" and name == "dma_request"):
        return Row("task", "copy", device, stream)
    if (
        not category
        and "stream" in one.args
        and re.fullmatch("Mem(cpy|set) .*", name or "")
        and "correlation" in one.args
    ):
        return Row("task", "copy", device, stream)
    if category in ("kernel", "Kernel") or (not category and {"stream", "grid"} <= one.args.keys()):
        function = re.sub(r"^void |\(anonymous namespace\)::|[<(].*", "", name or "").split("::")[-1]
        exchanges = "all_reduce" in function and not function.startswith("triton_")
        return Row("task", "collective" if exchanges or _starts(name, *_COLLECTIVE) else "compute", device, stream)
    if category in ("gpu_memcpy", "Memcpy", "gpu_memset", "Memset"):
        return Row("task", "copy", device, stream)
    if category == "cuda_sync":
        return Row("task", "sync", device, stream)
    if category == "mtia_ccp_events":
        return Row("task", "compute", device, stream)
    if not category and {"cbid", "correlation"} <= one.args.keys():
        return Row("api", "runtime")
    if category and re.fullmatch("(cuda|hip|xpu|mtia|glow|privateuse1)_runtime|Runtime", category):
        return Row("api", "runtime")
    if category and re.fullmatch("(cuda|hip|xpu|privateuse1)_driver", category):
        return Row("api", "driver")
    step = re.fullmatch(r"ProfilerStep#(\d+)", name or "")
    if step and (not category or category in ("user_annotation", "Operator", "cpu_op")):
        return Row("range", "annotation", step=int(step[1]))
    if category in ("cpu_op", "Operator"):
        return Row("range", "host_op")
    if category == "python_function":
        return Row("range", "module" if _starts(name, "nn.Module: ") else "frame")
    return Row("range", "summary") if category == "Trace" else _ANNOTATION


def ascend(one: Slice) -> Row:
    """torch_npu and msprof: the process is the layer, the thread is the stream."""
    name, process, thread = one.name or "", one.process or "", one.thread or ""
    step = re.fullmatch(r"ProfilerStep#(\d+)", name)
    if step and one.category in ("user_annotation", "cpu_op"):
        return Row("range", "annotation", step=int(step[1]))
    step = re.fullmatch(r"Iteration (\d+)", name)
    if step and one.category == "Iteration Time":
        return Row("range", "annotation", step=int(step[1]))
    if one.category == "Reduce" and name.startswith("Reduce_"):
        return Row("range", "reduce")
    stream = re.fullmatch(r"Stream (\d+)( .*)?", thread)
    if process == "Ascend Hardware" and stream:
        number = int(stream[1])
        if re.match(r"(?i)memcpy|sdma|pcie_dma|reduce.async", name):
            return Row("task", "copy", None, number)
        if name.upper().replace(" ", "_") in _NO_WORK or re.fullmatch("[A-Z_]+_SQE", name):
            return Row("task", "sync", None, number)
        return Row("task", "compute", None, number)
    if process in ("HCCL", "Communication"):
        if re.fullmatch("Group .*|(.* )?Communication( .*)?", thread):
            return Row("task", "collective")
        if thread.startswith("Plane "):  # parts of a collective that is a task on a stream of Ascend Hardware
            return Row("range", "summary")
    if process == "Overlap Analysis":
        return Row("range", "summary")
    if process == "CANN":
        # LAYER@CALL: msprof's tables have only the call, and the layer of args.
        layer, at, call = name.partition("@")
        levels = {"AscendCL": "acl", "Model": "model", "GE": "model", "Node": "node", "ACLNN": "node"}
        level = one.args.get("level") or {**levels, "Runtime": "runtime"}.get(layer if at else "")
        return Row("api", level, name=call if at and call and layer.isalpha() else None)
    if one.category == "cpu_op":
        return Row("range", "host_op")
    if one.category == "python_function":
        return Row("range", "module" if _starts(name, "nn.Module: ") else "frame")
    if one.category == "Reduce" and _starts(name, "Reduce_"):
        return Row("range", "reduce")
    return _ANNOTATION


def tensorflow(one: Slice) -> Row:
    """Slices on a GPU's numbered stream are tasks; stream:all and memcpy repeat them."""
    stream = re.fullmatch(r"/(?:device:GPU|gpu):(\d+)/stream:(\d+) Compute", one.process or "")
    if one.category == "Op" and stream:
        copies = _any_case(one.name, "memcpy", "memset")
        return Row("task", "copy" if copies else "compute", int(stream[1]), int(stream[2]))
    if one.category == "Op" and re.fullmatch("/job:.* Compute", one.process or ""):
        return Row("range", "host_op")
    return _ANNOTATION


def megengine(one: Slice) -> Row:
    """Threads: the interpreter, the worker, and one per device. Scopes have no args, neither at their end."""
    device = re.fullmatch(r"[a-z]+(?:x|(\d+)):\d+", one.thread or "")
    if device:
        number = int(device[1]) if device[1] else None
        kind = "compute" if one.category == "Kernel" else "copy" if one.name == "HostToDevice" else "sync"
        return Row("task", kind, number)
    if one.thread in ("interpreter", "worker"):
        commands = ("StartProfile", "StopProfile", "GetValue", "OpDispatch", "TensorWaitProp", "TensorGetProp")
        return Row("range", "host_op" if one.args or one.name in commands else "module")
    return _ANNOTATION


def megengine_steps(events: list[dict[str, Any]]) -> set[tuple[int, int, int]]:
    """Number, start and end of each step: from the first slice or the StopStep before, to the next StopStep."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    own = [event for event in events if names.get(event.get("tid")) == "interpreter"]
    ends = [nanoseconds(event["ts"]) for event in own if event.get("name") == "StopStep"]
    starts = [min(nanoseconds(event["ts"]) for event in own if event["ph"] in "XB"), *ends] if ends else []
    return {(number, *times) for number, times in enumerate(zip(starts, ends, strict=False), 1)}


def raf(one: Slice) -> Row:
    """The category is the thread name: the virtual machine, the allocator, or a stream.

    Collectives are ops of the dialects nccl and mpi, or ops without a dialect whose names start with "_".
    """
    if one.category == "VMInstruction":
        return Row("range", "host_op")
    if one.category in ("MemoryRequest", "Memory Request"):
        return _ANNOTATION
    thread = one.thread or ""
    if "Stream" in thread or thread.isdecimal():
        number = re.fullmatch(r"Stream (\d+)", thread)
        stream = 0 if thread == "Default Stream" else int(number[1]) if number else None
        words = ("raf_op_nccl_", "raf_op_mpi_", "nccl")
        verbs = ("all", "broadcast", "reduce", "gather", "scatter", "send", "recv")
        collective = _starts(one.name, *words, *(f"raf_op__{verb}" for verb in verbs))
        return Row("task", "collective" if collective else "compute", 0, stream)
    return _ANNOTATION


def furiosa(one: Slice) -> Row:
    """The NPU's operators are tasks of a processing element; executions, inferences and others are ranges."""
    if one.category == "NPU" and one.name == "Execution":
        return Row("range", "execution")
    if one.category == "NPU":
        return Row("task", "copy" if one.name in ("Load", "Store") else "compute", whole(one.args.get("pe_index")))
    if one.category in ("Runtime", "Nux") and one.name == "Inference":
        return Row("range", "inference")
    if one.name in ("Quantize", "Lower", "Unlower", "Dequantize"):
        return Row("range", "external_op")
    return _ANNOTATION


def onnxruntime(one: Slice) -> Row:
    """Kernels of nodes are tasks of the only device; runs of the session are inferences."""
    if (one.category, one.name) == ("Session", "model_run"):
        return Row("range", "inference")
    if one.category == "Node" and (one.name or "").endswith("_kernel_time"):
        return Row("task", "compute", 0)
    if one.category == "Node":
        return Row("range", "host_op")
    levels = {"Session": "session", "Api": "api"}
    return Row("api", levels[one.category]) if one.category in levels else _ANNOTATION


def dftracer(one: Slice) -> Row:
    """Calls into the C library, and functions of the application."""
    levels = {"POSIX": "posix", "STDIO": "stdio"}
    if one.category in levels:
        return Row("api", levels[one.category])
    step = re.fullmatch(r"(?i:(?:train[ _])?(?:step|iteration|iter))[ _#:=]*(\d+)", one.name or "")
    return Row("range", "annotation", step=int(step[1]) if step else None)


def clang(one: Slice) -> Row:
    return Row("range", "summary") if _starts(one.name, "Total ") else _ANNOTATION


def bazel(one: Slice) -> Row:
    return Row("range", "summary") if one.category == "critical path component" else _ANNOTATION


def ranges(_: Slice) -> Row:
    """Writers whose slices are all ranges."""
    return _ANNOTATION


def viztracer(one: Slice) -> Row:
    """Functions are frames; other events are annotations."""
    return Row("range", "frame") if one.category in ("FEE", "fee") else _ANNOTATION
