"""The op that a group of nodes becomes on the device: type, core and flops, and the work that `cost.py` prices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import onnx

from traceconv.runtime.cost import (
    Cost,
    InstructionMix,
    MatrixWork,
    VectorWork,
    cpu_cost,
    matrix_cost,
    mixed_cost,
    split_cost,
    vector_cost,
)
from traceconv.runtime.fusion import Group
from traceconv.runtime.graph import FLOATS, Graph, Node, Tensor, subgraphs
from traceconv.runtime.ops import FIXPIPE_ACTIVATIONS, INTEGER_MATRIX, KINDS, OpKind, OpTraits, traits_of
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.workspace import workspace_bytes

#: Kinds of lanes of the vector unit, and the types computed in them.
_LANES = (
    ("fp32", frozenset({"FLOAT", "DOUBLE"})),
    ("fp16", frozenset({"FLOAT16", "DT_BF16"})),
    ("int32", frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})),
)
_SCATTERED = frozenset({"Transpose", "Gather", "GatherElements", "DepthToSpace", "SpaceToDepth", "Slice"})


def price(
    graph: Graph, group: Group, operands: Sequence[Tensor], writes: Sequence[Tensor], spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    """Return (op type, core, cost, flops) of a group."""
    op_type, core, cost, flops = _price(graph, group, operands, writes, spec)
    scratch = workspace_bytes(spec, graph, group.nodes, group.kind, cost)
    return op_type, core, replace(cost, workspace_bytes=scratch), flops


def _price(
    graph: Graph, group: Group, operands: Sequence[Tensor], writes: Sequence[Tensor], spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    unique_bytes = sum(t.size_bytes for t in operands) + sum(t.size_bytes for t in writes)
    first = group.nodes[0]
    if group.kind == "quantized":
        return _price_quantized(graph, group, operands, writes, spec)
    if group.kind == "attention":
        return _price_attention(graph, group, writes[-1], unique_bytes, spec)
    traits = KINDS[group.kind] if group.kind else traits_of(first)
    if traits.kind is OpKind.MATRIX and (writes[-1].elem_type in FLOATS or first.op_type in INTEGER_MATRIX):
        return _price_matrix(graph, group, writes, unique_bytes, spec)
    wide = all(t.elem_bytes == 8 for t in [*operands, *writes])
    if traits.kind in (OpKind.SCALAR, OpKind.MATRIX) or wide:
        elements = _scalar_work(first, operands, writes)
        return traits.device_type, "AI_CPU", cpu_cost(spec, elements, unique_bytes), elements
    return _price_vector(graph, group, operands, writes, spec)


def control_cost(spec: DeviceSpec, operands: Sequence[Tensor], writes: Sequence[Tensor]) -> Cost:
    """Return the cost of an op of control flow without its bodies: it reads its operands and writes its results."""
    elements, size = (sum(map(attrgetter(name), [*operands, *writes])) for name in ("count", "size_bytes"))
    return cpu_cost(spec, elements, size)


def _scalar_work(node: Node, operands: Sequence[Tensor], writes: Sequence[Tensor]) -> int:
    """Return the elements that the AI CPU processes: all inputs and outputs, and the constants inside a subgraph.

    A recurrent op reads its weights at each step. The number of iterations of a loop is unknown in advance.
    """
    elements = sum(t.count for t in [*operands, *writes])
    if node.op_type in ("LSTM", "GRU", "RNN"):
        steps = operands[0].shape[1 if node.int("layout", 0) else 0]
        elements += (steps - 1) * sum(t.count for t in operands[1:3])
    return elements + sum(_constants_inside(body) for body in subgraphs(node.proto))


def _constants_inside(body: onnx.GraphProto) -> int:
    found = [*body.initializer, *(a.t for node in body.node for a in node.attribute if a.HasField("t"))]
    inner = [_constants_inside(part) for node in body.node for part in subgraphs(node)]
    return sum(math.prod(map(int, tensor.dims)) for tensor in found) + sum(inner)


def _price_quantized(
    graph: Graph, group: Group, operands: Sequence[Tensor], writes: Sequence[Tensor], spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    """Price an integer op: conversions into the cores and, with an activation, out of them are free."""
    node = next(node for node in group.nodes if node.op_type not in ("QuantizeLinear", "DequantizeLinear"))
    traits, out = traits_of(node), writes[-1]
    in_bytes, out_bytes = (sum(t.size_bytes for t in tensors) for tensors in (operands, writes))
    size = max((t.elem_bytes for t in operands if t.elem_type not in FLOATS), default=out.elem_bytes)
    if traits.kind is OpKind.MATRIX:
        op_type, work = _matrix_work(graph, node)
        work = replace(work, elem_bytes=min(size, 2))  # fixpipe adds a 32-bit bias
        cost = matrix_cost(spec, work, out.elem_bytes, in_bytes + out_bytes, out_bytes)
        if _is_product(node):
            after = group.nodes[group.nodes.index(node) + 1 :]
            cost = split_cost(spec, cost, out_bytes, sum(traits_of(one).vector_cycles for one in after))
        return f"Quant{op_type}", _matrix_core(cost), cost, work.flops
    count = _worked_on(graph, node, traits)
    if traits.kind is OpKind.SCALAR:
        return traits.device_type, "AI_CPU", cpu_cost(spec, count, in_bytes + out_bytes), count
    scattered, mix = node.op_type in _SCATTERED, _instructions(graph, [node])
    on_vector = VectorWork(count, traits.vector_cycles, size, in_bytes, out_bytes, scattered, mix=mix)
    return f"Quant{traits.device_type}", "AI_VECTOR_CORE", vector_cost(spec, on_vector), traits.flops * count


def _price_attention(
    graph: Graph, group: Group, out: Tensor, unique_bytes: int, spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    """Price both products as one, tile by tile of the scores: k is the first one's, plus the second one's columns."""
    first, last = group.nodes[0], group.nodes[-1]
    between = group.nodes[1:-1]
    scores, product = (_matrix_work(graph, node)[1] for node in (first, last))
    work = replace(scores, k=scores.k + product.n)
    count = graph.tensors[first.outputs[0]].count
    scores_bytes = graph.tensors[first.outputs[0]].size_bytes
    made = {name for node in group.nodes for name in node.outputs}
    masks = {name for node in between for name in node.inputs if name and name not in made}
    traits = KINDS["attention"]
    scaling = [traits_of(node) for node in between if node.op_type != "Softmax"]
    vector = VectorWork(
        count,
        traits.vector_cycles + sum(one.vector_cycles for one in scaling),
        out.elem_bytes,
        scores_bytes + sum(graph.tensors[name].size_bytes for name in masks),
        out.size_bytes,
        cached_bytes=scores_bytes,
        mix=_instructions(graph, between),
    )
    cube = matrix_cost(spec, work, out.elem_bytes, unique_bytes, out.size_bytes)
    flops = work.flops + count * (traits.flops + sum(one.flops for one in scaling))
    return traits.device_type, "MIX_AIC", mixed_cost(cube, vector_cost(spec, vector)), flops


def _price_vector(
    graph: Graph, group: Group, operands: Sequence[Tensor], writes: Sequence[Tensor], spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    cycles, flops = 0, 0
    count = max((t.count for t in writes), default=1)
    if group.kind:
        traits = KINDS[group.kind]
        count = max(count, max(graph.tensors[name].count for node in group.nodes for name in node.outputs))
        cycles, flops = traits.vector_cycles, traits.flops * count
    for node in () if group.kind else group.nodes:
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
    op_type = traits.device_type if group.kind or len(group.nodes) == 1 else "FusedElementwise"
    return op_type, "AI_VECTOR_CORE", vector_cost(spec, work), flops


def _worked_on(graph: Graph, node: Node, traits: OpTraits) -> int:
    """Return the number of elements that an op of the vector unit works on."""
    out = graph.tensors[next(name for name in node.outputs if name)].count
    if traits.kind is OpKind.WINDOW:
        window = node.ints("kernel_shape", [node.int("size", 1)])
        return out * math.prod(window)
    if traits.kind is OpKind.REDUCE:
        return max(out, graph.tensors[node.inputs[0]].count)
    return out


def _instructions(graph: Graph, nodes: Sequence[Node]) -> InstructionMix:
    """Return the vector unit's instructions, by the types of all operands and results, floats before integers."""
    types, casts, pairs = set(), 0, 0
    for node in nodes:
        operands = [graph.tensors[name] for name in node.inputs if name]
        types |= {tensor.dtype for tensor in operands}
        types |= {graph.tensors[name].dtype for name in node.outputs if name}
        traits = traits_of(node)
        casts += traits.vector_cycles if traits.flops == 0 else 0
        if traits.kind is OpKind.ELEMENTWISE:
            tensors = sum(tensor.count > 1 for tensor in operands)
            pairs += tensors - 1 if node.op_type == "Sum" else tensors > 1
    lanes = next((name for name, of in _LANES if types & of), "misc")
    return InstructionMix(lanes, casts, max(0, pairs))


