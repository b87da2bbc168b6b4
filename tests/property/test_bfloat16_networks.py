"""bfloat16: rounding against integers, models against their ops one by one, costs against fp16's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import ModelBuilder, in_type
from random_networks import check_plan, check_same, networks, plans

from traceconv.runtime.bfloat16 import BF16, array_of, narrowed, rounded, widened
from traceconv.runtime.compiled import compile_model
from traceconv.runtime.fusion import fuse
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.load import load_graph
from traceconv.runtime.lower import lower
from traceconv.runtime.spec import reference_npu
from traceconv.runtime.zoo import FoundModel


def nearest(values: Any) -> Any:
    """The bits of the nearest bfloat16, the even one of two, by integers alone. For NaN: None of the bits matter."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@settings(max_examples=30)
@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=200))
def test_rounding_is_to_nearest_even(bits: list[int]) -> None:
    ties = [value & 0xFFFF0000 | 0x8000 for value in bits]
    values = np.array([*bits, *ties], np.uint32).view(np.float32)
    numbers = ~np.isnan(values)
    ours = narrowed(values)
    np.testing.assert_array_equal(ours.view(np.uint16)[numbers], nearest(values)[numbers])
    assert np.isnan(ours[~numbers].astype(np.float32)).all()
    np.testing.assert_array_equal(rounded(values), ours.astype(np.float32))
    # onnxruntime's rounding, in kernels.
    b = ModelBuilder()
    model = b.model({"x": [len(values)]}, [b.node("Cast", ["x"], to=TensorProto.BFLOAT16)])
    compiled = compile_model(FoundModel("cast", model))
    made = compiled.executor.run({"x": values})[compiled.program.graph.outputs[0]]
    np.testing.assert_array_equal(made.view(np.uint16)[numbers], nearest(values)[numbers])


def op_by_op(proto: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """Every tensor: each op alone in fp32 by onnxruntime, its result rounded by integers. All results are floats."""
    values = {name: widened(value) for name, value in feeds.items()}
    values |= {entry.name: widened(array_of(entry)) for entry in proto.graph.initializer}
    for node in proto.graph.node:
        reads = [name for name in node.input if name]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
            for name in reads
        ]
        graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in node.output])
        model = helper.make_model(graph, opset_imports=proto.opset_import)
        model.ir_version = 8
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(None, {name: values[name] for name in reads})
        for name, result in zip(node.output, results, strict=True):
            values[name] = (nearest(np.ascontiguousarray(result)).astype(np.uint32) << 16).view(np.float32)
    return values


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(networks(foldable=False), st.integers(0, 1 << 16))
def test_a_network_is_its_ops_in_fp32_each_rounded(proto: onnx.ModelProto, seed: int) -> None:
    half = in_type(proto, TensorProto.BFLOAT16)
    model = compile_model(FoundModel("half", half))
    inputs = random_inputs(model, seed)
    assert all(value.dtype == BF16 for value in inputs.values())
    made = [tensor.name for op in model.program.ops for tensor in op.writes]
    ours = model.executor.run(inputs, made)
    theirs = op_by_op(half, inputs)
    for name, value in ours.items():
        assert value.dtype == BF16
        np.testing.assert_array_equal(value.astype(np.float32), theirs[name])


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(networks())
def test_costs_and_bytes_are_those_of_fp16(proto: onnx.ModelProto) -> None:
    spec = reference_npu()
    halves = [lower(fuse(load_graph(in_type(proto, kind), "m")), spec) for kind in (10, 16)]
    described = [
        [(op.name, op.core, op.cost, op.flops, op.input_bytes, op.weight_bytes, op.output_bytes) for op in program.ops]
        for program in halves
    ]
    assert described[0] == described[1]
    full = lower(fuse(load_graph(proto, "m")), spec)
    for half, op in zip(halves[1].ops, full.ops, strict=True):
        assert {tensor.dtype for tensor in half.writes} == {"DT_BF16"}
        assert 2 * half.output_bytes == op.output_bytes and half.cost.cycles <= op.cost.cycles


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(networks())
def test_training_is_the_same_with_and_without_fusion(proto: onnx.ModelProto) -> None:
    half = in_type(proto, TensorProto.BFLOAT16)
    check_plan(*plans(half))
    check_same(half)
