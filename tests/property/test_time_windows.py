"""Windows of time and steps: reports agree with a recount of the rows in the window."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
from store_builder import build_store

import traceconv
from traceconv.normalize import busy_points
from traceconv.reports.catalog import reports

ORIGIN = 10_000
RANDOM = random.Random(7)
TASKS = [
    {
        "id": n, "op_id": n % 3, "name": f"k{n % 3}", "device_id": n % 2, "stream_id": n % 4,
        "kind": RANDOM.choice(["compute", "compute", "copy", "collective", "sync"]), "step_id": RANDOM.randrange(1, 7),
        "start_ns": (start := ORIGIN + RANDOM.randrange(0, 400_000)), "submit_ns": start - RANDOM.randrange(0, 60_000),
        "dur_ns": RANDOM.choice([0, 10, 500, 7_000, 40_000, None]),
    }
    for n in range(160)
]  # fmt: skip
RANGES = [
    {**{k: t[k] for k in ("id", "start_ns", "dur_ns", "step_id")}, "name": "r", "kind": "inference"} for t in TASKS
]
WINDOWS = [
    (None, None), (ORIGIN + 100_000, None), (None, ORIGIN + 100_000), (ORIGIN + 399_999, ORIGIN + 500_000), (0, 1),
    *(tuple(sorted(RANDOM.sample(range(ORIGIN, ORIGIN + 450_000), 2))) for _ in range(12)),
]  # fmt: skip


@pytest.fixture(scope="module", params=[busy_points.POINT_TASKS, 3], ids=["few points", "many points"])
def store(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[traceconv.Store]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy_points, "POINT_TASKS", request.param)
        path = build_store(
            tmp_path_factory.mktemp("windows") / "s.duckdb",
            run=[{"start_ns": ORIGIN, "source_format": "npulog"}],
            task=TASKS, range=RANGES,
            api=[{"id": t["id"], "name": t["name"], "start_ns": t["start_ns"], "dur_ns": t["dur_ns"]} for t in TASKS],
            op=[{"op_id": n, "name": f"k{n}", "op_type": f"T{n}"} for n in range(3)],
            step=[{"step_id": n, "device_id": 0, "start_ns": ORIGIN + 60_000 * n} for n in range(1, 7)],
        )  # fmt: skip
    with traceconv.open_store(path) as opened:
        yield opened


def starts_in(start: int | None, end: int | None, rows: list[dict[str, object]] = TASKS) -> list[dict[str, object]]:
    return [
        row for row in rows if (start is None or row["start_ns"] >= start) and (end is None or row["start_ns"] < end)
    ]


@pytest.mark.parametrize(("start", "end"), WINDOWS)
def test_sums_count_what_starts_in_the_window(store: traceconv.Store, start: int | None, end: int | None) -> None:
    window = {"from_ns": start, "to_ns": end}
    inside = starts_in(start, end)
    by_type: dict[str, list[int]] = defaultdict(list)
    for task in inside:
        by_type[f"T{task['op_id']}"] += [] if task["dur_ns"] is None else [task["dur_ns"]]
    found: dict[object, list[object]] = defaultdict(lambda: [0, 0])
    for row in store.report("op-statistic", **window):
        found[row["op_type"]][0] += row["count"]
        found[row["op_type"]][1] += row["total_ns"]
    assert {k: [len(v), sum(v)] for k, v in by_type.items()} == dict(found)
    for report, name in (("task-time", "id"), ("op-summary", "id"), ("inference", "id")):
        assert sorted(row[name] for row in store.report(report, **window)) == sorted(t["id"] for t in inside), report
    for report, column in (
        ("api-statistic", "total_ns"),
        ("range-statistic", "total_ns"),
        ("npu-operator", "total_ns"),
    ):
        kept = [t for t in inside if report != "npu-operator" or t["kind"] == "compute"]
        total = sum(t["dur_ns"] or 0 for t in kept)
        assert sum(row[column] for row in store.report(report, **window)) == total, report
    latency = store.report("inference-latency", **window).fetchall()
    assert [row[1] for row in latency] == ([sum(t["dur_ns"] is not None for t in inside)] if inside else [])


def test_adjacent_windows_add_up(store: traceconv.Store) -> None:
    borders = [ORIGIN, ORIGIN + 77_777, ORIGIN + 200_000, ORIGIN + 200_001, ORIGIN + 500_000]
    columns = ["busy_ns", "idle_ns", "host_wait_ns", "start_wait_ns", "other_wait_ns"]

    def sums(start: int, end: int) -> list[int]:
        rows = list(store.report("stream-utilisation", from_ns=start, to_ns=end, filters={"stream_id": 0}))
        assert len(rows) == 1
        return [rows[0][column] for column in columns]

    parts = [sums(a, b) for a, b in itertools.pairwise(borders)]
    assert [sum(one) for one in zip(*parts, strict=True)] == sums(borders[0], borders[-1])


def test_steps_are_a_range(store: traceconv.Store) -> None:
    for steps, wanted in (("3-5", {3, 4, 5}), ("5-", {5, 6}), ("-2", {1, 2}), ("4", {4}), ("9-", set())):
        for report in ("task-time", "op-summary", "inference", "step-trace"):
            assert {row["step_id"] for row in store.report(report, steps=steps)} == wanted, (report, steps)
        total = sum(t["dur_ns"] or 0 for t in TASKS if t["step_id"] in wanted)
        assert sum(row["total_ns"] for row in store.report("op-analysis", steps=steps)) == total


def test_a_time_with_a_unit_is_relative_to_the_start_of_the_run(store: traceconv.Store) -> None:
    def ids(**options: object) -> list[object]:
        return [row["id"] for row in store.report("task-time", **options)]

    assert ids(from_ns="0.1 ms", to_ns="200us") == ids(from_ns=ORIGIN + 100_000, to_ns=str(ORIGIN + 200_000))
    assert ids(from_ns="100us") == ids(filters=["start>=0.1ms"]) == ids(filters=[f"start_ns>={ORIGIN + 100_000}"])


def test_every_report_on_times_has_a_window() -> None:
    without = {name for name, one in reports().items() if not {"from_ns", "to_ns"} <= {p.name for p in one.parameters}}
    # The rows of fusion_op are ops, which have no time; the others are about complete runs or steps.
    assert without == {"fusion_op", "links", "modules", "op_tree", "run_summary", "trust"}
    for report in reports().values():
        names = {parameter.name for parameter in report.parameters}
        assert ("first_step" in names) == ("last_step" in names) == ("step" in names)
