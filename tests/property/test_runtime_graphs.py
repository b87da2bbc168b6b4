"""Any small network computes what onnxruntime computes, fused or not, and its capture satisfies every invariant."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import runtime_invariants
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import ModelBuilder
from op_values import agreeing_values
from runtime_reader import Capture

from traceconv.runtime.compiled import compile_model
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.lower import Program
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.zoo import FoundModel

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Elu")


@st.composite
def image_networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Convolutions with and without normalisation, residual sums, pools, branches, a dense end."""
    b = ModelBuilder(draw(st.integers(0, 1 << 16)))
    channels, size = draw(st.sampled_from([(1, 8), (4, 9), (6, 12)]))
    shape = [draw(st.integers(1, 3)), channels, size, size]
    x = "x"
    for _ in range(draw(st.integers(1, 6))):
        block = draw(st.sampled_from(("conv", "conv", "depthwise", "residual", "pool", "branch", "affine")))
        act = draw(st.sampled_from((None, *ACTIVATIONS)))
        if block == "affine":
            x = b.node("Mul", [x, b.weight((channels, 1, 1))])
            x = b.node("Add", [x, b.weight((1, channels, 1, 1))])
        elif block == "pool":
            x = b.node(draw(st.sampled_from(("MaxPool", "AveragePool"))), [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif block == "branch":
            x = b.node("Concat", [x, b.node("Relu", [x])], axis=1)
            channels *= 2
        else:
            groups = channels if block == "depthwise" else 1
            width = channels if block != "conv" else draw(st.integers(1, 8))
            inputs = [x, b.weight((width, channels // groups, 3, 3))]
            if draw(st.booleans()):
                inputs.append(b.weight((width,)))
            y = b.node("Conv", inputs, pads=[1, 1, 1, 1], group=groups)
            if draw(st.booleans()):
                norm = [b.weight((width,)), b.weight((width,)), b.weight((width,)), b.weight((width,), positive=True)]
                y = b.node("BatchNormalization", [y, *norm])
            x = b.node(draw(st.sampled_from(("Add", "Sum"))), [x, y]) if block == "residual" else y
            channels = width
        if act is not None:
            x = b.node(act, [x])
    if draw(st.booleans()):
        x = b.node("Flatten", [b.node("GlobalAveragePool", [x])])
        x = b.node("Softmax", [b.node("Gemm", [x, b.weight((channels, 5)), b.weight((5,))])], axis=-1)
    return b.model({"x": shape}, [x])


@st.composite
def token_networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Dense layers, GELU written out, attention-like products, norms, reductions, slices."""
    b = ModelBuilder(draw(st.integers(0, 1 << 16)))
    tokens, width = draw(st.integers(1, 12)), draw(st.sampled_from((4, 8, 12)))
    x = "x"
    for _ in range(draw(st.integers(1, 5))):
        block = draw(st.sampled_from(("dense", "gelu", "attention", "norm", "mean", "split", "twist")))
        if block == "dense":
            x = b.node("Add", [b.node("MatMul", [x, b.weight((width, width))]), b.weight((width,))])
            x = b.node(draw(st.sampled_from(ACTIVATIONS)), [x])
        elif block == "gelu":
            y = b.node("Add", [b.node("Erf", [b.node("Div", [x, b.constant(np.float32(2**0.5))])]), b.weight(())])
            x = b.node("Mul", [x, y])
        elif block == "attention":
            scores = b.node("MatMul", [x, b.node("Transpose", [x], perm=[0, 2, 1])])
            x = b.node("Add", [b.node("MatMul", [b.node("Softmax", [scores], axis=-1), x]), x])
        elif block == "norm":
            x = b.node("LayerNormalization", [x, b.weight((width,)), b.weight((width,))], axis=-1)
        elif block == "mean":
            x = b.node("Sub", [x, b.node("ReduceMean", [x], axes=[-1], keepdims=1)])
        elif block == "split":
            left, right = b.results("Split", [x], 2, axis=-1)
            x = b.node("Concat", [right, b.node("Neg", [left])], axis=-1)
        else:
            y = b.node("Reshape", [x, b.constant(np.array([0, -1, 2], np.int64))])
            y = b.node("Transpose", [b.node("Transpose", [y], perm=[0, 2, 1])], perm=[0, 2, 1])
            x = b.node("Reshape", [y, b.constant(np.array([-1, tokens, width], np.int64))])
    return b.model({"x": [draw(st.integers(1, 3)), tokens, width]}, [x])


def check_last_uses(program: Program) -> None:
    """Memory is given up after the last op that reads it, and all of it is."""
    given_up: set[str] = set()
    last = program.last_uses()
    for op in program.ops:
        touched = {program.root(tensor.name) for tensor in (*op.reads, *op.writes)}
        assert not touched & given_up
        given_up.update(last.get(op.index, ()))
        assert touched - given_up <= {
            program.root(tensor.name) for later in program.ops[op.index + 1 :] for tensor in later.reads
        }


@settings(max_examples=25)
@given(st.one_of(image_networks(), token_networks()), st.integers(0, 1 << 32))
def test_a_random_network_computes_and_logs_right(proto: onnx.ModelProto, seed: int) -> None:
    model = compile_model(FoundModel("random", proto))
    inputs = random_inputs(model, seed)
    ours = agreeing_values(proto, model, inputs, rtol=2e-4)
    originals = sorted(node.name for op in model.program.ops for node in op.originals)
    assert originals == sorted(node.name for node in proto.graph.node)
    check_last_uses(model.program)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.onnx"
        onnx.save(proto, path)
        options = RecordOptions(str(path), Path(folder) / "raw", iterations=2, warmup=1, seed=seed, deterministic=True)
        done = record(options)
        runtime_invariants.check(Capture(done.folder))
    for name, value in done.outputs.items():
        np.testing.assert_array_equal(value, ours[name])
