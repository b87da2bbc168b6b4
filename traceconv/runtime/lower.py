"""Groups of nodes → device ops: core, blocks, cost, and everything else that is logged about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from traceconv.runtime.cost import Cost, at_speed
from traceconv.runtime.fusion import FusedGraph, Group
from traceconv.runtime.graph import Graph, Node, Tensor
from traceconv.runtime.pricing import price
from traceconv.runtime.spec import DeviceSpec

#: Ops whose rank-4 tensors are images.
IMAGE_OPS = frozenset(
    {"Conv", "ConvInteger", "ConvTranspose", "QLinearConv"}
    | {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"}
    | {"BatchNormalization", "InstanceNormalization", "LRN", "Resize", "Upsample"}
)
_HOST_KINDS = frozenset({"host-quantize", "host-dequantize"})


@dataclass(frozen=True, slots=True)
class DeviceOp:
    """An op as the device runs it: one task per execution.

    core       a value of the task record's `task_type`; "HCCL" for a collective, which the log does not list as an op
    reads      tensors made by other ops or the user; `weights` are constants, `writes` are the results
    fusion_id  None for an op that is a single node of the model
    dynamic    whether shapes depend on values; they, and the cost, are those for the inputs at load
    phase      part of a training step: forward, backward, refresh
    updates    tensors that stay on the device and are changed in place
    after      indices of ops that must finish before it, in addition to those whose results it reads
    repeats    number of executions in its task, counted in its flops and bytes; its cost is that of one
    captures   tensors among `reads` that only the ops inside its bodies read
    """

    index: int
    name: str
    op_type: str
    core: str
    nodes: tuple[Node, ...]
    originals: tuple[Node, ...]
    reads: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    operands: tuple[Tensor, ...]
    image_layout: bool
    flops: int
    cost: Cost
    fusion_id: int | None
    dynamic: bool
    phase: str = "forward"
    updates: tuple[Tensor, ...] = ()
    after: tuple[int, ...] = ()
    repeats: int = 1
    captures: frozenset[str] = frozenset()

    @property
    def is_collective(self) -> bool:
        """Whether it exchanges data with other devices."""
        return self.core == "HCCL"

    @property
    def param_count(self) -> int:
        """Number of elements of its weights."""
        return sum(tensor.count for tensor in self.weights)

    @property
    def input_bytes(self) -> int:
        return self.repeats * sum(tensor.size_bytes for tensor in self.reads if tensor.name not in self.captures)

    @property
    def weight_bytes(self) -> int:
        return self.repeats * sum(tensor.size_bytes for tensor in self.weights)

    @property
    def output_bytes(self) -> int:
        return self.repeats * sum(tensor.size_bytes for tensor in (*self.writes, *self.updates))

    @property
    def state(self) -> str:
        return "dynamic" if self.dynamic else "static"

    @property
    def scope_path(self) -> str | None:
        """Module path, if the model's node names are paths, as written by exporters."""
        path = self.nodes[0].name.strip("/").rpartition("/")[0]
        return path or None

    @property
    def hf32_eligible(self) -> bool:
        """Whether the cube could compute it with truncated fp32 operands."""
        return self.core in ("AI_CORE", "MIX_AIC") and all(t.dtype == "FLOAT" for t in self.writes)

    def describe_operands(self) -> tuple[str, str, str]:
        """Return shapes, dtypes and formats of all inputs and weights, as logged."""
        return self._described(self.operands)

    def describe_results(self) -> tuple[str, str, str]:
        """Return shapes, dtypes and formats of all outputs and updates, as logged."""
        return self._described((*self.writes, *self.updates))

    def _described(self, tensors: Sequence[Tensor]) -> tuple[str, str, str]:
        shapes = ";".join(",".join(map(str, tensor.shape)) for tensor in tensors)
        formats = ";".join("NCHW" if self.image_layout and len(t.shape) == 4 else "ND" for t in tensors)
        return shapes, ";".join(tensor.dtype for tensor in tensors), formats


