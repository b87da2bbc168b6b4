"""Samples to mutate: small ones of every format, built by the tests' builders, and real ones if available."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
_SHARED = Path(os.environ.get("TRACECONV_SHARED") or TESTS.parents[1] / "shared") / "conformance"
_EVENTS = 5
#: Larger samples are left out: small ones are read thousands of times in the time of a large one.
_MAX_BYTES = 4000
_RULES = TESTS.parent / "traceconv" / "normalize" / "rules"

#: A sample: the name that its file must have, and its bytes.
Sample = tuple[str, bytes]


def _module(name: str) -> Any:
    """A module of the tests, which are not a package."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return importlib.import_module(name)


def chrome() -> list[Sample]:
    """Traces in JSON: all phases, all containers of text, some events of each real file."""
    events: list[dict[str, Any]] = [*_module("small_sources").EVENTS, *_writers()]
    found = [("trace.json", _dump(events)), ("trace.json", _dump({"traceEvents": events, "displayTimeUnit": "ns"}))]
    found += [("trace.json", "\n".join(map(json.dumps, events)).encode()), ("trace.json", _dump(events, indent=1))]
    found += [("trace.json", _dump(events)[:-1] + b","), ("trace.json", _dump(events[:3]) + b"\n" + _dump(events[3:]))]
    found.append(("trace.json", b"\xef\xbb\xbf" + _dump({"a": {"b": []}, "traceEvents": events[:6], "z": 1})))
    return found + [("trace.json", text) for text in _real_events() if len(text) <= _MAX_BYTES]


def _writers() -> list[dict[str, Any]]:
    """Events as other writers spell them, so that every set of rules is met."""
    base = {"ph": "X", "pid": 1, "tid": 2, "dur": 3}
    kernel = {"device": 0, "stream": 7, "correlation": 5, "grid": [1, 1, 1], "External id": 3}
    named = {"Task Type": "AI_CORE", "Stream Id": 2, "Task Id": 4}
    return [
        {**base, "name": "gemm", "cat": "kernel", "ts": "1720000000123456.789", "args": kernel},
        {**base, "name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": 1.5e3, "args": {"correlation": 5}},
        {**base, "name": "ProfilerStep#3", "cat": "user_annotation", "ts": 1490.5},
        {**base, "name": "MatMul", "cat": "Node", "ts": 1, "args": {"op_name": "MatMul", "provider": "CPU"}},
        {**base, "name": "conv", "ts": "17.001", "args": named, "tts": 4, "tdur": 2},
        {**base, "name": "flows", "ts": 9, "bind_id": "0x9", "flow_out": True, "flow_in": 1},
        {"ph": "b", "cat": "x", "name": "seq", "id2": {"local": "0x1"}, "pid": 1, "ts": 3, "scope": "s"},
        {"ph": "e", "cat": "x", "name": "seq", "id2": {"local": "0x1"}, "pid": 1, "ts": 4, "scope": "s"},
        {"ph": "X", "name": "furiosa", "cat": "NPU", "pid": 1, "tid": "t", "ts": 1, "dur": 1,
         "args": {"start_ts": "1795243479393307472", "end_ts": "1795243479393378738", "trace_id": "1"}},
    ]  # fmt: skip


def _real_events() -> Iterator[bytes]:
    """The first events of each real trace, as a trace of their own."""
    folder = _SHARED / "real"
    files = [*folder.rglob("*.json"), *folder.rglob("*.json.gz"), *folder.rglob("*.pfw*")] if folder.is_dir() else []
    for path in sorted(files):
        if path.stat().st_size > 100_000:
            continue
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        try:
            document = json.loads(data)
        except ValueError:
            yield data[:4096]
            continue
        events = document.get("traceEvents") if isinstance(document, dict) else document
        if isinstance(events, list) and events:
            chosen = [*events[:2], *random.Random(1).sample(events, min(_EVENTS, len(events)))]
            yield _dump({"traceEvents": chosen})


