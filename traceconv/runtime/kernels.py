"""Numerics: a group of ONNX nodes becomes one kernel, which onnxruntime computes.

A kernel depends on the nodes alone: tensors are renamed in order of use and weights are passed as inputs, so that
groups with the same nodes and shapes share an onnxruntime session.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from traceconv.base.errors import ModelError, printable
from traceconv.runtime.bfloat16 import mentions, tensor_of, widen_graph, widened
from traceconv.runtime.error_text import first_line
from traceconv.runtime.graph import DTYPES, Array, Node, Tensor, describe

#: Maximum sizes of integer and of float constants that are part of the kernel.
_EMBED_BYTES = 1 << 10
_EMBED_FLOAT_BYTES = 32

#: The format of kernels; the opset alone determines what nodes mean.
_IR_VERSION = 8

#: onnxruntime's names of the element types.
_ORT_TYPES = {f"tensor({name.lower()})": number for number, (name, _) in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class OutputType:
    """The type of an output that onnxruntime reports before running; the shape is None if it depends on values."""

    name: str
    shape: tuple[int, ...] | None
    elem_type: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled group of nodes. `inputs` are tensors of the graph, `feeds` their names in the session."""

    session: Any  # onnxruntime.InferenceSession, which has no types of its own
    inputs: tuple[str, ...]
    feeds: tuple[str, ...]
    outputs: tuple[str, ...]
    signature: tuple[OutputType, ...]
    description: str

    def run(self, values: Mapping[str, Array]) -> list[Array]:
        """Compute the outputs, in the order of `outputs`, from `values`, which must contain every input.

        Values of bfloat16 may be fp32, and are fp32 in the result. Raises ModelError for invalid values, such as an
        index out of bounds.
        """
        feeds = {feed: widened(values[name]) for feed, name in zip(self.feeds, self.inputs, strict=True)}
        try:
            results: list[Array] = self.session.run(None, feeds)
        except _ORT_ERRORS as error:
            raise ModelError(f"{self.description} fails: {printable(first_line(error))}") from error
        return results


