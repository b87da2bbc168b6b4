"""A training that is recorded: which batches come when, over which devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from traceconv.base.errors import InputError, ModelError, printable
from traceconv.runtime.device import Device
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host
from traceconv.runtime.load import load_graph
from traceconv.runtime.ranges import CaptureIds
from traceconv.runtime.sample import random_arrays
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.compile import plan_graph
from traceconv.runtime.training.data import TARGET, Batch, DataSet, augmented, given_data, random_data
from traceconv.runtime.training.lane import Lane, Meetings, Source, find_points
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.plan import TrainingPlan
from traceconv.runtime.training.team import Team
from traceconv.runtime.truth import DeviceTruth
from traceconv.runtime.zoo import FoundModel, find_model

#: Samples of a step, of a model whose batch is open where no other is asked for.
_OPEN_BATCH = 32
#: Host, device, seed of its trace ids, and what is kept of the truth.
Place = tuple[Host, Device, int, "DeviceTruth | None"]


@dataclass(slots=True)
class Course:
    """A plan, its data, and what comes of it: `losses` of the steps so far, and what was `learned` at the end."""

    plan: TrainingPlan
    data: DataSet
    train: TrainOptions
    devices: int
    seed: int
    prefetch: bool
    losses: list[float] = field(default_factory=list)
    learned: dict[str, Array] = field(default_factory=dict)

    def steps(
        self, places: Sequence[Place], ids: CaptureIds, *, warmup: int, steps: int, side_by_side: bool
    ) -> Iterator[None]:
        """Trains on the devices: yields once they are set up, and after each step."""
        meetings = Meetings(self.devices)
        points = find_points(self.plan, self.train.fp_point, self.train.bp_point)
        lanes = [
            Lane(self.plan, host, device, meetings, ids=ids, seed=seed, truth=truth, points=points)
            for host, device, seed, truth in places
        ]
        team = Team(lanes, meetings, seed=self.seed, side_by_side=side_by_side)
        total = warmup + steps
        try:
            team.open()
            yield
            for number in range(total):
                then = self._sources(number + 1) if self.prefetch and number + 1 < total else None
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
        """The host's work for the batch of each device: taken from the data set, then shifted about."""
        sources: list[Source] = []
        for device in range(self.devices):
            number = step * self.devices + device
            work = [("DataLoad", partial(_loaded, self.data, number))]
            if self.train.augment:
                work.append(("Augment", partial(augmented, seed=(self.seed, number))))
            sources.append(work)
        return sources


def course_of(
    model: str | FoundModel,
    train: TrainOptions,
    *,
    batch: int | None,
    given: Mapping[str, Array] | None,
    devices: int,
    seed: int,
    spec: DeviceSpec,
    prefetch: bool,
) -> Course:
    """Plans a training. `given`: the data set, with an array named `target`; None: a small one of noise.

    Raises ModelError for a model that can't be trained, InputError for data that do not fit it, UsageError for
    options that can't be.
    """
    train.check()
    found = find_model(model) if isinstance(model, str) else model
    example = _example(given, batch)
    inputs = {name: values for name, values in (example or {}).items() if name != TARGET}
    graph = load_graph(found.proto, found.name, batch, given=inputs or None, seed=seed)
    target = None if example is None else example.get(TARGET)
    if target is not None and target.dtype.kind in "ui":
        target = target.astype("int64")
    elif target is not None and target.dtype.kind == "f":
        target = target.astype(graph.tensors[graph.outputs[0]].numpy_dtype)
    if target is not None and graph.inputs and target.ndim:
        size = _extent(graph.tensors[graph.inputs[0]].shape)
        if size is not None and len(target) < size:
            raise InputError(f"--input has {len(target)} samples, but a batch is {size}: give a smaller --batch")
        target = target[:size]
    plan = plan_graph(graph, found, train, target=target, spec=spec, devices=devices)
    tensors = {name: graph.tensors[name] for name in graph.inputs}
    if not plan.loss.target.shape or any(t.shape[:1] != plan.loss.target.shape[:1] for t in tensors.values()):
        raise ModelError(f"{graph.name}: inputs and targets must all begin with the batch")
    if given is not None:
        data = given_data(tensors, plan.loss, given, seed)
    else:
        values = random_arrays(graph.inputs, graph.tensors, graph.consumers(), seed)
        data = random_data(values, tensors, plan.loss, seed)
    return Course(plan, data, train, devices, seed, prefetch)


def _example(given: Mapping[str, Array] | None, batch: int | None) -> dict[str, Array] | None:
    """The first samples of every array, as many as a batch: of a model that leaves that open, `_OPEN_BATCH`."""
    if given is None:
        return None
    if TARGET not in given:
        shown = ", ".join(printable(name, 60) for name in given) or "none"
        raise InputError(f"--input needs an array '{TARGET}' to train with; it has: {shown}")
    return {name: values[: batch or _OPEN_BATCH] if values.ndim else values for name, values in given.items()}


def _extent(shape: tuple[int, ...]) -> int | None:
    return shape[0] if shape else None


def _loaded(data: DataSet, number: int, before: Batch) -> Batch:
    return data.load(number)
