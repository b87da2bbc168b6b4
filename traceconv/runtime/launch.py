"""The worker thread's job: launch tasks and copies on a device's streams, and manage the device's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from traceconv.runtime import device as dev
from traceconv.runtime.clock import HostThread
from traceconv.runtime.cost import Cost, ceil_div, copy_ticks, memory_cycles, task_ticks
from traceconv.runtime.device import EVENT, Device, Rendezvous, Task, Work
from traceconv.runtime.event_log import CALL_IN_CALL, NONE32, TaskOrigin
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.memory import Allocator, Block, Origin, use_of
from traceconv.runtime.schedule import INPUTS, Copy, Schedule
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.truth import DeviceTruth

#: Minimum device time between two samples of a counter.
_SAMPLE_NS = 100_000
#: Core type in the log → the cores that block_count counts, and those that mix_block_count counts.
_CORES = {
    "AI_CORE": (dev.CUBE, None),
    "AI_VECTOR_CORE": (dev.VECTOR, None),
    "AI_CPU": (dev.CPU, None),
    "MIX_AIC": (dev.CUBE, dev.VECTOR),
    "MIX_AIV": (dev.VECTOR, dev.CUBE),
}


@dataclass(slots=True)
class Execution:
    """A part of an inference that the device runs without the host; `index` is its position in the inference.

    `tasks` excludes copies made in advance, while the previous inference was running.
    """

    execution_id: int
    index: int
    tasks: list[Task] = field(default_factory=list)
    _span: tuple[int, int] | None = None

    @property
    def span(self) -> tuple[int, int]:
        """First start and last end of its tasks, once all are done."""
        if self._span is None:
            spans = [task.span for task in self.tasks]
            self._span = min(spans)[0], max([end for _, end in spans])
        return self._span


@dataclass(slots=True, eq=False)
class _Launch:
    """What is launched, the same in every run.

    writes     the tensors that it needs memory for: name, size, and origin of the allocation
    workspace  size and origin of its workspace
    word       4 · head + shape of its calls with live clocks; 0: not yet known
    """

    origin: TaskOrigin
    stream: int
    work: Work
    size_bytes: int | None = None
    writes: tuple[tuple[str, int, Origin], ...] = ()
    workspace: tuple[int, Origin] | None = None
    word: int = 0


_EVENT_RECORD, _EVENT_WAIT = (TaskOrigin(name, NONE32, name) for name in ("EVENT_RECORD", "EVENT_WAIT"))


@dataclass(slots=True)
class Run:
    """State of one run of the model.

    given       the inputs as the caller passed them
    handed      whether the copy to the device was handed to the worker
    ahead       whether current launches precede the inference; set and read by the worker only
    rendezvous  index of a collective op → its rendezvous with those of other devices
    loads       the copies of the inputs
    trips       index of an op of control flow → the ops that it executes, each with the name of its task
    scratch     workspace of the op of control flow that is being launched
    """

    given: object
    inputs: dict[str, Array]
    step_id: int
    trace_id: int
    executions: list[Execution]
    handed: bool = False
    ahead: bool = False
    span_id: int = 0
    rendezvous: Callable[[int], Rendezvous] | None = None
    loads: list[Task] = field(default_factory=list)
    blocks: dict[str, Block] = field(default_factory=dict)
    events: dict[int, Task] = field(default_factory=dict)
    op_tasks: list[Task] = field(default_factory=list)
    trips: dict[int, list[tuple[DeviceOp, str | None]]] = field(default_factory=dict)
    scratch: Block | None = None

    @property
    def execution(self) -> Execution:
        """The execution being launched."""
        return self.executions[-1]


def op_work(spec: DeviceSpec, op: DeviceOp) -> Work:
    """Return what an op needs: cores, bandwidth of device memory, and bandwidth of L2."""
    ticks = max(1, task_ticks(spec, op.cost))
    if op.is_collective:
        # Received values are added and stored, then sent on, and the sums come back.
        moved = 4 * sum(tensor.size_bytes for tensor in op.reads)
        return Work(ticks, ((dev.HBM, dev.bandwidth(moved, ticks)),))
    unique_bytes = sum(tensor.size_bytes for tensor in (*op.operands, *op.writes, *op.updates))
    demands = [(dev.HBM, dev.bandwidth(unique_bytes, ticks)), (dev.L2, dev.bandwidth(_l2_bytes(op.cost), ticks))]
    blocks, mix_blocks = _CORES[op.core]
    demands.append((blocks, op.cost.block_count))
    if mix_blocks is not None:
        demands.append((mix_blocks, op.cost.mix_block_count))
    throttled = max(1, task_ticks(spec, op.cost, spec.throttled_clock_percent))
    # A task of several executions has their total duration; the gaps between them follow it.
    gaps = (op.repeats - 1) * spec.dispatch_gap_ticks
    return Work(op.repeats * ticks, tuple(demands), gaps, op.repeats * throttled)


def _l2_bytes(cost: Cost) -> int:
    """Return the bytes that mte2 of all cores reads."""
    of_cube = 0 if cost.cube is None else cost.cube.l2_read_bytes
    return of_cube + (0 if cost.vector is None else cost.vector.work.in_bytes)


def copy_work(spec: DeviceSpec, size_bytes: int, link: int) -> Work:
    """Return what a copy over a link to the host needs; the device's memory limits its speed."""
    memory_ticks = ceil_div(memory_cycles(spec, size_bytes) * spec.clock_hz, spec.core_clock_hz)
    ticks = max(1, copy_ticks(spec, size_bytes), memory_ticks)
    return Work(ticks, ((link, 1), (dev.HBM, dev.bandwidth(size_bytes, ticks))))


