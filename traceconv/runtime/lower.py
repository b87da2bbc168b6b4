"""Groups → device ops: which core, how many blocks, what it costs, and all that the log says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from traceconv.runtime.cost import (
    Cost,
    InstructionMix,
    MatrixWork,
    VectorWork,
    cpu_cost,
    matrix_cost,
    mixed_cost,
    vector_cost,
)
from traceconv.runtime.fusion import FusedGraph, Group
from traceconv.runtime.graph import FLOATS, Graph, Node, Tensor
from traceconv.runtime.ops import FIXPIPE_ACTIVATIONS, OpKind, OpTraits, traits_of
from traceconv.runtime.spec import DeviceSpec

_IMAGE_OPS = frozenset(
    {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"}
    | {"BatchNormalization", "InstanceNormalization", "LRN", "Resize", "Upsample"}
)
#: Kinds of lanes that the vector unit computes in, and the types that are computed in them.
_LANES = (
    ("fp32", frozenset({"FLOAT", "DOUBLE"})),
    ("fp16", frozenset({"FLOAT16", "BFLOAT16"})),
    ("int32", frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})),
)
_SCATTERED = frozenset({"Transpose", "Gather", "GatherElements", "DepthToSpace", "SpaceToDepth", "Slice"})


@dataclass(frozen=True, slots=True)
class DeviceOp:
    """An op as the device runs it: one task for each execution.

    `reads` are tensors that other ops or the user make, `weights` constants, `writes` what leaves the op.
    `core` is a value of the task record's `task_type`. `fusion_id` is None for an op that is in the
    model as it is.
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

    @property
    def scope_path(self) -> str | None:
        """Module path, for models whose node names are paths, as exporters write them."""
        path = self.nodes[0].name.strip("/").rpartition("/")[0]
        return path or None

    @property
    def hf32_eligible(self) -> bool:
        """Whether the cube could compute it with shortened fp32 operands."""
        return self.core in ("AI_CORE", "MIX_AIC") and all(t.dtype == "FLOAT" for t in self.writes)

    def describe_operands(self) -> tuple[str, str, str]:
        """Shapes, dtypes and formats of all inputs, weights too, as the log writes them."""
        return self._described(self.operands)

    def describe_results(self) -> tuple[str, str, str]:
        """Shapes, dtypes and formats of all outputs."""
        return self._described(self.writes)

    def _described(self, tensors: Sequence[Tensor]) -> tuple[str, str, str]:
        shapes = ";".join(",".join(map(str, tensor.shape)) for tensor in tensors)
        formats = ";".join("NCHW" if self.image_layout and len(t.shape) == 4 else "ND" for t in tensors)
        return shapes, ";".join(tensor.dtype for tensor in tensors), formats


@dataclass(frozen=True, slots=True)
class Program:
    """A model ready to run: ops in order; `roots` maps a tensor to the one whose bytes it shares."""

    graph: Graph
    ops: tuple[DeviceOp, ...]
    roots: Mapping[str, str]

    def root(self, name: str) -> str:
        """The tensor that owns the bytes of `name`: itself, unless it is a view."""
        return self.roots.get(name, name)

    def last_uses(self) -> dict[int, list[str]]:
        """Op index → tensors (that own their bytes) that no later op reads."""
        last: dict[str, int] = {}
        for op in self.ops:
            for tensor in (*op.reads, *op.writes):
                last[self.root(tensor.name)] = op.index
        found: dict[int, list[str]] = {}
        for name, index in last.items():
            found.setdefault(index, []).append(name)
        return found


def lower(fused: FusedGraph, spec: DeviceSpec) -> Program:
    """Makes the device ops of a fused graph."""
    roots: dict[str, str] = {}
    for group in fused.groups:
        for view in group.views:
            roots[view.outputs[0]] = view.inputs[0]
    for name in list(roots):
        while roots[name] in roots:
            roots[name] = roots[roots[name]]
    ops: list[DeviceOp] = []
    names: set[str] = set()
    fusions = 0
    leaving = _read_outside(fused)
    for index, group in enumerate(fused.groups):
        op = _lower(fused.graph, group, index, leaving, spec, fusions if len(group.originals) > 1 else None)
        if op.name in names:
            raise AssertionError(f"two ops are called {op.name}")  # node names are unique, so this can't be
        names.add(op.name)
        fusions += len(group.originals) > 1
        ops.append(op)
    return Program(fused.graph, tuple(ops), roots)


