"""Fusion in training: what is fused, what a fused op keeps for gradients, what is not fused; equal results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from ingest_checks import ingested
from modelled_trainer import Trainer
from onnx_models import ModelBuilder, gelu
from stores import query
from training_models import convnet

from traceconv.cli.app import run
from traceconv.runtime.lower import DeviceOp
from traceconv.runtime.training.compile import compile_training
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.zoo import FoundModel

IMAGE = [2, 3, 6, 6]
ROWS = [4, 6]


def forward(proto: onnx.ModelProto) -> list[DeviceOp]:
    """The forward ops before the loss."""
    return compile_training(FoundModel("m", proto), TrainOptions(loss="mse")).ops("forward")[:-1]


def types(op: DeviceOp) -> list[str]:
    return [node.op_type for node in op.originals]


def names(op: DeviceOp) -> set[str]:
    return {tensor.name for tensor in op.writes}


def conv(b: ModelBuilder, x: str) -> str:
    return b.node("Conv", [x, b.weight((3, 3, 3, 3)), b.weight((3,))], pads=[1, 1, 1, 1])


def norm(b: ModelBuilder, x: str) -> str:
    return b.node("BatchNormalization", [x, *(b.weight((3,), positive=True) for _ in range(4))])


def dense(b: ModelBuilder, x: str) -> str:
    return b.node("Add", [b.node("MatMul", [x, b.weight((6, 6))]), b.weight((6,))])


def layer_norm(b: ModelBuilder, x: str) -> str:
    centred = b.node("Sub", [x, b.node("ReduceMean", [x], axes=[-1], keepdims=1)])
    power = b.node("Pow", [centred, b.constant(np.float32(2))])
    variance = b.node("Add", [b.node("ReduceMean", [power], axes=[-1], keepdims=1), b.constant(np.float32(0.1))])
    y = b.node("Mul", [b.node("Div", [centred, b.node("Sqrt", [variance])]), b.weight((6,))])
    return b.node("Add", [y, b.weight((6,))])


def test_conv_bias_relu_keeps_only_the_activation() -> None:
    b = ModelBuilder()
    (op,) = forward(b.model({"x": IMAGE}, [b.node("Relu", [conv(b, "x")])]))
    assert types(op) == ["Conv", "Relu"] and names(op) == {"t1_0"}
    assert (op.name, op.op_type, op.core, op.fusion_id) == ("conv_0+Relu", "Conv2D", "AI_CORE", 0)


def test_an_activation_whose_gradient_reads_its_input_keeps_that_too() -> None:
    """LeakyRelu's gradient reads x: fixpipe writes two values per element, which takes it twice as long."""
    b, c = ModelBuilder(), ModelBuilder()
    (one,) = forward(b.model({"x": IMAGE}, [b.node("Relu", [conv(b, "x")])]))
    (two,) = forward(c.model({"x": IMAGE}, [c.node("LeakyRelu", [conv(c, "x")])]))
    assert names(two) == {"t0_0", "t1_0"} and two.core == "AI_CORE"
    assert two.output_bytes == 2 * one.output_bytes
    first, second = one.cost.pmu, two.cost.pmu
    assert first is not None and second is not None
    tiles = [op.cost.cube.tiles * op.cost.cube.m0 * op.cost.cube.n0 for op in (one, two) if op.cost.cube is not None]
    # 128 bytes per cycle.
    assert (first.aic_fixpipe_cycles, second.aic_fixpipe_cycles) == (tiles[0] * 4 // 128, tiles[1] * 8 // 128)


def test_matmul_bias_gelu_saves_what_its_gradients_read() -> None:
    b = ModelBuilder()
    (op,) = forward(b.model({"x": ROWS}, [gelu(b, dense(b, "x"))]))
    assert types(op) == ["MatMul", "Add", "Div", "Erf", "Add", "Mul", "Mul"]
    assert (op.op_type, op.core) == ("MatMulV2", "MIX_AIC")
    # x/√2 for Erf; x and 1 + erf for their product; the result. The product with ½ needs no value.
    assert names(op) == {"t1_0", "t2_0", "t4_0", "t6_0"}
    assert op.cost.vector is not None and op.cost.vector.work.out_bytes == op.output_bytes


def test_gemm_relu_and_residual_sums() -> None:
    b = ModelBuilder()
    x = b.node("Relu", [b.node("Gemm", ["x", b.weight((6, 6)), b.weight((6,))])])
    y = b.node("Tanh", [b.node("Add", [dense(b, x), x])])
    first, second = forward(b.model({"x": ROWS}, [y]))
    assert types(first) == ["Gemm", "Relu"] and types(second) == ["MatMul", "Add", "Add", "Tanh"]
    assert names(first) == {"t1_0"} and names(second) == {"t5_0"}


def test_a_sum_and_its_activation() -> None:
    b = ModelBuilder()
    x = conv(b, "x")
    y = b.node("MaxPool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    *_, op = forward(b.model({"x": IMAGE}, [b.node("Relu", [b.node("Add", [x, y])])]))
    assert types(op) == ["Add", "Relu"] and op.op_type == "FusedElementwise" and names(op) == {"t3_0"}


def test_a_chain_of_elementwise_ops() -> None:
    b = ModelBuilder()
    x = b.node("MaxPool", [conv(b, "x")], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    *_, op = forward(b.model({"x": IMAGE}, [b.node("Exp", [b.node("Neg", [b.node("Abs", [x])])])]))
    # The gradient of Exp reads its result, that of Abs the chain's input.
    assert types(op) == ["Abs", "Neg", "Exp"] and names(op) == {"t4_0"}


def test_batch_normalisation_is_fused_with_its_successor_and_not_folded() -> None:
    b = ModelBuilder()
    x = b.node("Relu", [norm(b, conv(b, "x"))])
    y = b.node("Relu", [b.node("Add", [norm(b, conv(b, x)), x])])
    first, second, third, fourth = forward(b.model({"x": IMAGE}, [y]))
    assert types(first) == types(third) == ["Conv"]
    assert types(second) == ["BatchNormalization", "Relu"] and types(fourth) == ["BatchNormalization", "Add", "Relu"]
    assert fourth.op_type == "BatchNorm" and fourth.core == "AI_VECTOR_CORE"
    assert names(fourth) == {"t6_0", "batchnormalization_4/batch_mean", "batchnormalization_4/batch_var"}
    # Cycles per register of BatchNorm, Add and Relu (the cost model page).
    assert fourth.cost.vector is not None and fourth.cost.vector.work.cycles == 6 + 1 + 1


def test_dropout_is_fused_with_a_residual_sum_and_keeps_its_mask() -> None:
    b = ModelBuilder()
    x = dense(b, "x")
    y = b.node("Dropout", [dense(b, x), b.constant(np.float32(0.5))])
    *_, op = forward(b.model({"x": ROWS}, [b.node("Add", [y, x])]))
    assert types(op) == ["Dropout", "Add"] and op.op_type == "DropOutGenMask"
    assert names(op) == {"dropout_4/mask", "t5_0"}


def test_a_norm_of_small_ops_is_one_op() -> None:
    b = ModelBuilder()
    first, second = forward(b.model({"x": ROWS}, [layer_norm(b, dense(b, "x"))]))
    assert types(first) == ["MatMul", "Add"]
    assert (second.op_type, len(second.originals)) == ("LayerNormV3", 9)
    # The mean, the variance and x - mean - (…)/√… are read by gradients; the square and the scaled value are not.
    assert "t4_0" not in names(second) and {"t3_0", "t7_0", "t8_0", "t10_0"} <= names(second)


def test_attention_and_transposes_are_not_fused() -> None:
    """Gradients read the scores after the softmax, and each Transpose is undone in the backward pass."""
    b = ModelBuilder()
    q = b.node("MatMul", ["x", b.weight((6, 6))])
    scores = b.node("Softmax", [b.node("MatMul", [q, b.node("Transpose", [q], perm=[0, 2, 1])])], axis=-1)
    y = b.node("MatMul", [scores, q])
    y = b.node("Transpose", [b.node("Transpose", [y], perm=[0, 2, 1])], perm=[0, 2, 1])
    ops = forward(b.model({"x": [1, 4, 6]}, [y]))
    assert [types(op) for op in ops] == [
        ["MatMul"], ["Transpose"], ["MatMul"], ["Softmax"], ["MatMul"], ["Transpose"], ["Transpose"]
    ]  # fmt: skip


@pytest.mark.parametrize("model", ["mini_resnet", "mini_transformer", "mini_decoder", "mini_half", "convnet"])
def test_losses_and_weights_are_equal_to_the_last_bit(model: str) -> None:
    found = FoundModel("net", convnet()) if model == "convnet" else model
    random = np.random.default_rng(0)
    feeds = {
        "mini_resnet": ("input", random.standard_normal((2, 3, 64, 64)).astype("f4"), random.integers(0, 10, 2)),
        "mini_transformer": ("input", random.standard_normal((1, 64, 64)).astype("f4"), None),
        "mini_half": ("input", random.standard_normal((1, 64, 64)).astype("f2"), None),
        "mini_decoder": ("ids", random.integers(0, 96, (1, 32)), random.integers(0, 96, (1, 32))),
        "convnet": ("x", random.standard_normal((8, 1, 8, 8)).astype("f4"), random.integers(0, 10, 8)),
    }
    name, x, target = feeds[model]
    inputs = {name: x}
    if model == "mini_decoder":
        inputs["memory"] = random.standard_normal((1, 16, 48)).astype("f4")
    optimizer = Optimizer("adam", 0.002)
    results = []
    for fuse in (True, False):
        trainer = Trainer(found, TrainOptions(optimizer, fuse=fuse))
        losses = [trainer.step(inputs, np.tanh(x) if target is None else target) for _ in range(2)]
        results.append((losses, trainer.weights(), len(trainer.team.plan.ops("forward"))))
    (losses, weights, count), (plain_losses, plain_weights, plain_count) = results
    assert losses == plain_losses and count < plain_count
    assert weights.keys() == plain_weights.keys()
    assert all(np.array_equal(weights[key], plain_weights[key]) for key in weights)


@pytest.mark.parametrize("model", ["mini_resnet", "mini_transformer", "mini_decoder"])
def test_a_recorded_training_has_its_fused_ops_in_the_report(model: str, tmp_path: Path) -> None:
    words = ["record", model, "-o", str(tmp_path / "raw"), "--train", "--steps", "1", "--deterministic"]
    assert run(words) == 0
    store = tmp_path / "t.duckdb"
    ingested(store, tmp_path / "raw")
    rows = query(store, "SELECT fusion_op, original_count, original_ops FROM fusion_op ORDER BY op_id")
    assert len(rows) >= 9 and all(count > 1 and len(ops.split(";")) == count for _, count, ops in rows)
    expected = {
        "mini_resnet": "/stem/bn/BatchNormalization;/stem/relu/Relu",
        "mini_transformer": "/layer0/ffn/down/MatMul;/layer0/ffn/down/Add;/layer0/ffn_residual/Add",
        "mini_decoder": "/self/out/MatMul;/self/out/Add;/self_residual/Add",
    }
    assert expected[model] in [ops for _, _, ops in rows]
    # Every fused op ran, in the forward part.
    sql = "SELECT DISTINCT phase FROM op JOIN task USING (run_id, op_id) WHERE op_id IN (SELECT op_id FROM fusion)"
    assert query(store, sql) == [("forward",)]


def test_a_point_can_be_a_node_inside_a_fused_op() -> None:
    options = TrainOptions(fp_point="/layer1/0/a/relu/Relu")
    plan = compile_training("mini_resnet", options, 4)
    assert any("/layer1/0/a/relu/Relu" in [node.name for node in op.originals] for op in plan.ops("forward"))