def own_export(reader: str) -> list[Sample]:
    """Our own export for a reader, which is read by a way of its own."""
    from traceconv.export.chrome import export_chrome
    from traceconv.export.perfetto import export_perfetto
    from traceconv.pipeline.ingest import ingest
    from traceconv.store.database import open_store

    with tempfile.TemporaryDirectory() as folder:
        capture, store, out = Path(folder) / "raw", Path(folder) / "a.duckdb", Path(folder) / "out.json"
        _capture(capture)
        ingest([capture], store)
        with open_store(store) as connection:
            (export_chrome if reader == "chrome_json" else export_perfetto)(connection, 1, out)
        return [("trace.json" if reader == "chrome_json" else "trace.pftrace", out.read_bytes())]


def speedscope() -> list[Sample]:
    """Profiles of both kinds."""
    return [("p.json", _dump(_module("small_sources").speedscope()))]


def json_items() -> list[Sample]:
    """A document that is not a trace, with items as the oracle looks for them."""
    places = [{"begin": number * 10 + 0.125, "end": str(number * 10 + 9)} for number in range(12)]
    items = [
        {"op": f"conv {number % 3}", "at": at, "npu": number % 2, "queue": "copy", "a.b": [{"x": {}}, 1e300]}
        for number, at in enumerate(places)
    ]
    copies = [{"what": "load", "from": 7 * number, "for": number} for number in range(6)]
    result = {"device": [[1], {}], "kernels": items, "copies": copies}
    document = {"tool": "\U0001f600", "result": result, "end": None}
    return [("d.json", _dump(document)), ("d.json", json.dumps(document, indent=1, ensure_ascii=False).encode())]


def rocprofv3() -> list[Sample]:
    """Results with every kind of record."""
    results = _module("rocprofv3_builder").results()
    return [("r.json", _dump(results)), ("r.json", _dump(results, indent=1))]


def megengine() -> list[Sample]:
    """A static profile."""
    times = {"start": 0.001, "kern": 0.0015, "end": 0.002}
    operator = {"name": "conv", "type": "Conv", "input": [1], "output": [2]}
    footprint = {"memory": 12, "computation": 3, "in_shapes": [[1, 2]], "out_shapes": [[3]], "param": {"a": 1.5}}
    profiler = {"device": {"7": {"gpu0:0": times}}, "host": {"7": {"cpu": times}}, "opr_footprint": {"7": footprint}}
    graph = {"operator": {"7": operator, "8": operator}, "var": {"1": {}}, "comp_seq": ["7"]}
    return [("m.json", _dump({"graph_exec": graph, "profiler": profiler}))]


def furiosa_csv() -> list[Sample]:
    """Furiosa's table, with names that break it."""
    head = b"trace_id,parent_span_id,span_id,start,end,cat,name,thread.id,dram_base,pe_index,execution_index,"
    head += b"instruction_index,operator_index\n"
    row = b"9e76,00,aa73,1795243479393307472,1795243479393378738,%b,%b,1,,%b,1,2,3\n"
    cells = [(b"", b"Inference", b""), (b"NPU", b"Execution", b"0"), (b"Runtime", b"a, b", b""), (b"x", b"a\nb", b"")]
    return [("f.csv", head + b"".join(row % one for one in cells))]


def ncu_csv() -> list[Sample]:
    """Nsight Compute's pages raw and details."""
    module = _module("ncu_builder")
    launches = module.launches(4)
    return [("n.csv", module.raw(launches)), ("n.csv", module.details(launches, style="de"))]


