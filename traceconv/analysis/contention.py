"""Tasks that compete for a device: what each would take alone, and a replay in which they share its resources.

If the tasks that run at once need more of a resource than the device has (cores, bandwidth of its memory, of its L2),
each gets a share in proportion to its need, and takes that much longer. What tasks need is known where the source
records their numbers of cores, as in captures of the NPU.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import duckdb
import numpy as np

from traceconv import native
from traceconv.analysis.dependency_graph import Graph
from traceconv.analysis.dependency_kinds import RUN, TASK_KINDS
from traceconv.analysis.replay import Delays
from traceconv.analysis.slices import NO_SIZE, Columns
from traceconv.analysis.vertices import find
from traceconv.base.int64 import Int64, Mask

#: A vertex that is not the start or end of a task that shares its device.
_NONE = np.iinfo(np.int64).min
#: Demands are multiples of 1 / _CAPACITY of a resource; speeds, of 1 / _CAPACITY of that of a task alone.
_CAPACITY = 1 << 20
#: Longer tasks, and more tasks at once than a device runs, are damaged: they don't share.
_LONGEST_NS = 2**42
_MOST_AT_ONCE = 256
_MOST_BLOCKS, _MOST_CYCLES = 2**40, 2**60
#: A task that needs more than this gets all that there is, next to others.
_MOST_DEMAND = _CAPACITY << 16
#: Demands for bandwidth follow from the time alone, which follows from the demands.
_ROUNDS, _EXACT = 30, 10_000
#: The share of the memory's peak that tasks reach at least, and the tasks from which it is found.
_REACHABLE_PERCENT, _MOST_SAMPLES = 80, 20_000

_DEVICES = """
SELECT device_id AS device, ai_core_count AS cube, coalesce(ai_vector_core_count, 0) AS vector,
       coalesce(ai_cpu_count, 0) AS cpu, coalesce(peak_bytes_per_s, 0) AS memory, coalesce(core_clock_hz, 0) AS clock
FROM device
WHERE run_id = {run} AND ai_core_count > 0
ORDER BY device_id
"""
#: What ops move, and the first of those that do the same.
_OPS = """
SELECT op_id AS id, op_type IS NULL AS is_untyped, coalesce(TRY(input_bytes + output_bytes + weight_bytes), 0) AS bytes,
       min(op_id) OVER (PARTITION BY op_type, input_shapes, input_dtypes) AS signature
FROM op
WHERE run_id = {run}
"""
#: How long the pipes that read through L2 were busy, on all cores.
_CYCLES = """
SELECT id, coalesce(aic_mte2_cycles, 0) AS cube, coalesce(aiv_mte2_cycles, 0) AS vector
FROM task_pmu
WHERE run_id = {run} AND id BETWEEN {first} AND {last}
"""
#: Types of cores (`load_slices`) whose blocks occupy these cores, and those of which the other part's blocks do.
_BLOCKS = {"cube": (0, 1), "vector": (2, 3), "cpu": (4,)}
_MIX_BLOCKS = {"cube": (2,), "vector": (1,), "cpu": ()}
#: The row of Resources.ops of tasks without an op.
_NO_OP = Columns(id=np.array([-1]), is_untyped=np.array([True]), bytes=np.array([0]), signature=np.array([-1]))


@dataclass(frozen=True, slots=True)
class Resources:
    """What the devices of a run have, and what its ops move: columns of _DEVICES and _OPS. The last row of the latter
    is _NO_OP, to which the place -1 leads.
    """

    devices: Columns
    ops: Columns


def resources_of(connection: duckdb.DuckDBPyConnection, run_id: int) -> Resources | None:
    """Return them; None if no device's numbers of cores are known."""
    devices = Columns.read(connection, _DEVICES.format(run=run_id))
    if not len(devices):
        return None
    return Resources(devices, Columns.read(connection, _OPS.format(run=run_id)).followed_by(_NO_OP))


