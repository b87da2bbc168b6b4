"""A model on the reference NPU: loaded once, run many times, each run logged as a device would log it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from traceconv.errors import InputError, printable
from traceconv.runtime.clock import DeviceClock, HostThread, Random
from traceconv.runtime.cost import copy_ticks, task_ticks
from traceconv.runtime.device import COMPUTE_STREAM, COPY_STREAM, STREAM_NAMES, Device, Slot
from traceconv.runtime.execute import Executor
from traceconv.runtime.fusion import fuse
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.load import load_graph
from traceconv.runtime.lower import DeviceOp, Program, lower
from traceconv.runtime.memory import Allocator, Block
from traceconv.runtime.recorder import NONE32
from traceconv.runtime.spec import DeviceSpec, reference_npu
from traceconv.runtime.zoo import FoundModel, find_model

MODEL_ID = 1
#: Weights go to the device in pieces of this size.
_WEIGHT_CHUNK_BYTES = 64 << 20
#: Least device time between two samples of a counter.
_SAMPLE_NS = 100_000


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A model that is known to run: lowered for a device, with its kernels."""

    program: Program
    executor: Executor
    spec: DeviceSpec

    @property
    def name(self) -> str:
        return self.program.graph.name


def compile_model(
    model: str | FoundModel,
    batch: int | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> CompiledModel:
    """Loads, checks, fuses, lowers and compiles a model: a path, a name of `zoo.model_names()`, or one in memory.

    Dimensions that the model leaves open are those of `inputs`; shapes that depend on values are those that
    `inputs` lead to, or random inputs from `seed`. Raises ModelError for a model that can't be run; nothing has
    been written then.
    """
    found = find_model(model) if isinstance(model, str) else model
    spec = reference_npu()
    program = lower(fuse(load_graph(found.proto, found.name, batch, given=inputs, seed=seed)), spec)
    return CompiledModel(program, Executor(program), spec)


@dataclass(slots=True)
class _Run:
    """State of one run while it is under way."""

    step_id: int
    execution_id: int
    blocks: dict[str, Block] = field(default_factory=dict)
    begin_ticks: int = 0
    first_op_ticks: int | None = None
    end_ticks: int = 0


class Session:
    """A compiled model on one device. Use it as a context manager, or call `open` and `close`."""

    def __init__(self, model: CompiledModel, host: Host, device: Device, *, seed: int = 0) -> None:
        self.model = model
        self._host = host
        self._device = device
        self._memory = Allocator(model.spec.memory_bytes, lambda event: host.recorder.memory(event, device.device_id))
        self._random = Random(seed)
        self._weights: list[Block] = []
        self._steps = 0
        self._executions = 0
        self._spans = 0
        self._open_spans: list[int] = []
        self._next_sample = 0
        self._kept = {model.program.root(name) for name in (*model.program.uploads, *model.program.downloads)}
        self._output_roots = {model.program.root(name) for name in model.program.downloads}
        self._last_use = model.program.last_uses()
        self._ticks = [task_ticks(model.spec, op.cost) for op in model.program.ops]
        self._op_bytes = sum(tensor.size_bytes for op in model.program.ops for tensor in (*op.operands, *op.writes))

    def __enter__(self) -> Session:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()

    # Life

    def open(self) -> None:
        """Sets up the device and puts the weights there."""
        host, thread, recorder = self._host, self._host.channel, self._host.recorder
        recorder.device(self.model.spec, self._device.device_id, STREAM_NAMES)
        recorder.model(self.model.program, MODEL_ID)
        host.compare_clocks(self._device, thread)
        with host.call(thread, "acl", "aclInit"):
            pass
        with host.call(thread, "acl", "aclrtSetDevice"):
            pass
        for _ in STREAM_NAMES:
            with host.call(thread, "acl", "aclrtCreateStream"):
                pass
        self._sample(
            "AI Core Freq", "MHz", self._clock().ticks_after(thread.now()), self.model.spec.core_clock_hz // 10**6
        )
        with host.call(thread, "acl", "aclmdlLoadFromFile"), host.call(thread, "model", "ModelLoad"):
            self._load_weights(thread)

    def close(self) -> None:
        """Takes the model off the device and compares the clocks a last time."""
        host, thread = self._host, self._host.channel
        with host.call(thread, "acl", "aclmdlUnload"):
            for block in self._weights:
                host.compare_clocks(self._device, thread)
                self._memory.free(block, host.price_alloc(thread))
            self._weights.clear()
            self._memory.release(host.price_alloc(thread))
        for _ in STREAM_NAMES:
            with host.call(thread, "acl", "aclrtDestroyStream"):
                pass
        with host.call(thread, "acl", "aclrtResetDevice"):
            pass
        with host.call(thread, "acl", "aclFinalize"):
            pass
        host.compare_clocks(self._device, thread, now=True)

    def _load_weights(self, thread: HostThread) -> None:
        host, graph = self._host, self.model.program.graph
        total = 0
        for name in graph.constants:
            host.compare_clocks(self._device, thread)
            size = graph.tensors[name].size_bytes
            total += size
            self._weights.append(
                self._memory.alloc(
                    size, pool="weight", purpose="weight", tensor=name, op=None, now_ns=host.price_alloc(thread)
                )
            )
        for done in range(0, total, _WEIGHT_CHUNK_BYTES):
            self._copy(thread, "MemcpyH2D", min(_WEIGHT_CHUNK_BYTES, total - done), _Run(NONE32, NONE32))
        self._synchronize(thread, COPY_STREAM, NONE32)

    # Ranges

    @contextmanager
    def record(self, name: str, args: str = "") -> Iterator[None]:
        """A labelled range of the log around whatever is run inside."""
        with self._range("annotation", name, "annotation", args, 0, NONE32):
            yield

    @contextmanager
    def _range(self, kind: str, name: str, category: str, args: str, trace_id: int, step_id: int) -> Iterator[None]:
        thread, recorder = self._host.channel, self._host.recorder
        self._spans += 1
        span_id = self._spans
        parent = self._open_spans[-1] if self._open_spans else 0
        thread.spend(100)
        recorder.range_begin(
            thread.now(), span_id, parent, trace_id, name, category, args, thread.thread_id, step_id, kind
        )
        self._open_spans.append(span_id)
        thread.spend(100)
        yield
        thread.spend(100)
        self._open_spans.pop()
        recorder.range_end(thread.now(), span_id, thread.thread_id, kind)
        thread.spend(100)

    # Runs

    def run(self, inputs: Mapping[str, Array], *, step: bool = True) -> dict[str, Array]:
        """Outputs by name, as onnxruntime gives them for the model.

        `step`: whether the run counts as an iteration; a warm-up does not. Raises InputError for inputs that
        the model does not take.
        """
        checked = check_inputs(self.model, inputs)
        self._executions += 1
        if not step:
            return self._run(checked, _Run(NONE32, self._executions))
        self._steps += 1
        run = _Run(self._steps, self._executions)
        trace_id = self._random.bits64() >> 1 | 1
        with self._range("inference", "Inference", "Runtime", "", trace_id, run.step_id):
            outputs = self._run(checked, run)
        self._mark_step(run)
        return outputs

    def _run(self, inputs: dict[str, Array], run: _Run) -> dict[str, Array]:
        host, thread, program = self._host, self._host.channel, self.model.program
        arrived: list[Slot] = []
        for name in program.uploads:
            self._hand_copy(thread, "InputCopy", run, partial(self._input, name, run))
        self._hand_event(thread, run, COPY_STREAM, COMPUTE_STREAM, arrived)
        with (
            host.call(thread, "acl", "aclmdlExecuteAsync", step_id=run.step_id),
            host.call(thread, "model", "ModelExecute", step_id=run.step_id),
        ):
            for op in program.ops:
                with host.call(thread, "node", "OpDispatch", op_index=op.index, step_id=run.step_id):
                    host.hand_over(partial(self._launch, op, run))
        self._hand_event(thread, run, COMPUTE_STREAM, COPY_STREAM, arrived)
        for name in program.downloads:
            self._hand_copy(thread, "OutputCopy", run, partial(self._output, name, run))
        outputs = self._synchronize(thread, COPY_STREAM, run.step_id, lambda: self.model.executor.run(inputs))
        for block in run.blocks.values():
            self._memory.free(block, host.price_alloc(thread))
        run.end_ticks = self._device.free_at[COPY_STREAM]
        return outputs

    def _hand_copy(self, thread: HostThread, name: str, run: _Run, work: Callable[[], None]) -> None:
        host = self._host
        with (
            host.call(thread, "acl", "aclrtMemcpyAsync", step_id=run.step_id),
            host.call(thread, "model", name, step_id=run.step_id),
        ):
            host.hand_over(work)

    def _hand_event(self, thread: HostThread, run: _Run, source: int, target: int, passed: list[Slot]) -> None:
        """An event recorded on one stream and waited for on another."""
        host = self._host
        with host.call(thread, "acl", "aclrtRecordEvent", step_id=run.step_id):
            host.hand_over(lambda: passed.append(self._event("EventRecord", "EVENT_RECORD", source, run, None)))
        with host.call(thread, "acl", "aclrtStreamWaitEvent", step_id=run.step_id):
            host.hand_over(lambda: self._wait(target, run, passed[-1]))

    def _wait(self, stream: int, run: _Run, event: Slot) -> None:
        self._event("StreamWaitEvent", "EVENT_WAIT", stream, run, event)

    def _synchronize(
        self,
        thread: HostThread,
        stream_id: int,
        step_id: int,
        emulate: Callable[[], dict[str, Array]] = dict,
    ) -> dict[str, Array]:
        """Waits for a stream; what the device computed until then is computed here, in no time."""
        host = self._host
        with (
            host.call(thread, "acl", "aclrtSynchronizeStream", step_id=step_id),
            host.call(thread, "runtime", "StreamSynchronize", step_id=step_id),
        ):
            host.drain()
            with host.stopped():
                results = emulate()
            host.wait_for_device(self._device, thread, self._device.idle_ns(stream_id))
        return results

    # Worker: launches

    def _launch(self, op: DeviceOp, run: _Run) -> None:
        host, thread = self._host, self._host.worker
        program = self.model.program
        with host.call(thread, "node", "launch", op_index=op.index, step_id=run.step_id):
            for tensor in op.writes:
                root = program.root(tensor.name)
                if root not in run.blocks:
                    purpose = "output" if root in self._output_roots else "activation"
                    self._alloc(run, root, tensor.size_bytes, purpose, op.index, thread)
            scratch = None
            if op.cost.workspace_bytes:
                scratch = self._memory.alloc(
                    op.cost.workspace_bytes,
                    pool="dynamic",
                    purpose="workspace",
                    tensor=None,
                    op=op.index,
                    now_ns=host.price_alloc(thread),
                )
            with host.call(thread, "runtime", "LaunchKernel", op_index=op.index, step_id=run.step_id) as call:
                slot = self._device.submit(COMPUTE_STREAM, thread.now(), self._ticks[op.index])
                host.recorder.task(
                    self._device.device_id, slot, COMPUTE_STREAM, op.core, call.correlation_id,
                    op=op, step_id=run.step_id, execution_id=run.execution_id,
                )  # fmt: skip
        if run.first_op_ticks is None:
            run.first_op_ticks = slot.start
        # Whatever is launched later runs later: memory that this op reads last can be given to it.
        if scratch is not None:
            self._memory.free(scratch, host.price_alloc(thread))
        for name in self._last_use.get(op.index, ()):
            if name not in self._kept:
                self._memory.free(run.blocks.pop(name), host.price_alloc(thread))
        if slot.end >= self._next_sample:
            self._sample("HBM Used", "byte", slot.end, self._memory.used_bytes)
            self._next_sample = slot.end + self._clock().clock_hz * _SAMPLE_NS // 10**9
        host.compare_clocks(self._device, thread)

    def _alloc(self, run: _Run, root: str, size: int, purpose: str, op: int | None, thread: HostThread) -> None:
        now_ns = self._host.price_alloc(thread)
        run.blocks[root] = self._memory.alloc(size, pool="dynamic", purpose=purpose, tensor=root, op=op, now_ns=now_ns)

    def _input(self, name: str, run: _Run) -> None:
        size = self.model.program.graph.tensors[name].size_bytes
        self._alloc(run, name, size, "input", None, self._host.worker)
        slot = self._copy(self._host.worker, "MemcpyH2D", size, run)
        run.begin_ticks = run.begin_ticks or slot.start

    def _output(self, name: str, run: _Run) -> None:
        self._copy(self._host.worker, "MemcpyD2H", self.model.program.graph.tensors[name].size_bytes, run)

    def _copy(self, thread: HostThread, name: str, size: int, run: _Run) -> Slot:
        host, device = self._host, self._device
        with host.call(thread, "runtime", "MemcpyAsync", step_id=run.step_id) as call:
            slot = device.submit(COPY_STREAM, thread.now(), copy_ticks(device.spec, size))
            host.recorder.task(
                device.device_id, slot, COPY_STREAM, "SDMA", call.correlation_id,
                name=name, size_bytes=size, step_id=run.step_id, execution_id=run.execution_id,
            )  # fmt: skip
        return slot

    def _event(self, call_name: str, task_type: str, stream: int, run: _Run, event: Slot | None) -> Slot:
        """Records an event on a stream, or waits there for `event`."""
        host, device, thread = self._host, self._device, self._host.worker
        with host.call(thread, "runtime", call_name, step_id=run.step_id) as call:
            if event is None:
                slot = device.record_event(stream, thread.now())
            else:
                slot = device.wait_event(stream, thread.now(), event)
            host.recorder.task(
                device.device_id, slot, stream, task_type, call.correlation_id,
                name=task_type, step_id=run.step_id, execution_id=run.execution_id,
            )  # fmt: skip
        return slot

    # Device: marks and samples

    def _clock(self) -> DeviceClock:
        return self._device.clock

    def _sample(self, name: str, unit: str, ticks: int, value: int) -> None:
        self._host.recorder.counter(self._device.device_id, ticks, name, unit, value)

    def _mark_step(self, run: _Run) -> None:
        recorder, device = self._host.recorder, self._device
        begin = run.begin_ticks or run.first_op_ticks or run.end_ticks
        marks = [("start", begin), ("fp_start", run.first_op_ticks), ("end", run.end_ticks)]
        for mark, ticks in marks:
            if ticks is not None:
                recorder.step_mark(device.device_id, ticks, run.step_id, MODEL_ID, run.step_id, mark)
        for ticks in (begin, run.end_ticks):
            self._sample("AI Core Freq", "MHz", ticks, device.spec.core_clock_hz // 10**6)
        bytes_per_s = self._op_bytes * device.spec.clock_hz // max(1, run.end_ticks - begin)
        self._sample("HBM Bandwidth", "MB/s", run.end_ticks, bytes_per_s // 10**6)


def check_inputs(model: CompiledModel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """`inputs` as the model takes them. Raises InputError for a missing, unknown or misshapen one."""
    graph = model.program.graph
    unknown = sorted(set(inputs) - set(graph.inputs))
    if unknown:
        takes = ", ".join(printable(name, 60) for name in graph.inputs) or "none"
        raise InputError(f"{model.name} has no input '{printable(unknown[0], 60)}'; it takes: {takes}")
    checked: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        value = inputs.get(name)
        if value is None:
            raise InputError(f"{model.name} needs an input '{printable(name, 60)}' of shape {list(tensor.shape)}")
        if tuple(value.shape) != tensor.shape or value.dtype != tensor.numpy_dtype:
            raise InputError(
                f"input '{printable(name, 60)}' of {model.name} is {tensor.numpy_dtype} {list(tensor.shape)}, "
                f"but what was given is {value.dtype} {list(value.shape)}"
            )
        checked[name] = np.ascontiguousarray(value).reshape(tensor.shape)
    return checked
