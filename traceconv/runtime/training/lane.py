"""One device in training. A step has two halves: until all devices have their work, and after that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.runtime.compiled import CompiledModel, check_inputs
from traceconv.runtime.control import ControlFlow
from traceconv.runtime.device import Device, Rendezvous, Task, run_together
from traceconv.runtime.event_log import NONE32, CaptureIds
from traceconv.runtime.execute import Executor
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.launch import Execution, Run
from traceconv.runtime.session import Session
from traceconv.runtime.training.data import TARGET, Batch
from traceconv.runtime.training.plan import TrainingPlan
from traceconv.runtime.truth import DeviceTruth

#: Modelled speed of the host's work on data: bytes per microsecond.
_BYTES_PER_US = {"DataLoad": 4_000, "Augment": 1_000}
_WORK_NS = 2_000

#: The host's steps that prepare a batch: (kind, batch so far → batch).
Work = Callable[[Batch], Batch]
Source = Sequence[tuple[str, Work]]
EMPTY = Batch({}, np.zeros(0, np.int64))


class TimingOnlyExecutor(Executor):
    """Computes nothing: the values of a training step are computed for all devices together."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.kernels = []
        self.control = ControlFlow(plan.program.graph, plan.spec)  # every op runs in one piece


class RendezvousTable:
    """The collectives of several devices, by step and op."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._open: dict[tuple[int, int], Rendezvous] = {}

    def at(self, step: int, op_index: int) -> Rendezvous:
        """Return the rendezvous of a step's op, which all devices share."""
        return self._open.setdefault((step, op_index), Rendezvous(self._devices))

    def forget(self, step: int) -> None:
        """Forget a step that has ended, and earlier ones."""
        for key in [key for key in self._open if key[0] <= step]:
            del self._open[key]


