"""Every gradient rule against differences in float64, with the op computed by others: onnxruntime where it has a kernel
for doubles, else ONNX's reference, else a plain formula where that has float32 inside.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

from traceconv.runtime.graph import Node, Tensor
from traceconv.runtime.training.forms import training_form
from traceconv.runtime.training.gradient import Gradient, NoRule, Same, Site
from traceconv.runtime.training.rules import RULES

OPSET = 17
STEP = 1e-6


@dataclass(frozen=True)
class Case:
    """An op on inputs of these shapes. `given`: inputs that are not variables, by place; `low`: least value."""

    op_type: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[int, Any] = field(default_factory=dict)
    outputs: int = 1
    low: float | None = None
    opset: int = OPSET
    wanted: tuple[int, ...] | None = None

    def __str__(self) -> str:
        shown = "".join(f" {key}={value}" for key, value in self.attributes.items())
        return f"{self.op_type}-{self.opset} {self.shapes}{shown}"


X = (2, 3, 4)
IMAGE = (2, 4, 6, 5)
CASES = [
    *(Case(name, (X,)) for name in (
        "Abs", "Cos", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Relu", "Selu",
        "Sigmoid", "Sin", "Softplus", "Softsign", "Tanh", "ThresholdedRelu", "Identity",
    )),
    *(Case(name, (X,), low=0.3) for name in ("Log", "Reciprocal", "Sqrt")),
    Case("Elu", (X,), {"alpha": 0.7}),
    Case("Mish", (X,), opset=18),
    Case("Gelu", (X,), opset=20),
    Case("Gelu", (X,), {"approximate": "tanh"}, opset=20),
    Case("LeakyRelu", (X,), {"alpha": 0.3}),
    Case("Clip", (X, (), ()), given={1: -0.4, 2: 0.5}),
    Case("Clip", (X,), {"min": -0.4, "max": 0.5}, opset=6),
    Case("PRelu", (IMAGE, (4, 1, 1))),
    Case("Add", (X, X)), Case("Add", (X, (4,))), Case("Add", ((3, 1), X)), Case("Add", ((), X)),
    Case("Sub", (X, (3, 1))), Case("Sub", ((4,), X)), Case("Sum", (X, X, (4,))),
    Case("Mul", (X, X)), Case("Mul", (X, (2, 1, 4))), Case("Div", (X, (4,)), low=0.5), Case("Div", ((1,), X), low=0.5),
    Case("Pow", (X, ()), low=0.5), Case("Pow", (X, ()), given={1: 3.0}), Case("Pow", (X, (3, 1)), low=0.5),
    Case("Max", (X, X)), Case("Min", (X, (4,))),
    Case("Where", (X, X, (4,)), given={0: np.arange(24).reshape(X) % 3 == 0}),
    Case("Cast", (X,), {"to": TensorProto.DOUBLE}),
    Case("MatMul", ((3, 4), (4, 5))), Case("MatMul", ((2, 3, 4), (4, 5))), Case("MatMul", ((2, 1, 3, 4), (5, 4, 2))),
    Case("MatMul", ((4,), (4, 5))), Case("MatMul", ((3, 4), (4,))), Case("MatMul", ((4,), (4,))),
    Case("MatMul", ((4,), (2, 4, 3))), Case("MatMul", ((2, 3, 4), (4,))), Case("MatMul", ((3, 4), (2, 4, 5))),
    Case("Gemm", ((3, 4), (4, 5), (5,))), Case("Gemm", ((4, 3), (5, 4), (3, 5)), {"transA": 1, "transB": 1}),
    Case("Gemm", ((3, 4), (4, 5), (1, 5)), {"alpha": 0.7, "beta": 1.3}), Case("Gemm", ((3, 4), (4, 5))),
    Case("Conv", (IMAGE, (3, 4, 3, 2), (3,))),
    Case("Conv", (IMAGE, (6, 2, 3, 3), (6,)), {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]}),
    Case("Conv", (IMAGE, (4, 1, 3, 3)), {"group": 4, "pads": [1, 1, 1, 1]}),
    Case("Conv", (IMAGE, (2, 4, 2, 3)), {"dilations": [2, 1], "auto_pad": "SAME_UPPER", "strides": [1, 2]}),
    Case("Conv", ((1, 2, 7), (3, 2, 3)), {"strides": [2]}),
    Case("Conv", ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2)), {"pads": [1, 0, 0, 0, 1, 0]}),
    Case("ConvTranspose", (IMAGE, (4, 3, 3, 2), (3,)), {"strides": [2, 1], "pads": [1, 0, 1, 1]}),
    Case("ConvTranspose", ((1, 4, 3, 3), (4, 2, 2, 2)), {"group": 2, "strides": [2, 2], "output_padding": [1, 1]}),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    Case("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("GlobalAveragePool", (IMAGE,)),
    Case("Softmax", (X,)), Case("Softmax", (X,), {"axis": 1}), Case("Softmax", (X,), {"axis": 1}, opset=11),
    Case("LogSoftmax", (X,), {"axis": -1}),
    Case("LayerNormalization", (X, (4,), (4,))), Case("LayerNormalization", (X, (3, 4), (3, 4)), {"axis": 1}),
    Case("LayerNormalization", (X, (4,)), {"epsilon": 0.1}),
    Case("InstanceNormalization", (IMAGE, (4,), (4,))),
    Case("LRN", (IMAGE,), {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.5}),
    Case("LRN", (IMAGE,), {"size": 2, "alpha": 0.5}),
    Case("ReduceMean", (X,), {"axes": [1], "keepdims": 0}), Case("ReduceMean", (X,)),
    Case("ReduceMean", (X, (1,)), {"keepdims": 1}, given={1: np.array([-1])}, opset=18),
    Case("ReduceSum", (X, (2,)), {"keepdims": 0}, given={1: np.array([0, 2])}),
    Case("Transpose", (X,), {"perm": [2, 0, 1]}), Case("Transpose", (X,)),
    Case("Concat", (X, (2, 1, 4), X), {"axis": 1}),
    Case("Split", (X, (2,)), {"axis": 2}, given={1: np.array([1, 3])}, outputs=2),
    Case("Slice", (X, (2,), (2,), (2,), (2,)), given={
        1: np.array([0, 3]), 2: np.array([2, -99]), 3: np.array([1, 2]), 4: np.array([1, -2])}),
    Case("Slice", (X,), {"starts": [1], "ends": [3], "axes": [1]}, opset=9),
    Case("Pad", (X, (6,)), given={1: np.array([0, 1, 2, 1, 0, 0])}),
    Case("Pad", (X,), {"pads": [0, 1, 0, 2, 0, 1]}, opset=2),
    Case("Gather", ((5, 3), (2, 2)), given={1: np.array([[0, 4], [0, 2]])}),
    Case("Gather", (X, (3,)), {"axis": 1}, given={1: np.array([2, 0, 2])}),
    Case("Expand", ((3, 1), (3,)), given={1: np.array([2, 3, 4])}),
    Case("Reshape", (X, (2,)), given={1: np.array([6, 4])}), Case("Flatten", (X,)),
    Case("Squeeze", ((2, 1, 3), (1,)), given={1: np.array([1])}),
    Case("Unsqueeze", (X, (1,)), given={1: np.array([0])}),
    Case("BatchNormalization", (IMAGE, *[(4,)] * 4), {"epsilon": 0.01, "training_mode": 1}, wanted=(0, 1, 2)),
]  # fmt: skip


def arrays_of(case: Case) -> list[Any]:
    random = np.random.default_rng(len(case.op_type))
    found: list[Any] = []
    for place, shape in enumerate(case.shapes):
        if place in case.given:
            value = np.asarray(case.given[place])
            found.append(value.astype(np.float64) if value.dtype.kind == "f" else value)
            continue
        values = random.standard_normal(shape)
        found.append(np.asarray(np.abs(values) + case.low if case.low is not None else values))
    return found


Run = Callable[[Sequence[Any]], list[Any]]


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def _lrn(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    channels = x.shape[1]
    sums = np.zeros_like(x)
    for c in range(channels):
        first, last = max(0, c - (size - 1) // 2), min(channels - 1, c + size // 2)
        sums[:, c] = (x[:, first : last + 1] ** 2).sum(axis=1)
    return x / (bias + alpha / size * sums) ** beta


#: Ops of which neither library computes doubles in doubles.
PLAIN: dict[str, Callable[..., Any]] = {
    "Erf": _erf,
    "Gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "LRN": _lrn,
}


def evaluator(case: Case, arrays: Sequence[Any]) -> tuple[onnx.NodeProto, Run]:
    """The node, and what others make of inputs in float64."""
    names = [f"x{place}" for place in range(len(arrays))]
    extra = ["running_mean", "running_var"] if case.op_type == "BatchNormalization" else []
    outputs = [f"y{place}" for place in range(case.outputs)]
    proto = helper.make_node(case.op_type, names, outputs + extra, name="node", **case.attributes)
    if case.op_type in PLAIN and "approximate" not in case.attributes:
        return proto, lambda values: [PLAIN[case.op_type](*values, **case.attributes)]
    if case.op_type == "ConvTranspose" and case.attributes.get("group", 1) > 1:
        return proto, _by_groups(case, proto)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([proto], "one", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)])
    model.ir_version = 8
    run = reference(model, outputs)
    if case.op_type != "BatchNormalization":  # onnxruntime has none in training
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        with contextlib.suppress(NotImplemented_, InvalidGraph, Fail):
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            run = session.run
    return proto, lambda values: list(run(outputs, dict(zip(names, values, strict=True))))


def reference(model: onnx.ModelProto, outputs: list[str]) -> Callable[..., Any]:
    return lambda names, feeds: ReferenceEvaluator(model).run(names, feeds)


def _by_groups(case: Case, proto: onnx.NodeProto) -> Run:
    """Each group by itself: ONNX's reference has no groups here."""
    groups = case.attributes["group"]
    single = Case(case.op_type, case.shapes, {**case.attributes, "group": 1}, opset=case.opset)

    def run(values: Sequence[Any]) -> list[Any]:
        xs, ws = np.split(values[0], groups, axis=1), np.split(values[1], groups, axis=0)
        parts = [evaluator(single, [x, w])[1]([x, w])[0] for x, w in zip(xs, ws, strict=True)]
        return [np.concatenate(parts, axis=1)]

    return run


