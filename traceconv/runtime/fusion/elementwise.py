"""elementwise and matmul-elementwise: run ops of one shape that only feed each other in one pass over the data."""

from __future__ import annotations

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node
from traceconv.runtime.ops import OpKind, traits_of

#: Maximum number of ops in a kernel: each operand needs space in the unified buffer.
_MOST_MEMBERS = 32


def elementwise(state: State) -> None:
    """Join each elementwise op with the producers that only its group reads, recursively."""
    for sink in reversed(list(state.nodes.values())):
        if sink.name in state.group_of or not _is_elementwise(state, sink):
            continue
        members = _chain(state, sink)
        if len(members) > 1:
            state.join("elementwise", members)


def _chain(state: State, sink: Node) -> list[Node]:
    shape = state.tensors[sink.outputs[0]].shape
    members = {sink.name: sink}
    inside: dict[str, int] = {}  # producer → its readers that are members
    pending = [sink]
    while pending:
        for name in dict.fromkeys(pending.pop().inputs):
            node = state.producers.get(name)
            if node is None or node.name in state.group_of or not _is_elementwise(state, node):
                continue
            if name in state.outputs or state.tensors[name].shape != shape:
                continue
            inside[node.name] = inside.get(node.name, 0) + 1
            if inside[node.name] == len(state.readers[name]) and len(members) < _MOST_MEMBERS:
                members[node.name] = node
                pending.append(node)
    return list(members.values())


def _is_elementwise(state: State, node: Node) -> bool:
    if node.name in state.trained:  # its statistics, or its mask, are results too
        return False
    return traits_of(node).kind is OpKind.ELEMENTWISE and len(node.outputs) == 1 and not node.domain


def matmul_elementwise(state: State) -> None:
    """Join a matrix op with the elementwise group that reads its output, if its other operands are constants."""
    for node in list(state.nodes.values()):
        if traits_of(node).kind is not OpKind.MATRIX:
            continue
        key = state.group_of.get(node.name)
        if key in state.kinds:
            continue
        last = node if key is None else state.nodes[state.groups[key][-1]]
        output = last.outputs[0]
        if output in state.outputs:
            continue
        chain = _one_group(state, state.readers.get(output, []))
        if not chain or not all(_is_elementwise(state, member) for member in chain):
            continue
        inside = {name for member in chain for name in member.outputs} | {output}
        outside = {name for member in chain for name in member.inputs if name} - inside
        if not outside <= state.constants.keys():
            continue
        if state.tensors[chain[-1].outputs[0]].shape == state.tensors[output].shape:
            state.join("matmul-elementwise", [last, *chain])


def _one_group(state: State, nodes: list[Node]) -> list[Node]:
    """Return the complete group that all nodes are in, or a single node without a group; empty if there are several."""
    if len(nodes) == 1 and nodes[0].name not in state.group_of:
        return nodes
    keys = {state.group_of.get(node.name) for node in nodes}
    key = keys.pop() if len(keys) == 1 else None
    return [] if key is None else [state.nodes[name] for name in state.groups[key]]
