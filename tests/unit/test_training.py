"""Training learns what plain numpy learns, on real data, on one device and on several."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from modelled_trainer import Trainer
from onnx.reference import ReferenceEvaluator
from onnx_models import ModelBuilder
from training_models import convnet, digits, mlp

from traceconv.base.errors import InputError, ModelError, UsageError
from traceconv.runtime.training.compile import compile_training
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.zoo import FoundModel

Arrays = dict[str, Any]


def numpy_steps(w: Arrays, batches: list[tuple[Any, Any]], optimizer: Optimizer) -> list[float]:
    """The same MLP by hand, in float64; changes `w`."""
    first = {name: np.zeros_like(value) for name, value in w.items()}
    second = {name: np.zeros_like(value) for name, value in w.items()}
    losses = []
    for step, (x, y) in enumerate(batches, 1):
        a = x @ w["w0"] + w["w1"]
        h = np.maximum(a, 0)
        z = h @ w["w2"] + w["w3"]
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(float(-np.log(p[np.arange(len(y)), y]).mean()))
        dz = (p - np.eye(p.shape[1])[y]) / len(y)
        da = (dz @ w["w2"].T) * (a > 0)
        gradients = {"w0": x.T @ da, "w1": da.sum(0), "w2": h.T @ dz, "w3": dz.sum(0)}
        for name, g in gradients.items():
            if optimizer.kind == "sgd":
                first[name] = optimizer.momentum * first[name] + g
                w[name] -= optimizer.lr * first[name]
            else:
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g * g
                m, v = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
                w[name] -= optimizer.lr * m / (np.sqrt(v) + 1e-8)
    return losses


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    "optimizer", [Optimizer("sgd", 0.2, 0.9), Optimizer("sgd", 0.2, 0.0), Optimizer("adam", 0.002)], ids=repr
)
def test_an_mlp_learns_what_numpy_learns(optimizer: Optimizer, devices: int) -> None:
    images, labels = digits()
    batches = [(images[k : k + 32].reshape(32, 64), labels[k : k + 32]) for k in range(0, 256, 32)]
    model = mlp()
    w = {entry.name: onnx.numpy_helper.to_array(entry).astype(np.float64) for entry in model.graph.initializer}
    expected = numpy_steps(w, [(x.astype(np.float64), y) for x, y in batches], optimizer)
    trainer = Trainer(FoundModel("mlp", model), TrainOptions(optimizer), devices=devices)
    assert [trainer.step({"x": x}, y) for x, y in batches] == pytest.approx(expected, abs=1e-5)
    for device in range(devices):
        learned = trainer.weights(device)
        assert sorted(learned) == sorted(w)
        for name, value in learned.items():
            np.testing.assert_allclose(value, w[name], atol=1e-5)
        assert all(np.array_equal(learned[name], trainer.weights(0)[name]) for name in learned)


def test_loss_falls_on_real_digits_and_the_model_then_reads_them() -> None:
    images, labels = digits()
    trainer = Trainer(FoundModel("digits", convnet()), TrainOptions(Optimizer("adam", 0.01)))
    for step in range(60):
        rows = np.arange(step * 64, (step + 1) * 64) % 1500
        trainer.step({"x": images[rows][:, None]}, labels[rows])
    learned = trainer.weights()
    assert np.mean(trainer.losses[-5:]) < 0.5 < 1.5 < trainer.losses[0]
    # With what was learned, running statistics too, the model is run as it is: on digits that it has not seen.
    model = convnet()
    for entry in model.graph.initializer:
        if entry.name in learned:
            entry.CopyFrom(onnx.numpy_helper.from_array(learned[entry.name], entry.name))
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"x": images[1500:, None]})
    assert (scores.argmax(1) == labels[1500:]).mean() > 0.85


def test_a_resnet_learns_batch_normalisation_included() -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((4, 3, 64, 64)).astype(np.float32), random.integers(0, 10, 4)
    trainer = Trainer("mini_resnet", TrainOptions(Optimizer("sgd", 0.05)))
    losses = [trainer.step({"input": x}, y) for _ in range(6)]
    assert losses[-1] < losses[0] / 4
    plan, learned = trainer.team.plan, trainer.weights()
    kinds = {op.op_type for op in plan.program.ops}
    assert {"Conv2DBackpropFilter", "Conv2DBackpropInput", "MatMulGrad", "ReluGrad", "BatchNormGrad"} <= kinds
    assert {"SoftmaxCrossEntropyGrad", "MaxPoolGrad", "ApplyMomentum", "AssignMovingAvg"} <= kinds
    # No folding of normalisation, no softmax before the loss, and no trail of moves.
    assert not {"BNInfer", "SoftmaxV2", "BroadcastTo", "Reshape"} & kinds
    before = compile_training("mini_resnet", TrainOptions(), 4).state
    moved = [name for name in learned if not np.array_equal(learned[name], before[name])]
    assert any(name.endswith("bn.mean") for name in moved) and any(name.endswith("bn.weight") for name in moved)


def test_running_statistics_follow_onnx() -> None:
    images, labels = digits()
    trainer = Trainer(FoundModel("digits", convnet()), TrainOptions(Optimizer(lr=1e-9)))
    x = images[:32][:, None]
    trainer.step({"x": x}, labels[:32])
    learned = trainer.weights()
    model = convnet()
    weights = {entry.name: onnx.numpy_helper.to_array(entry) for entry in model.graph.initializer}
    out = ReferenceEvaluator(onnx.helper.make_model(onnx.helper.make_graph(
        [model.graph.node[0]], "conv", [model.graph.input[0]],
        [onnx.ValueInfoProto(name=model.graph.node[0].output[0])], list(model.graph.initializer)[:1],
    ), opset_imports=model.opset_import)).run(None, {"x": x})[0]  # fmt: skip
    mean, var = out.mean(axis=(0, 2, 3)), out.var(axis=(0, 2, 3))
    np.testing.assert_allclose(learned["w3"], 0.1 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learned["w4"], 0.9 * weights["w4"] + 0.1 * var, rtol=1e-4)


def test_a_transformer_learns_by_mean_square_error() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((1, 64, 64)).astype(np.float32)
    trainer = Trainer("mini_transformer", TrainOptions(Optimizer("adam", 0.003)))
    losses = [trainer.step({"input": x}, np.tanh(x)) for _ in range(6)]
    assert {"LayerNormGrad", "SoftmaxGrad", "MseLossGrad"} <= {op.op_type for op in trainer.team.plan.program.ops}
    assert losses[-1] < 0.7 * losses[0]


def test_both_summands_get_separate_gradients() -> None:
    """A bias of the output's shape has the output's gradient, which is exchanged in place: so it is copied."""
    b = ModelBuilder(seed=3)
    x = b.node("MatMul", ["x", b.weight([5, 3])])
    model = b.model({"x": [4, 5]}, [b.node("Add", [x, b.weight([4, 3])])])
    random = np.random.default_rng(1)
    xs, ys = random.standard_normal((2, 4, 5)).astype(np.float32), random.integers(0, 3, (2, 4))
    plan = compile_training(FoundModel("m", model), TrainOptions(), target=ys[0], devices=2)
    assert [op.op_type for op in plan.ops("backward")] == ["SoftmaxCrossEntropyGrad", "TensorMove", "MatMulGrad"]
    trainer = Trainer(FoundModel("m", model), TrainOptions(), devices=2)
    trainer.step({"x": xs.reshape(8, 5)}, ys.reshape(8))
    assert all(np.array_equal(trainer.weights(0)[k], trainer.weights(1)[k]) for k in trainer.weights())


def test_ops_without_a_rule_are_all_named_before_anything_runs() -> None:
    b = ModelBuilder()
    x = b.node("MatMul", ["x", b.weight([4, 6])])
    x = b.node("ReduceMax", [b.node("CumSum", [x, b.constant(np.int64(1))])], axes=[1], keepdims=1)
    model = b.model({"x": [2, 4]}, [b.node("MatMul", [x, b.weight([1, 3])])])
    with pytest.raises(
        ModelError, match=r"no gradient rule for CumSum \(node 'cumsum_1'\), ReduceMax \(node"
    ) as raised:
        compile_training(FoundModel("m", model), TrainOptions())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TrainOptions(Optimizer("sgdd")), "Did you mean 'sgd'"),
        (TrainOptions(Optimizer(lr=0.0)), "lr 0.0: must be above 0"),
        (TrainOptions(Optimizer(lr=float("nan"))), "must be above 0"),
        (TrainOptions(Optimizer(momentum=1.0)), "momentum 1.0: must"),
        (TrainOptions(loss="mze"), "Did you mean 'mse'"),
        (TrainOptions(fp_point="gemm_9"), "fp_point gemm_9: no forward op of m has this name. Did you mean 'gemm_0'"),
        (TrainOptions(bp_point="nothing"), "bp_point nothing: no backward op"),
    ],
)
def test_wrong_options_are_one_clear_error(options: TrainOptions, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_training(FoundModel("m", mlp(4)), options)
    assert message in str(caught.value)


def test_wrong_batches_are_one_clear_error() -> None:
    x = np.zeros((4, 64), np.float32)
    trainer = Trainer(FoundModel("m", mlp()))
    trainer.step({"x": x}, np.arange(4))
    for batch, target, message in (
        ({"x": x}, np.array([0, 1, 2, 10]), "target class 10 is out of range: there are 10 classes"),
        ({"x": x}, np.array([0, 1, 2, -1]), "target class -1 is out of range"),
        ({"x": x}, np.zeros(4, np.float32), "but must be int64"),
        ({"x": x[:2]}, np.arange(4), ", not float32"),
        ({"y": x}, np.arange(4), "no input 'y'"),
        ({"x": np.full_like(x, np.nan)}, np.arange(4), "the loss is nan"),
    ):
        with pytest.raises(InputError, match=message):
            trainer.step(batch, target)
    assert np.isfinite(trainer.step({"x": x}, np.arange(4)))
    with pytest.raises(ModelError, match=r"nothing to train: '.*', the source of the loss, depends on no weight"):
        b = ModelBuilder()
        Trainer(FoundModel("m", b.model({"x": [4, 3]}, [b.node("Relu", ["x"])]))).step(
            {"x": x[:, :3]}, np.zeros(4, int)
        )


@pytest.mark.parametrize("optimizer", [Optimizer("adam", 0.002), Optimizer("sgd", 1e-4, 0.9)], ids=repr)
def test_fp16_weights_are_updated_in_fp32(optimizer: Optimizer) -> None:
    """Each weight is the rounded fp32 copy, which learns from the fp16 gradients, also from those near 0."""
    x = np.random.default_rng(1).standard_normal((1, 64, 64)).astype(np.float16)
    trainer = Trainer("mini_half", TrainOptions(optimizer))
    found = []
    for _ in range(3):
        trainer.step({"input": x}, np.tanh(x))
        (state,) = trainer.team.states
        parameters = [name for name in trainer.team.plan.parameters if state[name].dtype == np.float16]
        for name in parameters:
            master = state[f"{name}/master"]
            assert master.dtype == np.float32 and np.isfinite(master).all()
            np.testing.assert_array_equal(state[name], master.astype(np.float16))
            assert all(state[f"{name}/{slot}"].dtype == np.float32 for slot in optimizer.task.slots)
        found.append({name: state[name].copy() for name in parameters})
    assert parameters and any((found[0][name] != found[2][name]).any() for name in parameters)
