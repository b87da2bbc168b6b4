"""Every op of every network computes what onnxruntime computes for the original model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from op_values import agreeing_values
from seeded_weights import image, seeded

from traceconv.runtime.compiled import CompiledModel, compile_model
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.zoo import BUILT_MODELS, LIGHT_MODELS, FoundModel, find_model

#: Smaller images and dense layers where the whole network would take long: (size, extents that follow from it).
SMALL: dict[str, tuple[int, Mapping[int, int]]] = {
    "bvlc_alexnet": (224, {4096: 256}),
    "densenet121": (96, {}),
    "vgg19": (64, {25088: 2048, 4096: 256}),
    "zfnet512": (224, {4096: 256}),
}


def inputs_of(model: CompiledModel, seed: int) -> dict[str, np.ndarray]:
    """Images where the model takes one, else random inputs."""
    inputs = random_inputs(model, seed)
    return {name: image(value.shape, seed) if value.ndim == 4 else value for name, value in inputs.items()}


def compare(proto: onnx.ModelProto, model: CompiledModel, seed: int, *, steps: int = 0) -> dict[str, np.ndarray]:
    """The outputs, once every op's results agree; integers may be `steps` apart."""
    values = agreeing_values(proto, model, inputs_of(model, seed), steps=steps)
    return {name: values[name] for name in model.program.graph.outputs}


def vary(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> None:
    """Outputs have many values, and other inputs give others."""
    for name, value in first.items():
        assert np.unique(value).size > min(100, value.size // 2), name
        apart = np.abs(value.astype(np.float64) - second[name]).max()
        assert apart > 1e-2 * np.abs(value.astype(np.float64)).max(), name


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_networks_with_seeded_weights_agree_op_by_op(name: str) -> None:
    size, swap = SMALL.get(name, (224, {}))
    proto = seeded(find_model(name).proto, 5, size=size, swap=swap)
    model = compile_model(FoundModel(name, proto))
    first = compare(proto, model, 1)
    vary(first, model.executor.run(inputs_of(model, 2)))


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_networks_with_seeded_weights_agree_at_full_size(name: str) -> None:
    proto = seeded(find_model(name).proto, 6)
    model = compile_model(FoundModel(name, proto))
    first = compare(proto, model, 1)
    vary(first, model.executor.run(inputs_of(model, 2)))


#: Others have tests of their own; onnxruntime has no kernels for bfloat16.
@pytest.mark.parametrize("name", sorted(set(BUILT_MODELS) - {"mini_bf16", "mini_detector", "mini_quantized"}))
def test_built_networks_agree_op_by_op(name: str) -> None:
    proto = find_model(name).proto
    model = compile_model(name)
    vary(compare(proto, model, 1), compare(proto, model, 2))


def test_integers_are_at_most_a_step_apart() -> None:
    # Where a value lies on the edge between two integers, the order of a sum decides; steps add up from op to op.
    proto = find_model("mini_quantized").proto
    model = compile_model("mini_quantized")
    first, second = compare(proto, model, 1, steps=2), compare(proto, model, 2, steps=2)
    assert not np.array_equal(first["output"], second["output"])
    assert [op.op_type for op in model.program.ops] == [
        "QuantConv2D", "QuantConv2D", "QuantConv2D", "QuantAdd", "QuantGlobalAveragePool", "QuantReshape",
        "QuantMatMulV2",
    ]  # fmt: skip
    assert {tensor.dtype for op in model.program.ops for tensor in op.writes} == {"UINT8"}


def test_a_detector_finds_what_onnxruntime_finds_in_any_image() -> None:
    proto = find_model("mini_detector").proto
    model = compile_model("mini_detector")
    assert model.program.graph.dynamic
    counts = {compare(proto, model, seed)["boxes"].shape[1] for seed in range(4)}
    assert len(counts) > 1
    assert next(op.op_type for op in model.program.ops if op.dynamic) == "NonMaxSuppression"
