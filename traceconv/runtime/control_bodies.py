"""The bodies of If, Loop and Scan: what their trips compute, and their ops.

The arithmetic of a trip is that of onnxruntime: all nodes of a body between two ops of control flow are one kernel. Its
cost is that of the body's ops, lowered for the shapes of the trip.
"""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from traceconv.base.errors import ModelError
from traceconv.runtime.bfloat16 import array_of, elem_type_of, widened
from traceconv.runtime.cost import at_speed
from traceconv.runtime.fusion import BODY_PASSES, fuse
from traceconv.runtime.graph import Array, Graph, Node, Tensor, outer_names
from traceconv.runtime.kernels import Kernel, KernelCompiler
from traceconv.runtime.load import alive_nodes, load_body, named_nodes
from traceconv.runtime.lower import DeviceOp, Program, lower
from traceconv.runtime.pricing import control_cost
from traceconv.runtime.spec import DeviceSpec

#: Shapes for which a body is lowered; trips of further shapes cost as much as the trip of the nearest size.
_MAX_VARIANTS = 64
_SCAN_OPSET = 9  # earlier versions have a batch

#: Values by tensor name.
Values = Mapping[str, Array]


class Lowering:
    """What the bodies of a program are lowered and compiled with."""

    def __init__(self, graph: Graph, spec: DeviceSpec) -> None:
        self.spec, self.opsets = spec, graph.opsets
        self.compiler = KernelCompiler(graph.opsets)
        self.lock = threading.RLock()


@dataclass(slots=True, eq=False)
class Variant:
    """A body lowered for the shapes of some trips; `path` names its ops."""

    body: Body
    path: str
    program: Program
    plain: Trip = field(init=False)

    def __post_init__(self) -> None:
        self.plain = Trip(self, {})


@dataclass(frozen=True, slots=True, eq=False)
class Trip:
    """One execution of a body; `inner`: name of an op of control flow inside → its trips."""

    variant: Variant
    inner: Mapping[str, Flow]


#: Trips in order, each with the number of consecutive ones like it.
Flow = list[tuple[Trip, int]]


class _Segment:
    """Nodes of a body between two ops of control flow: one kernel."""

    def __init__(self, nodes: Sequence[Node], gives: Sequence[str]) -> None:
        self.nodes, self.gives = nodes, gives
        made = {name for node in nodes for name in node.outputs}
        self.reads = [name for name in dict.fromkeys(n for node in nodes for n in node.inputs) if name not in made]
        self.reads = [name for name in self.reads if name]
        self._kernels: dict[tuple[tuple[int, str], ...], Kernel] = {}

    def run(
        self, values: Values, constants: Mapping[str, Array], types: Mapping[str, Tensor], compiler: KernelCompiler
    ) -> dict[str, Array]:
        key = tuple((values[name].ndim, values[name].dtype.str) for name in self.reads)
        kernel = self._kernels.get(key)
        if kernel is None:
            tensors = {name: _shaped(types, name, values[name]) for name in self.reads}
            known = {name: constants[name] for name in self.reads if name in constants}
            open_shapes = tensors.keys() - known.keys()
            kernel = compiler.compile(self.nodes, self.gives, {**types, **tensors}, known, open_shapes)
            self._kernels[key] = kernel
        return dict(zip(kernel.outputs, kernel.run(values), strict=True))