def _price_matrix(
    graph: Graph, group: Group, writes: Sequence[Tensor], unique_bytes: int, spec: DeviceSpec
) -> tuple[str, str, Cost, int]:
    """Price a matrix op and what follows it. In training, the last unit to work also writes what gradients read."""
    matrix, *epilogue = group.nodes
    op_type, work = _matrix_work(graph, matrix)
    out, written_bytes = writes[-1], sum(tensor.size_bytes for tensor in writes)
    on_vector = [node for node in epilogue if not _fixpipe_does(graph, node)]
    elem_bytes = out.elem_bytes if on_vector else sum(tensor.elem_bytes for tensor in writes)
    cube = matrix_cost(spec, work, elem_bytes, unique_bytes, written_bytes)
    flops = work.flops + sum(traits_of(node).flops * out.count for node in epilogue)
    all_cycles = sum(traits_of(node).vector_cycles for node in epilogue)
    if not on_vector:
        cost = split_cost(spec, cube, written_bytes, all_cycles) if _is_product(matrix) else cube
        return op_type, _matrix_core(cost), cost, flops
    made = {name for node in group.nodes for name in node.outputs}
    extra = {name for node in on_vector for name in node.inputs if name and name not in made}
    vector = VectorWork(
        out.count,
        sum(traits_of(node).vector_cycles for node in on_vector),
        out.elem_bytes,
        # The cube's result comes from L2, the other operands from device memory.
        out.size_bytes + sum(graph.tensors[name].size_bytes for name in extra),
        written_bytes,
        cached_bytes=out.size_bytes,
        mix=_instructions(graph, on_vector),
    )
    cost = mixed_cost(cube, vector_cost(spec, vector))
    if _is_product(matrix):
        own_bytes = vector.in_bytes - vector.cached_bytes
        cost = split_cost(spec, cost, written_bytes, all_cycles, own_bytes, vector.mix)
    return op_type, _matrix_core(cost), cost, flops


