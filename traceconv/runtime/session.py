"""A model on the reference NPU: loaded once, run many times, with each run logged as a device would log it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from traceconv.base.errors import InputError, TraceconvError
from traceconv.runtime.clock import HostThread, Random
from traceconv.runtime.compiled import MODEL_ID, CompiledModel, check_inputs
from traceconv.runtime.control_bodies import Flow
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import NONE32, CaptureIds
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.launch import Execution, Launcher, Run
from traceconv.runtime.lower import HostOp
from traceconv.runtime.memory import Allocator, Block, MemoryEvent, use_of
from traceconv.runtime.ranges import RangeLog, moves_between, scopes_of
from traceconv.runtime.schedule import schedule
from traceconv.runtime.step_marks import StepMarks
from traceconv.runtime.truth import DeviceTruth

#: Weights are copied to the device in pieces of this size.
_WEIGHT_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How runs are marked and sampled.

    fp_op, bp_op  index of the op that begins the forward part of a step, and of the one that ends its backward part;
                  None: the first to start; no backward part
    group         runs of one group form one step; None: each run is a step
    sample_rate   memory in use is sampled after this many ops; 0: by device time
    compute       whether kernels are computed; otherwise outputs are all zeros
    """

    fp_op: int | None = None
    bp_op: int | None = None
    group: int | None = None
    sample_rate: int = 0
    compute: bool = True


