"""Each rule of advise, in a store of a few rows in which it applies and one in which it doesn't; savings by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import traceconv
from traceconv.analysis.advice import advice_rules, advise
from traceconv.reports.current_store import open_current_store

MakeStore = Callable[..., Path]
Rows = dict[str, list[dict[str, Any]]]
US, MS = 1000, 1_000_000


def task(id_: int, start_ns: int, dur_ns: int, **more: object) -> dict[str, Any]:
    return {"id": id_, "track_id": 9, "start_ns": start_ns, "dur_ns": dur_ns, "stream_id": 7, "kind": "compute",
            "name": "gemm", "depth": 0, **more}  # fmt: skip


def two(gap_ns: int, submit_ns: int | None = None, host: str = "work", **more: object) -> Rows:
    """Two tasks of 1 ms with a gap, all of which the launching thread was in `host`; `submit_ns`: in the gap."""
    at = MS + gap_ns
    launched = at - 5 * US if submit_ns is None else MS + submit_ns
    return {
        "task": [task(1, 0, MS), task(2, at, MS, submit_ns=launched, correlation_id=4, **more)],
        "api": [call(3, "launch", launched, US, correlation_id=4)],
        "range": [call(5, host, 0, at, kind="host_op")],
    }


def call(id_: int, name: str, start_ns: int, dur_ns: int, **more: object) -> dict[str, Any]:
    return {"id": id_, "name": name, "start_ns": start_ns, "dur_ns": dur_ns, "track_id": 1, **more}


def sequence(count: int, dur_ns: int, gap_ns: int, **more: object) -> list[dict[str, Any]]:
    """Tasks with these gaps, launched 4 µs before they start if `submits`."""
    submits = more.pop("submits", True)
    starts = [n * (dur_ns + gap_ns) for n in range(count)]
    return [task(n, at, dur_ns, submit_ns=at - 4 * US if submits else None, **more) for n, at in enumerate(starts)]


def step_of(run_id: int, rank: int, *compute_ns: int) -> Rows:
    """Steps of 10 ms with one number, as of several recordings in a file."""
    steps = [(n, 10 * MS * n, ns) for n, ns in enumerate(compute_ns)]
    return {
        "run": [{"run_id": run_id, "label": f"r{run_id}", "rank": rank, "group_label": "job", "start_ns": 0}],
        "step": [{"run_id": run_id, "step_id": n, "iteration": 1, "start_ns": start, "end_ns": start + 10 * MS}
                 for n, start, _ in steps],
        "task": [row for n, start, ns in steps for row in (
            task(2 * n, start, ns, run_id=run_id),
            task(2 * n + 1, start + ns, 10 * MS - ns, run_id=run_id, kind="collective"),
        )],
    }  # fmt: skip


def joined(*parts: Rows) -> Rows:
    names = {name for part in parts for name in part}
    return {name: [row for part in parts for row in part.get(name, [])] for name in names}


def clock(*values: float) -> Rows:
    return {
        "task": [task(n, n * MS, MS) for n in range(len(values))],
        "track": [{"track_id": 2, "kind": "counter", "name": "AI Core Freq"}],
        "counter": [{"track_id": 2, "ts_ns": n * MS, "value": value} for n, value in enumerate(values)],
    }


def freeing(name: str) -> Rows:
    calls = [call(10, name, MS + 10 * US, 200 * US), call(11, name, MS + 400 * US, 100 * US)]
    return joined(two(MS), {"api": calls})


SMALL_GRID = '{"blocks per SM": 0.25, "grid": [20, 1, 1]}'
#: Rule → rows in which it applies, the saving, and rows in which it doesn't.
CASES: dict[str, tuple[Rows, int, Rows]] = {
    # The host was busy for 3 ms minus the 5 µs from the launch to the start; 0.9 ms are no long gap.
    "host-bound": (two(3 * MS), 3 * MS - 5 * US, two(900 * US)),
    # 99 gaps of 3 µs; each task was launched 4 µs before, which is the latency; or launches are unknown.
    "launch-bound": ({"task": sequence(100, 5 * US, 3 * US)}, 99 * 3 * US,
                     {"task": sequence(100, 5 * US, 3 * US, submits=False)}),
    # Launched 10 µs into the gap.
    "late-start": (two(3 * MS, 10 * US), 3 * MS - 10 * US, two(3 * MS)),
    "forced-synchronisation": (two(400 * US, host="cudaStreamSynchronize"), 400 * US, two(400 * US)),
    "data-loading": (two(400 * US, host="DataLoader.__next__"), 395 * US, two(400 * US)),
    "ai-cpu-ops": ({"task": [task(1, 0, MS), task(2, MS, 300 * US, task_type="AI_CPU")]}, 300 * US,
                   {"task": [task(1, 0, MS), task(2, MS, 300 * US, task_type="AI_CORE")]}),
    # 120 tasks with the fixed cost of the shortest.
    "many-small-ops": ({"task": sequence(120, 2 * US, 0)}, 240 * US, {"task": sequence(99, 2 * US, 0)}),
    # Of two pairs, the shorter task; the third is in another step.
    "missed-fusions": (
        {"task": [task(1, 0, 50, name="relu", step_id=1), task(2, 50, 30, name="batch_norm_fwd", step_id=1),
                  task(3, 80, 60, name="sigmoid", step_id=1), task(4, 140, 60, name="relu", step_id=2)]}, 60,
        {"task": [task(1, 0, 50, name="relu"), task(2, 50, 30), task(3, 80, 60, name="relu")]},
    ),
    "layout-transposes": ({"task": [task(1, 0, 90), task(2, 90, 10, name="nchwToNhwcKernel")]}, 10,
                          {"task": [task(1, 0, 90), task(2, 90, 10, name="ConvTranspose")]}),
    # Of 80 ns without computation, 50 could be hidden by the 50 of the task.
    "poor-overlap": ({"task": [task(1, 0, 50), task(2, 50, 80, kind="collective", stream_id=8)]}, 50,
                     {"task": [task(1, 0, 80), task(2, 0, 80, kind="collective", stream_id=8)]}),
    # The first and last copy can't be hidden.
    "exposed-copies": ({"task": [task(1, 0, 50), task(2, 50, 20, kind="copy"), task(3, 70, 50)]}, 20,
                       {"task": [task(1, 0, 50, kind="copy"), task(2, 50, 20), task(3, 70, 50, kind="copy")]}),
    "fragmentation": (freeing("cudaFree"), 300 * US, freeing("cudaFreeAsync")),
    "low-occupancy": ({"task": [task(1, 0, 20 * US, args=SMALL_GRID)], "device": [{"device_id": 0}]}, 15 * US,
                      {"task": [task(1, 0, 9 * US, args=SMALL_GRID)], "device": [{"device_id": 0}]}),
    "clock-throttling": (clock(1800, 900, 1350), MS // 2 + MS // 4, clock(1800, 1800, 1800)),
    "stragglers": (joined(step_of(1, 0, 2 * MS), step_of(2, 1, 2 * MS), step_of(3, 2, 5 * MS)), 3 * MS,
                   joined(step_of(1, 0, 2 * MS), step_of(2, 1, 2 * MS))),
    "unexplained-idle": ({"task": [task(1, 0, MS), task(2, 3 * MS, MS)]}, 2 * MS, two(2 * MS)),
}  # fmt: skip


def findings(store: Path, **options: Any) -> Mapping[str, Any]:
    with traceconv.open_store(store) as opened:
        advice = opened.advise(1, **options)
        for one in advice.findings:
            opened.query(one.evidence).fetchall()
    return {one.rule: one for one in advice.findings}


def test_every_rule_has_a_case() -> None:
    assert sorted(CASES) == sorted(rule.name for rule in advice_rules().values())


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_applies_where_it_should(make_store: MakeStore, rule: str) -> None:
    applies, saving_ns, other = CASES[rule]
    found = findings(make_store(**applies))
    assert found[rule].saving_ns == saving_ns
    assert rule not in findings(make_store(**other))


def test_a_host_that_runs_the_ops_itself_has_no_launches_to_record(make_store: MakeStore) -> None:
    rows = {**CASES["unexplained-idle"][0], "device": [{"device_id": 0, "kind": "CPU"}]}
    assert "unexplained-idle" not in findings(make_store(**rows))


@pytest.mark.parametrize("waiting_track", [1, 2])
def test_synchronisation_saves_at_most_the_time_of_the_wait(make_store: MakeStore, waiting_track: int) -> None:
    """The launching thread or another one waits for 30 µs; then the host needs most of the idle time anyway."""
    rows = two(400 * US)
    wait = call(10, "cudaStreamSynchronize", MS - 20 * US, 30 * US, track_id=waiting_track)
    if waiting_track == 2:
        rows["range"] = []
    with traceconv.open_store(make_store(**joined(rows, {"api": [wait]}))) as opened:
        found = {one.rule: one for one in opened.advise(1, least_percent=0).findings}["forced-synchronisation"]
        assert (found.saving_ns, found.count) == (30 * US, 1)
        assert opened.query(f"SELECT gap_ns, saving_ns FROM ({found.evidence})").fetchall() == [(400 * US, 30 * US)]


@pytest.mark.parametrize("loads_on", [1, 2, 3])
def test_data_may_be_loaded_by_a_thread_that_does_not_launch(make_store: MakeStore, loads_on: int) -> None:
    """The launching thread, one that calls the runtime, or one that does not, which may load ahead."""
    rows = two(3 * MS) | {"range": [call(5, "DataLoader.__next__", MS, 2 * MS, track_id=loads_on)]}
    other = {"api": [call(6, "aclrtSynchronizeStream", MS - 10 * US, 5 * US, track_id=2)]}
    with traceconv.open_store(make_store(**joined(rows, other))) as opened:
        found = {one.rule: one for one in opened.advise(1).findings}
        rule, other_rule = ("host-bound", "data-loading") if loads_on == 3 else ("data-loading", "host-bound")
        assert found[rule].saving_ns == 3 * MS - 5 * US and other_rule not in found
        assert found[rule].subjects == (() if loads_on == 3 else ("DataLoader.__next__",))
        for name, count in ((rule, 1), (other_rule, 0)):
            evidence = advice_rules()[name.replace("-", "_")].evidence.replace("$run", "1").replace("$device", "0")
            assert len(opened.query(evidence).fetchall()) == count
        causes = opened.query("SELECT cause, host_name FROM idle_gaps").fetchall()
        assert causes == [("host", None) if loads_on == 3 else ("data_loading", "DataLoader.__next__")]


@pytest.mark.parametrize("rule", ["exposed-copies", "late-start", "low-occupancy", "missed-fusions"])
def test_evidence_adds_up_to_the_saving(make_store: MakeStore, rule: str) -> None:
    """Two devices, of which one has overlapping copies, work at the same times as the copies, and chains of tasks."""
    rows = [
        task(1, 0, 50 * US, name="relu"), task(2, 50 * US, 30 * US, name="relu", args=SMALL_GRID),
        task(3, 80 * US, 20 * US, name="batch_norm_fwd"), task(4, 100 * US, 90 * US, name="relu", stream_id=8),
        task(5, 150 * US, 100 * US, name="HtoD", kind="copy", stream_id=9),
        task(6, 180 * US, 90 * US, name="DtoD", kind="copy", stream_id=10),
        task(7, 240 * US, 20 * US, kind="collective", stream_id=11),
        task(8, 400 * US, 60 * US, name="relu"), task(9, 440 * US, 90 * US, name="DtoH", kind="copy", stream_id=9),
        task(10, 3 * MS, 9 * US, name="relu", submit_ns=460 * US),
    ]  # fmt: skip
    rows += [{**row, "id": row["id"] + 20, "device_id": 1, "name": "other"} for row in rows]
    store = make_store(task=rows, device=[{"device_id": 0}, {"device_id": 1}])
    with traceconv.open_store(store) as opened:
        found = [one for one in opened.advise(1, least_percent=0).findings if one.rule == rule]
        assert found
        for one in found:
            total = {"exposed-copies": "exposed_ns", "late-start": "least(gap_ns, launch_delay_ns)"}.get(
                rule, "saving_ns"
            )
            ((saving_ns,),) = opened.query(f"SELECT sum({total}) FROM ({one.evidence})").fetchall()
            assert saving_ns == one.saving_ns


def test_evidence_of_small_tasks_and_of_communication_adds_up_to_the_saving(make_store: MakeStore) -> None:
    """Small tasks of two names, with idle times before those that were launched in time, and an exposed collective."""
    tasks = [
        task(n, n * 12 * US + n % 7 * 100, (2 + n % 5) * US, name="ab"[n % 2], submit_ns=n * 12 * US - n % 3 * 4 * US)
        for n in range(150)
    ]
    tasks.append(task(200, 2 * MS, 30 * US, name="long", submit_ns=MS))
    tasks.append(task(201, 2 * MS + 10 * US, 50 * US, kind="collective", stream_id=8))
    with traceconv.open_store(make_store(task=tasks, device=[{"device_id": 0}])) as opened:
        found = {one.rule: one for one in opened.advise(1, least_percent=0).findings}
        for rule in ("many-small-ops", "poor-overlap"):
            query = f"SELECT sum(saving_ns) FROM ({found[rule].evidence})"
            assert opened.query(query).fetchall() == [(found[rule].saving_ns,)]


def test_subjects_are_those_with_the_most_time(make_store: MakeStore) -> None:
    names = ["a", "b", "a", "c", "d\x1b[31m"]
    tasks = [task(n, n * MS, (n + 1) * US, name=name, task_type="AI_CPU") for n, name in enumerate(names)]
    found = findings(make_store(task=tasks), least_percent=0)["ai-cpu-ops"]
    assert (found.count, found.subjects) == (5, ("d\\x1b[31m", "a", "c"))


def test_what_trust_calls_lost_is_a_caveat(make_store: MakeStore) -> None:
    rows = two(3 * MS)
    late = call(20, "launch", 8 * MS, US, correlation_id=77)  # a launch without a task
    found = findings(make_store(**joined(rows, {"api": [late]})))
    assert found["host-bound"].caveats == ("lost_tasks: 1 of 2",)
    assert findings(make_store(**rows))["host-bound"].caveats == ()


def test_ranks_are_compared_in_each_step_of_one_number(make_store: MakeStore) -> None:
    rows = joined(step_of(1, 0, 2 * MS, 5 * MS), step_of(2, 1, 3 * MS, 2 * MS))
    assert findings(make_store(**rows))["stragglers"].saving_ns == MS + 3 * MS


def test_times_beyond_64_bits_give_no_finding(make_store: MakeStore) -> None:
    top = 2**63 - 1
    tasks = [task(1, -top, top, task_type="AI_CPU"), task(2, 0, top, task_type="AI_CPU")]
    assert findings(make_store(task=tasks)) == {}


@pytest.mark.parametrize("unit_ns", [US, 2**60])
def test_idle_times_are_those_of_each_device(make_store: MakeStore, unit_ns: int) -> None:
    # Devices with the same times, in another order than their rows; the large times need 128 bits to be shifted.
    tasks = [
        task(n, (n * 7 % 11 - 5) * unit_ns, n % 3 * unit_ns, device_id=(None, 5, -2)[n % 2 + (n > 20)])
        for n in range(33)
    ]
    pauses = []
    for device in (None, 5, -2):
        reached = None
        for one in sorted((one for one in tasks if one["device_id"] == device), key=lambda one: one["start_ns"]):
            if reached is not None and reached < one["start_ns"]:
                pauses.append((device, reached, one["start_ns"]))
            reached = max(one["start_ns"] + one["dur_ns"], one["start_ns"] if reached is None else reached)
    with open_current_store(make_store(task=tasks)) as connection:
        advise(connection, 1)
        found = connection.execute("SELECT device_id, start_ns, end_ns FROM advice_pause").fetchall()
    assert pauses
    assert sorted(found, key=repr) == sorted(pauses, key=repr)
