"""Vertices of dependency graphs, and their usual delays: an obvious oracle, and C and Python give the same."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest

from traceconv import native
from traceconv.analysis import vertices
from traceconv.analysis.dependency_kinds import HOST, IDLE, JOIN, LAUNCH, RUN, STREAM
from traceconv.analysis.vertices import Vertices, find, ordered, usual_delays
from traceconv.base.int64 import Int64

LOW_NS, HIGH_NS = 5, 40


def random_slices(chance: random.Random) -> tuple[Int64, Int64, Int64, Int64]:
    """Starts, ends and lines of host slices, then of tasks, and the parents of the former."""
    starts, ends, lines = [], [], []
    counts = chance.randint(0, 12), chance.randint(0, 12)
    for count in counts:
        for start in sorted(chance.randint(0, 45) for _ in range(count)):
            starts.append(start)
            ends.append(start + chance.choice((0, 0, 1, 3, 30)))
            lines.append(chance.randint(0, 2))
    parents = [chance.randint(-1, host - 1) if host else -1 for host in range(counts[0])]
    return tuple(np.array(column, np.int64) for column in (starts, ends, lines, parents))  # type: ignore[return-value]


def oracle(starts: Int64, ends: Int64, lines: Int64, parents: Int64) -> list[tuple[int, ...]]:
    """(time, slice, is_end, previous, kind, inside) of each vertex."""
    hosts, found = len(parents), []
    for one in range(len(starts)):
        is_host, start, end = one < hosts, int(starts[one]), int(ends[one])
        if LOW_NS <= start <= HIGH_NS:
            found.append(((start, 1, one), one, 0))
        if LOW_NS <= end <= HIGH_NS and (is_host or start >= LOW_NS):
            found.append(((end, 2 if start == end else 0, is_host, -one), one, 1))
    # Ends of tasks come before those of host slices.
    found.sort()
    rows: list[tuple[int, ...]] = []
    for key, one, is_end in found:
        same = [place for place, row in enumerate(rows) if lines[row[1]] == lines[one]]
        if one < hosts:
            before = max((place for place in same if rows[place][1] < hosts), default=-1)
            # No time is inside a slice without a duration.
            long = [place for place in same if rows[place][1] < hosts and starts[rows[place][1]] < ends[rows[place][1]]]
            last = rows[max(long)][1] if long else -1
            inside = int(parents[last]) if long and rows[max(long)][2] else last
            rows.append((key[0], one, is_end, before, HOST, inside))
        elif is_end:
            rows.append((key[0], one, 1, next(n for n, row in enumerate(rows) if row[1] == one), RUN, -1))
        else:
            before = max((place for place in same if rows[place][1] >= hosts and rows[place][2]), default=-1)
            rows.append((key[0], one, 0, before, STREAM, -1))
    return rows


@pytest.mark.parametrize("in_c", [True, False])
def test_random_slices(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_c and not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    monkeypatch.setattr(vertices.native, "AVAILABLE", in_c)
    for seed in range(400):
        slices = random_slices(random.Random(seed))
        got = ordered(*slices, LOW_NS, HIGH_NS)
        columns = (got.times, got.slices, got.is_end, got.previous, got.kinds, got.inside)
        rows = oracle(*slices)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == rows, seed
        place = {one + is_end * len(slices[0]): vertex for vertex, (_, one, is_end, *_) in enumerate(rows)}
        assert got.place.tolist() == [place.get(one, -1) for one in range(2 * len(slices[0]))]


def test_slices_that_are_not_in_order_are_sorted() -> None:
    """Columns with a slice that ends before it starts, as a damaged store may have them, are sorted in Python."""
    starts, ends = np.array([10, 20]), np.array([8, 30])
    got = ordered(starts, ends, np.zeros(2, np.int64), np.array([-1]), 0, 100)
    assert got.times.tolist() == [8, 10, 20, 30] and got.slices.tolist() == [0, 0, 1, 1]
    if native.AVAILABLE:
        with pytest.raises(ValueError, match="different lengths"):
            ordered(starts, ends[:1], np.zeros(2, np.int64), np.array([-1]), 0, 100)


@pytest.mark.parametrize("in_c", [True, False])
def test_places_of_ids(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_c and not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    monkeypatch.setattr(vertices.native, "AVAILABLE", in_c)
    chance = random.Random(2)
    for _ in range(200):
        span = chance.choice((5, 300, 2**63 - 1))
        ids = [chance.randint(-span, span) for _ in range(chance.randint(0, 40))]
        wanted = [chance.choice([*ids, chance.randint(-span, span)]) for _ in range(30)]
        expected = [ids.index(one) if one in ids else -1 for one in wanted]
        assert find(np.array(ids, np.int64), np.array(wanted)).tolist() == expected


def test_usual_delays_are_the_same_in_c_and_python(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    for seed in range(400):
        chance = random.Random(seed)
        random_kinds = np.random.default_rng(seed)
        slices = random_slices(chance)
        graph = ordered(*slices, LOW_NS, HIGH_NS)
        count = len(graph.times)
        kinds = np.where(random_kinds.random(count) < 0.2, IDLE, graph.kinds).astype(np.int8)
        graph = Vertices(*(kinds if one.name == "kinds" else getattr(graph, one.name) for one in fields(graph)))
        groups = random_kinds.integers(0, 6, count).astype(np.int8)
        pairs = [sorted(chance.sample(range(count), 2)) for _ in range(chance.randint(0, 30) if count > 1 else 0)]
        sources, targets = np.array(pairs or [[0, 0]], np.int64)[: len(pairs)].reshape(-1, 2).T.copy()
        edge_kinds = random_kinds.integers(LAUNCH, JOIN + 1, len(pairs)).astype(np.int8)
        found = []
        for in_c in (True, False):
            monkeypatch.setattr(vertices.native, "AVAILABLE", in_c)
            delays, *both = usual_delays(graph, groups, sources, targets, edge_kinds)
            columns = (*(getattr(delays, one.name) for one in fields(delays)), *both)
            found.append([column.tolist() for column in columns])
        assert found[0] == found[1], seed


def test_edges_that_point_backwards_are_refused() -> None:
    if not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    graph = ordered(np.array([6, 8]), np.array([7, 9]), np.zeros(2, np.int64), np.array([-1]), LOW_NS, HIGH_NS)
    for source, target in ((2, 1), (-1, 1), (1, 4)):
        with pytest.raises(ValueError, match="not before its vertex"):
            usual_delays(
                graph, np.zeros(4, np.int8), np.array([source]), np.array([target]), np.array([LAUNCH], np.int8)
            )
