"""What-if answers on random programs equal the simulation of the changed program, step by step."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import traceconv
from traceconv.analysis import critical_path
from traceconv.analysis.what_if import WhatIf

MakeStore = Callable[..., Path]
Rows = list[dict[str, object]]

LATENCY_NS, GAP_NS, RETURN_NS, CHECK_NS = 500, 20, 300, 100
STREAMS = 3


def simulate(
    seed: int, faster: int = 1, call_ns: int = 200, faster_loads: int = 1
) -> tuple[dict[str, Rows], list[int]]:
    """Rows of a program that launches tasks on streams and waits for them, and the durations of its steps.

    Tasks called sgemm, which are launched inside ranges called mm, take 1 / faster of their time; ranges called load,
    with the read inside them, 1 / faster_loads.
    """
    chance = random.Random(seed)
    rows: dict[str, Rows] = {"api": [], "range": [], "task": [], "step": []}
    now, ids, lengths = 1_000, iter(range(1, 10**6)), []
    free = dict.fromkeys(range(STREAMS), 0)

    def slice_of(table: str, name: str, end: int, parents: tuple[int, ...] = (), start: int | None = None) -> int:
        start = now if start is None else start
        row = {"id": next(ids), "track_id": 1, "name": name, "start_ns": start, "dur_ns": end - start}
        rows[table].append({**row, "depth": len(parents), "parent_id": parents[-1] if parents else None})
        return int(row["id"])

    def call(name: str, end: int, *parents: int) -> int:
        nonlocal now
        number = slice_of("api", name, end, parents)
        now = end
        return number

    def load(dur: int) -> None:
        nonlocal now
        whole, read = dur // faster_loads, dur // 2 // faster_loads
        outer = slice_of("range", "load", now + whole)
        slice_of("range", "read", now + read, (outer,))
        now += whole

    for step in range(4):
        start, last = now, 0
        for _ in range(chance.randint(10, 25)):
            stream, is_slow = chance.randrange(STREAMS), chance.choice([True, False])
            name = "sgemm" if is_slow else "other"
            dur = chance.choice([50, 400, 1_600]) * 10 // faster if is_slow else chance.choice([50, 400, 1_600])
            submit, begin = now, max(now + LATENCY_NS, free[stream] + GAP_NS)
            operator = [slice_of("range", "mm", now + call_ns)] if is_slow else []
            source = call("Launch", now + call_ns, *operator)
            free[stream] = last = begin + dur
            row = {"id": next(ids), "track_id": 10 + stream, "stream_id": stream, "name": name, "kind": "compute"}
            row["api_id"] = source
            rows["task"].append(
                {**row, "depth": 0, "step_id": step, "start_ns": begin, "dur_ns": dur, "submit_ns": submit}
            )
            load(chance.choice([0, 100, 1_000]))
            if chance.random() < 0.1:
                call("DeviceSynchronize", max(now + CHECK_NS, max(free.values()) + RETURN_NS))
        call("DeviceSynchronize", max(now + CHECK_NS, max(free.values()) + RETURN_NS))
        rows["step"].append({"step_id": step, "start_ns": start, "end_ns": now})
        lengths.append(max(now, last) - start)
        now += 500
    return rows, lengths


@pytest.mark.parametrize("group_slices", [10**6, 100])
def test_random_programs(group_slices: int, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_path, "_GROUP_SLICES", group_slices)
    # The usual delays are those of a group of steps: a small one may not have each of them.
    largest_ns = 0 if group_slices > 10**5 else CHECK_NS + RETURN_NS

    def check(answer: WhatIf, expected: list[int]) -> None:
        for step, dur_ns in zip(answer.steps, expected, strict=True):
            assert abs(step.predicted_ns - dur_ns) <= largest_ns

    tracks = [{"track_id": 1, "kind": "thread"}, *({"track_id": 10 + n, "kind": "stream"} for n in range(STREAMS))]
    for seed in range(2):
        rows, measured = simulate(seed)
        with traceconv.open_store(make_store(track=tracks, **rows)) as store:
            for faster in (2, 5):
                answer = store.what_if(op_type="sgemm", speed_up=faster)
                assert [step.replayed_ns for step in answer.steps] == measured
                check(answer, simulate(seed, faster)[1])
                assert store.what_if(category="gemm", speed_up=faster).steps == answer.steps
                assert store.what_if(launched_by="mm", speed_up=faster).steps == answer.steps
                check(store.what_if(host_range="load", speed_up=faster), simulate(seed, faster_loads=faster)[1])
            check(store.what_if(no_launch_cost=True), simulate(seed, call_ns=0)[1])
            path = store.critical_path(save=False)
        assert [step.dur_ns for step in path.steps] == measured
        ends = {step.start_ns: step.end_ns for step in path.steps}
        kinds, starts, durations = (path.parts[name].to_pylist() for name in ("kind", "start_ns", "dur_ns"))
        assert set(kinds) <= {"compute", "launch", "stream", "host", "host_wait", "gap"}
        at = None
        for start, dur in zip(starts, durations, strict=True):
            assert start == at if at is not None else start in ends
            at = start + dur
            at = None if at in ends.values() else at