class Session:
    """A compiled model on one device. Use it as a context manager, or call `open` and `close`.

    fetch    tensors that the host reads as soon as they are produced, which stalls it in each run
    parent   returns the number of the range around a run; None: the latest one of `record`
    modules  whether the modules of the model are logged as ranges, on the channel and on the worker

    `options` may be changed between runs.
    """

    def __init__(
        self,
        model: CompiledModel,
        host: Host,
        device: Device,
        *,
        ids: CaptureIds | None = None,
        seed: int = 0,
        fetch: Sequence[str] = (),
        truth: DeviceTruth | None = None,
        parent: Callable[[], int] | None = None,
        modules: bool = False,
    ) -> None:
        self.model = model
        self.options = RunOptions()
        self._host = host
        self._device = device
        self._ids = ids or CaptureIds()
        self._truth = truth
        store = host.recorder.store
        self._fetch = tuple(fetch)
        self._plan = schedule(model.program, model.spec, self._fetch)
        log = host.recorder.memory_log(device.device_id) if truth is None else self._log_memory
        self._memory = Allocator(
            model.spec.memory_bytes, log, self._ids.blocks, lambda: store.memory_on or truth is not None
        )
        self._launcher = Launcher(model.program, self._plan, host, device, self._memory, truth)
        self._ranges = RangeLog(host, device, self._ids, parent)
        self.marks = StepMarks(host.recorder, device, self._ids)
        #: Index of an op, or their number → the modules that are left and entered before it, if modules are logged.
        self._moves = moves_between([scopes_of(op.scope_path) for op in model.program.ops]) if modules else {}
        self._random = Random(seed)
        self._weights: list[Block] = []
        self._next: Run | None = None
        self._op_bytes = sum(tensor.size_bytes for op in model.program.ops for tensor in (*op.operands, *op.writes))

    def __enter__(self) -> Session:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()

    # Life

    def open(self) -> None:
        """Set up the device and copy the weights to it."""
        host, thread, device = self._host, self._host.channel, self._device
        host.recorder.device(self.model.spec, device.device_id, self._plan.stream_names)
        host.compare_clocks(device, thread)
        host.call_all("aclInit", "aclrtSetDevice", *("aclrtCreateStream" for _ in self._plan.stream_names))
        self._sample_frequency(device.clock.ticks_after(thread.now()))
        with host.calls(("acl", "aclmdlLoadFromFile"), ("model", "ModelLoad")):
            self._load_weights(thread)

    def close(self) -> None:
        """Unload the model and compare the clocks a last time."""
        host, thread = self._host, self._host.channel
        with host.call(thread, "acl", "aclmdlUnload"):
            for block in self._weights:
                host.compare_clocks(self._device, thread)
                self._memory.free(block, host.price_alloc(thread))
            self._weights.clear()
            self._memory.release(host.price_alloc(thread))
            self._log_rest()
        destroyed = ("aclrtDestroyStream" for _ in self._plan.stream_names)
        host.call_all(*destroyed, "aclrtResetDevice", "aclFinalize")
        host.compare_clocks(self._device, thread, now=True)

    def _load_weights(self, thread: HostThread) -> None:
        host, graph = self._host, self.model.program.graph
        total = 0
        for name in (*graph.constants, *self.model.program.state):
            host.compare_clocks(self._device, thread)
            size = graph.tensors[name].size_bytes
            total += size
            now_ns = host.price_alloc(thread)
            self._weights.append(self._memory.alloc(size, use_of("weight", "weight", name), now_ns))
        loading = Run(None, {}, NONE32, 0, [])
        for done in range(0, total, _WEIGHT_CHUNK_BYTES):
            self._launcher.weights(min(_WEIGHT_CHUNK_BYTES, total - done), loading)
        self._synchronize(self._plan.copy_in, NONE32)

    def _log_rest(self) -> None:
        """Log what was only collected so far, for speed. Called before a run continues or ends."""
        self._launcher.log_done()

    def _log_memory(self, *fields: Any) -> None:
        event = MemoryEvent(*fields)
        self._host.recorder.memory([event], self._device.device_id)
        if self._truth is not None:
            self._truth.memory(event)

    @property
    def stream_names(self) -> dict[int, str]:
        """Number and name of every stream."""
        return self._plan.stream_names

    def held_memory(self, now_ns: int) -> list[MemoryEvent]:
        """Return everything that is allocated on the device, as allocations at `now_ns`."""
        return list(self._memory.held(now_ns))

    # Runs

    def record(self, name: str, args: str = "") -> AbstractContextManager[int]:
        """A labelled range of the log around a block of runs."""
        return self._ranges.label(name, args)

    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        step: bool = True,
        then: Mapping[str, Array] | None = None,
        then_step: bool = True,
    ) -> dict[str, Array]:
        """Return the outputs by name, as onnxruntime computes them, and the tensors of `fetch`.

        step   whether the run counts as an iteration; a warm-up does not
        then   inputs of the next run, if they are already known: they are copied to the device while this run computes.
               The next call must come before `close`, and pass the same object and `then_step` as its `step`.

        Raises InputError for inputs that the model does not take.
        """
        announced = self._next
        if announced is not None and (announced.given is not inputs or (announced.step_id != NONE32) != step):
            raise InputError(f"{self.model.name}: other inputs were announced for this run; pass those given as `then`")
        self._launcher.sample_rate = self.options.sample_rate
        run = announced or self._prepare(inputs, step)
        self._next = None
        following = None if then is None else self._prepare(then, then_step)
        try:
            outputs = self._run(run, following)
        except BaseException:
            self._recover(run)
            raise
        if step:
            self._mark_step(run)
        return outputs

    def _run(self, run: Run, following: Run | None) -> dict[str, Array]:
        computed: dict[str, Array] = {}
        if self.model.executor.control.controls:
            with self._host.stopped():
                computed = self._compute(run)
            self._host.recorder.inner_ops(self.model.spec, self.model.program, MODEL_ID)
        with self._ranges.inference(run) as run.span_id:
            self._hand(run)
            if following is not None:
                self._hand_inputs(following, ahead=True)
                self._next = following
            values = self._synchronize(self._plan.copy_out, run.step_id, lambda: computed or self._compute(run))
            return self._finish(run, values)

    def _compute(self, run: Run) -> dict[str, Array]:
        """Return the outputs, and set what each op of control flow launches, which follows from values."""
        control = self.model.executor.control
        if self.options.compute or control.controls:
            flows: dict[int, Flow] = {}
            values = self.model.executor.run(run.inputs, self._fetch, flows)
            run.trips = {index: list(control.launched(index, flow)) for index, flow in flows.items()}
            if self.options.compute:
                return values
        tensors = self.model.program.graph.tensors
        names = [*self.model.program.graph.outputs, *self._fetch]
        return {name: np.zeros(tensors[name].shape, tensors[name].numpy_dtype) for name in names}

    def _recover(self, run: Run) -> None:
        """After a failed run: let the device finish its tasks, and free their memory."""
        with suppress(TraceconvError):  # the original error is being raised
            self._host.drain()
        with self._host.stopped():
            self._device.run_all()
        for block in run.blocks.values():
            self._memory.free(block, self._host.price_alloc(self._host.channel))
        run.blocks.clear()
        tasks = [task for execution in run.executions for task in execution.tasks]
        starts = [task.start for task in tasks if task.start is not None]
        if run.step_id != NONE32 and starts:
            self.marks.put(run.step_id, {"start": min(starts)})  # a step without an end, for its tasks
        self._log_rest()

    def _prepare(self, inputs: Mapping[str, Array], step: bool) -> Run:
        return Run(
            inputs,
            check_inputs(self.model, inputs),
            self.marks.step_id(self.options.group) if step else NONE32,
            self._random.bits64() >> 1 | 1,
            [Execution(next(self._ids.executions), 0)],
        )

    def _hand(self, run: Run) -> None:
        """Have the worker launch a run, with its copies."""
        if not run.handed:
            self._hand_inputs(run)
        self._hand_ops(run)
        with self._host.calls(("acl", "aclrtMemcpyAsync"), ("model", "OutputCopy"), step_id=run.step_id):
            self._host.hand_over(partial(self._launcher.fetch, self._plan.stores, run, "Store"))

    def _hand_inputs(self, run: Run, *, ahead: bool = False) -> None:
        """Have the worker convert the inputs and copy them to the device. `ahead`: during the previous run."""
        host, program = self._host, self.model.program
        run.handed = True
        host.hand_over(partial(setattr, run, "ahead", ahead))
        for index, op in enumerate(program.host_before):
            host.hand_over(partial(self._on_host, run, host.worker, op, index, run.inputs))
        for name in program.uploads:
            with host.calls(("acl", "aclrtMemcpyAsync"), ("model", "InputCopy"), step_id=run.step_id):
                host.hand_over(partial(self._launcher.load, name, run))
        host.hand_over(partial(self._launcher.loaded, run))
        host.hand_over(partial(setattr, run, "ahead", False))

    def _hand_ops(self, run: Run) -> None:
        host, program = self._host, self.model.program
        with host.calls(("acl", "aclmdlExecuteAsync"), ("model", "ModelExecute"), step_id=run.step_id):
            moves = self._moves if host.recorder.store.calls_on else {}
            change, follow = (self._ranges.modules(thread, run) for thread in (host.channel, host.worker))
            dispatch, launch = host.dispatcher(run.step_id), self._launcher.op
            for op in program.ops:
                if self._plan.host_reads:
                    self._read_values(op.index, run)
                if op.index in moves:
                    leave, paths = moves[op.index]
                    change(leave, paths)
                    # A hand-over of its own would take longer than this.
                    work = partial(self._launcher.op_in_modules, follow, leave, paths, op, run)
                else:
                    work = partial(launch, op, run)
                index = NONE32 if op.is_collective else op.index  # collectives are not ops of the model
                dispatch(index, work)
                if op.index in run.trips:
                    for inner, name in run.trips[op.index]:
                        dispatch(inner.index, partial(self._launcher.inner, inner, name, op, run))
                    host.hand_over(partial(self._launcher.finish, op, run))
            if len(program.ops) in moves:
                change(*moves[len(program.ops)])
                host.hand_over(partial(follow, *moves[len(program.ops)]))
            self._read_values(len(program.ops), run)

    def _read_values(self, index: int, run: Run) -> None:
        """Stall the channel until the device returns the values that the next op depends on."""
        copy = self._plan.host_reads.get(index)
        if copy is None:
            return
        with self._host.call(self._host.channel, "acl", "aclrtMemcpy", step_id=run.step_id):
            self._host.hand_over(partial(self._launcher.fetch, copy, run, "MemcpyD2H"))
            self._synchronize(self._plan.copy_out, run.step_id)
        run.executions.append(Execution(next(self._ids.executions), run.execution.index + 1))

    def _synchronize(
        self, stream_id: int, step_id: int, emulate: Callable[[], dict[str, Array]] = dict
    ) -> dict[str, Array]:
        """Wait for a stream. The device's work until then is emulated here, while the clocks are stopped."""
        host, device, thread = self._host, self._device, self._host.channel
        with host.calls(("acl", "aclrtSynchronizeStream"), ("runtime", "StreamSynchronize"), step_id=step_id):
            host.drain()
            last = device.last.get(stream_id)
            with host.stopped():
                results = emulate()
                done_ns = None if last is None else device.done_ns(last)
                self._log_rest()
            if done_ns is not None:
                host.wait_for_device(device, thread, done_ns, step_id)
        return results

    def _finish(self, run: Run, values: dict[str, Array]) -> dict[str, Array]:
        host, thread, program = self._host, self._host.channel, self.model.program
        for execution in run.executions:
            self._ranges.execution(run, execution)
        for index, op in enumerate(program.host_after, len(program.host_before)):
            self._on_host(run, thread, op, index, values)
        for block in run.blocks.values():
            self._memory.free(block, host.price_alloc(thread))
        if self._truth is not None:
            self._truth.run(run.step_id, run.trace_id, [execution.execution_id for execution in run.executions])
        self._log_rest()
        return values

    def _on_host(self, run: Run, thread: HostThread, op: HostOp, index: int, known: Mapping[str, Array]) -> None:
        """Do the host's work on a tensor."""
        size = op.source.size_bytes + op.result.size_bytes
        with self._ranges.external_op(run, thread, op.kind, index):
            self._host.work_on(thread, op.kind, size, partial(_rewrite, op, known))

    # Device: marks and samples

    def _sample_frequency(self, ticks: int) -> None:
        spec, throttled_at = self._device.spec, self._device.throttled_at
        percent = 100 if throttled_at is None or ticks < throttled_at else spec.throttled_clock_percent
        self._launcher.sample("AI Core Freq", "MHz", ticks, spec.core_clock_hz * percent // 10**8)

    def _mark_step(self, run: Run) -> None:
        """Log the marks of a step, from its first task that was not launched ahead to its last."""
        device, launcher = self._device, self._launcher
        spans = [execution.span for execution in run.executions if execution.tasks]
        begin, end = min(start for start, _ in spans), max(end for _, end in spans)
        self.marks.put(run.step_id, {"start": begin, "end": end, **self._inner_marks(run)})
        self._sample_frequency(begin)
        if device.throttled_at is not None and begin < device.throttled_at < end:
            self._sample_frequency(device.throttled_at)
        self._sample_frequency(end)
        bytes_per_s = self._op_bytes * device.spec.clock_hz // max(1, end - begin)
        launcher.sample("HBM Bandwidth", "MB/s", end, bytes_per_s // 10**6)

    def _inner_marks(self, run: Run) -> dict[str, int]:
        """Return the marks (ticks) of a step between its start and its end."""
        if not run.op_tasks:
            return {}
        options = self.options
        forward = run.op_tasks if options.fp_op is None else [run.op_tasks[options.fp_op]]
        marks = {"fp_start": min([task.span[0] for task in forward])}
        if options.bp_op is not None:
            marks["bp_end"] = run.op_tasks[options.bp_op].span[1]
        return marks


def _rewrite(op: HostOp, known: Mapping[str, Array]) -> None:
    """Do the work of the host on a tensor: read it, and write a new one."""
    source = known.get(op.source.name)
    if source is None:
        source = np.zeros(op.source.shape, op.source.numpy_dtype)
    source.astype(op.result.numpy_dtype, copy=True)
