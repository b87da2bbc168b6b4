"""Builds small ONNX models for tests, and gets every inner tensor of a model from onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from traceconv.runtime.bfloat16 import BF16, tensor_of

OPSET = 17


class ModelBuilder:
    """Adds nodes one after another; weights come from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(seed)

    def weight(self, shape: Sequence[int], *, positive: bool = False) -> str:
        values = self.random.standard_normal(shape)
        return self.constant((np.abs(values) + 0.5 if positive else values * 0.5).astype(np.float32))

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, op_type: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node with one result; return its name."""
        return self.results(op_type, inputs, 1, domain, **attributes)[0]

    def results(
        self, op_type: str, inputs: Sequence[str], count: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        names = [f"t{len(self.nodes)}_{k}" for k in range(count)]
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=name, domain=domain, **attributes))
        return names

    def model(
        self,
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Sequence[str],
        *,
        opset: int = OPSET,
        elem_types: Mapping[str, int] | None = None,
        domains: Sequence[tuple[str, int]] = (),
    ) -> onnx.ModelProto:
        kinds = elem_types or {}
        graph = helper.make_graph(
            self.nodes,
            "test",
            [helper.make_tensor_value_info(k, kinds.get(k, TensorProto.FLOAT), list(v)) for k, v in inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            self.weights,
        )
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*domain) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        # The checker wants outputs to have types.
        known = onnx.shape_inference.infer_shapes(model)
        for entry, inferred in zip(model.graph.output, known.graph.output, strict=True):
            if inferred.type.WhichOneof("value"):
                entry.CopyFrom(inferred)
            else:
                entry.CopyFrom(helper.make_tensor_value_info(entry.name, TensorProto.FLOAT, None))
        return model


def gelu(b: ModelBuilder, x: str) -> str:
    """GELU as exporters write it out."""
    root, one, half = (b.constant(np.float32(value)) for value in (2**0.5, 1.0, 0.5))
    y = b.node("Add", [b.node("Erf", [b.node("Div", [x, root])]), one])
    return b.node("Mul", [b.node("Mul", [x, y]), half])


def onnxruntime_values(model: onnx.ModelProto, feeds: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What onnxruntime computes for tensors of the model as it is; names that it does not have are left out."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    made = {name for node in model.graph.node for name in node.output}
    wanted = [name for name in dict.fromkeys(names) if name in made]
    known = {entry.name for entry in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Sums of 8-bit products that don't saturate, on any processor.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(wanted, session.run(wanted, dict(feeds)), strict=True))


def in_type(proto: onnx.ModelProto, elem_type: int) -> onnx.ModelProto:
    """The model with its fp32 inputs, outputs and weights in another type of floats."""
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    dtype = BF16 if elem_type == TensorProto.BFLOAT16 else np.dtype(np.float16)
    for weight in changed.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            weight.CopyFrom(tensor_of(numpy_helper.to_array(weight).astype(dtype), weight.name))
    for entry in (*changed.graph.input, *changed.graph.output):
        if entry.type.tensor_type.elem_type == TensorProto.FLOAT:
            entry.type.tensor_type.elem_type = elem_type
    return changed
