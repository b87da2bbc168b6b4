"""What an estimate assumes of control flow, whose trips aren't known before a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import TensorProto

from traceconv.base.errors import ModelError
from traceconv.runtime.control_bodies import Body, ControlOp, Flow, Trip, Variant
from traceconv.runtime.cost import task_ticks
from traceconv.runtime.graph import Graph, Tensor
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.workspace import aligned

_ENDLESS = 1 << 31


@dataclass(frozen=True, slots=True)
class Assumption:
    """What an estimate assumes of an op of control flow: the number of its trips, or its branch, and the reason."""

    op_name: str
    text: str


def assume(op: ControlOp, graph: Graph, found: list[Assumption]) -> Flow:
    """Return the trips that an estimate assumes, and add the assumptions. Lowers all bodies. Raises ModelError."""
    tensors = graph.tensors
    inner: dict[str, list[Assumption]] = {label: [] for label in op.bodies}
    trips: dict[str, Trip] = {}
    for label, body in op.bodies.items():
        try:
            trips[label] = _assumed_trip(body, _input_tensors(op, label, body, tensors), graph, inner[label])
        except ModelError:  # exporters leave branches that other shapes need, and that these make invalid
            if label == list(op.bodies)[-1] and not trips:
                raise
    known = [graph.constants.get(name) if name else None for name in (*op.inputs, "", "")[:2]]
    if op.node.op_type == "If":
        taken = max(trips, key=lambda label: _trip_ticks(op.lowering.spec, trips[label]))
        text = f"takes the longer branch, '{taken}'"
        if known[0] is not None:
            by_condition = "then" if known[0].reshape(-1)[0] else "else"
            if by_condition in trips:
                taken, text = by_condition, f"takes the branch '{by_condition}', by its constant condition"
        count = 1
    elif op.node.op_type == "Scan":
        taken = "body"
        name, axis = op.scanned(tensors)[0]
        count = tensors[name].shape[axis]
        text = f"{count:,} trips, by the shape of its input"
    else:
        taken = "body"
        count = _ENDLESS if known[0] is None else max(0, int(known[0].reshape(-1)[0]))
        text = f"{count:,} trips, its limit"
        if count >= _ENDLESS:  # what exporters write for a loop without a limit
            count, text = 1, "1 trip, since the number depends on values"
        if known[1] is not None and not known[1].reshape(-1)[0]:
            count, text = 0, "no trip, by its constant condition"
    found.append(Assumption(op.path, text))
    found.extend(inner[taken] if count else [])
    return [(trips[taken], count)] if count else []


def _input_tensors(op: ControlOp, label: str, body: Body, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if label != "body":
        return {}
    if op.node.op_type == "Loop":
        ranks = [(1,) * bool(entry.type.tensor_type.shape.dim) for entry in body.proto.input[:2]]
        kinds = (TensorProto.INT64, TensorProto.BOOL)
        given = [Tensor(body.inputs[place], ranks[place], kinds[place]) for place in (0, 1)]
        shapes = [(tensors[name].shape, tensors[name].elem_type) for name in op.inputs[2:]]
    else:
        given = []
        scanned = dict(enumerate(op.scanned(tensors), len(op.inputs) - op.node.int("num_scan_inputs", 0)))
        shapes = []
        for place, name in enumerate(op.inputs):
            shape = tensors[name].shape
            if place in scanned:
                shape = shape[: scanned[place][1]] + shape[scanned[place][1] + 1 :]
            shapes.append((shape, tensors[name].elem_type))
    names = body.inputs[len(given) :]
    given += [Tensor(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    return {tensor.name: tensor for tensor in given}


def _assumed_trip(body: Body, inputs: Mapping[str, Tensor], graph: Graph, found: list[Assumption]) -> Trip:
    outside = {name: graph.tensors[name] for name in body.captures}
    variant = body.lowered({**outside, **inputs}, graph.constants)
    inside = variant.program.graph
    inner = {
        op.nodes[0].name: assume(body.controls[op.nodes[0].name], inside, found)
        for op in variant.program.ops
        if op.nodes[0].has_subgraph
    }
    return Trip(variant, inner) if inner else variant.plain


def workspace_bytes(op: ControlOp) -> int:
    """Return the most memory that a trip needs for its tensors and workspaces, by the bodies lowered so far."""
    return max((_trip_bytes(variant) for b in op.bodies.values() for variant in b.variants.values()), default=0)


def _trip_bytes(variant: Variant) -> int:
    program, controls = variant.program, variant.body.controls
    last, outputs = program.last_uses(), {program.root(name) for name in program.graph.outputs}
    sizes: dict[str, int] = {}
    peak = 0
    for op in program.ops:
        for tensor in op.writes:
            sizes.setdefault(program.root(tensor.name), aligned(tensor.size_bytes))
        control = controls.get(op.nodes[0].name)
        scratch = op.cost.workspace_bytes + (workspace_bytes(control) if control else 0)
        peak = max(peak, sum(sizes.values()) + scratch)
        for name in last.get(op.index, ()):
            if name not in outputs:
                sizes.pop(name, None)
    return peak


def _trip_ticks(spec: DeviceSpec, trip: Trip) -> int:
    """Return the ticks of a trip's ops, with the gaps between them."""
    total = 0
    for op in trip.variant.program.ops:
        total += max(1, task_ticks(spec, op.cost)) + spec.dispatch_gap_ticks
        total += sum(_trip_ticks(spec, one) * count for one, count in trip.inner.get(op.nodes[0].name, ()))
    return total
