"""Rewrites of a graph before it is lowered, one after another, each leaving a log of what it put together.

    fold-affine         Conv, then batch normalisation or a per-channel Mul/Add: folded into weight and bias
    cancel-transposes   two Transposes that undo each other: gone
    conv-add-act        Conv, then a residual Add, then an activation: one op
    matmul-bias-act     MatMul or Gemm, then a bias, a residual Add, an activation: one op
    elementwise         elementwise ops of one shape that only feed each other: one op (GELU written out, say)
    matmul-elementwise  such a chain behind a matrix op that nothing else reads: joins it
    view                Reshape, Flatten, Dropout …: no work; kept with the op that makes its bytes

Each op of the model is in exactly one group afterwards, as an original. Groups never make a cycle: all
but the last of the ops of a group are read inside the group alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from traceconv.runtime.graph import Array, Graph, Node, Tensor
from traceconv.runtime.ops import ACTIVATIONS, OpKind, traits_of

#: Parameters are folded in double precision, and rounded once at the end.
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application of a rule: what it was called and the names of the model's ops that it joined."""

    rule: str
    originals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that run as one op, the model's ops that they stand for, and views of what they make.

    `views` are nodes that only give a tensor another shape; they are no part of the kernel.
    """

    nodes: tuple[Node, ...]
    originals: tuple[Node, ...]
    views: tuple[Node, ...] = ()

    @property
    def sink(self) -> Node:
        """The node whose outputs leave the group."""
        return self.nodes[-1]


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """Groups in an order in which they can run; `constants` has folded weights too. `rewrites` is the log."""

    graph: Graph
    groups: tuple[Group, ...]
    rewrites: tuple[Rewrite, ...]


@dataclass(slots=True)
class _State:
    """The graph as the rules change it."""

    graph: Graph
    nodes: list[Node]
    constants: dict[str, Array]
    tensors: dict[str, Tensor]
    originals: dict[str, list[Node]]
    group_of: dict[str, int] = field(default_factory=dict)
    groups: dict[int, list[Node]] = field(default_factory=dict)
    log: list[Rewrite] = field(default_factory=list)

    def consumers(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def only_reader(self, node: Node, readers: Mapping[str, list[Node]]) -> Node | None:
        """The one node that reads the one output of `node`, if there is one and nothing else sees it."""
        outputs = [name for name in node.outputs if name]
        if len(outputs) != 1 or outputs[0] in self.graph.outputs:
            return None
        found = readers.get(outputs[0], [])
        return found[0] if len(found) == 1 else None

    def join(self, rule: str, nodes: list[Node]) -> None:
        """Puts nodes (and the groups that they are in already) into one group, in the order of the graph."""
        members = {name for node in nodes for name in [node.name]}
        for node in nodes:
            old = self.group_of.get(node.name)
            if old is not None:
                members.update(other.name for other in self.groups.pop(old, []))
        ordered = [node for node in self.nodes if node.name in members]
        key = max(self.groups, default=-1) + 1
        self.groups[key] = ordered
        for node in ordered:
            self.group_of[node.name] = key
        self.note(rule, ordered)

    def note(self, rule: str, nodes: list[Node]) -> None:
        names = tuple(original.name for node in nodes for original in self.originals[node.name])
        self.log.append(Rewrite(rule, names))


def fuse(graph: Graph) -> FusedGraph:
    """Applies every rule, in the order of the module's table."""
    state = _State(
        graph,
        list(graph.nodes),
        dict(graph.constants),
        dict(graph.tensors),
        {node.name: [node] for node in graph.nodes},
    )
    for rule in RULES:
        rule(state)
    return _finish(state)


# fold-affine


def fold_affine(state: _State) -> None:
    """Conv(x)·scale + shift = Conv with W·scale and b·scale + shift, per output channel."""
    readers = state.consumers()
    for node in list(state.nodes):
        conv = node
        while _is_constant_conv(state, conv):
            reader = state.only_reader(conv, readers)
            affine = reader and _affine(state, conv, reader)
            if not (reader and affine):
                break
            conv = _fold_into(state, conv, reader, *affine)


def _is_constant_conv(state: _State, node: Node) -> bool:
    parameters = [name for name in node.inputs[1:] if name]
    return node.op_type == "Conv" and not node.domain and all(name in state.constants for name in parameters)