def _read_outside(fused: FusedGraph) -> set[str]:
    """Tensors that are read by another group, seen through a view, or are outputs of the model."""
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
    op_type, core, cost, flops = _price(graph, group, operands, writes, spec)
    name = group.nodes[0].name
    rest = [node.op_type for node in group.originals if node is not group.originals[0]]
    return DeviceOp(
        index,
        "+".join([name, *rest[:8]]) + ("+…" if len(rest) > 8 else ""),
        op_type,
        core,
        group.nodes,
        group.originals,
        reads,
        weights,
        writes,
        operands,
        any(node.op_type in _IMAGE_OPS for node in group.nodes),
        flops,
        cost,
        fusion_id,
    )


def _price(
    graph: Graph, group: Group, operands: Sequence[Tensor], writes: Sequence[Tensor], spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    """(op type, core, cost, flops) of a group."""
    unique_bytes = sum(t.size_bytes for t in operands) + sum(t.size_bytes for t in writes)
    first = group.nodes[0]
    traits = traits_of(first)
    if traits.kind is OpKind.MATRIX and writes[-1].elem_type in FLOATS:
        return _price_matrix(graph, group, writes[-1], unique_bytes, spec)
    elements = max((t.count for t in [*operands, *writes]), default=1)
    wide = all(t.elem_bytes == 8 for t in [*operands, *writes])
    if traits.kind in (OpKind.SCALAR, OpKind.MATRIX) or wide:
        return traits.device_type, "AI_CPU", cpu_cost(spec, elements, unique_bytes), elements
    return _price_vector(graph, group, operands, writes, spec)


def _price_vector(
    graph: Graph, group: Group, operands: Sequence[Tensor], writes: Sequence[Tensor], spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    cycles, flops = 0, 0
    count = max((t.count for t in writes), default=1)
    for node in group.nodes:
        traits = traits_of(node)
        worked = _worked_on(graph, node, traits)
        count = max(count, worked)
        cycles += traits.vector_cycles * max(1, len([n for n in node.inputs if n]) - 1 if node.op_type == "Sum" else 1)
        flops += traits.flops * worked
    work = VectorWork(
        count,
        cycles,
        max(t.elem_bytes for t in writes),
        sum(t.size_bytes for t in operands),
        sum(t.size_bytes for t in writes),
        group.nodes[0].op_type in _SCATTERED,
        mix=_instructions(graph, group.nodes),
    )
    return _vector_type(group), "AI_VECTOR_CORE", vector_cost(spec, work), flops


def _worked_on(graph: Graph, node: Node, traits: OpTraits) -> int:
    """Elements that an op of the vector unit works on."""
    out = graph.tensors[next(name for name in node.outputs if name)].count
    if traits.kind is OpKind.WINDOW:
        window = node.ints("kernel_shape", [node.int("size", 1)])
        return out * math.prod(window)
    if traits.kind is OpKind.REDUCE:
        return max(out, graph.tensors[node.inputs[0]].count)
    return out


def _instructions(graph: Graph, nodes: Sequence[Node]) -> InstructionMix:
    """What the vector unit's instructions are: by the types of all operands and results, floats before integers."""
    types, casts, pairs = set(), 0, 0
    for node in nodes:
        operands = [graph.tensors[name] for name in node.inputs if name]
        types |= {tensor.dtype for tensor in operands}
        types |= {graph.tensors[name].dtype for name in node.outputs if name}
        traits = traits_of(node)
        casts += traits.vector_cycles if traits.flops == 0 else 0
        if traits.kind is OpKind.ELEMENTWISE:
            whole = sum(tensor.count > 1 for tensor in operands)
            pairs += whole - 1 if node.op_type == "Sum" else whole > 1
    lanes = next((name for name, of in _LANES if types & of), "misc")
    return InstructionMix(lanes, casts, max(0, pairs))


def _vector_type(group: Group) -> str:
    if len(group.nodes) == 1:
        return traits_of(group.nodes[0]).device_type
    return "Gelu" if any(node.op_type == "Erf" for node in group.nodes) else "FusedElementwise"


def _price_matrix(
    graph: Graph, group: Group, out: Tensor, unique_bytes: int, spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    matrix, *epilogue = group.nodes
    op_type, work = _matrix_work(graph, matrix)
    flops = 2 * work.groups * work.m * work.n * work.k
    cube = matrix_cost(spec, work, out.elem_bytes, unique_bytes, out.size_bytes)
    on_vector = [node for node in epilogue if not _fixpipe_does(graph, node)]
    flops += sum(traits_of(node).flops * out.count for node in epilogue)
    if not on_vector:
        return op_type, "AI_CORE", replace(cube, workspace_bytes=0), flops
    made = {name for node in group.nodes for name in node.outputs}
    extra = {name for node in on_vector for name in node.inputs if name and name not in made}
    vector = vector_cost(
        spec,
        VectorWork(
            out.count,
            sum(traits_of(node).vector_cycles for node in on_vector),
            out.elem_bytes,
            # What the cube made comes by way of L2, and the rest of the operands from device memory.
            out.size_bytes + sum(graph.tensors[name].size_bytes for name in extra),
            out.size_bytes,
            cached_bytes=out.size_bytes,
            mix=_instructions(graph, on_vector),
        ),
    )
    return op_type, "MIX_AIC", mixed_cost(cube, vector), flops


def _fixpipe_does(graph: Graph, node: Node) -> bool:
    """Whether a node after a matrix op costs nothing: a bias per column, or an activation that fixpipe has."""
    if node.op_type in FIXPIPE_ACTIVATIONS:
        return True
    constants = [graph.tensors[name] for name in node.inputs if name in graph.constants]
    out = graph.tensors[node.outputs[0]]
    return node.op_type == "Add" and any(
        t.count == 1 or (t.count == t.shape[-1] == out.shape[-1]) for t in constants if t.shape or t.count == 1
    )


def _matrix_work(graph: Graph, node: Node) -> tuple[str, MatrixWork]:
    """The matrix product that a Conv, ConvTranspose, Gemm or MatMul is."""
    a, b = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[1]]
    out = graph.tensors[node.outputs[0]]
    size = a.elem_bytes
    if node.op_type == "Gemm":
        m, k = a.shape[::-1] if node.int("transA", 0) else a.shape
        return "MatMulV2", MatrixWork(1, m, out.shape[-1], k, size)
    if node.op_type == "MatMul":
        k = a.shape[-1]
        n = b.shape[-1] if len(b.shape) > 1 else 1
        rows = out.count // max(1, n)
        if len(b.shape) > 2 and math.prod(b.shape[:-2]) > 1:
            batch = math.prod(out.shape[: -2 if len(a.shape) > 1 else -1])
            return "BatchMatMulV2", MatrixWork(batch, rows // max(1, batch), n, k, size)
        return "MatMulV2", MatrixWork(1, rows, n, k, size)
    groups = node.int("group", 1)
    kernel = math.prod(b.shape[2:])
    dims = len(b.shape) - 2
    if node.op_type == "ConvTranspose":
        m = a.shape[0] * math.prod(a.shape[2:])
        return f"Conv{dims}DTranspose", MatrixWork(groups, m, b.shape[1] * kernel, a.shape[1] // groups, size)
    strides = node.ints("strides", [1] * dims)
    reuse = math.prod(max(1, k // s) for k, s in zip(b.shape[2:], strides, strict=True))
    m = out.shape[0] * math.prod(out.shape[2:])
    kind = f"DepthwiseConv{dims}D" if groups > 1 and b.shape[1] == 1 else f"Conv{dims}D"
    return kind, MatrixWork(groups, m, b.shape[0] // groups, b.shape[1] * kernel, size, reuse)
