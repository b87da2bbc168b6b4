"""One op, compiled and run alone on the reference NPU: its latency and its scratch memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import index
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

import numpy as np
import onnx
from onnx import helper, numpy_helper

from traceconv.base.arrays import NDArray
from traceconv.base.errors import ModelError, UsageError, printable, suggestion
from traceconv.runtime import op_cache
from traceconv.runtime.bfloat16 import tensor_of
from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.compiled import CompiledModel, compile_model
from traceconv.runtime.control_bodies import Flow
from traceconv.runtime.device import Device
from traceconv.runtime.graph import DTYPES, Tensor
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.launch import op_work
from traceconv.runtime.load import NOT_FOLDED
from traceconv.runtime.lower import DeviceOp
from traceconv.runtime.spec import DeviceSpec, spec_of
from traceconv.runtime.zoo import FoundModel

#: A shape, for an input with random values that is copied to the device for each run; or an array, for a constant.
OpInput: TypeAlias = "Sequence[int] | str | NDArray[Any]"

#: Default version of ONNX's operators; for an op that it lacks, the first later one that has it.
_OPSET = 17
_MAX_REPEAT = 100_000
_MAX_ELEMENTS = 1 << 31
_DTYPES = {name.lower(): number for number, (name, _) in DTYPES.items()} | {
    "bf16": onnx.TensorProto.BFLOAT16,
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "float32": onnx.TensorProto.FLOAT,
    "float64": onnx.TensorProto.DOUBLE,
}
_KEY_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured of an op or an expression."""

    device_name: str
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
        """The latencies in microseconds, as RAF's op profiler reports them; latencies_ns is exact."""
        return [latency / 1000 for latency in self.latencies_ns]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpProfile(Measurement):
    """A measured op. Shapes and types are written as in the log: extents separated by ',', tensors by ';'.

    op_name          name of the op, if it is part of an expression; else its type
    core_type        kind of core that computed it; None for an op without work, such as Reshape, which takes 0 ns
    latencies_ns     durations of its task on the device, one per run
    workspace_bytes  scratch memory while it runs
    cached           whether the result is from the cache
    """

    op_name: str
    op_type: str
    core_type: str | None


def profile_op(
    op_type: str,
    inputs: Sequence[OpInput],
    attributes: Mapping[str, object] | None = None,
    dtypes: str | Sequence[str] = "float32",
    *,
    repeat: int = 1,
    outputs: int | None = None,
    opset: int | None = None,
    device_spec: str | Path | None = None,
    cache: bool = True,
) -> OpProfile:
    """Run one ONNX op alone on the device `repeat` times.

    inputs       shapes, such as (16, 8) or "16x8", or arrays for constant inputs, such as the target of a Reshape
    attributes   of the op, by name
    dtypes       of the inputs given as shapes: one for all, or one per input
    outputs      number of outputs; None: as few as the op allows
    opset        version of ONNX's operators; None: 17, or the first later one that has the op
    device_spec  TOML file that describes the device; None: the reference NPU
    cache        whether to use and update the cache on disk

    Raises UsageError for invalid arguments, ModelError for an op that does not exist or can't be run.
    """
    check_repeat(repeat)
    spec = spec_of(None if device_spec is None else Path(device_spec))
    schema, version = op_schema(op_type, opset)
    model = _model(schema, version, inputs, dict(attributes or {}), dtypes, outputs)
    if not model.graph.input and op_type not in NOT_FOLDED:
        what = "has no inputs" if not inputs else "has only constant inputs"
        raise UsageError(
            f"{op_type} {what}: it is computed when the model loads and never runs on the device"
            + ("" if not inputs else "; pass at least one input as a shape")
        )
    key = _key(model, spec)
    if cache:
        found = profile_from_cache(op_cache.get(key), repeat)
        if found is not None:
            return found
    profile = _run(compile_model(FoundModel(op_type, model), spec=spec), op_type, repeat)
    if cache:
        op_cache.put(key, {name: value for name, value in asdict(profile).items() if name != "cached"})
    return profile


def check_repeat(repeat: int) -> None:
    """Raise UsageError for an invalid number of runs."""
    if not 1 <= repeat <= _MAX_REPEAT:
        raise UsageError(f"repeat = {repeat}: must be from 1 to {_MAX_REPEAT:,}")


def op_schema(op_type: str, opset: int | None) -> tuple[Any, int]:
    """Return the schema of an op, and the version of ONNX's operators that it is from. Raises ModelError."""
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not 1 <= opset <= newest:
        raise UsageError(f"opset {opset}: must be from 1 to {newest}")
    versions = range(_OPSET, newest + 1) if opset is None else [opset]
    for version in versions:
        try:
            return onnx.defs.get_schema(op_type, version, ""), version
        except onnx.defs.SchemaError:
            continue
    known = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})
    where = f"opset {opset}" if opset is not None else f"opsets up to {newest}"
    raise ModelError(f"'{printable(op_type, 60)}' is not an ONNX op in {where}.{suggestion(op_type, known)}")