def _affine(state: _State, conv: Node, node: Node) -> tuple[Floats, Floats] | None:
    """(scale, shift) per channel, as float64, when `node` is nothing more than that on the output of `conv`."""
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


def _fold_into(state: _State, conv: Node, node: Node, scale: Floats, shift: Floats) -> Node:
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
    proto = onnx.NodeProto()
    proto.CopyFrom(conv.proto)
    del proto.input[1:], proto.output[:]
    proto.input.extend(names)
    proto.output.append(node.outputs[0])
    folded = Node(conv.name, proto)
    state.nodes[state.nodes.index(conv)] = folded
    state.nodes.remove(node)
    state.originals[conv.name] = state.originals[conv.name] + state.originals.pop(node.name)
    state.note("fold-affine", [folded])
    return folded


# cancel-transposes


def cancel_transposes(state: _State) -> None:
    """Transpose(Transpose(x)) with permutations that undo each other reads x."""
    changed = True
    while changed:
        changed = False
        readers, producers = state.consumers(), {name: node for node in state.nodes for name in node.outputs}
        for first in state.nodes:
            second = state.only_reader(first, readers) if first.op_type == "Transpose" else None
            if second is None or second.op_type != "Transpose" or second.outputs[0] in state.graph.outputs:
                continue
            rank = len(state.tensors[first.inputs[0]].shape)
            back = list(range(rank))[::-1]
            one, two = first.ints("perm", back), second.ints("perm", back)
            source = producers.get(first.inputs[0])
            if [one[axis] for axis in two] != list(range(rank)) or source is None:
                continue
            _bypass(state, second.outputs[0], first.inputs[0])
            for gone in (first, second):
                state.nodes.remove(gone)
                state.originals[source.name] = state.originals[source.name] + state.originals.pop(gone.name)
            state.note("cancel-transposes", [source])
            changed = True
            break


def _bypass(state: _State, old: str, new: str) -> None:
    for index, node in enumerate(state.nodes):
        if old in node.inputs:
            proto = onnx.NodeProto()
            proto.CopyFrom(node.proto)
            proto.input[:] = [new if name == old else name for name in node.inputs]
            state.nodes[index] = Node(node.name, proto)


# conv-add-act and matmul-bias-act


def conv_add_act(state: _State) -> None:
    """Conv + residual Add + activation, the later Conv first: its sum can't start earlier anyway."""
    readers = state.consumers()
    for node in reversed(state.nodes):
        if node.op_type in ("Conv", "ConvTranspose") and not node.domain:
            chain = _epilogue(state, node, readers, adds=1)
            if len(chain) > 1:
                state.join("conv-add-act", chain)


def matmul_bias_act(state: _State) -> None:
    """MatMul or Gemm + bias + residual Add + activation."""
    readers = state.consumers()
    for node in state.nodes:
        if node.op_type in ("MatMul", "Gemm") and not node.domain:
            chain = _epilogue(state, node, readers, adds=2)
            if len(chain) > 1:
                state.join("matmul-bias-act", chain)


def _epilogue(state: _State, matrix: Node, readers: Mapping[str, list[Node]], adds: int) -> list[Node]:
    chain = [matrix]
    shape = state.tensors[matrix.outputs[0]].shape
    while (reader := state.only_reader(chain[-1], readers)) is not None:
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


# elementwise and matmul-elementwise


def elementwise(state: _State) -> None:
    """From each elementwise op backwards: takes in producers that are read inside the group alone."""
    readers = state.consumers()
    producers = {name: node for node in state.nodes for name in node.outputs}
    for sink in reversed(state.nodes):
        if sink.name in state.group_of or not _is_elementwise(sink):
            continue
        shape = state.tensors[sink.outputs[0]].shape
        members = {sink.name: sink}
        pending = list(sink.inputs)
        while pending:
            name = pending.pop()
            node = producers.get(name)
            if node is None or node.name in members or node.name in state.group_of or not _is_elementwise(node):
                continue
            if name in state.graph.outputs or state.tensors[name].shape != shape:
                continue
            if all(reader.name in members for reader in readers[name]):
                members[node.name] = node
                pending.extend(node.inputs)
                # A producer that was left out because of this reader may now be inside.
                pending.extend(other for member in members.values() for other in member.inputs)
        if len(members) > 1:
            state.join("elementwise", list(members.values()))


def _is_elementwise(node: Node) -> bool:
    return traits_of(node).kind is OpKind.ELEMENTWISE and len(node.outputs) == 1 and not node.domain


