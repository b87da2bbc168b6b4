"""Rules of each writer: reports on a real trace agree with a plain reading of its JSON."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import rows_of, taken
from shared_data import SHARED, shared
from stores import query

from traceconv.normalize.trace.rule_files import built_in
from traceconv.pipeline.ingest import ingest

REAL = shared("real")
SEEDS = shared("seed_systems")
Event = dict[str, Any]
#: Types whose op names differ from their kernels: LayerNorm90 is a LayerNormV3.
UNLIKE_NAMES = {"MemSet", "ReduceSumD", "LayerNormV3", "StridedSliceD", "DSAStatelessGenBitMask"}


def events_of(path: Path) -> list[Event]:
    data = path.read_bytes()
    found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, parse_float=Decimal)
    events: list[Event] = found["traceEvents"] if isinstance(found, dict) else found
    return events


def nanoseconds(event: Event, key: str = "dur") -> int:
    return int((Decimal(str(event[key])) * 1000).to_integral_value())


def totals(events: Iterator[Event], name: Callable[[Event], str]) -> dict[str, tuple[int, int]]:
    """Count and time (ns) by name."""
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for event in events:
        count[name(event)] += 1
        total[name(event)] += nanoseconds(event)
    return {one: (count[one], total[one]) for one in count}


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path / "trace.duckdb"
    ingest([SHARED / request.param], path)
    with duckdb.connect(str(path), read_only=True) as connection:
        yield connection


def op_totals(store: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    rows = store.execute(
        "SELECT op_type, sum(count)::BIGINT, sum(total_ns)::BIGINT FROM op_statistic GROUP BY 1"
    ).fetchall()
    return {name: (count, total) for name, count, total in rows}


def writer(store: duckdb.DuckDBPyConnection) -> str:
    return str(store.execute("SELECT writer FROM run").fetchall()[0][0])


KINETO = [
    "real/torch/kineto_gpu_metrics_input.json",
    "real/torch/alexnet_critical_path.json.gz",
    "real/torch/mi250_rocm6.2_minitoy.json.gz",
    "real/torch/kineto_resnet50_worker0.pt.trace.json.gz",
]


@pytest.mark.parametrize(("store", "name"), [(name, name) for name in KINETO], indirect=["store"])
def test_kineto(store: duckdb.DuckDBPyConnection, name: str) -> None:
    events = [event for event in events_of(SHARED / name) if event.get("ph") == "X"]
    assert writer(store) == "PyTorch profiler (Kineto)"
    kernels = [event for event in events if event.get("cat") in ("kernel", "Kernel")]
    calls = [event for event in events if event.get("cat") in ("cuda_runtime", "Runtime")]
    assert op_totals(store) == totals(iter(kernels), lambda event: event["name"])
    rows = store.execute(
        "SELECT name, sum(count)::BIGINT, sum(total_ns)::BIGINT FROM api_statistic GROUP BY 1"
    ).fetchall()
    assert {one: (count, total) for one, count, total in rows} == totals(iter(calls), lambda event: event["name"])
    # A kernel's submit time is the start of the call with its correlation ID.
    began = {
        event["args"]["correlation"]: nanoseconds(event, "ts") for event in calls if "correlation" in event["args"]
    }
    for event in kernels[:50]:
        wanted = (event["args"]["device"], event["args"]["stream"], began.get(event["args"]["correlation"]))
        found = store.execute(
            "SELECT DISTINCT device_id, stream_id, submit_ns FROM task WHERE name = ? AND start_ns = ? "
            "AND stream_id = ?",
            [event["name"], nanoseconds(event, "ts"), wanted[1]],
        ).fetchall()
        assert wanted in found
    steps = {event["name"]: event for event in events if event["name"].startswith("ProfilerStep#")}
    rows = store.execute("SELECT DISTINCT iteration, start_ns, end_ns - start_ns FROM step ORDER BY 1").fetchall()
    wanted_steps = sorted(
        (int(one.split("#")[1]), nanoseconds(event, "ts"), nanoseconds(event)) for one, event in steps.items()
    )
    assert [row[0] for row in rows] == [step[0] for step in wanted_steps]
    # Flows lead from a call to the task that it launched.
    wrong = store.execute(
        "SELECT count(*) FROM flow AS f JOIN api AS a ON a.id = f.src_id JOIN task AS t ON t.id = f.dst_id "
        "WHERE a.correlation_id <> t.correlation_id AND a.dur_ns > 0"  # of two at the same time, either may be right
    ).fetchone()
    assert wrong == (0,)
    kinds = store.execute(
        "SELECT count(*) FILTER (f.kind = 'launch'), count(*) FROM flow AS f JOIN api AS a ON a.id = f.src_id "
        "JOIN task AS t ON t.id = f.dst_id"
    ).fetchone()
    assert kinds is not None
    assert kinds[0] == kinds[1] > 0


#: Args of ONNX Runtime with a list of tensors, [{"float": [1, 64]}].
_TENSORS = ("input_type_shape", "output_type_shape")


@pytest.mark.parametrize("store", ["real/onnxruntime/ort_profile_tiny_model.json"], indirect=True)
def test_onnxruntime(store: duckdb.DuckDBPyConnection) -> None:
    events = events_of(REAL / "onnxruntime/ort_profile_tiny_model.json")
    nodes = [event for event in events if event["name"].endswith("_kernel_time")]
    assert writer(store) == "ONNX Runtime"
    assert op_totals(store) == totals(iter(nodes), lambda event: event["args"]["op_name"])
    columns = "input_shapes, input_dtypes, output_shapes, output_dtypes"
    shapes = store.execute(f"SELECT {columns} FROM op WHERE op_type = 'Conv'").fetchall()
    first = next(event["args"] for event in nodes if event["args"]["op_name"] == "Conv")
    sides = [[(kind, dims) for one in first[key] for kind, dims in one.items()] for key in _TENSORS]
    texts = [
        (";".join(",".join(map(str, dims)) for _, dims in side), ";".join(kind for kind, _ in side)) for side in sides
    ]
    assert shapes == [(*texts[0], *texts[1])]
    runs = [(event["ts"] * 1000, event["dur"] * 1000) for event in events if event["name"] == "model_run"]
    found = store.execute("SELECT start_ns, dur_ns FROM inference").fetchall()
    assert found == sorted(runs)
    assert store.execute("SELECT count, max_ns FROM inference_latency").fetchall() == [
        (len(runs), max(runs, key=lambda run: run[1])[1])
    ]


@pytest.mark.parametrize("store", ["real/ascend/torch_npu_level1_rank1/trace_view.json"], indirect=True)
def test_torch_npu(store: duckdb.DuckDBPyConnection) -> None:
    """The vendor's statistic of calls, from the CSV next to the trace."""
    folder = REAL / "ascend/torch_npu_level1_rank1"
    assert writer(store) == "Ascend (torch_npu, msprof)"
    rows = store.execute(
        "SELECT level, regexp_replace(name, '^[A-Za-z]+@', ''), sum(count)::BIGINT, sum(total_ns)::BIGINT "
        "FROM api_statistic GROUP BY ALL"
    ).fetchall()
    found = {(level, name): (count, total) for level, name, count, total in rows}
    with (folder / "api_statistic.csv").open() as file:
        vendor = {
            (row["Level"], row["API Name"]): (int(row["Count"]), int(Decimal(row["Time(us)"]) * 1000))
            for row in csv.DictReader(file)
        }
    assert found.keys() == vendor.keys()
    for key, (count, total) in vendor.items():
        assert found[key][0] == count
        assert abs(found[key][1] - total) <= count  # the vendor sums before rounding
    # Every kernel of the vendor's list is a task with the same time and stream.
    with (folder / "kernel_details.csv").open() as file:
        kernels = [row for row in csv.DictReader(file) if row["Name"] and not row["Name"].startswith("hcom")]
    starts = {start for (start,) in store.execute("SELECT start_ns FROM task").fetchall()}
    assert kernels
    assert all(int(Decimal(row["Start Time(us)"].strip()) * 1000) in starts for row in kernels)


