"""split-dequantize, quantized, host-quantize: models of 8-bit integers between Quantize and Dequantize nodes.

Such a model converts the operands and results of each float op from and to integers. On the device, an op with the
conversions around it is one integer op. The host converts the model's inputs and outputs, so that integers are copied.
"""

from __future__ import annotations

from traceconv.runtime.fusion.state import State
from traceconv.runtime.graph import Node, Tensor
from traceconv.runtime.ops import ACTIVATIONS, OpKind, traits_of

_TO_INTEGERS, _TO_FLOATS = "QuantizeLinear", "DequantizeLinear"


def split_dequantize(state: State) -> None:
    """Copy a Dequantize with several readers for each reader, so that each can become an integer op."""
    nodes: dict[str, Node] = {}
    changed: dict[str, Node] = {}
    for name, old in state.nodes.items():
        node = nodes[name] = changed.get(name, old)
        if node.op_type != _TO_FLOATS or node.domain:
            continue
        output = node.outputs[0]
        readers = state.readers.get(output, [])
        rewired = readers if output in state.outputs else readers[1:]
        for number, reader in enumerate(rewired, 1):
            tensor = f"{output}@{number}"
            state.tensors[tensor] = Tensor(tensor, state.tensors[output].shape, state.tensors[output].elem_type)
            copy = Node(f"{name}@{number}", node.rewired(outputs=[tensor]).proto)
            nodes[copy.name] = copy
            state.originals[copy.name] = []
            current = changed.get(reader.name, reader)
            own = current.inputs[: len(current.proto.input)]
            if output in own:  # tensors that a subgraph reads keep their names
                changed[reader.name] = current.rewired([tensor if one == output else one for one in own])
        if rewired:
            state.note("split-dequantize", [name])
    state.nodes = nodes
    state.order_changed()


def quantized(state: State) -> None:
    """Join the Dequantize of all operands, an op, an activation and Quantize into one integer op.

    A matrix product may lack the Quantize: it returns floats.
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
        state.join_closed("quantized", [*before, *chain], chain[-1])


def _operands(state: State, node: Node) -> list[Node]:
    """Return the Dequantize nodes of all operands except constants; empty if an operand has another producer."""
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
    """Run Quantize of a model input and Dequantize of a model output on the host, if nothing else reads them."""
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
