"""Starts and ends of slices in the order of time, what was before each on its thread or stream, and usual delays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceconv import native
from traceconv.analysis.dependency_kinds import HOST, IDLE, RUN, STREAM, WAITS
from traceconv.analysis.replay import Delays
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask

Int8 = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Vertices:
    """Starts and ends of slices, in order: at equal times, ends come before starts, and slices without a duration are
    between.

    times     [vertex] measured
    slices    [vertex] the slice that starts or ends; is_end: [vertex] whether it ends
    place     [slice] vertex of its start; [count + slice] of its end; -1: outside of the window
    previous  [vertex] the vertex before on its line, -1: none; a task's end follows its start
    kinds     [vertex] kind of this dependency
    inside    [vertex] for host slices, the innermost slice that takes the time since the previous vertex; -1: none
    """

    times: Int64
    slices: Int64
    is_end: Mask
    place: Int64
    previous: Int64
    kinds: Int8
    inside: Int64


def find(ids: Int64, wanted: Int64) -> Int64:
    """Return the first place of each wanted ID, or -1."""
    if native.AVAILABLE:
        found = np.empty(len(wanted), np.int64)
        native.find(ids, wanted, found)
        return found
    if not len(ids):
        return np.full(len(wanted), -1)
    by_id = np.argsort(ids, kind="stable")
    sorted_ids = ids[by_id]
    places = np.minimum(np.searchsorted(sorted_ids, wanted), len(ids) - 1)
    return np.where(sorted_ids[places] == wanted, by_id[places], -1)


def ordered(starts: Int64, ends: Int64, lines: Int64, parents: Int64, low_ns: int, high_ns: int) -> Vertices:
    """Return the vertices inside a window.

    starts, ends, lines  [slice] host slices, then tasks, each in the order of their starts; lines: from 0
    parents              [host slice] the slice around it, -1: none
    """
    if native.AVAILABLE:
        count = 2 * len(starts)
        times, slices, place, previous, inside = (np.empty(count, np.int64) for _ in range(5))
        is_end, kinds = np.empty(count, bool), np.empty(count, np.int8)
        kept = native.order(
            starts, ends, lines, parents, int(lines.max(initial=-1)) + 1, low_ns, high_ns,
            times, slices, is_end, place, previous, kinds, inside,
        )  # fmt: skip
        if kept is not None:
            return Vertices(
                times[:kept], slices[:kept], is_end[:kept], place, previous[:kept], kinds[:kept], inside[:kept]
            )
    return _ordered(starts, ends, lines, parents, low_ns, high_ns)


def _ordered(starts: Int64, ends: Int64, lines: Int64, parents: Int64, low_ns: int, high_ns: int) -> Vertices:
    count, host_count = len(starts), len(parents)
    hosts, tasks = np.arange(host_count), np.arange(host_count, count)
    # Of starts at one time, the outer slice's is first; of ends, the inner one's.
    vertices = np.concatenate((hosts, tasks, count + tasks[::-1], count + hosts[::-1]))
    times = np.concatenate((starts, ends))[vertices]
    is_end = vertices >= count
    slices = np.where(is_end, vertices - count, vertices)
    rank = np.where(is_end, np.where((starts == ends)[slices], 2, 0), 1)
    # A slice that begins before the window has no end in it either, unless it is on a thread.
    inside = (times >= low_ns) & (times <= high_ns)
    inside &= ~is_end | (slices < host_count) | (starts >= low_ns)[slices]
    kept = np.flatnonzero(inside)
    kept = kept[np.argsort((times[kept] - low_ns) * 3 + rank[kept], kind="stable")]
    vertices, times, slices, is_end = vertices[kept], times[kept], slices[kept], is_end[kept]
    place = np.full(2 * count, -1)
    place[vertices] = np.arange(len(vertices))
    is_host = slices < host_count
    last_host = _latest(lines[slices], is_host)
    last_end = _latest(lines[slices], ~is_host & is_end)
    previous = np.where(is_host, last_host, np.where(is_end, place[slices], last_end))
    kinds = np.where(is_host, HOST, np.where(is_end, RUN, STREAM)).astype(np.int8)
    last_long = _latest(lines[slices], is_host & (starts < ends)[slices])
    before = slices[last_long]
    after = np.where(is_end[last_long], parents[np.minimum(before, host_count - 1)] if host_count else -1, before)
    return Vertices(times, slices, is_end, place, previous, kinds, np.where(is_host & (last_long >= 0), after, -1))


def _latest(lines: Int64, wanted: Mask) -> Int64:
    """Return for each vertex the last wanted one before it on its line, -1 if there is none."""
    result = np.empty(len(lines), np.int64)
    order = np.argsort(lines, kind="stable")
    places = np.arange(len(order))
    found = np.maximum.accumulate(np.where(wanted[order], places, -1))
    before = np.concatenate(([-1], found))[: len(order)]
    begins = np.diff(lines[order], prepend=-1) != 0
    first = np.maximum.accumulate(np.where(begins, places, 0))
    result[order] = np.where(before >= first, order[before], -1)
    return result


def usual_delays(
    vertices: Vertices, groups: Int8, sources: Int64, targets: Int64, edge_kinds: Int8
) -> tuple[Delays, Int8, Int8]:
    """Return a graph with usual delays, the kinds of dependencies on the lines with those that wait as IDLE, and the
    kinds of its edges, which are in the order of their targets.

    groups   [vertex] kind of its task, or another number below 8
    sources, targets, edge_kinds  [edge] vertices on different lines
    """
    count, edges = len(vertices.times), len(sources)
    if native.AVAILABLE:
        kinds, sorted_kinds = vertices.kinds.copy(), np.empty(edges, np.int8)
        offsets, delay_ns = np.empty(count + 1, np.int64), np.empty(count, np.int64)
        sorted_sources, edge_ns = np.empty(edges, np.int64), np.empty(edges, np.int64)
        native.delays(
            vertices.times, vertices.previous, groups, sources, targets, edge_kinds, WAITS,
            kinds, sorted_kinds, offsets, sorted_sources, delay_ns, edge_ns,
        )  # fmt: skip
        return Delays(vertices.previous, delay_ns, offsets, sorted_sources, edge_ns), kinds, sorted_kinds
    order = np.argsort(targets, kind="stable")
    sources, targets, edge_kinds = sources[order], targets[order], edge_kinds[order]
    times, previous, kinds = vertices.times, vertices.previous, vertices.kinds.copy()
    # A thread or a stream that waits does so for as long as it has to, not for a fixed time.
    waiting = targets[WAITS[edge_kinds]]
    kinds[waiting] = np.where(kinds[waiting] == STREAM, STREAM, IDLE)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(targets, minlength=count))))
    measured = np.where(previous >= 0, times - times[previous], 0)
    edge_measured = times[targets] - times[sources]
    # The cause at first sight is the latest predecessor; the shortest delays after these are what is needed.
    edge_ns, delay_ns = edge_measured.copy(), measured.copy()
    edge_groups = groups[targets]
    last = previous.copy()
    np.maximum.at(last, targets, sources)
    latest = np.flatnonzero((sources == last[targets]) & (previous[targets] < sources))
    is_cause = np.zeros(edges, bool)
    is_cause[latest[np.unique(targets[latest], return_index=True)[1]]] = True
    own: dict[tuple[int, int], int] = {}
    for is_first in (True, False):
        known, unknown = [], []
        for kind in np.unique(edge_kinds).tolist():
            of_kind = edge_kinds == kind
            present = np.unique(edge_groups[of_kind]).tolist()
            for group in present:
                alone = edge_measured[of_kind & (edge_groups == group) & is_cause]
                if len(alone):
                    own[kind, group] = _usual(alone)
            others = own.get((kind, 0), _usual(edge_measured[of_kind & is_cause]))
            for group in present:
                mine = of_kind & (edge_groups == group)
                if is_cause[of_kind].any():
                    edge_ns[mine] = own.get((kind, group), others)
                    known.append(own.get((kind, group), others))
                elif is_first:
                    unknown.append(mine)
        # What was never waited for says nothing about its delay but that it is not longer than measured.
        for mine in unknown:
            edge_ns[mine] = min([*known, edge_measured[mine].min()])
        # What is before on the line is a cause, too, if it came when the others permitted the vertex already.
        permitted = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(permitted, targets, times[sources] + edge_ns)
        by_line = (previous >= 0) & (times[previous] >= permitted)
        streams, idle = kinds == STREAM, kinds == IDLE
        delay_ns[streams] = _usual(measured[streams & by_line])
        for group in np.unique(groups[idle]).tolist():
            mine = idle & (groups == group)
            delay_ns[mine] = _usual(measured[mine & by_line])
        # Then the cause is the one whose usual delay explains most of the measured one.
        usual = Delays(previous, delay_ns, offsets, sources, edge_ns)
        is_cause = np.isin(np.arange(edges), usual.fitted(times)[1])
    return usual, kinds, edge_kinds


def _usual(delays_ns: Int64) -> int:
    """Return a delay that nothing else adds to: a tenth of those measured are shorter. 0 if there are none."""
    place = len(delays_ns) // 10
    return int(np.partition(delays_ns, place)[place]) if len(delays_ns) else 0