class KernelCompiler:
    """Compiles groups of nodes; equal groups share a session."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = opsets
        self._imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._sessions: dict[bytes, Any] = {}

    def compile(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        tensors: Mapping[str, Tensor],
        constants: Mapping[str, Array],
        dynamic: Collection[str] = (),
    ) -> Kernel:
        """Return the kernel that computes `outputs` with `nodes`; every tensor read from outside is in `tensors`.

        Tensors in `dynamic` may have any shape. Raises ModelError, naming the op, its node and its opset, when
        onnxruntime has no such kernel.
        """
        try:
            session, inputs, feeds = self._session(nodes, outputs, tensors, constants, dynamic)
        except ModelError:
            # Exporters leave branches for other shapes inside a subgraph, which these shapes make invalid.
            if not any(node.has_subgraph for node in nodes):
                raise
            session, inputs, feeds = self._session(nodes, outputs, tensors, constants, tensors)
        signature = tuple(
            self._output_type(name, entry, nodes, tensors.get(name))
            for name, entry in zip(outputs, session.get_outputs(), strict=True)
        )
        return Kernel(session, inputs, feeds, tuple(outputs), signature, self._describe(nodes))

    def _describe(self, nodes: Sequence[Node]) -> str:
        return " + ".join(describe(node, self._opsets) for node in nodes)

    def _session(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        tensors: Mapping[str, Tensor],
        constants: Mapping[str, Array],
        dynamic: Collection[str],
    ) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
        """Return the session of a kernel, its inputs in the graph, and their names in the session."""
        keep = any(node.has_subgraph for node in nodes)
        new_names, inputs, embedded = _new_names(nodes, constants, keep=keep)
        protos = [_renamed(node, new_names) for node in nodes]
        graph = helper.make_graph(
            protos,
            "kernel",
            [tensors[name].value_info(new_names[name], any_shape=name in dynamic) for name in inputs],
            [onnx.ValueInfoProto(name=new_names[name]) for name in outputs],
            embedded,
        )
        halves = {
            new
            for name, new in new_names.items()
            if name in tensors and tensors[name].elem_type == TensorProto.BFLOAT16
        }
        if halves or any(map(mentions, protos)):
            if keep:  # subgraphs need types inside
                graph = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=self._imports)).graph
            widen_graph(graph, halves)
        model = helper.make_model(graph, opset_imports=self._imports, producer_name="")
        model.ir_version = _IR_VERSION
        data = model.SerializeToString(deterministic=True)
        if data not in self._sessions:
            self._sessions[data] = self._new_session(data, nodes, tensors)
        return self._sessions[data], tuple(inputs), tuple(new_names[name] for name in inputs)

    def _new_session(self, data: bytes, nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # One thread: otherwise each of dozens of sessions has a pool, and idle threads spin.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # No memory arena per session either: it never returns memory.
        options.enable_cpu_mem_arena = False
        # Without it, products of 8-bit integers saturate on x86 processors that lack VNNI.
        options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except _ORT_ERRORS as error:
            types = dict.fromkeys(tensors[name].dtype for node in nodes for name in node.inputs if name in tensors)
            on = f" on {', '.join(types)}" if types else ""
            raise ModelError(f"{self._describe(nodes)} can't be run{on}: {printable(first_line(error))}") from error

    def _output_type(self, name: str, entry: Any, nodes: Sequence[Node], planned: Tensor | None) -> OutputType:
        elem_type = _ORT_TYPES.get(entry.type)
        if planned is not None and (planned.elem_type, elem_type) == (TensorProto.BFLOAT16, TensorProto.FLOAT):
            elem_type = TensorProto.BFLOAT16
        if elem_type not in DTYPES:
            where = describe(nodes[-1], self._opsets)
            raise ModelError(f"{where}: output '{printable(name, 80)}' has type {entry.type}, which can't be run")
        known = all(isinstance(extent, int) for extent in entry.shape)
        # A scalar and a tensor of unknown rank both have the shape [] here.
        return OutputType(name, tuple(entry.shape) if known and entry.shape else None, elem_type)


def _new_names(
    nodes: Sequence[Node], constants: Mapping[str, Array], *, keep: bool
) -> tuple[dict[str, str], list[str], list[onnx.TensorProto]]:
    """Return the names of tensors in the kernel, its inputs in the graph, and the constants that are part of it.

    keep  whether names stay: those in a subgraph can't be changed
    """
    new_names: dict[str, str] = {"": ""}
    inputs: list[str] = []
    embedded: list[onnx.TensorProto] = []
    made = {name for node in nodes for name in node.outputs}
    fixed = _fixed_inputs(nodes)
    for node in nodes:
        for name in node.inputs:
            if name in new_names or name in made:
                continue
            constant = constants.get(name)
            if constant is not None and (name in fixed or _is_embedded(constant)):
                new_names[name] = name if keep else f"c{len(embedded)}"
                values = np.ascontiguousarray(constant).reshape(constant.shape)
                embedded.append(tensor_of(values, new_names[name]))
            else:
                new_names[name] = name if keep else f"i{len(inputs)}"
                inputs.append(name)
        for name in node.outputs:
            if name:
                new_names[name] = name if keep else f"v{len(new_names)}"
    return new_names, inputs, embedded


def _renamed(node: Node, new_names: Mapping[str, str]) -> onnx.NodeProto:
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.name = proto.doc_string = ""
    proto.input[:] = [new_names[name] for name in proto.input]
    proto.output[:] = [new_names[name] for name in node.outputs]
    return proto


def _is_embedded(constant: Array) -> bool:
    """Whether a constant is part of the kernel, as shapes, axes and the like, which onnxruntime needs to know.

    Float vectors such as biases are inputs, so that layers that differ only in them share a kernel.
    """
    limit = _EMBED_BYTES if constant.dtype.kind in "iub" else _EMBED_FLOAT_BYTES
    return constant.nbytes <= limit


def _fixed_inputs(nodes: Sequence[Node]) -> set[str]:
    """Return scales, zero points and dequantised weights, which onnxruntime's integer kernels need to know."""
    fixed: set[str] = set()
    for node in nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            fixed.update(node.inputs if len(nodes) > 1 else node.inputs[1:])
    return fixed


def _ort_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of onnxruntime, whose only common base is Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")
    return tuple(getattr(state, name) for name in names if hasattr(state, name))


_ORT_ERRORS = _ort_errors()
