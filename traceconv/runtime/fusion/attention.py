"""attention: softmax(q·k · scale + mask)·v is one op, whose scores never leave the chip."""

from __future__ import annotations

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node

#: Ops allowed between the first product and the softmax.
_BETWEEN = frozenset({"Add", "Div", "Mul", "Sub", "Where"})
_MOST_BETWEEN = 4


def attention(state: State) -> None:
    """MatMul, scale, mask, Softmax over the last axis, MatMul."""
    for softmax in list(state.nodes.values()):
        if softmax.op_type != "Softmax" or softmax.domain:
            continue
        rank = len(state.tensors[softmax.outputs[0]].shape)
        last = softmax.int("axis", 1 if state.graph.opsets.get("", 0) < 13 else -1)
        context = state.only_reader(softmax)
        if last % rank != rank - 1 or context is None or context.op_type != "MatMul":
            continue
        if context.inputs[0] != softmax.outputs[0]:
            continue
        chain = _scores(state, softmax)
        if chain is None:
            continue
        members = [*chain, softmax, context]
        state.join_closed("attention", members, context)


def _scores(state: State, softmax: Node) -> list[Node] | None:
    """The first product and what is done with it, in order."""
    shape = state.tensors[softmax.outputs[0]].shape
    chain: list[Node] = []
    node = softmax
    while len(chain) <= _MOST_BETWEEN:
        before = [state.producers[name] for name in node.inputs if name in state.producers]
        before = [
            one
            for one in before
            if state.only_reader(one) is node
            and state.tensors[one.outputs[0]].shape == shape
            and (one.op_type == "MatMul" or one.op_type in _BETWEEN)
        ]
        if len(before) != 1:
            return None
        node = before[0]
        chain.append(node)
        if node.op_type == "MatMul":
            return chain[::-1]
    return None
