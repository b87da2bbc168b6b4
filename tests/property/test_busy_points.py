"""Busy times of devices, streams and steps equal a count of nanoseconds, wherever the points and batches are."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import traceconv
from traceconv.normalize import busy_points
from traceconv.store import busy_tables
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
KINDS = ("compute", "copy", "collective", None)
END = 400


def random_tasks(draw: random.Random) -> list[dict[str, object]]:
    return [
        {
            "id": n, "run_id": draw.choice([1, 1, 2]), "device_id": draw.choice([0, 1, None]),
            "stream_id": draw.choice([3, 70_000, None]), "kind": draw.choice([*KINDS, "sync"]),
            "start_ns": (start := draw.choice([draw.randrange(END), 200, 201])),
            "dur_ns": draw.choice([0, 1, 5, 60, None]), "submit_ns": draw.choice([None, start - 3, start - 40]),
        }
        for n in range(draw.choice([90, 250]))
    ]  # fmt: skip


def covered(tasks: list[dict[str, object]], kinds: tuple[str | None, ...], start: int, end: int) -> set[int]:
    """The nanoseconds of a window during which a task of these kinds runs."""
    spans = [(t["start_ns"], t["start_ns"] + (t["dur_ns"] or 0)) for t in tasks if t["kind"] in kinds]  # type: ignore[operator]
    return {ns for a, b in spans for ns in range(max(a, start), min(b, end))}


def check_parts(row: dict[str, Any], tasks: list[dict[str, object]], start: int, end: int) -> None:
    """Check a row of breakdown or step-breakdown against sets of nanoseconds."""
    busy = covered(tasks, KINDS, start, end)
    compute, copy, collective = (covered(tasks, (kind,), start, end) for kind in ("compute", "copy", "collective"))
    wanted = {
        "busy": busy, "compute": compute, "copy": copy, "collective": collective,
        "exposed_collective": collective - compute, "overlapped_collective": collective & compute,
        "exposed_copy": copy - compute - collective, "other": busy - compute - copy - collective,
    }  # fmt: skip
    assert {name: row[f"{name}_ns"] for name in wanted} == {name: len(ns) for name, ns in wanted.items()}, row
    if row["window_ns"] is not None:
        parts = ("compute", "exposed_collective", "exposed_copy", "other", "idle")
        assert sum(row[f"{name}_ns"] for name in parts) == row["window_ns"]


def test_whole_runs_need_no_tasks_but_give_the_same_rows_without_totals(make_store: MakeStore) -> None:
    tasks = random_tasks(random.Random(7))
    path = make_store(task=tasks)
    questions: list[dict[str, Any]] = [{"run": "all"}, {"run": "all", "device": 1}, {"run": 2}]

    def answers() -> list[object]:
        with traceconv.open_store(path) as store:
            return [list(store.report("breakdown", **one)) for one in questions]

    found = answers()
    with open_store(path, read_only=False) as connection:
        stored = connection.execute("FROM device_total ORDER BY ALL").fetchall()
        wanted = {(t["run_id"], t["device_id"]) for t in tasks if t["kind"] != "sync"}
        assert sorted((row[:2] for row in stored), key=str) == sorted(wanted, key=str)
        connection.execute("DELETE FROM device_total WHERE run_id = 1")
    assert answers() == found
    with open_store(path, read_only=False) as connection:
        connection.execute("DELETE FROM device_total")
    assert answers() == found
    with open_store(path, read_only=False) as connection:  # without tasks
        connection.execute("DELETE FROM task")
        connection.executemany(f"INSERT INTO device_total VALUES ({', '.join('?' * len(stored[0]))})", stored)
    assert answers() == found


def test_totals_beyond_64_bits_are_not_stored(make_store: MakeStore) -> None:
    tasks: list[dict[str, object]] = [
        {"id": n, "run_id": run, "start_ns": 0, "dur_ns": 1 << 62, "kind": "compute"}
        for run in (1, 2)
        for n in range(run)
    ]
    with traceconv.open_store(make_store(task=tasks)) as store:
        assert store.query("SELECT run_id, sum_ns FROM device_total").fetchall() == [(1, 1 << 62)]
        rows = [(row["run_id"], row["busy_ns"], row["sum_ns"]) for row in store.report("breakdown", run="all")]
    assert rows == [(1, 1 << 62, 1 << 62), (2, 1 << 62, None)]


def rows_with_tasks(
    store: traceconv.Store, report: str, tasks: list[dict[str, Any]], start: int | None, end: int | None
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Rows of a window with the tasks of each; every device or stream with a task in the window has a row."""
    low, high = -100 if start is None else start, 1000 if end is None else end
    keys = [name for name in ("device_id", "stream_id") if report != "breakdown" or name == "device_id"]
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for task in tasks:
        if task["run_id"] == 2:  # the latest
            by_key[tuple(task[name] for name in keys)].append(task)
    shown = set()
    for row in store.report(report, from_ns=start, to_ns=end):
        shown.add(key := tuple(row[name] for name in keys))
        ran = [t for t in in_window(by_key[key], low, high) if t["dur_ns"] is not None]
        assert row["task_count"] == len(ran)
        if ran:
            first = min(t["start_ns"] for t in ran) if start is None else start
            last = max(t["start_ns"] + t["dur_ns"] for t in ran) if end is None else end
            assert (row["start_ns"], row["end_ns"], row["busy_ns"] + row["idle_ns"]) == (first, last, last - first)
        if report == "breakdown":
            parts = [min(t["start_ns"] + t["dur_ns"], high) - max(t["start_ns"], low) for t in ran]
            assert row["sum_ns"] == sum(parts)
        yield dict(row), by_key[key]
    assert shown == {key for key, mine in by_key.items() if in_window(mine, low, high)}


