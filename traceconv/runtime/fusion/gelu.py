"""gelu, fast-gelu and swish: activations that exporters write as several small ops."""

from __future__ import annotations

import math

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node


def gelus(state: State) -> None:
    """Join x/2 · (1 + erf(x/√2)); x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))); x · sigmoid(x)."""
    finders = {"Erf": (_erf_head, "gelu"), "Tanh": (_tanh_head, "fast-gelu")}
    for node in list(state.nodes.values()):
        if node.domain or node.name in state.group_of:
            continue
        if node.op_type == "Sigmoid":
            product = state.only_reader(node)
            if (
                product is not None
                and product.op_type == "Mul"
                and set(product.inputs) == {*node.outputs, *node.inputs}
            ):
                state.join_closed("swish", [node, product], product)
        elif node.op_type in finders:
            find, kind = finders[node.op_type]
            head = find(state, node)
            tail = head and _tail(state, node, head[0])
            if head and tail:
                state.join_closed(kind, [*head[1], node, *tail], tail[-1])


def _near(value: float | None, wanted: float) -> bool:
    # Exporters round these constants to fp16 at most.
    return value is not None and math.isclose(value, wanted, rel_tol=2e-3)


def _times(state: State, node: Node | None, factor: float) -> str | None:
    """Return x if the node is x · factor or x / (1/factor)."""
    if node is None or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    if node.op_type == "Div":
        return left if _near(state.constant_value(right), 1 / factor) else None
    if node.op_type != "Mul":
        return None
    if _near(state.constant_value(right), factor):
        return left
    return right if _near(state.constant_value(left), factor) else None


def _erf_head(state: State, erf: Node) -> tuple[str, list[Node]] | None:
    """Return x and the ops before Erf."""
    scale = state.producers.get(erf.inputs[0])
    x = _times(state, scale, math.sqrt(0.5))
    return None if x is None or scale is None else (x, [scale])


def _tanh_head(state: State, tanh: Node) -> tuple[str, list[Node]] | None:
    """Return x and the ops before Tanh."""
    scale = state.producers.get(tanh.inputs[0])
    inner = _times(state, scale, math.sqrt(2 / math.pi))
    total = state.producers.get(inner) if inner else None
    if scale is None or total is None or total.op_type != "Add":
        return None
    for x, name in (total.inputs, total.inputs[::-1]):
        term = state.producers.get(name)
        cube_name = _times(state, term, 0.044715)
        cube = state.producers.get(cube_name) if cube_name else None
        if term is None or cube is None:
            continue
        if cube.op_type == "Pow" and cube.inputs[0] == x and state.constant_value(cube.inputs[1]) == 3.0:
            return x, [cube, term, total, scale]
        if cube.op_type == "Mul" and x in cube.inputs:
            square = state.producers.get(state.other(cube, x) or "")
            if square is not None and square.op_type == "Mul" and square.inputs == (x, x):
                return x, [square, cube, term, total, scale]
    return None


def _tail(state: State, node: Node, x: str) -> list[Node] | None:
    """Return the ops after Erf or Tanh: + 1, and the products with x and 1/2 in any order."""
    plus = state.only_reader(node)
    if plus is None or plus.op_type != "Add":
        return None
    if not _near(state.constant_value(state.other(plus, node.outputs[0]) or ""), 1.0):
        return None
    first = state.only_reader(plus)
    if first is None or first.op_type != "Mul":
        return None
    other = state.other(first, plus.outputs[0]) or ""
    before = state.producers.get(other)
    if before is not None and _times(state, before, 0.5) == x:
        return [plus, before, first]
    second = state.only_reader(first)
    if second is None:
        return None
    if other == x and _times(state, second, 0.5) == first.outputs[0]:
        return [plus, first, second]
    halved = _near(state.constant_value(other), 0.5)
    if halved and second.op_type == "Mul" and state.other(second, first.outputs[0]) == x:
        return [plus, first, second]
    return None