def matmul_elementwise(state: _State) -> None:
    """A matrix op whose output one elementwise group alone reads, beside constants: they become one op."""
    readers = state.consumers()
    for node in list(state.nodes):
        if traits_of(node).kind is not OpKind.MATRIX:
            continue
        last = state.groups[state.group_of[node.name]][-1] if node.name in state.group_of else node
        output = last.outputs[0]
        if output in state.graph.outputs:
            continue
        chain = _one_group(state, readers.get(output, []))
        if not chain:
            continue
        inside = {name for member in chain for name in member.outputs} | {output}
        outside = {name for member in chain for name in member.inputs if name} - inside
        if not all(_is_elementwise(member) for member in chain) or not outside <= set(state.constants):
            continue
        if state.tensors[chain[-1].outputs[0]].shape == state.tensors[output].shape:
            state.join("matmul-elementwise", [last, *chain])


def _one_group(state: _State, nodes: list[Node]) -> list[Node]:
    """All of the one group that `nodes` are in, or the one node that they are; nothing when they are several."""
    if len(nodes) == 1 and nodes[0].name not in state.group_of:
        return nodes
    keys = {state.group_of.get(node.name) for node in nodes}
    key = keys.pop() if len(keys) == 1 else None
    return [] if key is None else state.groups[key]


RULES: tuple[Callable[[_State], None], ...] = (
    fold_affine,
    cancel_transposes,
    conv_add_act,
    matmul_bias_act,
    elementwise,
    matmul_elementwise,
)


# Groups


def _finish(state: _State) -> FusedGraph:
    """Single nodes become groups of one, views go to the group that makes their bytes."""
    groups: list[list[Node]] = []
    place: dict[str, int] = {}  # tensor → group that makes it
    views: dict[int, list[Node]] = {}
    homeless: list[Node] = []
    last_of = {state.groups[key][-1].name: state.groups[key] for key in state.groups}
    for node in state.nodes:
        if is_view(node, state.graph):
            home = place.get(node.inputs[0])
            if home is None:
                homeless.append(node)
            else:
                views.setdefault(home, []).append(node)
                place[node.outputs[0]] = home
            continue
        if node.name in state.group_of and node.name not in last_of:
            continue  # comes with the last of its group
        members = last_of.get(node.name, [node])
        for member in members:
            place.update((name, len(groups)) for name in member.outputs if name)
        groups.append(members)
    if not groups:  # nothing but views: they become copies
        groups, homeless = [[node] for node in homeless], []
    early = _homes_of_early_views(homeless, groups, views)
    used = {name for members in groups for node in members for name in node.inputs}
    finished = []
    for index, members in enumerate(groups):
        mine = early.get(index, []) + views.get(index, [])
        originals = [original for node in [*members, *mine] for original in state.originals[node.name]]
        finished.append(Group(tuple(members), tuple(originals), tuple(mine)))
        for view in mine:
            state.log.append(Rewrite("view", (members[0].name, view.name)))
    graph = Graph(
        state.graph.name,
        state.graph.graph_name,
        state.graph.opsets,
        tuple(state.nodes),
        state.tensors,
        {name: value for name, value in state.constants.items() if name in used or name in state.graph.outputs},
        state.graph.inputs,
        state.graph.outputs,
    )
    return FusedGraph(graph, tuple(finished), tuple(state.log))


def is_view(node: Node, graph: Graph) -> bool:
    """Whether a node only renames bytes: nothing reads a mask of Dropout, and it is not training."""
    if traits_of(node).kind is not OpKind.VIEW or node.domain:
        return False
    readers = graph.consumers() if len(node.outputs) > 1 else {}
    if any(name in readers or name in graph.outputs for name in node.outputs[1:] if name):
        return False
    return not (node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2])


def _homes_of_early_views(
    homeless: list[Node], groups: list[list[Node]], views: Mapping[int, list[Node]]
) -> dict[int, list[Node]]:
    """Views of the model's inputs go to the first group that reads them, or the first of all."""
    homes: dict[int, list[Node]] = {}
    for view in homeless:
        reads = {view.outputs[0]} | {other.outputs[0] for other in homeless if other.inputs[0] == view.outputs[0]}
        home = next((k for k, members in enumerate(groups) if any(reads.intersection(n.inputs) for n in members)), 0)
        homes.setdefault(home, []).append(view)
    return homes
