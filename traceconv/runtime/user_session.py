"""`traceconv.Session`: a model on the reference NPU, run from a user's program, profiled or not."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from traceconv.base.errors import InputError, UsageError, printable
from traceconv.runtime import session as engine_module
from traceconv.runtime.clock import LiveThread
from traceconv.runtime.device import Device
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.live import CURRENT_SPAN, PROCESS, SessionLog, Stream
from traceconv.runtime.lower import Program
from traceconv.runtime.memory import MemoryEvent
from traceconv.runtime.session import CompiledModel, RunOptions, compile_model
from traceconv.runtime.spec import DeviceSpec, load_spec, reference_npu
from traceconv.runtime.zoo import FoundModel

if TYPE_CHECKING:
    import onnx


class Session:
    """A model, loaded once and run many times; `run` returns what onnxruntime returns for it.

        with traceconv.Session("resnet50") as session:
            outputs = session.run(session.random_inputs())

    Without a profile nothing is logged. Runs of one session come one after another, whichever thread calls;
    several sessions have a device each and run side by side. Close a session, or use it as a context manager.

    model        path of an .onnx file, the name of a network such as "resnet50", or an onnx.ModelProto
    batch        extent of a first dimension that the model leaves open
    inputs       by name: dimensions that the model leaves open are theirs
    seed         of what is made up where nothing else says: weights of a network without, shapes
    device_spec  TOML file that describes the device; None: the reference NPU
    streams      most streams for ops; None: as the device has
    fetch        tensors that the host reads as soon as they are made; they are among the outputs
    compute      False: kernels are not computed, and all outputs are zeros; all else is the same

    Raises ModelError when the model can't be run, UsageError for an option that is wrong.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | onnx.ModelProto,
        *,
        batch: int | None = None,
        inputs: Mapping[str, Array] | None = None,
        seed: int = 0,
        device_spec: str | os.PathLike[str] | None = None,
        streams: int | None = None,
        fetch: Sequence[str] = (),
        compute: bool = True,
    ) -> None:
        if streams is not None and not 1 <= streams <= 64:
            raise UsageError(f"streams {streams}: must be from 1 to 64")
        if isinstance(fetch, str):
            raise UsageError("fetch must be a list of tensor names")
        spec = reference_npu() if device_spec is None else load_spec(Path(device_spec))
        spec = spec if streams is None else replace(spec, compute_stream_count=streams)
        found: str | FoundModel = os.fspath(model) if isinstance(model, (str, os.PathLike)) else found_model(model)
        compiled = compile_model(found, batch, inputs=inputs, seed=seed, spec=spec)
        self._begin(compiled, tuple(fetch), RunOptions(compute=compute))

    def _begin(self, compiled: CompiledModel, fetch: tuple[str, ...], options: RunOptions) -> None:
        """The rest of making one: threads, a device, the model on it."""
        self._compiled = compiled
        self._model_base, self._op_base = PROCESS.number_model(len(compiled.program.ops))
        self._lock = threading.Lock()
        self._broken: str | None = None
        self.is_open = False
        self._checked: object = None
        device = PROCESS.take_device(compiled.spec)
        worker_id, driver_id = PROCESS.new_threads()
        self._log = SessionLog(PROCESS, op_base=self._op_base, model_base=self._model_base)
        place = device.device_id
        PROCESS.name_thread(worker_id, "worker" if not place else f"worker {place}", 2000 + 2 * place)
        PROCESS.name_thread(driver_id, "device" if not place else f"device {place}", 2001 + 2 * place)
        threads = (
            LiveThread(PROCESS.thread_id(), "channel", PROCESS.clock),
            LiveThread(worker_id, "worker", PROCESS.clock),
            LiveThread(driver_id, "device", PROCESS.clock),
        )
        self._host = Host(self._log, threads, PROCESS.clock, 0, PROCESS.ids.correlations)
        self._device = device
        self._finalizer = weakref.finalize(self, _dismiss, self._host, device)
        self._engine = self._make_engine(compiled, device, fetch)
        self._engine.options = options
        with PROCESS.gate.shared():
            PROCESS.join(self)
            self._engine.open()
            self.is_open = True

    def _make_engine(self, compiled: CompiledModel, device: Device, fetch: tuple[str, ...]) -> engine_module.Session:
        return engine_module.Session(
            compiled, self._host, device, ids=PROCESS.ids, seed=int.from_bytes(os.urandom(8), "little"), fetch=fetch,
            parent=CURRENT_SPAN.get, modules=True,
        )  # fmt: skip

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Use

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._compiled.name

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Inputs by name: (dtype, shape)."""
        graph = self._compiled.program.graph
        return {name: (str(graph.tensors[name].numpy_dtype), tuple(graph.tensors[name].shape)) for name in graph.inputs}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(self._compiled.program.graph.outputs)

    @property
    def op_names(self) -> tuple[str, ...]:
        """Names of the ops that the device runs, in their order."""
        return tuple(op.name for op in self._compiled.program.ops)

    def stream(self, stream: object) -> Stream:
        """A stream by number or by name, such as 0 or "compute 0": for `traceconv.span("name", stream=…)`.

        Raises UsageError when the model uses no such stream.
        """
        for number, name in self.stream_names.items():
            if stream in (number, name) and not isinstance(stream, bool):
                return Stream(self.device_id, number)
        known = ", ".join(f"{number} ({name})" for number, name in self.stream_names.items())
        raise UsageError(f"{self.name} has no stream {printable(repr(stream), 60)}; it has: {known}")

    def random_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Inputs that the model takes, the same for the same seed."""
        return random_inputs(self._compiled, seed)

    def run(self, inputs: Mapping[str, Array], *, step: bool | None = None) -> dict[str, Array]:
        """The model's outputs by name, as onnxruntime gives them, and the tensors of `fetch`.

        step  whether the run is an iteration of the model, for step-trace and fusion-op; None: it is, unless the
              model is a single operator

        Raises InputError for inputs that the model does not take, UsageError when the session is closed.
        """
        iteration = not self._is_single_operator if step is None else step
        with self._running(iteration=iteration):
            return self._engine.run(inputs, step=iteration)

    def train_step(self, batch: Mapping[str, Array], target: Array | None = None) -> float:
        """Raises UsageError: this session runs the model as it is. A `TrainingSession` learns."""
        raise UsageError(
            f"the session of {self.name} runs the model as it is and can't learn: "
            "make a traceconv.TrainingSession(model, batch, target), and call its train_step(batch, target)"
        )

    @contextmanager
    def _running(self, *, iteration: bool = True) -> Iterator[None]:
        """Around all that uses the device: one at a time, on the caller's thread, and never while a profile changes.

        No code of the user may run inside. `iteration`: whether what runs is a step of the model.
        """
        with self._lock, PROCESS.gate.shared():
            if self._broken or not self.is_open:
                raise UsageError(self._broken or f"the session of {self.name} is closed: make a new one")
            if self._checked is not PROCESS.captures:
                PROCESS.check_points()
                self._checked = PROCESS.captures
            self._host.channel.thread_id = PROCESS.thread_id()
            PROCESS.meet(self, iteration=iteration)
            yield

    def close(self) -> None:
        """Takes the model off the device. A closed session can't be run; closing it again does nothing."""
        with self._lock, PROCESS.gate.shared():
            if not self.is_open:
                return
            self.is_open = False
            self._host.channel.thread_id = PROCESS.thread_id()
            try:
                self._engine.end_step()
                self._engine.close()
            finally:
                PROCESS.leave(self)
                self._host.stop()
                if self._finalizer.detach() is not None:
                    PROCESS.give_back(self._device)

    @property
    def _is_single_operator(self) -> bool:
        return sum(len(op.nodes) for op in self._compiled.program.ops) <= 1

    # What profiles need to know

    @property
    def program(self) -> Program:
        """The lowered model."""
        return self._compiled.program

    @property
    def spec(self) -> DeviceSpec:
        """The device's description."""
        return self._compiled.spec

    @property
    def device_id(self) -> int:
        """Number of the device in logs."""
        return self._device.device_id

    @property
    def model_id(self) -> int:
        """Number of the model in logs."""
        return self._model_base + engine_module.MODEL_ID

    @property
    def op_base(self) -> int:
        """What is added to the index of an op to get its number in logs."""
        return self._op_base

    @property
    def stream_names(self) -> dict[int, str]:
        """Number and name of every stream."""
        return self._engine.stream_names

    @property
    def run_options(self) -> RunOptions:
        """How runs are marked and sampled."""
        return self._engine.options

    @run_options.setter
    def run_options(self, options: RunOptions) -> None:
        self._engine.options = options

    def held_memory(self) -> list[MemoryEvent]:
        """All that the session has allocated on the device, as if it were now."""
        return self._engine.held_memory(PROCESS.clock.now())

    def read_clocks(self) -> None:
        """Compares the clocks of host and device, for a log that begins."""
        self._host.read_clocks(self._device)

    def compare_clocks(self, *, now: bool) -> None:
        """Compares the clocks when it is time, or in any case."""
        self._host.compare_clocks(self._device, self._host.channel, now=now)

    def end_step(self) -> None:
        """The step of several runs that is open is over."""
        if self.is_open:
            self._engine.end_step()

    def after_fork(self) -> None:
        """In the child of a fork: the worker is back, unless a run was under way in another thread."""
        if self._lock.locked():
            self._broken = f"the session of {self.name} was running when the process forked: make a new one"
            self.is_open = False
        self._lock = threading.Lock()
        self._host.after_fork()


def _dismiss(host: Host, device: Device) -> None:
    """What is left of a session that was dropped without being closed."""
    host.dismiss()
    PROCESS.give_back(device)


def found_model(model: Any) -> FoundModel:
    """A model in memory."""
    import onnx

    if not isinstance(model, onnx.ModelProto):
        raise InputError(f"a model is a path, a name or an onnx.ModelProto, not {type(model).__name__}")
    return FoundModel(model.graph.name or "model", model)
