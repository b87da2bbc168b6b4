"""The numbers: a group of ONNX nodes becomes one kernel, which onnxruntime computes.

A kernel is made from the nodes alone: tensors are renamed in order of use and weights are passed as
inputs, so that two groups of the same nodes and shapes share one onnxruntime session.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from traceconv.base.errors import ModelError, printable
from traceconv.runtime.error_text import first_line
from traceconv.runtime.graph import DTYPES, Array, Node, Tensor, describe

#: Integer constants up to this size are part of the kernel, and float ones up to that.
_EMBED_BYTES = 1 << 10
_EMBED_FLOAT_BYTES = 32

#: Kernels are tiny models of a current format; what the nodes mean is settled by the opset alone.
_IR_VERSION = 8

_ORT_TYPES = {f"tensor({name})": number for number, name in (
    (1, "float"), (2, "uint8"), (3, "int8"), (4, "uint16"), (5, "int16"), (6, "int32"), (7, "int64"),
    (9, "bool"), (10, "float16"), (11, "double"), (12, "uint32"), (13, "uint64"),
)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """What onnxruntime says of an output before it runs; the shape is None where it depends on values."""

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
    signature: tuple[Made, ...]
    what: str

    def run(self, values: Mapping[str, Array]) -> list[Array]:
        """Outputs, in order of `outputs`, from `values`, which must hold every input.

        Raises ModelError when the values are none that the op takes, such as an index out of bounds.
        """
        feeds = {feed: values[name] for feed, name in zip(self.feeds, self.inputs, strict=True)}
        try:
            results: list[Array] = self.session.run(None, feeds)
        except _ORT_ERRORS as error:
            raise ModelError(f"{self.what} fails: {printable(first_line(error))}") from error
        return results


class KernelCompiler:
    """Compiles groups of nodes and remembers them: equal groups share a session."""

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
        """The kernel that computes `outputs` with `nodes`; every tensor read from outside is in `tensors`.

        Tensors in `dynamic` may come in any shape. Raises ModelError, naming the op, its node and its opset,
        when onnxruntime has no such kernel.
        """
        try:
            return self._compile(nodes, outputs, tensors, constants, dynamic)
        except ModelError:
            # Exporters leave branches for other shapes inside a subgraph, which these shapes would make invalid.
            if not any(node.has_subgraph for node in nodes):
                raise
            return self._compile(nodes, outputs, tensors, constants, tensors)

    def _compile(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        tensors: Mapping[str, Tensor],
        constants: Mapping[str, Array],
        dynamic: Collection[str],
    ) -> Kernel:
        model, inputs, feeds = self._model(nodes, outputs, tensors, constants, dynamic)
        data = model.SerializeToString(deterministic=True)
        session = self._sessions.get(data)
        if session is None:
            session = self._sessions[data] = self._session(data, nodes, tensors)
        signature = tuple(
            self._made(name, entry, nodes) for name, entry in zip(outputs, session.get_outputs(), strict=True)
        )
        what = " + ".join(describe(node, self._opsets) for node in nodes)
        return Kernel(session, inputs, feeds, tuple(outputs), signature, what)

    def _model(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        tensors: Mapping[str, Tensor],
        constants: Mapping[str, Array],
        dynamic: Collection[str],
    ) -> tuple[onnx.ModelProto, tuple[str, ...], tuple[str, ...]]:
        # Names inside a subgraph are not ours to change, and may be any: such a node keeps all of them.
        keep = any(node.has_subgraph for node in nodes)
        new_names: dict[str, str] = {"": ""}
        inputs: list[str] = []
        embedded: list[onnx.TensorProto] = []
        made = {name for node in nodes for name in node.outputs}
        fixed = _fixed_inputs(nodes)
        protos = []
        for node in nodes:
            for name in node.inputs:
                if name in new_names or name in made:
                    continue
                constant = constants.get(name)
                if constant is not None and (name in fixed or _is_embedded(constant)):
                    new_names[name] = name if keep else f"c{len(embedded)}"
                    values = np.ascontiguousarray(constant).reshape(constant.shape)
                    embedded.append(numpy_helper.from_array(values, new_names[name]))
                else:
                    new_names[name] = name if keep else f"i{len(inputs)}"
                    inputs.append(name)
            for name in node.outputs:
                if name:
                    new_names[name] = name if keep else f"v{len(new_names)}"
            proto = onnx.NodeProto()
            proto.CopyFrom(node.proto)
            proto.name = ""
            proto.doc_string = ""
            own = list(proto.input)
            del proto.input[:], proto.output[:]
            proto.input.extend(new_names[name] for name in own)
            proto.output.extend(new_names[name] for name in node.outputs)
            protos.append(proto)
        graph = helper.make_graph(
            protos,
            "kernel",
            [tensors[name].value_info(new_names[name], any_shape=name in dynamic) for name in inputs],
            [onnx.ValueInfoProto(name=new_names[name]) for name in outputs],
            embedded,
        )
        model = helper.make_model(graph, opset_imports=self._imports, producer_name="")
        model.ir_version = _IR_VERSION
        return model, tuple(inputs), tuple(new_names[name] for name in inputs)

    def _session(self, data: bytes, nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # One thread: each of the dozens of sessions would have a pool, and the idle ones would spin.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # Nor an arena of memory each, which keeps what it once had.
        options.enable_cpu_mem_arena = False
        # Without it, products of 8-bit integers saturate on x86 processors that lack VNNI.
        options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except _ORT_ERRORS as error:
            where = " + ".join(describe(node, self._opsets) for node in nodes)
            types = dict.fromkeys(tensors[name].dtype for node in nodes for name in node.inputs if name in tensors)
            on = f" on {', '.join(types)}" if types else ""
            raise ModelError(f"{where} can't be run{on}: {printable(first_line(error))}") from error

    def _made(self, name: str, entry: Any, nodes: Sequence[Node]) -> Made:
        elem_type = _ORT_TYPES.get(entry.type)
        if elem_type not in DTYPES:
            where = describe(nodes[-1], self._opsets)
            raise ModelError(f"{where}: output '{printable(name, 80)}' has type {entry.type}, which can't be run")
        known = all(isinstance(extent, int) for extent in entry.shape)
        # A scalar and a tensor of unknown rank look alike here: [] says nothing.
        return Made(name, tuple(entry.shape) if known and entry.shape else None, elem_type)


def _is_embedded(constant: Array) -> bool:
    """Whether a constant is part of the kernel: shapes, axes and the like, which onnxruntime wants known.

    Float vectors (biases, say) are inputs, so that layers that differ in nothing else share a kernel.
    """
    limit = _EMBED_BYTES if constant.dtype.kind in "iub" else _EMBED_FLOAT_BYTES
    return constant.nbytes <= limit


def _fixed_inputs(nodes: Sequence[Node]) -> set[str]:
    """Scales and zero points, and weights that are dequantised: onnxruntime's integer kernels want them known."""
    fixed: set[str] = set()
    for node in nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            fixed.update(node.inputs if len(nodes) > 1 else node.inputs[1:])
    return fixed


def _ort_errors() -> tuple[type[Exception], ...]:
    """The exceptions of onnxruntime, which share no base but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")
    return tuple(getattr(state, name) for name in names if hasattr(state, name))


_ORT_ERRORS = _ort_errors()