def gradients_by_rule(
    case: Case, arrays: Sequence[Any], ys: Sequence[Any], dys: Sequence[Any], proto: Any
) -> dict[int, Any]:
    node = Node("node", proto)
    tensors = {
        name: Tensor(name, value.shape, helper.np_dtype_to_tensor_dtype(value.dtype))
        for name, value in [*zip(node.inputs, arrays, strict=True), *zip(node.outputs, ys, strict=False)]
    }
    constants = {f"x{place}": arrays[place] for place in case.given}
    values = {**dict(zip(node.inputs, arrays, strict=True)), **dict(zip(node.outputs, ys, strict=False))}
    values.update({f"dy{place}": dy for place, dy in enumerate(dys)})
    saved: tuple[str, ...] = ()
    if case.op_type == "BatchNormalization":
        axes = (0, 2, 3)
        saved = ("mean", "var")
        values |= {"mean": arrays[0].mean(axis=axes), "var": arrays[0].var(axis=axes)}
    wanted = case.wanted or tuple(k for k in range(len(arrays)) if k not in case.given)
    dy_names = (*(f"dy{place}" for place in range(case.outputs)), *([None] * (len(node.outputs) - case.outputs)))
    site = Site(node, tensors, constants, dy_names, wanted, saved, case.opset)
    found: dict[int, Any] = {}
    for step in RULES[case.op_type](site):
        if isinstance(step, Same):
            found[step.wrt] = dys[0].reshape(arrays[step.wrt].shape)
            continue
        assert isinstance(step, Gradient)
        made = step.compute(*(values[name] for name in step.reads))
        assert len(made) == len(step.wrt)
        found.update(zip(step.wrt, made, strict=True))
    assert sorted(found) == sorted(wanted)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_agrees_with_differences(case: Case) -> None:
    arrays = arrays_of(case)
    proto, run = evaluator(case, arrays)
    ys = run(arrays)
    random = np.random.default_rng(7)
    dys = [random.standard_normal(y.shape) for y in ys]
    found = gradients_by_rule(case, arrays, ys, dys, proto)
    for place, gradient in found.items():
        assert gradient.shape == arrays[place].shape and gradient.dtype == np.float64
        for _ in range(3):  # along a few random directions: each tests all coordinates together
            direction = random.standard_normal(arrays[place].shape)
            ends = []
            for sign in (1, -1):
                moved = list(arrays)
                moved[place] = np.asarray(arrays[place] + sign * STEP * direction)
                ends.append(sum(float((y * dy).sum()) for y, dy in zip(run(moved), dys, strict=True)))
            expected = (ends[0] - ends[1]) / (2 * STEP)
            assert float((gradient * direction).sum()) == pytest.approx(expected, rel=2e-5, abs=2e-6)