@pytest.mark.parametrize("store", ["real/mindspore/msprof_0_2_1.json"], indirect=True)
def test_msprof_timeline(store: duckdb.DuckDBPyConnection) -> None:
    assert writer(store) == "Ascend (torch_npu, msprof)"
    events = [event for event in events_of(REAL / "mindspore/msprof_0_2_1.json") if event["ph"] == "X"]
    cores = Counter(event["args"]["Task Type"] for event in events if "Task Type" in event.get("args", {}))
    rows = store.execute("SELECT task_type, count(*) FROM task WHERE task_type <> 'HCCL' GROUP BY 1").fetchall()
    assert dict(rows) == dict(cores)
    step = next(event for event in events if event.get("cat") == "Iteration Time")
    assert store.execute("SELECT iteration, start_ns, end_ns FROM step").fetchall() == [
        (1, nanoseconds(step, "ts"), nanoseconds(step, "ts") + nanoseconds(step))
    ]


@pytest.mark.parametrize(
    "store", ["real/mindspore/msprof_0_2_1.json", "real/mindspore/step_trace_0_2_1.json"], indirect=True
)
def test_msprof_iterations(store: duckdb.DuckDBPyConnection) -> None:
    (path,) = store.execute("SELECT source_path FROM run").fetchall()[0]
    events = events_of(Path(path))

    def exactly(text: object) -> int:
        return int((Decimal(str(text)) * 1000).to_integral_value())

    steps = [event for event in events if event.get("cat") == "Iteration Time"]
    reduces = {event["args"]["Iteration ID"]: event for event in events if event.get("cat") == "Reduce"}
    wanted, before = [], None
    for event in sorted(steps, key=lambda one: Decimal(str(one["ts"]))):
        args = event["args"]
        fp, bp, end = (exactly(args[key]) for key in ("FP Start", "BP End", "Iteration End"))
        reduce = reduces[args["Iteration ID"]]
        marked = ([exactly(reduce["ts"])], [exactly(Decimal(str(reduce["dur"])))])
        late = None if before is None else fp - before
        wanted.append((args["Iteration ID"], 2, fp, bp, end, end - fp, bp - fp, end - bp, late, *marked))
        before = end
    columns = "iteration, model_id, fp_start_ns, bp_end_ns, end_ns, iteration_time_ns, fp_to_bp_ns, refresh_ns"
    columns += ", data_aug_bound_ns, reduce_start_ns, reduce_dur_ns"
    assert store.execute(f"SELECT {columns} FROM step_trace").fetchall() == wanted
    assert store.execute("SELECT count(*) FROM task WHERE step_id IS NULL AND kind = 'compute'").fetchall() == [(0,)]


@pytest.mark.parametrize("store", ["seed_systems/megengine/two_devices.chrome_timeline.json"], indirect=True)
def test_megengine(store: duckdb.DuckDBPyConnection) -> None:
    events = events_of(SEEDS / "megengine/two_devices.chrome_timeline.json")
    assert writer(store) == "MegEngine"
    kernels = Counter(event["name"] for event in events if event["ph"] == "B" and event.get("cat") == "Kernel")
    assert {name: count for name, (count, _) in op_totals(store).items()} == dict(kernels)
    assert store.execute("SELECT device_id FROM device ORDER BY 1").fetchall() == [(0,), (1,)]
    copies = sum(event["name"] == "HostToDevice" and event["ph"] == "B" for event in events)
    assert store.execute("SELECT name, count(*) FROM task WHERE kind = 'copy' GROUP BY 1").fetchall() == [
        ("HostToDevice", copies)
    ]
    # Keys that only the end of a slice has are in its row.
    ends = sum(1 for event in events if event["ph"] == "E" and event.get("cat") == "Kernel" and event.get("args"))
    assert store.execute("SELECT count(*) FROM task WHERE args IS NOT NULL AND op_id IS NOT NULL").fetchone() == (ends,)


