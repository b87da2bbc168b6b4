"""What the tasks and host slices of a window of a run depended on, as a graph of their starts and ends.

Recorded dependencies: the order of a thread's slices and of a stream's tasks, launches, flows between threads, and
CUDA's records of events and of what a call synchronises with. Inferred ones: which event a wait of a stream waited for,
which tasks a synchronising call waited for, and which threads wait for others (`INFERRED`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.replay import Delays, latest
from traceconv.analysis.slices import Columns, Slices
from traceconv.base.int64 import Int32, Int64, Mask

#: Kinds of dependencies. The first four are those of a vertex on the one before it on its thread or stream.
RUN, HOST, STREAM, IDLE, LAUNCH, EVENT, RECORDED_EVENT, SYNC, RECORDED_SYNC, COPY, FLOW, QUEUE, JOIN = range(13)
#: Dependencies that the source doesn't record.
INFERRED = (EVENT, SYNC, QUEUE, JOIN)
#: Kinds of tasks, by number.
TASK_KINDS = ("compute", "copy", "collective", "sync", "other")
_COPY_TASK = TASK_KINDS.index("copy")
#: [kind] Whether what depends on it waits as long as it has to.
_WAITS = np.isin(np.arange(JOIN + 1), (EVENT, RECORDED_EVENT, SYNC, RECORDED_SYNC, COPY, QUEUE, JOIN))
#: Numbers in a smaller range are counted rather than sorted.
_SMALL_RANGE = 2**20


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph, and what its vertices are.

    times     [vertex] measured, in topological order
    slices    [vertex] the slice that starts or ends, in `ids`; is_end: [vertex] whether it ends
    kinds     [vertex] kind of the dependency on its line; edge_kinds: [edge]
    inside    [vertex] for host slices, the innermost slice between the previous vertex of the thread and it; -1: none
    delays    as measured, with the `cause` of each vertex (`Delays.fitted`)
    ids       [slice] host slices, then tasks, of which there are `task_count`
    task_kinds  [task] place in TASK_KINDS
    task_steps, task_devices  [task] -1: none
    launches  [slice] whether it is a call that launched tasks
    ends      [slice] when it ends
    names, op_types  [slice] numbers of texts, -1: none; empty if they were not loaded
    """

    times: Int64
    slices: Int64
    is_end: Mask
    kinds: Int64
    edge_kinds: NDArray[np.int8]
    inside: Int64
    delays: Delays
    cause: Int64
    ids: Int64
    task_kinds: Int64
    task_steps: Int64
    task_devices: Int64
    launches: Mask
    ends: Int64
    names: Int32
    op_types: Int32

    @property
    def host_count(self) -> int:
        return len(self.ids) - len(self.task_kinds)


def build_graph(slices: Slices) -> Graph:
    """Return the graph of the slices of a window."""
    builder = _Builder(slices.host, slices.tasks, slices.low_ns, slices.high_ns)
    return builder.graph(slices.flows, slices.records, slices.events)


