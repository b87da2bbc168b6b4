"""Expressions of several ops, run alone on the reference NPU: latency and scratch memory of each op, and of all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from traceconv.base.arrays import NDArray
from traceconv.base.errors import InputError, UsageError, printable
from traceconv.runtime import op_cache
from traceconv.runtime.graph import DTYPES, Tensor
from traceconv.runtime.op_profile import (
    OpInput,
    OpProfile,
    check_repeat,
    declare_inputs,
    make_attribute,
    measure,
    op_schema,
    profile_from_cache,
    shape_of,
    tensor_texts,
)
from traceconv.runtime.session import compile_model
from traceconv.runtime.spec import spec_of
from traceconv.runtime.zoo import FoundModel, find_model

#: A model file or the name of a model, a model in memory, or a function of values that calls `traceconv.ops`.
Expression: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | Callable[..., Value | Sequence[Value]]"

_KEY_VERSION = 1
#: Larger models are not cached: reading them takes as long as the run.
_MAX_CACHED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ExpressionProfile:
    """A measured expression. Shapes and types are written as in `OpProfile`.

    ops              its ops as the device runs them (fused), in order; `op_type` is the type on the device
    latencies_ns     time on the device from the start of the first op to the end of the last one, one per run
    workspace_bytes  peak of the scratch memory: ops run one after another, so it is that of the op with the most
    memory_bytes     size of its inputs, weights and outputs
    cached           whether the result is from the cache
    """

    name: str
    device_name: str
    ops: tuple[OpProfile, ...]
    input_shapes: str
    input_dtypes: str
    output_shapes: str
    output_dtypes: str
    latencies_ns: tuple[int, ...]
    workspace_bytes: int
    flops: int
    memory_bytes: int
    cached: bool = False

    @property
    def latencies_us(self) -> list[float]:
        """The latencies in microseconds; latencies_ns is exact."""
        return [latency / 1000 for latency in self.latencies_ns]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An input or a result inside a function of ops."""

    calls: list[_Call]
    name: str


@dataclass(frozen=True, slots=True)
class _Call:
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, object]
    constants: dict[str, NDArray[Any]]


class Ops:
    """ONNX's operators as functions of values: `ops.Conv(x, w, pads=[1, 1, 1, 1])`.

    Other arguments than values are constants; None omits an input. `outputs`: number of results, which are a tuple if
    there are several.
    """

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)

        def call(*arguments: object, outputs: int = 1, **attributes: object) -> Value | tuple[Value, ...]:
            values = [argument for argument in arguments if isinstance(argument, Value)]
            if not values:
                raise UsageError(f"ops.{printable(op_type, 60)}: pass at least one value of the expression")
            calls = values[0].calls
            names: list[str] = []
            constants: dict[str, NDArray[Any]] = {}
            for place, argument in enumerate(arguments):
                if isinstance(argument, Value):
                    if argument.calls is not calls:
                        raise UsageError(f"ops.{printable(op_type, 60)}: its values are of different expressions")
                    names.append(argument.name)
                elif argument is None:
                    names.append("")
                else:
                    names.append(f"c{len(calls)}_{place}")
                    constants[names[-1]] = np.asarray(argument)
            results = tuple(f"v{len(calls)}_{place}" for place in range(outputs))
            calls.append(_Call(op_type, tuple(names), results, attributes, constants))
            found = tuple(Value(calls, name) for name in results)
            return found[0] if outputs == 1 else found

        return call


ops = Ops()


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
        found = _traced(expression, inputs, dtypes, opset)
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
    ends = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
    weights = [graph.tensors[name] for name in graph.constants]
    profile = ExpressionProfile(
        found.name,
        spec.name,
        tuple(measured),
        *tensor_texts(ends[0]),
        *tensor_texts(ends[1]),
        latencies,
        max((op.cost.workspace_bytes for op in model.program.ops), default=0),
        sum(op.flops for op in measured),
        sum(tensor.size_bytes for tensor in (*ends[0], *ends[1], *weights)),
    )
    if key is not None:
        values = {name: value for name, value in asdict(profile).items() if name != "cached"}
        for op in values["ops"]:
            del op["cached"]
        op_cache.put(key, values)
    return profile


def _traced(
    function: Callable[..., Value | Sequence[Value]],
    inputs: Sequence[OpInput] | None,
    dtypes: str | Sequence[str],
    opset: int | None,
) -> FoundModel:
    """Return the model of what a function of ops calls."""
    if inputs is None:
        raise UsageError("inputs: give a shape or an array for each argument of the function")
    name = getattr(function, "__name__", "expression").strip("<>")
    calls: list[_Call] = []
    names = [f"input{place}" for place in range(len(inputs))]
    declared, constants = declare_inputs(names, inputs, dtypes)
    made = function(*(Value(calls, one) for one in names))
    results = [made] if isinstance(made, Value) else list(made) if isinstance(made, (tuple, list)) else []
    if not results or not all(isinstance(one, Value) and one.calls is calls for one in results) or not calls:
        raise UsageError(f"{printable(name, 60)}: must return one or more results of traceconv.ops")
    version = max(op_schema(call.op_type, opset)[1] for call in calls)
    nodes = []
    for number, call in enumerate(calls):
        schema, _ = op_schema(call.op_type, version)
        node = helper.make_node(call.op_type, call.inputs, call.outputs, name=f"{call.op_type}_{number}")
        node.attribute.extend(make_attribute(schema, *one) for one in sorted(call.attributes.items()))
        nodes.append(node)
        constants += declare_inputs(list(call.constants), list(call.constants.values()), "")[1]
    outputs = [onnx.ValueInfoProto(name=one.name) for one in dict.fromkeys(results)]
    graph = helper.make_graph(nodes, name, declared, outputs, constants)
    return FoundModel(name, helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)]))


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
