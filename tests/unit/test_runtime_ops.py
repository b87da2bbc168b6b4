"""Ops of every kind run alone, with the results of onnxruntime and on a suitable core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import ModelBuilder, onnxruntime_values

from traceconv.runtime.compiled import compile_model
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.zoo import FoundModel

I64 = TensorProto.INT64


def ints(b: ModelBuilder, *values: int) -> str:
    return b.constant(np.array(values, np.int64))


#: Name → (shape of x, what it builds on x, op types on the device, cores).
CASES: dict[str, tuple[Sequence[int], Callable[[ModelBuilder], Any], str, str]] = {
    "conv1d": ([2, 3, 9], lambda b: b.node("Conv", ["x", b.weight((4, 3, 3))]), "Conv1D", "AI_CORE"),
    "conv3d": ([1, 2, 5, 5, 5], lambda b: b.node("Conv", ["x", b.weight((3, 2, 2, 2, 2))]), "Conv3D", "AI_CORE"),
    "dilated": (
        [1, 2, 9, 9],
        lambda b: b.node("Conv", ["x", b.weight((3, 2, 3, 3))], dilations=[2, 2]),
        "Conv2D",
        "AI_CORE",
    ),
    "same": (
        [1, 2, 9, 9],
        lambda b: b.node("Conv", ["x", b.weight((3, 2, 3, 3))], auto_pad="SAME_UPPER", strides=[2, 2]),
        "Conv2D",
        "AI_CORE",
    ),
    "depthwise": (
        [1, 4, 9, 9],
        lambda b: b.node("Conv", ["x", b.weight((4, 1, 3, 3))], group=4),
        "DepthwiseConv2D",
        "AI_CORE",
    ),
    "grouped": ([1, 4, 9, 9], lambda b: b.node("Conv", ["x", b.weight((6, 2, 3, 3))], group=2), "Conv2D", "AI_CORE"),
    "transposed": (
        [1, 3, 5, 5],
        lambda b: b.node("ConvTranspose", ["x", b.weight((3, 4, 3, 3))], strides=[2, 2]),
        "Conv2DTranspose",
        "AI_CORE",
    ),
    "gemm": (
        [3, 5],
        lambda b: b.node("Gemm", ["x", b.weight((3, 4)), b.weight((4,))], transA=1, alpha=0.5),
        "MatMulV2",
        "AI_CORE",
    ),
    "vector": ([5], lambda b: b.node("MatMul", ["x", b.weight((5, 4))]), "MatMulV2", "AI_CORE"),
    "to_vector": ([2, 3, 5], lambda b: b.node("MatMul", ["x", b.weight((5,))]), "MatMulV2", "AI_CORE"),
    "batched": ([2, 3, 5], lambda b: b.node("MatMul", ["x", b.weight((2, 5, 4))]), "BatchMatMulV2", "AI_CORE"),
    "broadcast": ([3, 5], lambda b: b.node("MatMul", ["x", b.weight((2, 5, 4))]), "BatchMatMulV2", "AI_CORE"),
    "einsum": ([2, 3], lambda b: b.node("Einsum", ["x", b.weight((3, 4))], equation="ij,jk->ik"), "Einsum", "AI_CPU"),
    "lstm": (
        [5, 1, 3],
        lambda b: b.node("LSTM", ["x", b.weight((1, 16, 3)), b.weight((1, 16, 4))], hidden_size=4),
        "LSTM",
        "AI_CPU",
    ),
    "lrn": ([1, 6, 4, 4], lambda b: b.node("LRN", ["x"], size=5), "LRN", "AI_VECTOR_CORE"),
    "instance_norm": (
        [2, 3, 4, 4],
        lambda b: b.node("InstanceNormalization", ["x", b.weight((3,)), b.weight((3,))]),
        "InstanceNorm",
        "AI_VECTOR_CORE",
    ),
    "softmax": ([4, 9], lambda b: b.node("Softmax", ["x"], axis=0), "SoftmaxV2", "AI_VECTOR_CORE"),
    "reduce": ([4, 9], lambda b: b.node("ReduceSum", ["x", ints(b, 1)], keepdims=0), "ReduceSumD", "AI_VECTOR_CORE"),
    "reduce_all": ([4, 9], lambda b: b.node("ReduceMean", ["x"], keepdims=0), "ReduceMeanD", "AI_VECTOR_CORE"),
    "clip": (
        [4, 9],
        lambda b: b.node("Clip", ["x", b.constant(np.float32(0)), b.constant(np.float32(6))]),
        "ClipByValueV2",
        "AI_VECTOR_CORE",
    ),
    "clip_low": ([4, 9], lambda b: b.node("Clip", ["x", b.constant(np.float32(0))]), "ClipByValueV2", "AI_VECTOR_CORE"),
    "prelu": ([1, 3, 4, 4], lambda b: b.node("PRelu", ["x", b.weight((3, 1, 1))]), "PRelu", "AI_VECTOR_CORE"),
    "sum3": ([4, 9], lambda b: b.node("Sum", ["x", b.weight((4, 9)), b.weight((9,))]), "AddN", "AI_VECTOR_CORE"),
    "where": (
        [4, 9],
        lambda b: b.node("Where", [b.constant(np.eye(4, 9, dtype=bool)), "x", b.weight((1,))]),
        "SelectV2",
        "AI_VECTOR_CORE",
    ),
    "transpose": ([2, 3, 4], lambda b: b.node("Transpose", ["x"]), "Transpose", "AI_VECTOR_CORE"),
    "slice": (
        [4, 9],
        lambda b: b.node("Slice", ["x", ints(b, 1), ints(b, 8), ints(b, 1), ints(b, 2)]),
        "StridedSliceV2",
        "AI_VECTOR_CORE",
    ),
    "split": ([4, 9], lambda b: b.results("Split", ["x", ints(b, 2, 7)], 2, axis=1), "SplitV", "AI_VECTOR_CORE"),
    "pad": ([1, 1, 4, 4], lambda b: b.node("Pad", ["x", ints(b, 0, 0, 1, 1, 0, 0, 2, 2)]), "PadV3", "AI_VECTOR_CORE"),
    "resize": (
        [1, 2, 4, 4],
        lambda b: b.node("Resize", ["x", "", b.constant(np.array([1, 1, 2, 2], np.float32))], mode="nearest"),
        "Resize",
        "AI_VECTOR_CORE",
    ),
    "expand": ([4, 1], lambda b: b.node("Expand", ["x", ints(b, 4, 6)]), "BroadcastTo", "AI_VECTOR_CORE"),
    "tile": ([2, 3], lambda b: b.node("Tile", ["x", ints(b, 2, 1)]), "TileD", "AI_VECTOR_CORE"),
    "pixels": ([1, 8, 2, 2], lambda b: b.node("DepthToSpace", ["x"], blocksize=2), "DepthToSpace", "AI_VECTOR_CORE"),
    "gather": ([4, 9], lambda b: b.node("Gather", ["x", ints(b, 3, 0)], axis=1), "GatherV2", "AI_VECTOR_CORE"),
    "argmax": ([4, 9], lambda b: b.node("ArgMax", ["x"], axis=1), "ArgMaxV2", "AI_VECTOR_CORE"),
    "topk": ([4, 9], lambda b: b.results("TopK", ["x", ints(b, 3)], 2), "TopK", "AI_CPU"),
    "to_int": ([4, 9], lambda b: b.node("Cast", ["x"], to=TensorProto.INT32), "Cast", "AI_VECTOR_CORE"),
    "empty": (
        [4, 9],
        lambda b: b.node("Slice", ["x", ints(b, 0), ints(b, 0), ints(b, 1)]),
        "StridedSliceV2",
        "AI_VECTOR_CORE",
    ),
    "quantized": (
        [4, 9],
        lambda b: b.node("QuantizeLinear", ["x", b.constant(np.float32(0.1)), b.constant(np.uint8(128))]),
        "AscendQuant",
        "AI_VECTOR_CORE",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_op_alone(case: str) -> None:
    shape, build, op_type, core = CASES[case]
    b = ModelBuilder(7)
    made = build(b)
    proto = b.model({"x": shape}, [made] if isinstance(made, str) else made)
    model = compile_model(FoundModel(case, proto))
    (op,) = model.program.ops
    assert (op.op_type, op.core) == (op_type, core)
    assert op.cost.cycles > 0 and op.cost.block_count > 0
    assert (op.cost.pmu is None) == (core == "AI_CPU")
    inputs = random_inputs(model, 2)
    ours = model.executor.run(inputs)
    for name, value in onnxruntime_values(proto, inputs, list(ours)).items():
        assert ours[name].dtype == value.dtype and ours[name].shape == value.shape
        np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-5)
    shapes, dtypes, formats = op.describe_results()
    assert shapes == ";".join(",".join(map(str, ours[tensor.name].shape)) for tensor in op.writes)
    assert len(dtypes.split(";")) == len(formats.split(";")) == len(op.writes)


def test_integers_of_eight_bytes_are_for_the_ai_cpu() -> None:
    b = ModelBuilder()
    proto = b.model({"x": [3]}, [b.node("Add", ["x", ints(b, 1, 2, 3)])], elem_types={"x": I64})
    (op,) = compile_model(FoundModel("ints", proto)).program.ops
    assert (op.op_type, op.core) == ("Add", "AI_CPU")


def test_flops_of_a_product_count_two_for_each_multiply_accumulate() -> None:
    b = ModelBuilder()
    proto = b.model({"x": [1, 3, 8, 8]}, [b.node("Conv", ["x", b.weight((4, 3, 3, 3))])])
    (op,) = compile_model(FoundModel("conv", proto)).program.ops
    assert op.flops == 2 * (4 * 6 * 6) * (3 * 3 * 3)
    assert [sum(t.size_bytes for t in ts) for ts in (op.reads, op.weights, op.writes)] == [768, 432, 576]
    assert op.describe_operands() == ("1,3,8,8;4,3,3,3", "FLOAT;FLOAT", "NCHW;NCHW")
