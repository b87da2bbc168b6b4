"""Every view and macro of a store under LIMIT, OFFSET, WHERE and ORDER BY, in subqueries and in tables.

The names come from the store's catalogue, so new views and reports are tested too. The expected rows are those of the
plain query without DuckDB's optimizer, sorted, filtered and sliced in Python.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path

import duckdb
import pytest
from duckdb_versions import OLDEST_PACKAGE, python_of, runnable_shell
from store_builder import build_store

import traceconv
from traceconv.reports.catalog import reports

Rows = list[tuple[str, ...]]
Ask = Callable[[Path, Sequence[str]], list[Rows]]

#: Runs of the stores and the tables they have. Tables that only some runs have are hard for optimizers.
STORES = {
    "one run": ["all"],
    "many runs": ["all", "tasks", "nothing", "all"],
    "tasks alone": ["tasks", "nothing"],
}


def rows_of_run(run_id: int, has: str) -> dict[str, list[dict[str, object]]]:
    """Rows for each table of a run on two devices, so that no view is empty. "tasks": only tasks and their tracks."""
    devices = (0, 1)
    rows: dict[str, list[dict[str, object]]] = {
        "run": [{"label": f"run-{run_id}", "group_label": "job", "rank": run_id, "start_ns": 0, "options": "{}"}]
    }
    if has == "all" and run_id == 1:
        rows["run"][0]["source_format"] = "ncu_csv"
    if has == "nothing":
        return {name: [{**row, "run_id": run_id} for row in made] for name, made in rows.items()}
    rows["import_log"] = [{"severity": "data_loss", "code": "damaged_event", "event_count": 1}]
    rows["track"] = [
        {"track_id": device, "kind": "stream", "device_id": device, "stream_id": device, "tid_text": f"{device}"}
        for device in devices
    ]
    rows["task"] = [
        {
            "id": 100 * device + n,
            "track_id": device,
            "device_id": device,
            "stream_id": device,
            "op_id": None if n == 3 else n % 3,
            "kind": "collective" if n == 3 else "compute",
            "name": f"kernel {n % 3}",
            "step_id": n % 2,
            "start_ns": 1000 * n + device + (20_000 if n == 5 else 0),  # after an idle gap
            "submit_ns": 1000 * n - 500,
            "dur_ns": 100 * (n + 1) + device,
            "correlation_id": 100 * device + n,
            "args": f'{{"n": {n}, "graphNodeId": {n}, "deep": {{"er": "x{n}"}}, "grid": "{n}", "block": "1"}}',
        }
        for device, n in product(devices, range(6))
    ]
    if has == "tasks":
        return {name: [{**row, "run_id": run_id} for row in made] for name, made in rows.items()}
    rows["device"] = [
        {"device_id": d, "core_clock_hz": 10**9, "ai_core_count": 4, "ai_vector_core_count": 4, "clock_error_ns": 5}
        for d in devices
    ]
    rows["process"] = [{"process_id": 1, "pid_text": "7", "name": "p", "sort_index": 1}]
    rows["track"] += [
        {"track_id": 10, "kind": "thread", "process_id": 1, "tid_text": "8", "name": "t", "sort_index": 2},
        {"track_id": 11, "kind": "counter", "process_id": 1, "name": "c", "unit": "B"},
        *({"track_id": 12 + n, "kind": "process", "process_id": 1, "name": f"p{n}"} for n in range(2)),
        # Of the process and of the thread, each twice.
        *({"track_id": 20 + n, "kind": "state", "process_id": 1, "name": f"s{n}"} for n in range(2)),
        *(
            {"track_id": 22 + n, "kind": "state", "process_id": 1, "name": f"u{n}", "parent_track_id": 10}
            for n in range(2)
        ),
        *({"track_id": 24 + n, "kind": "counter", "name": f"v{n}", "parent_track_id": 10} for n in range(2)),
    ]
    rows["track"][-1]["properties"] = '{"description": "d", "child_ordering": "explicit"}'
    rows["op"] = [
        {"op_id": n, "model_id": 1, "name": f"op {n}", "op_type": "Conv2D", "flops": 10, "input_bytes": 1}
        | {"output_bytes": 1, "weight_bytes": 1, "workspace_bytes": 0}
        for n in range(3)
    ]
    # One of the seven metric groups, as in a recording.
    rows["task_pmu"] = [
        {"id": row["id"], "metric_group": "PipeUtilization", "aic_total_cycles": 10, "aic_mac_cycles": 5}
        for row in rows["task"]
        if row["op_id"] is not None
    ]
    rows["fusion"] = [{"fusion_id": 1, "op_id": n, "original_index": 0, "original_name": f"o{n}"} for n in range(3)]
    rows["step"] = [
        {"step_id": n, "device_id": device, "iteration": n, "start_ns": 1000 * n, "fp_start_ns": 1000 * n + 1}
        | {"bp_end_ns": 1000 * n + 500, "end_ns": 1000 * n + 900}
        for device, n in product(devices, range(2))
    ]
    rows["api"] = [
        {"id": 1000 + n, "track_id": 10, "level": "acl", "name": f"call {n % 2}", "dur_ns": 9}
        | {"start_ns": 1000 * n - 500, "parent_id": 2000 + n, "depth": 1, "correlation_id": n}
        for n in range(6)
    ]
    rows["api"] += [
        {"id": 1010 + n, "track_id": 10, "category": "cuda_graph", "name": "node", "start_ns": 1000 * n - 590}
        | {"dur_ns": 0, "parent_id": 2000 + n, "depth": 1, "args": f'{{"graphNodeId": {n}}}'}
        for n in range(3)
    ]
    rows["range"] = [
        {"id": 2000 + n, "track_id": 10, "kind": kind, "name": f"r{n}", "dur_ns": 450 + n}
        | {
            "start_ns": 1000 * n - 600,
            "span_id": f"s{n}",
            "trace_id": "t",
            "pe_index": 0,
            "depth": 0,
            "correlation_id": n,
            "category": "user",
        }
        for n, kind in enumerate(
            ("host_op", "inference", "execution", "external_op", "external_op", "inference", "execution")
        )
    ]
    # Two slices that overlap without nesting, for the view partial_overlap.
    rows["range"] += [
        {"id": 2100 + n, "track_id": 10, "kind": "annotation", "name": f"o{n}", "dur_ns": 100}
        | {"start_ns": 9000 + 50 * n}
        for n in range(4)
    ]
    rows["range"] += [
        {"id": 2200 + n, "track_id": 12 + n, "kind": "annotation", "name": f"q{n}", "start_ns": 100 * n, "dur_ns": 50}
        for n in range(2)
    ]
    callers = '{"function_name": "f", "line_number": 1}, {"function_name": "g", "line_number": 2}'
    rows["range"] += [
        {"id": 2300 + n, "track_id": 20 + n, "kind": "annotation", "name": f"t{n}", "start_ns": n, "dur_ns": 1}
        | {"args": '{"track_event": {"log_message": {"message": "m"}, "callstack": {"frames": [' + callers + "]}}}"}
        for n in range(4)
    ]
    rows["track"].append({"track_id": 30, "kind": "thread", "name": "Plane 0"})
    rows["range"] += [
        {"id": 2400 + n, "track_id": 30, "kind": "summary", "name": "Memcpy", "start_ns": n, "dur_ns": 1}
        | {"args": f'{{"src rank": 0, "dst rank": {n}, "transport type": "SDMA", "size(Byte)": 8}}'}
        for n in range(4)
    ]
    rows["memory"] = [
        {
            "block_id": 10 * device + n,
            "device_id": device,
            "kind": "block",
            "size_bytes": 64 * (n + 1),
            "alloc_ns": 10 * n,
        }
        | {"free_ns": 10 * n + 5000, "op_id": n % 3, "address": 0}
        for device, n in product(devices, range(5))
    ]
    rows["counter"] = [{"track_id": 11, "series": f"s{n % 2}", "ts_ns": n, "value": float(n)} for n in range(5)]
    rows["flow"] = [{"flow_id": n, "kind": "launch", "src_id": 1000 + n, "dst_id": n} for n in range(4)]
    rows["marker"] = [{"id": 3000 + n, "track_id": 10, "ts_ns": n, "name": "m"} for n in range(4)]
    rows["marker"] += [
        {
            "id": 3010 + n,
            "track_id": 10,
            "ts_ns": 10 * n,
            "name": "[memory]",
            "args": f'{{"Bytes": {64 * n + 64}, "Addr": 0}}',
        }
        for n in range(5)
    ]
    rows["run"][0]["options"] = '{"metadata": {"a": 1, "b": "x", "c": 2, "d": 3}}'
    return {name: [{**row, "run_id": run_id} for row in made] for name, made in rows.items()}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the store of a kind, which no test may change."""
    return cache(lambda kind: build(tmp_path_factory.mktemp("store"), kind))


