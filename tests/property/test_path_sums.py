"""The tables of op-tree against a recount in Python, with ranges of time that cut open slices, and without C."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from stores import query

from traceconv import native
from traceconv.store import path_tables
from traceconv.store.database import open_store
from traceconv.store.derived_tables import fill_derived_tables

MakeStore = Callable[..., Path]
Row = dict[str, Any]
LARGE = 2**62
NAMES = ("ProfilerStep#1", "ProfilerStep#23", "ProfilerStep#x", "a", "b", "", None)
KINDS = ("host_op", "frame", "module", "annotation", None)
TRACKS = [
    {"track_id": 1, "kind": "thread", "device_id": None},
    {"track_id": 2, "kind": "thread", "device_id": None},
    {"track_id": 3, "kind": "stream", "device_id": 0},
]


def make_rows(random: Random, run_id: int) -> dict[str, list[Row]]:
    """Nested ranges and calls on three tracks, tasks of the calls, and flows from ranges to some tasks."""
    rows: dict[str, list[Row]] = {"range": [], "api": [], "task": [], "flow": []}

    def nest(track_id: int, parent: int | None, start: int, end: int, depth: int) -> None:
        at = start
        while at < end and len(rows["range"]) < 60:
            begin, at = at, at + random.randint(0, max(1, (end - start) // 2))
            stop, number = min(at, end), len(rows["range"]) + len(rows["api"]) + 1
            common = {"run_id": run_id, "id": number, "track_id": track_id, "parent_id": parent, "start_ns": begin,
                      "step_id": random.choice([None, 1, 2])}  # fmt: skip
            dur = None if random.random() < 0.05 else LARGE if random.random() < 0.05 else stop - begin
            if random.random() < 0.3:
                rows["api"].append({**common, "dur_ns": dur, "correlation_id": number})
            else:
                names = {"name": random.choice(NAMES), "kind": random.choice(KINDS)}
                own = None if dur is None else dur - random.randint(0, 3)
                rows["range"].append({**common, **names, "dur_ns": dur, "self_ns": own})
            if depth < 5 and random.random() < 0.7:
                nest(track_id, number, begin, stop, depth + 1)
            at += random.randint(0, 2)

    for track_id in (1, 2, 3):
        nest(track_id, None, random.randint(-50, 50), 200, 0)
    for number in range(1000, 1030):
        call = random.choice([None, *rows["api"]])
        rows["task"].append({
            "run_id": run_id, "id": number,
            "correlation_id": call and call["id"], "submit_ns": call and call["start_ns"],
            "start_ns": random.choice([None, number]), "dur_ns": random.choice([None, 5, LARGE]), "track_id": 3,
            "device_id": random.choice([None, 0, 1]), "step_id": random.choice([None, 1]),
            "kind": random.choice(["compute", "copy", "sync", None]),
        })  # fmt: skip
        if rows["range"] and random.random() < 0.3:
            source = random.choice(rows["range"])
            rows["flow"].append({"run_id": run_id, "flow_id": number, "src_id": source["id"], "dst_id": number})
    return rows


def recount(rows: dict[str, list[Row]]) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return the six sums by run, chain of names, device and step."""
    slices = {(row["run_id"], row["id"]): row for kind in ("range", "api") for row in rows[kind]}
    on_host = {1, 2}

    def around(row: Row | None) -> list[Row]:
        """The ranges around a slice and itself, outermost first."""
        found = []
        while row is not None:
            if "kind" in row:
                found.append(row)
            row = slices.get((row["run_id"], row["parent_id"]))
        return found[::-1]

    def path(ranges: list[Row]) -> tuple[str, ...] | None:
        names = tuple(row["name"] or "" for row in ranges)
        return tuple("ProfilerStep*" if name[13:].isdecimal() else name for name in names) or None

    def launching(call: list[Row], linked: list[Row]) -> list[Row]:
        def has(ranges: list[Row], *kinds: str) -> bool:
            return any(row["kind"] in kinds for row in ranges)

        others = ("module", "annotation")
        by_flow = not has(call, "host_op") and (
            has(linked, "host_op") or (not has(call, *others) and has(linked, *others))
        )
        return linked if by_flow else call or linked

    known = {path(around(row)) for row in rows["range"] if row["track_id"] in on_host}
    sums: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0] * 6)
    for row in rows["range"]:
        if row["track_id"] in on_host:
            total = sums[row["run_id"], path(around(row)), None, row["step_id"]]
            for place, value in enumerate((1, row["dur_ns"] is not None, row["dur_ns"] or 0, row["self_ns"] or 0)):
                total[place] += value
    for task in rows["task"]:
        if task["kind"] == "sync":
            continue
        call = slices.get((task["run_id"], task["correlation_id"]))
        sources = [flow["src_id"] for flow in rows["flow"] if flow["dst_id"] == task["id"]]
        linked = slices[task["run_id"], min(sources)] if sources else None
        chain = path(launching(around(call), around(linked)))
        total = sums[task["run_id"], chain if chain in known else None, task["device_id"], task["step_id"]]
        total[4] += 1
        total[5] += task["dur_ns"] or 0
    return {key: tuple(map(int, total)) for key, total in sums.items()}