class _Builder:
    """Makes a graph: slices are host slices, then tasks; vertex s is the start of slice s, count + s its end, until
    they are put in order.
    """

    def __init__(self, host: Columns, tasks: Columns, low_ns: int, high_ns: int) -> None:
        self.host, self.tasks = host, tasks
        self.hosts, self.count = len(host), len(host) + len(tasks)
        self.ids: Int64 = np.concatenate((host["id"], tasks["id"]))
        self.starts: Int64 = np.concatenate((host["start"], tasks["start"]))
        self.ends: Int64 = np.concatenate((host["end"], tasks["end"]))
        self._by_id = np.argsort(self.ids, kind="stable")
        self._sorted_ids = self.ids[self._by_id]
        self._edges: list[tuple[Int64, Int64, int]] = []
        self._order(low_ns, high_ns)

    def find(self, ids: Int64) -> Int64:
        """Return the slices of these IDs, -1 for those outside of the window."""
        if not self.count:
            return np.full(len(ids), -1)
        places = np.minimum(np.searchsorted(self._sorted_ids, ids), self.count - 1)
        return np.where(self._sorted_ids[places] == ids, self._by_id[places], -1)

    def _order(self, low_ns: int, high_ns: int) -> None:
        """Put the vertices inside the window in order: at equal times, ends come before starts, and slices without
        a duration are between.
        """
        hosts, count = np.arange(self.hosts), self.count
        tasks = np.arange(self.hosts, count)
        # Of starts at one time, the outer slice's is first; of ends, the inner one's.
        vertices = np.concatenate((hosts, tasks, count + tasks[::-1], count + hosts[::-1]))
        times = np.concatenate((self.starts, self.ends))[vertices]
        is_end = vertices >= count
        slices = np.where(is_end, vertices - count, vertices)
        rank = np.where(is_end, np.where((self.starts == self.ends)[slices], 2, 0), 1)
        # A slice that begins before the window has no end in it either, unless it is on a thread.
        inside = (times >= low_ns) & (times <= high_ns)
        inside &= ~is_end | (slices < self.hosts) | (self.starts >= low_ns)[slices]
        kept = np.flatnonzero(inside)
        kept = kept[np.argsort((times[kept] - low_ns) * 3 + rank[kept], kind="stable")]
        self.vertices, self.times = vertices[kept], times[kept]
        self.place = np.full(2 * count, -1)
        self.place[self.vertices] = np.arange(len(self.vertices))
        self.slices, self.is_end = slices[kept], is_end[kept]
        self.is_host = self.slices < self.hosts
        lines = np.concatenate((self.host["line"], self.tasks["line"]))
        self.lines = _numbered(lines)

    def add(self, sources: Int64, targets: Int64, kind: int) -> None:
        """Add edges between vertices (slice, or count + slice for its end), without those that point backwards."""
        known = (sources >= 0) & (targets >= 0)
        sources, targets = self.place[sources[known]], self.place[targets[known]]
        forwards = (sources >= 0) & (sources < targets)
        self._edges.append((sources[forwards], targets[forwards], kind))

    def graph(self, flows: Columns, records: Columns, events: Columns) -> Graph:
        previous, kinds, inside = self._lines()
        src, dst = self.find(flows["src_id"]), self.find(flows["dst_id"])
        known = (src >= 0) & (dst >= 0)
        src, dst, launches = src[known], dst[known], flows["launches"][known]
        launched = (src < self.hosts) & (dst >= self.hosts) & launches
        self.add(src[launched], dst[launched], LAUNCH)
        self._copies(src[launched], dst[launched])
        self._flows(src, dst, previous, kinds)
        self._pipeline()
        self._events(events)
        self._syncs(records)
        self._drained(src[launched])
        self._recorded_events(records)
        calls = np.zeros(self.count, bool)
        calls[src[launched]] = True
        return self._finish(previous, kinds, inside, calls)

    def _lines(self) -> tuple[Int64, Int64, Int64]:
        """Return the previous vertex of each on its line, the kind of that dependency, and the host slice inside."""
        lines = self.lines[self.slices]
        last_host = latest(lines, self.is_host)
        last_end = latest(lines, ~self.is_host & self.is_end)
        own_start = self.place[self.slices]
        previous = np.where(self.is_host, last_host, np.where(self.is_end, own_start, last_end))
        kinds = np.where(self.is_host, HOST, np.where(self.is_end, RUN, STREAM))
        parents = self.find(self.host["parent"])
        before = self.slices[last_host]
        after = np.where(
            self.is_end[last_host], parents[np.minimum(before, self.hosts - 1)] if self.hosts else -1, before
        )
        inside = np.where(self.is_host & (last_host >= 0), after, -1)
        self.has_child = np.zeros(self.count, bool)
        self.has_child[parents[parents >= 0]] = True
        self.is_top = parents < 0
        return previous, kinds, inside

    def _copies(self, calls: Int64, tasks: Int64) -> None:
        """A call that returns after the end of its copy waited for it."""
        blocks = (self.tasks["kind"][tasks - self.hosts] == _COPY_TASK) & (self.ends[tasks] <= self.ends[calls])
        self.add(self.count + tasks[blocks], self.count + calls[blocks], COPY)

    def _flows(self, src: Int64, dst: Int64, previous: Int64, kinds: Int64) -> None:
        """Flows between threads: the second may have waited for the first, and the first for the second's work."""
        across = (src < self.hosts) & (dst < self.hosts)
        src, dst = src[across], dst[across]
        across = self.lines[src] != self.lines[dst]
        src, dst = src[across], dst[across]
        self.add(self.count + src, dst, FLOW)
        # A thread was woken where nothing is open on it, and the flow's source is later than what it did before.
        starts = self.place[dst]
        woken = (starts >= 0) & self.is_top[dst] & (self.place[self.count + src] > previous[starts])
        woken &= self.place[self.count + src] < starts
        src, starts = src[woken], starts[woken]
        kinds[starts] = IDLE
        # The other thread's next vertex comes after the last one of the woken thread, if that is idle then.
        lines = self.lines[self.slices]
        threads = np.stack((self.lines[src], lines[starts]))
        for line, woken_line in np.unique(threads, axis=1).T.tolist():
            own, other = (np.flatnonzero(self.is_host & (lines == one)) for one in (line, woken_line))
            begins = starts[(threads[0] == line) & (threads[1] == woken_line)]
            after = np.searchsorted(own, begins)
            begins, after = begins[after < len(own)], own[after[after < len(own)]]
            last = other[np.searchsorted(other, after) - 1]
            joined = (last > begins) & self.is_end[last] & self.is_top[self.slices[last]]
            self.add(self.vertices[last[joined]], self.vertices[after[joined]], JOIN)
            kinds[after[joined]] = IDLE

    def _pipeline(self) -> None:
        """The NPU's worker thread launches an op after the channel thread dispatched it, at first its waits."""
        role = self.host["role"]
        dispatched, launched = (np.flatnonzero(role == one) for one in (1, 2))
        if not (len(dispatched) and len(launched)):
            return
        both = np.concatenate((dispatched, launched))
        steps, ops = (_numbered(self.host[name][both]) for name in ("step", "op"))
        codes = steps * (ops.max() + 1) + ops
        # The n-th launch of an op in a step is that of the n-th dispatch.
        codes, queued = codes[: len(dispatched)], codes[len(dispatched) :]
        order = np.argsort(codes, kind="stable")
        at = np.searchsorted(codes[order], queued) + _occurrence(queued)
        same = at < np.searchsorted(codes[order], queued, "right")
        sources = np.where(same, dispatched[order[np.minimum(at, len(dispatched) - 1)]], -1)
        # Of the calls on a thread that are inside no other, the waits right before a launch are part of it.
        top = np.flatnonzero(self.is_top)
        top = top[np.argsort(self.host["line"][top], kind="stable")]
        is_other = (role[top] != 3) | np.concatenate(([True], np.diff(self.host["line"][top]) != 0))
        last_other = np.maximum.accumulate(np.where(is_other, np.arange(len(top)), -1))
        first = np.arange(self.hosts)
        before = np.maximum(np.arange(len(top)) - 1, 0)
        begins = np.where(
            role[top[before]] == 3, last_other[before] + (role[top[last_other[before]]] != 3), np.arange(len(top))
        )
        same = self.host["line"][top[np.minimum(begins, len(top) - 1)]] == self.host["line"][top]
        first[top] = np.where(same, top[np.minimum(begins, len(top) - 1)], top)
        self.add(sources, first[launched], QUEUE)

    def _events(self, events: Columns) -> None:
        """A wait on a stream without a record of its event waited for the last one recorded meanwhile, if there is one.

        Which event the other waits were for is unknown.
        """
        event, ends, lines = self.tasks["event"].copy(), self.tasks["end"], self.tasks["line"]
        recorded, waiting = self.find(events["event_id"]), self.find(events["id"])
        known = (recorded >= 0) & (waiting >= 0)
        self.add(self.count + recorded[known], self.count + waiting[known], RECORDED_EVENT)
        event[waiting[known] - self.hosts] = 0
        for device in np.unique(self.tasks["device"][event == 2]).tolist():
            waits, recorded = (np.flatnonzero((event == one) & (self.tasks["device"] == device)) for one in (2, 1))
            recorded = recorded[np.argsort(ends[recorded], kind="stable")]
            if not len(recorded):
                continue
            at = np.searchsorted(ends[recorded], ends[waits]) - 1
            found = recorded[np.maximum(at, 0)]
            known = (at >= 0) & (ends[found] > self.tasks["start"][waits]) & (lines[found] != lines[waits])
            self.add(self.count + self.hosts + found[known], self.count + self.hosts + waits[known], EVENT)

    def _syncs(self, records: Columns) -> None:
        """A synchronising call waits for the last task launched before it on each stream, or on the recorded stream."""
        syncs = np.flatnonzero(self.host["syncs"] & ~self.has_child[: self.hosts])
        if not len(syncs) or not len(self.tasks):
            return
        stream_of = dict(
            zip(
                records["correlation"][records["syncs"]].tolist(),
                records["stream"][records["syncs"]].tolist(),
                strict=True,
            )
        )
        streams = np.array([stream_of.get(one, -1) for one in self.host["correlation"][syncs].tolist()], np.int64)
        own = self.host["step"][syncs]
        for line in np.unique(self.tasks["line"]).tolist():
            tasks = np.flatnonzero(self.tasks["line"] == line)
            stream = self.tasks["stream"][tasks[0]]
            ends = np.maximum.accumulate(self.tasks["end"][tasks])
            submits = np.maximum.accumulate(self.tasks["submit"][tasks])
            # Calls of the NPU's runtime name their step, and wait for what is launched for it meanwhile, too.
            limit = np.where(own >= 0, self.host["end"][syncs], self.host["start"][syncs])
            at = (
                np.minimum(
                    np.searchsorted(submits, limit, "right"), np.searchsorted(ends, self.host["end"][syncs], "right")
                )
                - 1
            )
            found = tasks[np.maximum(at, 0)]
            fits = (at >= 0) & ((streams < 0) | (streams == stream))
            fits &= (own < 0) | (self.tasks["step"][found] < 0) | (self.tasks["step"][found] == own)
            for recorded in (False, True):
                mine = fits & ((streams >= 0) == recorded)
                self.add(
                    self.count + self.hosts + found[mine], self.count + syncs[mine], RECORDED_SYNC if recorded else SYNC
                )

    def _drained(self, calls: Int64) -> None:
        """A synchronising call of the NPU's runtime first waits until the thread that launches has nothing to do."""
        syncs = np.flatnonzero(self.host["syncs"] & ~self.has_child[: self.hosts] & (self.host["step"] >= 0))
        returns = self.place[self.count + syncs]
        syncs, returns = syncs[returns >= 0], returns[returns >= 0]
        lines = self.lines[self.slices]
        for line in np.unique(self.lines[calls]).tolist():
            ends = np.flatnonzero(self.is_host & self.is_end & (lines == line))
            at = np.searchsorted(ends, returns) - 1
            found = (at >= 0) & (self.lines[syncs] != line)
            self.add(self.vertices[ends[at[found]]], self.count + syncs[found], JOIN)

    def _recorded_events(self, records: Columns) -> None:
        """CUDA's waits: the next task of the waiting stream follows what was launched before the event's record."""
        waits = np.flatnonzero(records["waits"])
        if not len(waits) or not len(self.tasks):
            return
        calls = np.flatnonzero(self.host["correlation"] >= 0)
        calls = calls[np.argsort(self.host["correlation"][calls], kind="stable")]
        numbers = self.host["correlation"][calls]
        wanted = records["event_correlation"][waits]
        at = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
        known = (numbers[at] == wanted) if len(numbers) else np.zeros(len(waits), bool)
        waits, recorded_at = waits[known], self.host["start"][calls[at[known]]] if len(numbers) else wanted[:0]
        for stream in np.unique(records["stream"][waits]).tolist():
            targets = np.flatnonzero(self.tasks["stream"] == stream)
            for source_stream in np.unique(records["event_stream"][waits]).tolist():
                sources = np.flatnonzero(self.tasks["stream"] == source_stream)
                mine = (records["stream"][waits] == stream) & (records["event_stream"][waits] == source_stream)
                if not (len(sources) and len(targets) and mine.any()):
                    continue
                before = (
                    np.searchsorted(np.maximum.accumulate(self.tasks["submit"][sources]), recorded_at[mine], "right")
                    - 1
                )
                after = np.searchsorted(
                    np.maximum.accumulate(self.tasks["submit"][targets]), records["submit"][waits][mine]
                )
                fits = (before >= 0) & (after < len(targets))
                self.add(
                    self.count + self.hosts + sources[before[fits]], self.hosts + targets[after[fits]], RECORDED_EVENT
                )

    def _finish(self, previous: Int64, kinds: Int64, inside: Int64, launches: Mask) -> Graph:
        sources = np.concatenate([one for one, _, _ in self._edges])
        targets = np.concatenate([one for _, one, _ in self._edges])
        edge_kinds = np.concatenate([np.full(len(one), kind, np.int8) for one, _, kind in self._edges])
        order = np.argsort(targets, kind="stable")
        sources, targets, edge_kinds = sources[order], targets[order], edge_kinds[order]
        kinds = kinds.copy()
        # A thread or a stream that waits does so for as long as it has to, not for a fixed time.
        waiting = targets[_WAITS[edge_kinds]]
        kinds[waiting] = np.where(kinds[waiting] == STREAM, STREAM, IDLE)
        offsets = np.concatenate(([0], np.cumsum(np.bincount(targets, minlength=len(self.vertices)))))
        measured = np.where(previous >= 0, self.times - self.times[previous], 0)
        edge_measured = self.times[targets] - self.times[sources]
        groups = np.where(self.is_host, np.int8(len(TASK_KINDS)), np.int8(0))
        groups[~self.is_host] = self.tasks["kind"][self.slices[~self.is_host] - self.hosts]
        # The cause at first sight is the latest predecessor; the shortest delays after these are what is needed.
        last = np.full(len(self.vertices), -1)
        np.maximum.at(last, targets, sources)
        by_line = (previous >= 0) & (previous >= last)
        delay_ns, edge_ns = measured.copy(), edge_measured.copy()
        streams, idle = kinds == STREAM, kinds == IDLE
        delay_ns[streams] = _usual(measured[streams & by_line])
        for group in _distinct(groups[idle]):
            mine = idle & (groups == group)
            delay_ns[mine] = _usual(measured[mine & by_line])
        first = (sources == last[targets]) & (previous[targets] < sources)
        edge_groups = groups[targets]
        known, unknown = [], []
        for kind in _distinct(edge_kinds):
            of_kind = edge_kinds == kind
            for group in _distinct(edge_groups[of_kind]):
                mine = of_kind & (edge_groups == group)
                alone = edge_measured[mine & first]
                alone = alone if len(alone) else edge_measured[of_kind & first]
                if not len(alone):
                    unknown.append(mine)
                    continue
                known.append(_usual(alone))
                edge_ns[mine] = known[-1]
        # What was never waited for last says nothing about its delay but that it is not longer than measured.
        for mine in unknown:
            edge_ns[mine] = min([*known, edge_measured[mine].min()])
        delays, cause = Delays(previous, delay_ns, offsets, sources, edge_ns).fitted(self.times)
        return Graph(
            self.times, self.slices, self.is_end, kinds, edge_kinds, inside, delays, cause, self.ids,
            self.tasks["kind"].astype(np.int64), self.tasks["step"], self.tasks["device"], launches, self.ends,
            *self._texts(),
        )  # fmt: skip

    def _texts(self) -> tuple[Int32, Int32]:
        """Return the numbers of the names and op types, if they were loaded."""
        if "name" not in self.host:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        no_types = np.full(self.hosts, -1, np.int32)
        return (
            np.concatenate((self.host["name"], self.tasks["name"])),
            np.concatenate((no_types, self.tasks["op_type"])),
        )


def _usual(delays_ns: Int64) -> int:
    """Return a delay that nothing else adds to: a tenth of those measured are shorter. 0 if there are none."""
    place = len(delays_ns) // 10
    return int(np.partition(delays_ns, place)[place]) if len(delays_ns) else 0


def _distinct(kinds: NDArray[np.int8]) -> list[int]:
    """Return the distinct kinds or groups, in order."""
    return [kind for kind, count in enumerate(np.bincount(kinds).tolist()) if count]


def _numbered(values: Int64) -> Int64:
    """Return each value's number, from 0: in the order of values, perhaps with gaps."""
    if not len(values):
        return values
    least, largest = int(values.min()), int(values.max())
    numbers: Int64 = values - least if largest - least < _SMALL_RANGE else np.unique(values, return_inverse=True)[1]
    return numbers


def _occurrence(codes: Int64) -> Int64:
    """Return the number of earlier rows with the same code, for each row."""
    order = np.argsort(codes, kind="stable")
    changes = np.diff(codes[order], prepend=-1) != 0
    places = np.arange(len(order))
    result: Int64 = np.empty(len(order), np.int64)
    result[order] = places - np.maximum.accumulate(np.where(changes, places, 0))
    return result
