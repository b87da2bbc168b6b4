"""Scratch memory of kernels: bytes, from the shapes, element sizes and blocks that determine their time.

`docs/explanation/cost-model.md` explains the equations and names their sources. Results are multiples of `ALIGN_BYTES`,
and 0 for kernels whose tiles fit into the memory of a core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from traceconv.runtime.cost import VECTOR_TILES, Cost, ceil_div
from traceconv.runtime.graph import Graph, Node, Tensor
from traceconv.runtime.ops import OpKind, traits_of
from traceconv.runtime.spec import DeviceSpec

#: Workspace is allocated in units of this size, as all blocks of device memory.
ALIGN_BYTES = 512
#: A convolution unfolds at most this much at a time; a larger image is unfolded in parts.
UNFOLD_LIMIT_BYTES = 64 << 20
#: Images unfolded at a time: the cube multiplies one while the next is unfolded.
_UNFOLDED_IMAGES = 2
#: Bytes of a sum, and of an index.
_SUM_BYTES = 4
_INDEX_BYTES = 8
#: Reduction → bytes of a partial result: a value and its index, or two sums; a sum for the others.
_PARTIAL_BYTES = {"ArgMax": _SUM_BYTES + _INDEX_BYTES, "ArgMin": _SUM_BYTES + _INDEX_BYTES} | dict.fromkeys(
    ("Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
     "SkipLayerNormalization", "ReduceLogSumExp"), 2 * _SUM_BYTES)  # fmt: skip
#: Recurrent op → gates of a cell.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def aligned(size_bytes: int) -> int:
    """Return the size as it is allocated."""
    return ceil_div(size_bytes, ALIGN_BYTES) * ALIGN_BYTES


def workspace_bytes(spec: DeviceSpec, graph: Graph, nodes: Sequence[Node], kind: str | None, cost: Cost) -> int:
    """Return the workspace of a group of nodes (`kind`: as in `ops.KINDS`) with this cost.

    It includes what the cube hands to the vector cores: tiles of a mixed op, or partial sums.
    """
    tensors = graph.tensors
    total = cost.workspace_bytes
    if kind == "attention":
        return aligned(total + statistics_bytes(tensors[nodes[0].outputs[0]]))
    for node in nodes:
        if node.op_type in ("Conv", "ConvInteger", "QLinearConv", "ConvTranspose"):
            total += unfold_bytes(node, tensors, tensors[node.inputs[0]].elem_bytes)
        elif traits_of(node).kind is OpKind.REDUCE and cost.vector is not None:
            total += _reduction_bytes(spec, graph, node)
        else:
            total += _other_bytes(node, tensors)
    return aligned(total)


def statistics_bytes(scores: Tensor) -> int:
    """Return the size of an attention's maximum and sum of each row of scores."""
    return scores.count // max(1, scores.shape[-1]) * 2 * _SUM_BYTES


def unfold_bytes(node: Node, tensors: Mapping[str, Tensor], elem_bytes: int) -> int:
    """Return the size of the columns of a convolution (im2col) or transposed convolution (col2im) for the images in
    work at a time; 0 if an image is already the matrix.
    """
    data, weight = tensors[node.inputs[0]], tensors[node.inputs[3 if node.op_type == "QLinearConv" else 1]]
    dims = len(weight.shape) - 2
    kernel = math.prod(weight.shape[2:])
    moves = any(one != 1 for one in node.ints("strides", [1] * dims)) or any(node.ints("pads", [0] * 2 * dims))
    if kernel == 1 and not moves:
        return 0
    if node.op_type == "ConvTranspose":
        row = weight.shape[1] * node.int("group", 1) * kernel
        pixels, elem_bytes = math.prod(data.shape[2:]), max(elem_bytes, _SUM_BYTES)
    else:
        row, pixels = data.shape[1] * kernel, math.prod(tensors[node.outputs[0]].shape[2:])
    return min(min(data.shape[0], _UNFOLDED_IMAGES) * pixels * row * elem_bytes, UNFOLD_LIMIT_BYTES)


def partial_bytes(
    spec: DeviceSpec, count: int, out_count: int, size_bytes: int = _SUM_BYTES, *, columns: bool = True
) -> int:
    """Return the size of the partial results when the vector cores reduce `count` elements to `out_count`.

    It is enough for any tiling. `columns`: whether each core adds rows elementwise and has a
    partial of every result; otherwise each core reduces rows, and only rows that cores share have partials.
    """
    blocks = min(spec.vector_cores, ceil_div(count, VECTOR_TILES[0]))
    if columns:
        sharing = min(blocks, ceil_div(count, max(1, out_count)))
        return sharing * out_count * size_bytes if sharing > 1 else 0
    return (blocks + out_count - 1) * size_bytes if 0 < out_count < blocks else 0


def _reduction_bytes(spec: DeviceSpec, graph: Graph, node: Node) -> int:
    tensors, constants = graph.tensors, graph.constants
    data, out = tensors[node.inputs[0]], tensors[next(name for name in node.outputs if name)]
    size, shape, rank = _PARTIAL_BYTES.get(node.op_type, _SUM_BYTES), data.shape, len(data.shape)
    if out.count < data.count:
        axes = node.ints("axes", [])
        if not axes and len(node.inputs) > 1 and node.inputs[1] in constants:
            axes = [int(axis) for axis in constants[node.inputs[1]].reshape(-1)]
        if node.op_type in ("ArgMax", "ArgMin"):
            axes = [node.int("axis", 0)]
        columns = bool(axes) and rank - 1 not in {axis % rank for axis in axes}
        return partial_bytes(spec, data.count, out.count, size, columns=columns and out.count > 1)
    if node.op_type == "InstanceNormalization":
        rows = math.prod(shape[:2])
    elif node.op_type == "GroupNormalization":
        rows = shape[0] * node.int("num_groups", 1)
    elif node.op_type in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        rows = math.prod(shape[: node.int("axis", -1) % max(1, rank)])
    elif node.op_type == "CumSum" and node.inputs[1] in constants and rank:
        rows = data.count // max(1, shape[int(constants[node.inputs[1]].reshape(-1)[0]) % rank])
    else:
        rows = data.count // max(1, shape[node.int("axis", -1) % rank]) if rank else 1
    return partial_bytes(spec, data.count, rows, size, columns=False)


def _other_bytes(node: Node, tensors: Mapping[str, Tensor]) -> int:
    """Return the buffers of sorting, of gates, and of transposed copies."""
    if node.op_type in ("TopK", "Unique"):
        data = tensors[node.inputs[0]]
        return data.count * (data.elem_bytes + _INDEX_BYTES)
    if node.op_type == "NonMaxSuppression":
        return tensors[node.inputs[1]].count * (_SUM_BYTES + _INDEX_BYTES)
    if node.op_type == "Einsum":
        return sum(tensors[name].size_bytes for name in node.inputs)
    if node.op_type in _GATES:
        data, weight = tensors[node.inputs[0]], tensors[node.inputs[1]]
        batch = data.shape[0 if node.int("layout", 0) else 1]
        return batch * weight.shape[0] * weight.shape[1] * data.elem_bytes
    return 0
