"""Models are loaded completely or rejected with the unsupported op, and compute what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnx_models import ModelBuilder
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented
from op_values import agreeing_values

from traceconv.base.errors import InputError, ModelError, UsageError
from traceconv.runtime.compiled import CompiledModel, check_inputs, compile_model
from traceconv.runtime.inputs import fitting_inputs, random_inputs, read_arrays
from traceconv.runtime.load import load_graph
from traceconv.runtime.ops import OpKind, traits_of
from traceconv.runtime.zoo import LIGHT_MODELS, FoundModel, find_model, model_names


def compiled(proto: onnx.ModelProto, batch: int | None = None) -> CompiledModel:
    return compile_model(FoundModel("test", proto), batch)


@pytest.mark.parametrize("name", model_names())
def test_every_named_model_is_lowered_completely(name: str) -> None:
    proto = find_model(name).proto
    model = compile_model(name)
    graph = load_graph(proto, name)
    originals = [node.name for op in model.program.ops for node in op.originals]
    originals += [node.name for op in (*model.program.host_before, *model.program.host_after) for node in op.nodes]
    assert sorted(originals) == sorted(node.name for node in graph.nodes)
    assert not {"Constant", "ConstantOfShape", "Shape"} & {node.op_type for node in graph.nodes}
    assert all(op.dynamic or traits_of(op.nodes[0]).kind is not OpKind.VIEW for op in model.program.ops)
    irregular = {op.nodes[0].op_type for op in model.program.ops if op.core == "AI_CPU"}
    assert irregular <= {"LSTM", "NonMaxSuppression", "Gather", "Identity"}  # Gather and Identity of 8-byte integers


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "resnet50"])
def test_outputs_are_those_of_onnxruntime(name: str) -> None:
    model = compile_model(name)
    agreeing_values(find_model(name).proto, model, random_inputs(model, 0))


@pytest.mark.parametrize("name", ["squeezenet", "mini_resnet", "mini_transformer"])
def test_a_batch_is_its_samples_one_by_one(name: str) -> None:
    one, three = compile_model(name), compile_model(name, batch=3)
    inputs = random_inputs(three, 0)
    together = three.executor.run(inputs)
    for k in range(3):
        alone = one.executor.run({key: value[k : k + 1] for key, value in inputs.items()})
        for key, value in alone.items():
            np.testing.assert_allclose(together[key][k : k + 1], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_every_small_model_accepts_a_batch(name: str) -> None:
    graph = load_graph(find_model(name).proto, name, 2)
    assert all(graph.tensors[output].shape[0] == 2 for output in graph.outputs)


# Refusals


def unknown_op() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [1, 3]}, [b.node("Foo", ["x"])])


def unknown_domain() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [1, 3]}, [b.node("Foo", ["x"], domain="my.own")], domains=[("my.own", 3)])


def op_of_a_later_opset() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [1, 3]}, [b.node("Gelu", ["x"])], opset=17)


def strings() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [2]}, [b.node("Identity", ["x"])], elem_types={"x": TensorProto.STRING})


def sequences() -> onnx.ModelProto:
    b = ModelBuilder()
    at = b.node("SequenceAt", [b.node("SequenceConstruct", ["x"]), b.constant(np.array(0, np.int64))])
    return b.model({"x": [1, 3]}, [at])


def float8() -> onnx.ModelProto:
    b = ModelBuilder()
    y = b.node("Cast", [b.node("Cast", ["x"], to=TensorProto.FLOAT8E4M3FN)], to=1)
    return b.model({"x": [2]}, [y], opset=19)


def misfit() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [2, 4]}, [b.node("MatMul", ["x", b.weight((5, 6))])])


def dangling() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [2, 4]}, [b.node("Add", ["x", "nowhere"])])


def dynamic_batch() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": ["N", 3]}, [b.node("Relu", ["x"])])


def dynamic_tokens() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [1, "tokens"]}, [b.node("Relu", ["x"])])


def only_constants() -> onnx.ModelProto:
    b = ModelBuilder()
    return b.model({"x": [1]}, [b.node("Relu", [b.weight((3,))])])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (unknown_op, ["op Foo", "'foo_0'", "opset 17"]),
        (unknown_domain, ["op Foo", "'foo_0'", "my.own 3"]),
        (op_of_a_later_opset, ["op Gelu", "'gelu_0'", "opset 17"]),
        (strings, ["input 'x'", "STRING"]),
        (sequences, ["op SequenceConstruct", "'sequenceconstruct_0'", "opset 17", "sequence"]),
        (float8, ["op Cast", "'cast_0'", "opset 19", "FLOAT8E4M3FN"]),
        (misfit, ["op MatMul", "'matmul_0'", "opset 17"]),
        (dangling, ["op Add", "'add_0'", "'nowhere'"]),
        (dynamic_batch, ["input 'x'", "'N'", "give batch or inputs"]),
        (dynamic_tokens, ["input 'x'", "'tokens'", "fix it in the model"]),
        (only_constants, ["no op remains"]),
    ],
)
def test_what_cannot_run_is_refused_by_name(build: object, words: list[str]) -> None:
    assert callable(build)
    with pytest.raises(ModelError) as caught:
        compiled(build())
    for word in words:
        assert word in str(caught.value)


def test_an_op_without_a_kernel_for_its_type_is_refused_by_name() -> None:
    """onnxruntime has more kernels with each release: the first of these that it has none for."""
    for op, kind in (
        ("Atanh", "FLOAT16"),
        ("Det", "DOUBLE"),
        ("Sinh", "FLOAT16"),
        ("Tan", "DOUBLE"),
        ("Shrink", "FLOAT16"),
    ):
        b = ModelBuilder()
        shape = [2, 2] if op == "Det" else [2]
        proto = b.model({"x": shape}, [b.node(op, ["x"])], elem_types={"x": getattr(TensorProto, kind)})
        try:
            onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        except NotImplemented:
            break
    else:
        pytest.fail("onnxruntime has kernels for all of them: name others")
    with pytest.raises(ModelError) as caught:
        compiled(proto)
    for word in (f"op {op}", f"'{op.lower()}_0'", "opset 17", f"on {kind}"):
        assert word in str(caught.value)


def test_an_unsupported_batch_size_is_refused() -> None:
    b = ModelBuilder()
    flat = b.node("Reshape", ["x", b.constant(np.array([2, 8], np.int64))])
    proto = b.model({"x": [1, 4, 4]}, [b.node("Relu", [flat])])
    compiled(proto)
    with pytest.raises(ModelError, match=r"'reshape_0'.*batch 4"):
        compiled(proto, 4)
    with pytest.raises(UsageError):
        compiled(proto, 0)


def test_a_dynamic_batch_runs_with_a_batch() -> None:
    model = compiled(dynamic_batch(), 7)
    assert model.program.graph.tensors["x"].shape == (7, 3)
    agreeing_values(dynamic_batch(), model, random_inputs(model, 0))


def test_an_op_of_onnxruntimes_own_domain_runs() -> None:
    b = ModelBuilder()
    y = b.node("MatMul", [b.node("Gelu", ["x"], domain="com.microsoft"), b.weight((3, 4))])
    proto = b.model({"x": [2, 3]}, [y], domains=[("com.microsoft", 1)])
    model = compiled(proto)
    agreeing_values(proto, model, random_inputs(model, 0))


def test_shapes_and_constants_are_folded() -> None:
    b = ModelBuilder()
    shape = b.node("Shape", ["x"])
    first = b.node("Gather", [shape, b.constant(np.array([0], np.int64))], axis=0)
    target = b.node("Concat", [first, b.constant(np.array([-1], np.int64))], axis=0)
    weight = b.node("Mul", [b.weight((12, 4)), b.constant(np.float32(2.0))])
    y = b.node("MatMul", [b.node("Reshape", ["x", target]), weight])
    proto = b.model({"x": [2, 3, 4]}, [y])
    model = compiled(proto)
    assert [op.op_type for op in model.program.ops] == ["MatMulV2"]
    agreeing_values(proto, model, random_inputs(model, 0))


@pytest.mark.parametrize(("dtype", "elem_type"), [(np.float16, TensorProto.FLOAT16), (np.float64, TensorProto.DOUBLE)])
def test_other_floats_run(dtype: type, elem_type: int) -> None:
    b = ModelBuilder()
    weight = b.constant(b.random.standard_normal((6, 5)).astype(dtype))
    proto = b.model({"x": [3, 6]}, [b.node("Relu", [b.node("MatMul", ["x", weight])])], elem_types={"x": elem_type})
    model = compiled(proto)
    assert [op.core for op in model.program.ops] == ["AI_CORE"]
    agreeing_values(proto, model, random_inputs(model, 0), rtol=1e-2)


def test_a_model_of_views_alone_still_runs() -> None:
    b = ModelBuilder()
    proto = b.model({"x": [2, 6]}, [b.node("Flatten", [b.node("Identity", ["x"])])])
    model = compiled(proto)
    assert len(model.program.ops) >= 1
    agreeing_values(proto, model, random_inputs(model, 0))


# Names and inputs


def test_a_model_is_a_listed_name_or_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="mini_transformer"):
        find_model("zzz")
    with pytest.raises(ModelError, match="is a folder"):
        find_model(str(tmp_path))
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"hello, this is no model")
    with pytest.raises(ModelError, match="can't be read as an ONNX model"):
        find_model(str(junk))
    junk.write_bytes(b"")
    with pytest.raises(ModelError, match="no graph"):
        find_model(str(junk))


def test_ids_stay_below_what_they_index() -> None:
    b = ModelBuilder()
    proto = b.model({"ids": [4, 200]}, [b.node("Gather", [b.weight((10, 4)), "ids"])], elem_types={"ids": 7})
    model = compiled(proto)
    values = random_inputs(model, 3)["ids"]
    assert values.max() == 9 and values.min() == 0
    agreeing_values(proto, model, random_inputs(model, 0))


def test_inputs_from_a_file(tmp_path: Path) -> None:
    b = ModelBuilder()
    model = compiled(b.model({"x": [2, 3]}, [b.node("Relu", ["x"])]))
    path = tmp_path / "in.npz"
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(path, any_name=values)
    np.testing.assert_array_equal(fitting_inputs(model, read_arrays(path))["x"], values)
    for arrays, words in (
        ({"x": values.astype(np.float64)}, "float64"),
        ({"x": values.T}, r"\[3, 2\]"),
        ({"a": values, "b": values}, "no input 'a'"),
        ({}, "needs an input 'x'"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=words):
            fitting_inputs(model, read_arrays(path))
    path.write_text("hello")
    with pytest.raises(InputError, match="plain arrays"):
        fitting_inputs(model, read_arrays(path))
    single = tmp_path / "one.npy"
    np.save(single, values)
    with pytest.raises(InputError, match="is one array"):
        fitting_inputs(model, read_arrays(single))
    with pytest.raises(InputError, match="can't be read"):
        fitting_inputs(model, read_arrays(tmp_path / "absent.npz"))
    with pytest.raises(InputError, match="needs an input"):
        check_inputs(model, {})
