"""Each rewrite fires where it should, stays away where it must, and leaves the numbers as they were."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx_models import ModelBuilder, onnxruntime_values

from traceconv.runtime.fusion import FusedGraph, fuse
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.load import load_graph
from traceconv.runtime.lower import DeviceOp
from traceconv.runtime.session import compile_model
from traceconv.runtime.zoo import FoundModel, find_model


def fused(proto: onnx.ModelProto) -> FusedGraph:
    return fuse(load_graph(proto, "test"))


def rules(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(rewrite.rule for rewrite in fused(proto).rewrites if rewrite.rule != "fold-constants")


def ops(proto: onnx.ModelProto) -> list[DeviceOp]:
    """The device ops, once their numbers are seen to be right."""
    model = compile_model(FoundModel("test", proto))
    inputs = random_inputs(model, 1)
    made = [tensor.name for op in model.program.ops for tensor in op.writes]
    ours = model.executor.run(inputs, made)
    for name, value in onnxruntime_values(proto, inputs, [*made, *model.program.graph.outputs]).items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-4)
    return list(model.program.ops)


def norm(b: ModelBuilder, x: str, channels: int) -> str:
    parameters = [b.weight((channels,)) for _ in range(3)] + [b.weight((channels,), positive=True)]
    result: str = b.node("BatchNormalization", [x, *parameters])
    return result


def conv(b: ModelBuilder, x: str, c_in: int, c_out: int) -> str:
    result: str = b.node("Conv", [x, b.weight((c_out, c_in, 3, 3))], pads=[1, 1, 1, 1])
    return result


def test_conv_norm_activation_become_one_op() -> None:
    b = ModelBuilder()
    proto = b.model({"x": [1, 3, 8, 8]}, [b.node("Relu", [norm(b, conv(b, "x", 3, 4), 4)])])
    (op,) = ops(proto)
    assert [node.op_type for node in op.originals] == ["Conv", "BatchNormalization", "Relu"]
    assert [node.op_type for node in op.nodes] == ["Conv", "Relu"]
    assert (op.op_type, op.core, op.fusion_id) == ("Conv2D", "AI_CORE", 0)
    assert op.name == "conv_0+BatchNormalization+Relu"
    assert rules(proto) == {"fold-affine": 1, "conv-add-act": 1}


def test_the_epsilon_of_a_normalisation_is_folded_too() -> None:
    b = ModelBuilder()
    parameters = [b.weight((4,)) for _ in range(3)] + [b.weight((4,), positive=True)]
    y = b.node("BatchNormalization", [conv(b, "x", 3, 4), *parameters], epsilon=0.25)
    (op,) = ops(b.model({"x": [1, 3, 8, 8]}, [y]))
    assert len(op.originals) == 2


def test_scale_and_shift_per_channel_are_folded_others_not() -> None:
    b = ModelBuilder()
    x = b.node("Add", [b.node("Mul", [conv(b, "x", 3, 4), b.weight((4, 1, 1))]), b.weight((1, 4, 1, 1))])
    proto = b.model({"x": [1, 3, 8, 8]}, [b.node("Mul", [x, b.weight((1, 1, 8, 8))])])
    (op,) = ops(proto)
    assert [node.op_type for node in op.originals] == ["Conv", "Mul", "Add", "Mul"]
    assert [node.op_type for node in op.nodes] == ["Conv", "Mul"]
    assert op.core == "MIX_AIC"
    assert rules(proto) == {"fold-affine": 2, "matmul-elementwise": 1}


def test_a_residual_sum_joins_the_later_convolution() -> None:
    b = ModelBuilder()
    left, right = conv(b, "x", 3, 4), conv(b, "x", 3, 4)
    proto = b.model({"x": [1, 3, 8, 8]}, [b.node("Relu", [b.node("Add", [left, right])])])
    first, second = ops(proto)
    assert [node.op_type for node in first.nodes] == ["Conv"]
    assert [node.name for node in second.nodes] == ["conv_1", "add_2", "relu_3"]
    assert second.core == "MIX_AIC" and second.cost.mix_block_count > 0


@pytest.mark.parametrize("seen", ["output", "reader"])
def test_what_others_read_is_not_fused_away(seen: str) -> None:
    b = ModelBuilder()
    y = conv(b, "x", 3, 4)
    z = b.node("Relu", [norm(b, y, 4)])
    outputs = [z, y] if seen == "output" else [z, b.node("Sigmoid", [y])]
    proto = b.model({"x": [1, 3, 8, 8]}, outputs)
    assert rules(proto) == {"elementwise": 1}  # normalisation and activation
    assert ops(proto)[0].fusion_id is None


def test_matmul_bias_residual_activation() -> None:
    b = ModelBuilder()
    y = b.node("Add", [b.node("MatMul", ["x", b.weight((6, 6))]), b.weight((6,))])
    proto = b.model({"x": [2, 6]}, [b.node("Tanh", [b.node("Add", [y, "x"])])])
    (op,) = ops(proto)
    assert (op.op_type, op.core) == ("MatMulV2", "MIX_AIC")
    assert [node.op_type for node in op.originals] == ["MatMul", "Add", "Add", "Tanh"]


def test_a_bias_and_relu_cost_the_vector_cores_nothing() -> None:
    b = ModelBuilder()
    y = b.node("Add", [b.node("MatMul", ["x", b.weight((6, 5))]), b.weight((5,))])
    (op,) = ops(b.model({"x": [2, 6]}, [b.node("Relu", [y])]))
    assert op.core == "AI_CORE"
    assert op.cost.pmu is not None and op.cost.pmu.aiv_total_cycles == 0


def gelu(b: ModelBuilder, x: str) -> str:
    root, one, half = (b.constant(np.float32(value)) for value in (2**0.5, 1.0, 0.5))
    y = b.node("Add", [b.node("Erf", [b.node("Div", [x, root])]), one])
    result: str = b.node("Mul", [b.node("Mul", [x, y]), half])
    return result


def test_gelu_written_out_is_one_op_and_joins_a_product() -> None:
    b = ModelBuilder()
    (op,) = ops(b.model({"x": [2, 6]}, [gelu(b, "x")]))
    assert (op.op_type, op.core, len(op.originals)) == ("Gelu", "AI_VECTOR_CORE", 5)
    b = ModelBuilder()
    proto = b.model({"x": [2, 6]}, [gelu(b, b.node("MatMul", ["x", b.weight((6, 6))]))])
    (op,) = ops(proto)
    assert (op.op_type, len(op.originals)) == ("MatMulV2", 6)
    assert rules(proto) == {"gelu": 1, "matmul-elementwise": 1}


def test_chains_stop_where_the_shape_changes() -> None:
    b = ModelBuilder()
    wide = b.node("Add", [b.node("Exp", ["x"]), b.weight((4, 3))])
    proto = b.model({"x": [1, 3]}, [b.node("Sqrt", [b.node("Abs", [wide])])])
    assert [[node.op_type for node in op.nodes] for op in ops(proto)] == [["Exp"], ["Add", "Abs", "Sqrt"]]


def test_transposes_that_undo_each_other_are_gone() -> None:
    b = ModelBuilder()
    y = b.node("Transpose", [b.node("Transpose", [b.node("Relu", ["x"])], perm=[2, 0, 1])], perm=[1, 2, 0])
    proto = b.model({"x": [2, 3, 4]}, [b.node("Softmax", [y], axis=-1)])
    assert [op.op_type for op in ops(proto)] == ["Relu", "SoftmaxV2"]
    b = ModelBuilder()
    y = b.node("Transpose", [b.node("Transpose", [b.node("Relu", ["x"])], perm=[2, 0, 1])], perm=[2, 0, 1])
    proto = b.model({"x": [2, 3, 4]}, [b.node("Softmax", [y], axis=-1)])
    assert [op.op_type for op in ops(proto)] == ["Relu", "Transpose", "SoftmaxV2"]
    assert rules(proto) == {"merge-transposes": 1}


def test_views_are_no_tasks_and_are_kept_with_their_makers() -> None:
    b = ModelBuilder()
    early = b.node("Reshape", ["x", b.constant(np.array([6, 4], np.int64))])
    y = b.node("Unsqueeze", [b.node("Flatten", [b.node("Relu", [early])]), b.constant(np.array([0], np.int64))])
    proto = b.model({"x": [2, 3, 4]}, [y])
    (op,) = ops(proto)
    assert [node.op_type for node in op.originals] == ["Relu", "Reshape", "Flatten", "Unsqueeze"]


def test_dropout_with_its_mask_read_is_work() -> None:
    b = ModelBuilder()
    y, mask = b.node("Dropout", [b.node("Relu", ["x"])], outputs=2)
    proto = b.model({"x": [2, 3]}, [y, b.node("Not", [mask])])
    assert [op.op_type for op in ops(proto)] == ["Relu", "Identity", "LogicalNot"]
    b = ModelBuilder()
    y, _ = b.node("Dropout", [b.node("Relu", ["x"])], outputs=2)
    assert len(ops(b.model({"x": [2, 3]}, [y]))) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet50", {"fold-affine": 53, "conv-add-act": 49, "view": 1}),
        ("squeezenet", {"conv-add-act": 26, "view": 1}),
        ("bvlc_alexnet", {"conv-add-act": 5, "matmul-bias-act": 2, "view": 3}),
    ],
)
def test_rewrites_of_known_networks(name: str, expected: dict[str, int]) -> None:
    assert rules(find_model(name).proto) == expected
