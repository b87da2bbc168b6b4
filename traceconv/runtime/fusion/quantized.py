"""split-dequantize, quantized, host-quantize: models of 8-bit integers between Quantize and Dequantize nodes.

Such a model says of each op which integers come in and go out, and computes in floats in between. On the
device an op with the conversions around it is one integer op. Conversions of the model's own inputs and
outputs are the host's work, so that integers are what is copied.
"""

from __future__ import annotations

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node, Tensor
from traceconv.runtime.ops import ACTIVATIONS, OpKind, traits_of

_TO_INTEGERS, _TO_FLOATS = "QuantizeLinear", "DequantizeLinear"


def split_dequantize(state: State) -> None:
    """A Dequantize that several ops read becomes one for each, so that each can be an integer op of its own."""
    nodes: dict[str, Node] = {}
    changed: dict[str, Node] = {}
    for name, old in state.nodes.items():
        node = nodes[name] = changed.get(name, old)
        if node.op_type != _TO_FLOATS or node.domain:
            continue
        output = node.outputs[0]
        after = state.readers.get(output, [])
        copied = after if output in state.outputs else after[1:]
        for number, reader in enumerate(copied, 1):
            tensor = f"{output}@{number}"
            state.tensors[tensor] = Tensor(tensor, state.tensors[output].shape, state.tensors[output].elem_type)
            copy = Node(f"{name}@{number}", node.rewired(outputs=[tensor]).proto)
            nodes[copy.name] = copy
            state.originals[copy.name] = []
            now = changed.get(reader.name, reader)
            own = now.inputs[: len(now.proto.input)]
            if output in own:  # what a subgraph reads keeps its name
                changed[reader.name] = now.rewired([tensor if one == output else one for one in own])
        if copied:
            state.note("split-dequantize", [name])
    state.nodes = nodes
    state.order_changed()


def quantized(state: State) -> None:
    """Dequantize the operands, an op, an activation, Quantize: one integer op.

    A matrix product may also leave floats: then it is dequantised on the way out.
    """
    for node in list(state.nodes.values()):
        if node.op_type in (_TO_INTEGERS, _TO_FLOATS) or node.has_subgraph or len(node.outputs) != 1:
            continue
        before = _operands(state, node)
        if not before:
            continue
        chain = [node]
        reader = state.only_reader(node)
        if reader is not None and reader.op_type in ACTIVATIONS and not reader.domain:
            chain.append(reader)
            reader = state.only_reader(reader)
        if reader is not None and reader.op_type == _TO_INTEGERS and reader.inputs[0] == chain[-1].outputs[0]:
            chain.append(reader)
        elif traits_of(node).kind is not OpKind.MATRIX:
            continue
        members = [*before, *chain]
        state.join_closed("quantized", members, chain[-1])


def _operands(state: State, node: Node) -> list[Node]:
    """The Dequantize nodes that make all operands which are no constants; none where there is another."""
    found: list[Node] = []
    for name in dict.fromkeys(node.inputs):
        if not name or name in state.constants:
            continue
        producer = state.producers.get(name)
        if producer is None or producer.op_type != _TO_FLOATS or state.only_reader(producer) is not node:
            return []
        found.append(producer)
    return found


def host_quantize(state: State) -> None:
    """Quantize of a model's input and Dequantize into a model's output, where nothing else reads them."""
    host: list[tuple[str, Node]] = []
    made = state.producers.keys()
    for node in state.nodes.values():
        if node.name in state.group_of or node.domain or len(node.inputs) < 2:
            continue
        if any(name not in state.constants for name in node.inputs[1:] if name):
            continue
        source, result = node.inputs[0], node.outputs[0]
        if node.op_type == _TO_INTEGERS and source in state.graph.inputs:
            if state.readers[source] == [node] and result not in state.outputs and source not in state.outputs:
                host.append(("host-quantize", node))
        elif node.op_type == _TO_FLOATS and result in state.outputs - state.readers.keys() and source in made:
            host.append(("host-dequantize", node))
    if len(host) < len(state.nodes):
        for kind, node in host:
            state.join(kind, [node], kind)
