"""Kernels of graph replays get operators, modules and shapes from an eager run: traces worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pytest
from graph_traces import LAYER, Trace, eager
from hypothesis import given
from hypothesis import strategies as st
from stores import query

import traceconv
from traceconv.base.errors import InputError
from traceconv.cli.app import run
from traceconv.normalize.sequence_alignment import Reference, common_subsequence
from traceconv.pipeline.ingest import ingest


def replays(store: Path) -> list[tuple[object, ...]]:
    """Kernel, operator, module and input shapes of each task of a graph."""
    return query(
        store,
        "SELECT t.name, g.operator_name, g.module_name, o.input_shapes FROM graph_replay AS g "
        "JOIN task AS t ON t.run_id = g.run_id AND t.id = g.id "
        "LEFT JOIN task_operator AS p ON p.run_id = g.run_id AND p.id = g.id AND p.attribution = 'replay' "
        "LEFT JOIN operator AS o ON o.run_id = g.run_id AND o.operator_id = p.operator_id "
        "ORDER BY t.run_id, t.start_ns",
    )


def aligned(trace: Trace, folder: Path) -> list[tuple[object, ...]]:
    ingest([trace.write(folder / "trace.json")], folder / "s.duckdb")
    return replays(folder / "s.duckdb")


def test_a_replay_in_the_same_order_gets_everything(tmp_path: Path) -> None:
    trace = eager(Trace(), "Linear_0")
    trace.graph(*LAYER)
    shape = "{0},{0};{0},{0}"
    wanted = [(name, f"aten::{name}", "nn.Module: Linear_0", shape.format(grid)) for name, grid in LAYER]
    assert aligned(trace, tmp_path) == wanted
    with duckdb.connect(str(tmp_path / "s.duckdb"), read_only=True) as store:
        rows = store.execute(
            "SELECT count, task_count, replay_task_count, flops FROM roofline "
            "WHERE name = 'aten::mm' AND input_shapes = '4,4;4,4'"
        ).fetchall()
        assert rows == [(2, 2, 1, 128)]
        rows = store.execute("SELECT found_by, count(*) FROM task_module GROUP BY ALL ORDER BY ALL").fetchall()
        assert rows == [("launch", 8), ("replay", 8)]
        assert store.execute("SELECT path, task_count FROM modules").fetchall() == [("nn.Module: Linear_0", 16)]
        rows = store.execute(
            "SELECT path, count, task_count, replay_task_count FROM op_tree WHERE name = 'aten::gelu' ORDER BY ALL"
        ).fetchall()
        # The launch of the graph is in no range: its tree begins with the module, as that of the eager run.
        assert rows == [("nn.Module: Linear_0 > aten::gelu", 0, 1, 1), ("nn.Module: Linear_0 > aten::gelu", 1, 1, 0)]
        rows = store.execute("SELECT finding, count, total_count FROM trust WHERE finding LIKE '%replays'").fetchall()
        assert rows == [("aligned_replays", 8, 8)]


def test_the_tree_shows_modules_and_operators_inside_the_launching_range(tmp_path: Path) -> None:
    trace = eager(Trace(), "Linear_0")
    trace._add("user_annotation", "ProfilerStep#3", 4)
    trace._add("user_annotation", "decode", 3)
    trace.graph(*LAYER[:3], ("unknown", 1), *LAYER[3:])
    aligned(trace, tmp_path)
    with duckdb.connect(str(tmp_path / "s.duckdb"), read_only=True) as store:
        rows = store.execute(
            "SELECT path, kind, task_count, self_task_count, replay_task_count, device_total_ns FROM op_tree "
            "WHERE starts_with(path, 'ProfilerStep*') AND depth < 3 ORDER BY position"
        ).fetchall()
        sums = store.execute("SELECT sum(self_task_count), sum(device_self_ns) FROM op_tree").fetchall()
    assert rows == [
        ("ProfilerStep*", "annotation", 9, 0, 8, 9000),
        ("ProfilerStep* > decode", "annotation", 9, 1, 8, 9000),
        ("ProfilerStep* > decode > nn.Module: Linear_0", "module", 8, 0, 8, 8000),
    ]
    assert sums == [(17, 17000)]


def test_places_that_differ_leave_what_they_differ_in_unknown(tmp_path: Path) -> None:
    trace = eager(eager(Trace(), "Block_0"), "Block_1")
    trace.op("mm", 1, operator="aten::bmm")
    trace.graph(*LAYER[:2])
    trace.graph(("mm", 1))
    trace.graph(("mm", 4))
    found = aligned(trace, tmp_path)
    assert found == [
        ("mm", "aten::mm", None, "4,4;4,4"),
        ("relu", "aten::relu", None, "5,5;5,5"),
        ("mm", "aten::bmm", None, "1,1;1,1"),
        ("mm", "aten::mm", None, "4,4;4,4"),
    ]


def test_other_sizes_give_no_shapes(tmp_path: Path) -> None:
    trace = eager(Trace(), "Linear_0")
    trace.graph(*((name, 2 * grid) for name, grid in LAYER))
    assert aligned(trace, tmp_path) == [(name, f"aten::{name}", "nn.Module: Linear_0", None) for name, _ in LAYER]


def test_changed_kernels_are_unknown_and_the_others_known(tmp_path: Path) -> None:
    trace = eager(Trace(), "Linear_0")
    trace.graph(*LAYER[:3], ("fill", 1), *LAYER[3:5], ("argmax", 9), *LAYER[6:])
    found = {name: operator for name, operator, _, _ in aligned(trace, tmp_path)}
    known = {name: f"aten::{name}" for name, _ in LAYER if name != "softmax"}
    assert found == known | {"fill": None, "argmax": None}


def test_a_few_kernels_in_common_are_a_coincidence(tmp_path: Path) -> None:
    trace = eager(Trace(), "Linear_0")
    trace.graph(*LAYER[:2], *((f"other {place}", 1) for place in range(6)))
    assert {row[1:] for row in aligned(trace, tmp_path)} == {(None, None, None)}


def test_a_graph_of_which_no_tasks_are_known_has_no_rows(tmp_path: Path) -> None:
    trace = eager(Trace())
    trace.graph()
    assert aligned(trace, tmp_path) == []


def test_the_reference_is_another_run(tmp_path: Path) -> None:
    eager_trace, graphs = eager(Trace(), "Linear_0"), Trace()
    graphs.graph(*LAYER)
    graphs.graph(*LAYER[:2])
    db = tmp_path / "s.duckdb"
    for trace, name in ((eager_trace, "eager.json"), (graphs, "graphs.json")):
        ingest([trace.write(tmp_path / name)], db)
    assert {row[1] for row in replays(db)} == {None}
    command = [
        "analyze",
        "graph-replays",
        "--run",
        "2",
        "--reference",
        "1",
        "--db",
        str(db),
        "-o",
        str(tmp_path / "out"),
    ]
    for _ in range(2):
        assert run(command) == 0
    assert (tmp_path / "out").read_text().splitlines()[:5] == [
        "2 graph launches with 10 tasks, aligned with run 1",
        "matched          10  100.00 %",
        "operator         10  100.00 %",
        "module           10  100.00 %",
        "shapes           10  100.00 %",
    ]
    wanted = [(name, f"aten::{name}", "nn.Module: Linear_0", f"{grid},{grid};{grid},{grid}") for name, grid in LAYER]
    assert replays(db) == wanted + wanted[:2]
    with traceconv.open_store(db) as store:
        assert store.graph_replays(run=2, reference=2).matched_count == 0
        with pytest.raises(InputError, match="no launches of graphs"):
            store.graph_replays(run=1)


def test_an_operator_around_the_launch_of_a_graph_is_replaced(tmp_path: Path) -> None:
    trace = eager(Trace())
    trace._add("cpu_op", "replay", 3, **{"Input Dims": [], "Input type": []})
    trace.graph(*LAYER[:2], ("unknown", 1), *LAYER[3:])
    assert aligned(trace, tmp_path)[:3] == [
        ("mm", "aten::mm", None, "4,4;4,4"), ("relu", "aten::relu", None, "5,5;5,5"), ("unknown", None, None, None),
    ]  # fmt: skip
    rows = query(
        tmp_path / "s.duckdb",
        "SELECT o.name, count(*) FROM task_operator AS t JOIN operator AS o USING (run_id, operator_id) "
        "JOIN graph_replay AS g USING (run_id, id) GROUP BY ALL HAVING o.name = 'replay'",
    )
    assert rows == [("replay", 1)]


def longest(one: Sequence[int], other: Sequence[int]) -> tuple[int, set[tuple[int, int]]]:
    """The length of the longest common subsequences, and the pairs of kernels of `one` in all, by trying every one."""

    def length(place: int, at: int) -> int:
        if place == len(one) or at == len(other):
            return 0
        best = max(length(place + 1, at), length(place, at + 1))
        return max(best, 1 + length(place + 1, at + 1)) if one[place] == other[at] else best

    def every(place: int, at: int) -> list[dict[int, int]]:
        wanted = length(place, at)
        if not wanted:
            return [{}]
        return [
            {i: j, **rest}
            for i in range(place, len(one))
            for j in range(at, len(other))
            if one[i] == other[j] and 1 + length(i + 1, j + 1) == wanted
            for rest in every(i + 1, j + 1)
        ]

    ways = every(0, 0)
    certain = {place for place in ways[0] if all(place in way for way in ways)}
    pairs = {(place, way[place]) for place in certain for way in ways}
    lone = {i for i, j in pairs if not {(i - 1, j - 1), (i + 1, j + 1)} & pairs}
    return length(0, 0), {(i, j) for i, j in pairs if i not in lone}


@given(st.lists(st.integers(0, 2), max_size=5), st.lists(st.integers(0, 2), max_size=6))
def test_certain_pairs_are_in_every_longest_common_subsequence(one: list[int], other: list[int]) -> None:
    length, pairs = common_subsequence(np.array(one, np.int64), np.array(other, np.int64))
    assert (length, set(zip(pairs.places.tolist(), pairs.references.tolist(), strict=True))) == longest(one, other)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.lists(st.integers(0, 2), max_size=20))
def test_every_occurrence_is_found(sequence: list[int], reference: list[int]) -> None:
    found = Reference(np.array(reference, np.int64)).occurrences(np.array(sequence, np.int64))
    size = len(sequence)
    wanted = [at for at in range(len(reference) - size + 1) if reference[at : at + size] == sequence]
    assert (found is None) == (not wanted)
    if found is not None:
        assert found.references.tolist() == [at + place for at in wanted for place in range(size)]