@dataclass
class Launcher:
    """Launches on one device. Every method but `weights` runs on the worker thread."""

    _program: Program
    _plan: Schedule
    _host: Host
    _device: Device
    _memory: Allocator
    _truth: DeviceTruth | None

    def __post_init__(self) -> None:
        program, host, truth = self._program, self._host, self._truth
        self._output_roots = {program.root(name) for name in program.downloads}
        self._op_launches = [self._op_launch(op) for op in program.ops]
        #: (index of an op in a body, name of its task, stream) → its launch.
        self._inner_launches: dict[tuple[int, str | None, int], _Launch] = {}
        self._inputs: dict[str, Origin] = {}
        self._copies: dict[str, TaskOrigin] = {}
        self._store = host.recorder.store
        #: Finished tasks waiting for `log_done`.
        self._finished: list[Task] = []
        # A modelled capture defines its texts in the order in which tasks finish on all devices, and the truth needs
        # to know the previous task, which a finished task forgets.
        self._when_done = self._finished.append if host.is_live and truth is None else self._log_one
        self._next_sample = 0
        #: Memory in use is sampled after this many ops; 0: by device time.
        self.sample_rate = 0
        self._unsampled = 0

    def _op_launch(self, op: DeviceOp) -> _Launch:
        stream, work = self._plan.placements[op.index].stream, op_work(self._device.spec, op)
        if op.is_collective:  # not an op of the model
            size = sum(tensor.size_bytes for tensor in op.reads)
            return _Launch(TaskOrigin(op.name, NONE32, op.core), stream, work, size)
        pool, launch = f"stream {stream}", _Launch(TaskOrigin(None, op.index, op.core, op), stream, work)
        for tensor in op.writes:
            root = self._program.root(tensor.name)
            purpose = "output" if root in self._output_roots else "activation"
            launch.writes += ((root, tensor.size_bytes, use_of(pool, purpose, root, op.index)),)
        if op.cost.workspace_bytes:
            launch.workspace = op.cost.workspace_bytes, use_of(pool, "workspace", op=op.index)
        return launch

    # Ops

    def op(self, op: DeviceOp, run: Run) -> None:
        """Launch an op: the waits and memory that it needs, its task, and an event for other streams."""
        host, thread = self._host, self._host.worker
        place, launch = self._plan.placements[op.index], self._op_launches[op.index]
        for index in place.waits:
            self._wait(place.stream, run, run.events[index])
        if op.is_collective:
            rendezvous = None if run.rendezvous is None else run.rendezvous(op.index)
            with host.call(thread, "communication", op.op_type, step_id=run.step_id):
                run.op_tasks.append(self._submit("LaunchKernel", launch, run, rendezvous=rendezvous))
            self._after(op, run)
            return
        task, run.scratch = self._launch(launch, run)
        run.op_tasks.append(task)
        if op.index not in run.trips:
            self.finish(op, run)
        self._watch(task)

    def op_in_modules(
        self, change: Callable[[int, tuple[str, ...]], None], leave: int, paths: tuple[str, ...], op: DeviceOp, run: Run
    ) -> None:
        """Leave and enter modules, then launch an op."""
        change(leave, paths)
        self.op(op, run)

    def inner(self, op: DeviceOp, name: str | None, outer: DeviceOp, run: Run) -> None:
        """Launch an op of a body, in a task called `name`, on the stream and in the workspace of the op `outer`."""
        key = op.index, name, self._plan.placements[outer.index].stream
        launch = self._inner_launches.get(key)
        if launch is None:  # it has the workspace of the op of control flow
            origin, work = TaskOrigin(name, op.index, op.core, op), op_work(self._device.spec, op)
            launch = self._inner_launches[key] = _Launch(origin, key[-1], work)
        task, _ = self._launch(launch, run)
        self._watch(task)

    def finish(self, op: DeviceOp, run: Run) -> None:
        """After an op and its bodies: free its workspace and what is used no longer; record an event for others."""
        # Blocks return to the pool of their stream: an op that gets one from there runs later.
        if run.scratch is not None:
            self._memory.free(run.scratch, self._host.price_alloc(self._host.worker))
            run.scratch = None
        self._after(op, run)

    def _watch(self, task: Task) -> None:
        """Sample the memory in use and compare the clocks, if it is time."""
        host = self._host
        if self._sample_due(task):
            self.sample("HBM Used", "byte", task.arrival, self._memory.used_bytes)
        if not host.is_live or host.clocks_are_due(task.submit_ns):
            host.compare_clocks(self._device, host.worker)

    def _launch(self, launch: _Launch, run: Run) -> tuple[Task, Block | None]:
        """Launch an op; return its task and workspace. With live clocks, both calls are logged at once, for speed."""
        host, now = self._host, self._host.worker.now
        calls = host.call_log
        if calls is None:
            with host.call(host.worker, "node", "launch", op_index=launch.origin.op_index, step_id=run.step_id):
                scratch = self._take(launch, run)
                return self._submit("LaunchKernel", launch, run), scratch
        if not self._store.calls_on:
            scratch = self._take(launch, run)
            return self._enqueue(now(), 0, launch, run), scratch
        calls.enter()
        scratch = self._take(launch, run)
        submit_ns = now()
        task = self._device.submit(launch.stream, submit_ns, launch.work)
        correlation_id = calls.launched(submit_ns, launch.word or self._launch_word(launch), run.step_id)
        self._note(task, correlation_id, launch, run)
        return task, scratch

    def _launch_word(self, launch: _Launch) -> int:
        recorder, thread_id = self._host.recorder, self._host.worker.thread_id
        names = ("launch", "node"), ("LaunchKernel", "runtime")
        launch.word = 4 * recorder.call_heads(names, thread_id, launch.origin.op_index) + CALL_IN_CALL
        return launch.word

    def _take(self, launch: _Launch, run: Run) -> Block | None:
        """Allocate memory for what an op writes; allocate and return its workspace if it needs one."""
        for root, size, origin in launch.writes:
            if root not in run.blocks:
                run.blocks[root] = self._alloc(size, origin, run)
        return None if launch.workspace is None else self._alloc(*launch.workspace, run)

    def _sample_due(self, task: Task) -> bool:
        if self.sample_rate:
            self._unsampled += 1
            if self._unsampled < self.sample_rate:
                return False
            self._unsampled = 0
            return True
        if task.arrival < self._next_sample:
            return False
        self._next_sample = task.arrival + self._device.clock.clock_hz * _SAMPLE_NS // 10**9
        return True

    def _after(self, op: DeviceOp, run: Run) -> None:
        """Free memory after a launch, and record an event for other streams."""
        place = self._plan.placements[op.index]
        for name in place.frees:
            self._memory.free(run.blocks.pop(name), self._host.price_alloc(self._host.worker))
        if place.records:
            self._record(op.index, place.stream, run)

    def _alloc(self, size_bytes: int, origin: Origin, run: Run) -> Block:
        host, memory = self._host, self._memory
        # Lanes of a training wait for each other.
        if memory.must_reserve(size_bytes, origin.pool) and run.rendezvous is None:
            if not memory.has_memory(size_bytes):
                self._return_memory(run)
            self._memory_call("aclrtMalloc", run)
            if host.call_log is not None:
                host.call_log.enter()  # these calls are before the launch
        return memory.alloc(size_bytes, origin, host.price_alloc(host.worker))

    def _return_memory(self, run: Run) -> None:
        """Wait until the device is idle, and return the segments to it that are not in use."""
        host, device = self._host, self._device
        with host.call(host.worker, "acl", "aclrtSynchronizeDevice", step_id=run.step_id):
            with host.stopped():
                done_ns = max([device.done_ns(task) for task in device.last.values()], default=0)
                self.log_done()
            host.wait_for_device(device, host.worker, done_ns, run.step_id)
        self._memory.return_unused(partial(self._memory_call, "aclrtFree", run))

    def _memory_call(self, name: str, run: Run) -> int:
        """Reserve memory of the device or return it, in a call; return the time when this is done."""
        host, thread = self._host, self._host.worker
        with host.call(thread, "acl", name, step_id=run.step_id):
            thread.wait_until(thread.now() + self._device.spec.memory_call_ns)
            return thread.now()

    # Copies

    def load(self, name: str, run: Run) -> None:
        """Copy an input to the device."""
        size = self._program.graph.tensors[name].size_bytes
        root = self._program.root(name)
        if root not in run.blocks:
            origin = self._inputs.setdefault(root, use_of("input", "input", root))
            run.blocks[root] = self._alloc(size, origin, run)
        run.loads.append(self._copy("Load", size, self._plan.copy_in, dev.LINK_IN, run))

    def loaded(self, run: Run) -> None:
        """Record the event that all inputs are on the device."""
        self._record(INPUTS, self._plan.copy_in, run)

    def fetch(self, copy: Copy, run: Run, name: str) -> None:
        """Copy tensors to the host, in tasks called `name`."""
        for index in copy.waits:
            self._wait(self._plan.copy_out, run, run.events[index])
        for tensor in copy.tensors:
            size = self._program.graph.tensors[tensor].size_bytes
            self._copy(name, size, self._plan.copy_out, dev.LINK_OUT, run)

    def weights(self, size_bytes: int, run: Run) -> None:
        """Copy weights to the device; for the channel thread."""
        self._copy("MemcpyH2D", size_bytes, self._plan.copy_in, dev.LINK_IN, run, self._host.channel)

    def _copy(self, name: str, size: int, stream: int, link: int, run: Run, thread: HostThread | None = None) -> Task:
        work = copy_work(self._device.spec, size, link)
        origin = self._copies.setdefault(name, TaskOrigin(name, NONE32, "SDMA"))
        launch = _Launch(origin, stream, work, size)
        return self._submit("MemcpyAsync", launch, run, thread=thread)

    # Events

    def _record(self, index: int, stream: int, run: Run) -> None:
        launch = _Launch(_EVENT_RECORD, stream, EVENT)
        run.events[index] = self._submit("EventRecord", launch, run)

    def _wait(self, stream: int, run: Run, event: Task) -> None:
        launch = _Launch(_EVENT_WAIT, stream, EVENT)
        self._submit("StreamWaitEvent", launch, run, event=event)

    # Tasks

    def _submit(
        self,
        call_name: str,
        launch: _Launch,
        run: Run,
        *,
        event: Task | None = None,
        rendezvous: Rendezvous | None = None,
        thread: HostThread | None = None,
    ) -> Task:
        """Submit a task by a call on a thread, which is the worker by default."""
        thread = thread or self._host.worker
        op_index = launch.origin.op_index
        with self._host.call(thread, "runtime", call_name, op_index=op_index, step_id=run.step_id) as correlation_id:
            return self._enqueue(thread.now(), correlation_id, launch, run, event, rendezvous)

    def _enqueue(
        self,
        submit_ns: int,
        correlation_id: int,
        launch: _Launch,
        run: Run,
        event: Task | None = None,
        rendezvous: Rendezvous | None = None,
    ) -> Task:
        """Submit a task to its stream."""
        task = self._device.submit(launch.stream, submit_ns, launch.work, event=event, rendezvous=rendezvous)
        self._note(task, correlation_id, launch, run)
        return task

    def _note(self, task: Task, correlation_id: int, launch: _Launch, run: Run) -> None:
        """Add a submitted task to the execution. If tasks are recorded now, it is logged when it is done."""
        execution = run.executions[-1] if run.executions else None
        if self._store.tasks_on or self._truth is not None:
            execution_id = execution.execution_id if execution else NONE32
            task.done = self._when_done
            task.note = launch.origin, launch.size_bytes, correlation_id, run.step_id, execution_id
        if execution is not None and not run.ahead:
            execution.tasks.append(task)

    def log_done(self) -> None:
        """Log the tasks that the device has finished: a run's tasks at once, which takes half the time."""
        tasks = self._finished[:]
        if tasks:
            del self._finished[: len(tasks)]  # another thread may append meanwhile
            self._host.recorder.tasks(self._device, tasks)

    def _log_one(self, task: Task) -> None:
        self._host.recorder.tasks(self._device, [task])
        if self._truth is not None:
            self._truth.task(task)

    def sample(self, name: str, unit: str, ticks: int, value: int) -> None:
        """Log a sampled value of the device."""
        if self._store.tasks_on:
            device = self._device
            self._host.recorder.counter(device.device_id, device.clock.reading(ticks), name, unit, value)