def _is_product(node: Node) -> bool:
    """Whether a matrix op is a plain product, whose K can be split; a convolution is not."""
    return node.op_type == "Gemm" or "MatMul" in node.op_type


def _matrix_core(cost: Cost) -> str:
    return "MIX_AIC" if cost.mix_block_count else "AI_CORE"


def _fixpipe_does(graph: Graph, node: Node) -> bool:
    """Whether a node after a matrix op is free: a bias per column, or an activation of fixpipe."""
    if node.op_type in FIXPIPE_ACTIVATIONS:
        return True
    constants = [graph.tensors[name] for name in node.inputs if name in graph.constants]
    out = graph.tensors[node.outputs[0]]
    return node.op_type == "Add" and any(
        t.count == 1 or (t.count == t.shape[-1] == out.shape[-1]) for t in constants if t.shape or t.count == 1
    )


def _matrix_work(graph: Graph, node: Node) -> tuple[str, MatrixWork]:
    """Return a Conv, ConvTranspose, Gemm or MatMul as op type and matrix product."""
    place = INTEGER_MATRIX.get(node.op_type, 1)
    a, b = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[place]]
    out = graph.tensors[node.outputs[0]]
    size = a.elem_bytes
    quant = "Quant" if node.op_type in INTEGER_MATRIX else ""
    if node.op_type == "Gemm":
        m, k = a.shape[::-1] if node.int("transA", 0) else a.shape
        return "MatMulV2", MatrixWork(1, m, out.shape[-1], k, size)
    if "MatMul" in node.op_type:
        k = a.shape[-1]
        n = b.shape[-1] if len(b.shape) > 1 else 1
        rows = out.count // max(1, n)
        if len(b.shape) > 2 and math.prod(b.shape[:-2]) > 1:
            batch = math.prod(out.shape[: -2 if len(a.shape) > 1 else -1])
            return f"{quant}BatchMatMulV2", MatrixWork(batch, rows // max(1, batch), n, k, size)
        return f"{quant}MatMulV2", MatrixWork(1, rows, n, k, size)
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
    return quant + kind, MatrixWork(groups, m, b.shape[0] // groups, b.shape[1] * kernel, size, reuse)
