"""attention: softmax(q·k · scale + mask)·v becomes one op, whose scores stay on the chip."""

from __future__ import annotations

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node

#: Ops that may be between the first product and the softmax.
_BETWEEN = frozenset({"Add", "Div", "Mul", "Sub", "Where"})
_MOST_BETWEEN = 4


def attention(state: State) -> None:
    """Join MatMul, scale, mask, Softmax over the last axis and MatMul."""
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
        if chain is not None:
            state.join_closed("attention", [*chain, softmax, context], context)


def _scores(state: State, softmax: Node) -> list[Node] | None:
    """Return the first product and the ops from it to the softmax, in order; None if the pattern doesn't match."""
    shape = state.tensors[softmax.outputs[0]].shape
    chain: list[Node] = []
    node = softmax
    while len(chain) <= _MOST_BETWEEN:
        producers = [state.producers[name] for name in node.inputs if name in state.producers]
        before = [
            one
            for one in producers
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
