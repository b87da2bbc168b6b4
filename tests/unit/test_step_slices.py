"""Steps from a vendor's own slices: several models and devices, different formats, and missing parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ingest_checks import taken
from stores import query

from traceconv.normalize.trace.steps import RANGE, Steps

FULL = ("Iteration Time", "FP_BP Time", "Iteration Refresh")


def meta(pid: int, tid: int | None, name: str) -> dict[str, Any]:
    what = "process_name" if tid is None else "thread_name"
    return {"ph": "M", "name": what, "pid": pid, "tid": tid or 0, "args": {"name": name}}


def slices(pid: int, tid: int, number: int, fp: int, *, parts: tuple[str, ...] = FULL, **args: Any) -> list[Any]:
    """Return an iteration: data from fp − 10 µs, forward from fp, backward until fp + 50 µs, end at fp + 80 µs."""
    spans = {
        "Iteration Time": (f"Iteration {number}", fp - 10, 90),
        "FP_BP Time": (f"FP_BP Time {number}", fp, 50),
        "Iteration Refresh": (f"Iteration Refresh {number}", fp + 50, 30),
    }
    where = {"ph": "X", "pid": pid, "tid": tid}
    found = [
        {**where, "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args if cat == "Iteration Time" else {}}
        for cat, (name, ts, dur) in spans.items()
        if cat in parts
    ]
    reduce = {"cat": "Reduce", "name": f"Reduce_{number}_0", "ts": fp + 55, "dur": 7}
    return [*found, {**where, **reduce}] if parts == FULL else found


def stored(events: list[Any], tmp_path: Path) -> Path:
    return taken(events, tmp_path, "msprof.json")[1]


THREAD = ("Step Trace(Model ID:2)", 2)


@pytest.mark.parametrize(
    ("thread", "model", "parts", "args", "moments"),
    [
        (*THREAD, FULL, {}, (90_000, 100_000, 150_000, 180_000)),
        (*THREAD, ("Iteration Time",), {}, (90_000, None, None, 180_000)),
        (*THREAD, ("FP_BP Time",), {}, (None, 100_000, 150_000, None)),
        (*THREAD, ("FP_BP Time", "Iteration Refresh"), {}, (None, 100_000, 150_000, 180_000)),
        # Args are more precise. Some versions write them as text, some in nanoseconds.
        (*THREAD, FULL, {"FP Start": 100.001, "BP End": "149.999"}, (90_000, 100_001, 149_999, 180_000)),
        (*THREAD, ("Iteration Time",), {"FP Start": 100_003, "BP End": 149_997}, (90_000, 100_003, 149_997, 180_000)),
        # An inference has no FP and BP. Times outside the iteration are ignored.
        (*THREAD, ("Iteration Time",), {"FP Start": "N/A", "BP End": 0}, (90_000, None, None, 180_000)),
        (
            *THREAD,
            ("Iteration Time",),
            {"FP Start": True, "BP End": [1], "Iteration End": 9e99},
            (90_000, None, None, 180_000),
        ),
        # The model is in the name of the thread.
        ("Model ID:17", 17, FULL, {}, (90_000, 100_000, 150_000, 180_000)),
        ("Step Trace (Model ID: 4294967294)", 4294967294, FULL, {}, (90_000, 100_000, 150_000, 180_000)),
        ("x", None, FULL, {}, (90_000, 100_000, 150_000, 180_000)),
    ],
)
def test_slices_of_an_iteration_define_the_times_of_its_step(
    thread: str, model: int | None, parts: tuple[str, ...], args: dict[str, Any], moments: tuple[object], tmp_path: Path
) -> None:
    events = [meta(3, None, "Ascend Hardware"), meta(3, 9, thread), *slices(3, 9, 4, 100, parts=parts, **args)]
    store = stored(events, tmp_path)
    rows = query(store, "SELECT iteration, step_source, model_id, start_ns, fp_start_ns, bp_end_ns, end_ns FROM step")
    assert rows == [(4, "slice", model, *moments)]


def test_each_model_and_device_has_its_own_steps(tmp_path: Path) -> None:
    events: list[Any] = []
    kernel = {"ph": "X", "tid": 1, "dur": 2, "args": {"Task Type": "AI_CORE"}}
    for pid in (3, 4):
        events += [meta(pid, None, "Ascend Hardware"), meta(pid, 1, "Stream 1")]
        events += [meta(pid, 10 + model, f"Step Trace(Model ID:{model})") for model in (5, 6)]
        events += [*slices(pid, 15, 1, 100 * pid), *slices(pid, 15, 2, 100 * pid + 200)]
        # The first iteration of this model overlaps the second one of the other model.
        events += slices(pid, 16, 1, 100 * pid + 240)
        events += [{**kernel, "pid": pid, "name": "Mul1", "ts": 100 * pid + at} for at in (20, 150, 260, 300)]
    events += [meta(9, None, "CANN"), {"ph": "X", "pid": 9, "tid": 1, "name": "Node@launch", "ts": 320, "dur": 1}]
    store = stored(events, tmp_path)
    steps = query(store, "SELECT step_id, iteration, model_id, fp_start_ns FROM step ORDER BY step_id")
    tasks = query(store, "SELECT start_ns, step_id FROM task WHERE kind = 'compute' ORDER BY ALL")
    reduces = query(store, "SELECT step_id, reduce_start_ns FROM step_trace ORDER BY step_id")
    bounds = query(store, "SELECT step_id, data_aug_bound_ns FROM step_trace WHERE model_id = 5 ORDER BY 1")
    assert query(store, "SELECT step_id FROM api") == [(None,)]
    wanted = sorted((100_000 * pid + more, number, model) for pid in (3, 4) for model, number, more in
                    [(5, 1, 0), (5, 2, 200_000), (6, 1, 240_000)])  # fmt: skip
    assert steps == [(place, number, model, fp) for place, (fp, number, model) in enumerate(wanted, 1)]
    ids = {(fp, model): place for place, (fp, _, model) in enumerate(wanted, 1)}
    assert tasks == sorted(
        (1000 * (100 * pid + at), step)
        for pid in (3, 4)
        for at, step in [(20, ids[100_000 * pid, 5]), (150, None), (260, None), (300, ids[100_000 * pid + 240_000, 6])]
    )
    assert reduces == [(place, [fp + 55_000]) for place, (fp, _, _) in enumerate(wanted, 1)]
    assert len(bounds) == 4


@pytest.mark.parametrize("timeline", [True, False])
def test_reduce_slices_are_collectives_if_the_trace_has_no_others(timeline: bool, tmp_path: Path) -> None:
    """Each is counted once as communication: 7 µs, 55 µs after the forward start. A kernel overlaps 2 µs of it."""
    events = [meta(3, None, "Ascend Hardware"), meta(3, 1, "Stream 1"), meta(4, None, "Step Trace")]
    events += [meta(4, 70, "Model ID:5"), *slices(4, 70, 1, 100), *slices(4, 70, 2, 300)]
    kernel = {"ph": "X", "pid": 3, "tid": 1, "name": "Mul1", "dur": 42, "args": {"Task Type": "AI_CORE"}}
    events += [{**kernel, "ts": 115}, {**kernel, "ts": 315}]
    if timeline:
        events += [meta(8, None, "HCCL"), meta(8, 0, "Group 0 Communication")]
        call = {"ph": "X", "pid": 8, "tid": 0, "name": "hcom_allReduce__1_0_1", "dur": 7}
        events += [{**call, "ts": 155}, {**call, "ts": 355}]
    store = stored(events, tmp_path)
    found = query(store, "SELECT name, start_ns, dur_ns, step_id FROM task WHERE kind = 'collective' ORDER BY 2")
    names = ["hcom_allReduce__1_0_1"] * 2 if timeline else ["Reduce_1_0", "Reduce_2_0"]
    assert found == [(names[0], 155_000, 7_000, 1), (names[1], 355_000, 7_000, 2)]
    busy = "SELECT collective_ns, exposed_collective_ns, compute_ns FROM breakdown"
    assert query(store, busy) == [(14_000, 10_000, 84_000)]
    marks = query(store, "SELECT reduce_start_ns, reduce_dur_ns FROM step_trace ORDER BY step_id")
    assert marks == [([155_000], [7_000]), ([355_000], [7_000])]
    assert query(store, "SELECT count(*) FROM range WHERE kind = 'reduce'") == [(2 if timeline else 0,)]


def test_after_a_nested_step_the_outer_step_is_current_again() -> None:
    ranges = np.zeros(2, RANGE)
    ranges["number"], ranges["low_ns"], ranges["high_ns"] = [1, 2], [0, 10], [100, 20]
    moments = np.array([-1, 0, 10, 19, 20, 99, 100])
    found, _ = Steps(ranges).at(np.ones(len(moments), np.int32), moments, lambda _: None, tasks=False)
    assert found.null is not None
    assert [None if null else int(v) for v, null in zip(found.values, found.null, strict=True)] == [
        None, 1, 2, 2, 1, 1, None
    ]  # fmt: skip


def test_each_process_of_a_merged_trace_has_its_own_steps(tmp_path: Path) -> None:
    def step(pid: int, number: int, ts: int, dur: int) -> dict[str, Any]:
        name = f"ProfilerStep#{number}"
        return {"ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur}

    def op(pid: int, ts: int) -> dict[str, Any]:
        return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": pid, "ts": ts, "dur": 1}

    def kernel(device: int, ts: int) -> dict[str, Any]:
        args = {"device": device, "stream": 7}
        return {"ph": "X", "cat": "kernel", "name": "k", "pid": device, "tid": 7, "ts": ts, "dur": 1, "args": args}

    events = [step(11, 1, 10, 100), step(12, 1, 20, 200), step(12, 2, 220, 50)]
    # Kernels without a launch: at 30 both processes are in a step, at 150 one is.
    events += [op(11, 30), op(12, 30), op(12, 250), op(13, 30), kernel(0, 30), kernel(1, 150)]
    store = stored(events, tmp_path)
    steps = query(store, "SELECT DISTINCT step_id, iteration, start_ns, end_ns, step_source FROM step ORDER BY 1")
    ops = query(store, "SELECT step_id FROM range WHERE kind = 'host_op' ORDER BY id")
    kernels = query(store, "SELECT step_id FROM task ORDER BY id")
    assert steps == [
        (1, 1, 10_000, 110_000, "annotation"),
        (2, 1, 20_000, 220_000, "annotation"),
        (3, 2, 220_000, 270_000, "annotation"),
    ]
    assert ops == [(1,), (2,), (3,), (None,)]
    assert kernels == [(None,), (2,)]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_process_may_use_the_number_of_a_step_again(reverse: bool, tmp_path: Path) -> None:
    """As two recordings in one file do. Another thread that marks the step, or a mark inside of one, adds none."""
    spans = [(10, 1, 0, 50), (11, 1, 5, 60), (10, 2, 50, 50), (10, 1, 200, 50), (11, 1, 300, 50)]
    spans += [(10, 1, 210, 20), (10, 1, 240, 20), (10, 1, 255, 20)]
    where = {"ph": "X", "cat": "cpu_op", "pid": 9}
    events: list[Any] = [
        {**where, "name": f"ProfilerStep#{number}", "tid": tid, "ts": ts, "dur": dur} for tid, number, ts, dur in spans
    ]
    store = stored(events[::-1] if reverse else events, tmp_path)
    rows = query(store, "SELECT step_id, iteration, start_ns, end_ns FROM step ORDER BY step_id")
    assert rows == [
        (1, 1, 0, 50_000), (2, 2, 50_000, 100_000), (3, 1, 200_000, 250_000), (4, 1, 255_000, 275_000)
    ]  # fmt: skip