@dataclass(frozen=True, slots=True)
class HostOp:
    """Work of the host on an input before it is copied to the device, or on an output after it was copied back.

    `kind`: Quantize (floats to the device's integers), Lower (to the device's layout), Unlower (from it), Dequantize.
    `nodes` are those of the model; Lower and Unlower have none, and keep all values.
    """

    kind: str
    name: str
    source: Tensor
    result: Tensor
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A model ready to run, with its ops in order.

    roots      tensor → the tensor whose bytes it shares
    uploads    tensors that are copied to the device, one per input of the model
    downloads  tensors that are copied back, one per output
    state      tensors that stay on the device from run to run and are changed by ops
    inner      ops in bodies of control flow that have run so far, with numbers after those of `ops`
    """

    graph: Graph
    ops: tuple[DeviceOp, ...]
    roots: Mapping[str, str]
    host_before: tuple[HostOp, ...]
    host_after: tuple[HostOp, ...]
    uploads: tuple[str, ...]
    downloads: tuple[str, ...]
    state: tuple[str, ...] = ()
    inner: list[DeviceOp] = field(default_factory=list)

    def root(self, name: str) -> str:
        """Return the tensor that owns the bytes of `name`: itself, unless it is a view."""
        return self.roots.get(name, name)

    @property
    def is_single_operator(self) -> bool:
        """Whether the model is a single op; its runs are then not counted as iterations."""
        return sum(len(op.nodes) for op in self.ops) <= 1

    def last_uses(self) -> dict[int, list[str]]:
        """Return op index → tensors (that own their bytes) that no later op reads."""
        last: dict[str, int] = {}
        for op in self.ops:
            for tensor in (*op.reads, *op.writes):
                last[self.root(tensor.name)] = op.index
        found: dict[int, list[str]] = {}
        for name, index in last.items():
            found.setdefault(index, []).append(name)
        return found


def lower(fused: FusedGraph, spec: DeviceSpec) -> Program:
    """Lower a fused graph to device ops."""
    roots: dict[str, str] = {}
    for group in fused.groups:
        for view in group.views:
            roots[view.outputs[0]] = view.inputs[0]
    for name in list(roots):
        while roots[name] in roots:
            roots[name] = roots[roots[name]]
    ops: list[DeviceOp] = []
    host: list[Group] = []
    fusions = 0
    leaving = read_outside(fused)
    for group in fused.groups:
        if group.kind in _HOST_KINDS:
            host.append(group)
            continue
        ops.append(_lower(fused.graph, group, len(ops), leaving, spec, fusions if len(group.originals) > 1 else None))
        fusions += len(group.originals) > 1
    assert len({op.name for op in ops}) == len(ops)  # node names are unique
    return _with_host(fused.graph, tuple(ops), roots, host)


def _with_host(graph: Graph, ops: tuple[DeviceOp, ...], roots: Mapping[str, str], groups: Sequence[Group]) -> Program:
    """Return the program with the host's work: per input Quantize and Lower, per output the reverse."""
    by_input = {group.sink.inputs[0]: group for group in groups if group.kind == "host-quantize"}
    by_output = {group.sink.outputs[0]: group for group in groups if group.kind == "host-dequantize"}
    before: list[HostOp] = []
    after: list[HostOp] = []
    uploads, downloads = [], []
    for name in graph.inputs:
        tensor, group = graph.tensors[name], by_input.get(name)
        if group is not None:
            source, tensor = tensor, graph.tensors[group.sink.outputs[0]]
            before.append(HostOp("Quantize", group.sink.name, source, tensor, group.nodes))
        before.append(HostOp("Lower", tensor.name, tensor, tensor))
        uploads.append(tensor.name)
    for name in graph.outputs:
        tensor, group = graph.tensors[name], by_output.get(name)
        result = tensor
        if group is not None:
            tensor = graph.tensors[group.sink.inputs[0]]
        after.append(HostOp("Unlower", tensor.name, tensor, tensor))
        if group is not None:
            after.append(HostOp("Dequantize", group.sink.name, tensor, result, group.nodes))
        downloads.append(tensor.name)
    return Program(graph, ops, roots, tuple(before), tuple(after), tuple(uploads), tuple(downloads))


def read_outside(fused: FusedGraph) -> set[str]:
    """Return the tensors that are read by another group or a view, or are outputs of the model."""
    found = set(fused.graph.outputs)
    for group in fused.groups:
        made = {name for node in group.nodes for name in node.outputs}
        found.update(name for node in group.nodes for name in node.inputs if name not in made)
        found.update(view.inputs[0] for view in group.views)
    return found


def _lower(
    graph: Graph, group: Group, index: int, leaving: set[str], spec: DeviceSpec, fusion_id: int | None
) -> DeviceOp:
    made = {name for node in group.nodes for name in node.outputs}
    seen = dict.fromkeys(name for node in group.nodes for name in node.inputs if name and name not in made)
    operands = tuple(graph.tensors[name] for name in seen)
    reads = tuple(tensor for tensor in operands if tensor.name not in graph.constants)
    weights = tuple(tensor for tensor in operands if tensor.name in graph.constants)
    writes = tuple(graph.tensors[name] for node in group.nodes for name in node.outputs if name and name in leaving)
    op_type, core, cost, flops = price(graph, group, operands, writes, spec)
    return DeviceOp(
        index,
        name_of(group),
        op_type,
        core,
        group.nodes,
        group.originals,
        reads,
        weights,
        writes,
        operands,
        any(node.op_type in IMAGE_OPS for node in group.nodes),
        flops,
        at_speed(spec, op_type, cost),
        fusion_id,
        any(tensor.name in graph.dynamic for tensor in (*operands, *writes)),
    )


def name_of(group: Group) -> str:
    """Return the name of a group's op: that of its first node, and the types of the other originals."""
    rest = [node.op_type for node in group.originals if node is not group.originals[0]]
    return "+".join([group.nodes[0].name, *rest[:8]]) + ("+…" if len(rest) > 8 else "")