def _signatures(tasks: Columns, ops: Columns, at: Int64) -> Int64:
    """Return numbers that tasks share if they do the same: their ops do, or those without a type have the same name,
    and they move as many bytes. ops: of `Resources`; at: [task] its op there
    """
    is_untyped = ops["is_untyped"][at]
    signatures: Int64 = ops["signature"][at]
    others = np.flatnonzero(is_untyped | (tasks["size_bytes"] != NO_SIZE))
    keys = (
        np.where(is_untyped, tasks["name_key"], np.uint64(0))[others], tasks["size_bytes"][others], signatures[others],
    )  # fmt: skip
    order = np.lexsort(keys)
    changes = np.zeros(len(order), bool)
    for key in keys:
        changes[1:] |= key[order[1:]] != key[order[:-1]]
    signatures[others[order]] = -2 - np.cumsum(changes)
    return signatures


def _needs(tasks: Columns, devices: Int64, resources: Resources, cycles: Columns, measured: Int64) -> Columns:
    """Return what tasks need:

    cube, vector, cpu  its cores, in multiples of 1 / _CAPACITY of the device's
    memory_ns          how long its bytes take at the peak of the memory
    l2_ns              how long the pipes that read through L2 are busy, on average over the cores
    signature          equal for tasks that do the same

    tasks    rows of `Graph.needs`; devices: [task] its place in `resources`
    cycles   columns of _CYCLES; measured: their tasks
    """
    ops, own = resources.ops, resources.devices
    at = find(ops["id"], tasks["op"])
    busy = np.zeros(len(at), np.int64)
    needs = Columns(signature=_signatures(tasks, ops, at))
    for core in ("cube", "vector", "cpu"):
        blocks = np.zeros(len(at), np.int64)
        for name, types in (("blocks", _BLOCKS[core]), ("mix_blocks", _MIX_BLOCKS[core])):
            blocks += np.where(np.isin(tasks["core_type"], types), np.minimum(tasks[name], _MOST_BLOCKS), 0)
        needs[core] = _quotient(blocks * _CAPACITY, own[core][devices])
        if core in cycles:
            busy[measured] += _quotient(np.minimum(cycles[core], _MOST_CYCLES), own[core][devices[measured]])
    bytes_moved = np.where(tasks["size_bytes"] == NO_SIZE, ops["bytes"][at], tasks["size_bytes"])
    needs["memory_ns"] = _duration(bytes_moved, own["memory"][devices])
    needs["l2_ns"] = _duration(busy, own["clock"][devices])
    return needs


def _quotient(numbers: Int64, by: Int64) -> Int64:
    """Return numbers // by; 0 where `by` is not positive."""
    quotient: Int64 = np.floor_divide(numbers, by, out=np.zeros(len(numbers), np.int64), where=by > 0)
    return quotient


