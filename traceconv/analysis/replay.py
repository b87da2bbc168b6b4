"""The times of a dependency graph's vertices, and what each of them waited for.

A vertex is the start or the end of a slice. Vertices are in topological order, numbered from 0. Each has at most one
predecessor on its own line (a thread or a stream) and any number of edges from others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from traceconv import native
from traceconv.base.int64 import Int64


@dataclass(frozen=True, slots=True)
class Delays:
    """A graph whose vertices come at the latest of their predecessors' times plus delays, all in ns.

    previous  [vertex] predecessor on its line, -1 if none; delay_ns: [vertex] its delay
    offsets   [vertex + 1] the edges into vertex v are offsets[v] to offsets[v + 1]
    sources   [edge] the other predecessors; edge_ns: [edge] their delays
    """

    previous: Int64
    delay_ns: Int64
    offsets: Int64
    sources: Int64
    edge_ns: Int64

    def times(self, given_ns: Int64) -> Int64:
        """Return the times of all vertices; those without predecessors are given."""
        times: Int64 = given_ns.copy()
        if native.AVAILABLE:
            native.replay(self.previous, self.delay_ns, self.offsets, self.sources, self.edge_ns, times)
            return times
        found = times.tolist()
        edges = list(zip(self.sources.tolist(), self.edge_ns.tolist(), strict=True))
        bounds = self.offsets.tolist()
        for vertex, (before, delay) in enumerate(zip(self.previous.tolist(), self.delay_ns.tolist(), strict=True)):
            at = [found[source] + more for source, more in edges[bounds[vertex] : bounds[vertex + 1]]]
            if before >= 0:
                at.append(found[before] + delay)
            if at:
                found[vertex] = max(at)
        return np.array(found, np.int64)

    @property
    def targets(self) -> Int64:
        """[edge] The vertex that it leads to."""
        targets: Int64 = np.repeat(np.arange(len(self.previous)), np.diff(self.offsets))
        return targets

    def targets_of(self, edges: Int64) -> Int64:
        """Return the vertices that some edges lead to."""
        targets: Int64 = np.searchsorted(self.offsets, edges, "right") - 1
        return targets

    def fitted(self, times: Int64) -> tuple[Delays, Int64]:
        """Return the graph with delays that give exactly the measured times, and the cause of each vertex: -1 for its
        line, -2 if it has no predecessor, else the edge.

        The cause is the predecessor that would allow the vertex last by the delays given, none of which may be longer
        than measured. Its delay becomes the measured one: a part that nothing explains stays a fixed delay after it.
        """
        if native.AVAILABLE:
            line_ns, edge_ns, cause = self.delay_ns.copy(), self.edge_ns.copy(), np.empty(len(times), np.int64)
            native.fit(self.previous, line_ns, self.offsets, self.sources, edge_ns, times, cause)
            return replace(self, delay_ns=line_ns, edge_ns=edge_ns), cause
        targets, has_line = self.targets, self.previous >= 0
        measured = np.where(has_line, times - times[self.previous], 0)
        line_ns = np.where(has_line, np.minimum(self.delay_ns, measured), 0)
        edge_measured = times[targets] - times[self.sources]
        edge_ns = np.minimum(self.edge_ns, edge_measured)
        # What remains unexplained with each predecessor; the least wins, the line before edges.
        left = np.where(has_line, measured - line_ns, np.iinfo(np.int64).max)
        cause = np.where(has_line, -1, -2)
        edge_left = edge_measured - edge_ns
        if len(targets):
            begins = np.flatnonzero(np.diff(targets, prepend=-1))
            least = np.minimum.reduceat(edge_left, begins)
            found = np.flatnonzero(edge_left == np.repeat(least, np.diff(begins, append=len(targets))))
            first = found[np.flatnonzero(np.diff(targets[found], prepend=-1))]
            better = first[edge_left[first] < left[targets[first]]]
            cause[targets[better]] = better
            edge_ns[better] = edge_measured[better]
        by_line = cause == -1
        line_ns[by_line] = measured[by_line]
        return replace(self, delay_ns=line_ns, edge_ns=edge_ns), cause

    def before(self, cause: Int64) -> Int64:
        """Return the vertex that each waited for, from the causes of `fitted`; -1 if none."""
        by_edge = cause >= 0
        found = np.where(cause == -1, self.previous, -1)
        found[by_edge] = self.sources[cause[by_edge]]
        return found


def chain(before: Int64, first: int, last: int) -> Int64:
    """Return the vertices from `first` on that `last` waited for, directly or not, in order, and `last`."""
    out = np.empty(max(0, last - first + 1), np.int64)
    if native.AVAILABLE:
        return out[: native.causes(before, first, last, out)][::-1]
    count, place = 0, last
    while place >= first:
        out[count] = place
        count, place = count + 1, int(before[place])
    return out[:count][::-1]
