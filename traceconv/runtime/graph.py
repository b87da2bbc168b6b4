"""A loaded model: tensors of known shape, nodes in order, constants in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper

from traceconv.base.arrays import NDArray
from traceconv.base.errors import printable
from traceconv.runtime.bfloat16 import BF16

#: An array of any element type.
Array = NDArray[np.generic]

#: Element types of the device: ONNX number → (name in the log, bytes).
DTYPES: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("FLOAT", 4),
    TensorProto.FLOAT16: ("FLOAT16", 2),
    TensorProto.BFLOAT16: ("DT_BF16", 2),  # its name in msprof's tables
    TensorProto.DOUBLE: ("DOUBLE", 8),
    TensorProto.INT8: ("INT8", 1),
    TensorProto.INT16: ("INT16", 2),
    TensorProto.INT32: ("INT32", 4),
    TensorProto.INT64: ("INT64", 8),
    TensorProto.UINT8: ("UINT8", 1),
    TensorProto.UINT16: ("UINT16", 2),
    TensorProto.UINT32: ("UINT32", 4),
    TensorProto.UINT64: ("UINT64", 8),
    TensorProto.BOOL: ("BOOL", 1),
}

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the model; `elem_type` is a key of `DTYPES`."""

    name: str
    shape: tuple[int, ...]
    elem_type: int

    @property
    def dtype(self) -> str:
        return DTYPES[self.elem_type][0]

    @property
    def elem_bytes(self) -> int:
        return DTYPES[self.elem_type][1]

    @property
    def count(self) -> int:
        """Elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.count * self.elem_bytes

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        if self.elem_type == TensorProto.BFLOAT16:  # onnx before 1.19 says float32
            return BF16
        return np.dtype(helper.tensor_dtype_to_np_dtype(self.elem_type))

    def value_info(self, name: str | None = None, *, any_shape: bool = False) -> onnx.ValueInfoProto:
        """Return the ONNX declaration, under another name if given; `any_shape` keeps only the rank."""
        shape = [None] * len(self.shape) if any_shape else self.shape
        return helper.make_tensor_value_info(name or self.name, self.elem_type, shape)


def outer_names(body: onnx.GraphProto) -> list[str]:
    """Return the tensors that a subgraph (a branch, the body of a loop) reads from the graph around it, each once."""
    inside = {entry.name for entry in body.input} | {entry.name for entry in body.initializer}
    found: dict[str, None] = {}
    for proto in body.node:
        read = [*proto.input, *(name for part in subgraphs(proto) for name in outer_names(part))]
        found.update((name, None) for name in read if name and name not in inside)
        inside.update(proto.output)
    found.update((entry.name, None) for entry in body.output if entry.name not in inside)
    return list(found)


def subgraphs(proto: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs among a node's attributes: If, Loop and Scan have some."""
    found = []
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found.append(attribute.g)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            found.extend(attribute.graphs)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator of the model. `name` is unique in the graph; an omitted input or output is ''.

    `inputs` are those of the ONNX node, followed by what its subgraphs read from outside (`captures`).
    """

    name: str
    proto: onnx.NodeProto
    op_type: str = field(init=False)
    domain: str = field(init=False)
    inputs: tuple[str, ...] = field(init=False)
    outputs: tuple[str, ...] = field(init=False)
    captures: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # The passes read these many times, which is slow from protobuf.
        proto = self.proto
        own = tuple(proto.input)
        outer = dict.fromkeys(name for part in subgraphs(proto) for name in outer_names(part))
        set_field = object.__setattr__
        set_field(self, "op_type", str(proto.op_type))
        set_field(self, "domain", "" if proto.domain == "ai.onnx" else str(proto.domain))
        set_field(self, "captures", tuple(name for name in outer if name not in own))
        set_field(self, "inputs", own + self.captures)
        set_field(self, "outputs", tuple(proto.output))

    @property
    def has_subgraph(self) -> bool:
        """Whether it is control flow, which runs as one op."""
        return bool(subgraphs(self.proto))

    def rewired(self, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Node:
        """Return the same operator on other tensors."""
        proto = onnx.NodeProto()
        proto.CopyFrom(self.proto)
        if inputs is not None:
            proto.input[:] = inputs
        if outputs is not None:
            proto.output[:] = outputs
        return Node(self.name, proto)

    def _attribute(self, name: str) -> onnx.AttributeProto | None:
        return next((attribute for attribute in self.proto.attribute if attribute.name == name), None)

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        """Return attribute `name` as a list of integers."""
        attribute = self._attribute(name)
        return list(default if attribute is None else attribute.ints)

    def int(self, name: str, default: int) -> int:
        """Return attribute `name` as an integer."""
        attribute = self._attribute(name)
        return default if attribute is None else int(attribute.i)

    def float(self, name: str, default: float) -> float:
        """Return attribute `name` as a float."""
        attribute = self._attribute(name)
        return default if attribute is None else float(attribute.f)

    def text(self, name: str, default: str) -> str:
        """Return attribute `name` as text."""
        attribute = self._attribute(name)
        return default if attribute is None else str(attribute.s.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Graph:
    """A model that can be lowered: every node runs on the device, every shape is known.

    opsets       domain → version
    nodes        in an order in which they can run
    constants    weights, and values that depend only on weights and shapes
    folded       names of the model's ops that were computed at load
    dynamic      tensors whose shapes depend on values; those in `tensors` are for the inputs `sample`
    sample_seed  seed of `sample`; None for inputs from the caller
    """

    name: str
    graph_name: str
    opsets: Mapping[str, int]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Array]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    folded: tuple[str, ...] = ()
    dynamic: frozenset[str] = frozenset()
    sample: Mapping[str, Array] | None = None
    sample_seed: int | None = None

    def consumers(self) -> dict[str, list[Node]]:
        """Return tensor → nodes that read it, each once, in order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def producers(self) -> dict[str, Node]:
        """Return tensor → node that produces it."""
        return {name: node for node in self.nodes for name in node.outputs if name}


def describe(node: Node, opsets: Mapping[str, int]) -> str:
    """Return how errors name a node: `op Conv (node 'n1', opset 9)`."""
    domain = node.domain
    version = opsets.get(domain if domain != "ai.onnx" else "", 0)
    place = f"opset {version}" if domain in ("", "ai.onnx") else f"{printable(domain)} {version or '(no opset)'}"
    return f"op {printable(node.op_type, 60)} (node '{printable(node.name, 80)}', {place})"