def _duration(counts: Int64, per_second: Int64) -> Int64:
    """Return how many ns each number of things takes, at most _LONGEST_NS; 0 if the rate is unknown."""
    largest = (2**63 - 1) // 10**9
    duration = np.minimum(_quotient(np.minimum(counts, largest) * 10**9, per_second), _LONGEST_NS)
    for place in np.flatnonzero((counts > largest) & (per_second > 0)).tolist():
        duration[place] = min(int(counts[place]) * 10**9 // int(per_second[place]), _LONGEST_NS)
    return duration


def divided(numbers: Int64, by: Fraction) -> Int64:
    """Return positive numbers / by, rounded up, without overflow."""
    whole, rest = np.divmod(numbers, by.numerator)
    whole = np.minimum(whole, 2**62 // by.denominator)  # a duration of more than 146 years stays that
    quotient: Int64 = whole * by.denominator - (-rest * by.denominator // by.numerator)
    return quotient


@dataclass(frozen=True, slots=True)
class Contention:
    """Tasks that share devices.

    tasks    [vertex] the task that starts there, ~task that ends there, or _NONE
    devices  [task] numbered from 0
    cores    [task, 3] the cube, vector and AI CPU cores that it needs, in multiples of 1 / _CAPACITY of the device's
    busy_ns  [task, 2] how long the device's memory, and its L2, would be busy with the task alone
    alone_ns [task] how long it takes alone; 0: unknown
    work     [task] its time alone, in ns / _CAPACITY
    demands  [task, resource] what it needs, in multiples of 1 / _CAPACITY: cores and bandwidths
    """

    tasks: Int64
    devices: Int64
    cores: Int64
    busy_ns: Int64
    alone_ns: Int64
    work: Int64
    demands: Int64

    @property
    def ends(self) -> Int64:
        """[task] The vertex of its end."""
        found = np.flatnonzero((self.tasks < 0) & (self.tasks != _NONE))
        return found[np.argsort(~self.tasks[found])]

    @property
    def needs_most_memory(self) -> Mask:
        """[task] Whether it needs more than half of the bandwidth of its device's memory."""
        most: Mask = self.demands[:, self.cores.shape[1]] > _CAPACITY // 2
        return most

    def measured(self, times: Int64) -> Contention:
        """Return the tasks with the work and the demands that give these times.

        A task needs more bandwidth, the less of its time it would take alone. Where that is unknown, it depends on the
        other tasks' needs.
        """
        first, work = self.cores.shape[1], self.work.copy()
        demands = np.hstack((self.cores, np.zeros_like(self.busy_ns)))
        if native.AVAILABLE:
            native.work(self.tasks, times, self.devices, self.busy_ns, self.alone_ns, demands, work, _ROUNDS, _EXACT)
            return replace(self, work=work, demands=demands)
        shares = np.flatnonzero(self.tasks != _NONE)
        codes, at = self.tasks[shares], times[shares]
        # Times without an idle device between them don't affect one another: [vertex], [task].
        running = np.cumsum(np.where(codes >= 0, 1, -1))
        periods = np.cumsum(running == 0) - (running == 0)
        own_period = np.zeros(len(self.work), np.int64)
        own_period[codes[codes >= 0]] = periods[codes >= 0]
        tasks = np.arange(len(work))
        for _ in range(_ROUNDS):
            alone_ns = np.maximum(np.where(self.alone_ns > 0, self.alone_ns, work // _CAPACITY)[tasks], 1)
            demands[tasks, first:] = np.minimum(self.busy_ns[tasks] * _CAPACITY // alone_ns[:, None], _CAPACITY)
            previous, work = work[tasks], work.copy()
            _work(codes, at, self.devices, demands, work)
            changes = np.zeros(len(work) + 1, bool)
            changes[own_period[tasks[np.abs(work[tasks] - previous) > previous // _EXACT]]] = True
            tasks, kept = tasks[changes[own_period[tasks]]], changes[periods]
            if not len(tasks):
                break
            codes, at, periods = codes[kept], at[kept], periods[kept]
        return replace(self, work=work, demands=demands)

    def faster(self, chosen: Mask, factor: Fraction) -> Contention:
        """Return the tasks with some of them faster, which move the same bytes in less time."""
        work, demands = self.work.copy(), self.demands.copy()
        work[chosen] = divided(work[chosen], factor)
        first = self.cores.shape[1]
        demands[chosen, first:] = np.minimum(divided(demands[chosen, first:], 1 / factor), _MOST_DEMAND)
        return replace(self, work=work, demands=demands)

    def times(self, delays: Delays, given_ns: Int64) -> Int64:
        """Return the times of a graph's vertices as `Delays.times`, with durations by what the tasks share."""
        return replays_of(given_ns, (delays, self))[0]


def replays_of(given_ns: Int64, *replays: tuple[Delays, Contention]) -> list[Int64]:
    """Return the times of a graph's vertices for each replay: these differ in delays, work and demands only."""
    found = [given_ns.copy() for _ in replays]
    if native.AVAILABLE:
        one, tasks = replays[0]
        changes = [
            (delays.delay_ns, delays.edge_ns, shared.work, shared.demands, times)
            for (delays, shared), times in zip(replays, found, strict=True)
        ]
        native.simulate(one.previous, one.offsets, one.sources, tasks.tasks, tasks.devices, changes)
    else:
        for (delays, shared), times in zip(replays, found, strict=True):
            _simulate(delays, shared, times)
    return found


def contention(
    read: Callable[[str], Columns], run_id: int, graph: Graph, resources: Resources | None
) -> Contention | None:
    """Return the tasks of a graph with `needs` that share devices; None if it is unknown what those that run at once
    need.

    read  executes a query of the store
    """
    if resources is None:
        return None
    ends = np.flatnonzero((graph.kinds == RUN) & (np.diff(graph.delays.offsets) == 0) & (graph.delays.previous >= 0))
    starts = graph.delays.previous[ends]
    dur_ns = graph.times[ends] - graph.times[starts]
    fits = (dur_ns > 0) & (dur_ns < _LONGEST_NS)
    ends, starts = ends[fits], starts[fits]
    if not 1 < _at_once(len(graph.times), starts, ends) <= _MOST_AT_ONCE:
        return None
    own = graph.slices[ends] - graph.host_count
    places = find(resources.devices["device"], graph.task_devices[own])
    known = (places >= 0) & ((graph.needs["blocks"][own] > 0) | (graph.task_kinds[own] == TASK_KINDS.index("copy")))
    ends, starts, own, places = ends[known], starts[known], own[known], places[known]
    if not len(ends):
        return None
    ids = graph.ids[graph.slices[ends]]
    cycles = read(_CYCLES.format(run=run_id, first=ids.min(), last=ids.max()))
    measured = find(ids, cycles["id"])
    needs = _needs(graph.needs.rows(own), places, resources, cycles.rows(measured >= 0), measured[measured >= 0])
    dur_ns = graph.times[ends] - graph.times[starts]
    tasks = np.full(len(graph.times), _NONE)
    tasks[starts], tasks[ends] = np.arange(len(ends)), ~np.arange(len(ends))
    cores = np.stack([np.clip(needs[name], 0, _CAPACITY) for name in ("cube", "vector", "cpu")], axis=1)
    memory_ns, l2_ns = (np.clip(needs[name], 0, dur_ns) for name in ("memory_ns", "l2_ns"))
    devices = (np.cumsum(np.bincount(places) > 0) - 1)[places]
    alone_ns, is_alone = _alone(tasks, devices, dur_ns, needs["signature"])

    def found(percent: int, until: int | None = None) -> Contention:
        busy_ns = np.stack((memory_ns * 100 // percent, l2_ns), axis=1)
        shared = Contention(tasks[:until], devices, cores, busy_ns, alone_ns, dur_ns * _CAPACITY, cores)
        return shared.measured(graph.times[:until])

    # If the memory is taken for slower than it is, tasks seem to do less in the time that they share it.
    until = int(ends[min(len(ends), _MOST_SAMPLES) - 1]) + 1
    known = (alone_ns > 0) & ~is_alone & (ends < until)
    low = max(_REACHABLE_PERCENT, int((memory_ns * 100 // dur_ns).max()))
    high = 100 if known.any() else low
    while low < high:
        percent = (low + high) // 2
        if found(percent, until).work[known].sum() // _CAPACITY < alone_ns[known].sum():
            low = percent + 1
        else:
            high = percent
    return found(low)


def _alone(tasks: Int64, devices: Int64, dur_ns: Int64, signatures: Int64) -> tuple[Int64, Mask]:
    """Return how long tasks take alone, from those that do the same while nothing else runs on their device, 0 if there
    are none; and which these are.
    """
    shares = np.flatnonzero(tasks != _NONE)
    codes = tasks[shares]
    owners = devices[np.where(codes < 0, ~codes, codes)]
    codes = codes[np.argsort(owners, kind="stable")]
    is_alone = np.zeros(len(dur_ns), bool)
    running = np.cumsum(np.where(codes >= 0, 1, -1))
    is_alone[codes[:-1][(running[:-1] == 1) & (codes[1:] == ~codes[:-1])]] = True
    _, groups = np.unique(signatures, return_inverse=True)
    least = np.full(len(dur_ns), np.iinfo(np.int64).max)
    np.minimum.at(least, groups[is_alone], dur_ns[is_alone])
    alone_ns = least[groups]
    return np.where(alone_ns == np.iinfo(np.int64).max, 0, alone_ns), is_alone


def _at_once(count: int, starts: Int64, ends: Int64) -> int:
    """Return the largest number of tasks between their vertices."""
    change = np.zeros(count, np.int64)
    change[starts], change[ends] = 1, -1
    return int(np.cumsum(change).max(initial=0))


class _Running:
    """The running tasks: what remains of them (or was done) and their speeds."""

    def __init__(self, devices: Int64, demands: Int64) -> None:
        self.devices, self.demands = devices.tolist(), demands.tolist()
        self.left: dict[int, int] = {}
        self.speed: dict[int, int] = {}

    def share(self, device: int) -> None:
        """Set the speeds of the tasks of a device, after one of them has started or ended."""
        tasks = [task for task in self.left if self.devices[task] == device]
        self.speed.update(dict.fromkeys(tasks, _CAPACITY))
        for resource in range(len(self.demands[0])):
            askers = [task for task in tasks if self.demands[task][resource] > 0]
            asked = sum(self.demands[task][resource] for task in askers)
            if len(askers) > 1 and asked > _CAPACITY:
                speed = max(1, _CAPACITY * _CAPACITY // asked)
                self.speed.update((task, min(speed, self.speed[task])) for task in askers)

    def start(self, task: int, left: int) -> None:
        self.left[task] = left
        self.share(self.devices[task])

    def end(self, task: int) -> int:
        left = self.left.pop(task)
        self.share(self.devices[task])
        return left


def _work(tasks: Int64, times: Int64, devices: Int64, demands: Int64, work: Int64) -> None:
    """Set what each task would take alone, from the measured times."""
    running, now = _Running(devices, demands), 0
    for task, time in zip(tasks.tolist(), times.tolist(), strict=True):
        if task == _NONE:
            continue
        for one in running.left:
            running.left[one] += (time - now) * running.speed[one]
        now = time
        if task >= 0:
            running.start(task, 0)
        elif ~task in running.left:
            work[~task] = running.end(~task)


def _simulate(delays: Delays, shared: Contention, times: Int64) -> None:
    """Set the times of the vertices; those without predecessors are given."""
    codes, ends = shared.tasks.tolist(), shared.ends.tolist()
    edges: list[list[tuple[int, int]]] = [[] for _ in codes]
    before = zip(delays.sources.tolist(), delays.targets.tolist(), delays.edge_ns.tolist(), strict=True)
    line = ((int(delays.previous[vertex]), vertex, int(delays.delay_ns[vertex])) for vertex in range(len(codes)))
    waiting = [0] * len(codes)
    for source, target, delay in (*before, *(one for one in line if one[0] >= 0)):
        edges[source].append((target, delay if codes[target] >= 0 or codes[target] == _NONE else 0))
        waiting[target] += 1
    found = [None if count else time for count, time in zip(waiting, times.tolist(), strict=True)]
    due: list[tuple[int, int]] = []

    def settle(ready: list[int]) -> None:
        for vertex in ready:
            for target, delay in edges[vertex]:
                at, known = (found[vertex] or 0) + delay, found[target]
                found[target] = at if known is None else max(known, at)
                waiting[target] -= 1
                if not waiting[target]:
                    if _NONE < codes[target] < 0:
                        heapq.heappush(due, (found[target] or 0, target))
                    else:
                        ready.append(target)

    running, now = _Running(shared.devices, shared.demands), 0
    settle([vertex for vertex, count in enumerate(waiting) if not count])
    while due or running.left:
        end, vertex = min(
            ((now - -left // running.speed[task], ends[task]) for task, left in running.left.items()),
            default=(None, -1),
        )
        is_start = end is None or bool(due and due[0][0] < end)
        time = due[0][0] if end is None or is_start else end
        for one, left in running.left.items():
            running.left[one] = max(0, left - (time - now) * running.speed[one])
        now = time
        if is_start:
            _, vertex = heapq.heappop(due)
            running.start(~codes[vertex], int(shared.work[~codes[vertex]]))
        else:
            found[vertex] = now
            running.end(~codes[vertex])
            settle([vertex])
    times[:] = [time or 0 for time in found]