def test_every_rule_has_a_case() -> None:
    assert set(RULES) - {case.op_type for case in CASES} == {"Dropout"}


def test_forms_without_a_gradient_are_refused() -> None:
    for case in (
        Case("Add", (X, (3,)), {"axis": 1, "broadcast": 1}, opset=6),
        Case("Pad", (X, (6,)), {"mode": "reflect"}, given={1: np.array([0, 1, 1, 0, 1, 1])}),
        Case("Conv", (IMAGE, (2, 4, 3, 3)), {"pads": [-1, 0, 0, 0]}),
    ):
        arrays = arrays_of(case)
        node = Node(
            "node", helper.make_node(case.op_type, [f"x{k}" for k in range(len(arrays))], ["y0"], **case.attributes)
        )
        tensors = {f"x{k}": Tensor(f"x{k}", a.shape, TensorProto.DOUBLE) for k, a in enumerate(arrays)}
        tensors["y0"] = Tensor("y0", IMAGE if case.op_type == "Conv" else X, TensorProto.DOUBLE)
        with pytest.raises(NoRule):
            RULES[case.op_type](Site(node, tensors, {}, ("dy",), (0,), (), case.opset))


def test_dropout_keeps_its_mask_and_its_mean() -> None:
    from traceconv.runtime.graph import Graph

    node = Node("drop", helper.make_node("Dropout", ["x"], ["y"], ratio=0.25))
    tensors = {name: Tensor(name, (64, 64), TensorProto.FLOAT) for name in ("x", "y")}
    graph = Graph("m", "g", {"": 9}, (node,), tensors, {}, ("x",), ("y",))
    form = training_form(graph, node, 9, Tensor)
    assert form is not None
    x = np.ones((64, 64), np.float32)
    y, mask = form.forward([x], (1, 2))
    assert np.array_equal(y, mask) and set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(float(y.mean()) - 1) < 0.05
    assert np.array_equal(y, form.forward([x], (1, 2))[0]) and not np.array_equal(y, form.forward([x], (1, 3))[0])
    (step,) = RULES["Dropout"](Site(node, tensors, {}, ("dy",), (0,), (form.makes[1].name,), 9))
    assert isinstance(step, Gradient)
    assert np.array_equal(step.compute(mask, x)[0], mask)
