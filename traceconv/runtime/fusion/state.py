"""The graph that the passes rewrite, and the log of their rewrites."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from traceconv.runtime.graph import Array, Graph, Node, Tensor


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application of a rule: its name and the names of the model's ops that it joined."""

    rule: str
    originals: tuple[str, ...]


@dataclass(slots=True)
class State:
    """`nodes` by name, in an order in which they can run; a group is a list of their names.

    originals  node → the model's ops that it implements
    kinds      group → key of `ops.KINDS`, for a group that is one op of the device
    readers    tensor → nodes that read it, in order, as of the start of the pass
    producers  tensor → node that produces it, as of the start of the pass
    trained    names of nodes that work differently in training: batch normalization, Dropout
    """

    graph: Graph
    nodes: dict[str, Node]
    constants: dict[str, Array]
    tensors: dict[str, Tensor]
    originals: dict[str, list[Node]]
    outputs: frozenset[str]
    group_of: dict[str, int] = field(default_factory=dict)
    groups: dict[int, list[str]] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    trained: Collection[str] = ()
    log: list[Rewrite] = field(default_factory=list)
    readers: dict[str, list[Node]] = field(default_factory=dict)
    producers: dict[str, Node] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _next_group: int = 0

    @classmethod
    def of(cls, graph: Graph, trained: Collection[str] = ()) -> State:
        """Return the graph before any pass."""
        state = cls(
            graph,
            {node.name: node for node in graph.nodes},
            dict(graph.constants),
            dict(graph.tensors),
            {node.name: [node] for node in graph.nodes},
            frozenset(graph.outputs),
            trained=trained,
        )
        if graph.folded:
            state.log.append(Rewrite("fold-constants", graph.folded))
        return state

    def refresh(self) -> None:
        """Update `readers` and `producers` after nodes have changed."""
        self.readers = {}
        for node in self.nodes.values():
            for name in dict.fromkeys(node.inputs):
                if name:
                    self.readers.setdefault(name, []).append(node)
        self.producers = {name: node for node in self.nodes.values() for name in node.outputs if name}

    def only_reader(self, node: Node) -> Node | None:
        """Return the single reader of the single output of `node`, if it is not an output of the model."""
        outputs = [name for name in node.outputs if name]
        if len(outputs) != 1 or outputs[0] in self.outputs:
            return None
        found = self.readers.get(outputs[0], [])
        return found[0] if len(found) == 1 else None

    def order_changed(self) -> None:
        """Forget the cached positions after nodes were inserted."""
        self._places = {}

    def join(self, rule: str, nodes: Sequence[Node], kind: str | None = None) -> None:
        """Join nodes, and the groups that they are in already, into one group in the order of the graph."""
        members = {node.name for node in nodes}
        for node in nodes:
            old = self.group_of.get(node.name)
            if old is not None:
                members.update(self.groups.pop(old, []))
                self.kinds.pop(old, None)
        if not self._places:
            self._places = {name: place for place, name in enumerate(self.nodes)}
        ordered = sorted(members, key=self._places.__getitem__)
        key = self._next_group
        self._next_group += 1
        self.groups[key] = ordered
        if kind is not None:
            self.kinds[key] = kind
        self.group_of.update((name, key) for name in ordered)
        self.note(rule, ordered)

    def join_closed(self, kind: str, members: Sequence[Node], sink: Node) -> None:
        """Join nodes into an op of this kind, if no node outside reads any but `sink` and none is in a group yet."""
        names = {node.name for node in members}
        for node in members:
            if node.name in self.group_of:
                return
            for output in node.outputs if node is not sink else ():
                if output in self.outputs or any(reader.name not in names for reader in self.readers.get(output, ())):
                    return
        self.join(kind, members, kind)

    def replace(self, node: Node) -> None:
        """Replace the node of the same name."""
        self.nodes[node.name] = node

    def absorb(self, gone: Node, home: Node) -> None:
        """Remove a node from the graph; `home` gets its originals."""
        del self.nodes[gone.name]
        self.originals[home.name] += self.originals.pop(gone.name)

    def note(self, rule: str, names: Iterable[str]) -> None:
        """Log a rewrite of these nodes."""
        self.log.append(Rewrite(rule, tuple(one.name for name in names for one in self.originals[name])))

    def constant_value(self, name: str) -> float | None:
        """Return the value of a constant with one element."""
        value = self.constants.get(name)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def other(self, node: Node, name: str) -> str | None:
        """Return the other input of a binary op that reads `name` once."""
        if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1] or name not in node.inputs:
            return None
        return node.inputs[1] if node.inputs[0] == name else node.inputs[0]