def build(folder: Path, kind: str) -> Path:
    rows: dict[str, list[dict[str, object]]] = {}
    for number, has in enumerate(STORES[kind], start=1):
        for name, made in rows_of_run(number, has).items():
            rows.setdefault(name, []).extend(made)
    return build_store(folder / "trace.duckdb", **rows)


def ask_package(store: Path, statements: Sequence[str]) -> list[Rows]:
    with duckdb.connect(store, read_only=True) as connection:
        return [connection.execute(statement).fetchall() for statement in statements]


def ask_shell(shell: Path, store: Path, statements: Sequence[str]) -> list[Rows]:
    """Run all queries in one shell, with a separator line between the answers."""
    mark = "-- next --"
    done = subprocess.run(
        [shell, "-init", os.devnull, "-readonly", "-csv", "-noheader", store],
        input="".join(f"{statement};\nSELECT '{mark}';\n" for statement in statements),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    answers: list[Rows] = [[]]
    for row in csv.reader(io.StringIO(done.stdout)):
        if row == [mark]:
            answers.append([])
        else:
            answers[-1].append(tuple(row))
    assert len(answers) == len(statements) + 1
    return answers[:-1]


def ask_oldest_package(store: Path, statements: Sequence[str]) -> list[Rows]:
    program = """
import json, sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=True)
json.dump([connection.execute(statement).fetchall() for statement in json.load(sys.stdin)], sys.stdout)
"""
    found = json.loads(python_of(OLDEST_PACKAGE, "-c", program, store, standard_input=json.dumps(statements)))
    return [[tuple(row) for row in rows] for rows in found]


def asker(engine: str, folder: Path) -> Ask:
    if engine == "oldest package":
        return ask_oldest_package
    return ask_package if engine == "package" else partial(ask_shell, runnable_shell(engine, folder))


@dataclass(frozen=True)
class Relation:
    """The text after FROM, the first columns, and all rows as text: of these columns and of all columns."""

    name: str
    columns: str
    narrow: Rows
    whole: Rows


def as_text(relation: str, columns: str = "*") -> str:
    return f"SELECT coalesce(COLUMNS({columns})::VARCHAR, '-') FROM {relation}"


@cache
def relations(store: Path) -> list[Relation]:
    """Each view, and each macro on one of several runs, from the catalogue."""
    found = []
    with duckdb.connect(store, read_only=True) as connection:
        connection.execute("PRAGMA disable_optimizer")
        views = connection.execute("SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE NOT internal")
        names = [str(name) for (name,) in views.fetchall()]
        assert {f"main.{name}" for name in reports()} < set(names)
        for name in [*names, *(f"main.{name}(run := 2)" for name in reports())]:
            answer = connection.execute(as_text(name))
            first = [str(column[0]) for column in answer.description[:3]]
            whole = answer.fetchall()
            found.append(Relation(name, str(first), [row[:3] for row in whole], whole))
    return found


@pytest.mark.parametrize(
    ("engine", "kind", "every"),
    [
        # What the other tests with this shell don't ask; most of the time is that of planning.
        pytest.param("oldest", "many runs", False, marks=pytest.mark.long),
        *(
            pytest.param(engine, "many runs", True, marks=pytest.mark.long)
            for engine in ("oldest", "package", "newest", "oldest package")
        ),
        *(pytest.param("package", kind, True, marks=pytest.mark.long) for kind in ("one run", "tasks alone")),
    ],
)
def test_limit_offset_and_where(
    engine: str, kind: str, every: bool, make: Callable[[str], Path], tmp_path: Path
) -> None:
    store, ask = make(kind), asker(engine, tmp_path)
    asked: list[tuple[str, Callable[[Rows], bool]]] = []

    def some(rows: Rows, count: int) -> Callable[[Rows], bool]:
        """Check that these are `count` of the rows, in any order."""
        return lambda found: len(found) == max(0, min(count, len(rows))) and not Counter(found) - Counter(rows)

    for one in relations(store):
        plain, rows = as_text(one.name, one.columns), one.narrow
        asked += [
            (f"CREATE OR REPLACE TEMP TABLE cut AS FROM {one.name} LIMIT 1", lambda found: True),
            (as_text("cut"), some(one.whole, 1)),
        ]
        if every:
            asked.append((as_text(one.name), lambda found, one=one: Counter(found) == Counter(one.whole)))  # type: ignore[misc]
        is_macro = "(" in one.name  # with the body of its view
        if every or not is_macro:
            asked += [
                (f"{plain} LIMIT 1 OFFSET 1", some(rows, min(1, len(rows) - 1))),
                (f"{plain} ORDER BY ALL LIMIT 1", lambda found, rows=rows: found == sorted(rows)[:1]),  # type: ignore[misc]
            ]
        if is_macro:
            continue
        asked.append((as_text(f"(FROM {one.name} LIMIT 1)", one.columns), some(rows, 1)))
        if every:
            asked.append((f"{plain} LIMIT 1", some(rows, 1)))
        if one.name.startswith("main."):
            # The first column of traceconv's views is the run. The second run has tasks alone, the third nothing.
            for run in range(1, 4) if every else (2,):
                of_run = [row for row in rows if row[0] == str(run)]
                asked.append((f"{plain} WHERE run_id = {run} LIMIT 1", some(of_run, 1)))
    answers = ask(store, [statement for statement, _ in asked])
    for (statement, check), found in zip(asked, answers, strict=True):
        assert check(found), statement


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose longest tasks are on the last device of the last run: sorting by run first would lose them."""
    path = build(tmp_path_factory.mktemp("late"), "many runs")
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE task SET dur_ns = dur_ns * 100 WHERE run_id = 4 AND device_id = 1")
    return path


@pytest.mark.parametrize("name", list(reports()))
def test_top_is_the_largest_over_all_devices_and_runs(name: str, late: Path) -> None:
    measure = reports()[name].measure
    assert measure is not None
    with traceconv.open_store(late) as store:
        rows = list(store.report(name, run="all"))
        for top in (1, 3, 1000):
            known = sorted((row[measure] for row in rows if row[measure] is not None), reverse=True)
            largest = [*known, *[None] * len(rows)][: min(top, len(rows))]
            found = list(store.report(name, run="all", top=top))
            values = [row[measure] for row in found]
            if reports()[name].is_listed:  # the largest, in the order of all rows
                values.sort(key=lambda value: (value is None, -(value or 0)))
            assert values == largest
            assert all(row in rows for row in found)
        in_order = list(store.report(name, run="all", order_by="run_id ASC"))
        assert list(store.report(name, run="all", top=2, order_by="run_id ASC")) == in_order[:2]


@pytest.mark.parametrize(
    "engine",
    ["package", "oldest", *(pytest.param(engine, marks=pytest.mark.long) for engine in ("newest", "oldest package"))],
)
def test_views_of_an_attached_store_and_macros_after_use(
    engine: str, make: Callable[[str], Path], tmp_path: Path
) -> None:
    store = make("many runs")
    found = relations(store)
    views, macros = [one for one in found if "(" not in one.name], [one for one in found if "(" in one.name]
    other = build_store(tmp_path / "other.duckdb", run=[{"label": "other"}])
    answers = asker(engine, tmp_path)(
        other,
        [
            f"ATTACH '{store}' AS t (READ_ONLY)",
            *(f"SELECT count(*)::VARCHAR FROM (FROM t.{one.name} LIMIT 1)" for one in views),
            "USE t",
            *(f"SELECT count(*)::VARCHAR FROM (FROM {one.name} LIMIT 1)" for one in macros),
        ],
    )
    counts = [answer[0][0] for answer in answers if answer]
    assert counts == [str(min(1, len(one.whole))) for one in [*views, *macros]]


def test_no_view_is_empty(make: Callable[[str], Path]) -> None:
    """A new view needs rows above, so that LIMIT has an effect."""
    views = [one for one in relations(make("many runs")) if "(" not in one.name]
    few = {one.name: len(one.whole) for one in views if len(one.whole) < 2}
    assert few == {"perfetto.trace_bounds": 1, "perfetto._legacy_event": 0}
