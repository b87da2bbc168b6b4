"""`traceconv.Session`: a model on the reference NPU, run from a user's program, profiled or not."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from traceconv.base.errors import InputError, UsageError, printable
from traceconv.runtime import session as engine_module
from traceconv.runtime.compiled import MODEL_ID, CompiledModel, compile_model
from traceconv.runtime.control import MAX_BODY_OPS
from traceconv.runtime.device import Device
from traceconv.runtime.graph import Array
from traceconv.runtime.host import THREADS, Host, live_host
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.live import CURRENT_SPAN, PROCESS, SessionLog, Stream
from traceconv.runtime.memory import MemoryEvent
from traceconv.runtime.recorder import LoadedModel
from traceconv.runtime.session import RunOptions
from traceconv.runtime.spec import spec_of
from traceconv.runtime.zoo import FoundModel

if TYPE_CHECKING:
    import onnx

#: A path, the name of a network, or a model in memory.
AnyModel: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto"


class Session:
    """A model, loaded once and run many times; `run` returns what onnxruntime returns for it.

        with traceconv.Session("resnet50") as session:
            outputs = session.run(session.random_inputs())

    Without a profile nothing is logged. A session runs once at a time, whichever threads call; several sessions have a
    device each and run concurrently. Close a session, or use it as a context manager.

    model        path of an .onnx file, the name of a network such as "resnet50", or an onnx.ModelProto
    batch        first dimension of the inputs, if the model leaves it open
    inputs       by name: they settle the dimensions that the model leaves open
    seed         of random inputs, which settle shapes that depend on values
    device_spec  TOML file that describes the device; None: the reference NPU
    streams      maximum number of compute streams; None: as many as the device has
    fetch        tensors that the host reads as soon as they are produced; they are added to the outputs
    compute      False: kernels are not computed and all outputs are zeros; everything else is the same

    Raises ModelError when the model can't be run, UsageError for an invalid option.
    """

    def __init__(
        self,
        model: AnyModel,
        *,
        batch: int | None = None,
        inputs: Mapping[str, Array] | None = None,
        seed: int = 0,
        device_spec: str | os.PathLike[str] | None = None,
        streams: int | None = None,
        fetch: Sequence[str] = (),
        compute: bool = True,
    ) -> None:
        if isinstance(fetch, str):
            raise UsageError("fetch must be a list of tensor names")
        spec = spec_of(None if device_spec is None else Path(device_spec), streams)
        compiled = compile_model(model_of(model), batch, inputs=inputs, seed=seed, spec=spec)
        self._begin(compiled, tuple(fetch), RunOptions(compute=compute))

    def _begin(self, compiled: CompiledModel, fetch: tuple[str, ...], options: RunOptions) -> None:
        """Get threads and a device, and load the model onto it."""
        self._compiled = compiled
        inner = MAX_BODY_OPS if compiled.executor.control.controls else 0
        model_base, op_base = PROCESS.devices.number_model(len(compiled.program.ops) + inner)
        self._lock = threading.Lock()
        self._broken: str | None = None
        self.is_open = False
        self._checked: object = None
        self._device = device = PROCESS.devices.take(compiled.spec)
        self._log = SessionLog(PROCESS, op_base=op_base, model_base=model_base)
        place = device.device_id
        threads, suffix = PROCESS.threads, f" {place}" if place else ""
        worker_id = threads.add(f"worker{suffix}", 2000 + 2 * place)
        thread_ids = threads.current(), worker_id, threads.add(f"device{suffix}", 2001 + 2 * place)
        self._host = live_host(self._log, thread_ids, THREADS, PROCESS.clock, PROCESS.ids)
        self._finalizer = weakref.finalize(self, _dismiss, self._host, device)
        self.engine = self._make_engine(compiled, device, fetch)
        self.engine.options = options
        model_id = model_base + MODEL_ID
        #: How logs describe the model and its device.
        self.loaded = LoadedModel(
            compiled.program, compiled.spec, device.device_id, self.engine.stream_names, model_id, op_base
        )
        with PROCESS.gate.shared():
            PROCESS.join(self)
            self.engine.open()
            self.is_open = True

    def _make_engine(self, compiled: CompiledModel, device: Device, fetch: tuple[str, ...]) -> engine_module.Session:
        return engine_module.Session(
            compiled, self._host, device, ids=PROCESS.ids, seed=int.from_bytes(os.urandom(8), "little"), fetch=fetch,
            parent=CURRENT_SPAN.get, modules=True,
        )  # fmt: skip

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
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
        """Names of the ops that the device runs, in order."""
        return tuple(op.name for op in self._compiled.program.ops)

    def stream(self, stream: object) -> Stream:
        """Return a stream by number or name, such as 0 or "compute 0", for `traceconv.span("name", stream=…)`.

        Raises UsageError when the model uses no such stream.
        """
        for number, name in self.stream_names.items():
            if stream in (number, name) and not isinstance(stream, bool):
                return Stream(self.device_id, number)
        known = ", ".join(f"{number} ({name})" for number, name in self.stream_names.items())
        raise UsageError(f"{self.name} has no stream {printable(repr(stream), 60)}; it has: {known}")

    def get_profile(self) -> dict[str, object]:
        """Return the static profile of the model as loaded: see `traceconv.get_profile`. Runs do not change it."""
        from traceconv.runtime.static_profile import profile_of
        from traceconv.runtime.static_tables import as_dict

        compiled = self._compiled
        return as_dict(profile_of(compiled.program, compiled.executor.control, compiled.spec, prefetch=False))

    def random_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return valid inputs, the same for the same seed."""
        return random_inputs(self._compiled, seed)

    def run(self, inputs: Mapping[str, Array], *, step: bool | None = None) -> dict[str, Array]:
        """Return the model's outputs by name, as onnxruntime computes them, and the tensors of `fetch`.

        step  whether the run is an iteration of the model, for step-trace and fusion-op; None: it is, unless the
              model is a single operator

        Raises InputError for inputs that the model does not take, UsageError when the session is closed.
        """
        iteration = not self._compiled.program.is_single_operator if step is None else step
        with self._running(iteration=iteration):
            return self.engine.run(inputs, step=iteration)

    def train_step(self, batch: Mapping[str, Array], target: Array | None = None) -> float:
        """Raise UsageError: this session does not train. A `TrainingSession` does."""
        raise UsageError(
            f"the session of {self.name} can't train the model: "
            "create a traceconv.TrainingSession(model, batch, target) and call its train_step(batch, target)"
        )

    @contextmanager
    def _running(self, *, iteration: bool = True) -> Iterator[None]:
        """Use the device on the caller's thread: exclusively, and never while a profile begins or ends.

        No user code may run inside. `iteration`: whether this is a step of the model.
        """
        with self._lock, PROCESS.gate.shared():
            if self._broken or not self.is_open:
                raise UsageError(self._broken or f"the session of {self.name} is closed: create a new one")
            if self._checked is not PROCESS.captures:
                PROCESS.check_points()
                self._checked = PROCESS.captures
            self._host.channel.thread_id = PROCESS.threads.current()
            PROCESS.announce(self, iteration=iteration)
            yield

    def close(self) -> None:
        """Unload the model. A closed session can't be run; closing it again does nothing."""
        with self._lock, PROCESS.gate.shared():
            if not self.is_open:
                return
            self.is_open = False
            self._host.channel.thread_id = PROCESS.threads.current()
            try:
                self.engine.marks.end()
                self.engine.close()
            finally:
                PROCESS.leave(self)
                self._host.stop()
                if self._finalizer.detach() is not None:
                    PROCESS.devices.give_back(self._device)

    # For profiles

    @property
    def device_id(self) -> int:
        """Number of the device in logs."""
        return self._device.device_id

    @property
    def stream_names(self) -> dict[int, str]:
        """Number and name of every stream."""
        return self.engine.stream_names

    def held_memory(self) -> list[MemoryEvent]:
        """Return everything that the session has allocated on the device, as allocations at the current time."""
        return self.engine.held_memory(PROCESS.clock.now())

    def read_clocks(self) -> None:
        """Compare the clocks of host and device for a log that begins."""
        self._host.read_clocks(self._device)

    def compare_clocks(self, *, now: bool) -> None:
        """Compare the clocks at the end of each period; `now`: also before."""
        self._host.compare_clocks(self._device, self._host.channel, now=now)

    def end_step(self) -> None:
        """End the open step of several runs."""
        if self.is_open:
            self.engine.marks.end()

    def after_fork(self) -> None:
        """In the child of a fork: restart the worker, unless a run was under way in another thread."""
        if self._lock.locked():
            self._broken = f"the session of {self.name} was running when the process forked: create a new one"
            self.is_open = False
        self._lock = threading.Lock()
        self._host.after_fork()


def _dismiss(host: Host, device: Device) -> None:
    """Release the device and threads of a session that was dropped without being closed."""
    host.dismiss()
    PROCESS.devices.give_back(device)


def model_of(model: AnyModel) -> str | FoundModel:
    """Return a path or name, or a model in memory. Raises InputError for any other object."""
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else found_model(model)


def found_model(model: Any) -> FoundModel:
    """Return a model in memory. Raises InputError for any other object."""
    import onnx

    if not isinstance(model, onnx.ModelProto):
        raise InputError(f"a model is a path, a name or an onnx.ModelProto, not {type(model).__name__}")
    return FoundModel(model.graph.name or "model", model)