def in_window(tasks: list[dict[str, Any]], low: int, high: int) -> list[dict[str, Any]]:
    started = [t for t in tasks if t["kind"] != "sync" and t["start_ns"] < high]
    return [t for t in started if t["start_ns"] >= low or t["start_ns"] + (t["dur_ns"] or 0) > low]


def waits(tasks: list[dict[str, object]], start: int, end: int) -> dict[str, int]:
    """The gaps of a stream in a window, by the launch of the task after each."""
    found = {"host_wait_ns": 0, "start_wait_ns": 0}
    ended = [t for t in tasks if t["dur_ns"] is not None and t["kind"] != "sync"]
    ended.sort(key=lambda t: (t["start_ns"], t["dur_ns"]))  # type: ignore[arg-type,return-value]
    busy_until = None
    for task in ended:
        begin, submit = task["start_ns"], task["submit_ns"]
        if busy_until is not None and begin > busy_until:  # type: ignore[operator]
            part = max(0, min(begin, end) - max(busy_until, start))  # type: ignore[call-overload]
            is_late = submit is not None and submit > busy_until  # type: ignore[operator]
            if submit is not None and (is_late or begin - busy_until < 30_000):  # type: ignore[operator]
                found["host_wait_ns" if is_late else "start_wait_ns"] += part
        busy_until = max(busy_until or 0, begin + task["dur_ns"])  # type: ignore[operator]
    return found