@pytest.mark.parametrize("store", ["seed_systems/megengine/merge_part0.chrome_timeline.json"], indirect=True)
def test_kernels_of_megengine_are_launched_by_the_op_of_their_name(store: duckdb.DuckDBPyConnection) -> None:
    """Also kernels that take less than the clock's resolution, at whose time the next one begins."""
    launched = "FROM task t LEFT JOIN launching_range l USING (run_id, id) WHERE t.kind = 'compute'"
    counts = f"SELECT count(*), count(*) FILTER (t.dur_ns = 0), count(*) FILTER (l.range_name = t.name) {launched}"
    assert store.sql(counts).fetchall() == [(77, 15, 77)]


@pytest.mark.parametrize("store", ["seed_systems/raf/synthetic.json"], indirect=True)
def test_raf(store: duckdb.DuckDBPyConnection) -> None:
    events = events_of(SEEDS / "raf/synthetic.json")
    assert writer(store) == "RAF"
    others = ("VMInstruction", "MemoryRequest")
    names = [event["name"] for event in events if event["ph"] == "B" and event["cat"] not in others]
    kernels = Counter(re.sub(r"^raf_op_(tvm|cudnn|nccl)_|_[0-9]+$", "", name) for name in names)
    assert {name: count for name, (count, _) in op_totals(store).items()} == dict(kernels)
    assert store.execute("SELECT DISTINCT kind FROM task WHERE name LIKE '%nccl%'").fetchall() == [("collective",)]


@pytest.mark.parametrize(
    ("table", "unlike"),
    [("torch_npu_level1_rank1/kernel_details.csv", set[str]()), ("msprof_analyze_kernel_details.csv", UNLIKE_NAMES)],
)
def test_types_from_names_are_equal_to_the_vendors_tables(table: str, unlike: set[str]) -> None:
    rules = next(rules for rules in built_in() if rules.title.startswith("Ascend"))
    with (REAL / "ascend" / table).open(newline="") as lines:
        rows = [(row["Name"], row["Type"]) for row in csv.DictReader(lines)]
    assert {op_type for name, op_type in rows if rules.type_in(name) != op_type} == unlike


@pytest.mark.parametrize("store", ["seed_systems/furiosa/injected_seed.export_chrome_trace.json"], indirect=True)
def test_furiosa(store: duckdb.DuckDBPyConnection) -> None:
    events = events_of(SEEDS / "furiosa/injected_seed.export_chrome_trace.json")
    assert writer(store) == "Furiosa"
    operators = [
        event for event in events if event.get("cat") == "NPU" and event["name"] not in ("Execution", "Load", "Store")
    ]
    assert op_totals(store) == totals(iter(operators), lambda event: event["name"])
    rows = store.execute("SELECT kind, count(*) FROM range GROUP BY 1").fetchall()
    assert dict(rows) == {"inference": 4, "execution": 4, "external_op": 16, "annotation": 1}
    executions = store.execute(
        "SELECT pe_index, item_index FROM range WHERE kind = 'execution' ORDER BY ALL"
    ).fetchall()
    wanted = [event["args"] for event in events if event["name"] == "Execution"]
    assert executions == sorted((int(args["pe_index"]), int(args["execution_index"])) for args in wanted)


@pytest.mark.parametrize("store", ["seed_systems/furiosa/chrome_small.json"], indirect=True)
def test_furiosa_spans(store: duckdb.DuckDBPyConnection) -> None:
    events = [event for event in events_of(SEEDS / "furiosa/chrome_small.json") if event["ph"] == "X"]
    assert writer(store) == "Furiosa"
    wanted = sorted((event["args"]["trace_id"], event["args"]["span_id"], event["name"]) for event in events)
    assert store.execute("SELECT trace_id, span_id, name FROM range ORDER BY ALL").fetchall() == wanted


@pytest.mark.parametrize("store", ["real/chrome/devtools_blocking_time.json.gz"], indirect=True)
def test_chrome(store: duckdb.DuckDBPyConnection) -> None:
    assert writer(store) == "Chrome"
    assert store.execute("SELECT count(*) FROM task").fetchone() == (0,)
    assert store.execute("SELECT count(*) FROM flow WHERE src_id IS NOT NULL AND dst_id IS NOT NULL").fetchone() == (
        119,
    )


DFTRACER = ["real/dftracer/cm1_3537787_preload.pfw.gz", "real/dftracer/v1_test.pfw.gz"]


@pytest.mark.parametrize(("store", "name"), [(name, name) for name in DFTRACER], indirect=["store"])
def test_dftracer(store: duckdb.DuckDBPyConnection, name: str) -> None:
    lines = gzip.decompress((SHARED / name).read_bytes()).decode().splitlines()
    events = [json.loads(line) for line in lines if line.strip() not in ("[", "]")]
    assert writer(store) == "DFTracer"
    calls = [event for event in events if event["cat"] in ("POSIX", "STDIO")]
    rows = store.execute(
        "SELECT upper(level) || ' ' || name, sum(count)::BIGINT, sum(total_ns)::BIGINT FROM api_statistic GROUP BY 1"
    ).fetchall()
    wanted = totals(iter(calls), lambda event: f"{event['cat']} {event['name']}")
    assert {call: (count, total) for call, count, total in rows} == wanted
    # Each call is on its thread, at its time, with the details of its file.
    found = store.execute(
        "SELECT a.name, a.start_ns, a.args->>'$.fname', a.args->>'$.fhash', a.args->>'$.ret', p.pid_text "
        "FROM api AS a JOIN track AS t USING (run_id, track_id) JOIN process AS p USING (run_id, process_id)"
    ).fetchall()

    def arg(event: Event, key: str) -> str | None:
        return str(event["args"][key]) if key in event["args"] else None

    assert Counter(found) == Counter(
        (event["name"], nanoseconds(event, "ts"), *(arg(event, key) for key in ("fname", "fhash", "ret")),
         str(event["pid"]))
        for event in calls
    )  # fmt: skip
    own = sorted(event["name"] for event in events if event["cat"] == "dftracer" and event["ph"] == "X")
    assert store.execute("SELECT name FROM range ORDER BY 1").fetchall() == [(one,) for one in own]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert store.execute("SELECT name FROM process").fetchall() == [(one,) for one in named or [None]]


