"""The result of the passes: groups of nodes that run as one op. Views are in the group that produces their bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from traceconv.runtime.fusion.state import Rewrite, State
from traceconv.runtime.graph import Graph, Node
from traceconv.runtime.ops import OpKind, traits_of


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that run as one op.

    originals  the model's ops that they implement
    views      nodes that only reshape a tensor of the group; they are not part of the kernel
    kind       key of `ops.KINDS`, for a group that is one op of the device
    """

    nodes: tuple[Node, ...]
    originals: tuple[Node, ...]
    views: tuple[Node, ...] = ()
    kind: str | None = None

    @property
    def sink(self) -> Node:
        """The node whose outputs leave the group."""
        return self.nodes[-1]


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """Groups in an order in which they can run, the graph with folded weights among its constants, and the log."""

    graph: Graph
    groups: tuple[Group, ...]
    rewrites: tuple[Rewrite, ...]


def finish(state: State) -> FusedGraph:
    """Return the groups. Nodes that no pass joined form groups of one; views join the group that makes their bytes."""
    groups: list[tuple[list[Node], str | None]] = []
    maker: dict[str, int] = {}  # tensor → group that produces it
    views: dict[int, list[Node]] = {}
    homeless: list[Node] = []
    last_of = {names[-1]: key for key, names in state.groups.items()}
    read = {name for node in state.nodes.values() for name in node.inputs} | state.outputs
    for node in state.nodes.values():
        key = last_of.get(node.name)
        if node.name in state.group_of and key is None:
            continue  # added with the last node of its group
        if key is None and node.name not in state.trained and _is_view(node, read, state.graph.dynamic):
            home = maker.get(node.inputs[0])
            if home is None:
                homeless.append(node)
            else:
                views.setdefault(home, []).append(node)
                maker[node.outputs[0]] = home
            continue
        members = [node] if key is None else [state.nodes[name] for name in state.groups[key]]
        for member in members:
            maker.update((name, len(groups)) for name in member.outputs if name)
        groups.append((members, None if key is None else state.kinds.get(key)))
    if not any(kind not in ("host-quantize", "host-dequantize") for _, kind in groups):
        # The device has only views: they become copies.
        groups, homeless = [*groups, *(([node], None) for node in homeless)], []
    early = _homes_of_early_views(homeless, groups)
    finished = []
    for index, (members, kind) in enumerate(groups):
        own_views = early.get(index, []) + views.get(index, [])
        originals = [original for node in [*members, *own_views] for original in state.originals[node.name]]
        finished.append(Group(tuple(members), tuple(originals), tuple(own_views), kind))
        for view in own_views:
            state.log.append(Rewrite("view", (members[0].name, view.name)))
    used = {name for members, _ in groups for node in members for name in node.inputs} | state.outputs
    graph = replace(
        state.graph,
        nodes=tuple(state.nodes.values()),
        tensors=state.tensors,
        constants={name: value for name, value in state.constants.items() if name in used},
    )
    return FusedGraph(graph, tuple(finished), tuple(state.log))


def _is_view(node: Node, read: Collection[str], dynamic: Collection[str]) -> bool:
    """Whether a node only reshapes: shapes are static, nothing reads a Dropout's mask, no input turns Dropout on."""
    if traits_of(node).kind is not OpKind.VIEW or node.domain:
        return False
    if node.outputs[0] in dynamic or node.inputs[0] in dynamic:
        return False
    if any(name in read for name in node.outputs[1:] if name):
        return False
    return not (node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2])


def _homes_of_early_views(
    homeless: list[Node], groups: list[tuple[list[Node], str | None]]
) -> Mapping[int, list[Node]]:
    """Return views of the model's inputs by their first reader, or else by the first group on the device."""
    first_reader: dict[str, int] = {}
    for index, (members, _) in enumerate(groups):
        for node in members:
            for name in node.inputs:
                first_reader.setdefault(name, index)
    default = next((k for k, (_, kind) in enumerate(groups) if kind is None or not kind.startswith("host-")), 0)
    readers: dict[str, list[Node]] = {}
    for view in homeless:
        readers.setdefault(view.inputs[0], []).append(view)
    homes: dict[int, list[Node]] = {}
    for view in homeless:
        names = [view.outputs[0], *(other.outputs[0] for other in readers.get(view.outputs[0], []))]
        home = min((first_reader[name] for name in names if name in first_reader), default=default)
        homes.setdefault(home, []).append(view)
    return homes