@pytest.mark.parametrize(("seed", "point_tasks", "batch_rows"), [(0, 2, 7), (1, 3, 32_768), (2, 5, 7)])
def test_reports_equal_a_count_of_nanoseconds(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, seed: int, point_tasks: int, batch_rows: int
) -> None:
    draw = random.Random(seed)
    tasks = random_tasks(draw)
    steps = [
        {"step_id": n, "run_id": 1, "device_id": draw.choice([0, None]), "start_ns": a, "end_ns": b}
        for n, (a, b) in enumerate(pairwise(sorted(draw.sample(range(-20, END + 80), 8))), 1)
    ]
    monkeypatch.setattr(busy_points, "POINT_TASKS", point_tasks)
    monkeypatch.setattr(busy_points, "GAP_NS", 3)
    monkeypatch.setattr(busy_tables, "_BATCH_ROWS", batch_rows)
    windows = [(None, None), (200, 201), (201, None), *(sorted(draw.sample(range(END + 50), 2)) for _ in range(6))]
    with traceconv.open_store(make_store(task=tasks, step=steps)) as store:
        for table in ("device_busy", "stream_busy"):
            assert store.query(f"FROM {table}").fetchall(), table
        gaps = store.query("SELECT run_id, device_id, start_ns, end_ns FROM device_gap ORDER BY ALL").fetchall()
        for start, end in windows:
            low, high = -100 if start is None else start, 1000 if end is None else end
            for row, mine in rows_with_tasks(store, "breakdown", tasks, start, end):
                check_parts(row, mine, low, high)
            for row, mine in rows_with_tasks(store, "stream-utilisation", tasks, start, end):
                if row["window_ns"] is not None:
                    assert row["busy_ns"] == len(covered(mine, KINDS, low, high)), (start, end, row)
                    assert {name: row[name] for name in ("host_wait_ns", "start_wait_ns")} == waits(mine, low, high)
                    known_ns = row["host_wait_ns"] + row["start_wait_ns"]
                    assert row["other_wait_ns"] == row["idle_ns"] - known_ns >= 0
        found = {(row["step_id"], row["device_id"]): row for row in store.report("step-breakdown", run="all")}
    for step in steps:
        for device in {t["device_id"] for t in tasks if t["run_id"] == 1 and t["dur_ns"] is not None}:
            if step["device_id"] in (None, device):
                row = found.pop((step["step_id"], device))
                bounds = step["start_ns"], step["end_ns"]
                mine = [t for t in tasks if (t["run_id"], t["device_id"]) == (1, device)]
                check_parts(row, mine, *bounds)  # type: ignore[arg-type]
                assert row["window_ns"] == bounds[1] - bounds[0]  # type: ignore[operator]
    assert not found
    spans: dict[tuple[Any, Any], list[tuple[Any, Any]]] = {}
    for task in tasks:
        if task["kind"] != "sync" and task["dur_ns"] is not None:
            span = task["start_ns"], task["start_ns"] + task["dur_ns"]  # type: ignore[operator]
            spans.setdefault((task["run_id"], task["device_id"]), []).append(span)
    wanted = []
    for of, mine in spans.items():
        busy = {ns for start, end in mine for ns in range(start, end)}
        starts, ends = {start for start, _ in mine}, sorted({end for _, end in mine})
        for end in ends:
            after = min((start for start in starts if start > end), default=None)
            if (
                after is not None
                and after - end >= 3
                and not busy & set(range(end, after))
                and not any(end < other < after for other in ends)
            ):
                wanted.append((*of, end, after))
    assert sorted(gaps, key=str) == sorted(wanted, key=str)


#: More of them are run by `make test-long`.
SEEDS = [*range(1), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 3))]


@pytest.mark.parametrize("seed", SEEDS)
def test_reports_on_steps_equal_those_without_points(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    tasks: list[dict[str, object]] = []
    for n in range(400):
        start = 3 * n + draw.randrange(6)
        step = n // 40 + 1 if draw.random() < 0.99 else draw.choice([None, 1, 10])
        tasks.append(
            {
                "id": n, "stream_id": draw.choice([1, 2]), "kind": draw.choice(KINDS), "step_id": step,
                "start_ns": start, "dur_ns": draw.choice([0, 2, 3, 40]), "submit_ns": draw.choice([None, start - 1]),
            }
        )  # fmt: skip
    monkeypatch.setattr(busy_points, "POINT_TASKS", 2)
    path = make_store(task=tasks)
    with open_store(path) as connection:
        # Some steps must be read from points.
        zones = connection.execute("SELECT end_ns - begin_ns FROM steps_alone(1, NULL, NULL, 2, 9)").fetchall()
        assert zones
        assert zones[0][0] > 100
    questions: list[dict[str, Any]] = [{"steps": "2-9"}, {"steps": "3-"}, {"steps": "-8"}]
    for _ in range(8):
        start, end = sorted(draw.sample(range(1250), 2))
        questions.append({"steps": draw.choice(["2-9", "3-", "-7", "1-10"]), "from_ns": start, "to_ns": end})

    def answers() -> list[object]:
        with traceconv.open_store(path) as store:
            return [
                list(store.report(name, **one)) for name in ("breakdown", "stream-utilisation") for one in questions
            ]

    from_points = answers()
    with open_store(path, read_only=False) as connection:
        connection.execute("DELETE FROM device_busy")
        connection.execute("DELETE FROM stream_busy")
    assert from_points == answers()
    [row] = from_points[0]  # type: ignore[misc]
    assert row["busy_ns"] == len(covered([t for t in tasks if t["step_id"] in range(2, 10)], KINDS, -10, 2000))