def test_application_functions_in_dftracer(tmp_path: Path) -> None:
    """Not in the real files: functions of an application are ranges, and its numbered steps are steps."""
    rows = [
        ("train", "COMPUTE", 0, 100),
        ("step 1", "loop", 5, 40),
        ("read", "POSIX", 10, 20),
        ("step 2", "loop", 50, 45),
    ]
    lines = [
        json.dumps({"id": n, "name": name, "cat": cat, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "ph": "X", "args": {}})
        for n, (name, cat, ts, dur) in enumerate(rows)
    ]
    _, store = taken("\n".join(["[", *lines, "]"]), tmp_path, "app.pfw")
    with duckdb.connect(str(store), read_only=True) as store:
        assert writer(store) == "DFTracer"
        assert store.execute("SELECT name, category, kind FROM range ORDER BY start_ns").fetchall() == [
            ("train", "COMPUTE", "annotation"), ("step 1", "loop", "annotation"), ("step 2", "loop", "annotation"),
        ]  # fmt: skip
        assert store.execute("SELECT iteration, start_ns, end_ns FROM step ORDER BY 1").fetchall() == [
            (1, 5000, 45000), (2, 50000, 95000),
        ]  # fmt: skip
        # Calls have their step.
        assert store.execute(
            "SELECT a.level, a.name, s.iteration FROM api AS a LEFT JOIN step AS s USING (run_id, step_id)"
        ).fetchall() == [("posix", "read", 1)]


@pytest.mark.parametrize("store", ["real/torch/b200_eager_trace.json.gz"], indirect=True)
def test_launching_operators_under_python_stacks(store: duckdb.DuckDBPyConnection) -> None:
    """A kernel's operator is the shortest cpu_op on the call's thread that encloses the launching call."""
    events = [event for event in events_of(REAL / "torch/b200_eager_trace.json.gz") if event["ph"] == "X"]
    ops: dict[object, list[tuple[int, int, str]]] = {}
    calls: dict[int, list[Event]] = {}
    for event in events:
        start = nanoseconds(event, "ts")
        if event.get("cat") == "cpu_op":
            ops.setdefault(event["tid"], []).append((start, start + nanoseconds(event), event["name"]))
        elif event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls.setdefault(event["args"].get("correlation"), []).append(event)
    wanted: Counter[str | None] = Counter()
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            (call,) = calls[event["args"]["correlation"]]
            at = nanoseconds(call, "ts")
            around = [(end - start, name) for start, end, name in ops.get(call["tid"], []) if start <= at < end]
            wanted[min(around)[1] if around else None] += nanoseconds(event)
    rows = store.execute(
        "SELECT CASE WHEN range_kind = 'host_op' THEN range_name END, sum(dur_ns)::BIGINT "
        "FROM launching_range GROUP BY 1"
    ).fetchall()
    assert dict(rows) == dict(wanted)
    assert store.execute("SELECT count(*) FROM launching_range WHERE frame_id IS NULL").fetchall() == [(0,)]


