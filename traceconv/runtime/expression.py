"""Expressions of several ops, run alone on the reference NPU: latency and scratch memory of each op, and of all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from traceconv.base.arrays import NDArray
from traceconv.base.errors import InputError, UsageError, printable
from traceconv.runtime import op_cache
from traceconv.runtime.compiled import compile_model
from traceconv.runtime.graph import DTYPES, Tensor
from traceconv.runtime.op_functions import Value, model_of_function
from traceconv.runtime.op_profile import (
    Measurement,
    OpInput,
    OpProfile,
    check_repeat,
    measure,
    profile_from_cache,
    shape_of,
    tensor_texts,
)
from traceconv.runtime.spec import spec_of
from traceconv.runtime.zoo import FoundModel, find_model

#: A model file or the name of a model, a model in memory, or a function of values that calls `traceconv.ops`.
Expression: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | Callable[..., Value | Sequence[Value]]"

_KEY_VERSION = 1
#: Larger models are not cached: reading them takes as long as the run.
_MAX_CACHED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionProfile(Measurement):
    """A measured expression. Shapes and types are written as in `OpProfile`.

    ops              its ops as the device runs them (fused), in order; `op_type` is the type on the device
    latencies_ns     time on the device from the start of the first op to the end of the last one, one per run
    workspace_bytes  peak of the scratch memory: ops run one after another, so it is that of the op with the most
    memory_bytes     size of its inputs, weights and outputs
    cached           whether the result is from the cache
    """

    name: str
    ops: tuple[OpProfile, ...]


def profile_expression(
    expression: Expression,
    inputs: Sequence[OpInput] | None = None,
    dtypes: str | Sequence[str] = "float32",
    *,
    repeat: int = 1,
    opset: int | None = None,
    device_spec: str | Path | None = None,
    cache: bool = True,
) -> ExpressionProfile:
    """Run the ops of an expression one after another on the device, `repeat` times.

        from traceconv import ops, profile_expression

        profile_expression(lambda x, w: ops.Relu(ops.Conv(x, w)), [(16, 3, 224, 224), (3, 3, 5, 5)])

    expression   an .onnx file, the name of a model, an onnx.ModelProto, or a function that takes a value per input
    inputs       of a function: shapes, or arrays for constants; of a model: in its order, shapes or arrays that settle
                 what it leaves open
    dtypes       of a function's inputs given as shapes: one for all, or one per input
    opset        version of ONNX's operators in a function; None: 17, or the first later one that has all of them
    device_spec  TOML file that describes the device; None: the reference NPU
    cache        whether to use and update the cache on disk

    Raises UsageError for invalid arguments, ModelError for an expression that can't be run.
    """
    check_repeat(repeat)
    spec = spec_of(None if device_spec is None else Path(device_spec))
    given: dict[str, NDArray[Any]] = {}
    if isinstance(expression, onnx.ModelProto):
        found = FoundModel(expression.graph.name or "model", expression)
    elif isinstance(expression, (str, os.PathLike)):
        found = find_model(os.fspath(expression))
    elif callable(expression):
        found = model_of_function(expression, inputs, dtypes, opset)
        inputs = None
    else:
        raise UsageError(f"expression: must be a model or a function of traceconv.ops, not {type(expression).__name__}")
    if inputs is not None:
        found, given = _with_inputs(found, inputs)
    key = None if not cache or found.proto.ByteSize() > _MAX_CACHED_BYTES else {
        "key_version": _KEY_VERSION,
        "expression": op_cache.digest(found.proto.SerializeToString(deterministic=True)),
        "name": found.name,
        "given": [op_cache.digest(value.tobytes()) for value in given.values()],
        "device": asdict(spec),
        "cost_model": op_cache.cost_model_digest(),
    }  # fmt: skip
    cached = None if key is None else _from_cache(key, repeat)
    if cached is not None:
        return cached
    model = compile_model(found, inputs=given or None, spec=spec)
    measured, latencies = measure(model, repeat, given)
    graph = model.program.graph
    reads, results, weights = (
        [graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs, graph.constants)
    )
    profile = ExpressionProfile(
        name=found.name,
        ops=tuple(measured),
        device_name=spec.name,
        **tensor_texts(reads, results),
        latencies_ns=latencies,
        workspace_bytes=max((op.cost.workspace_bytes for op in model.program.ops), default=0),
        flops=sum(op.flops for op in measured),
        memory_bytes=sum(tensor.size_bytes for tensor in (*reads, *results, *weights)),
    )
    if key is not None:
        values = {name: value for name, value in asdict(profile).items() if name != "cached"}
        for op in values["ops"]:
            del op["cached"]
        op_cache.put(key, values)
    return profile


def _with_inputs(found: FoundModel, inputs: Sequence[OpInput]) -> tuple[FoundModel, dict[str, NDArray[Any]]]:
    """Return the model with the shapes of `inputs`, and the arrays among them by name."""
    model = onnx.ModelProto()
    model.CopyFrom(found.proto)
    weights = {one.name for one in model.graph.initializer}
    entries = [entry for entry in model.graph.input if entry.name not in weights]
    if len(inputs) != len(entries):
        raise UsageError(f"{found.name} takes {len(entries)} inputs, not {len(inputs)}")
    given: dict[str, NDArray[Any]] = {}
    for entry, value in zip(entries, inputs, strict=True):
        kind = entry.type.tensor_type
        label = f"input '{printable(entry.name, 60)}' of {found.name}"
        shape = list(value.shape) if isinstance(value, np.ndarray) else shape_of(label, value)
        own = [dim.dim_value for dim in kind.shape.dim] if kind.HasField("shape") else shape
        if len(own) != len(shape) or any(known not in (0, extent) for known, extent in zip(own, shape, strict=True)):
            raise InputError(f"{label} must have the shape {[known or '?' for known in own]}, not {shape}")
        if isinstance(value, np.ndarray) and kind.elem_type in DTYPES:
            given[entry.name] = value.astype(Tensor(entry.name, (), kind.elem_type).numpy_dtype)
        del kind.shape.dim[:]
        for extent in shape:
            kind.shape.dim.add().dim_value = extent
        kind.shape.SetInParent()
    return replace(found, proto=model), given


def _from_cache(key: Mapping[str, object], repeat: int) -> ExpressionProfile | None:
    value = op_cache.get(dict(key))
    if value is None:
        return None
    found = [profile_from_cache(op, repeat) for op in value.pop("ops", ())]
    latencies = value.pop("latencies_ns", ())
    parts = tuple(op for op in found if op is not None)
    if len(parts) < len(found) or len(latencies) < repeat:
        return None
    return ExpressionProfile(**value, ops=parts, latencies_ns=tuple(latencies[:repeat]), cached=True)
