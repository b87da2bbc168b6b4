"""The report trust: names each loss planted in a real trace, and finds nothing in clean ones."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx_models import ModelBuilder
from shared_data import SHARED, shared
from stores import query

import traceconv
from traceconv.reports.catalog import reports
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
Finding = tuple[str, str | None, int]
Trace = dict[str, Any]

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces/pytorch/resnet18.pt.trace.json.gz"
CPU_ONLY = Path(__file__).resolve().parent / "key_averages/trace.json.gz"
REAL = SHARED / "real"
#: Findings in real traces, all explained: kernels of a B200 start while the one before ends (programmatic dependent
#: launch), as those of JAX and rocprofv3 do; copies of collectives overlap on their stream, and the clock of that
#: device is ahead of the host's. All events of Triton's example are in the first 0.4 s of its step, which lasts 13 s,
#: and the first and last event of the CPU trace of rank 34 are those of a few operators that were kept by hand. The
#: trace of the B200 was rewritten without metadata and what PyTorch writes last. The clock of msprof-analyze's device
#: is ahead, too, and two of its tasks have no call. Some flows of MindSpore's step trace lead to no event.
EXPECTED: dict[str, list[Finding]] = {
    "torch/alexnet_critical_path.json.gz": [],
    "torch/b200_eager_trace.json.gz": [("cut_file", None, 1), ("overlapping_tasks", None, 74)],
    "torch/cpu_only_rank34.pt.trace.json.gz": [("silent_steps", "end", 1)],
    "torch/kineto_resnet50_worker0.pt.trace.json.gz": [],
    "torch/mi250_rocm6.2_minitoy.json.gz": [],
    "torch/nccl_metadata.json.gz": [],
    "torch/ns_resolution_rank0.pt.trace.json.gz": [],
    "torch/triton_example.json.gz": [("silent_end", None, 1), ("silent_steps", "end", 1)],
    "ascend/torch_npu_level1_rank1": [("early_tasks", None, 36), ("overlapping_tasks", None, 24)],
    "ascend/msprof_analyze_trace_view.json": [("early_tasks", None, 99), ("lost_launches", "middle", 2)],
    "mindspore/msprof_0_2_1.json": [],
    "mindspore/step_trace_0_2_1.json": [("broken_flows", None, 4)],
    "tensorflow/timeline_gpu_03_merged.json": [],
    "jax/te_fused_attn.xplane.pb": [("overlapping_tasks", None, 6)],
    "rocm/rocprofv3_908_results.json.gz": [("overlapping_tasks", None, 1275)],
}
#: Categories of tasks, also in older traces.
TASKS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
#: Real traces with steps.
STEPPED = ("torch/kineto_resnet50_worker0.pt.trace.json.gz", "torch/nccl_metadata.json.gz")


def findings(path: Path) -> list[Finding]:
    with traceconv.open_store(path, cache=False) as store:
        rows = list(store.report("trust"))
        assert all(row["reports"] for row in rows)  # NULL: the finding is not in a header
        return [(row["finding"], row["place"], row["count"]) for row in rows]


def found_in(folder: Path, *damaged: Planted) -> list[list[Finding]]:
    """The findings of each trace: to ingest them at once takes half of the time."""
    paths = [folder / f"damaged{number}.json" for number in range(len(damaged))]
    for path, planted in zip(paths, damaged, strict=True):
        path.write_text(json.dumps(planted.trace))
    traceconv.ingest(*paths, db=folder / "damaged.duckdb", jobs=1)
    found: list[list[Finding]] = [[] for _ in damaged]
    with traceconv.open_store(db=folder / "damaged.duckdb") as store:
        for row in store.report("trust", run="all"):
            found[row["run_id"] - 1].append((row["finding"], row["place"], row["count"]))
    return found


def rows_of(path: Path, sql: str) -> list[tuple[object, ...]]:
    with traceconv.open_store(path, cache=False) as store:
        return store.query(sql).fetchall()


def ns(event: Trace) -> float:
    return float(event["ts"])


class Planted:
    """A real trace that can be damaged: its launches of kernels by time, and the kernel of each."""

    def __init__(self, path: Path = SAMPLE) -> None:
        self.trace = json.loads(gzip.decompress(path.read_bytes()))
        events = self.trace["traceEvents"]
        tasks = {e["args"]["correlation"]: e for e in events if e.get("cat", "").lower() in TASKS}
        self.tasks = sorted(tasks.values(), key=ns)
        self.calls = {
            e["args"]["correlation"]: e
            for e in events
            if e.get("cat") in ("cuda_runtime", "Runtime") and e["args"]["correlation"] in tasks
        }
        launches = sorted((e for e in self.calls.values() if "Launch" in e["name"]), key=ns)
        self.kernels = [tasks[e["args"]["correlation"]] for e in launches]

    def remove(self, events: list[Trace]) -> None:
        gone = {id(event) for event in events}
        self.trace["traceEvents"] = [e for e in self.trace["traceEvents"] if id(e) not in gone]

    def events(self, start: float, end: float) -> list[Trace]:
        """All events of the host and the device in a range of time, but metadata and the ranges of steps."""
        return [
            e
            for e in self.trace["traceEvents"]
            if e["ph"] != "M" and start <= ns(e) < end and not e["name"].startswith("ProfilerStep")
        ]

    def steps(self) -> list[Trace]:
        events = self.trace["traceEvents"]
        return sorted((e for e in events if e["name"].startswith("ProfilerStep") and "gpu" not in e["cat"]), key=ns)

    def moved(self, first: int, us: float) -> list[Trace]:
        """Move the tasks from one on in time."""
        for task in self.tasks[first:]:
            task["ts"] = ns(task) + us
        return self.tasks[first:]

    def found(self, folder: Path) -> list[Finding]:
        path = folder / "damaged.json"
        path.write_text(json.dumps(self.trace))
        return findings(path)


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
def test_each_planted_loss_is_named(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    count = len(Planted().kernels)
    first, last, size = draw.randrange(1, 30), draw.randrange(1, 30), draw.randrange(1, 40)
    middle = draw.randrange(first + 1, count - last - size - 1)
    tasks, calls, twice = Planted(), Planted(), Planted()
    tasks.remove(tasks.kernels[:first] + tasks.kernels[middle : middle + size] + tasks.kernels[-last:])
    calls.remove([calls.calls[task["args"]["correlation"]] for task in calls.tasks[:first]])
    twice.trace["traceEvents"] += copy.deepcopy(twice.kernels[middle : middle + size])
    found = found_in(tmp_path, tasks, calls, twice)
    assert found[:2] == [
        [("lost_tasks", "end", last), ("lost_tasks", "middle", size), ("lost_tasks", "start", first)],
        [("lost_launches", "start", first)],
    ]
    assert ("duplicate_tasks", None, size) in found[2]


@pytest.mark.parametrize("removed_of", ["tasks", "calls", "both"])
def test_launches_are_found_by_flows_unless_several_lead_to_a_task(removed_of: str, tmp_path: Path) -> None:
    planted = without_ids(removed_of, "correlation", "External id")
    assert not {"unlinked_launches", "lost_launches"} & {finding for finding, _, _ in planted.found(tmp_path)}
    sql = "SELECT start_ns, submit_ns, call_ns, step_id FROM task ORDER BY ALL"
    assert rows_of(tmp_path / "damaged.json", sql) == rows_of(SAMPLE, sql)
    flows = [event for event in planted.trace["traceEvents"] if event.get("cat") == "ac2g" and event["ph"] in "sf"]
    planted.trace["traceEvents"] += [{**flow, "id": flow["id"] + 10**7} for flow in flows]
    assert ("unlinked_launches", None, len(planted.tasks)) in planted.found(tmp_path)


def without_ids(removed_of: str, *keys: str) -> Planted:
    planted = Planted()
    for event in planted.trace["traceEvents"]:
        category = event.get("cat", "").lower()
        if (category in TASKS and removed_of != "calls") or (category == "cuda_runtime" and removed_of != "tasks"):
            for key in keys:
                event["args"].pop(key, None)
    return planted


@pytest.mark.parametrize("removed_of", ["calls", "both"])
def test_launches_are_found_by_the_ids_of_operators(removed_of: str, tmp_path: Path) -> None:
    """Calls without correlation IDs: kernels of an operator are in the order of its launches, if none is missing."""
    planted = without_ids(removed_of, "correlation")
    assert planted.found(tmp_path) == []
    sql = "SELECT t.start_ns, submit_ns, call_ns, step_id, range_name FROM task AS t "
    sql += "LEFT JOIN launching_range USING (run_id, id) ORDER BY ALL"
    assert rows_of(tmp_path / "damaged.json", sql) == rows_of(SAMPLE, sql)
    operators = Counter(task["args"]["External id"] for task in planted.tasks)
    planted.remove([next(task for task in planted.tasks if operators[task["args"]["External id"]] == 2)])
    flows = [event for event in planted.trace["traceEvents"] if event.get("cat") == "ac2g"]
    assert planted.found(tmp_path) == []
    planted.remove(flows)
    known = len(planted.tasks) - 2
    assert planted.found(tmp_path) == [("lost_flows", None, known), ("unclear_launches", None, 1)]


def test_launches_that_are_unclear_are_not_lost(tmp_path: Path) -> None:
    planted = Planted()
    kernel = planted.kernels[50]
    second = copy.deepcopy(planted.calls[kernel["args"]["correlation"]])
    second["ts"] = ns(kernel) + float(kernel["dur"])
    planted.trace["traceEvents"].append(second)
    assert planted.found(tmp_path) == [("unclear_launches", None, 1)]


def test_lost_calls_of_tasks_that_have_a_launch_time_are_found(make_store: MakeStore) -> None:
    task = {"track_id": 1, "dur_ns": 5, "name": "x"}
    tasks = [{**task, "id": n, "correlation_id": n, "start_ns": 10 * n, "submit_ns": 10 * n} for n in range(1, 4)]
    calls = [{"id": n, "track_id": 2, "correlation_id": n, "start_ns": 10 * n, "name": "y"} for n in (1, 3)]
    for call in calls:
        tasks[call["id"] - 1]["api_id"] = call["id"]
    with open_store(make_store(task=tasks, api=calls)) as connection:
        rows = connection.execute("SELECT finding, place, count, total_count, affected_ns FROM trust").fetchall()
    assert rows == [("lost_launches", "middle", 1, 3, 5)]


def test_lost_copies_are_found(tmp_path: Path) -> None:
    planted = Planted()
    copies = [task for task in planted.tasks if task["cat"] == "gpu_memcpy"]
    planted.remove(copies[2:5])
    assert planted.found(tmp_path) == [("lost_copies", "middle", 3)]


@pytest.mark.parametrize("path", [SAMPLE, *(pytest.param(REAL / name, marks=pytest.mark.long) for name in STEPPED)])
def test_jumps_cuts_and_caps_are_found(tmp_path: Path, path: Path) -> None:
    if not path.exists():
        pytest.skip("no shared/conformance here; set TRACECONV_SHARED")
    draw = random.Random(path.name)
    everything, back, ahead, *parts, late, early, unmarked = every = [Planted(path) for _ in range(9)]
    steps, count = everything.steps(), len(everything.tasks)
    # The device's clock jumps back, or ahead.
    back.moved(draw.randrange(count // 4, count * 3 // 4), -draw.uniform(500, 50_000))
    ahead.moved(draw.randrange(count // 4, count * 3 // 4), draw.uniform(5_000, 50_000))
    # Parts of the first, another and the last step, which keep their own event.
    for planted, step in zip(parts, (steps[0], steps[1], steps[-1]), strict=True):
        begin, length = ns(step), float(step["dur"])
        planted.remove(planted.events(begin + length * draw.uniform(0, 0.3), begin + length * draw.uniform(0.6, 1)))
    # Recording begins or ends within a step: events that are longer are lost, or last on.
    cut = ns(steps[0]) + float(steps[0]["dur"]) * draw.uniform(0.2, 0.7)
    late.remove([*late.events(0, cut), late.steps()[0]])
    cut = ns(steps[-1]) + float(steps[-1]["dur"]) * draw.uniform(0.2, 0.7)
    early.remove(early.events(cut, 1e30))
    # The event of a step between others is lost.
    lost = unmarked.steps()[1]["name"]
    unmarked.remove([event for event in unmarked.trace["traceEvents"] if event["name"] == lost])
    found = [{(finding, place) for finding, place, _ in one} for one in found_in(tmp_path, *every)]
    assert (found[1] - found[0]) & {("reordered_tasks", None), ("early_tasks", None)}
    assert ("late_tasks", None) in found[2]
    for names, place in zip(found[3:6], ("start", "middle", "end"), strict=True):
        assert ("cut_steps", place) in names
    assert found[6] & {("cut_steps", "start"), ("lost_launches", "start")}
    assert found[7] & {("cut_steps", "end"), ("lost_tasks", "end"), ("silent_end", None)}
    assert ("cut_steps", "middle") in found[8]


def test_holes_in_the_ids_of_calls_are_found(make_store: MakeStore) -> None:
    def calls(*ids: range) -> Path:
        call = {"track_id": 1, "dur_ns": 1, "name": "x"}
        rows = [{**call, "id": n, "correlation_id": n, "start_ns": 10 * n} for part in ids for n in part]
        return make_store(track=[{"track_id": 1, "process_id": 1}], api=rows)

    sql = "SELECT finding, count, total_count, affected_ns FROM trust WHERE finding = 'lost_calls'"
    for store, wanted in (
        (calls(range(-700, 5000, 3)), []),
        (calls(range(0, 4000, 3), range(4500, 9000, 3)), [("lost_calls", 1, 2834, 5010)]),
        (calls(range(700), range(10**9, 10**9 + 700)), []),
        # Of few calls, holes show only if nearly all IDs are used.
        (calls(range(7, 400)), []),
        (calls(range(7, 110), range(120, 125), range(126, 400)), [("lost_calls", 2, 382, 130)]),
        (calls(range(7, 400, 2), range(600, 700, 2)), []),
    ):
        assert query(store, sql) == wanted
    task = {"track_id": 1, "dur_ns": 1, "name": "x"}
    tasks = [{**task, "id": n, "correlation_id": n, "start_ns": 10 * n} for n in range(300) if not 100 < n < 150]
    assert query(make_store(task=tasks), sql) == []
    run = {"run_id": 1, "source_format": "rocprofv3"}  # it numbers kernels one by one
    assert query(make_store(run=[run], task=tasks), sql) == [("lost_calls", 1, 251, 500)]
    later = [("lost_calls", 149, 150, None)]
    assert query(make_store(run=[run], task=tasks[-150:]), sql) == later
    assert (
        query(make_store(run=[run], task=[{**one, "correlation_id": one["id"] - 149} for one in tasks[-150:]]), sql)
        == []
    )


def test_holes_in_the_numbers_of_operators_are_found(tmp_path: Path) -> None:
    planted = Planted(CPU_ONLY)
    operators = sorted((e for e in planted.trace["traceEvents"] if "External id" in e.get("args", {})), key=ns)
    assert findings(CPU_ONLY) == []
    planted.remove(operators[300:400])
    assert planted.found(tmp_path) == [("lost_operators", None, 100)]
    planted = Planted()
    operators = sorted((e for e in planted.trace["traceEvents"] if e.get("cat") == "cpu_op"), key=ns)[:100]
    planted.remove(operators)
    lost = {event["args"]["External id"] for event in operators}
    orphans = sum(task["args"].get("External id") in lost for task in planted.tasks)
    assert ("orphan_tasks", None, orphans) in planted.found(tmp_path)


def test_the_end_of_a_trace_of_the_host_is_missed(tmp_path: Path) -> None:
    """The profiler stopped later, as its own event shows."""
    planted = Planted(CPU_ONLY)
    events = [e for e in planted.trace["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")]
    planted.remove(sorted(events, key=ns)[-60:])
    assert ("silent_end", None, 1) in planted.found(tmp_path)


def test_parts_of_a_file_that_are_missing_are_found(tmp_path: Path) -> None:
    def category(planted: Planted, name: str) -> list[Trace]:
        return sorted((e for e in planted.trace["traceEvents"] if e.get("cat") == name), key=ns)

    flows, cut, no_flows, ends, no_kernels, no_copies, no_calls, functions = every = [Planted() for _ in range(8)]
    last = category(flows, "ac2g")[-120:]
    flows.remove(last)
    assert {flow["ph"] for flow in last} == {"f"}
    without_task = 4  # calls; the profiler may write their flow without an end
    cut.remove(category(cut, "Trace"))
    no_flows.remove(category(no_flows, "ac2g"))
    ends.remove([event for event in category(ends, "fwdbwd") if event["ph"] == "f"][:40])
    kernels, copies = category(no_kernels, "kernel"), category(no_copies, "gpu_memcpy")
    no_kernels.remove(kernels)
    no_copies.remove(copies)
    no_calls.remove(list(no_calls.calls.values()))
    no_calls.remove(category(no_calls, "cuda_runtime"))
    called = category(functions, "python_function")
    functions.remove([*called[:100], *called[160:320], *called[-150:]])
    found = found_in(tmp_path, *every)
    assert found[0] == [("broken_flows", None, 120 - without_task), ("lost_flows", None, 120)]
    assert found[1:4] == [
        [("cut_file", None, 1)],
        [("lost_flows", None, len(no_flows.tasks))],
        [("broken_flows", None, 40 - without_task)],
    ]
    assert ("lost_tasks", None, len(kernels)) in found[4]
    assert ("lost_copies", None, len(copies)) in found[5]
    assert found[6] == [("lost_launches", None, len(no_calls.tasks))]
    assert {at for finding, at, _ in found[7] if finding == "lost_functions"} == {"start", "middle", "end"}


@pytest.mark.parametrize(
    ("name", "lost"), [("run_backward of torch._C._EngineBase object", False), ("exec of module", True)]
)
def test_a_backward_pass_on_a_cpu_has_no_functions_to_lose(make_store: MakeStore, name: str, lost: bool) -> None:
    frames = [("step", 0, 10), (f"<built-in method {name}>", 20, 960), ("step", 990, 10)]
    rows = [{"kind": "frame", "name": name, "start_ns": at, "dur_ns": dur} for name, at, dur in frames]
    rows += [{"kind": "host_op", "name": "aten::mm", "start_ns": at, "dur_ns": 5} for at in range(0, 1000, 10)]
    store = make_store(range=[{"id": n, "track_id": 1, **row} for n, row in enumerate(rows)])
    found = query(store, "SELECT finding FROM trust WHERE finding = 'lost_functions'")
    assert bool(found) == lost


def test_flows_and_pairs_that_are_broken_are_found(make_store: MakeStore) -> None:
    run = {"run_id": 1, "source_format": "chrome_json", "writer": "x"}
    task = {"id": 1, "track_id": 1, "start_ns": 0, "dur_ns": 9, "name": "x"}
    flows = [{"flow_id": 1, "src_id": 5, "dst_id": 1}, {"flow_id": 2, "dst_id": 1}, {"flow_id": 3, "src_id": 5}]
    log = [{"severity": "info", "code": code, "event_count": 4} for code in ("loose_flow", "end_without_begin", "odd")]
    sql = "SELECT finding, count, total_count FROM trust ORDER BY ALL"
    broken = [("broken_flows", 2, 3), ("broken_flows", 4, None), ("unpaired_events", 4, None)]
    assert query(make_store(run=[run], task=[task], flow=flows, import_log=log), sql) == broken
    run["writer"] = "PyTorch profiler (Kineto)"  # it writes ends of flows without tasks
    assert ("broken_flows", 4, None) not in query(make_store(run=[run], task=[task], import_log=log), sql)
    assert query(make_store(task=[task], flow=flows[:1], import_log=log[2:]), sql) == []
    queue = [{"flow_id": n, "src_id": n + 1, "dst_id": n + 2, "category": "async_task_queue"} for n in (1, 2)]
    names = ((2, "enqueue"), (3, "dequeue"), (4, "dequeue"))
    ranges = [
        {"id": id_, "track_id": 1, "start_ns": 0, "dur_ns": 1, "name": "x", "category": name} for id_, name in names
    ]
    assert query(make_store(task=[task], flow=queue, range=ranges), sql) == [("broken_flows", 1, 2)]


def test_parts_of_single_steps_without_events_are_found(make_store: MakeStore) -> None:
    def found(*starts: int) -> object:
        names = [{"id": n, "track_id": 1, "step_id": 1, "dur_ns": 1, "start_ns": n, "name": "x"} for n in starts]
        step = {"step_id": 1, "start_ns": 0, "end_ns": 100}
        return query(make_store(range=names, step=[step]), "SELECT finding, place, count, affected_ns FROM trust")

    assert found(0, 2, 24, 50, 77) == []
    assert found(0, 30, 50, 60) == [("silent_steps", "end", 1, 40), ("silent_steps", "start", 1, 30)]


def test_renamed_collectives_are_found(tmp_path: Path) -> None:
    shared("real")
    planted = Planted(REAL / "torch/nccl_metadata.json.gz")
    collectives = [task for task in planted.tasks if "nccl" in task["name"]]
    for task in collectives:
        task["name"] = "fused_kernel_7"
    assert planted.found(tmp_path) == [("unknown_collectives", None, len(collectives))]


def test_a_task_that_runs_past_the_next_one_is_found(tmp_path: Path) -> None:
    planted = Planted()
    stream = [task for task in planted.tasks if task["args"]["stream"] == planted.kernels[0]["args"]["stream"]]
    here, following = next((a, b) for a, b in pairwise(stream[40:]) if float(b["dur"]) > 2)
    here["dur"] = ns(following) - ns(here) + 1
    assert planted.found(tmp_path) == [("overlapping_tasks", None, 1)]
    last = stream[stream.index(here) + 4]
    here["dur"] = ns(last) + float(last["dur"]) - ns(here) + 1  # it contains the next four
    assert planted.found(tmp_path) == [("overlapping_tasks", None, 1)]
    planted = Planted()
    early = planted.kernels[50]
    planted.calls[early["args"]["correlation"]]["ts"] = ns(early) + 1
    assert ("early_tasks", None, 1) in planted.found(tmp_path)


@pytest.mark.parametrize("sample", ["pytorch/resnet18.pt.trace.json.gz", "mini_resnet", "mini_transformer"])
def test_clean_traces_have_no_finding(sample: str) -> None:
    """The captures begin with warm-up inferences, which belong to no step."""
    assert findings(SAMPLE.parents[1] / sample) == []


def test_copies_of_weights_are_no_part_of_a_lost_step(tmp_path: Path) -> None:
    """The copy before the first of these steps would be a tenth of one."""
    builder = ModelBuilder()
    x = builder.node("Softmax", [builder.node("MatMul", ["x", builder.weight((8, 8))])], axis=-1)
    onnx.save(builder.model({"x": [8, 8]}, [builder.node("Transpose", [x])]), tmp_path / "model.onnx")
    made = traceconv.record(tmp_path / "model.onnx", tmp_path, deterministic=True, iterations=5)
    assert findings(made) == []


@pytest.mark.parametrize("name", EXPECTED)
def test_real_traces_have_only_explained_findings(name: str) -> None:
    shared("real")
    assert findings(REAL / name) == EXPECTED[name]


def test_findings_of_a_few_tasks(make_store: MakeStore) -> None:
    def task(id_: int, start_ns: int, dur_ns: int | None, **more: object) -> Trace:
        return {"id": id_, "track_id": 1, "start_ns": start_ns, "dur_ns": dur_ns, "kind": "compute", "depth": 0, **more}

    store = make_store(
        run=[{"run_id": 1, "label": "a", "start_ns": 0, "end_ns": 1000}],
        device=[{"device_id": 0, "clock_error_ns": 10}],
        task=[
            task(1, 0, 40, name="x", submit_ns=7, correlation_id=1),  # 7 ns early
            task(2, 100, 50, name="ncclKernel_AllReduce", submit_ns=93, correlation_id=2),  # 7 ns late: uncertain
            task(3, 130, 40, name="x", stream_wait_ns=-20, parent_id=99, submit_ns=50, correlation_id=3),
            task(4, 130, 40, name="x", stream_wait_ns=-40, submit_ns=50, correlation_id=4),
            task(5, 300, None, name="x", correlation_id=5),
            task(6, 400, 9, kind="sync", correlation_id=6),
        ],
        step=[{"step_id": 1, "start_ns": 0, "end_ns": 9}, {"step_id": 2, "start_ns": 9}],
        import_log=[
            {"severity": "data_loss", "code": "damaged_event", "event_count": 3},
            {"severity": "info", "code": "nul_padding", "event_count": 5},
            {"severity": "info", "code": "unclear_launch", "event_count": 2},
        ],
    )
    with open_store(store) as connection:
        rows = connection.execute("SELECT * EXCLUDE (run_id, affected_percent, reports) FROM trust").fetchall()
        assert rows == [
            ("cut_steps", None, 1, 2, None),
            ("duplicate_tasks", None, 1, 5, 40),
            ("early_tasks", None, 1, 4, 7),
            ("import_losses", None, 3, None, None),
            ("overlapping_tasks", None, 2, 5, 60),
            ("reordered_tasks", None, 2, 4, None),
            ("uncertain_delays", None, 1, 4, 7),
            ("unclear_launches", None, 2, 6, None),
            ("unfinished_tasks", None, 1, 5, None),
            ("unknown_collectives", None, 1, 5, 50),
        ]
        percents = "SELECT finding, affected_percent FROM trust(run := 1) WHERE affected_percent > 1"
        assert connection.execute(percents).fetchall() == [
            ("duplicate_tasks", 4.0), ("overlapping_tasks", 6.0), ("unknown_collectives", 5.0),
        ]  # fmt: skip


def test_names_that_were_cut_are_found(make_store: MakeStore) -> None:
    names = ["k" * 62 + "a", "k" * 62 + "b", "short", "k" * 40]
    tasks = [{"id": n, "track_id": 1, "start_ns": n, "dur_ns": 1, "name": name} for n, name in enumerate(names)]
    assert query(make_store(task=tasks), "SELECT finding, count, total_count FROM trust") == [("cut_names", 2, 4)]
    assert query(make_store(task=tasks[1:]), "FROM trust") == []
    for task in tasks[:2]:  # of two layers
        task["name"] = f"layer{task['id']}" + "k" * 57
    assert query(make_store(task=tasks), "FROM trust") == []


def test_no_window_has_a_filter() -> None:
    """DuckDB computes each row of such a window from all rows: trust took minutes for half a million launches."""
    slow = re.compile(r"FILTER \((?:[^()]|\([^()]*\))*\) OVER")
    assert [name for name, report in reports().items() if slow.search(report.body)] == []