class Body:
    """A subgraph of an op of control flow. `label`: body, then or else."""

    def __init__(self, lowering: Lowering, label: str, path: str, proto: onnx.GraphProto) -> None:
        self.label, self.path, self.proto = label, path, proto
        self.inputs = [entry.name for entry in proto.input]
        self.outputs = [entry.name for entry in proto.output]
        self.captures = outer_names(proto)
        self.constants: dict[str, Array] = {one.name: array_of(one) for one in proto.initializer}
        self.controls: dict[str, ControlOp] = {}
        self.variants: dict[tuple[tuple[int, ...], ...], Variant] = {}
        self._lowering = lowering
        self._steps: list[_Segment | ControlOp] = []
        nodes = alive_nodes(named_nodes(proto.node), self.outputs)
        segment: list[Node] = []
        for place, node in enumerate([*nodes, None]):
            if node is not None and not node.has_subgraph:
                segment.append(node)
                continue
            if segment:
                later = {name for other in nodes[place:] for name in other.inputs} | set(self.outputs)
                made = (name for one in segment for name in one.outputs)
                self._steps.append(_Segment(segment, [name for name in made if name in later]))
                segment = []
            if node is not None:
                self.controls[node.name] = ControlOp(lowering, node, f"{path}/{node.name.strip('/')}")
                self._steps.append(self.controls[node.name])

    def run(self, given: dict[str, Array], outside: Values, known: Mapping[str, Array]) -> tuple[list[Array], Trip]:
        """Return the outputs of a trip. `known`: the constants among the values from outside."""
        values: MutableMapping[str, Array] = ChainMap(given, self.constants, outside)  # type: ignore[arg-type]
        constants = ChainMap(self.constants, known) if self.constants else known  # type: ignore[arg-type]
        variant = self._variant(values, constants)
        types = variant.program.graph.tensors
        inner: dict[str, Flow] = {}
        for step in self._steps:
            if isinstance(step, _Segment):
                given.update(step.run(values, constants, types, self._lowering.compiler))
            else:
                results, inner[step.node.name] = step.run(values, constants, types)
                given.update((name, value) for name, value in results.items() if name)
        return [widened(values[name]) for name in self.outputs], Trip(variant, inner) if inner else variant.plain

    def _variant(self, values: Values, constants: Mapping[str, Array]) -> Variant:
        names = [*self.inputs, *(name for name in self.captures if name not in constants)]
        found = self.variants.get(tuple(values[name].shape for name in names))
        if found is not None:
            return found
        if len(self.variants) < _MAX_VARIANTS:
            types = next((one.program.graph.tensors for one in self.variants.values()), {})
            tensors = {name: _shaped(types, name, values[name]) for name in names}
            try:
                return self.lowered(tensors, constants, {name: values[name] for name in names})
            except ModelError:
                if not self.variants:
                    raise
        size = sum(values[name].size for name in names)

        def distance(variant: Variant) -> int:
            graph = variant.program.graph
            return abs(sum(graph.tensors[name].count for name in graph.inputs) - size)

        return min(self.variants.values(), key=distance)

    def lowered(
        self, tensors: Mapping[str, Tensor], constants: Mapping[str, Array], given: Mapping[str, Array] | None = None
    ) -> Variant:
        """Return the body for inputs and captures of these shapes; `given`: their values. Raises ModelError."""
        with self._lowering.lock:
            names = [*self.inputs, *(name for name in self.captures if name not in constants)]
            key = tuple(tensors[name].shape for name in names)
            if key not in self.variants:
                known = {name: constants[name] for name in self.captures if name in constants}
                inputs = [tensors[name] for name in names]
                graph = load_body(self.proto, self.path, self._lowering.opsets, inputs, known, given)
                number = f"#{len(self.variants) + 1}" if self.variants else ""
                program, spec = lower(fuse(graph, BODY_PASSES), self._lowering.spec), self._lowering.spec
                ops = (without_bodies(op, spec) if op.nodes[0].has_subgraph else op for op in program.ops)
                program = replace(program, ops=tuple(ops))
                self.variants[key] = Variant(self, f"{self.path}{number}", program)
            return self.variants[key]


