"""What the worker thread does: launches tasks and copies on a device's streams, and keeps its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from traceconv.runtime import device as dev
from traceconv.runtime.cost import Cost, ceil_div, copy_ticks, memory_cycles, task_ticks
from traceconv.runtime.device import EVENT, Device, Meeting, Task, Work
from traceconv.runtime.event_log import CALL_IN_CALL, TaskKey, pack_call
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.memory import Allocator, Block
from traceconv.runtime.recorder import NONE32
from traceconv.runtime.schedule import INPUTS, Copy, Schedule
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.truth import DeviceTruth

#: Least device time between two samples of a counter.
_SAMPLE_NS = 100_000
#: Core type in the log → what it takes of which cores: those of block_count, those of mix_block_count.
_CORES = {
    "AI_CORE": (dev.CUBE, None),
    "AI_VECTOR_CORE": (dev.VECTOR, None),
    "AI_CPU": (dev.CPU, None),
    "MIX_AIC": (dev.CUBE, dev.VECTOR),
    "MIX_AIV": (dev.VECTOR, dev.CUBE),
}


@dataclass(slots=True)
class Execution:
    """A part of an inference that the device runs without the host: number in the capture, place in the inference.

    `tasks` leaves out copies that were made ahead, while the inference before it was running.
    """

    execution_id: int
    index: int
    tasks: list[Task] = field(default_factory=list)

    @property
    def span(self) -> tuple[int, int]:
        """From the start of its first task to the end of its last, once all are done."""
        spans = [task.span for task in self.tasks]
        return min(spans)[0], max([end for _, end in spans])


@dataclass(slots=True)
class Run:
    """State of one run of the model while it is under way.

    `given`: the inputs as the caller has them. `handed`: the worker has been told to bring them to the device.
    `ahead`: what is launched now comes before the inference begins; belongs to the worker. `meet`: where
    the collective with an op's index meets those of other devices. `loads`: the copies of the inputs.
    """

    given: object
    inputs: dict[str, Array]
    step_id: int
    trace_id: int
    executions: list[Execution]
    handed: bool = False
    ahead: bool = False
    span_id: int = 0
    meet: Callable[[int], Meeting] | None = None
    loads: list[Task] = field(default_factory=list)
    blocks: dict[str, Block] = field(default_factory=dict)
    events: dict[int, Task] = field(default_factory=dict)
    op_tasks: list[Task] = field(default_factory=list)

    @property
    def execution(self) -> Execution:
        """The one that is being launched."""
        return self.executions[-1]


def op_work(spec: DeviceSpec, op: DeviceOp) -> Work:
    """What an op needs: cores, its bytes from device memory, and what its cores read by way of L2."""
    ticks = max(1, task_ticks(spec, op.cost))
    if op.is_collective:
        # What others send is added to what is here and stored; then it is sent on, and the sums come back.
        moved = 4 * sum(tensor.size_bytes for tensor in op.reads)
        return Work(ticks, ((dev.HBM, dev.bandwidth(moved, ticks)),))
    unique_bytes = sum(tensor.size_bytes for tensor in (*op.operands, *op.writes, *op.updates))
    demands = [(dev.HBM, dev.bandwidth(unique_bytes, ticks)), (dev.L2, dev.bandwidth(_l2_bytes(op.cost), ticks))]
    blocks, mix_blocks = _CORES[op.core]
    demands.append((blocks, op.cost.block_count))
    if mix_blocks is not None:
        demands.append((mix_blocks, op.cost.mix_block_count))
    return Work(ticks, tuple(demands))


def _l2_bytes(cost: Cost) -> int:
    """What mte2 of all cores brings in."""
    moved = 0
    if cost.cube is not None:
        work, row_bytes = cost.cube.work, cost.cube.k_fractals * 32
        moved += cost.cube.tiles * (ceil_div(cost.cube.m0 * row_bytes, work.reuse) + cost.cube.n0 * row_bytes)
    if cost.vector is not None:
        moved += cost.vector.work.in_bytes
    return moved


def copy_work(spec: DeviceSpec, size_bytes: int, link: int) -> Work:
    """What a copy over a link to the host needs; it is no faster than the device's memory."""
    memory_ticks = ceil_div(memory_cycles(spec, size_bytes) * spec.clock_hz, spec.core_clock_hz)
    ticks = max(1, copy_ticks(spec, size_bytes), memory_ticks)
    return Work(ticks, ((link, 1), (dev.HBM, dev.bandwidth(size_bytes, ticks))))


