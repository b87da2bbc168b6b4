"""fold-affine: fold batch normalization, or a Mul or Add per channel, into the weights of the Conv before it."""

from __future__ import annotations

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node, Tensor

#: Parameters are folded in double precision and rounded once at the end.
Floats = NDArray[np.float64]


def fold_affine(state: State) -> None:
    """Replace Conv(x)·scale + shift by a Conv with W·scale and b·scale + shift, per output channel."""
    for node in list(state.nodes.values()):
        conv = node
        while conv.name in state.nodes and _is_constant_conv(state, conv):
            reader = state.only_reader(conv)
            affine = reader and _affine(state, conv, reader)
            if not (reader and affine):
                break
            conv = _fold_into(state, conv, reader, *affine)


def _is_constant_conv(state: State, node: Node) -> bool:
    parameters = [name for name in node.inputs[1:] if name]
    return node.op_type == "Conv" and not node.domain and all(name in state.constants for name in parameters)


def _affine(state: State, conv: Node, node: Node) -> tuple[Floats, Floats] | None:
    """Return scale and shift per channel if that is all that `node` does to the output of `conv`."""
    out = state.tensors[conv.outputs[0]]
    channels = out.shape[1]
    if node.domain:
        return None
    if node.op_type == "BatchNormalization":
        if node.inputs[0] != out.name or any(name not in state.constants for name in node.inputs[1:5]):
            return None
        if node.int("training_mode", 0) or len([name for name in node.outputs if name]) != 1:
            return None
        gamma, beta, mean, var = (state.constants[name].astype(np.float64) for name in node.inputs[1:5])
        scale = gamma / np.sqrt(var + node.float("epsilon", 1e-5))
        return scale, beta - mean * scale
    if node.op_type not in ("Mul", "Add") or len(node.inputs) != 2:
        return None
    other = node.inputs[1] if node.inputs[0] == out.name else node.inputs[0]
    if other not in state.constants or state.tensors[node.outputs[0]].shape != out.shape:
        return None
    constant = state.constants[other].astype(np.float64)
    rank = len(out.shape)
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if len(shape) != rank or shape not in ((1, channels) + (1,) * (rank - 2), (1,) * rank):
        return None
    value = np.broadcast_to(constant.reshape(-1), (channels,))
    return (value, np.zeros(channels)) if node.op_type == "Mul" else (np.ones(channels), value)


def _fold_into(state: State, conv: Node, node: Node, scale: Floats, shift: Floats) -> Node:
    weight = state.constants[conv.inputs[1]]
    bias = np.zeros(weight.shape[0])
    if len(conv.inputs) > 2 and conv.inputs[2]:
        bias = state.constants[conv.inputs[2]].astype(np.float64)
    names = (f"{conv.name}@weight", f"{conv.name}@bias")
    by_channel = scale.reshape((-1,) + (1,) * (weight.ndim - 1))
    values: tuple[Floats, Floats] = (weight.astype(np.float64) * by_channel, bias * scale + shift)
    for name, value in zip(names, values, strict=True):
        state.constants[name] = value.astype(weight.dtype)
        state.tensors[name] = Tensor(name, value.shape, state.tensors[conv.inputs[1]].elem_type)
    folded = conv.rewired([conv.inputs[0], *names], node.outputs)
    state.replace(folded)
    state.absorb(node, folded)
    state.note("fold-affine", [folded.name])
    return folded