@pytest.mark.parametrize("store", ["seed_systems/megengine/steps.chrome_timeline.json"], indirect=True)
def test_megengine_kernels_belong_to_the_step_that_dispatched_them(store: duckdb.DuckDBPyConnection) -> None:
    events = events_of(SEEDS / "megengine/steps.chrome_timeline.json")
    names = {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    ends = [event["ts"] for event in events if event["name"] == "StopStep" and names[event["tid"]] == "interpreter"]
    dispatched = {
        event["args"]["__id__"]: 1 + sum(event["ts"] >= end for end in ends)
        for event in events
        if event["ph"] == "E" and event["name"] == "OpDispatch"
    }
    kernels = [event for event in events if event["ph"] == "E" and event.get("cat") == "Kernel"]
    wanted = Counter((dispatched[event["args"]["__id__"]], event["name"]) for event in kernels)
    found = "SELECT step_id, name, count(*) FROM task WHERE kind = 'compute' GROUP BY ALL"
    assert {(step, name): count for step, name, count in store.execute(found).fetchall()} == dict(wanted)
    assert {step for step, _ in wanted} == {1, 2, 3}
    late = "SELECT count(*) FROM task JOIN step USING (run_id, step_id) WHERE task.start_ns > step.end_ns"
    assert store.execute(late).fetchall()[0][0] > 0


def test_nodes_of_onnxruntime_that_run_other_events(tmp_path: Path) -> None:
    """Tasks are the innermost: neither control flow, nor launches of kernels that have events of their own."""
    cpu, gpu = ({"provider": f"{kind}ExecutionProvider"} for kind in ("CPU", "CUDA"))
    thread = {"cat": "Node", "pid": 5, "tid": 5, "ph": "X"}
    nodes = [
        {**thread, "ts": 10, "dur": 4, "name": "a_kernel_time", "args": {"op_name": "MatMul", **cpu}},
        {**thread, "ts": 9, "dur": 6, "cat": "Session", "name": "SequentialExecutor::Execute"},
        {**thread, "ts": 8, "dur": 8, "name": "b_kernel_time", "args": {"op_name": "If", **cpu}},
        {**thread, "ts": 17, "dur": 3, "name": "If_kernel_time", "args": {"op_name": "Add", **cpu}},
        {**thread, "ts": 7, "dur": 15, "name": "c_kernel_time", "args": {"op_name": "Loop", **cpu}},
        {**thread, "ts": 30, "dur": 3, "name": "d_kernel_time", "args": {"op_name": "Conv", **gpu}},
    ]
    kernels = [
        {"cat": "Kernel", "pid": -1, "tid": -1, "dur": 40, "ts": 34, "ph": "X", "name": "void conv<float>(int)",
         "args": {"stream": "0x1", "grid_x": "8", "op_name": "Conv", "parent_name": "d_kernel_time"}},
        {"cat": "Kernel", "pid": -1, "tid": -1, "dur": 2, "ts": 80, "ph": "X", "name": "MemcpyDeviceToHost",
         "args": {"stream": "13", "size": "64"}},
    ]  # fmt: skip
    found = []
    for number, events in enumerate((nodes, [*nodes, *kernels])):
        path, db = tmp_path / f"{number}.json", tmp_path / f"{number}.duckdb"
        path.write_text(json.dumps(events))
        ingest([path], db)
        found.append(
            query(
                db,
                "SELECT t.kind, t.device_id, t.stream_id, t.dur_ns, t.size_bytes, o.op_type FROM task AS t "
                "LEFT JOIN op AS o USING (run_id, op_id) ORDER BY t.start_ns",
            )
        )
    of_cpu = [("compute", 0, None, 4000, None, "MatMul"), ("compute", 0, None, 3000, None, "Add")]
    assert found[0] == [*of_cpu, ("compute", 0, None, 3000, None, "Conv")]
    assert found[1] == [*of_cpu, ("compute", None, 1, 40000, None, "Conv"), ("copy", None, 13, 2000, 64, None)]


def test_kineto_without_categories(tmp_path: Path) -> None:
    events = events_of(REAL / "torch/kineto_gpu_metrics_input.json")
    found = []
    for keys in ({"cat"}, set()):
        path, db = tmp_path / "trace.json", tmp_path / f"{len(keys)}.duckdb"
        kept = [{key: value for key, value in event.items() if key not in keys} for event in events]
        path.write_text(json.dumps({"computeProperties": [], "traceEvents": kept}, default=float))
        ingest([path], db)
        found.append(
            query(db, "SELECT start_ns, dur_ns, kind, device_id, stream_id, size_bytes, submit_ns, api_id FROM task")
        )
    assert sorted(found[0]) == sorted(found[1])


def test_unitrace(tmp_path: Path) -> None:
    """Names of processes come last; PyTorch has the same category for calls of the host."""
    host, device = {"pid": 10, "tid": 11}, {"pid": 4294967295, "tid": 4294967294}
    tile = {"pid": 4294967293, "tid": 4294967292}
    events = [
        {"ph": "X", **host, "name": "zeCommandListAppendLaunchKernel", "cat": "cpu_op", "ts": 1, "dur": 5, "id": 0},
        {"ph": "X", **host, "name": "MPI_Send", "cat": "cpu_op", "ts": 7, "dur": 1, "args": {"ssize": 4}},
        {"ph": "X", **host, "name": "my task", "cat": "cpu_op", "ts": 8, "dur": 1, "id": 0},
        *(
            {"ph": "X", **where, "name": name, "cat": "gpu_op", "ts": ts, "dur": 20, "args": {"id": str(ts)}}
            for where, ts, name in (
                (device, 10, "gemm[SIMD16 {256; 1; 1} {64; 1; 1}]"),
                (tile, 20, "Tile #1: gemm[SIMD16 {256; 1; 1} {64; 1; 1}]"),
                (device, 30, "zeCommandListAppendMemoryCopy(M2D)[4096 bytes]"),
                (device, 50, "zeCommandListAppendBarrier"),
                (device, 70, "zeCommandListAppendMemoryFill(D)[64]"),
                (device, 90, "oneapi::ccl::v1::allreduce_small_kernel[SIMD32 {1; 1; 1} {64; 1; 1}]"),
            )
        ),
        # Each flow has a category of its own. Those from a command to the call that waits for it are no launches.
        {"ph": "s", **host, "name": "dep", "cat": "Flow_H2D_10_0", "ts": 1, "id": 10},
        {"ph": "t", **device, "name": "dep", "cat": "Flow_H2D_10_0", "ts": 10, "id": 10},
        {"ph": "s", **device, "name": "dep", "cat": "Flow_D2H_10_0", "ts": 10, "id": 10},
        {"ph": "t", **host, "name": "dep", "cat": "Flow_D2H_10_0", "ts": 7, "id": 10},
        {"ph": "M", "name": "process_name", "pid": 10, "ts": 0, "args": {"name": "HOST<node1>"}},
        {"ph": "M", "name": "process_name", **device, "args": {"name": "RANK 0 DEVICE<node1>0:3a:0.0 #0"}},
        {"ph": "M", "name": "process_name", **tile, "args": {"name": "RANK 0 DEVICE<node1>0:3b:0.0 #1.0"}},
    ]
    path = tmp_path / "python.10.json"
    path.write_text(json.dumps({"traceEvents": events}))
    db = tmp_path / "trace.duckdb"
    ingest([path], db)
    with duckdb.connect(str(db), read_only=True) as store:
        assert writer(store) == "unitrace"
        assert store.execute(
            "SELECT t.kind, t.device_id, t.correlation_id, t.size_bytes, t.submit_ns, o.op_type FROM task AS t "
            "LEFT JOIN op AS o USING (run_id, op_id) ORDER BY t.start_ns"
        ).fetchall() == [
            ("compute", 0, 10, None, 1000, "gemm"), ("compute", 1, 20, None, None, "gemm"),
            ("copy", 0, 30, 4096, None, None), ("sync", 0, 50, None, None, None), ("copy", 0, 70, 64, None, None),
            ("collective", 0, 90, None, None, "oneapi::ccl::v1::allreduce_small_kernel"),
        ]  # fmt: skip
        assert store.execute(
            "SELECT f.kind, a.name, t.name FROM flow AS f JOIN api AS a ON a.id IN (src_id, dst_id) "
            "JOIN task AS t ON t.id IN (src_id, dst_id) ORDER BY f.kind"
        ).fetchall() == [
            ("launch", "zeCommandListAppendLaunchKernel", "gemm[SIMD16 {256; 1; 1} {64; 1; 1}]"),
            ("other", "MPI_Send", "gemm[SIMD16 {256; 1; 1} {64; 1; 1}]"),
        ]
        assert store.execute("SELECT level, name FROM api ORDER BY start_ns").fetchall() == [
            ("driver", "zeCommandListAppendLaunchKernel"),
            ("communication", "MPI_Send"),
        ]
        assert store.execute("SELECT name FROM range").fetchall() == [("my task",)]


@pytest.mark.parametrize(
    ("processes", "by"),
    [(["CPU OP"], "MindSpore (host)"), (["CPU OP", "Ascend Hardware"], "Ascend (torch_npu, msprof)")],
)
def test_operators_of_mindspore_on_the_host(processes: list[str], by: str, tmp_path: Path) -> None:
    """As MindSpore 2.10 writes them, with and without a device."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in enumerate(processes, 2)
    ]
    times = {"ts": "1795959967843826.916", "dur": "1.833", "cat": ""}
    events.append({"ph": "X", "name": "AddExt", "pid": 2, "tid": 0, **times, "args": {"type": "HostCpuOps"}})
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))
    ingest([path], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        assert writer(store) == by
        expected = [("AddExt", "host_op", 1795959967843826916, 1833)]
        assert store.execute("SELECT name, kind, start_ns, dur_ns FROM range").fetchall() == expected


def test_steps_of_mindspore(tmp_path: Path) -> None:
    """As MindSpore 2.7 writes them: events of the framework have no category, and names with their module."""
    named = {1: "MindSpore", 3: "CANN", 4: "Ascend Hardware"}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in named.items()
    ]
    events.append({"ph": "M", "name": "thread_name", "pid": 4, "tid": 2, "args": {"name": "Stream 2"}})
    for step in (11, 12):
        ts = 100 * step
        events += [
            {"ph": "X", "pid": pid, "tid": tid, "ts": f"{ts + at}.125", "dur": dur, "cat": "", "name": name, **args}
            for pid, tid, at, dur, name, args in (
                (1, 7, 0, 90, f"Python::PythonObserved::ProfilerStep#{step}", {}),
                (1, 7, 5, 30, "Kernel::KernelLaunch::Default/Mul-op0", {}),
                (3, 7, 10, 20, "AscendCL@aclnnMul", {"args": {"connection_id": step}}),
                (4, 2, 95, 15, "Mul", {"args": {"Task Type": "AI_VECTOR_CORE", "connection_id": step}}),
            )
        ]
    sql = "SELECT t.step_id, s.iteration, t.submit_ns FROM task AS t JOIN step AS s USING (step_id) ORDER BY t.start_ns"
    wanted = [(step, step, (100 * step + 10) * 1000 + 125) for step in (11, 12)]
    assert rows_of(events, tmp_path, sql, "trace_view.json") == wanted


def test_operators_and_functions_of_xla_on_the_host(tmp_path: Path) -> None:
    """As JAX 0.10 and TensorFlow 2.21 write them."""
    named = [
        ("dot.1", "host_op", {"hlo_op": "dot.1", "hlo_module": "jit_f"}),
        ("MatMul", "host_op", {"long_name": "dense/Relu:MatMul"}),
        ("ReadFile", "annotation", {"long_name": "data"}),
        ("$compiler.py:292 compile", "frame", {}),
        ("train", "annotation", {"step_num": "3"}),
    ]
    path = tmp_path / "host.trace.json"
    events: list[dict[str, object]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/host:CPU"}}]
    events += [
        {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 10 * ts, "dur": 5, "args": args}
        for ts, (name, _, args) in enumerate(named)
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    ingest([path], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        assert writer(store) == "JAX, TensorFlow (XLA profiler)"
        kinds = store.execute("SELECT name, kind FROM range ORDER BY start_ns").fetchall()
        assert kinds == [(name, kind) for name, kind, _ in named]
        assert store.execute("SELECT iteration FROM step").fetchall() == [(3,)]


def test_mxnet(tmp_path: Path) -> None:
    """It writes each operator twice: on its device, and as an asynchronous event of a process of its own."""
    processes = ["cpu/0", "gpu/0", "cpu pinned/", "operator", "MXNET_C_API"]
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in enumerate(processes)
    ]
    for pid, name, ts in ((0, "CopyCPU2GPU", 10), (1, "FullyConnected", 20)):
        times = zip("BE", "be", (ts, ts + 5), strict=True)
        for of_device, asynchronous, at in times:
            operator = {"name": name, "cat": "operator", "ts": at}
            events.append({**operator, "ph": of_device, "pid": pid, "tid": 77})
            events.append({**operator, "ph": asynchronous, "pid": 3, "tid": 77, "id": 77})
    call = {"name": "MXNDArrayFree", "cat": "MXNET_C_API", "pid": 4, "tid": 9, "id": 9}
    events += [{**call, "ph": "b", "ts": 30}, {**call, "ph": "e", "ts": 31}]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"traceEvents": events}))
    ingest([path], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        assert writer(store) == "MXNet profiler"
        ranges = "SELECT name, kind FROM range ORDER BY kind, start_ns"
        again = [("CopyCPU2GPU", "summary"), ("FullyConnected", "summary")]
        assert store.execute(ranges).fetchall() == [("CopyCPU2GPU", "host_op"), *again]
        tasks = "SELECT name, kind, device_id, dur_ns FROM task"
        assert store.execute(tasks).fetchall() == [("FullyConnected", "compute", 0, 5000)]
        assert store.execute("SELECT name, level FROM api").fetchall() == [("MXNDArrayFree", "framework")]
        for report in ("range_statistic", "op_tree WHERE name IS NOT NULL"):
            assert store.execute(f"SELECT name, count FROM {report}").fetchall() == [("CopyCPU2GPU", 1)]


def test_paddle(tmp_path: Path) -> None:
    """Names end in durations, quotes in names have no backslash, and copies have no device in their args."""
    span = '"args": {{ "start_time": "{:.3f} us", "end_time": "{:.3f} us"{} }}\n  }},\n  '

    def slice_of(name: str, category: str, ts: int, dur: float, track: str, more: str = "") -> str:
        shown = f"{dur / 1000:.3f} ms" if dur > 1000 else f"{dur:.3f} us"
        return (
            f'\n  {{ \n    "name": "{name}[{shown}]", {track},\n    "ts": {ts}, "dur": {dur:.3f},\n    "ph": "X", '
            f'"cat": "{category}", \n    "cname": "thread_state_runnable",\n    {span.format(ts, ts + dur, more)}'
        )

    python, cpp, gpu = '"pid": 5, "tid": "5(Python)"', '"pid": 5, "tid": "5(C++)"', '"pid": 0, "tid": 7'
    on_gpu = ',\n "device": 0, "context": 1, "stream": 7, "correlation id": {}'
    kernel = on_gpu + ', "registers per thread": 32, "grid": [1, 1, 1], "theoretical achieved occupancy %": 50.000'
    operator = ', "input_shapes": {"X":[[8,16]]}, "input_dtypes": {"X":["float"]}, "callstack": ""'
    memory = (
        '\n  { \n    "name": "[memory]", %s,\n    "ts": 113, \n    "ph": "i", "cat": "Allocate", \n    "args": {%s}},\n'
    )
    flow = '\n  {{ \n    "name": "launch", "id": {}, {},\n    "ts": {}, \n    "ph": "{}", "cat": "async"{}\n  }},\n  '
    named = (
        '\n  {\n "name": "process_name", "pid": 0, "tid": 7,\n "ph": "M", \n "args": { "name": "Deivce 0 (GPU)" }\n  },'
    )
    path = tmp_path / "host_a_pid_5_time_2026.paddle_trace.json"
    path.write_text(
        '\n  { \n    "displayTimeUnit": "ms",\n    "schemaVersion": "1.0.1",\n    "span_indx": "0",\n    '
        '"deviceProperties": [\n    {\n "id": 0, "name": "A100"\n    }],\n    "traceEvents": [\n  '
        + slice_of("ProfileStep#4", "ProfileStep", 100, 1500.25, python)
        + slice_of('my "range"', "PythonUserDefined", 110, 300, python)
        + slice_of("relu", "Operator", 112, 30, cpp, operator)
        + memory % (cpp, '"place": "Place(gpu:0)", "addr": "139", "increase_bytes": 512')
        + slice_of("cudaLaunchKernel", "CudaRuntime", 120, 4, cpp, ',\n "correlation id": 11')
        + flow.format(11, cpp, 122, "s", "")
        + slice_of("void relu[4]<float>", "Kernel", 130, 2.5, gpu, kernel.format(11))
        + flow.format(11, gpu, 131, "f", ', "bp": "e"')
        + slice_of("ncclKernel_AllReduce_RING", "Kernel", 140, 1200.125, gpu, kernel.format(12))
        + slice_of("void deep_ep::intranode::combine<8>", "Kernel", 1380, 2, gpu, kernel.format(15))
        + slice_of("MEMCPY_HtoD", "Memcpy", 1400, 0.5, gpu, ',\n "stream": 7, "correlation id": 13, "bytes": 64')
        + slice_of("MEMSET", "Memset", 1402, 1, gpu, on_gpu.format(14) + ', "bytes": 32, "value": 0')
        + named
        + '\n  {}\n  ],\n  \n  "ExtraInfo": {\n     "5": "MainThread"\n   \n  }\n  }\n  '
    )
    db = tmp_path / "trace.duckdb"
    assert not ingest([path], db).lossy
    with duckdb.connect(str(db), read_only=True) as store:
        assert writer(store) == "Paddle profiler"
        assert store.execute(
            "SELECT name, kind, kind_source, task_type, device_id, stream_id, correlation_id, size_bytes, start_ns, "
            "dur_ns FROM task ORDER BY start_ns"
        ).fetchall() == [
            ("void relu[4]<float>", "compute", "recorded", "KERNEL", 0, 7, 11, None, 130000, 2500),
            ("ncclKernel_AllReduce_RING", "collective", "name", "KERNEL", 0, 7, 12, None, 140000, 1200125),
            ("void deep_ep::intranode::combine<8>", "collective", "name", "KERNEL", 0, 7, 15, None, 1380000, 2000),
            ("MEMCPY_HtoD", "copy", "recorded", "MEMCPY", 0, 7, 13, 64, 1400000, 500),
            ("MEMSET", "copy", "recorded", "MEMSET", 0, 7, 14, 32, 1402000, 1000),
        ]
        assert store.execute("SELECT op_type, total_ns FROM op_statistic").fetchall() == [
            ("ncclKernel_AllReduce_RING", 1200125),
            ("void relu[4]<float>", 2500),
            ("void deep_ep::intranode::combine<8>", 2000),
        ]
        assert store.execute("SELECT name, level, correlation_id FROM api").fetchall() == [
            ("cudaLaunchKernel", "runtime", 11)
        ]
        assert store.execute("SELECT name, kind FROM range ORDER BY start_ns").fetchall() == [
            ("ProfileStep#4", "annotation"), ('my "range"', "annotation"), ("relu", "host_op"),
        ]  # fmt: skip
        assert store.execute("SELECT step_id, start_ns, end_ns FROM step").fetchall() == [(4, 100000, 1600250)]
        assert store.execute("SELECT t.name, a.name FROM task AS t JOIN api AS a ON a.id = t.api_id").fetchall() == [
            ("void relu[4]<float>", "cudaLaunchKernel")
        ]


def test_hpus_in_kineto(tmp_path: Path) -> None:
    """Gaudi's events that are no kernels, copies or fills share one category, on the host and on the device."""
    recipe = {"recipeId": 1, "recipeName": "r"}
    events = [
        {"ph": "X", "cat": "hpu_op", "name": "synLaunch", "pid": 50, "tid": 3, "ts": 1, "dur": 2},
        {
            "ph": "X",
            "cat": "kernel",
            "name": "relu_fwd",
            "pid": 0,
            "tid": 7001,
            "ts": 5,
            "dur": 2,
            "args": {"device": 0},
        },
        {"ph": "X", "cat": "hpu_op", "name": "read", "pid": 0, "tid": 1, "ts": 7, "dur": 1, "args": recipe},
        {"ph": "X", "cat": "hpu_op", "name": "send", "pid": 0, "tid": 2, "ts": 8, "dur": 1, "args": recipe},
        {"ph": "X", "cat": "hpu_op", "name": "monitor", "pid": 0, "tid": 3, "ts": 9, "dur": 1, "args": recipe},
        {"ph": "X", "cat": "hpu_op", "name": "relu_fwd", "pid": 0, "tid": 7001, "ts": 5, "dur": 0},
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "/device:HPU:0"}},
        {"ph": "M", "name": "process_name", "pid": 50, "tid": 0, "args": {"name": "Synapse Logger"}},
        *(
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": name}}
            for tid, name in ((1, "PDMA 0"), (2, "NIC 4"), (3, "SM 0"), (7001, "TPC 1"))
        ),
    ]
    path = tmp_path / "gaudi.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    db = tmp_path / "trace.duckdb"
    ingest([path], db)
    with duckdb.connect(str(db), read_only=True) as store:
        assert store.execute("SELECT name, kind, device_id FROM task ORDER BY start_ns, dur_ns").fetchall() == [
            ("relu_fwd", "sync", 0), ("relu_fwd", "compute", 0), ("read", "copy", 0), ("send", "collective", 0),
            ("monitor", None, 0),
        ]  # fmt: skip
        assert store.execute("SELECT name, level FROM api").fetchall() == [("synLaunch", "runtime")]
        assert store.execute("SELECT count(*) FROM range").fetchall() == [(0,)]


