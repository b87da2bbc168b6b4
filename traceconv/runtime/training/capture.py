"""Recorded training: plan it, and run its steps on all devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from traceconv.base.errors import InputError, ModelError, option
from traceconv.runtime.bfloat16 import is_float
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import CaptureIds
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.sample import random_arrays
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.compile import load_training, plan_graph
from traceconv.runtime.training.data import TARGET, DataSet, augmented, given_data, names_of, random_data
from traceconv.runtime.training.lane import Lane, RendezvousTable, Source, Work, find_points
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.plan import TrainingPlan
from traceconv.runtime.training.team import Team
from traceconv.runtime.truth import DeviceTruth
from traceconv.runtime.zoo import find_model

if TYPE_CHECKING:
    from traceconv.runtime.record import RecordOptions

#: Batch size for models with an open batch dimension if no other is given.
_OPEN_BATCH = 32
#: Host, device, seed of its trace IDs, and its ground truth if that is recorded.
Seat = tuple[Host, Device, int, "DeviceTruth | None"]


@dataclass(slots=True)
class TrainingCapture:
    """A plan, its data, the `losses` of the steps so far, and the weights that were `learned` by the end."""

    plan: TrainingPlan
    data: DataSet
    train: TrainOptions
    options: RecordOptions
    losses: list[float] = field(default_factory=list)
    learned: dict[str, Array] = field(default_factory=dict)

    def steps(self, seats: Sequence[Seat], ids: CaptureIds) -> Iterator[None]:
        """Train on the devices; yield after they are set up and after each step."""
        options, warmup = self.options, self.options.warmup
        rendezvous = RendezvousTable(options.devices)
        points = find_points(self.plan, self.train.fp_point, self.train.bp_point)
        lanes = [
            Lane(self.plan, host, device, rendezvous, ids=ids, seed=seed, truth=truth, points=points)
            for host, device, seed, truth in seats
        ]
        team = Team(lanes, rendezvous, seed=options.seed, side_by_side=not options.deterministic)
        total = warmup + options.iterations
        try:
            team.open()
            yield
            for number in range(total):
                then = self._sources(number + 1) if options.prefetch and number + 1 < total else None
                loss = team.step(
                    self._sources(number), step=number >= warmup, then=then, then_step=number + 1 >= warmup
                )
                if number >= warmup:
                    self.losses.append(loss)
                yield
            team.close()
            self.learned = team.weights()
        finally:
            team.stop()

    def _sources(self, step: int) -> list[Source]:
        devices = self.options.devices
        return [self._source(step * devices + device) for device in range(devices)]

    def _source(self, number: int) -> Source:
        """Return the host's work for a batch: load it, then augment it."""
        load: tuple[str, Work] = ("DataLoad", lambda _: self.data.load(number))
        if not self.train.augment:
            return [load]
        return [load, ("Augment", partial(augmented, seed=(self.options.seed, number)))]


def _input() -> str:
    return option("--input", "the input data")


def plan_capture(
    options: RecordOptions, train: TrainOptions, given: Mapping[str, Array] | None, spec: DeviceSpec
) -> TrainingCapture:
    """Plan a training. `given`: the data set, with an array named `target`; None: a small random one.

    Raises ModelError if the model can't be trained, InputError if the data does not fit it, UsageError for invalid
    options.
    """
    train.check()
    found, seed = find_model(options.model), options.seed
    example = _example(given, options.batch)
    inputs = {name: values for name, values in (example or {}).items() if name != TARGET}
    graph = load_training(found, options.batch, inputs or None, seed)
    target = None if example is None else example.get(TARGET)
    if target is not None and target.dtype.kind in "ui":
        target = target.astype("int64")
    elif target is not None and is_float(target.dtype):
        target = target.astype(graph.tensors[graph.outputs[0]].numpy_dtype)
    if target is not None and graph.inputs and target.ndim:
        for size in graph.tensors[graph.inputs[0]].shape[:1]:
            if len(target) < size:
                raise InputError(
                    f"{_input()} has {len(target)} samples, but a batch is {size}: give a smaller {option('--batch')}"
                )
            target = target[:size]
    plan = plan_graph(graph, found, train, target=target, spec=spec, devices=options.devices)
    tensors = {name: graph.tensors[name] for name in graph.inputs}
    if not plan.loss.target.shape or any(t.shape[:1] != plan.loss.target.shape[:1] for t in tensors.values()):
        raise ModelError(f"{graph.name}: the first dimension of all inputs and of the target must be the batch")
    if given is not None:
        data = given_data(tensors, plan.loss, given, seed)
    else:
        values = random_arrays(graph.inputs, graph.tensors, graph.consumers(), seed)
        data = random_data(values, tensors, plan.loss, seed)
    return TrainingCapture(plan, data, train, options)


def _example(given: Mapping[str, Array] | None, batch: int | None) -> dict[str, Array] | None:
    """Return one batch of samples of every array."""
    if given is None:
        return None
    if TARGET not in given:
        raise InputError(f"{_input()} needs an array '{TARGET}' to train with; it has: {names_of(given)}")
    return {name: values[: batch or _OPEN_BATCH] if values.ndim else values for name, values in given.items()}
