"""The device's time: an exact simulation, in integer ticks, of streams of tasks that share cores and bandwidth.

A stream runs its tasks one after another. Tasks of several streams run concurrently. If together they need more of a
resource (device memory, L2, cores, the link to the host) than exists, each gets a share and takes that much longer.
`docs/explanation/cost-model.md` has the rules.

A task's duration depends on later tasks too, so it is unknown when the task is submitted: `run_until` advances the
device's time, no further than the host has waited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.cost import ceil_div
from traceconv.runtime.spec import DeviceSpec

#: Resources that tasks share.
RESOURCES = ("hbm", "l2", "cube", "vector", "cpu", "link_in", "link_out")
HBM, L2, CUBE, VECTOR, CPU, LINK_IN, LINK_OUT = range(len(RESOURCES))

#: Duration of recording an event, and of continuing after one.
EVENT_TICKS = 2
#: Bandwidths are integer numbers of bytes in this many ticks.
BANDWIDTH_TICKS = 1 << 16
#: The speed of a task that gets all that it needs.
_FULL = 1 << 24


@dataclass(frozen=True, slots=True)
class Work:
    """A task's duration when alone, the (resource, amount) that it needs meanwhile, and how long its stream is idle
    after it, in ticks.

    Amounts are bytes in `BANDWIDTH_TICKS` for hbm and l2, numbers of cores, and 1 for a link. `throttled_ticks` is the
    duration at the lower clock of a hot device; 0: it doesn't depend on that.
    """

    ticks: int
    demands: tuple[tuple[int, int], ...] = ()
    idle: int = 0
    throttled_ticks: int = 0


EVENT = Work(EVENT_TICKS)


@dataclass(slots=True, eq=False)
class Rendezvous:
    """A collective of several devices: its tasks move data once all `expected` ones have started.

    `latest_ns`: host clock at the latest start so far.
    """

    expected: int
    arrived: int = 0
    latest_ns: int = 0

    def arrive(self, host_ns: int) -> None:
        """Note the start of one of the tasks."""
        self.arrived += 1
        self.latest_ns = max(self.latest_ns, host_ns)


@dataclass(slots=True, eq=False)
class Task:
    """A task on a stream; `start` and `end`, in ticks, are None until the device gets there.

    arrival     tick at which the device receives it
    previous    the previous task on its stream, until the task is done
    event       the event that a wait waits for
    done        called when the device has finished it; `note` is for its use
    rendezvous  where a collective waits for the tasks of other devices; `begin`: tick at which it begins to move data
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
    rendezvous: Rendezvous | None = None
    begin: int | None = None
    note: Any = None

    @property
    def span(self) -> tuple[int, int]:
        """(start, end) of a finished task."""
        assert self.start is not None and self.end is not None
        return self.start, self.end


@dataclass(slots=True)
class _Running:
    """A running task: its remaining work, in ticks · `_FULL`, and its speed."""

    task: Task
    left: int
    speed: int = _FULL


def capacities(spec: DeviceSpec) -> tuple[int, ...]:
    """Return the capacity of each of `RESOURCES`."""
    hbm = spec.hbm_bytes_per_s * spec.hbm_efficiency_percent * BANDWIDTH_TICKS // (100 * spec.clock_hz)
    l2 = spec.l2_bytes_per_cycle * spec.core_clock_hz * BANDWIDTH_TICKS // spec.clock_hz
    return hbm, l2, spec.cube_cores, spec.vector_cores, spec.cpu_cores, 1, 1


def bandwidth(size_bytes: int, ticks: int) -> int:
    """Return the amount of hbm or l2 needed to move bytes evenly within some ticks."""
    return ceil_div(size_bytes * BANDWIDTH_TICKS, max(1, ticks))


