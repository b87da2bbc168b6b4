"""Each rewrite applies where it should, doesn't apply where it mustn't, and leaves the results unchanged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx_models import ModelBuilder, gelu, onnxruntime_values
from op_values import agreeing_values

from traceconv.runtime.compiled import compile_model
from traceconv.runtime.fusion import FusedGraph, fuse
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.load import load_graph
from traceconv.runtime.lower import DeviceOp
from traceconv.runtime.zoo import FoundModel, find_model


def fused(proto: onnx.ModelProto) -> FusedGraph:
    return fuse(load_graph(proto, "test"))


def rules(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(rewrite.rule for rewrite in fused(proto).rewrites if rewrite.rule != "fold-constants")


def ops(proto: onnx.ModelProto) -> list[DeviceOp]:
    """The device ops, once their numbers are seen to be right."""
    model = compile_model(FoundModel("test", proto))
    agreeing_values(proto, model, random_inputs(model, 1))
    return list(model.program.ops)


def norm(b: ModelBuilder, x: str, channels: int) -> str:
    parameters = [b.weight((channels,)) for _ in range(3)] + [b.weight((channels,), positive=True)]
    return b.node("BatchNormalization", [x, *parameters])


def conv(b: ModelBuilder, x: str, c_in: int, c_out: int) -> str:
    return b.node("Conv", [x, b.weight((c_out, c_in, 3, 3))], pads=[1, 1, 1, 1])


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
def test_tensors_with_other_readers_are_not_fused_away(seen: str) -> None:
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


def test_a_bias_and_relu_need_no_vector_cores() -> None:
    b = ModelBuilder()
    y = b.node("Add", [b.node("MatMul", ["x", b.weight((6, 5))]), b.weight((5,))])
    (op,) = ops(b.model({"x": [2, 6]}, [b.node("Relu", [y])]))
    assert op.core == "AI_CORE"
    assert op.cost.pmu is not None and op.cost.pmu.aiv_total_cycles == 0


def test_what_follows_a_product_split_along_k_is_done_with_its_sum() -> None:
    def fused(follows: str) -> DeviceOp:
        b = ModelBuilder()
        y = b.node("MatMul", ["x", b.weight((4_096, 16))])
        (op,) = ops(b.model({"x": [16, 4_096]}, [b.node(follows, [y]) if follows else y]))
        return op

    plain, relu, tanh = (fused(follows) for follows in ("", "Relu", "Tanh"))
    for op in (plain, relu, tanh):
        assert (op.op_type, op.core, op.cost.workspace_bytes) == ("MatMulV2", "MIX_AIC", 4 * 16 * 16 * 4)
    vec = [op.cost.pmu.aiv_vec_cycles for op in (plain, relu, tanh) if op.cost.pmu is not None]
    assert vec[0] < vec[1] < vec[2]


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


def test_views_are_not_tasks_and_are_kept_with_their_producers() -> None:
    b = ModelBuilder()
    early = b.node("Reshape", ["x", b.constant(np.array([6, 4], np.int64))])
    y = b.node("Unsqueeze", [b.node("Flatten", [b.node("Relu", [early])]), b.constant(np.array([0], np.int64))])
    proto = b.model({"x": [2, 3, 4]}, [y])
    (op,) = ops(proto)
    assert [node.op_type for node in op.originals] == ["Relu", "Reshape", "Flatten", "Unsqueeze"]


def test_dropout_whose_mask_is_read_is_a_task() -> None:
    b = ModelBuilder()
    y, mask = b.results("Dropout", [b.node("Relu", ["x"])], 2)
    proto = b.model({"x": [2, 3]}, [y, b.node("Not", [mask])])
    assert [op.op_type for op in ops(proto)] == ["Relu", "Identity", "LogicalNot"]
    b = ModelBuilder()
    y, _ = b.results("Dropout", [b.node("Relu", ["x"])], 2)
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


# Norms, attention, GELU and its kin


def small_norm(b: ModelBuilder, x: str, *, twice: bool = False, inverse: bool = False, affine: bool = True) -> str:
    """Layer normalisation over the last axis, in the ways that exporters write it out."""
    two, eps, one = (b.constant(np.float32(value)) for value in (2.0, 1e-5, 1.0))
    mean = b.node("ReduceMean", [x], axes=[-1], keepdims=1)
    centred = b.node("Sub", [x, mean])
    squared = b.node("Sub", [x, mean]) if twice else centred
    square = b.node("Mul", [squared, squared]) if inverse else b.node("Pow", [squared, two])
    root = b.node("Sqrt", [b.node("Add", [b.node("ReduceMean", [square], axes=[-1], keepdims=1), eps])])
    y = b.node("Mul", [centred, b.node("Div", [one, root])]) if inverse else b.node("Div", [centred, root])
    if affine:
        y = b.node("Add", [b.node("Mul", [b.weight((6,)), y]), b.weight((6,))])
    return y


@pytest.mark.parametrize("options", [{}, {"twice": True}, {"inverse": True}, {"affine": False}], ids=str)
def test_layer_norm_in_small_ops_is_one_op(options: dict[str, bool]) -> None:
    b = ModelBuilder()
    proto = b.model({"x": [2, 5, 6]}, [small_norm(b, "x", **options)])
    (op,) = ops(proto)
    assert (op.op_type, op.core, len(op.originals)) == ("LayerNormV3", "AI_VECTOR_CORE", len(proto.graph.node))
    assert rules(proto) == {"layer-norm": 1}
    assert op.flops == 8 * 60


def test_rms_norm_in_small_ops_is_one_op() -> None:
    b = ModelBuilder()
    mean = b.node("ReduceMean", [b.node("Pow", ["x", b.constant(np.float32(2))])], axes=[-1], keepdims=1)
    root = b.node("Sqrt", [b.node("Add", [mean, b.constant(np.float32(1e-6))])])
    y = b.node("Mul", [b.node("Mul", ["x", b.node("Reciprocal", [root])]), b.weight((6,))])
    proto = b.model({"x": [2, 5, 6]}, [y])
    (op,) = ops(proto)
    assert (op.op_type, len(op.originals)) == ("RmsNorm", 7)
    assert rules(proto) == {"rms-norm": 1}


def test_a_norm_with_a_visible_intermediate_is_not_fused() -> None:
    b = ModelBuilder()
    y = small_norm(b, "x")
    variance = next(node.output[0] for node in b.nodes if node.op_type == "Sqrt")
    assert "layer-norm" not in rules(b.model({"x": [2, 5, 6]}, [y, variance]))
    b = ModelBuilder()
    mean = b.node("ReduceMean", ["x"], axes=[1], keepdims=1)  # another axis than the variance's
    centred = b.node("Sub", ["x", mean])
    square = b.node("ReduceMean", [b.node("Mul", [centred, centred])], axes=[2], keepdims=1)
    root = b.node("Sqrt", [b.node("Add", [square, b.constant(np.float32(1e-5))])])
    proto = b.model({"x": [2, 5, 6]}, [b.node("Div", [centred, root])])
    assert rules(proto)["layer-norm"] == 0
    ops(proto)


def attention(b: ModelBuilder, mask: str | None, *, scale_first: bool = False) -> str:
    q, k, v = (b.weight((2, 3, 5, 4)) for _ in range(3))
    q = b.node("Add", ["x", q])
    scale = b.constant(np.float32(0.5))
    q = b.node("Mul", [q, scale]) if scale_first else q
    scores = b.node("MatMul", [q, b.node("Transpose", [b.node("Add", [k, "x"])], perm=[0, 1, 3, 2])])
    scores = scores if scale_first else b.node("Mul", [scale, scores])
    if mask == "add":
        scores = b.node("Add", [scores, b.constant(np.triu(np.full((5, 5), -1e4, np.float32), 1))])
    elif mask == "where":
        seen = b.constant(np.tril(np.ones((1, 1, 5, 5), bool)))
        scores = b.node("Where", [seen, scores, b.constant(np.float32(-1e9))])
    return b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v])


@pytest.mark.parametrize("mask", [None, "add", "where"])
@pytest.mark.parametrize("scale_first", [False, True])
def test_attention_is_one_op_whose_scores_stay_on_the_chip(mask: str | None, scale_first: bool) -> None:
    b = ModelBuilder()
    proto = b.model({"x": [2, 3, 5, 4]}, [attention(b, mask, scale_first=scale_first)])
    *_, op = ops(proto)
    assert (op.op_type, op.core) == ("FlashAttentionScore", "MIX_AIC")
    assert [node.op_type for node in op.nodes if node.op_type in ("MatMul", "Softmax")] == [
        "MatMul",
        "Softmax",
        "MatMul",
    ]
    assert len(op.nodes) == 3 + (not scale_first) + (mask is not None)
    assert rules(proto)["attention"] == 1
    # Two products of 2·5·5·4 for each of six heads, and 5 for each score, scaled and masked or not.
    assert op.flops == 6 * 2 * (2 * 5 * 5 * 4) + 150 * (5 + (len(op.nodes) - 3))
    assert [tensor.shape for tensor in op.writes] == [(2, 3, 5, 4)]


def test_scores_with_other_readers_or_another_axis_are_not_attention() -> None:
    b = ModelBuilder()
    y = attention(b, None)
    weights = next(node.output[0] for node in b.nodes if node.op_type == "Softmax")
    proto = b.model({"x": [2, 3, 5, 4]}, [y, weights])
    assert rules(proto)["attention"] == 0
    ops(proto)
    b = ModelBuilder()
    scores = b.node("Softmax", [b.node("MatMul", ["x", b.weight((4, 4))])], axis=0)
    assert rules(b.model({"x": [4, 4]}, [b.node("MatMul", [scores, b.weight((4, 2))])]))["attention"] == 0


def test_fast_gelu_and_swish_and_gelu_in_other_orders() -> None:
    root, cubic, one, half = np.sqrt(2 / np.pi), 0.044715, 1.0, 0.5

    def numbers(b: ModelBuilder) -> list[str]:
        return [b.constant(np.float32(value)) for value in (root, cubic, one, half)]

    b = ModelBuilder()
    r, c, one_, h = numbers(b)
    cube = b.node("Mul", [b.node("Mul", ["x", "x"]), "x"])
    inner = b.node("Mul", [b.node("Add", ["x", b.node("Mul", [cube, c])]), r])
    y = b.node("Mul", [b.node("Mul", [h, "x"]), b.node("Add", [b.node("Tanh", [inner]), one_])])
    proto = b.model({"x": [2, 6]}, [y])
    (op,) = ops(proto)
    assert (op.op_type, len(op.originals), rules(proto)) == ("FastGelu", 9, {"fast-gelu": 1})

    b = ModelBuilder()
    proto = b.model({"x": [2, 6]}, [b.node("Mul", [b.node("Sigmoid", ["x"]), "x"])])
    (op,) = ops(proto)
    assert (op.op_type, rules(proto)) == ("Swish", {"swish": 1})

    b = ModelBuilder()
    _, _, one_, h = numbers(b)
    inverse = b.constant(np.float32(1 / 2**0.5))
    total = b.node("Add", [one_, b.node("Erf", [b.node("Mul", ["x", inverse])])])
    proto = b.model({"x": [2, 6]}, [b.node("Mul", ["x", b.node("Mul", [total, h])])])
    (op,) = ops(proto)
    assert (op.op_type, rules(proto)) == ("Gelu", {"gelu": 1})


def test_a_chain_similar_to_gelu_is_not_gelu() -> None:
    b = ModelBuilder()
    wrong, one, half = (b.constant(np.float32(value)) for value in (2.0, 1.0, 0.5))
    y = b.node("Add", [b.node("Erf", [b.node("Div", ["x", wrong])]), one])
    proto = b.model({"x": [2, 6]}, [b.node("Mul", [b.node("Mul", ["x", y]), half])])
    (op,) = ops(proto)
    assert (op.op_type, rules(proto)) == ("FusedElementwise", {"elementwise": 1})


def test_the_gelu_op_joins_a_product() -> None:
    b = ModelBuilder()
    y = b.node("Gelu", [b.node("Gemm", ["x", b.weight((6, 6)), b.weight((6,))])])
    proto = b.model({"x": [2, 6]}, [y], opset=20)
    (op,) = ops(proto)
    assert (op.op_type, op.core, rules(proto)) == ("MatMulV2", "MIX_AIC", {"matmul-bias-act": 1})


def test_a_clip_joins_its_convolution() -> None:
    b = ModelBuilder()
    limits = [b.constant(np.float32(value)) for value in (0.0, 6.0)]
    proto = b.model({"x": [1, 3, 8, 8]}, [b.node("Clip", [norm(b, conv(b, "x", 3, 4), 4), *limits])])
    (op,) = ops(proto)
    assert [node.op_type for node in op.originals] == ["Conv", "BatchNormalization", "Clip"]


def test_long_chains_are_cut_where_a_kernel_is_full() -> None:
    b = ModelBuilder()
    x = "x"
    for _ in range(70):
        x = b.node("Sin", [x])
    assert sorted(len(op.nodes) for op in ops(b.model({"x": [2, 3]}, [x]))) == [6, 32, 32]


# Transposes


def test_transposes_in_a_row_are_one_however_many() -> None:
    b = ModelBuilder()
    x = b.node("Relu", ["x"])
    for _ in range(4):
        x = b.node("Transpose", [x], perm=[1, 2, 0])
    proto = b.model({"x": [2, 3, 4]}, [b.node("Softmax", [x], axis=-1)])
    assert [op.op_type for op in ops(proto)] == ["Relu", "Transpose", "SoftmaxV2"]
    assert rules(proto) == {"merge-transposes": 1, "cancel-transposes": 1}


def test_transposes_of_an_input_cancel_and_are_kept_with_the_reader() -> None:
    b = ModelBuilder()
    y = b.node("Transpose", [b.node("Transpose", ["x"], perm=[2, 0, 1])], perm=[1, 2, 0])
    proto = b.model({"x": [2, 3, 4]}, [b.node("Softmax", [y], axis=-1)])
    (op,) = ops(proto)
    assert (op.op_type, len(op.originals)) == ("SoftmaxV2", 3)


def test_transposes_with_a_visible_intermediate_or_output_stay() -> None:
    b = ModelBuilder()
    middle = b.node("Transpose", [b.node("Relu", ["x"])], perm=[1, 0])
    proto = b.model({"x": [2, 3]}, [b.node("Transpose", [middle], perm=[1, 0]), middle])
    assert sorted(op.op_type for op in ops(proto)) == ["Relu", "Transpose", "Transpose"]
    b = ModelBuilder()
    middle = b.node("Transpose", [b.node("Relu", ["x"])], perm=[1, 0])
    assert len(ops(b.model({"x": [2, 3]}, [b.node("Transpose", [middle], perm=[1, 0])]))) == 3


# Constants and integers


def test_folded_constants_are_in_the_log() -> None:
    b = ModelBuilder()
    weight = b.node("Transpose", [b.weight((5, 6))], perm=[1, 0])
    log = fused(b.model({"x": [2, 6]}, [b.node("MatMul", ["x", weight])])).rewrites
    assert [(rewrite.rule, rewrite.originals) for rewrite in log] == [("fold-constants", ("transpose_0",))]


def test_a_dequantize_that_two_ops_read_is_fused_with_both() -> None:
    b = ModelBuilder()
    pair = [b.constant(np.float32(0.1)), b.constant(np.uint8(128))]

    def step(x: str) -> str:
        return b.node("DequantizeLinear", [b.node("QuantizeLinear", [x, *pair]), *pair])

    x = step("x")
    left = step(b.node("Relu", [x]))
    proto = b.model({"x": [2, 6]}, [step(b.node("Add", [left, x]))])
    state = fused(proto)
    assert Counter(rewrite.rule for rewrite in state.rewrites) == {
        "split-dequantize": 1, "quantized": 2, "host-quantize": 1, "host-dequantize": 1,
    }  # fmt: skip
    model = compile_model(FoundModel("test", proto))
    assert [op.op_type for op in model.program.ops] == ["QuantRelu", "QuantAdd"]
    assert [op.kind for op in model.program.host_before] == ["Quantize", "Lower"]
    assert [op.kind for op in model.program.host_after] == ["Unlower", "Dequantize"]
    graph = model.program.graph
    assert {graph.tensors[name].dtype for name in (*model.program.uploads, *model.program.downloads)} == {"UINT8"}
    inputs = random_inputs(model, 1)
    (name,) = graph.outputs
    np.testing.assert_allclose(
        model.executor.run(inputs)[name], onnxruntime_values(proto, inputs, [name])[name], atol=0.101
    )


def test_bytes_of_a_fused_op_are_those_that_cross_its_border() -> None:
    b = ModelBuilder()
    y = b.node("Add", [b.node("MatMul", ["x", b.weight((6, 5))]), b.weight((5,))])
    (op,) = ops(b.model({"x": [2, 6]}, [b.node("Tanh", [y])]))
    sizes = [sum(tensor.size_bytes for tensor in tensors) for tensors in (op.reads, op.weights, op.writes)]
    assert sizes == [2 * 6 * 4, (6 * 5 + 5) * 4, 2 * 5 * 4]
    assert op.cost.workspace_bytes > 0  # the product, on its way from the cube to the vector cores
