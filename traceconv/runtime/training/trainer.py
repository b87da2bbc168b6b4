"""A model that learns on the reference NPU, step by step: `Trainer(model).step(batch, target)`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType

import numpy as np

from traceconv.base.errors import InputError, ModelError
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import EventLog, EventStore
from traceconv.runtime.graph import Array, Graph
from traceconv.runtime.host import THREADS, modelled_host
from traceconv.runtime.identity import modelled_identity
from traceconv.runtime.load import load_graph
from traceconv.runtime.ranges import CaptureIds
from traceconv.runtime.spec import DeviceSpec, reference_npu
from traceconv.runtime.training.data import Batch
from traceconv.runtime.training.lane import Lane, Meetings, find_points
from traceconv.runtime.training.losses import loss_of
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.plan import TrainingPlan, plan_training
from traceconv.runtime.training.team import Team
from traceconv.runtime.zoo import FoundModel, find_model


def compile_training(
    model: str | FoundModel,
    options: TrainOptions,
    batch: int | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    target: Array | None = None,
    seed: int = 0,
    spec: DeviceSpec | None = None,
    devices: int = 1,
) -> TrainingPlan:
    """Loads and plans a model for training: a path, a name of `zoo.model_names()`, or one in memory.

    `inputs` and `target`: an example of what one device gets in a step; dimensions that the model leaves open are
    theirs. Raises ModelError for a model that can't be trained (naming every op without a gradient rule), UsageError
    for options that can't be.
    """
    options.check()
    found = find_model(model) if isinstance(model, str) else model
    graph = load_graph(found.proto, found.name, batch, given=inputs, seed=seed)
    return plan_graph(graph, found, options, target=target, spec=spec, devices=devices)


def plan_graph(
    graph: Graph,
    found: FoundModel,
    options: TrainOptions,
    *,
    target: Array | None = None,
    spec: DeviceSpec | None = None,
    devices: int = 1,
) -> TrainingPlan:
    """`compile_training` of a graph that is loaded."""
    if any(name == "target" for name in graph.tensors):
        raise ModelError(f"{graph.name}: a tensor of it is called 'target', as that of the loss must be")
    initializers = frozenset(entry.name for entry in found.proto.graph.initializer)
    loss = loss_of(graph, options.loss, target)
    plan = plan_training(
        graph,
        spec or reference_npu(),
        loss,
        options.optimizer,
        initializers=initializers,
        devices=devices,
        bucket_bytes=options.bucket_bytes,
    )
    find_points(plan, options.fp_point, options.bp_point)
    return plan


class Trainer:
    """A model and an optimizer on one or more devices, in modelled time; nothing is logged.

        trainer = Trainer("model.onnx", TrainOptions(Optimizer("adam", lr=1e-3)))
        for images, labels in batches:
            loss = trainer.step({"input": images}, labels)
        trainer.weights()

    The first batch settles shapes and the loss. With several devices each takes an equal part of every batch.
    """

    def __init__(
        self,
        model: str | FoundModel,
        options: TrainOptions | None = None,
        *,
        devices: int = 1,
        spec: DeviceSpec | None = None,
        seed: int = 0,
    ) -> None:
        self.options = options or TrainOptions()
        self.options.check()
        self.losses: list[float] = []
        self._model = find_model(model) if isinstance(model, str) else model
        self._devices = devices
        self._spec = spec
        self._seed = seed
        self._team: Team | None = None

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def step(self, batch: Mapping[str, Array], target: Array) -> float:
        """Learns from a batch; returns the loss before that. Raises InputError for what the model does not take."""
        parts = self._parts(batch, np.asarray(target))
        if self._team is None:
            self._team = self._opened(parts[0])
        loss = self._team.step([[("DataLoad", partial(_given, part))] for part in parts])
        self.losses.append(loss)
        return loss

    @property
    def plan(self) -> TrainingPlan:
        """The program of a step. Raises ModelError before the first one."""
        if self._team is None:
            raise ModelError("nothing is planned before the first step")
        return self._team.plan

    def weights(self, device: int = 0) -> dict[str, Array]:
        """What a device has learned: parameters and running statistics by name. Raises ModelError before a step."""
        if self._team is None:
            raise ModelError("nothing is learned before the first step")
        return self._team.weights(device)

    def close(self) -> None:
        """Ends the training; `weights` stay."""
        if self._team is not None:
            self._team.stop()

    def _parts(self, batch: Mapping[str, Array], target: Array) -> list[Batch]:
        if self._devices == 1:
            return [Batch({name: np.asarray(value) for name, value in batch.items()}, target)]
        arrays = {**{name: np.asarray(value) for name, value in batch.items()}, "target": target}
        for name, value in arrays.items():
            if not value.ndim or len(value) % self._devices:
                raise InputError(f"'{name}' of shape {list(value.shape)} can't be cut into {self._devices} equal parts")
        cut = {name: np.split(value, self._devices) for name, value in arrays.items()}
        return [
            Batch({name: cut[name][index] for name in batch}, cut["target"][index]) for index in range(self._devices)
        ]

    def _opened(self, example: Batch) -> Team:
        plan = compile_training(
            self._model,
            self.options,
            batch_of(example),
            inputs=example.inputs,
            target=example.target,
            seed=self._seed,
            spec=self._spec,
            devices=self._devices,
        )
        identity, ids, meetings = modelled_identity(self._seed), CaptureIds(), Meetings(self._devices)
        log = EventLog(EventStore())
        lanes = []
        for device_id in range(self._devices):
            host_seed, trace_seed = identity.device_seeds(device_id)
            host_ns = identity.host_ns or 0
            host = modelled_host(log, range(1, 1 + len(THREADS)), THREADS, host_ns, host_seed, ids.correlations)
            device = Device(plan.spec, identity.device_clock(device_id, host_ns, plan.spec), device_id)
            points = find_points(plan, self.options.fp_point, self.options.bp_point)
            lanes.append(Lane(plan, host, device, meetings, ids=ids, seed=trace_seed, points=points))
        team = Team(lanes, meetings, seed=self._seed)
        team.open()
        return team


def batch_of(example: Batch) -> int | None:
    """The first extent of all arrays, where they share one: it is used instead of the model's own."""
    extents = {value.shape[:1] for value in (*example.inputs.values(), example.target)}
    shared = extents.pop() if len(extents) == 1 else ()
    return shared[0] if shared and shared[0] else None


def _given(batch: Batch, before: Batch) -> Batch:
    return batch
