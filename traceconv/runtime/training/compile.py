"""Load a model and plan a step of its training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from traceconv.base.errors import ModelError
from traceconv.runtime.graph import Array, Graph
from traceconv.runtime.load import load_graph
from traceconv.runtime.spec import DeviceSpec, reference_npu
from traceconv.runtime.training.data import Batch
from traceconv.runtime.training.forms import is_parameter
from traceconv.runtime.training.lane import find_points
from traceconv.runtime.training.learned import declared_weights
from traceconv.runtime.training.losses import loss_of
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.plan import Planner, TrainingPlan
from traceconv.runtime.training.step_ops import StepOps
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
    """Load and plan a model for training: a path, a name of `zoo.model_names()`, or one in memory.

    `inputs` and `target` are an example of what one device gets in a step; they determine the model's open dimensions.
    Raises ModelError for a model that can't be trained, naming every op without a gradient rule; UsageError for wrong
    options.
    """
    options.check()
    found = find_model(model) if isinstance(model, str) else model
    graph = load_training(found, batch, inputs, seed)
    return plan_graph(graph, found, options, target=target, spec=spec, devices=devices)


def load_training(found: FoundModel, batch: int | None, given: Mapping[str, Array] | None, seed: int) -> Graph:
    """`load_graph` for training: weights keep their type if the model casts them."""
    is_trained = partial(is_parameter, initializers=declared_weights(found.proto))
    return load_graph(found.proto, found.name, batch, given=given, seed=seed, is_trained=is_trained)


def plan_graph(
    graph: Graph,
    found: FoundModel,
    options: TrainOptions,
    *,
    target: Array | None = None,
    spec: DeviceSpec | None = None,
    devices: int = 1,
) -> TrainingPlan:
    """`compile_training` for a loaded graph."""
    if any(name == "target" for name in graph.tensors):
        raise ModelError(f"{graph.name}: the name of its tensor 'target' is reserved for the target of the loss")
    initializers = declared_weights(found.proto)
    loss = loss_of(graph, options.loss, target)
    planner = Planner(graph, StepOps(spec or reference_npu()), loss, options.optimizer, initializers)
    plan = planner.plan(devices, options.bucket_bytes, fuse_ops=options.fuse)
    find_points(plan, options.fp_point, options.bp_point)
    return plan


def batch_of(example: Batch) -> int | None:
    """Return the batch size that all arrays share, which replaces the model's own; None if there is none."""
    extents = {value.shape[:1] for value in (*example.inputs.values(), example.target)}
    shared = extents.pop() if len(extents) == 1 else ()
    return shared[0] if shared and shared[0] else None
