"""Random networks, and checks that fusion changes no result of a training and saves only what is read."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from modelled_trainer import Trainer
from onnx_models import ModelBuilder

from traceconv.runtime import counters
from traceconv.runtime.bfloat16 import narrowed
from traceconv.runtime.cost import memory_cycles
from traceconv.runtime.lower import DeviceOp
from traceconv.runtime.spec import reference_npu
from traceconv.runtime.training.compile import compile_training
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.plan import TrainingPlan
from traceconv.runtime.zoo import FoundModel

ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Softplus", "Exp", "Neg", "Identity")


@st.composite
def networks(draw: st.DrawFn, foldable: bool = True) -> onnx.ModelProto:
    """Convolutions, dense layers, norms, residual sums, Dropout and chains of small ops, in random order.

    foldable  whether a norm or a factor may follow a Conv, which inference folds into its weights
    """
    b = ModelBuilder(draw(st.integers(0, 1 << 16)))
    image, width = draw(st.booleans()), draw(st.sampled_from((4, 6)))
    shape = [2, width, 5, 5] if image else [4, width]
    x = earlier = "x"
    for _ in range(draw(st.integers(1, 6))):
        folds = image and not foldable
        block = draw(st.sampled_from(("matrix", "norm", "drop", "residual", "gelu", "scale", "chain", "layernorm")))
        if block == "matrix" and image:
            x = b.node("Conv", [x, b.weight((width, width, 3, 3)), b.weight((width,))], pads=[1, 1, 1, 1])
        elif block == "matrix":
            x = b.node("MatMul", [x, b.weight((width, width))])
            x = b.node("Add", [x, b.weight((width,))]) if draw(st.booleans()) else x
        elif block in ("norm", "scale") and folds:
            x = b.node("Neg", [x])
        elif block == "norm":
            x = b.node("BatchNormalization", [x, *(b.weight((width,), positive=True) for _ in range(4))])
        elif block == "drop":
            x = b.node("Dropout", [x, b.constant(np.float32(0.25))])
        elif block == "residual":
            x, earlier = b.node("Add", [x, earlier]), x
        elif block == "gelu":
            y = b.node("Add", [b.node("Erf", [b.node("Div", [x, b.constant(np.float32(2**0.5))])]), b.weight(())])
            x = b.node("Mul", [b.node("Mul", [x, y]), b.constant(np.float32(0.5))])
        elif block == "scale":
            x = b.node("Mul", [x, b.weight((width, 1, 1) if image else (width,))])
        elif block == "layernorm":
            centred = b.node("Sub", [x, b.node("ReduceMean", [x], axes=[-1], keepdims=1)])
            power = b.node("Pow", [centred, b.constant(np.float32(2))])
            variance = b.node(
                "Add", [b.node("ReduceMean", [power], axes=[-1], keepdims=1), b.constant(np.float32(0.1))]
            )
            x = b.node("Div", [centred, b.node("Sqrt", [variance])])
        else:
            for _ in range(draw(st.integers(1, 3))):
                x = b.node("Tanh", [b.node(draw(st.sampled_from(ACTIVATIONS)), [x])])
    x = b.node("MatMul", [b.node("Flatten", [x]), b.weight((width * 25 if image else width, 3))])
    return b.model({"x": shape}, [b.node("Tanh", [x])])


def plans(proto: onnx.ModelProto) -> list[TrainingPlan]:
    """Return the plan with and without fusion."""
    return [compile_training(FoundModel("m", proto), TrainOptions(fuse=fuse)) for fuse in (True, False)]


def check_same(proto: onnx.ModelProto, steps: int = 2) -> None:
    """The same losses and weights, to the last bit, with and without fusion."""
    random = np.random.default_rng(1)
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    x = random.standard_normal((steps, *shape)).astype(np.float32)
    if proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
        x = narrowed(x)
    y = random.integers(0, 3, (steps, shape[0]))
    learned = []
    for fuse in (True, False):
        trainer = Trainer(FoundModel("m", proto), TrainOptions(Optimizer(lr=1e-3), fuse=fuse))
        losses = [trainer.step({"x": x[step]}, y[step]) for step in range(steps)]
        learned.append((losses, trainer.weights()))
    (losses, weights), (plain_losses, plain_weights) = learned
    assert losses == plain_losses
    assert all(np.array_equal(weights[name], value) for name, value in plain_weights.items())


def check_plan(fused: TrainingPlan, plain: TrainingPlan) -> None:
    """Each node once; a fused op writes what others read, and nothing else; less is moved, in less time."""
    names = [[node.name for op in plan.ops("forward") for node in op.originals] for plan in (fused, plain)]
    assert sorted(names[0]) == sorted(names[1])
    program = fused.program
    read = {program.root(tensor.name) for op in program.ops for tensor in op.reads} | {*program.downloads}
    read |= {name for _, name, _ in fused.stats}
    for op in fused.ops("forward"):
        if len(op.nodes) > 1:
            assert {tensor.name for tensor in op.writes} <= read
    moved, ticks = ([sum(f(op) for op in plan.ops("forward")) for plan in (fused, plain)] for f in (_bytes, _cycles))
    assert moved[0] <= moved[1] and ticks[0] <= ticks[1]
    # Gradients are the same tasks. They read the same tensors, whoever wrote them.
    same = [[(op.name, op.reads, op.writes, op.cost) for op in plan.ops("backward")] for plan in (fused, plain)]
    assert same[0] == same[1]
    for op in fused.ops("forward"):
        if op.cost.pmu is not None:
            values = dict(zip(counters.names("Memory"), counters.values(fused.spec, op.cost, "Memory"), strict=True))
            assert values["aic_main_mem_write_bytes"] + values["aiv_main_mem_write_bytes"] == op.output_bytes
        assert memory_cycles(fused.spec, _bytes(op)) <= op.cost.cycles


def _bytes(op: DeviceOp) -> int:
    return op.input_bytes + op.weight_bytes + op.output_bytes


def _cycles(op: DeviceOp) -> int:
    return op.cost.cycles + reference_npu().task_overhead_cycles
