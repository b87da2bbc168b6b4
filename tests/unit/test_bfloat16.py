"""bfloat16 models: results near fp32's, types at the borders, control flow, constants, training, logged types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import Command
from ingest_checks import ingested
from modelled_trainer import Trainer
from onnx import TensorProto, helper
from onnx_models import ModelBuilder, in_type, onnxruntime_values
from stores import query
from training_models import convnet, digits, mlp

import traceconv
from traceconv.base.errors import InputError
from traceconv.cli.app import run
from traceconv.runtime.bfloat16 import BF16, narrowed, rounded
from traceconv.runtime.compiled import compile_model
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.op_profile import profile_op
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.reference_models import mini_resnet, mini_transformer
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.zoo import FoundModel

BFLOAT16 = TensorProto.BFLOAT16


def outputs(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    model = compile_model(FoundModel("test", proto), inputs=feeds)
    found = model.executor.run(feeds)
    return [found[name] for name in model.program.graph.outputs]


@pytest.mark.parametrize("build", [mini_resnet, mini_transformer])
def test_results_are_near_those_of_fp32(build: Any) -> None:
    """Within 2⁻⁶ of the largest value: bfloat16 keeps 8 bits, so each op adds an error of at most 2⁻⁸ of its result."""
    proto = build()
    model = compile_model(FoundModel("half", in_type(proto, BFLOAT16)))
    inputs = random_inputs(model, 3)
    (ours,) = model.executor.run(inputs).values()
    feeds = {name: value.astype(np.float32) for name, value in inputs.items()}
    theirs = onnxruntime_values(proto, feeds, ["output"])["output"]
    assert ours.dtype == BF16
    assert np.abs(ours.astype(np.float32) - theirs).max() <= np.abs(theirs).max() / 64


def test_casts_constants_and_shapes_at_load() -> None:
    b = ModelBuilder()
    half = b.constant(np.array([1.5, -2.25, 1 / 3], np.float32))
    folded = b.node("Mul", [b.node("Cast", [half], to=BFLOAT16), b.node("Cast", [half], to=BFLOAT16)])
    value = helper.make_tensor("value", BFLOAT16, [1], [0.1])
    filled = b.node("ConstantOfShape", [b.constant(np.array([3], np.int64))], value=value)
    constant = b.node("Constant", [], value=helper.make_tensor("value", BFLOAT16, [3], [0.1, 0.2, 0.3]))
    x = b.node("CastLike", ["x", folded])
    x = b.node("Add", [b.node("Add", [x, folded]), b.node("Sub", [filled, constant])])
    wide = b.node("Cast", [x], to=TensorProto.DOUBLE)
    proto = b.model({"x": [2, 3]}, [x, wide], elem_types={"x": TensorProto.DOUBLE})
    given = np.array([[1.001, 2.002, 1e-3], [3e38, -1e30, 0.1]])
    ours, doubles = outputs(proto, {"x": given})
    a = rounded(np.array([1.5, -2.25, 1 / 3], np.float32))
    tenth, parts = rounded(np.float32([0.1])), rounded(np.float32([0.1, 0.2, 0.3]))
    expected = rounded(rounded(rounded(given.astype(np.float32)) + rounded(a * a)) + rounded(tenth - parts))
    assert ours.dtype == BF16 and doubles.dtype == np.float64
    np.testing.assert_array_equal(ours.astype(np.float32), expected)
    np.testing.assert_array_equal(doubles, expected)


def while_and_if() -> onnx.ModelProto:
    """x ← 1.5 · x while its maximum is below 8; then exp x or -x, by the sum: all in bfloat16."""
    info, node = helper.make_tensor_value_info, helper.make_node
    body = helper.make_graph(
        [
            node("Mul", ["carried", "factor"], ["scaled"]),
            node("ReduceMax", ["scaled"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["again"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("was", TensorProto.BOOL, []), info("carried", BFLOAT16, [4])],
        [info("again", TensorProto.BOOL, []), info("scaled", BFLOAT16, [4])],
        [helper.make_tensor("factor", BFLOAT16, [], [1.5])],
    )
    then = helper.make_graph([node("Exp", ["y"], ["then"])], "then", [], [info("then", BFLOAT16, [4])])
    other = helper.make_graph([node("Neg", ["y"], ["other"])], "other", [], [info("other", BFLOAT16, [4])])
    graph = helper.make_graph(
        [
            node("Loop", ["", "true", "x"], ["y"], body=body),
            node("ReduceSum", ["y"], ["sum"], keepdims=0),
            node("Less", ["sum", "one"], ["small"]),
            node("If", ["small"], ["z"], then_branch=then, else_branch=other),
        ],
        "test",
        [info("x", BFLOAT16, [4])],
        [info("z", BFLOAT16, [4])],
        [
            onnx.numpy_helper.from_array(np.array(True), "true"),
            helper.make_tensor("limit", BFLOAT16, [], [8.0]),
            helper.make_tensor("one", BFLOAT16, [], [1.0]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("values", [[1, 2, 3, -4], [1, -2, 3, -4]])
def test_trips_and_branches_follow_from_rounded_values(values: list[float]) -> None:
    x = narrowed(np.float32(values))
    (ours,) = outputs(while_and_if(), {"x": x})
    carried = rounded(x.astype(np.float32) * np.float32(1.5))
    while carried.max() < 8:
        carried = rounded(carried * np.float32(1.5))
    expected = -carried if carried.sum() >= 1 else np.exp(carried)
    np.testing.assert_allclose(ours.astype(np.float32), expected, rtol=2**-8)


def test_shapes_that_depend_on_values() -> None:
    b = ModelBuilder()
    x = b.node("Mul", ["x", "x"])
    kept = b.node("Compress", [x, b.node("Greater", [x, b.constant(np.float32(0.5))])])
    y = b.node("Exp", [kept])
    proto = in_type(b.model({"x": [6]}, [y]), BFLOAT16)
    x = narrowed(np.float32([0.1, -0.9, 1.3, 0.2, -2, 0.7]))
    (ours,) = outputs(proto, {"x": x})
    square = rounded(x.astype(np.float32) ** 2)
    assert ours.dtype == BF16
    np.testing.assert_allclose(ours.astype(np.float32), np.exp(square[square > 0.5]), rtol=2**-8)


def test_an_op_that_only_onnxruntime_has() -> None:
    b = ModelBuilder()
    y = b.node("Gelu", [b.node("Neg", ["x"])], domain="com.microsoft")
    proto = b.model({"x": [8]}, [b.node("Neg", [y])], domains=[("com.microsoft", 1)])
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    exact = onnxruntime_values(proto, {"x": rounded(x)}, ["t2_0"])["t2_0"]
    model = compile_model(FoundModel("m", in_type(proto, BFLOAT16)))
    assert {tensor.dtype for op in model.program.ops for tensor in op.writes} == {"DT_BF16"}
    (ours,) = model.executor.run({"x": narrowed(x)}).values()
    np.testing.assert_allclose(ours.astype(np.float32), exact, rtol=2**-8)


def test_arrays_of_sessions_are_bfloat16(tmp_path: Path) -> None:
    with traceconv.Session("mini_bf16", fetch=["t5"]) as session:
        assert session.inputs == {"input": ("bfloat16", (1, 64, 64))}
        inputs = session.random_inputs()
        found = session.run(inputs)
        assert {value.dtype for value in found.values()} == {BF16} and set(found) == {"output", "t5"}
        with pytest.raises(
            InputError, match=r"must be bfloat16 .* not float32 .*; convert it with .astype\(ml_dtypes.bfloat16\)"
        ):
            session.run({"input": inputs["input"].astype(np.float32)})
    np.savez(tmp_path / "x.npz", input=inputs["input"])
    done = record(RecordOptions("mini_bf16", tmp_path / "raw", input_path=tmp_path / "x.npz", deterministic=True))
    np.testing.assert_array_equal(done.outputs["output"], found["output"])


def test_logged_types_sizes_and_times(tmp_path: Path) -> None:
    assert run(["record", "mini_bf16", "-o", str(tmp_path / "b"), "--deterministic", "--iterations", "2"]) == 0
    assert run(["record", "mini_half", "-o", str(tmp_path / "h"), "--deterministic", "--iterations", "2"]) == 0
    store = tmp_path / "t.duckdb"
    ingested(store, tmp_path / "b", tmp_path / "h")
    sql = (
        "SELECT DISTINCT input_dtypes, output_dtypes FROM op_summary(run := {}) WHERE op_type = 'MatMulV2' ORDER BY ALL"
    )
    ours, theirs = (query(store, sql.format(number)) for number in (1, 2))
    assert ours == [tuple(text.replace("FLOAT16", "DT_BF16") for text in row) for row in theirs]
    sql = "SELECT op_type, count, total_ns FROM op_statistic(run := {}) ORDER BY ALL"
    assert query(store, sql.format(1)) == query(store, sql.format(2))
    sizes = query(store, "SELECT run_id, sum(input_bytes), sum(weight_bytes), sum(output_bytes) FROM op GROUP BY ALL")
    assert len({row[1:] for row in sizes}) == 1


@pytest.mark.parametrize("name", ["bf16", "bfloat16", "DT_BF16"])
def test_op_profiles(name: str, command: Command) -> None:
    words = ["op-profile", "MatMul", "--input", "64x96", "--no-cache", "--format", "json"]
    (ours,) = json.loads(command(*words, "--input", "96x32", "--dtype", name).out)
    theirs = profile_op("MatMul", [[64, 96], [96, 32]], dtypes="float16", cache=False)
    assert ours["input_dtypes"] == "DT_BF16;DT_BF16" and ours["min_ns"] == min(theirs.latencies_ns)
    command("op-profile", "Mul", "--input", f"3:{name}", "--input", f"3:{name.lower()}=1.5,2,1e-3")


def test_training_learns_about_as_fp32_does() -> None:
    """bfloat16 weights forget updates below 2⁻⁹ of them, so the losses only come near: within 5 %, and falling."""
    images, labels = digits()
    losses = {}
    for half in (False, True):
        proto = in_type(mlp(), BFLOAT16) if half else mlp()
        trainer = Trainer(FoundModel("mlp", proto), TrainOptions(Optimizer(lr=0.2)), devices=2)
        x = images.reshape(-1, 64)
        for start in range(0, 1024, 64):
            part = x[start : start + 64]
            trainer.step({"x": narrowed(part) if half else part}, labels[start : start + 64])
        losses[half] = trainer.losses
        learned = [trainer.weights(device) for device in (0, 1)]
        assert all(np.array_equal(learned[0][name], learned[1][name]) for name in learned[0])
        assert {value.dtype for value in learned[0].values()} == {BF16 if half else np.dtype(np.float32)}
    assert losses[True] == pytest.approx(losses[False], rel=0.05)
    assert losses[True][-1] < losses[True][0] / 2


def test_every_value_that_training_keeps_is_a_bfloat16() -> None:
    random = np.random.default_rng(0)
    x, y = narrowed(random.standard_normal((4, 1, 8, 8)).astype(np.float32)), random.integers(0, 10, 4)
    for optimizer in (Optimizer(lr=0.1), Optimizer("adam", 0.01)):
        trainer = Trainer(FoundModel("net", in_type(convnet(), BFLOAT16)), TrainOptions(optimizer))
        for _ in range(2):
            trainer.step({"x": x}, y)
        (state,) = trainer.team.states
        assert len(state) > 10
        for value in state.values():  # weights, running statistics, momenta
            np.testing.assert_array_equal(value, rounded(value))


def test_float_samples_of_a_file_train_a_bfloat16_model(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((4, 64, 64)).astype(np.float32)
    np.savez(tmp_path / "data.npz", input=x, target=np.tanh(x))
    words = ["record", "mini_bf16", "-o", str(tmp_path / "raw"), "--train", "--loss", "mse", "--steps", "3"]
    assert run([*words, "--input", str(tmp_path / "data.npz"), "--batch", "2", "--deterministic"]) == 0
    store = tmp_path / "t.duckdb"
    ingested(store, tmp_path / "raw")
    rows = query(store, "SELECT phase, output_dtypes, count(*) FROM op WHERE op_type = 'MatMulGrad' GROUP BY ALL")
    assert [row[:2] for row in rows] == [("backward", "DT_BF16")]
    assert query(store, "SELECT count(*) > 0 FROM fusion_op") == [(True,)]


def mixed(classes: int = 10) -> onnx.ModelProto:
    """As autocast exports it: fp32 weights, cast to bfloat16 for the products; the logits are cast back."""
    b = ModelBuilder(seed=5)
    weights = [b.weight(shape) for shape in ((64, 32), (32,), (32, classes), (classes,))]
    half = [b.node("Cast", [weight], to=BFLOAT16) for weight in weights]
    x = b.node("MatMul", [b.node("Cast", ["x"], to=BFLOAT16), half[0]])
    x = b.node("Relu", [b.node("Add", [x, half[1]])])
    x = b.node("Cast", [b.node("Gemm", [x, half[2], half[3]])], to=TensorProto.FLOAT)
    return b.model({"x": ["batch", 64]}, [x])


def test_weights_that_are_cast_are_trained_in_their_own_type() -> None:
    images, labels = digits()
    x, y = images[:64].reshape(64, 64), labels[:64]
    trainer = Trainer(FoundModel("mixed", mixed()), TrainOptions(Optimizer(lr=1e-5, momentum=0.0)))
    losses = [trainer.step({"x": x}, y) for _ in range(40)]
    before = {entry.name: onnx.numpy_helper.to_array(entry) for entry in mixed().graph.initializer}
    after = trainer.weights()
    assert sorted(after) == sorted(before)
    for name, value in after.items():
        assert value.dtype == np.float32
        # Updates that are too small for bfloat16 add up.
        assert not np.array_equal(value, before[name])
        np.testing.assert_allclose(value, before[name], atol=1e-2)
    assert losses[-1] < losses[0]
    plan = trainer.team.plan
    assert [op.op_type for op in plan.ops("forward")].count("Cast") >= 4  # in each step
    gradients = [op for op in plan.ops("backward") if op.op_type == "Cast"]
    assert {tensor.dtype for op in gradients for tensor in op.writes} >= {"FLOAT"}
    # Inference casts weights when it loads the model.
    model = compile_model(FoundModel("mixed", mixed()), inputs={"x": x})
    assert all(node.op_type != "Cast" or "x" in node.inputs or op.writes[0].dtype == "FLOAT"
               for op in model.program.ops for node in op.nodes)  # fmt: skip


def test_mixed_precision_is_near_fp32() -> None:
    images, labels = digits()
    plain = mixed()
    for node in plain.graph.node:
        if node.op_type == "Cast":
            node.attribute[0].i = TensorProto.FLOAT
    losses = []
    for proto in (mixed(), plain):
        trainer = Trainer(FoundModel("m", proto), TrainOptions(Optimizer(lr=0.05)))
        for start in range(0, 512, 64):
            trainer.step({"x": images[start : start + 64].reshape(64, 64)}, labels[start : start + 64])
        losses.append(trainer.losses)
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
