"""The graph as the passes change it, and the log of what they did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from traceconv.runtime.graph import Array, Graph, Node, Tensor


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application of a rule: what it was called and the names of the model's ops that it joined."""

    rule: str
    originals: tuple[str, ...]


@dataclass(slots=True)
class State:
    """`nodes` by name, in an order in which they can run; a group is a list of their names.

    `originals` maps a node to the model's ops that it stands for; `kinds` says what a group is as a whole
    (a key of `ops.KINDS`), where that is more than the sum of its nodes.
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
    log: list[Rewrite] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _next_group: int = 0

    @classmethod
    def of(cls, graph: Graph) -> State:
        """The graph before any pass."""
        state = cls(
            graph,
            {node.name: node for node in graph.nodes},
            dict(graph.constants),
            dict(graph.tensors),
            {node.name: [node] for node in graph.nodes},
            frozenset(graph.outputs),
        )
        if graph.folded:
            state.log.append(Rewrite("fold-constants", graph.folded))
        return state

    # Looking

    def consumers(self) -> dict[str, list[Node]]:
        """Tensor → nodes that read it, each once, in order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            for name in dict.fromkeys(node.inputs):
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def producers(self) -> dict[str, Node]:
        """Tensor → node that makes it."""
        return {name: node for node in self.nodes.values() for name in node.outputs if name}

    def only_reader(self, node: Node, readers: Mapping[str, list[Node]]) -> Node | None:
        """The one node that reads the one output of `node`, if there is one and nothing else sees it."""
        outputs = [name for name in node.outputs if name]
        if len(outputs) != 1 or outputs[0] in self.outputs:
            return None
        found = readers.get(outputs[0], [])
        return found[0] if len(found) == 1 else None

    def is_closed(self, members: Iterable[Node], sink: Node, readers: Mapping[str, list[Node]]) -> bool:
        """Whether nothing outside sees what `members` make, but for `sink`; and none is in a group yet."""
        names = {node.name for node in members}
        for node in members:
            if node.name in self.group_of:
                return False
            if node is sink:
                continue
            for output in node.outputs:
                if output in self.outputs or any(reader.name not in names for reader in readers.get(output, ())):
                    return False
        return True

    # Changing

    def order_changed(self) -> None:
        """Forget the cached positions after nodes were inserted."""
        self._places = {}

    def join(self, rule: str, nodes: Sequence[Node], kind: str | None = None) -> None:
        """Puts nodes (and the groups that they are in already) into one group, in the order of the graph."""
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

    def replace(self, node: Node) -> None:
        """A node of the same name takes the place of one."""
        self.nodes[node.name] = node

    def absorb(self, gone: Node, home: Node) -> None:
        """Takes a node out of the graph; the ops that it stood for are with `home` from now on."""
        del self.nodes[gone.name]
        self.originals[home.name] += self.originals.pop(gone.name)

    def note(self, rule: str, names: Iterable[str]) -> None:
        """Logs a rewrite of these nodes."""
        self.log.append(Rewrite(rule, tuple(one.name for name in names for one in self.originals[name])))

    def constant_value(self, name: str) -> float | None:
        """The value of a constant that has one element."""
        value = self.constants.get(name)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def other(self, node: Node, name: str) -> str | None:
        """The other input of a binary op that reads `name` once."""
        if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1] or name not in node.inputs:
            return None
        return node.inputs[1] if node.inputs[0] == name else node.inputs[0]
