"""conv-add-act, matmul-bias-act, norm-add-act: join an op with the additions and the activation after it."""

from __future__ import annotations

from collections.abc import Iterable

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node
from traceconv.runtime.ops import ACTIVATIONS


def conv_add_act(state: State) -> None:
    """Join Conv, a residual Add and an activation. If an Add has two, it joins the later Conv, which it waits for."""
    _join(state, "conv-add-act", reversed(list(state.nodes.values())), ("Conv", "ConvTranspose"), adds=1)


def matmul_bias_act(state: State) -> None:
    """Join MatMul or Gemm, a bias, a residual Add and an activation."""
    _join(state, "matmul-bias-act", list(state.nodes.values()), ("MatMul", "Gemm"), adds=2)


def norm_add_act(state: State) -> None:
    """In training: join batch normalization, or Dropout, with a residual Add and an activation, as `conv_add_act`."""
    nodes = [node for node in reversed(list(state.nodes.values())) if node.name in state.trained]
    _join(state, "norm-add-act", nodes, ("BatchNormalization", "Dropout"), adds=1)


def _join(state: State, rule: str, nodes: Iterable[Node], op_types: tuple[str, ...], adds: int) -> None:
    for node in nodes:
        if node.op_type in op_types and not node.domain and node.name not in state.group_of:
            chain = _epilogue(state, node, adds)
            if len(chain) > 1:
                state.join(rule, chain)


def _epilogue(state: State, head: Node, adds: int) -> list[Node]:
    """Return an op and the ops that it can be joined with: up to `adds` additions, then an activation."""
    chain = [head]
    shape = state.tensors[head.outputs[0]].shape
    while (reader := state.only_reader(chain[-1])) is not None:
        if reader.name in state.group_of or reader.domain or len(reader.outputs) != 1:
            break
        if state.tensors[reader.outputs[0]].shape != shape:
            break
        if adds and reader.op_type in ("Add", "Sum") and len(reader.inputs) == 2 and len(set(reader.inputs)) == 2:
            adds -= 1
        elif reader.op_type in ACTIVATIONS:
            chain.append(reader)
            break
        else:
            break
        chain.append(reader)
    return chain
