"""The parameters of a model, and the node inputs through which gradients reach them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from traceconv.base.errors import ModelError, printable
from traceconv.runtime.graph import FLOATS, Graph, Node
from traceconv.runtime.training.forms import is_parameter
from traceconv.runtime.training.gradient import NoRule, Same, Site
from traceconv.runtime.training.rules import RULES

#: Weights of quantized ops: op type → indices of its inputs.
_INTEGER_WEIGHTS = {
    "ConvInteger": (1,),
    "DequantizeLinear": (0,),
    "MatMulInteger": (0, 1),
    "QLinearConv": (3,),
    "QLinearMatMul": (0, 3),
}


def parameters_of(graph: Graph, nodes: Sequence[Node], initializers: frozenset[str]) -> dict[str, None]:
    """Return the constants to train, in the order of their first use; `initializers`: the model's declared weights.

    If an op reads a Cast of a constant, that is trained in its own type.
    """
    casts = {node.outputs[0]: node.inputs[0] for node in nodes if node.op_type == "Cast"}
    found: dict[str, None] = {}
    for node in nodes:
        for place, name in enumerate(node.inputs):
            source = casts.get(name, name)
            value = graph.constants.get(source) if name else None
            if value is not None and is_parameter(node, place, value, initializers):
                found[source] = None
    return found


def declared_weights(model: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the weights that a model declares, and of Casts of them."""
    names = {entry.name for entry in model.graph.initializer}
    casts = (node for node in model.graph.node if node.op_type == "Cast" and node.input[0] in names)
    return frozenset(names | {node.output[0] for node in casts})


def flowing_through(
    graph: Graph, nodes: Sequence[Node], parameters: Mapping[str, None], made: str
) -> dict[str, tuple[int, ...]]:
    """Node → indices of the inputs through which gradients of `made` reach a parameter.

    Raises ModelError, naming every op without a gradient rule, or if there is nothing to train.
    """
    tensors, opset = graph.tensors, graph.opsets.get("", 0)
    needing = set(parameters)
    flowing: dict[str, tuple[int, ...]] = {}
    missing: dict[str, str] = {}
    for node in nodes:
        places = tuple(
            place for place, name in enumerate(node.inputs) if name in needing and tensors[name].elem_type in FLOATS
        )
        outputs = [name for name in node.outputs if name and tensors[name].elem_type in FLOATS]
        if not places or not outputs:
            continue
        flowing[node.name] = places
        needing.update(outputs)
        reason = _why_not(graph, node, places, opset)
        if reason is not None:
            missing.setdefault(f"{node.op_type}{reason}", node.name)
    if made not in needing:
        raise ModelError(f"{graph.name} can't be trained: {_why_nothing(graph, nodes, made)}")
    if missing:
        shown = [f"{printable(what, 100)} (node '{printable(name, 60)}')" for what, name in missing.items()]
        more = f", and {len(shown) - 8} more" if len(shown) > 8 else ""
        raise ModelError(f"{graph.name} can't be trained: no gradient rule for {', '.join(shown[:8])}{more}")
    return flowing


def _why_not(graph: Graph, node: Node, places: tuple[int, ...], opset: int) -> str | None:
    """Return the reason why an op can't be differentiated: '' if it has no rule, None if it can be."""
    rule = None if node.domain or node.has_subgraph else RULES.get(node.op_type)
    if rule is None:
        return ""
    dys = tuple("dy" if k == 0 or node.op_type == "Split" else None for k in range(len(node.outputs)))
    tensors = {**graph.tensors, "saved": graph.tensors[node.inputs[0]]}
    site = Site(node, tensors, graph.constants, dys, places, ("saved", "saved"), opset)
    try:
        made = rule(site)
    except NoRule as why:
        return f" with {why}"
    covered = {place for one in made for place in ((one.wrt,) if isinstance(one, Same) else one.wrt)}
    return None if covered >= set(places) else " with respect to one of its operands"


def _why_nothing(graph: Graph, nodes: Sequence[Node], made: str) -> str:
    """Return the reason why nothing can be trained, and what to do."""
    integers: list[tuple[str, str]] = []
    for node in nodes:
        places = _INTEGER_WEIGHTS.get(node.op_type, ())
        names = [node.inputs[place] for place in places if place < len(node.inputs)]
        integers += [(name, node.name) for name in names if name in graph.constants]
    if integers:
        (name, node_name), more = integers[0], len(integers) - 1
        dtype = graph.tensors[name].dtype if name in graph.tensors else str(graph.constants[name].dtype).upper()
        others = f", and {more} more" if more else ""
        first = f"{dtype} '{printable(name, 60)}', read by node '{printable(node_name, 60)}'"
        return (
            f"its weights are integers ({first}{others}), "
            "and only floats can be trained: train the model before it is quantized"
        )
    return (
        f"nothing to train: '{printable(made, 60)}', the source of the loss, depends on no weight; weights are "
        "float constants that layers such as Conv, MatMul and Gemm read"
    )


def leading_to(graph: Graph, name: str) -> list[Node]:
    """Return the nodes that a tensor depends on, in order."""
    needed = {name}
    found = []
    for node in reversed(graph.nodes):
        if needed.intersection(made for made in node.outputs if made):
            found.append(node)
            needed.update(node.inputs)
    return found[::-1]
