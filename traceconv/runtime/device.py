"""The device's time: streams of tasks that share cores and bandwidth, as an exact simulation in whole ticks.

A stream runs its tasks one after another. Tasks of several streams run side by side, and where they together
ask for more of something (device memory, L2, cores, the link to the host) than there is, each gets its
share of it and takes that much longer. `docs/explanation/cost-model.md` has the rules.

How long a task takes depends on what comes after it, so nothing is known when it is submitted: `run_until`
moves the device's time on, no further than the host has waited. What is submitted later arrives later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.cost import ceil_div
from traceconv.runtime.spec import DeviceSpec

#: What tasks share.
RESOURCES = ("hbm", "l2", "cube", "vector", "cpu", "link_in", "link_out")
HBM, L2, CUBE, VECTOR, CPU, LINK_IN, LINK_OUT = range(len(RESOURCES))

#: Duration of recording an event, and of going on after one.
EVENT_TICKS = 2
#: Bandwidths are whole numbers of bytes in this many ticks.
BANDWIDTH_TICKS = 1 << 16
#: The speed of a task that gets all it asks for.
_FULL = 1 << 24


@dataclass(frozen=True, slots=True)
class Work:
    """How long a task takes alone, and (resource, amount) of what it needs meanwhile.

    Amounts are bytes in `BANDWIDTH_TICKS` of hbm and l2, cores, and 1 of a link.
    """

    ticks: int
    demands: tuple[tuple[int, int], ...] = ()


EVENT = Work(EVENT_TICKS)


@dataclass(slots=True, eq=False)
class Meeting:
    """A collective of several devices: its tasks move data from when the last of them has started.

    `expected`: how many there are; `latest_ns`: host clock when the latest so far started.
    """

    expected: int
    arrived: int = 0
    latest_ns: int = 0

    def arrive(self, host_ns: int) -> None:
        """One of the tasks has started."""
        self.arrived += 1
        self.latest_ns = max(self.latest_ns, host_ns)

    @property
    def is_complete(self) -> bool:
        """Whether all are there."""
        return self.arrived >= self.expected


@dataclass(slots=True, eq=False)
class Task:
    """A task on a stream; `start` and `end`, in ticks, are None until the device is there.

    arrival   tick at which the device has it
    previous  the task before it on its stream
    event     the event that it waits for, for a wait
    done      is told when the device has done it; `note`: what that wants to know, in whatever form
    meeting   the tasks of other devices that it waits for, for a collective; `begin`: tick since which it moves data
    """

    task_id: int
    stream_id: int
    submit_ns: int
    arrival: int
    work: Work
    previous: Task | None
    event: Task | None
    done: Callable[[Task], None] | None
    start: int | None = None
    end: int | None = None
    meeting: Meeting | None = None
    begin: int | None = None
    note: Any = None

    @property
    def span(self) -> tuple[int, int]:
        """(start, end) of a task that is done."""
        assert self.start is not None and self.end is not None
        return self.start, self.end


@dataclass(slots=True)
class _Running:
    """A task under way: what is left of it, in ticks · `_FULL`, and how fast that becomes less."""

    task: Task
    left: int
    speed: int = _FULL


def capacities(spec: DeviceSpec) -> tuple[int, ...]:
    """How much there is of each of `RESOURCES`."""
    hbm = spec.hbm_bytes_per_s * spec.hbm_efficiency_percent * BANDWIDTH_TICKS // (100 * spec.clock_hz)
    l2 = spec.l2_bytes_per_cycle * spec.core_clock_hz * BANDWIDTH_TICKS // spec.clock_hz
    return hbm, l2, spec.cube_cores, spec.vector_cores, spec.cpu_cores, 1, 1


def bandwidth(size_bytes: int, ticks: int) -> int:
    """Amount of hbm or l2 that moving so many bytes in so many ticks needs, evenly."""
    return ceil_div(size_bytes * BANDWIDTH_TICKS, max(1, ticks))


@dataclass(slots=True)
class Device:
    """A device. Tasks are submitted by one thread at a time, and never while its time moves on."""

    spec: DeviceSpec
    clock: DeviceClock
    device_id: int = 0
    now: int = 0
    last: dict[int, Task] = field(default_factory=dict)
    _capacity: tuple[int, ...] = ()
    _queues: dict[int, deque[Task]] = field(default_factory=dict)
    _free_at: dict[int, int] = field(default_factory=dict)
    _running: dict[int, _Running] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self._capacity = capacities(self.spec)

    def submit(
        self,
        stream_id: int,
        host_ns: int,
        work: Work,
        *,
        event: Task | None = None,
        meeting: Meeting | None = None,
        done: Callable[[Task], None] | None = None,
    ) -> Task:
        """A task that the host hands over at `host_ns`: it starts once it is there and the stream is free.

        `event`: holds the stream until that task is done, then goes on to its own work. `meeting`: the same until
        all its tasks have started, on other devices; `run_together` moves them on. `done` is told when it ends.
        """
        self._count += 1
        arrival = max(self.now, self.clock.ticks_after(host_ns + self.spec.launch_latency_ns))
        before = self.last.get(stream_id)
        task = Task(self._count, stream_id, host_ns, arrival, work, before, event, done, meeting=meeting)
        self.last[stream_id] = task
        self._queues.setdefault(stream_id, deque()).append(task)
        return task

    def done_ns(self, task: Task) -> int:
        """Host clock at which the host sees that a task is done; the device's time moves on until then."""
        self.run_until(task)
        return self.clock.ns_at(task.span[1]) + self.spec.completion_latency_ns

    def run_until(self, task: Task) -> None:
        """Moves the device's time on to the end of a task, no further."""
        while task.end is None:
            if not self.step():
                raise AssertionError(f"task {task.task_id} waits for ever")

    def run_all(self) -> None:
        """Moves on until all that was submitted is done."""
        while self.step():
            pass

    # One moment to the next

    def next_moment(self) -> int | None:
        """Tick of the next start or end of a task; None when there is none, or it depends on other devices."""
        for running in self._running.values():
            task = running.task
            if task.meeting is not None and task.begin is None and task.meeting.is_complete:
                task.begin = max(self.now, self.clock.ticks_after(task.meeting.latest_ns))
        moments = [self._ready(queue[0]) for stream, queue in self._queues.items() if stream not in self._running]
        moments += [moment for running in self._running.values() if (moment := self._changes(running)) is not None]
        return max(self.now, min(moments)) if moments else None

    def step(self) -> bool:
        """Moves on to the next moment at which a task ends or starts; False when there is none."""
        moment = self.next_moment()
        if moment is None:
            return False
        self._advance(moment)
        changed = any(running.task.begin == self.now for running in self._running.values())
        for stream in [s for s, running in self._running.items() if self._ends(running) == self.now]:
            self._end(self._running.pop(stream).task)
            changed = True
        for stream, queue in list(self._queues.items()):
            if stream not in self._running and self._ready(queue[0]) <= self.now:
                self._start(queue.popleft())
                changed = True
                if not queue:
                    del self._queues[stream]
        if changed:
            self._share()
        return True

    def _ready(self, task: Task) -> int:
        free = self._free_at.get(task.stream_id)
        return task.arrival if free is None else max(task.arrival, free + self.spec.dispatch_gap_ticks)

    def _is_held(self, task: Task) -> bool:
        """Whether a task that has started waits: for an event, or for those that it meets."""
        if task.meeting is not None:
            return task.begin is None or task.begin > self.now
        return task.event is not None and task.event.end is None

    def _changes(self, running: _Running) -> int | None:
        """When it ends, or begins to move data, if nothing changes before; None while it is held by another."""
        return running.task.begin if self._is_held(running.task) else self._ends(running)

    def _ends(self, running: _Running) -> int | None:
        """When it ends if nothing changes before; None for one that is held."""
        return None if self._is_held(running.task) else self.now + ceil_div(running.left, running.speed)

    def _advance(self, ticks: int) -> None:
        for running in self._running.values():
            if not self._is_held(running.task):
                running.left = max(0, running.left - running.speed * (ticks - self.now))
        self.now = ticks

    def _start(self, task: Task) -> None:
        task.start = self.now
        if task.meeting is not None:
            task.meeting.arrive(self.clock.ns_at(self.now))
        self._running[task.stream_id] = _Running(task, max(1, task.work.ticks) * _FULL)

    def _end(self, task: Task) -> None:
        task.end = self.now
        self._free_at[task.stream_id] = self.now
        if task.done is not None:
            task.done(task)
        # What came before it is over too: without this each task would keep all those before it alive.
        task.done = task.previous = None

    def _share(self) -> None:
        """Gives each running task its speed: the least share that it gets of anything it asks for."""
        if len(self._running) == 1:
            for alone in self._running.values():
                alone.speed = _FULL
            return
        asked = [0] * len(RESOURCES)
        askers = [0] * len(RESOURCES)
        moving = [running for running in self._running.values() if not self._is_held(running.task)]
        for running in moving:
            for resource, amount in running.task.work.demands:
                asked[resource] += amount
                askers[resource] += 1
        for running in moving:
            running.speed = min(
                (
                    max(1, _FULL * self._capacity[resource] // asked[resource])
                    for resource, _ in running.task.work.demands
                    if askers[resource] > 1 and asked[resource] > self._capacity[resource]
                ),
                default=_FULL,
            )


def run_together(waits: Sequence[tuple[Device, Task]]) -> None:
    """Moves devices on, whichever is first by the host clock, until each has done its task and none goes further.

    So a collective finds its devices at one time, though each has a clock of its own.
    """
    while True:
        due = []
        for index, (device, task) in enumerate(waits):
            moment = device.next_moment() if task.end is None else None
            if moment is not None:
                due.append((device.clock.ns_at(moment), index))
        if not due:
            break
        waits[min(due)[1]][0].step()
    stuck = [task.task_id for _, task in waits if task.end is None]
    if stuck:
        raise AssertionError(f"tasks {stuck} wait for ever")
