"""Shapes that depend on control flow, open dimensions or values; graphs of many nodes are processed quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import ModelBuilder
from op_values import agreeing_values
from runtime_reader import Capture

from traceconv.base.errors import InputError, ModelError
from traceconv.runtime.compiled import CompiledModel, compile_model
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.zoo import FoundModel


def compiled(proto: onnx.ModelProto, **options: Any) -> CompiledModel:
    return compile_model(FoundModel("test", proto), **options)


def info(name: str, elem_type: int = TensorProto.FLOAT, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type, shape)


# Control flow


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [info(nodes[-1].output[0])])


def choice(then_type: str = "Relu") -> onnx.ModelProto:
    """If the largest value is positive: an op on a tensor from outside, else its product with a weight of outside."""
    b = ModelBuilder()
    weight = b.weight((3, 3))
    outer = b.node("Tanh", ["x"])
    condition = b.node("Greater", [b.node("ReduceMax", ["x"], keepdims=0), b.constant(np.float32(0))])
    y = b.node(
        "If",
        [condition],
        # Names inside are those that the kernel would give to its own tensors.
        then_branch=branch("then", helper.make_node(then_type, [outer], ["v1"])),
        else_branch=branch("else", helper.make_node("MatMul", [outer, weight], ["i0"])),
    )
    return b.model({"x": [2, 3]}, [b.node("Neg", [y])])


def test_an_if_is_one_op_of_the_ai_cpu_and_takes_the_right_branch() -> None:
    proto = choice()
    model = compiled(proto)
    (op,) = [op for op in model.program.ops if op.op_type == "If"]
    assert op.core == "AI_CPU" and not op.dynamic
    assert {tensor.name for tensor in op.reads} >= {"t0_0"}
    for value in (1.0, -1.0):
        agreeing_values(proto, model, {"x": np.full((2, 3), value, np.float32)}, rtol=1e-5)


def test_what_cannot_run_inside_a_branch_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    onnx.save(choice("Bogus"), path)
    with pytest.raises(ModelError, match=r"op Bogus \(node 'if_\d/Bogus_0', opset 17\)"):
        record(RecordOptions(str(path), tmp_path / "raw"))
    assert not (tmp_path / "raw").exists()


# Dimensions left open


def open_model() -> onnx.ModelProto:
    b = ModelBuilder()
    y = b.node("Add", [b.node("MatMul", ["x", b.weight((4, 6))]), b.node("Gather", [b.weight((9, 6)), "ids"])])
    shape = b.node("Concat", [b.node("Shape", [y], end=2), b.constant(np.array([2, 3], np.int64))], axis=0)
    proto = b.model(
        {"x": ["batch", "tokens", 4], "ids": ["batch", "tokens"]},
        [b.node("Transpose", [b.node("Reshape", [y, shape])], perm=[0, 2, 1, 3])],
        elem_types={"ids": TensorProto.INT64},
    )
    assert isinstance(proto, onnx.ModelProto)
    return proto


def feeds(batch: int, tokens: int) -> dict[str, Any]:
    random = np.random.default_rng(batch)
    x = random.standard_normal((batch, tokens, 4)).astype(np.float32)
    return {"x": x, "ids": random.integers(0, 9, (batch, tokens))}


@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (2, 7), (3, 16)])
def test_open_dimensions_are_those_of_the_inputs(batch: int, tokens: int) -> None:
    proto, inputs = open_model(), feeds(batch, tokens)
    model = compiled(proto, inputs=inputs)
    assert not model.program.graph.dynamic
    (output,) = model.program.graph.outputs
    assert model.program.graph.tensors[output].shape == (batch, 2, tokens, 3)
    agreeing_values(proto, model, inputs, rtol=1e-5)


def test_open_dimensions_are_named_and_must_agree() -> None:
    with pytest.raises(ModelError, match=r"input 'x': dimension 'batch' is dynamic: give batch or inputs"):
        compiled(open_model())
    with pytest.raises(ModelError, match=r"input 'x': dimension 'tokens' is dynamic: give inputs"):
        compiled(open_model(), batch=2)
    with pytest.raises(InputError, match=r"input 'ids': dimension 'tokens' is 3, but 5 in test: input 'x'"):
        compiled(open_model(), inputs={"x": feeds(2, 5)["x"], "ids": feeds(2, 3)["ids"]})


def test_a_named_dimension_given_by_one_input_applies_to_the_others() -> None:
    model = compiled(open_model(), inputs={"x": feeds(2, 5)["x"]})
    assert model.program.graph.tensors["ids"].shape == (2, 5)


def test_record_takes_open_dimensions_from_a_file(tmp_path: Path) -> None:
    onnx.save(open_model(), tmp_path / "open.onnx")
    np.savez(tmp_path / "in.npz", **feeds(2, 7))
    options = RecordOptions(
        str(tmp_path / "open.onnx"), tmp_path / "raw", iterations=1, input_path=tmp_path / "in.npz", deterministic=True
    )
    (output,) = record(options).outputs.values()
    assert output.shape == (2, 2, 7, 3)


# Shapes that depend on values


def positives() -> onnx.ModelProto:
    b = ModelBuilder()
    where = b.node("NonZero", [b.node("Relu", ["x"])])
    count = b.node("Gather", [b.node("Shape", [where]), b.constant(np.array(1, np.int64))])
    found = b.node("GatherND", ["x", b.node("Transpose", [where])])
    proto = b.model({"x": [3, 4]}, [b.node("Exp", [found]), b.node("Cast", [count], to=TensorProto.FLOAT)])
    assert isinstance(proto, onnx.ModelProto)
    return proto


def test_shapes_that_depend_on_values_are_those_of_the_inputs() -> None:
    proto = positives()
    model = compiled(proto, seed=3)
    first = random_inputs(model, 3)
    found, count = model.program.graph.outputs
    values = agreeing_values(proto, model, first, rtol=1e-5)
    # The program has the shapes that its own inputs lead to; others are computed right all the same.
    assert model.program.graph.tensors[found].shape == values[found].shape == (int((first["x"] > 0).sum()),)
    assert found in model.program.graph.dynamic and count not in model.program.graph.dynamic
    for x in (np.full((3, 4), -1, np.float32), np.ones((3, 4), np.float32)):
        assert agreeing_values(proto, model, {"x": x}, rtol=1e-5)[count] == (x > 0).sum()


def test_ops_of_such_shapes_are_dynamic_in_the_log(tmp_path: Path) -> None:
    onnx.save(positives(), tmp_path / "positives.onnx")
    done = record(RecordOptions(str(tmp_path / "positives.onnx"), tmp_path / "raw", iterations=1, deterministic=True))
    assert set(Capture(done.folder).enum("op", "state")) == {"static", "dynamic"}


# Many nodes


def deep(blocks: int) -> onnx.ModelProto:
    """Blocks of ten nodes: two products, a norm in small ops, residual sums; weights differ, shapes do not."""
    b = ModelBuilder()
    weights = [b.weight((8, 8)) for _ in range(4)]
    eps, two = b.constant(np.float32(1e-5)), b.constant(np.float32(2))
    x = "x"
    for k in range(blocks):
        y = b.node("Add", [b.node("MatMul", [x, weights[k % 4]]), x])
        y = b.node("Sub", [y, b.node("ReduceMean", [y], axes=[-1], keepdims=1)])
        variance = b.node("ReduceMean", [b.node("Pow", [y, two])], axes=[-1], keepdims=1)
        y = b.node("Div", [y, b.node("Sqrt", [b.node("Add", [variance, eps])])])
        x = b.node("Tanh", [b.node("Transpose", [y], perm=[1, 0])]) if k % 2 else b.node("Sigmoid", [y])
    proto = b.model({"x": [8, 8]}, [x])
    assert isinstance(proto, onnx.ModelProto)
    return proto


def test_work_grows_with_the_nodes_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at nodes are counted, since time is no measure on a busy machine."""
    from traceconv.runtime.fusion import fuse
    from traceconv.runtime.fusion.state import State
    from traceconv.runtime.load import load_graph

    walks = 0
    refresh = State.refresh

    def counted(state: State) -> None:
        nonlocal walks
        walks += 1
        refresh(state)

    monkeypatch.setattr(State, "refresh", counted)
    seen = []
    for blocks in (5, 50):
        walks = 0
        fused = fuse(load_graph(deep(blocks), "deep"))
        assert sum(rewrite.rule == "layer-norm" for rewrite in fused.rewrites) == blocks
        seen.append(walks)
    assert seen[0] == seen[1]


@pytest.mark.long
def test_ten_thousand_nodes_are_recorded(tmp_path: Path) -> None:
    proto = deep(1_000)
    assert len(proto.graph.node) > 10_000
    onnx.save(proto, tmp_path / "deep.onnx")
    done = record(RecordOptions(str(tmp_path / "deep.onnx"), tmp_path / "raw", iterations=1, deterministic=True))
    assert len(Capture(done.folder)["op"]) == done.op_count > 3_000


def test_equal_layers_share_kernels() -> None:
    model = compiled(deep(40))
    kernels = {id(kernel.session) for kernel in model.executor.kernels}
    assert len(model.program.ops) > 60 and len(kernels) < 10
    proto = deep(40)
    agreeing_values(proto, model, random_inputs(model, 0), rtol=1e-5)


def test_a_weight_that_is_given_as_an_input_too_is_a_weight() -> None:
    weight = numpy_helper.from_array(np.ones((3,), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [info("x", shape=[3]), info("w", shape=[3])],
        [info("y")],
        [weight],
    )
    model = compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert model.program.uploads == ("x",)
