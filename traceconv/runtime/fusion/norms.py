"""layer-norm and rms-norm: join a normalization that is written as small ops into one op of the vector unit."""

from __future__ import annotations

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node


def norms(state: State) -> None:
    """Join (x − mean) / √(var + ε) · γ + β, and x / √(mean(x²) + ε) · γ."""
    for node in list(state.nodes.values()):
        if node.op_type != "Sqrt" or node.domain:
            continue
        found = _statistics(state, node)
        if found is None:
            continue
        members, centred, square_mean = found
        sink = _division(state, node, members)
        if sink is None:
            continue
        kind = "rms-norm"
        subtractions = _subtractions(state, centred, square_mean, members, sink)
        if subtractions is not None:
            members += subtractions
            kind = "layer-norm"
        sink = _scale_and_shift(state, sink, members, shift=kind == "layer-norm")
        state.join_closed(kind, members, sink)


def _statistics(state: State, root: Node) -> tuple[list[Node], str, Node] | None:
    """Return the ops up to √, the tensor whose square is averaged, and the op that averages."""
    add = state.producers.get(root.inputs[0])
    if add is None or add.op_type != "Add":
        return None
    names = [name for name in add.inputs if state.constant_value(name) is None]
    mean = state.producers.get(names[0]) if len(names) == 1 else None
    if mean is None or mean.op_type != "ReduceMean":
        return None
    square = state.producers.get(mean.inputs[0])
    if square is None:
        return None
    squared = square.op_type == "Pow" and state.constant_value(square.inputs[1]) == 2.0
    squared |= square.op_type == "Mul" and square.inputs[0] == square.inputs[1]
    return ([square, mean, add, root], square.inputs[0], mean) if squared else None


def _division(state: State, root: Node, members: list[Node]) -> Node | None:
    """Return the op that divides by √: Div(x, √), or Mul(x, 1/√). Adds it, and the reciprocal, to `members`."""
    reader = state.only_reader(root)
    if reader is None:
        return None
    if reader.op_type == "Div" and reader.inputs[1] == root.outputs[0] and state.constant_value(reader.inputs[0]) != 1:
        members.append(reader)
        return reader
    inverse = reader.op_type == "Reciprocal"
    inverse |= reader.op_type == "Div" and state.constant_value(reader.inputs[0]) == 1.0
    product = state.only_reader(reader) if inverse else None
    if product is None or product.op_type != "Mul" or state.other(product, reader.outputs[0]) is None:
        return None
    members += [reader, product]
    return product


def _subtractions(state: State, centred: str, square_mean: Node, members: list[Node], sink: Node) -> list[Node] | None:
    """Return Sub(x, mean(x)), which may occur twice, and the mean; None if nothing is subtracted."""
    inside = {name for node in members for name in node.outputs}
    divided = next(name for name in sink.inputs if name not in inside)
    found: dict[str, Node] = {}
    for name in {centred: None, divided: None}:
        node = state.producers.get(name)
        mean = state.producers.get(node.inputs[1]) if node is not None and node.op_type == "Sub" else None
        if node is None or mean is None or mean.op_type != "ReduceMean" or mean.inputs[0] != node.inputs[0]:
            return None
        if mean.ints("axes", []) != square_mean.ints("axes", []) or mean.inputs[1:] != square_mean.inputs[1:]:
            return None
        found[node.name], found[mean.name] = node, mean
    return list(found.values())


def _scale_and_shift(state: State, sink: Node, members: list[Node], *, shift: bool) -> Node:
    """Add a product with constants, then a sum with constants, to `members`; return the last op."""
    shape = state.tensors[sink.outputs[0]].shape
    for op_type in ("Mul", "Add") if shift else ("Mul",):
        reader = state.only_reader(sink)
        if reader is None or reader.op_type != op_type or state.tensors[reader.outputs[0]].shape != shape:
            break
        if state.other(reader, sink.outputs[0]) not in state.constants:
            break
        members.append(reader)
        sink = reader
    return sink