@pytest.mark.parametrize("start_us", [0, 1_201_478_000])
def test_exact_times_of_rocprof(tmp_path: Path, start_us: int) -> None:
    """`ts` and `dur` are whole microseconds, 0 of which become 1, from the start of the recording in some versions."""

    def event(name: str, pid: int, begin_ns: int, end_ns: int, **args: str) -> Event:
        ts, dur = begin_ns // 1000 - start_us, max((end_ns - begin_ns) // 1000, 1)
        args = {"BeginNs": str(begin_ns), "EndNs": str(end_ns), "DurationNs": str(end_ns - begin_ns), **args}
        return {"ph": "X", "name": name, "pid": pid, "tid": 1, "ts": str(ts), "dur": str(dur), "args": args}

    def flow(ph: str, number: int, pid: int, ns: int) -> Event:
        ts = ns // 1000 - start_us
        return {"ph": ph, "cat": "DataFlow", "id": number, "name": "dep", "pid": pid, "tid": 1, "ts": ts}

    at = 1_201_478_076_289
    names = {2: "CPU HIP API", 6: "GPU0"}
    queue = {"dev-id": "0", "queue-id": "0", "stream-id": "1"}
    events = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names.items()]
    events += [
        event("hipLaunchKernel", 2, at, at + 2640),
        event("hipLaunchKernel", 2, at + 2700, at + 5000),  # starts in the microsecond in which the first one ends
        event("first", 6, at + 9100, at + 11_650, **queue),
        event("second", 6, at + 11_690, at + 14_001, **queue),
        event("short", 6, at + 20_000, at + 20_640, **queue),
        {**event("moved", 6, at + 30_000, at + 32_000, **queue), "ts": "77", "dur": "2"},
        flow("s", 1, 2, at + 2640),
        flow("t", 1, 6, at + 9100),
        flow("s", 2, 2, at + 5000),
        flow("t", 2, 6, at + 11_690),
    ]
    path, db = tmp_path / "results.json", tmp_path / "trace.duckdb"
    path.write_text(json.dumps({"traceEvents": [{}, *events]}))
    ingest([path], db)
    start = at - start_us * 1000
    assert query(db, "SELECT name, start_ns, dur_ns, submit_ns FROM task WHERE name <> 'moved' ORDER BY start_ns") == [
        ("first", start + 9100, 2550, start),
        ("second", start + 11_690, 2311, start + 2700),
        ("short", start + 20_000, 640, None),
    ]
    assert query(db, "SELECT start_ns, dur_ns FROM task WHERE name = 'moved'") == [(77_000, 2000)]
    assert query(db, "SELECT start_ns, dur_ns FROM api ORDER BY start_ns") == [(start, 2640), (start + 2700, 2300)]


