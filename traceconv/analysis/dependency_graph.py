"""What the tasks and host slices of a window of a run depended on, as a graph of their starts and ends.

Recorded dependencies: the order of a thread's slices and of a stream's tasks, launches, flows between threads, and
CUDA's records of events and of what a call synchronises with. Inferred ones: which event a wait of a stream waited for,
which tasks a synchronising call waited for, and which threads wait for others (`dependency_kinds.INFERRED`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from traceconv.analysis.dependency_kinds import (
    COPY,
    EVENT,
    FLOW,
    IDLE,
    JOIN,
    LAUNCH,
    MEET,
    QUEUE,
    RECORDED_EVENT,
    RECORDED_SYNC,
    SYNC,
    TASK_KINDS,
)
from traceconv.analysis.replay import Delays
from traceconv.analysis.slices import Columns, Slices
from traceconv.analysis.vertices import Int8, find, ordered, usual_delays
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask

#: Synchronising calls times streams, from which on only the first wait of a thread for a task is an edge.
_MOST_WAITS = 1 << 22
#: Starts of a collective on other devices that each of its ends waits for: more than a host has devices.
_MOST_MEETING = 64
_COPY_TASK = TASK_KINDS.index("copy")
_COLLECTIVE_TASK = TASK_KINDS.index("collective")
#: Columns of `Graph.needs`.
_NEEDS = ("op", "name_key", "blocks", "mix_blocks", "core_type", "size_bytes")
#: Numbers in a smaller range are counted rather than sorted.
_SMALL_RANGE = 2**20


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph, and what its vertices are.

    times     [vertex] measured, in topological order
    slices    [vertex] the slice that starts or ends, in `ids`; is_end: [vertex] whether it ends
    kinds     [vertex] kind of the dependency on its line; edge_kinds: [edge]
    inside    [vertex] for host slices, the innermost slice that takes the time since the one before on its thread;
              -1: none
    delays    as measured, with the `cause` of each vertex (`Delays.fitted`)
    ids       [slice] host slices, then tasks, of which there are `task_count`
    task_kinds  [task] place in TASK_KINDS
    task_steps, task_devices  [task] -1: none; is_launched: [task] whether its call is known
    launches  [slice] whether it is a call that launched tasks
    ends      [slice] when it ends
    name_keys  [slice] as loaded; ops: [task] op_id, -1: none; both are empty if they were not loaded
    needs     [task] columns with what it occupies and moves; none if they were not loaded
    """

    times: Int64
    slices: Int64
    is_end: Mask
    kinds: Int8
    edge_kinds: Int8
    inside: Int64
    delays: Delays
    cause: Int64
    ids: Int64
    task_kinds: Int8
    task_steps: Int64
    task_devices: Int64
    is_launched: Mask
    launches: Mask
    ends: Int64
    name_keys: NDArray[np.uint64]
    ops: Int64
    needs: Columns

    @property
    def host_count(self) -> int:
        return len(self.ids) - len(self.task_kinds)


def build_graph(slices: Slices) -> Graph:
    """Return the graph of the slices of a window."""
    return _Builder(slices).graph(slices)