@dataclass(slots=True)
class Device:
    """A device. Only one thread at a time may submit tasks, and not while time advances."""

    spec: DeviceSpec
    clock: DeviceClock
    device_id: int = 0
    now: int = 0
    #: The tick from which on the core clock is lowered.
    throttled_at: int | None = None
    last: dict[int, Task] = field(default_factory=dict)
    _capacity: tuple[int, ...] = ()
    _queues: dict[int, deque[Task]] = field(default_factory=dict)
    _free_at: dict[int, int] = field(default_factory=dict)
    _running: dict[int, _Running] = field(default_factory=dict)
    _count: int = 0
    #: Ticks for which the cores can still work before the device is too hot; 0: the clock stays as it is.
    _cool_ticks: int = 0
    _is_heating: bool = False

    def __post_init__(self) -> None:
        self._capacity = capacities(self.spec)
        self._cool_ticks = ceil_div(self.spec.throttle_after_ns * self.spec.clock_hz, 1_000_000_000)

    def submit(
        self,
        stream_id: int,
        host_ns: int,
        work: Work,
        *,
        event: Task | None = None,
        rendezvous: Rendezvous | None = None,
        done: Callable[[Task], None] | None = None,
    ) -> Task:
        """Submit a task at `host_ns`. It starts once it has arrived and the stream is free.

        event    a task that must finish before this one does its own work
        rendezvous  the tasks on other devices that must start before it does; `run_together` advances them
        done     called when it ends
        """
        self._count += 1
        arrival = max(self.now, self.clock.ticks_after(host_ns + self.spec.launch_latency_ns))
        before = self.last.get(stream_id)
        task = Task(self._count, stream_id, host_ns, arrival, work, before, event, done, rendezvous=rendezvous)
        self.last[stream_id] = task
        self._queues.setdefault(stream_id, deque()).append(task)
        return task

    def done_ns(self, task: Task) -> int:
        """Advance to the end of a task; return the host clock at which the host notices it."""
        self.run_until(task)
        return self.clock.ns_at(task.span[1]) + self.spec.completion_latency_ns

    def run_until(self, task: Task) -> None:
        """Advance to the end of a task, no further."""
        while task.end is None:
            if not self.step():
                raise AssertionError(f"task {task.task_id} is deadlocked")

    def run_all(self) -> None:
        """Advance until everything that was submitted is done."""
        while self.step():
            pass

    # Simulation steps

    def next_change(self) -> int | None:
        """Return the tick of the next start or end of a task; None if there is none, or other devices determine it."""
        for running in self._running.values():
            task, rendezvous = running.task, running.task.rendezvous
            if rendezvous is not None and task.begin is None and rendezvous.arrived >= rendezvous.expected:
                task.begin = max(self.now, self.clock.ticks_after(rendezvous.latest_ns))
        changes = [self._ready(queue[0]) for stream, queue in self._queues.items() if stream not in self._running]
        changes += [change for running in self._running.values() if (change := self._change_tick(running)) is not None]
        if self._is_heating:
            changes.append(self.now + self._cool_ticks)
        return max(self.now, min(changes)) if changes else None

    def step(self) -> bool:
        """Advance to the next start or end of a task; return False if there is none."""
        tick = self.next_change()
        if tick is None:
            return False
        self._advance(tick)
        changed = self.throttled_at == self.now
        changed |= any(running.task.begin == self.now for running in self._running.values())
        for stream in [s for s, running in self._running.items() if self._end_tick(running) == self.now]:
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

    def _is_blocked(self, task: Task) -> bool:
        """Whether a started task waits for an event or a rendezvous."""
        if task.rendezvous is not None:
            return task.begin is None or task.begin > self.now
        return task.event is not None and task.event.end is None

    def _change_tick(self, running: _Running) -> int | None:
        """Return the tick at which a task ends or begins to move data, if nothing changes first; None while blocked."""
        return running.task.begin if self._is_blocked(running.task) else self._end_tick(running)

    def _end_tick(self, running: _Running) -> int | None:
        """Return the tick at which a task ends, if nothing changes before; None while it is blocked."""
        return None if self._is_blocked(running.task) else self.now + ceil_div(running.left, running.speed)

    def _advance(self, ticks: int) -> None:
        for running in self._running.values():
            if not self._is_blocked(running.task):
                running.left = max(0, running.left - running.speed * (ticks - self.now))
        if self._is_heating:
            self._cool_ticks -= ticks - self.now
            if not self._cool_ticks:
                self.throttled_at, self._is_heating = ticks, False
        self.now = ticks

    def _start(self, task: Task) -> None:
        task.start = self.now
        if task.rendezvous is not None:
            task.rendezvous.arrive(self.clock.ns_at(self.now))
        self._running[task.stream_id] = _Running(task, max(1, task.work.ticks) * _FULL)

    def _end(self, task: Task) -> None:
        task.end = self.now
        self._free_at[task.stream_id] = self.now + task.work.idle
        if task.done is not None:
            task.done(task)
        # Otherwise each task would keep all earlier ones alive.
        task.done = task.previous = None

    def _share(self) -> None:
        """Set the speed of each running task: the smallest share that it gets of any resource."""
        if self._cool_ticks:
            self._is_heating = any(
                running.task.work.throttled_ticks and not self._is_blocked(running.task)
                for running in self._running.values()
            )
        if len(self._running) == 1:
            for alone in self._running.values():
                alone.speed = self._full_speed(alone)
            return
        asked = [0] * len(RESOURCES)
        askers = [0] * len(RESOURCES)
        moving = [running for running in self._running.values() if not self._is_blocked(running.task)]
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
            running.speed = min(running.speed, self._full_speed(running))

    def _full_speed(self, running: _Running) -> int:
        """Return the speed of a task that gets all that it needs."""
        work = running.task.work
        if self.throttled_at is None or not work.throttled_ticks:
            return _FULL
        return max(1, _FULL * work.ticks // work.throttled_ticks)


def run_together(waits: Sequence[tuple[Device, Task]]) -> None:
    """Advance devices, always the earliest by the host clock, until each has finished its task, and no further.

    This keeps the devices of a collective in step, though each has its own clock.
    """
    while True:
        due = []
        for index, (device, task) in enumerate(waits):
            tick = device.next_change() if task.end is None else None
            if tick is not None:
                due.append((device.clock.ns_at(tick), index))
        if not due:
            break
        waits[min(due)[1]][0].step()
    stuck = [task.task_id for _, task in waits if task.end is None]
    if stuck:
        raise AssertionError(f"tasks {stuck} are deadlocked")
