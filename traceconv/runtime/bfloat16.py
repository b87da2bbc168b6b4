"""bfloat16: onnxruntime has hardly any kernels for it, so ops compute in fp32 and round their results.

Arrays at the borders (inputs, outputs, weights) have the dtype `BF16` of ml_dtypes, which onnx uses too. Inside, such
tensors are fp32 arrays whose values bfloat16 can represent.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from traceconv.base.arrays import NDArray

BF16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
#: Integer attributes that are element types: of the result, or of the computation.
_TYPE_ATTRIBUTES = frozenset({"dtype", "output_dtype", "precision", "softmax_precision", "stash_type", "to"})


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements are floats. numpy's own `kind` of bfloat16 is that of opaque bytes."""
    return dtype.kind == "f" or dtype == BF16


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Return bfloat16 values as fp32, which is exact, and others as they are."""
    return values.astype(np.float32) if values.dtype == BF16 else values


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Return the nearest bfloat16 of each value, the even one of two."""
    with np.errstate(invalid="ignore", over="ignore"):  # NaN, and infinity for what is too large
        return values.astype(BF16)


def rounded(values: NDArray[Any]) -> NDArray[Any]:
    """Return the nearest bfloat16 of each value, as fp32."""
    return narrowed(values).astype(np.float32)


def array_of(tensor: TensorProto) -> NDArray[Any]:
    """Return the values of an ONNX tensor. onnx before 1.19 returns bfloat16 as fp32."""
    values: NDArray[Any] = numpy_helper.to_array(tensor)
    return narrowed(values) if tensor.data_type == TensorProto.BFLOAT16 else values


def elem_type_of(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number of an element type."""
    return TensorProto.BFLOAT16 if dtype == BF16 else int(helper.np_dtype_to_tensor_dtype(dtype))


def mentions(proto: onnx.NodeProto) -> bool:
    """Whether an attribute of a node, or a node of its subgraphs, names or contains bfloat16."""
    return any(
        (attribute.name in _TYPE_ATTRIBUTES and attribute.i == TensorProto.BFLOAT16)
        or attribute.t.data_type == TensorProto.BFLOAT16
        or any(_graph_mentions(graph) for graph in (attribute.g, *attribute.graphs))
        for attribute in proto.attribute
    )


def _graph_mentions(graph: onnx.GraphProto) -> bool:
    return any(one.data_type == TensorProto.BFLOAT16 for one in graph.initializer) or any(map(mentions, graph.node))


def tensor_of(values: NDArray[Any], name: str) -> TensorProto:
    """Return the ONNX tensor of an array."""
    if values.dtype != BF16:
        return numpy_helper.from_array(values, name)
    bits = values.tobytes()
    return TensorProto(name=name, dims=values.shape, data_type=TensorProto.BFLOAT16, raw_data=bits)


def widen_graph(graph: onnx.GraphProto, narrow: Collection[str] = ()) -> None:
    """Change a graph to compute in fp32 and round each result of bfloat16: those in `narrow`, and those declared."""
    declared = [*graph.input, *graph.output, *graph.value_info]
    halves = [entry for entry in declared if entry.type.tensor_type.elem_type == TensorProto.BFLOAT16]
    rounding = {*narrow, *(entry.name for entry in halves)}
    for entry in halves:
        entry.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    nodes = [one for node in graph.node for one in _in_fp32(node, rounding)]
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.BFLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(widened(array_of(tensor)), tensor.name))


def _in_fp32(proto: onnx.NodeProto, rounding: Collection[str]) -> list[onnx.NodeProto]:
    """Return nodes that compute `proto`, which is changed, in fp32, and round those of its outputs in `rounding`."""
    for attribute in proto.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i == TensorProto.BFLOAT16:
            attribute.i = TensorProto.FLOAT
        if attribute.type == AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        elif attribute.type == AttributeProto.GRAPH:
            widen_graph(attribute.g)
        for graph in attribute.graphs:
            widen_graph(graph)
    nodes = [proto]
    for place, name in enumerate(proto.output):
        if name in rounding:
            wide, narrow = f"{name}@fp32", f"{name}@bf16"
            proto.output[place] = wide
            nodes.append(helper.make_node("Cast", [wide], [narrow], to=TensorProto.BFLOAT16))
            nodes.append(helper.make_node("Cast", [narrow], [name], to=TensorProto.FLOAT))
    return nodes
