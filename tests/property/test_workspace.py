"""Scratch memory of kernels: monotone in their sizes, 0 where tiles suffice, bounded, and aligned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from traceconv.runtime.fusion import Group
from traceconv.runtime.graph import Graph, Node, Tensor
from traceconv.runtime.pricing import price
from traceconv.runtime.spec import reference_npu
from traceconv.runtime.training.compile import compile_training
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.workspace import ALIGN_BYTES, UNFOLD_LIMIT_BYTES, partial_bytes

SPEC = reference_npu()
Shape = Sequence[int]


def workspace(
    op_type: str,
    inputs: Sequence[Shape],
    output: Shape,
    attributes: Mapping[str, object] | None = None,
    elem_type: int = TensorProto.FLOAT,
    constants: Mapping[int, Sequence[int]] | None = None,
) -> int:
    """The workspace of one op, by its shapes alone."""
    names = [f"i{place}" for place in range(len(inputs))]
    tensors = {name: Tensor(name, tuple(shape), elem_type) for name, shape in zip(names, inputs, strict=True)}
    tensors["y"] = Tensor("y", tuple(output), elem_type)
    values = {f"i{place}": np.array(value) for place, value in (constants or {}).items()}
    node = Node("op", helper.make_node(op_type, names, ["y"], **(attributes or {})))
    graph = Graph("m", "m", {"": 17}, (node,), tensors, values, tuple(names), ("y",))
    operands = [tensors[name] for name in names]
    found = price(graph, Group((node,), (node,)), operands, [tensors["y"]], SPEC)[2].workspace_bytes
    assert found >= 0 and found % ALIGN_BYTES == 0
    return found


def conv(batch: int, channels: int, side: int, filters: int, kernel: int, elem_type: int = TensorProto.FLOAT) -> int:
    out = side - kernel + 1
    shapes = [(batch, channels, side, side), (filters, channels, kernel, kernel)]
    return workspace("Conv", shapes, (batch, filters, out, out), elem_type=elem_type)


def test_the_convolution_of_the_published_example() -> None:
    # Two images of 220 × 220 windows of 3 · 5 · 5 floats; RAF's page reports 40,566,096 bytes for cuDNN's kernel.
    exact = 2 * 220 * 220 * 75 * 4
    assert conv(16, 3, 224, 3, 5) == -(-exact // 512) * 512 == 29_040_128


SIZES = st.tuples(st.integers(1, 8), st.integers(1, 64), st.integers(8, 200), st.integers(1, 64), st.integers(1, 5))


@given(SIZES, st.integers(0, 3), st.integers(1, 50), st.sampled_from([TensorProto.FLOAT16, TensorProto.FLOAT]))
def test_a_convolution(sizes: tuple[int, ...], side: int, more: int, elem_type: int) -> None:
    larger = list(sizes)
    larger[side] += more
    found = conv(*sizes, elem_type)
    assert found <= conv(*larger, elem_type) <= UNFOLD_LIMIT_BYTES
    assert found <= conv(*sizes, TensorProto.FLOAT)
    assert (found == 0) == (sizes[4] == 1)


def test_a_strided_or_padded_pointwise_convolution_is_unfolded() -> None:
    shapes, plain = [(1, 8, 16, 16), (8, 8, 1, 1)], workspace("Conv", [(1, 8, 16, 16), (8, 8, 1, 1)], (1, 8, 16, 16))
    assert plain == 0
    assert workspace("Conv", shapes, (1, 8, 8, 8), {"strides": [2, 2]}) == 8 * 8 * 8 * 4
    assert workspace("Conv", shapes, (1, 8, 18, 18), {"pads": [1, 1, 1, 1]}) >= 18 * 18 * 8 * 4


REDUCTIONS = ["ReduceSum", "ReduceMax", "ReduceMean", "ArgMax", "Softmax", "LayerNormalization", "CumSum"]


@given(st.sampled_from(REDUCTIONS), st.integers(1, 64), st.integers(1, 1 << 22), st.integers(1, 1 << 20))
def test_rows_need_partials_only_where_cores_share_one(op_type: str, rows: int, length: int, more: int) -> None:
    found, longer = (_reduced(op_type, rows, size, axis=1) for size in (length, length + more))
    blocks = SPEC.vector_cores
    assert found <= longer <= 2 * blocks * 12 + ALIGN_BYTES
    if rows >= blocks or rows * length <= 1_024:
        assert found == 0


@given(st.integers(1, 5_000), st.integers(1, 5_000), st.integers(1, 5_000))
def test_columns_need_a_partial_of_each_core(rows: int, columns: int, more: int) -> None:
    found, longer = (_reduced("ReduceSum", count, columns, axis=0) for count in (rows, rows + more))
    assert found <= longer <= SPEC.vector_cores * columns * 4 + ALIGN_BYTES


def _reduced(op_type: str, rows: int, length: int, axis: int) -> int:
    shape, out = (rows, length), (1, length) if axis == 0 else (rows, 1)
    if op_type.startswith("Reduce") or op_type == "ArgMax":
        attributes: dict[str, object] = {"axis": axis} if op_type == "ArgMax" else {"axes": [axis]}
        return workspace(op_type, [shape], out, attributes)
    if op_type == "CumSum":
        return workspace(op_type, [shape, ()], shape, constants={1: [axis]})
    return workspace(op_type, [shape], shape, {"axis": axis})


@given(st.integers(1, 64), st.integers(1, 1 << 20), st.integers(1, 1 << 20), st.booleans())
def test_partials_are_bounded(cores: int, count: int, out_count: int, columns: bool) -> None:
    spec = dataclasses.replace(SPEC, vector_cores=cores)
    found = partial_bytes(spec, count, out_count, columns=columns)
    assert 0 <= found <= 4 * cores * max(out_count, 2)
    assert found == 0 or (cores > 1 and count > 1_024)


@pytest.mark.parametrize("op_type", ["Relu", "Add", "MatMul", "Transpose", "MaxPool", "Concat"])
def test_ops_that_work_tile_by_tile_need_none(op_type: str) -> None:
    shape, attributes = (1, 8, 64, 64), {"MaxPool": {"kernel_shape": [1, 1]}, "Concat": {"axis": 0}}.get(op_type, {})
    inputs = [shape] * (2 if op_type in ("Add", "MatMul") else 1)
    assert workspace(op_type, inputs, shape, attributes) == 0


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_a_product_split_along_k_needs_its_partial_sums(op_type: str) -> None:
    assert workspace(op_type, [(16, 4_096), (4_096, 16)], (16, 16)) == 4 * 16 * 16 * 4
    assert workspace(op_type, [(16, 512), (512, 16)], (16, 16)) == 0


@given(st.integers(1, 100), st.integers(1, 10_000), st.integers(1, 100))
def test_sorting_keeps_each_value_with_its_index(rows: int, length: int, k: int) -> None:
    found = workspace("TopK", [(rows, length), (1,)], (rows, min(k, length)), constants={1: [k]})
    exact = rows * length * (4 + 8)
    assert exact <= found < exact + ALIGN_BYTES
    assert math.prod((rows, min(k, length))) * 4 <= found


def test_gradients_that_sum_or_unfold_need_some_and_the_others_none() -> None:
    plan = compile_training("mini_resnet", TrainOptions(), 2)
    sizes: dict[str, list[int]] = {}
    for op in plan.program.ops:
        sizes.setdefault(op.op_type, []).append(op.cost.workspace_bytes)
    assert all(size % ALIGN_BYTES == 0 for found in sizes.values() for size in found)
    for op_type in ("Conv2DBackpropFilter", "Conv2DBackpropInput", "BatchNormGrad", "BatchNorm"):
        assert min(sizes[op_type]) > 0, op_type
    for op_type in ("ReluGrad", "AddN", "MaxPoolGrad", "MatMulGrad", "ApplyMomentum"):
        assert max(sizes[op_type]) == 0, op_type