class Launcher:
    """Launches on one device. Every method runs on the worker thread, but for `weights`."""

    def __init__(
        self, program: Program, plan: Schedule, host: Host, device: Device, memory: Allocator, truth: DeviceTruth | None
    ) -> None:
        self._program = program
        self._plan = plan
        self._host = host
        self._device = device
        self._memory = memory
        self._truth = truth
        self._work = [op_work(device.spec, op) for op in program.ops]
        self._output_roots = {program.root(name) for name in program.downloads}
        self._store = host.recorder.store
        #: Tasks that are done and wait for `log_done`.
        self._finished: list[Task] = []
        # Modelled captures have their texts in the order in which tasks are done on all devices.
        self._when_done = self._finished.append if host.is_live else self._done
        self._op_keys: list[TaskKey] = [(None, op.index, op.core) for op in program.ops]
        self._launch_words: dict[int, int] = {}
        self._next_sample = 0
        #: Memory in use is sampled every so many ops; 0: by device time.
        self.sample_rate = 0
        self._unsampled = 0

    # Ops

    def op(self, op: DeviceOp, run: Run) -> None:
        """Launches an op: waits that it needs, memory, the task, an event behind it for others."""
        host, thread = self._host, self._host.worker
        place = self._plan.placements[op.index]
        for index in place.waits:
            self._wait(place.stream, run, run.events[index])
        pool = f"stream {place.stream}"
        if op.is_collective:
            self._collective(op, place.stream, run)
            self._behind(op, run)
            return
        if host.is_live:
            task, scratch = self._launch(op, place.stream, pool, run)
        else:
            with host.call(thread, "node", "launch", op_index=op.index, step_id=run.step_id):
                scratch = self._take(op, pool, run)
                task = self._submit("LaunchKernel", op.core, place.stream, self._work[op.index], run, op=op)
        run.op_tasks.append(task)
        # Blocks go back to the pool of their stream, where whatever takes them runs later.
        if scratch is not None:
            self._memory.free(scratch, host.price_alloc(thread))
        self._behind(op, run)
        if self._sample_due(task):
            self.sample("HBM Used", "byte", task.arrival, self._memory.used_bytes)
        if not host.is_live or host.clocks_are_due(task.submit_ns):
            host.compare_clocks(self._device, thread)

    def _launch(self, op: DeviceOp, stream: int, pool: str, run: Run) -> tuple[Task, Block | None]:
        """The calls that launch an op, with live clocks: both are logged at once, for speed."""
        host, now = self._host, self._host.worker.now
        logged = self._store.calls_on
        begin_ns = now() if logged else 0
        scratch = self._take(op, pool, run)
        correlation_id = next(host.correlations) - 1 if logged else 0
        submit_ns = now()
        task = self._enqueue(submit_ns, correlation_id, op.core, stream, self._work[op.index], run, op=op)
        if logged:
            word = self._launch_words.get(op.index) or self._launch_word(op)
            host.recorder.add_call(pack_call(begin_ns, submit_ns, now(), correlation_id + 1, word, run.step_id))
        return task, scratch

    def _launch_word(self, op: DeviceOp) -> int:
        recorder, thread_id = self._host.recorder, self._host.worker.thread_id
        head = recorder.heads_in_row((("launch", "node"), ("LaunchKernel", "runtime")), thread_id, op.index)
        word = self._launch_words[op.index] = 4 * head + CALL_IN_CALL
        return word

    def _take(self, op: DeviceOp, pool: str, run: Run) -> Block | None:
        """Memory for what an op writes, and its workspace if it needs one, which is returned."""
        for tensor in op.writes:
            root = self._program.root(tensor.name)
            if root not in run.blocks:
                purpose = "output" if root in self._output_roots else "activation"
                run.blocks[root] = self._alloc(tensor.size_bytes, pool, purpose, root, op.index)
        if op.cost.workspace_bytes:
            return self._alloc(op.cost.workspace_bytes, pool, "workspace", None, op.index)
        return None

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

    def _behind(self, op: DeviceOp, run: Run) -> None:
        """What comes after a launch: memory that is given up, an event for other streams."""
        place = self._plan.placements[op.index]
        for name in place.frees:
            self._memory.free(run.blocks.pop(name), self._host.price_alloc(self._host.worker))
        if place.records:
            self._record(op.index, place.stream, run)

    def _collective(self, op: DeviceOp, stream: int, run: Run) -> None:
        """Launches an exchange with the other devices, in place."""
        meeting = None if run.meet is None else run.meet(op.index)
        size = sum(tensor.size_bytes for tensor in op.reads)
        work = self._work[op.index]
        with self._host.call(self._host.worker, "communication", op.op_type, step_id=run.step_id):
            task = self._submit(
                "LaunchKernel", "HCCL", stream, work, run, name=op.name, size_bytes=size, meeting=meeting
            )
        run.op_tasks.append(task)

    def _alloc(self, size_bytes: int, pool: str, purpose: str, tensor: str | None, op: int | None) -> Block:
        now_ns = self._host.price_alloc(self._host.worker)
        return self._memory.alloc(size_bytes, pool=pool, purpose=purpose, tensor=tensor, op=op, now_ns=now_ns)

    # Copies

    def load(self, name: str, run: Run) -> None:
        """Copies an input to the device."""
        size = self._program.graph.tensors[name].size_bytes
        root = self._program.root(name)
        if root not in run.blocks:
            run.blocks[root] = self._alloc(size, "input", "input", root, None)
        run.loads.append(self._copy("Load", size, self._plan.copy_in, dev.LINK_IN, run))

    def loaded(self, run: Run) -> None:
        """Marks that all inputs are on the device."""
        self._record(INPUTS, self._plan.copy_in, run)

    def fetch(self, copy: Copy, run: Run, name: str) -> None:
        """Copies tensors to the host; the tasks are called `name`."""
        for index in copy.waits:
            self._wait(self._plan.copy_out, run, run.events[index])
        for tensor in copy.tensors:
            size = self._program.graph.tensors[tensor].size_bytes
            self._copy(name, size, self._plan.copy_out, dev.LINK_OUT, run)

    def weights(self, size_bytes: int, run: Run) -> None:
        """Copies weights to the device."""
        self._copy("MemcpyH2D", size_bytes, self._plan.copy_in, dev.LINK_IN, run, on_channel=True)

    def _copy(self, name: str, size: int, stream: int, link: int, run: Run, *, on_channel: bool = False) -> Task:
        work = copy_work(self._device.spec, size, link)
        return self._submit("MemcpyAsync", "SDMA", stream, work, run, name=name, size_bytes=size, on_channel=on_channel)

    # Events

    def _record(self, index: int, stream: int, run: Run) -> None:
        run.events[index] = self._submit("EventRecord", "EVENT_RECORD", stream, EVENT, run, name="EVENT_RECORD")

    def _wait(self, stream: int, run: Run, event: Task) -> None:
        self._submit("StreamWaitEvent", "EVENT_WAIT", stream, EVENT, run, name="EVENT_WAIT", event=event)

    # Tasks

    def _submit(
        self,
        call_name: str,
        task_type: str,
        stream: int,
        work: Work,
        run: Run,
        *,
        name: str | None = None,
        size_bytes: int | None = None,
        op: DeviceOp | None = None,
        event: Task | None = None,
        meeting: Meeting | None = None,
        on_channel: bool = False,
    ) -> Task:
        """One call that launches one task."""
        thread = self._host.channel if on_channel else self._host.worker
        op_index = NONE32 if op is None else op.index
        with self._host.call(thread, "runtime", call_name, op_index=op_index, step_id=run.step_id) as call:
            return self._enqueue(
                thread.now(), call.correlation_id, task_type, stream, work, run,
                name=name, size_bytes=size_bytes, op=op, event=event, meeting=meeting,
            )  # fmt: skip

    def _enqueue(
        self,
        submit_ns: int,
        correlation_id: int,
        task_type: str,
        stream: int,
        work: Work,
        run: Run,
        *,
        name: str | None = None,
        size_bytes: int | None = None,
        op: DeviceOp | None = None,
        event: Task | None = None,
        meeting: Meeting | None = None,
    ) -> Task:
        """A task on a stream; it is logged when it is done, if tasks are logged now."""
        execution = run.execution if run.executions else None
        task = self._device.submit(stream, submit_ns, work, event=event, meeting=meeting)
        if self._store.tasks_on or self._truth is not None:
            execution_id = execution.execution_id if execution else NONE32
            task.done = self._when_done
            key = (name, NONE32, task_type) if op is None else self._op_keys[op.index]
            task.note = key, op, size_bytes, correlation_id, run.step_id, execution_id
        if execution is not None and not run.ahead:
            execution.tasks.append(task)
        return task

    def log_done(self) -> None:
        """Logs what the device has done: a run's tasks in one go, which takes half the time of one by one."""
        tasks, log, device = self._finished[:], self._host.recorder, self._device
        if not tasks:
            return
        del self._finished[: len(tasks)]  # another thread may add to the end meanwhile
        jumped = device.clock.jump_ticks and device.now >= device.clock.jump_at
        if self._truth is None and not log.spans_open and not jumped:
            log.tasks(device.device_id, tasks)
        else:
            for task in tasks:
                self._done(task)

    def _done(self, task: Task) -> None:
        """Logs a task that the device has done."""
        device, (start, end) = self._device, task.span
        clock = device.clock
        if end >= clock.jump_at:
            start, end = clock.reading(start), clock.reading(end)
        self._host.recorder.task(device.device_id, task.task_id, task.stream_id, start, end, *task.note)
        if self._truth is not None:
            (name, op_index, task_type), op, _, correlation_id, step_id, execution_id = task.note
            shown = name if op is None else op.name
            self._truth.task(task, shown, task_type, op_index, step_id, execution_id, correlation_id)

    def sample(self, name: str, unit: str, ticks: int, value: int) -> None:
        """A sampled value of the device."""
        if self._store.tasks_on:
            device = self._device
            self._host.recorder.counter(device.device_id, device.clock.reading(ticks), name, unit, value)
