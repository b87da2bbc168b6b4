"""Ops that behave differently in training: batch normalization and dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from traceconv.runtime.bfloat16 import is_float
from traceconv.runtime.graph import FLOATS, Array, Graph, Node, Tensor
from traceconv.runtime.training.gradient import Values, VectorUse

#: (values of the operands, seed) → values of the results.
Forward: TypeAlias = Callable[[Sequence[Values], Sequence[int]], Sequence[Values]]
#: Adds a tensor to the step: (name, shape, element type) → the tensor, under a name that is not taken.
NewTensor: TypeAlias = Callable[[str, tuple[int, ...], int], Tensor]


@dataclass(frozen=True, slots=True)
class Form:
    """An op in training.

    reads  its operands; `makes`: its output, and tensors that its gradient needs
    stats  for each running statistic: (its name, the batch's statistic, weight of the old value)
    """

    op_type: str
    reads: tuple[str, ...]
    makes: tuple[Tensor, ...]
    forward: Forward
    work: VectorUse
    stats: tuple[tuple[str, str, float], ...] = ()


def training_form(graph: Graph, node: Node, opset: int, new: NewTensor) -> Form | None:
    """Return the training form of an op; None if it is the same as in inference."""
    if node.domain:
        return None
    if node.op_type == "BatchNormalization":
        return _batch_norm(graph, node, new)
    if node.op_type == "Dropout":
        return _dropout(graph, node, opset, new)
    return None


def _batch_norm(graph: Graph, node: Node, new: NewTensor) -> Form:
    x, scale, shift, mean, var = (graph.tensors[name] for name in node.inputs[:5])
    y = graph.tensors[node.outputs[0]]
    epsilon, share = node.float("epsilon", 1e-5), node.float("momentum", 0.9)
    axes = (0, *range(2, len(x.shape)))
    channel = (1, -1, *[1] * (len(x.shape) - 2))

    def forward(values: Sequence[Values], seed: Sequence[int]) -> Sequence[Values]:
        xv, gamma, beta = values
        m = xv.mean(axis=axes)
        centred = xv - m.reshape(channel)
        v = (centred * centred).mean(axis=axes)
        factor = gamma / np.sqrt(v + epsilon)
        made = centred * factor.reshape(channel) + beta.reshape(channel)
        return [made.astype(xv.dtype, copy=False), m, v]

    kept = [
        new(f"{node.name}/batch_{what}", tensor.shape, tensor.elem_type)
        for what, tensor in (("mean", mean), ("var", var))
    ]
    stats = tuple((old.name, new.name, share) for old, new in zip((mean, var), kept, strict=True))
    reads = (x.name, scale.name, shift.name)
    return Form("BatchNorm", reads, (y, *kept), forward, VectorUse(6, 8), stats)


def _dropout(graph: Graph, node: Node, opset: int, new: NewTensor) -> Form | None:
    ratio = node.float("ratio", 0.5)
    if opset >= 12:
        ratio = 0.5
        if len(node.inputs) > 1 and node.inputs[1]:
            known = graph.constants.get(node.inputs[1])
            ratio = 0.0 if known is None else float(np.asarray(known, np.float64).reshape(-1)[0])
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    if not 0 < ratio < 1 or x.elem_type not in FLOATS:
        return None

    def forward(values: Sequence[Values], seed: Sequence[int]) -> Sequence[Values]:
        (xv,) = values
        drawn = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(seed)))).random(xv.shape)
        mask = (drawn >= ratio).astype(xv.dtype) * xv.dtype.type(1.0 / (1.0 - ratio))
        return [xv * mask, mask]

    mask = new(f"{node.name}/mask", x.shape, x.elem_type)
    return Form("DropOutGenMask", (x.name,), (y, mask), forward, VectorUse(6, 2))


def is_parameter(node: Node, place: int, value: Array, initializers: frozenset[str]) -> bool:
    """Whether a constant that a node reads is trained.

    Weights and biases of layers always are. A factor or summand of an elementwise op is if the model declares it as a
    weight and it has more than one element.
    """
    if not is_float(value.dtype) or node.domain:
        return False
    layers = {
        "BatchNormalization": (1, 2),
        "Conv": (1, 2),
        "ConvTranspose": (1, 2),
        "Gather": (0,),
        "Gemm": (0, 1, 2),
        "InstanceNormalization": (1, 2),
        "LayerNormalization": (1, 2),
        "MatMul": (0, 1),
        "PRelu": (1,),
    }
    if node.op_type in layers:
        return place in layers[node.op_type]
    return node.op_type in ("Add", "Div", "Mul", "Sub") and value.size > 1 and node.inputs[place] in initializers