class ControlOp:
    """An If, Loop or Scan. `path` names it: the ops that contain it, and its own name."""

    def __init__(self, lowering: Lowering, node: Node, path: str) -> None:
        self.node, self.path, self.lowering = node, path, lowering
        self.inputs = tuple(node.proto.input)
        graphs = {attribute.name: attribute.g for attribute in node.proto.attribute if attribute.HasField("g")}
        labels = {"then_branch": "then", "else_branch": "else", "body": "body"}
        if node.domain or not graphs or not graphs.keys() <= labels.keys():
            raise ModelError(f"{path}: {node.op_type} is not a control-flow operator of ONNX")
        if node.op_type == "Scan" and lowering.opsets.get("", 0) < _SCAN_OPSET:
            raise ModelError(f"{path}: Scan before opset {_SCAN_OPSET}")
        self.bodies = {
            labels[name]: Body(lowering, labels[name], f"{path}/{labels[name]}", g) for name, g in graphs.items()
        }
        self._complete: Kernel | None = None

    def run(
        self, values: Values, constants: Mapping[str, Array], types: Mapping[str, Tensor]
    ) -> tuple[dict[str, Array], Flow]:
        """Return the outputs by name, and the trips. `types`: of the tensors around it. Raises ModelError."""
        run = {"If": self._run_if, "Loop": self._run_loop, "Scan": self._run_scan}[self.node.op_type]
        results, flow = run(values, constants)
        if not flow:  # onnxruntime knows the shapes of outputs without a trip
            return self._run_complete(values, constants, types), flow
        return dict(zip(self.node.outputs, results, strict=True)), flow

    def _run_complete(
        self, values: Values, constants: Mapping[str, Array], types: Mapping[str, Tensor]
    ) -> dict[str, Array]:
        if self._complete is None:
            names = [name for name in self.node.inputs if name]
            tensors = {**types, **{name: _shaped(types, name, values[name]) for name in names}}
            outputs = [name for name in self.node.outputs if name]
            known = {name: constants[name] for name in names if name in constants}
            self._complete = self.lowering.compiler.compile([self.node], outputs, tensors, known, names)
        return dict(zip(self._complete.outputs, self._complete.run(values), strict=True))

    def _run_if(self, values: Values, constants: Mapping[str, Array]) -> tuple[list[Array], Flow]:
        body = self.bodies["then" if values[self.inputs[0]].reshape(-1)[0] else "else"]
        results, trip = body.run({}, values, constants)
        return results, [(trip, 1)]

    def _run_loop(self, values: Values, constants: Mapping[str, Array]) -> tuple[list[Array], Flow]:
        body, flow = self.bodies["body"], _FlowBuilder()
        limit, go = (values[name].reshape(-1)[0] if name else None for name in (*self.inputs, "")[:2])
        carried = [values[name] for name in self.inputs[2:]]
        rows: list[list[Array]] = [[] for _ in body.outputs[1 + len(carried) :]]
        ranks = [len(entry.type.tensor_type.shape.dim) for entry in body.proto.input[:2]]
        number, on = 0, go is None or bool(go)
        while on and (limit is None or number < limit):
            given = [np.full((1,) * bool(ranks[0]), number, np.int64), np.full((1,) * bool(ranks[1]), on)]
            results, trip = body.run(dict(zip(body.inputs, [*given, *carried], strict=True)), values, constants)
            flow.add(trip)
            on, carried = bool(results[0].reshape(-1)[0]), results[1 : 1 + len(carried)]
            for row, value in zip(rows, results[1 + len(carried) :], strict=True):
                row.append(value)
            number += 1
        return [*carried, *(np.stack(row) for row in rows if row)], flow.flow

    def _run_scan(self, values: Values, constants: Mapping[str, Array]) -> tuple[list[Array], Flow]:
        node, body, flow = self.node, self.bodies["body"], _FlowBuilder()
        count = node.int("num_scan_inputs", 0)
        states = [values[name] for name in self.inputs[: len(self.inputs) - count]]
        scanned = [np.moveaxis(values[name], axis, 0) for name, axis in self.scanned(values)]
        backward = node.ints("scan_input_directions", [0] * count)
        rows: list[list[Array]] = [[] for _ in body.outputs[len(states) :]]
        for number in range(len(scanned[0])):
            slices = [
                np.ascontiguousarray(one[-1 - number if back else number]).reshape(one.shape[1:])
                for one, back in zip(scanned, backward, strict=True)
            ]
            results, trip = body.run(dict(zip(body.inputs, [*states, *slices], strict=True)), values, constants)
            flow.add(trip)
            states = results[: len(states)]
            for row, value in zip(rows, results[len(states) :], strict=True):
                row.append(value)
        axes = node.ints("scan_output_axes", [0] * len(rows))
        prepended = node.ints("scan_output_directions", [0] * len(rows))
        stacked = [
            np.stack(row[::-1] if back else row, axis)
            for row, axis, back in zip(rows, axes, prepended, strict=True)
            if row
        ]
        return [*states, *stacked], flow.flow

    def scanned(self, shaped: Mapping[str, Array] | Mapping[str, Tensor]) -> list[tuple[str, int]]:
        """Return the scanned inputs and their axes."""
        count = self.node.int("num_scan_inputs", 0)
        names = self.inputs[len(self.inputs) - count :]
        axes = self.node.ints("scan_input_axes", [0] * count)
        return [(name, axis % len(shaped[name].shape)) for name, axis in zip(names, axes, strict=True)]


class _FlowBuilder:
    """Collects trips; equal ones in a row are counted."""

    def __init__(self) -> None:
        self.flow: Flow = []

    def add(self, trip: Trip) -> None:
        if self.flow and self.flow[-1][0] is trip:
            self.flow[-1] = (trip, self.flow[-1][1] + 1)
        else:
            self.flow.append((trip, 1))


def without_bodies(op: DeviceOp, spec: DeviceSpec, scratch_bytes: int = 0) -> DeviceOp:
    """Return an op of control flow without what only its bodies read."""
    captures = frozenset(op.nodes[0].captures)
    operands, weights = (tuple(t for t in of if t.name not in captures) for of in (op.operands, op.weights))
    cost = replace(control_cost(spec, operands, op.writes), workspace_bytes=scratch_bytes)
    cost = at_speed(spec, op.op_type, cost)
    return replace(op, operands=operands, weights=weights, cost=cost, flops=0, captures=captures)


def _shaped(types: Mapping[str, Tensor], name: str, value: Array) -> Tensor:
    """Return a tensor with the shape of a value; its type is the known one, since values of bfloat16 are fp32 here."""
    known = types.get(name)
    return Tensor(name, tuple(value.shape), elem_type_of(value.dtype) if known is None else known.elem_type)
