"""cancel-transposes and merge-transposes: two Transposes in a row become none, or one."""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.runtime.fusion.state import Rewrite, State
from traceconv.runtime.graph import Node


def transposes(state: State) -> None:
    """Replace Transpose(Transpose(x)) by x if the permutations undo each other, otherwise by one Transpose."""
    producers = {name: node.name for node in state.nodes.values() for name in node.outputs if name}
    readers: dict[str, list[str]] = {}
    for node in state.nodes.values():
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node.name)
    for second in list(state.nodes.values()):
        second = state.nodes[second.name]  # which an earlier iteration may have replaced
        first = state.nodes.get(producers.get(second.inputs[0], "")) if _is_transpose(second) else None
        if first is None or not _is_transpose(first) or readers[first.outputs[0]] != [second.name]:
            continue
        if first.outputs[0] in state.outputs:
            continue
        source = first.inputs[0]
        one, two = _permutation(state, first), _permutation(state, second)
        both = [one[axis] for axis in two]
        if both == sorted(both):
            _cancel(state, first, second, producers, readers)
        else:
            merged = _transpose(second, source, both)
            state.replace(merged)
            state.log.append(Rewrite("merge-transposes", (first.name, second.name)))
            state.absorb(first, merged)
            readers[source] = [second.name if name == first.name else name for name in readers[source]]
    state.order_changed()


def _is_transpose(node: Node) -> bool:
    return node.op_type == "Transpose" and not node.domain


def _permutation(state: State, node: Node) -> list[int]:
    return node.ints("perm", range(len(state.tensors[node.inputs[0]].shape))[::-1])


def _transpose(node: Node, source: str, permutation: Sequence[int]) -> Node:
    changed = node.rewired([source])
    del changed.proto.attribute[:]
    attribute = changed.proto.attribute.add(name="perm", type=7)  # AttributeProto.INTS
    attribute.ints.extend(permutation)
    return changed


def _cancel(state: State, first: Node, second: Node, producers: dict[str, str], readers: dict[str, list[str]]) -> None:
    """Connect the readers of `second` to the input of `first`, unless `second` produces an output of the model."""
    source, result = first.inputs[0], second.outputs[0]
    result_readers = readers.get(result, [])
    home = producers.get(source) or (result_readers[0] if result_readers else None)
    if result in state.outputs or home is None:
        return
    for name in result_readers:
        node = state.nodes[name]
        state.replace(node.rewired([source if one == result else one for one in node.inputs[: len(node.proto.input)]]))
    readers[source] = list(dict.fromkeys([name for name in readers[source] if name != first.name] + result_readers))
    for gone in (first, second):
        state.absorb(gone, state.nodes[home])
    state.log.append(Rewrite("cancel-transposes", (first.name, second.name, home)))