class Lane(Session):
    """A device with its host threads. `begin` and `end` are the two halves of a step.

    points           indices of the op at whose start the forward part begins, and of the one at whose end the
                     backward part ends; None: the first to start, the last to end. `options` comes before them
    parent, modules  as those of `Session`
    """

    def __init__(
        self,
        plan: TrainingPlan,
        host: Host,
        device: Device,
        rendezvous: RendezvousTable,
        *,
        ids: CaptureIds | None = None,
        seed: int = 0,
        truth: DeviceTruth | None = None,
        points: tuple[int | None, int | None] = (None, None),
        parent: Callable[[], int] | None = None,
        modules: bool = False,
    ) -> None:
        model = CompiledModel(plan.program, TimingOnlyExecutor(plan), plan.spec)
        super().__init__(model, host, device, ids=ids, seed=seed, truth=truth, parent=parent, modules=modules)
        if truth is not None:
            truth.phases = {op.index: op.phase for op in plan.program.ops}
        self.plan = plan
        self.batch = EMPTY
        self._rendezvous = rendezvous
        self._points = points
        self._phases = {phase: [op.index for op in plan.ops(phase)] for phase in ("forward", "backward")}
        self._count = 0
        self._half: Iterator[None] | None = None
        self._last: Task | None = None
        self._announced: tuple[Run, Batch] | None = None
        self._loss: dict[str, Array] = {}

    def stopped(self) -> AbstractContextManager[None]:
        """Stop all host clocks, for emulation."""
        return self._host.stopped()

    @property
    def waits(self) -> tuple[Device, Task]:
        """The device and the task that the current step waits for."""
        assert self._last is not None
        return self._device, self._last

    def begin(self, source: Source, *, step: bool = True, then: Source | None = None, then_step: bool = True) -> None:
        """Copy a batch to the device and launch the training step on `batch`.

        source  the host's work that prepares the batch, unless the previous call did so
        step    whether the step is an iteration, not a warm-up
        then    the work for the next batch, which is prepared and copied while the device computes
        """
        self._half = self._step_in_halves(source, step, then, then_step)
        next(self._half)

    def end(self, loss: float) -> None:
        """Wait for the device, which must have reached the end of the step, and copy the loss from it."""
        half, self._half = self._half, None
        assert half is not None
        name = self.plan.program.downloads[0]
        tensor = self.plan.program.graph.tensors[name]
        self._loss = {name: np.full(tensor.shape, loss, tensor.numpy_dtype)}
        next(half, None)

    def _step_in_halves(self, source: Source, step: bool, then: Source | None, then_step: bool) -> Iterator[None]:
        host, thread = self._host, self._host.channel
        run, self.batch = self._announced or self._loaded(source, step)
        self._announced = None
        run.rendezvous = partial(self._rendezvous.at, self._count)
        self._count += 1
        try:
            with self._ranges.inference(run) as run.span_id:
                self._hand(run)
                if then is not None:
                    self._announced = self._loaded(then, then_step)
                    self._hand_inputs(self._announced[0], ahead=True)
                calls = ("acl", "aclrtSynchronizeStream"), ("runtime", "StreamSynchronize")
                with host.calls(*calls, step_id=run.step_id):
                    host.drain()
                    self._last = self._device.last[self._plan.copy_out]
                    yield
                    with host.stopped():
                        done_ns = self._device.done_ns(self._last)
                    host.wait_for_device(self._device, thread, done_ns, run.step_id)
                self._finish(run, self._loss)
        except BaseException:
            self._recover(run)
            raise
        if step:
            self._mark_step(run)

    def _loaded(self, source: Source, step: bool) -> tuple[Run, Batch]:
        """Prepare a batch; return its training run, and the batch."""
        thread, batch = self._host.channel, EMPTY
        step_id = next(self._ids.steps) if step else NONE32
        for kind, work in source:
            with self._ranges.host_op(kind, step_id):
                batch = work(batch)
                # Real time has passed already; modelled time is spent here.
                thread.spend(_WORK_NS + batch.size_bytes * 1_000 // _BYTES_PER_US.get(kind, 1_000))
        self.plan.loss.check(batch.target)
        inputs = check_inputs(self.model, {**batch.inputs, TARGET: batch.target})
        execution = Execution(next(self._ids.executions), 0)
        return Run(inputs, inputs, step_id, self._random.bits64() >> 1 | 1, [execution]), batch

    def _inner_marks(self, run: Run) -> dict[str, int]:
        tasks = run.op_tasks
        fp, bp = self._points
        fp = fp if self.options.fp_op is None else self.options.fp_op
        bp = bp if self.options.bp_op is None else self.options.bp_op
        forward = [tasks[index].span[0] for index in (self._phases["forward"] if fp is None else [fp])]
        backward = [tasks[index].span[1] for index in (self._phases["backward"] if bp is None else [bp])]
        marks = {"fp_start": min(forward), "bp_end": max(backward)}
        if run.loads:
            marks["get_next_start"] = min(task.span[0] for task in run.loads)
            marks["get_next_end"] = max(task.span[1] for task in run.loads)
        return marks


def move_on(lanes: Sequence[Lane]) -> None:
    """Move the devices to the end of a step that has begun on all of them."""
    run_together([lane.waits for lane in lanes])


def find_points(plan: TrainingPlan, fp_point: str | None, bp_point: str | None) -> tuple[int | None, int | None]:
    """Return the indices of the ops that mark where the forward part begins and the backward part ends.

    Each is the name of an op of that part, or of a node of the model: then its first op, or the last of its
    gradients. Raises UsageError for a name that is neither.
    """
    points = (option("--fp-point"), "forward", fp_point), (option("--bp-point"), "backward", bp_point)
    fp, bp = (_point(plan, *point) for point in points)
    return fp, bp


def _point(plan: TrainingPlan, written: str, phase: str, name: str | None) -> int | None:
    if name is None:
        return None
    ops = plan.ops(phase)
    found = [op.index for op in ops if op.name == name] or [
        op.index for op in ops if name in (node.name for node in op.originals)
    ]
    if not found:
        names: Mapping[str, None] = dict.fromkeys(
            name for op in ops for name in (op.name, *(node.name for node in op.originals))
        )
        near = suggestion(name, list(names))
        of = f"no {phase} op of {plan.program.graph.name} has this name"
        raise UsageError(f"{written} {printable(name, 80)}: {of}.{near}")
    return found[0] if phase == "forward" else found[-1]