def rocprof_csv() -> list[Sample]:
    """Tables of rocprofv3: kernels, counters, copies, calls; kernels of the versions before it."""
    times = b'"Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    kernels = b'"Kind","Agent_Id","Queue_Id","Dispatch_Id","Kernel_Name",' + times
    kernels += b'"KERNEL_DISPATCH","Agent 4",1,7,"void n::add<int, 4>(int,\n int*)",14,100,180\n' * 2
    counters = b'"Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value",' + times
    counters += (
        b'7,"GPU 1","k.kd","SQ",3.5,14,100,180\n7,"GPU 1","k.kd","SQ",4,14,100,180\n8,"GPU 1","k","B",1,0,190,191\n'
    )
    copies = b'"Kind","Direction","Source_Agent_Id","Destination_Agent_Id",' + times
    copies += b'"MEMORY_COPY","HOST_TO_DEVICE",0,1,5,14955949675563,14955950239443\n'
    calls = b'"Domain","Function","Process_Id","Thread_Id",' + times
    calls += b'"HIP_RUNTIME_API","hipMemcpy",238,239,5,1191915691439107,1191916547828448\n'
    first = b'"Index","KernelName","gpu-id","queue-id","sig","BeginNs","EndNs","DurationNs","Busy"\n'
    first += b'0,"f(int) [clone .kd]",1,2,"0x0",1591372809872935,1591372836189584,26316649,72.4\n' * 2
    second = b"Dispatch_ID,GPU_ID,Queue_ID,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES\n\n"
    second += b'1,4,1,"f(char*) (.kd)",140469300940000,140469300947216,33,8.5\n'
    return [("t.csv", one) for one in (kernels, counters, copies, calls, first, second)]


def vendor_csv() -> list[Sample]:
    """Every table of the vendors' folders that we know."""
    module = _module("vendor_folders")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        module.msprof_folder(Path(folder))
        module.torch_npu_folder(Path(folder), damaged=False)
        found = [(path.name, path.read_bytes()) for path in sorted(Path(folder).rglob("*.csv"))]
    extra = {
        "memory_record.csv": "Component,Timestamp(us),Total Allocated(KB),Total Reserved(KB),Device Type\n"
        "PTA,1736408883709301.5,1.5,2048,NPU:0\n",
        "operator_memory.csv": "Name,Size(KB),Allocation Time(us),Release Time(us),Duration(us),Device Type\n"
        "aten::add,512.0,1736408883709301.5,1736408883709401.5,100,NPU:0\n",
        "l2_cache.csv": "Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n2,3,0.5,0.1,conv_1\n",
    }
    return found + [(name, text.encode()) for name, text in extra.items()]


def nsys() -> list[Sample]:
    """A report in SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        return _in_small_pages(_module("small_sources").nsys_report(Path(folder)))


def ascend_db() -> list[Sample]:
    """A database of torch_npu."""
    with tempfile.TemporaryDirectory() as folder:
        return _in_small_pages(_module("ascend_db_builder").database(Path(folder) / "a.db"))


def ascend_raw(folder: Path) -> Path:
    """A folder with raw data, next to that of torch_npu."""
    capture = _module("ascend_raw_builder").example()
    capture.op(50, 300, "aten::mm", sequence=1, texts={3: "float", 4: "2,3", 8: "a.py(1): f"})
    capture.queue(60, 70, 1, "aclnnMm", 4712, dequeue=False)
    capture.queue(90, 250, 1, "aclnnMm", 4713, dequeue=True)
    capture.block(80, 0x5000, 512, 512, kind=0)
    for at, name in ((40, "Linear######1"), (45, "f"), (310, None), (320, None)):
        capture.function(at, name)
    capture.collection(31, 36)
    written: Path = capture.write(folder, slice_bytes=4096)
    return written


def ascend_job(folder: Path) -> Path:
    """A folder with raw data of 2020."""
    build = _module("ascend_job_builder")
    log = [build.log_record(number % 2 == 1, number % 5, number // 2, number * 10, 5, number) for number in range(40)]
    steps = [(tag, 5, number * 100 + tag) for number in range(4) for tag in (1, 3, 4, 2, 255)]
    tasks = "".join(f"Default/conv-Conv2D-op{task} 8 {task} 5\n" for task in range(10))
    written: Path = build.write_job(folder, b"".join(log), build.marks(steps), tasks, slice_bytes=1000)
    return written


def _in_small_pages(path: Path) -> list[Sample]:
    """A SQLite file with small pages, so that damage of one leaves the others."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA page_size = 512")
        db.execute("VACUUM")
    return [(path.name, path.read_bytes())]


def perfetto() -> list[Sample]:
    """A trace in protobuf."""
    build = _module("perfetto_builder")
    nested = build.begin(1, 2, "slice", build.NESTED) + build.end(2, 2)
    return [("t.pftrace", build.small_trace()), ("gpu.pftrace", build.gpu_trace()), ("nested.pftrace", nested)]


