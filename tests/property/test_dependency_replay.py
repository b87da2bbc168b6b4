"""The replay of dependency graphs equals a slow, obvious oracle on random graphs, in C and in Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from traceconv import native
from traceconv.analysis import replay
from traceconv.analysis.replay import Delays, chain

Edge = tuple[int, int, int]


def graph_of(count: int, line: list[int], delays: list[int], edges: list[Edge]) -> Delays:
    edges = sorted(edges, key=lambda edge: edge[1])
    sources, targets, edge_ns = np.array(edges or [(0, 0, 0)], np.int64)[: len(edges)].reshape(-1, 3).T.copy()
    offsets = np.searchsorted(targets, np.arange(count + 1))
    return Delays(np.array(line), np.array(delays), offsets, sources.copy(), edge_ns.copy())


def random_graph(chance: random.Random) -> tuple[Delays, list[Edge], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    count = chance.randint(1, 40)
    times = sorted(chance.randint(-50, 100) for _ in range(count))
    line = [chance.randint(-1, vertex - 1) if vertex else -1 for vertex in range(count)]
    pairs = {(chance.randrange(vertex), vertex) for vertex in range(1, count) for _ in range(chance.randint(0, 2))}
    edges = [(source, target, chance.randint(0, 30)) for source, target in sorted(pairs)]
    return graph_of(count, line, [chance.randint(0, 30) for _ in range(count)], edges), edges, np.array(times)


def oracle(delays: Delays, given: list[int]) -> list[int]:
    """The time of each vertex, by recursion over all its predecessors."""

    def time(vertex: int) -> int:
        into = range(delays.offsets[vertex], delays.offsets[vertex + 1])
        before = [(int(delays.sources[edge]), int(delays.edge_ns[edge])) for edge in into]
        if delays.previous[vertex] >= 0:
            before.append((int(delays.previous[vertex]), int(delays.delay_ns[vertex])))
        return max((known[source] + delay for source, delay in before), default=given[vertex])

    known: list[int] = []
    for vertex in range(len(given)):
        known.append(time(vertex))
    return known


@pytest.mark.parametrize("in_c", [True, False])
def test_random_graphs(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_c and not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    monkeypatch.setattr(replay.native, "AVAILABLE", in_c)
    for seed in range(300):
        delays, _, times = random_graph(random.Random(seed))
        assert delays.times(times).tolist() == oracle(delays, times.tolist())
        # With fitted delays, the replay is the measurement; no delay is longer than the one given or measured.
        fitted, cause = delays.fitted(times)
        assert fitted.times(times).tolist() == times.tolist()
        assert (fitted.edge_ns <= times[delays.targets] - times[delays.sources]).all()
        # The chain of causes is without gaps: each cause with its delay is the time of the vertex.
        before = fitted.before(cause)
        for vertex, source in enumerate(before.tolist()):
            if source >= 0:
                edge = cause[vertex]
                delay = fitted.delay_ns[vertex] if edge == -1 else fitted.edge_ns[edge]
                assert times[source] + delay == times[vertex]
        for last in range(len(times)):
            expected = [last]
            while before[expected[0]] >= 0:
                expected.insert(0, int(before[expected[0]]))
            assert chain(before, 0, last).tolist() == expected
            assert chain(before, last // 2, last).tolist() == [one for one in expected if one >= last // 2]


def test_sums_saturate_and_malformed_graphs_are_refused() -> None:
    top = 2**63 - 1
    delays = graph_of(2, [-1, 0], [0, 2**62], [])
    if native.AVAILABLE:
        assert delays.times(np.array([2**62 + 5, 0])).tolist() == [2**62 + 5, top]
        for line, edges in (([-1, 1], []), ([-1, -1], [(1, 1, 0)]), ([-1, -1], [(-1, 1, 0)])):
            with pytest.raises(ValueError, match="not before its vertex"):
                graph_of(2, line, [0, 0], edges).times(np.zeros(2, np.int64))
            with pytest.raises(ValueError, match="not before its vertex"):
                graph_of(2, line, [0, 0], edges).fitted(np.zeros(2, np.int64))
        with pytest.raises(ValueError, match="not before its vertex"):
            chain(np.array([-1, 1]), 0, 1)