class _Builder:
    """Makes a graph: slices are host slices, then tasks; until vertices are in order, s is the start of slice s, and
    count + s its end.
    """

    def __init__(self, slices: Slices) -> None:
        self.host, self.tasks = slices.host, slices.tasks
        self.hosts, self.count = len(self.host), len(self.host) + len(self.tasks)
        self.ids: Int64 = np.concatenate((self.host["id"], self.tasks["id"]))
        self.starts: Int64 = np.concatenate((self.host["start"], self.tasks["start"]))
        self.ends: Int64 = np.concatenate((self.host["end"], self.tasks["end"]))
        self.lines = _numbered(np.concatenate((self.host["line"], self.tasks["line"])))
        # All at once, because each search makes a table of the IDs.
        wanted = (
            self.host["parent"], slices.flows["src_id"], slices.flows["dst_id"],
            slices.events["event_id"], slices.events["id"], self.tasks["api"],
        )  # fmt: skip
        found = find(self.ids, np.concatenate(wanted))
        parents, *self.flows, self.recorded, self.waiting, self.calls = np.split(
            found, np.cumsum([len(one) for one in wanted[:-1]])
        )
        self.has_child = np.zeros(self.count, bool)
        self.has_child[parents[parents >= 0]] = True
        self.is_top = parents < 0
        self.vertices = ordered(self.starts, self.ends, self.lines, parents, slices.low_ns, slices.high_ns)
        self.place = self.vertices.place
        self._edges: list[tuple[Int64, Int64, int]] = []
        #: Pairs of threads, of which the first hands work to the second.
        self._handing: list[list[int]] = []

    def add(self, sources: Int64, targets: Int64, kind: int) -> None:
        """Add edges between starts or ends of slices, without those that point backwards."""
        known = (sources >= 0) & (targets >= 0)
        self.add_vertices(self.place[sources[known]], self.place[targets[known]], kind)

    def add_vertices(self, sources: Int64, targets: Int64, kind: int) -> None:
        """Add edges between vertices, without those that point backwards."""
        forwards = (sources >= 0) & (sources < targets)
        self._edges.append((sources[forwards], targets[forwards], kind))

    def graph(self, slices: Slices) -> Graph:
        launched = np.flatnonzero((self.calls >= 0) & (self.calls < self.hosts))
        calls, tasks = self.calls[launched], self.hosts + launched
        self.add(calls, tasks, LAUNCH)
        self._copies(calls, tasks)
        self._flows()
        self._backward_passes()
        self._pipeline()
        self._events()
        self._collectives()
        self._syncs(slices.records)
        self._drained(calls)
        self._recorded_events(slices.records)
        launches = np.zeros(self.count, bool)
        launches[calls] = True
        return self._finish(launches)

    def _copies(self, calls: Int64, tasks: Int64) -> None:
        """A call that returns after the end of its copy waited for it."""
        blocks = (self.tasks["kind"][tasks - self.hosts] == _COPY_TASK) & (self.ends[tasks] <= self.ends[calls])
        self.add(self.count + tasks[blocks], self.count + calls[blocks], COPY)

    def _flows(self) -> None:
        """Flows between threads: the second may have waited for the first, and the first for the second's work."""
        src, dst = self.flows
        across = (src >= 0) & (dst >= 0) & (src < self.hosts) & (dst < self.hosts)
        src, dst = src[across], dst[across]
        across = self.lines[src] != self.lines[dst]
        src, dst = src[across], dst[across]
        self.add(self.count + src, dst, FLOW)
        # A thread was woken where nothing is open on it, and the flow's source is later than what it did before.
        starts = self.place[dst]
        woken = (starts >= 0) & self.is_top[dst] & (self.place[self.count + src] > self.vertices.previous[starts])
        woken &= self.place[self.count + src] < starts
        src, starts = src[woken], starts[woken]
        self.vertices.kinds[starts] = IDLE
        # The other thread's next vertex comes after the last one of the woken thread, if that is idle then.
        threads = np.stack((self.lines[src], self.lines[self.vertices.slices[starts]]))
        for line, woken_line in np.unique(threads, axis=1).T.tolist():
            own, other = (np.flatnonzero(self._threads == one) for one in (line, woken_line))
            begins = starts[(threads[0] == line) & (threads[1] == woken_line)]
            after = np.searchsorted(own, begins)
            begins, after = begins[after < len(own)], own[after[after < len(own)]]
            last = other[np.searchsorted(other, after) - 1]
            joined = (last > begins) & self.vertices.is_end[last] & self.is_top[self.vertices.slices[last]]
            self.add_vertices(last[joined], after[joined], JOIN)
            self.vertices.kinds[after[joined]] = IDLE

    def _backward_passes(self) -> None:
        """PyTorch's thread for backward passes works while the thread that called it waits, which no flow says."""
        lines = self.lines[: self.hosts]
        backward = np.unique(lines[self.host["role"] == 4])
        launching = np.unique(lines[self.calls[(self.calls >= 0) & (self.calls < self.hosts)]])
        is_end, slices = self.vertices.is_end, self.vertices.slices
        for line, caller in product(backward.tolist(), np.setdiff1d(launching, backward).tolist()):
            own, other = (np.flatnonzero(self._threads == one) for one in (line, caller))
            # The vertices of a pass are between two that follow one another on the caller's thread.
            before = np.searchsorted(other, own)
            first = np.flatnonzero(np.diff(before, prepend=-1))
            last = np.append(first[1:], len(own)) - 1
            inside = (before[first] > 0) & (before[first] < len(other))
            first, last, after = own[first[inside]], own[last[inside]], before[first[inside]]
            complete = ~is_end[first] & is_end[last] & self.is_top[slices[first]] & self.is_top[slices[last]]
            first, last, after = first[complete], last[complete], after[complete]
            self.add_vertices(other[after - 1], first, JOIN)
            self.add_vertices(last, other[after], JOIN)

    @cached_property
    def _threads(self) -> Int64:
        """[vertex] The line of a host slice's vertex, -1 of a task's."""
        slices = self.vertices.slices
        threads: Int64 = np.where(slices < self.hosts, self.lines[slices], -1)
        return threads

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
        handed = sources >= 0
        self._handing = np.unique(self.lines[np.stack((sources[handed], launched[handed]))], axis=1).T.tolist()

    def _events(self) -> None:
        """A wait on a stream without a record of its event waited for the last one recorded meanwhile, if there is one.

        Which event the other waits were for is unknown.
        """
        event, ends, lines = self.tasks["event"].copy(), self.tasks["end"], self.tasks["line"]
        recorded, waiting = self.recorded, self.waiting
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

    def _collectives(self) -> None:
        """Collectives that run at once, one on each device, move data when all of them have started."""
        place, end_place = self.place[self.hosts : self.count], self.place[self.count + self.hosts :]
        tasks = np.flatnonzero((self.tasks["kind"] == _COLLECTIVE_TASK) & (place >= 0) & (end_place >= 0))
        device_count = len(np.unique(self.tasks["device"][tasks]))
        if device_count < 2:
            return
        devices, starts, ends = (self.tasks[name][tasks] for name in ("device", "start", "end"))
        # For each one, the next that isn't of its group: on a device of the group, or after the first end in it.
        rows = np.arange(len(tasks))
        by_device = np.argsort(devices, kind="stable")
        same = devices[by_device[1:]] == devices[by_device[:-1]]
        stops = np.full(len(tasks), len(tasks))
        stops[by_device[:-1][same]] = by_device[1:][same]
        stops = np.minimum(stops, np.maximum(np.searchsorted(starts, ends), rows + 1))
        stops = np.minimum(np.minimum.accumulate(stops[::-1])[::-1], rows + device_count)
        begins, next_begin, at = [], stops.tolist(), 0
        while at < len(tasks):
            if next_begin[at] - at == device_count:
                begins.append(at)
            at = next_begin[at]
        groups = tasks[np.array(begins, np.int64)[:, None] + np.arange(device_count)]
        # Each end waits for the other starts, of which the last ones suffice if there are very many.
        first = max(0, device_count - _MOST_MEETING)
        sources, targets = (one.ravel() for one in np.mgrid[first:device_count, :device_count])
        sources, targets = sources[sources != targets], targets[sources != targets]
        self.add_vertices(place[groups][:, sources].ravel(), end_place[groups][:, targets].ravel(), MEET)

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
        lines = np.unique(self.tasks["line"]).tolist()
        for line in lines:
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
                mine = np.flatnonzero(fits & ((streams >= 0) == recorded))
                if len(syncs) * len(lines) > _MOST_WAITS:
                    mine = mine[np.lexsort((mine, self.lines[syncs[mine]]))]
                    mine = mine[_changes(self.lines[syncs[mine]]) | _changes(found[mine])]
                self.add(
                    self.count + self.hosts + found[mine], self.count + syncs[mine], RECORDED_SYNC if recorded else SYNC
                )

    def _drained(self, calls: Int64) -> None:
        """A synchronising call of the NPU's runtime first waits until the thread that launches has nothing to do."""
        syncs = np.flatnonzero(self.host["syncs"] & ~self.has_child[: self.hosts] & (self.host["step"] >= 0))
        returns = self.place[self.count + syncs]
        syncs, returns = syncs[returns >= 0], returns[returns >= 0]
        if not len(syncs):
            return
        launching = np.flatnonzero(np.bincount(self.lines[calls])).tolist()
        for line, woken_line in self._handing or product(np.unique(self.lines[syncs]).tolist(), launching):
            ends = np.flatnonzero((self._threads == woken_line) & self.vertices.is_end)
            at = np.searchsorted(ends, returns) - 1
            found = (at >= 0) & (self.lines[syncs] == line) & (line != woken_line)
            self.add_vertices(ends[at[found]], returns[found], JOIN)
        # So what that thread does next was handed to it after the call.
        for line, woken_line in self._handing:
            own, other = (np.flatnonzero(self._threads == one) for one in (line, woken_line))
            after = np.unique(np.searchsorted(other, returns[self.lines[syncs] == line]))
            starts = other[after[after < len(other)]]
            starts = starts[~self.vertices.is_end[starts]]
            self.add_vertices(own[np.searchsorted(own, starts) - 1], starts, JOIN)

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

    def _finish(self, launches: Mask) -> Graph:
        vertices = self.vertices
        sources = np.concatenate([one for one, _, _ in self._edges])
        targets = np.concatenate([one for _, one, _ in self._edges])
        edge_kinds = np.concatenate([np.full(len(one), kind, np.int8) for one, _, kind in self._edges])
        groups = np.concatenate((np.full(self.hosts, len(TASK_KINDS), np.int8), self.tasks["kind"]))[vertices.slices]
        usual, kinds, edge_kinds = usual_delays(vertices, groups, sources, targets, edge_kinds)
        meet = np.flatnonzero(edge_kinds == MEET)
        if len(meet):
            # Collectives of any size: each takes as long after the last start as measured.
            ends = usual.targets_of(meet)
            started = vertices.times[usual.previous]
            np.maximum.at(started, ends, vertices.times[usual.sources[meet]])
            usual.delay_ns[ends] = vertices.times[ends] - started[ends]
            usual.edge_ns[meet] = usual.delay_ns[ends]
        delays, cause = usual.fitted(vertices.times)
        return Graph(
            vertices.times, vertices.slices, vertices.is_end, kinds, edge_kinds, vertices.inside, delays, cause,
            self.ids, self.tasks["kind"], self.tasks["step"], self.tasks["device"],
            self.calls >= 0, launches, self.ends, *self._names(),
            Columns((name, self.tasks[name]) for name in _NEEDS if name in self.tasks),
        )  # fmt: skip

    def _names(self) -> tuple[NDArray[np.uint64], Int64]:
        """Return the keys of the names and the IDs of ops, if they were loaded."""
        if "name_key" not in self.host:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        return np.concatenate((self.host["name_key"], self.tasks["name_key"])), self.tasks["op"]


def _changes(values: Int64) -> Mask:
    """Return which values differ from the one before."""
    changes: Mask = np.diff(values, prepend=values[:1] - 1) != 0
    return changes


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