def stored(connection: Any) -> dict[tuple[object, ...], tuple[int, ...]]:
    paths = {
        (run_id, path_id): (parent_id, name, depth)
        for run_id, path_id, parent_id, name, depth in connection.execute(
            "SELECT run_id, path_id, parent_path_id, name, depth FROM range_path"
        ).fetchall()
    }

    def chain(run_id: int, path_id: int | None) -> tuple[str, ...] | None:
        if path_id is None:
            return None
        parent_id, name, depth = paths[run_id, path_id]
        names = (*(chain(run_id, parent_id) or ()), name)
        assert depth == len(names) - 1
        return names

    sums: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0] * 6)
    rows = connection.execute(
        "SELECT run_id, path_id, device_id, step_id, range_count, ended_count, host_total_ns, host_self_ns, "
        "task_count, task_ns FROM range_path_time"
    )
    for run_id, path_id, device_id, step_id, *values in rows.fetchall():
        total = sums[run_id, chain(run_id, path_id), device_id, step_id]
        for place, value in enumerate(values):
            total[place] += value
    return {key: tuple(total) for key, total in sums.items()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_c", [True, False])
def test_sums_of_chains(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, seed: int, with_c: bool) -> None:
    monkeypatch.setattr(native, "AVAILABLE", native.AVAILABLE and with_c)
    monkeypatch.setattr(path_tables, "_CHUNK_ROWS", 20)
    monkeypatch.setattr(path_tables, "_MOST_SUMS", 10)
    parts = [make_rows(Random(100 * seed + run_id), run_id) for run_id in (1, 2)]
    rows = {table: [row for part in parts for row in part[table]] for table in parts[0]}
    tracks = [{**track, "run_id": run_id} for run_id in (1, 2) for track in TRACKS]
    with open_store(make_store(track=tracks, **rows)) as connection:
        expected: dict[tuple[object, ...], tuple[int, ...]] = {}
        for part in parts:
            expected |= recount(part)
        assert stored(connection) == expected


@pytest.mark.parametrize("with_c", [True, False])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("chunk_rows", [1, 3, 5, 1000])
def test_names_beyond_the_limit_are_summed_as_one(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, order: int, chunk_rows: int, with_c: bool
) -> None:
    """No time is lost: a run with very many chains keeps the first ones, in the order of time, and sums the others."""
    monkeypatch.setattr(native, "AVAILABLE", native.AVAILABLE and with_c)
    monkeypatch.setattr(path_tables, "_MOST_PATHS", 4)
    monkeypatch.setattr(path_tables, "_CHUNK_ROWS", chunk_rows)
    ranges = []
    for n in range(6):
        outer = {"track_id": 1, "name": f"request {n}", "start_ns": 100 * n, "dur_ns": 50, "self_ns": 43}
        inner = {
            "track_id": 1,
            "parent_id": 2 * n + 1,
            "name": "op",
            "start_ns": 100 * n + 1,
            "dur_ns": 7,
            "self_ns": 7,
        }
        ranges += [{**outer, "id": 2 * n + 1}, {**inner, "id": 2 * n + 2}]
    other = [{"run_id": 2, "id": 1, "track_id": 1, "name": "request 9", "start_ns": 0, "dur_ns": 5, "self_ns": 5}]
    tracks = [{**track, "run_id": run_id} for run_id in (1, 2) for track in TRACKS]
    rows = query(
        make_store(track=tracks, range=[*({"run_id": 1, **row} for row in ranges[::order]), *other]),
        "SELECT run_id, path, count, host_total_ns, host_self_ns FROM op_tree",
    )
    assert sorted(rows) == [
        (1, "(other names)", 4, 200, 172),
        (1, "(other names) > (other names)", 4, 28, 28),
        (1, "request 0", 1, 50, 43),
        (1, "request 0 > op", 1, 7, 7),
        (1, "request 1", 1, 50, 43),
        (1, "request 1 > op", 1, 7, 7),
        (2, "request 9", 1, 5, 5),
    ]


@pytest.mark.parametrize("with_c", [True, False])
def test_a_slice_after_the_end_of_the_one_around_it(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, with_c: bool
) -> None:
    """No reader makes such slices; a second pass finds what the first has forgotten."""
    monkeypatch.setattr(native, "AVAILABLE", native.AVAILABLE and with_c)
    monkeypatch.setattr(path_tables, "_CHUNK_ROWS", 1)
    ranges = [
        {"id": 1, "track_id": 1, "name": "outer", "start_ns": 0, "dur_ns": 10},
        {"id": 2, "track_id": 1, "parent_id": 1, "name": "inner", "start_ns": 5000, "dur_ns": 10},
    ]
    store = make_store(track=TRACKS, range=ranges)
    with open_store(store, read_only=False) as connection:
        for _ in range(2):
            assert connection.execute("SELECT path FROM op_tree ORDER BY path").fetchall() == [
                ("outer",),
                ("outer > inner",),
            ]
            fill_derived_tables(connection)


@pytest.mark.parametrize("with_c", [True, False])
def test_names_with_equal_hashes(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, with_c: bool) -> None:
    """DuckDB's hash has no key: a file can have names that make two chains one."""
    monkeypatch.setattr(native, "AVAILABLE", native.AVAILABLE and with_c)
    names = ("aten::conv2d", "h+YVV:TNedq:")
    ranges = [
        {"id": 2 * n + m, "parent_id": 2 * n if m else None, "track_id": 1, "name": names[n % 2 if m else n // 2 % 2],
         "start_ns": 10 * n, "dur_ns": 3**n, "self_ns": 1}
        for n in range(1, 5) for m in (0, 1)
    ]  # fmt: skip
    with open_store(make_store(track=TRACKS, range=ranges)) as connection:
        assert connection.execute("SELECT count(DISTINCT hash(name)) FROM range").fetchall() == [(1,)]
        rows = connection.execute("SELECT path, count, host_total_ns FROM op_tree ORDER BY path").fetchall()
    assert rows == [
        (names[0], 2, 3 + 81),
        (f"{names[0]} > {names[0]}", 1, 81),
        (f"{names[0]} > {names[1]}", 1, 3),
        (names[1], 2, 9 + 27),
        (f"{names[1]} > {names[0]}", 1, 9),
        (f"{names[1]} > {names[1]}", 1, 27),
    ]


@pytest.mark.parametrize("with_c", [True, False])
def test_ranges_inside_very_many_are_summed_as_one(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, with_c: bool
) -> None:
    """The report's paths need memory by the square of the depth: no time is lost, and a deep trace has a report."""
    monkeypatch.setattr(native, "AVAILABLE", native.AVAILABLE and with_c)
    count = 9000
    ranges = [
        {"run_id": 1, "id": n + 1, "track_id": 1, "parent_id": n or None, "name": f"f{n}", "start_ns": n,
         "dur_ns": 2 * (count - n), "self_ns": 2}
        for n in range(count)
    ]  # fmt: skip
    tracks = [{**track, "run_id": 1} for track in TRACKS]
    rows = query(
        make_store(track=tracks, range=ranges),
        "SELECT depth, name, count, host_total_ns, host_self_ns FROM op_tree ORDER BY position",
    )
    inside = range(1024, count)
    assert rows[:-1] == [(n, f"f{n}", 1, 2 * (count - n), 2) for n in range(1024)]
    assert rows[-1] == (1024, "(other names)", len(inside), sum(2 * (count - n) for n in inside), 2 * len(inside))