def _model(
    schema: Any,
    version: int,
    inputs: Sequence[OpInput],
    attributes: dict[str, object],
    dtypes: str | Sequence[str],
    output_count: int | None,
) -> onnx.ModelProto:
    """Return a model with only this op."""
    name = schema.name
    if not schema.min_input <= len(inputs) <= schema.max_input:
        least, most = schema.min_input, schema.max_input
        span = f"{least}" if least == most else f"{least} or more" if most > 1_000 else f"{least} to {most}"
        raise UsageError(f"{name} takes {span} inputs, not {len(inputs)}")
    names = [f"input{place}" for place in range(len(inputs))]
    declared, constants = declare_inputs(names, inputs, dtypes)
    count = max(1, schema.min_output) if output_count is None else output_count
    if not 1 <= count <= schema.max_output:
        raise UsageError(f"{name} has {max(1, schema.min_output)} to {schema.max_output} outputs, not {count}")
    outputs = [f"output{place}" for place in range(count)]
    node = helper.make_node(name, names, outputs, name=name)
    for attribute, value in sorted(attributes.items()):
        node.attribute.append(make_attribute(schema, attribute, value))
    results = [onnx.ValueInfoProto(name=output) for output in outputs]
    graph = helper.make_graph([node], name, declared, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def declare_inputs(
    names: Sequence[str], inputs: Sequence[OpInput], dtypes: str | Sequence[str]
) -> tuple[list[onnx.ValueInfoProto], list[onnx.TensorProto]]:
    """Return declarations of the inputs that are shapes, and tensors of those that are arrays."""
    per_input = [dtypes] * len(inputs) if isinstance(dtypes, str) else list(dtypes)
    if len(per_input) != len(inputs):
        raise UsageError(f"{len(per_input)} dtypes for {len(inputs)} inputs: give one for all, or one for each")
    declared, constants = [], []
    for input_name, given, dtype in zip(names, inputs, per_input, strict=True):
        if isinstance(given, np.ndarray):
            try:
                constants.append(tensor_of(np.ascontiguousarray(given).reshape(given.shape), input_name))
            except (RuntimeError, TypeError, ValueError, KeyError) as error:
                raise UsageError(
                    f"{input_name}: can't convert an array of {printable(str(given.dtype))} to a tensor"
                ) from error
        else:
            declared.append(helper.make_tensor_value_info(input_name, _elem_type(dtype), shape_of(input_name, given)))
    return declared, constants


def _elem_type(dtype: str) -> int:
    found = _DTYPES.get(dtype.lower())
    if found is None:
        near = suggestion(dtype.lower(), list(_DTYPES))
        raise UsageError(
            f"dtype '{printable(dtype, 60)}': not supported by the device.{near} "
            f"Choose one of: {', '.join(sorted(_DTYPES))}"
        )
    return found


def shape_of(name: str, given: Sequence[int] | str) -> list[int]:
    """Return a shape, such as (16, 8) or "16x8", as a list. Raises UsageError for an invalid one."""
    try:
        shape = [int(part) for part in given.split("x") if given] if isinstance(given, str) else list(map(index, given))
    except (TypeError, ValueError):
        raise UsageError(f"{name}: not a shape such as 16x3x224x224: {printable(str(given), 60)}") from None
    if any(extent < 1 for extent in shape) or math.prod(shape) > _MAX_ELEMENTS:
        raise UsageError(f"{name} of shape {shape}: extents must be at least 1, and their product at most 2^31")
    return shape


def make_attribute(schema: Any, name: str, value: object) -> onnx.AttributeProto:
    """Return an attribute of the type that the op declares; integers are accepted for floats."""
    known = schema.attributes
    if name not in known:
        near = suggestion(name, list(known)) or f" It has: {', '.join(sorted(known)) or 'none'}."
        raise UsageError(f"{schema.name} has no attribute '{printable(name, 60)}'.{near}")
    kind = known[name].type
    try:
        if kind == onnx.defs.OpSchema.AttrType.FLOAT:
            value = float(value)  # type: ignore[arg-type]  # raises TypeError if not a number
        elif kind == onnx.defs.OpSchema.AttrType.FLOATS:
            value = [float(one) for one in value]  # type: ignore[attr-defined]
        elif kind == onnx.defs.OpSchema.AttrType.INTS and isinstance(value, int):
            value = [value]
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        made: onnx.AttributeProto = helper.make_attribute(name, value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{schema.name}: {printable(name, 60)} can't be {printable(repr(value), 80)}") from error
    if made.type != int(kind.value if hasattr(kind, "value") else kind):
        shown = str(kind).rpartition(".")[2]
        raise UsageError(f"{schema.name}: {printable(name, 60)} must be {shown}, not {printable(repr(value), 80)}")
    return made


def _run(model: CompiledModel, op_type: str, repeat: int) -> OpProfile:
    program, spec = model.program, model.spec
    _, latencies = measure(model, repeat)
    graph = program.graph
    operands = [tensor for op in program.ops for tensor in op.operands]
    inputs, outputs = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
    return OpProfile(
        op_name=op_type,
        op_type=op_type,
        core_type=program.ops[0].core if program.ops else None,
        device_name=spec.name,
        **tensor_texts(operands or inputs, outputs),
        latencies_ns=latencies,
        workspace_bytes=max((op.cost.workspace_bytes for op in program.ops), default=0),
        flops=sum(op.flops for op in program.ops),
        memory_bytes=sum(tensor.size_bytes for op in program.ops for tensor in (*op.operands, *op.writes)),
    )


def measure(
    model: CompiledModel, repeat: int, given: Mapping[str, NDArray[Any]] | None = None
) -> tuple[list[OpProfile], tuple[int, ...]]:
    """Compute a model once, which finds errors, and run its ops on one stream of the device `repeat` times.

    given  inputs that are not random

    Returns the profile of each op, in order, and the times from the start of the first to the end of the last one.
    """
    spec, control = model.spec, model.executor.control
    flows: dict[int, Flow] = {}
    model.executor.run({**random_inputs(model, 0), **(given or {})}, flows=flows)
    ops: list[DeviceOp] = []
    for op in model.program.ops:
        ops += [op, *(inner for inner, _ in control.launched(op.index, flows.get(op.index, []), 0))]
    device = Device(spec, DeviceClock(0, 0, spec.clock_hz, spec.drift_ppb))
    works, now_ns = [op_work(spec, op) for op in ops], 0
    latencies: list[list[int]] = [[] for _ in ops]
    totals = []
    for _ in range(repeat):
        tasks = [device.submit(0, now_ns, work) for work in works]
        now_ns = max([device.done_ns(task) for task in tasks], default=0)
        for mine, task in zip(latencies, tasks, strict=True):
            mine.append((task.span[1] - task.span[0]) * 1_000_000_000 // spec.clock_hz)
        ticks = tasks[-1].span[1] - tasks[0].span[0] + works[-1].idle if tasks else 0
        totals.append(ticks * 1_000_000_000 // spec.clock_hz)
    profiles = [
        OpProfile(
            op_name=op.name,
            op_type=op.op_type,
            core_type=op.core,
            device_name=spec.name,
            **tensor_texts(op.operands, op.writes),
            latencies_ns=tuple(mine),
            workspace_bytes=op.cost.workspace_bytes,
            flops=op.flops,
            memory_bytes=op.repeats * sum(tensor.size_bytes for tensor in (*op.operands, *op.writes)),
        )
        for op, mine in zip(ops, latencies, strict=True)
    ]
    return profiles, tuple(totals)


def tensor_texts(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, Any]:
    """Return the shapes and the types of inputs and outputs, as logged."""
    texts = {}
    for what, tensors in (("input", inputs), ("output", outputs)):
        texts[f"{what}_shapes"] = ";".join(",".join(map(str, one.shape)) for one in tensors)
        texts[f"{what}_dtypes"] = ";".join(one.dtype for one in tensors)
    return texts


# The cache


def _key(model: onnx.ModelProto, spec: DeviceSpec) -> dict[str, object]:
    """Return what the result depends on: op, attributes, shapes, types, constants, device and cost model."""
    graph = model.graph
    node = graph.node[0]
    return {
        "key_version": _KEY_VERSION,
        "op_type": node.op_type,
        "opset": int(model.opset_import[0].version),
        "node": op_cache.digest(node.SerializeToString(deterministic=True)),
        "inputs": [
            [int(entry.type.tensor_type.elem_type), [int(d.dim_value) for d in entry.type.tensor_type.shape.dim]]
            for entry in graph.input
        ],
        "constants": [op_cache.digest(one.SerializeToString(deterministic=True)) for one in graph.initializer],
        "device": asdict(spec),
        "cost_model": op_cache.cost_model_digest(),
    }


_TYPES = {name: kind for name, kind in get_type_hints(OpProfile).items() if name not in ("cached", "latencies_ns")}


def profile_from_cache(value: dict[str, Any] | None, repeat: int) -> OpProfile | None:
    """Return a cached profile, if it is valid and has enough latencies."""
    if value is None:
        return None
    latencies = value.pop("latencies_ns", None)
    valid = (
        isinstance(latencies, list)
        and len(latencies) >= repeat
        and all(type(one) is int and one >= 0 for one in latencies)
        and value.keys() == _TYPES.keys()
        and all(isinstance(value[name], kind) for name, kind in _TYPES.items())
    )
    return OpProfile(**value, latencies_ns=tuple(latencies[:repeat]), cached=True) if valid else None