def test_rocprof_before_rocprofv3(tmp_path: Path) -> None:
    """Times are texts; a flow leads from a call to what it launched; a merged trace has the rank behind each name."""

    def event(name: str, pid: int, tid: int, ts: int, dur: int, **args: str) -> Event:
        return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": str(ts), "dur": str(dur), "args": args}

    def flow(ph: str, number: int, pid: int, tid: int, ts: int) -> Event:
        return {"ph": ph, "cat": "DataFlow", "id": number, "name": "dep", "pid": pid, "tid": tid, "ts": str(ts)}

    names = {1: "COPY", 2: "CPU HIP API", 3: "CPU HSA API", 6: "GPU0", 7: "GPU1 r4"}
    events = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names.items()]
    events += [
        event("hipLaunchKernel", 2, 100, 10, 4, BeginNs="10000", EndNs="14500", Name="hipLaunchKernel"),
        event("hsa_queue_create", 3, 100, 11, 1),
        event("void add<int>(int*)", 6, 1, 20, 30, **{"dev-id": "0", "queue-id": "0", "stream-id": "1"}),
        event("mul(int*)", 7, 0, 20, 5, **{"dev-id": "1", "queue-id": "3"}),
        event("CopyDeviceToHost", 1, 0, 60, 8, **{"dev-id": "0", "queue-id": "0", "stream-id": "1"}),
        event("hcCommandMarker", 1, 0, 70, 1),
        flow("s", 1, 2, 100, 10),
        flow("t", 1, 6, 1, 20),
    ]
    path, db = tmp_path / "results.json", tmp_path / "trace.duckdb"
    path.write_text(json.dumps({"traceEvents": [{}, *events]}))
    ingest([path], db)
    rows = "SELECT name, kind, device_id, stream_id, start_ns, dur_ns, submit_ns FROM task ORDER BY start_ns, name DESC"
    assert query(db, rows) == [
        ("void add<int>(int*)", "compute", 0, 1, 20_000, 30_000, 10_000),
        ("mul(int*)", "compute", 1, 3, 20_000, 5_000, None),
        ("CopyDeviceToHost", "copy", 0, 1, 60_000, 8_000, None),
        ("hcCommandMarker", "sync", None, None, 70_000, 1_000, None),
    ]
    assert query(db, "SELECT level, name FROM api ORDER BY start_ns") == [
        ("runtime", "hipLaunchKernel"),
        ("driver", "hsa_queue_create"),
    ]