def xplane() -> list[Sample]:
    """A profile of JAX in protobuf."""
    return [("a.xplane.pb", _module("xplane_builder").small_space())]


def rocpd() -> list[Sample]:
    """A database of rocprof-sys."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        _module("rocpd_builder").database_of_rocprof_sys(path)
        return [("a.db", path.read_bytes())]


def rpd() -> list[Sample]:
    """Databases of rocmProfileData."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for version in (1, 2, 3):
            path = Path(folder) / f"{version}.rpd"
            _module("rpd_builder").recording(path, version)
            found.append((path.name, path.read_bytes()))
    return found


def torch_memory() -> list[Sample]:
    """Memory snapshots of PyTorch, of two protocols."""
    module = _module("torch_memory_builder")
    return [("m.pickle", module.dumps(module.small_snapshot(), protocol)) for protocol in (None, 2, 4)]


def rules() -> list[Sample]:
    """Files of rules for events."""
    return [("rules.toml", path.read_bytes()[:6000]) for path in sorted(_RULES.glob("*.toml"))]


def captures(folder: Path) -> list[Path]:
    """Small captures, written below a folder."""
    _capture(folder / "small")
    return [folder / "small"]


def _capture(folder: Path) -> None:
    build = _module("capture_builder").CaptureBuilder(folder, block_bytes=400)
    build.add("capture", host_ns=1000, epoch_ns=1_700_000_000_000_000_000, process_id=1, host_name="h", options="{}")
    build.add("thread", process_id=1, thread_id=1, process_name="p", thread_name="t")
    build.add("model", model_id=1, name="m")
    build.add("op", op_index=1, model_id=1, name="conv", op_type="Conv2D", input_shapes="1,2", flops=5)
    build.add("fusion", fusion_id=1, op_index=1, original_index=0, original_name="a", original_type="Conv")
    build.add("device", 0, device_id=0, name="npu", clock_hz=100_000_000)
    build.add("stream", 0, stream_id=0, name="s")
    for number in range(6):
        at = 2000 + number * 1000
        build.sync(number * 100, at)
        build.call(number + 1, at, at + 100, f"call {number}")
        build.task(number + 1, number * 100 + 20, number * 100 + 60, "conv", correlation_id=number + 1, op_index=1)
        build.add("pmu_pipe_utilization", 0, task_id=number + 1, ticks=number * 100 + 61, aic_total_cycles=9)
        build.add("range", host_ns=at, span_id=number + 1, thread_id=1, name="r", event="begin", args='{"a":1}')
        build.add("range", host_ns=at + 10, span_id=number + 1, thread_id=1, event="end")
        build.add("memory", host_ns=at, block_id=number, device_id=0, size_bytes=64, event="alloc", used_bytes=64)
        build.add("memory", host_ns=at + 5, block_id=number, device_id=0, event="free", used_bytes=0)
        build.add("stream_range", 0, ticks=number * 100, stream_id=0, span_id=number + 1, name="sr", event="begin")
        build.add("stream_range", 0, ticks=number * 100 + 9, stream_id=0, span_id=number + 1, event="end")
        build.add("counter", 0, ticks=number * 100, name="freq", value_unit="hz", value=number)
        build.add("step_mark", 0, ticks=number * 100, step_id=1, model_id=1, iteration=1, mark=number % 4)
    build.close()


def _dump(document: object, indent: int | None = None) -> bytes:
    return json.dumps(document, indent=indent).encode()


#: Reader → its samples.
READERS: dict[str, Callable[[], list[Sample]]] = {
    "chrome_json": chrome,
    "speedscope": speedscope,
    "rocprofv3": rocprofv3,
    "json_items": json_items,
    "megengine_static": megengine,
    "furiosa_csv": furiosa_csv,
    "ncu_csv": ncu_csv,
    "rocprof_csv": rocprof_csv,
    "nsys": nsys,
    "ascend_db": ascend_db,
    "perfetto_proto": perfetto,
    "rocpd": rocpd,
    "rpd": rpd,
    "torch_memory": torch_memory,
    "xplane": xplane,
}
