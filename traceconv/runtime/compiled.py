"""A model that can be run: lowered for a device, with its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traceconv.base.errors import InputError, printable
from traceconv.runtime.bfloat16 import BF16
from traceconv.runtime.control import lower_with_control
from traceconv.runtime.execute import Executor
from traceconv.runtime.graph import Array
from traceconv.runtime.load import load_graph
from traceconv.runtime.lower import Program
from traceconv.runtime.spec import DeviceSpec, reference_npu
from traceconv.runtime.zoo import FoundModel, find_model

#: Number of the model in the log of its session.
MODEL_ID = 1


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A program for a device, and what computes it."""

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
    spec: DeviceSpec | None = None,
) -> CompiledModel:
    """Compile a model: a path, a name of `zoo.model_names()`, or one in memory.

    inputs  settle the dimensions that the model leaves open, and shapes that depend on values; None: random inputs
            from `seed` settle the latter
    spec    the device; None: the reference NPU

    Raises ModelError for a model that can't be run.
    """
    found = find_model(model) if isinstance(model, str) else model
    device = spec or reference_npu()
    program, control = lower_with_control(load_graph(found.proto, found.name, batch, given=inputs, seed=seed), device)
    return CompiledModel(program, Executor(program, control), device)


def check_inputs(model: CompiledModel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return `inputs` as contiguous arrays. Raises InputError for a missing, unknown or unsuitable one."""
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
            hint = "; convert it with .astype(ml_dtypes.bfloat16)" if tensor.numpy_dtype == BF16 != value.dtype else ""
            raise InputError(
                f"input '{printable(name, 60)}' of {model.name} must be {tensor.numpy_dtype} {list(tensor.shape)}, "
                f"not {value.dtype} {list(value.shape)}{hint}"
            )
        checked[name] = np.ascontiguousarray(value).reshape(tensor.shape)
    return checked
