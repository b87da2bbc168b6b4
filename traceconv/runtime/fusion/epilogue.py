"""conv-add-act and matmul-bias-act: what follows a matrix op joins it."""

from __future__ import annotations

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node
from traceconv.runtime.ops import ACTIVATIONS


def _is_free(state: State, node: Node, *op_types: str) -> bool:
    return node.op_type in op_types and not node.domain and node.name not in state.group_of


def conv_add_act(state: State) -> None:
    """Conv + residual Add + activation, the later Conv first: its sum can't start earlier anyway."""
    for node in reversed(list(state.nodes.values())):
        if _is_free(state, node, "Conv", "ConvTranspose"):
            chain = _epilogue(state, node, adds=1)
            if len(chain) > 1:
                state.join("conv-add-act", chain)


def matmul_bias_act(state: State) -> None:
    """MatMul or Gemm + bias + residual Add + activation."""
    for node in list(state.nodes.values()):
        if _is_free(state, node, "MatMul", "Gemm"):
            chain = _epilogue(state, node, adds=2)
            if len(chain) > 1:
                state.join("matmul-bias-act", chain)


def _epilogue(state: State, matrix: Node, adds: int) -> list[Node]:
    chain = [matrix]
    shape = state.tensors[matrix.outputs[0]].shape
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
