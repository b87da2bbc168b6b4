"""Comparisons of two runs: the exact sums, what is paired with what, refusals, limits and output."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command

import traceconv
from traceconv.analysis import comparison, step_times
from traceconv.analysis.bootstrap import resample
from traceconv.analysis.comparison import parse_limit
from traceconv.analysis.comparison_text import op_labels
from traceconv.analysis.pairing import pair_ops
from traceconv.analysis.step_times import Op, measure_steps
from traceconv.cli.app import run as run_command
from traceconv.reports.window import Window
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
DEVICE = {"kind": "NPU", "name": "NPU 1"}


def steps(durations: list[int], run_id: int = 1) -> list[dict[str, object]]:
    """Consecutive steps of device 0, which start at multiples of 1 ms."""
    return [
        {"run_id": run_id, "step_id": n, "start_ns": n * 10**6, "end_ns": n * 10**6 + dur_ns}
        for n, dur_ns in enumerate(durations)
    ]


def model(
    run_id: int, times: dict[str, list[int]], idle_ns: int = 0, shape: str = "1,8", **more: object
) -> dict[str, Any]:
    """A run whose steps execute ops one after another: [step] durations by name of the op."""
    ops = [
        {
            "run_id": run_id,
            "op_id": n,
            "model_id": 1,
            "name": name,
            "op_type": name.split("_")[0],
            "input_shapes": shape,
        }
        for n, name in enumerate(times)
    ]
    tasks, spans = [], []
    for step, durations in enumerate(zip(*times.values(), strict=True)):
        start = step * 10**6
        for op_id, dur_ns in enumerate(durations):
            tasks.append({"run_id": run_id, "id": len(tasks), "op_id": op_id, "kind": "compute", "start_ns": start,
                          "dur_ns": dur_ns})  # fmt: skip
            start += dur_ns
        spans.append(start - step * 10**6 + idle_ns)
    runs = [{"run_id": run_id, "label": f"run-{run_id}", **more}]
    return {
        "op": ops,
        "task": tasks,
        "step": steps(spans, run_id),
        "run": runs,
        "device": [{"run_id": run_id, **DEVICE}],
    }


def both(make_store: MakeStore, base: dict[str, Any], new: dict[str, Any]) -> Path:
    return make_store(**{table: base[table] + new[table] for table in base})


def test_the_changes_of_ops_overlap_and_idle_time_add_up_to_that_of_the_step(make_store: MakeStore) -> None:
    base = model(1, {"Conv_a": [100, 100, 103], "Relu_b": [10, 10, 11]}, idle_ns=5)
    new = model(2, {"Conv_a": [120, 120, 121], "Gelu_c": [30, 30, 33]}, idle_ns=2)
    # Another stream runs 7 ns at the same time in the new run.
    new["task"] += [{"run_id": 2, "id": 99 + n, "kind": "copy", "name": "Load", "start_ns": n * 10**6, "dur_ns": 7}
                    for n in range(3)]  # fmt: skip
    found = traceconv.compare(1, 2, db=both(make_store, base, new), warmup=0)
    parts = {name: (part.base_ns, part.new_ns, part.change_ns) for name, part in found.parts.items()}
    assert (found.step.base_ns, found.step.new_ns) == (116, 153)  # 348 / 3 = 116; 460 / 3 = 153.33
    assert parts == {
        "matched": (111, 151, 40), "new": (0, 7, 7), "vanished": (0, 0, 0), "overlap": (0, -7, -7), "idle": (5, 2, -3),
    }  # fmt: skip
    rows = {op.name: (op.status, op.paired_by, op.time.base_ns, op.time.new_ns) for op in found.ops}
    assert rows == {
        "Conv_a": ("matched", "name", 101, 120),
        "Gelu_c": ("matched", "sequence", 10, 31),  # follows the same op
        "Load": ("new", None, 0, 7),
    }


Tasks = list[dict[str, Any]]


def random_run(seed: int) -> tuple[Tasks, Tasks]:
    """Tasks and steps of run `seed`."""
    draw = random.Random(seed)
    tasks: Tasks = [
        {
            "run_id": seed, "id": n, "device_id": draw.choice([0, 0, 1, None]), "name": draw.choice("abc"),
            "kind": draw.choice(["compute", "copy", "sync", None]), "start_ns": draw.randrange(-50, 150),
            "dur_ns": draw.choice([0, 1, 9, 40, 200, None]),
        }
        for n in range(draw.choice([1, 8, 40]))
    ]  # fmt: skip
    steps: Tasks = [
        {
            "run_id": seed, "step_id": n, "device_id": draw.choice([0, None]),
            "start_ns": (start := draw.randrange(100)),
            "end_ns": start + draw.choice([0, 3, 30, 90]),
        }
        for n in range(draw.choice([0, 1, 6]))
    ]  # fmt: skip
    return tasks, steps


def windows_of(tasks: Tasks, steps: Tasks) -> list[tuple[object, int, int]]:
    """Device, start and end of each step on each device; without steps, of all tasks."""
    devices = {task["device_id"] for task in tasks}
    found = [
        (device, step["start_ns"], step["end_ns"])
        for step in steps for device in devices
        if step["end_ns"] > step["start_ns"] and step["device_id"] in (None, device)
    ]  # fmt: skip
    if found or not tasks:
        return found
    first, last = min(t["start_ns"] for t in tasks), max(t["start_ns"] + t["dur_ns"] for t in tasks)
    return [(device, first, last) for device in devices if first < last]


def test_times_equal_a_count_of_nanoseconds_on_random_runs(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [random_run(seed) for seed in range(1, 25)]
    store = make_store(
        task=[row for tasks, _ in runs for row in tasks], step=[row for _, steps in runs for row in steps]
    )
    with open_store(store) as connection:
        for run_id, (all_tasks, found_steps) in enumerate(runs, 1):
            monkeypatch.setattr(step_times, "_BATCH_ROWS", 1 + run_id % 7)
            tasks = [task for task in all_tasks if task["kind"] != "sync" and task["dur_ns"] is not None]
            windows = windows_of(tasks, found_steps)
            if not windows:
                with pytest.raises(traceconv.IncomparableError):
                    measure_steps(connection, run_id, Window(), warmup=0)
                continue
            times = measure_steps(connection, run_id, Window(), warmup=0)
            ran: Counter[tuple[object, object]] = Counter()
            started: Counter[tuple[object, object]] = Counter()
            busy = 0
            for device, first, last in windows:
                covered: set[int] = set()
                for task in tasks:
                    if task["device_id"] == device:
                        start, end = task["start_ns"], task["start_ns"] + task["dur_ns"]
                        inside = range(max(start, first), min(end, last))
                        covered.update(inside)
                        ran[task["kind"], task["name"]] += len(inside)
                        started[task["kind"], task["name"]] += first <= start < last
                busy += len(covered)
            names = [(op.kind, op.name) for op in times.ops]
            assert int(times.span_ns.sum()) == sum(last - first for _, first, last in windows)
            assert int(times.busy_ns.sum()) == busy
            assert Counter(dict(zip(names, times.op_ns.sum(axis=1).tolist(), strict=True))) == ran
            assert Counter(dict(zip(names, times.count.tolist(), strict=True))) == started


def op(name: str, path: str = "", kind: str = "compute", shapes: str | None = None, **more: Any) -> Op:
    names = tuple(path.split(">")) if path else ()
    return Op(kind, name, more.get("op_type", name), more.get("scope", ""), names, shapes, more.get("task_count", 1))


def paired(base: list[Op], new: list[Op]) -> list[tuple[list[str | None], list[str | None], str | None]]:
    return [
        (
            [base[i].name for i in pair.base.ops] if pair.base else [],
            [new[i].name for i in pair.new.ops] if pair.new else [],
            pair.paired_by,
        )
        for pair in pair_ops(base, new)
    ]


def test_kernels_with_other_names_pair_by_the_operator_that_launched_them() -> None:
    base = [
        op("sgemm_a", "linear>addmm"),
        op("splitk", "linear>addmm"),
        op("cudnn_conv", "aten::conv2d>aten::cudnn_convolution"),
    ]
    new = [
        op("Cijk_Ailk", "linear>addmm"),
        op("miopen_conv", "aten::conv2d>aten::miopen_convolution"),
        op("x", "aten::relu"),
    ]
    assert paired(base, new) == [
        (["sgemm_a", "splitk"], ["Cijk_Ailk"], "operator"),
        (["cudnn_conv"], ["miopen_conv"], "operator"),
        ([], ["x"], None),
    ]


def test_backward_operators_of_other_versions_pair() -> None:
    evaluate = "autograd::engine::evaluate_function: "
    base = [
        op("wgrad", f"{evaluate}CudnnConvolutionBackward>aten::weight"),
        op("dgrad", f"{evaluate}CudnnConvolutionBackward>aten::input"),
    ]
    new = [op("conv", f"{evaluate}ConvolutionBackward0>aten::convolution_backward")]
    assert paired(base, new) == [(["wgrad", "dgrad"], ["conv"], "operator")]


def test_operators_below_one_of_another_version_are_joined_if_they_differ() -> None:
    evaluate = "autograd::engine::evaluate_function: ConvolutionBackward0"
    parts = [("wgrad", "aten::cudnn_convolution_backward_weight"), ("dgrad", "aten::cudnn_convolution_backward_input")]
    base = [op(kernel, f"CudnnConvolutionBackward>{name}") for kernel, name in parts]
    new = [op("conv", f"{evaluate}>aten::convolution_backward"), op("sum", f"{evaluate}>aten::add_")]
    assert paired(base, new) == [(["wgrad", "dgrad"], ["conv", "sum"], "operator")]
    other = [
        op(f"mi_{kernel}", f"MiopenConvolutionBackward>{name.replace('cudnn', 'miopen')}") for kernel, name in parts
    ]
    assert paired(base, other[::-1]) == [
        (["wgrad"], ["mi_wgrad"], "operator"),
        (["dgrad"], ["mi_dgrad"], "operator"),
    ]


def test_kernels_of_a_region_pair_one_by_one() -> None:
    names = [f"triton_{n}" for n in range(20)]
    base = [op(name, "CompiledFxGraph", task_count=20) for name in names]
    assert [one[2] for one in paired(base, base)] == ["operator"] * 20
    assert paired(base, base[1:])[-1] == (["triton_0"], [], None)


def test_compiled_and_eager_runs_are_compared(make_store: MakeStore, command: Command) -> None:
    eager = [
        op("sgemm", "aten::linear>aten::addmm", shapes="8,4"), op("relu", "aten::relu"), op("add", "aten::add"),
        op("sgemm", "aten::linear>aten::addmm", shapes="8,2"),
    ]  # fmt: skip
    region = "Torch-Compiled Region: 0/0>CompiledFunction>"
    compiled = [
        op("sgemm", f"{region}aten::addmm", shapes="8,4"),
        op("triton_poi_fused_add_relu_0", f"{region}triton_poi_fused_add_relu_0"),
        op("sgemm", f"{region}aten::addmm", shapes="8,2"),
    ]
    assert paired(eager, compiled) == [
        (["sgemm"], ["sgemm"], "operator"), (["sgemm"], ["sgemm"], "operator"),
        (["relu", "add"], ["triton_poi_fused_add_relu_0"], "sequence"),
    ]  # fmt: skip
    ops = {"relu_a": [100] * 4}, {"triton_poi_fused_relu_0": [90] * 4}
    store = both(make_store, *(model(run, one) for run, one in enumerate(ops, 1)))
    assert "vanished" in command("compare", "1", "2", "--db", store).out


@pytest.mark.parametrize("path", ["", "aten::to>aten::copy_"])
def test_copies_of_different_directions_do_not_pair(path: str) -> None:
    base = [op("a", path), *(op(name, path, "copy") for name in ("Memcpy HtoD (Pageable -> Device)", "Memcpy DtoD"))]
    new = [op("a", path), op("Memcpy DtoD (Device -> Device)", path, "copy")]
    other = [
        op("a", path),
        *(op(name, path, "copy") for name in ("DEVICE_TO_DEVICE", "CopyHostToDevice", "memcpy d2h")),
    ]
    names = [one.name for one in base]
    by_operator = "operator" if path else "sequence"
    assert paired(base, new)[1:] == [
        (["Memcpy DtoD"], ["Memcpy DtoD (Device -> Device)"], by_operator), ([names[1]], [], None),
    ]  # fmt: skip
    assert paired(base, other)[1:] == [
        ([names[1]], ["CopyHostToDevice"], by_operator), (["Memcpy DtoD"], ["DEVICE_TO_DEVICE"], by_operator),
        ([], ["memcpy d2h"], None),
    ]  # fmt: skip


def test_renamed_and_fused_ops_pair_by_their_place() -> None:
    base = [op("a"), op("old_1"), op("b"), op("old_2"), op("old_3"), op("c")]
    new = [op("a"), op("new_1"), op("b"), op("fused"), op("c"), op("tail")]
    assert paired(base, new) == [
        (["a"], ["a"], "name"), (["b"], ["b"], "name"), (["c"], ["c"], "name"),
        (["old_1"], ["new_1"], "sequence"), (["old_2", "old_3"], ["fused"], "sequence"), ([], ["tail"], None),
    ]  # fmt: skip


def test_ops_with_other_shapes_pair_in_their_order() -> None:
    base = [op("mm", "aten::mm", shapes=shape) for shape in ("8,4", "8,2")]
    new = [op("mm", "aten::mm", shapes=shape) for shape in ("16,4", "16,2", "8,2")]
    assert [(pair.base and pair.base.op.shapes, pair.new and pair.new.op.shapes) for pair in pair_ops(base, new)] == [
        ("8,2", "8,2"), ("8,4", "16,4"),
    ]  # fmt: skip


def test_other_programs_have_no_pairs() -> None:
    assert [pair.paired_by for pair in pair_ops([op("a"), op("b")], [op("x"), op("y")])] == [None] * 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_name": "vgg19"}, "different models (resnet50 against vgg19)"),
        ({"device": "NPU 2"}, "different devices (NPU 1 against NPU 2)"),
        ({"steps": 3}, "different numbers of steps (3 against 2; select some with --steps)"),
        ({"shape": "8,8"}, "different input shapes (Conv_a: 1,8 against 8,8)"),
        ({"op": "Gemm_z"}, "different programs (only 0 % of the op time is in ops of both runs)"),
    ],
)
def test_runs_that_are_not_comparable_are_refused_with_the_reason(
    make_store: MakeStore, change: dict[str, Any], reason: str, command: Command
) -> None:
    base = model(1, {"Conv_a": [100] * 4}, model_name="resnet50")
    new = model(2, {change.get("op", "Conv_a"): [100] * change.get("steps", 4)}, shape=change.get("shape", "1,8"),
                model_name=change.get("model_name"))  # fmt: skip
    new["device"][0]["name"] = change.get("device", "NPU 1")
    store = both(make_store, base, new)
    done = command("compare", "1", "2", "--db", store, code=5)
    assert done.err == f"traceconv: the runs can't be compared: {reason}; --anyway compares them\n"
    shown = command("compare", "1", "2", "--anyway", "--db", store).out
    assert f"compared anyway: {reason}" in " ".join(shown.split())


def test_files_that_do_not_exist_are_named(tmp_path: Path, command: Command) -> None:
    missing = tmp_path / "base.pt.trace.json.gz"
    said = f"traceconv: {missing} does not exist\n"
    assert command("compare", missing, "2", code=1).err == said
    assert command("advise", missing, code=1).err == said
    with pytest.raises(traceconv.InputError, match="does not exist"):
        traceconv.compare(missing, 2)
    assert "create a store with" in command("compare", "before", "after", code=1).err


def test_a_run_with_steps_is_not_compared_with_one_without(make_store: MakeStore) -> None:
    base, new = model(1, {"Conv_a": [5]}), model(2, {"Conv_a": [5]})
    with pytest.raises(traceconv.IncomparableError, match="run-2 has no steps, the other run has"):
        traceconv.compare(1, 2, db=both(make_store, base, {**new, "step": []}), anyway=True)
    with pytest.raises(traceconv.IncomparableError, match=r"run-2 has no tasks of a device; .*range-stat"):
        traceconv.compare(1, 2, db=both(make_store, base, {**new, "task": []}))


def host_run(run_id: int, relu_ns: int, shape: str = "[[4]]") -> dict[str, Any]:
    """A step of 1000 ns in a frame: linear > addmm twice > copy, which begins with it; relu on another thread."""

    args = json.dumps({"Input Dims": shape})

    def host_op(id_: int, name: str, start_ns: int, dur_ns: int, parent_id: int | None, **more: Any) -> dict[str, Any]:
        return {"run_id": run_id, "id": id_, "track_id": 1, "kind": "host_op", "name": name, "start_ns": start_ns,
                "dur_ns": dur_ns, "parent_id": parent_id, "args": args, **more}  # fmt: skip

    return {
        "run": [{"run_id": run_id, "label": f"run-{run_id}"}],
        "step": [{"run_id": run_id, "step_id": 1, "device_id": None, "start_ns": 0, "end_ns": 1000}],
        "task": [],
        "range": [
            host_op(1, "ProfilerStep#1", 0, 1000, 9, kind="annotation"),
            host_op(2, "PyTorch Profiler (0)", -50, 1500, None, kind="annotation", category="Trace", track_id=3),
            host_op(3, "linear", 100, 500, 1), host_op(4, "addmm", 200, 100, 3), host_op(5, "addmm", 400, 200, 3),
            host_op(6, f"<built-in copy at 0x7f{run_id}>", 400, 50, 5),
            host_op(7, "relu", 550, relu_ns, None, track_id=2),
            host_op(8, "relu", 1000, 70, None, track_id=2), host_op(9, "main", -40, 1400, None, kind="frame"),
        ],
    }  # fmt: skip


def test_runs_without_a_device_are_compared_by_self_times_of_their_host(
    make_store: MakeStore, command: Command
) -> None:
    store = both(make_store, host_run(1, 100), host_run(2, 150))
    result = traceconv.compare(1, 2, db=store)
    found = {op.name: (op.base_count, op.base_total_ns, op.new_total_ns) for op in result.ops}
    assert found == {
        "linear": (1, 200, 200),
        "addmm": (2, 250, 250),
        "<built-in copy>": (1, 50, 50),
        "relu": (1, 100, 150),
    }
    parts = {name: (part.base_ns, part.new_ns) for name, part in result.parts.items()}
    assert parts["overlap"] == (-50, -50)
    assert parts["idle"] == (450, 400)
    assert (result.step.base_ns, result.step.new_ns) == (1000, 1000)
    assert "base: run-1 on host, 1 step" in command("compare", "1", "2", "--db", store).out


def test_steps_of_devices_are_steps_of_a_host_without_tasks(make_store: MakeStore) -> None:
    plain = host_run(1, 100)
    on_devices = {**plain, "step": [{**row, "device_id": device} for row in plain["step"] for device in (0, 1)]}
    found = [traceconv.compare(1, 1, db=make_store(**tables)) for tables in (plain, on_devices)]
    assert [(one.base.unit, one.base.steps) for one in found] == [("step", 1)] * 2
    assert found[0].ops == found[1].ops


def test_a_run_of_the_host_is_not_compared_with_one_of_a_device_or_of_other_shapes(make_store: MakeStore) -> None:
    with_device = {**host_run(2, 100), "task": [{"run_id": 2, "id": 9, "start_ns": 0, "dur_ns": 10}]}
    with pytest.raises(traceconv.IncomparableError, match="run-1 has no tasks of a device, the other run has"):
        traceconv.compare(1, 2, db=both(make_store, host_run(1, 100), with_device), anyway=True)
    with pytest.raises(traceconv.IncomparableError, match="different input shapes"):
        traceconv.compare(1, 2, db=both(make_store, host_run(1, 100), host_run(2, 100, "[[8]]")))


def noisy(draw: random.Random, ns: int, spread: float) -> list[int]:
    return [max(1, round(ns * (1 + draw.gauss(0, spread)))) for _ in range(20)]


def test_fail_over_fails_on_slower_ops_and_not_on_noise(make_store: MakeStore, command: Command) -> None:
    draw = random.Random(4)
    base = model(1, {"Conv_a": noisy(draw, 5000, 0.02)}, idle_ns=500)
    same = model(2, {"Conv_a": noisy(draw, 5000, 0.02)}, idle_ns=480)
    slower = model(3, {"Conv_a": noisy(draw, 5600, 0.02)}, idle_ns=500)
    idle = model(4, {"Conv_a": noisy(draw, 5000, 0.02)}, idle_ns=1500)
    runs = (same, slower, idle)
    store = make_store(**{table: base[table] + [row for one in runs for row in one[table]] for table in base})
    arguments = ["--db", str(store), "--fail-over", "5%"]
    assert "limit 5 %: not exceeded" in command("compare", "1", "2", *arguments).out
    assert "limit 5 %: exceeded" in command("compare", "1", "3", *arguments, code=4).out
    command("compare", "1", "4", *arguments, code=4)
    command("compare", "3", "1", *arguments)
    command("compare", "1", "3", "--db", store, "--fail-over", "20")
    command("compare", "1", "3", "--db", store, "--fail-over", "x%", code=2)


def host_steps(run_id: int, draw: random.Random, factor: float = 1.0, interrupted: float = 0.0) -> dict[str, Any]:
    """40 steps of 20 operators of a host; another process interrupts this share of the operators for up to 2 ms."""
    ranges: Tasks = []
    spans: Tasks = []
    at = 0
    for step in range(40):
        first, parent = at, len(ranges)
        ranges.append({})
        for place in range(20):
            ns = round((20_000 + 4_000 * place) * factor * draw.uniform(1, 1.06))
            ns += draw.randrange(2 * 10**6) if draw.random() < interrupted else 0
            ranges.append({"id": len(ranges), "parent_id": parent, "kind": "host_op", "name": f"aten::op{place}",
                           "start_ns": at, "dur_ns": ns})  # fmt: skip
            at += ns
        ranges[parent] = {"id": parent, "kind": "annotation", "name": f"ProfilerStep#{step}", "start_ns": first,
                          "dur_ns": at - first}  # fmt: skip
        spans.append({"run_id": run_id, "step_id": step, "device_id": None, "start_ns": first, "end_ns": at})
    return {
        "run": [{"run_id": run_id, "label": f"run-{run_id}"}],
        "step": spans,
        "range": [{**row, "run_id": run_id, "track_id": 1} for row in ranges],
    }


def device_steps(run_id: int, draw: random.Random, factor: float = 1.0, interrupted: float = 0.0) -> dict[str, Any]:
    """The same, with tasks of 1 µs that the host launches."""
    rows = host_steps(run_id, draw, factor, interrupted)
    rows["task"] = [
        {"run_id": run_id, "id": row["id"], "kind": "compute", "name": row["name"], "start_ns": row["start_ns"],
         "dur_ns": 1_000}
        for row in rows["range"] if row["kind"] == "host_op"
    ]  # fmt: skip
    del rows["range"]
    return rows


def test_fail_over_of_a_host_finds_changes_and_not_a_busy_machine(make_store: MakeStore, command: Command) -> None:
    draw = random.Random(8)
    kinds = {"quiet": (1, 0), "slower": (1.08, 0), "busy": (1, 0.1), "lost": (1.08, 0.1), "slow": (2, 0.1)}
    runs = {kind: range(1 + 2 * n, 3 + 2 * n) for n, kind in enumerate(kinds)}
    made = [host_steps(run, draw, *kinds[kind]) for kind, numbers in runs.items() for run in numbers]
    store = make_store(**{table: [row for one in made for row in one[table]] for table in made[0]})

    def failed(base: str, new: str) -> int:
        pairs = zip(runs[base], reversed(runs[new]), strict=True)
        return sum(traceconv.compare(a, b, db=store, fail_over="5%").failed for a, b in pairs)

    same = [("quiet", "quiet"), ("quiet", "busy"), ("busy", "quiet"), ("busy", "busy")]
    assert [failed(*pair) for pair in same] == [0] * 4
    assert [failed("quiet", "slower"), failed("busy", "slow")] == [2, 2]
    shown = command("compare", "1", str(runs["lost"][0]), "--db", store, "--fail-over", "5%").out
    assert re.search(
        r"undisturbed step: \+[78]\.\d\d %; the median step of the new run takes \d\.\d\d × as long", shown
    )
    assert re.search(r"limit 5 %, raised to \d\d\.\d\d % as steps of the new run are disturbed: not exceeded", shown)
    assert "busy time" not in shown


def test_fail_over_of_devices_that_wait_for_a_busy_host(make_store: MakeStore, command: Command) -> None:
    """Some steps of both are interrupted, so that nine tenths of them overlap."""
    draw = random.Random(8)
    made = [device_steps(run, draw, 1 if run < 4 else 1.3, 0.02) for run in range(1, 7)]
    store = make_store(**{table: [row for one in made for row in one[table]] for table in made[0]})
    pairs = [traceconv.compare(a, b, db=store, fail_over="5%") for a in (1, 2) for b in (2, 3, 4, 5)]
    assert [one.failed for one in pairs] == 2 * [False, False, True, True]
    assert not any(one.slower_percent > 5 for one in pairs)
    shown = command("compare", "1", "4", "--db", store, "--fail-over", "5%", code=4).out
    assert "busy time" in shown and "undisturbed step: +2" in shown
    few = traceconv.compare(1, 4, db=store, steps="0-18", fail_over="5%")
    assert few.undisturbed_percent is None and not few.failed


def test_output_is_the_same_each_time_and_that_of_python(
    make_store: MakeStore, tmp_path: Path, command: Command
) -> None:
    draw = random.Random(2)
    names = ["Conv_a", "Relu|<b>", "Gemm_c"]
    base, new = ({**model(n, {name: noisy(draw, 900, 0.1) for name in names})} for n in (1, 2))
    store = both(make_store, base, new)
    outputs = []
    for form in ("json", "json", "table", "markdown", "csv"):
        outputs.append(command("compare", "1", "2", "--db", store, "--format", form).out)
    found = traceconv.compare(1, 2, db=store)
    assert json.loads(outputs[0]) == json.loads(json.dumps(found.to_dict()))
    assert outputs[0] == outputs[1]
    assert outputs[2] == f"{found!r}\n"
    assert max(map(len, outputs[2].splitlines())) <= 80
    assert "Relu\\|\\<b\\>" in outputs[3]
    assert "<b>" not in found._repr_html_()
    document = json.loads(outputs[0])
    assert document["version"] == 1
    assert sum(one["change_ns"] for one in document["parts"].values()) == document["step"]["change_ns"]
    assert sum(row["base_ns"] for row in document["ops"]) == document["parts"]["matched"]["base_ns"]
    assert len(outputs[4].splitlines()) == 1 + len(found.ops)
    # A run of a file: the store itself, if it has one run.
    assert "has 2 runs; ingest it and compare two runs of the store" in command("compare", store, "2", code=2).err


def test_ops_of_one_name_are_distinguished_by_what_calls_them() -> None:
    def labels(*ops: tuple[str, str | None]) -> list[str]:
        same = {"status": "matched", "paired_by": "operator", "op_type": None, "kind": "compute", "scope": None,
                "base_kernels": (), "new_kernels": (), "base_count": 1, "new_count": 1, "base_total_ns": 1,
                "new_total_ns": 1, "base_p50_ns": 1, "time": comparison.Change(1, 2, None, None)}  # fmt: skip
        return op_labels(
            [
                comparison.OpChange(
                    name=path.split(" > ")[-1], path=path, base_shapes=shape, new_shapes=shape, new_p50_ns=1, **same
                )
                for path, shape in ops
            ]
        )

    assert labels(("a > x > mul", None), ("b > x > mul", None), ("mul", None), ("add", None)) == [
        "mul in a", "mul in b", "mul", "add",
    ]  # fmt: skip
    assert labels(("a > mul", "4"), ("b > mul", "8")) == ["mul 4", "mul 8"]
    assert labels(("a > mul", None), ("a > mul", None)) == ["mul", "mul"]


def test_the_page_shows_how_the_changes_add_up(make_store: MakeStore, tmp_path: Path) -> None:
    hostile = "</title><script>x</script><img src=x>"
    base = model(1, {f"Conv_{n}": [100 + n] * 3 for n in range(20)} | {hostile: [50] * 3}, idle_ns=40, label=hostile)
    new = model(2, {f"Conv_{n}": [120 + 3 * n] * 3 for n in range(20)} | {hostile: [20] * 3}, idle_ns=90)
    output = tmp_path / "compare.html"
    command = ["compare", "1", "2", "--db", str(both(make_store, base, new)), "-o", str(output), "--fail-over", "5"]
    assert run_command(command) == 4
    text = output.read_text("utf-8")
    assert "<script>x" not in text
    assert "<img" not in text
    assert '<section class="losses">' in text
    shapes = re.findall(r'<rect class="(c\d)" x="([\d.]+)%" .*?width="([\d.]+)%" .*?&#10;(\S+ \S+)</title>', text)
    assert len(shapes) == 1 + 15 + 1 + 1 + 1  # base, ops, 6 other ops, idle, new
    assert [amount for *_, amount in shapes[-3:]] == ["+150 ns", "+50 ns", "3.080 µs"]
    for before, after in pairwise(shapes[:-1]):
        end = float(before[1]) + (0 if before[0] == "c5" else float(before[2]))
        assert end == pytest.approx(float(after[1]) + (float(after[2]) if after[0] == "c5" else 0), abs=1e-4)
    assert text.count("<tr>") == 1 + 21
    assert run_command([*command[:-2], "--top", "4"]) == 0
    assert "17 more ops with smaller changes" in output.read_text("utf-8")


def test_the_first_step_of_three_is_left_out_and_steps_can_be_selected(make_store: MakeStore) -> None:
    store = both(make_store, *(model(n, {"Conv_a": [900, 100, 100, 400]}) for n in (1, 2)))
    base = traceconv.compare(1, 2, db=store).base
    assert (base.steps, base.left_out, base.mean_ns, base.p50_ns) == (3, 1, 200, 100)
    assert traceconv.compare(1, 2, db=store, warmup=0).base.mean_ns == 375
    assert traceconv.compare(1, 2, db=store, steps="1-2").base.mean_ns == 100
    assert traceconv.compare(1, 2, db=store, steps="-2").base.mean_ns == 100
    with pytest.raises(traceconv.UsageError, match="warmup 4 leaves none"):
        traceconv.compare(1, 2, db=store, warmup=4)
    with pytest.raises(traceconv.UsageError, match="run 1 has steps 0 to 3; steps selects none"):
        traceconv.compare(1, 2, db=store, steps="7-8")
    with pytest.raises(traceconv.UsageError, match="no tasks of device 7"):
        traceconv.compare(1, 2, db=store, device=7)


def test_samples_join_steps_and_rare_ops_are_one(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "MAX_SAMPLES", 3)
    monkeypatch.setattr(step_times, "MAX_OPS", 2)
    times = {"Conv_a": [100, 110, 120, 130, 140, 150, 160], "Relu_b": [7] * 7, "Add_c": [3] * 7}
    with open_store(make_store(**model(1, times))) as connection:
        found = measure_steps(connection, 1, Window(), warmup=0)
    assert found.windows.tolist() == [3, 2, 2]
    assert found.span_ns.tolist() == [360, 290, 330]
    assert {op.name: ns.tolist() for op, ns in zip(found.ops, found.op_ns, strict=True)} == {
        "Conv_a": [330, 270, 310], "(other ops)": [30, 20, 20],
    }  # fmt: skip


def test_times_beyond_64_bits_are_refused(make_store: MakeStore) -> None:
    far = 2**62
    tasks = [{"id": n, "name": "a", "start_ns": start, "dur_ns": far} for n, start in enumerate([-far, 0, far - 1])]
    with open_store(make_store(task=tasks)) as connection, pytest.raises(traceconv.IncomparableError, match="64 bits"):
        measure_steps(connection, 1, Window())


def test_quotients_add_up() -> None:
    draw = random.Random(1)
    for _ in range(200):
        values = [draw.randrange(-100, 1000) for _ in range(draw.randrange(1, 9))]
        parts = draw.randrange(1, 12)
        shares = comparison.rounded_quotients(values, parts)
        assert sum(shares) == (2 * sum(values) + parts) // (2 * parts)
        assert all(abs(one - value / parts) < 1 for one, value in zip(shares, values, strict=True))


def test_intervals_are_those_of_resampled_medians() -> None:
    random_ = np.random.default_rng(5)
    base, new = random_.normal(100, 5, 9), random_.normal(120, 5, 12)
    drawn = resample(np.ones(9, np.int64), np.ones(12, np.int64))
    assert drawn.base is not None
    assert drawn.new is not None
    changes = [
        np.median(np.repeat(new, b)) / np.median(np.repeat(base, a)) - 1
        for a, b in zip(drawn.base, drawn.new, strict=True)
    ]
    assert drawn.relative_median_change(base, new) == pytest.approx(np.quantile(changes, (0.025, 0.975)))


def test_limits_are_percentages() -> None:
    assert [parse_limit(text) for text in ("5%", "5", " 2.5 % ", 7)] == [5.0, 5.0, 2.5, 7.0]
    for text in ("", "-1", "1e3", "5 percent"):
        with pytest.raises(traceconv.UsageError):
            parse_limit(text)


@pytest.mark.long
def test_recordings_of_one_program_rarely_exceed_a_limit(tmp_path: Path) -> None:
    """Of pairs of recordings with as many steps as the page asks for, up to 4 % may fail on a busy machine."""
    captures = [traceconv.record("mini_resnet", tmp_path / "raw", iterations=33) for _ in range(21)]
    store = tmp_path / "s.duckdb"
    traceconv.ingest(*captures, db=store)
    failed = [traceconv.compare(a, b, db=store, fail_over="5%").failed for a, b in pairwise(range(1, 22))]
    assert sum(failed) <= 3
