"""Models from PyPI wheels give the results of onnxruntime, op by op.

The wheels are not a dependency: without its wheel a test is skipped. Only their files are used, not their code, so
`pip install --no-deps magika rapidocr-onnxruntime silero-vad` is enough.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_values import agreeing_values

from traceconv.runtime.compiled import compile_model
from traceconv.runtime.zoo import FoundModel, find_model

RANDOM = np.random.default_rng(7)


def image(*shape: int) -> Any:
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def speech() -> dict[str, Any]:
    return {"input": image(1, 576) * 0.1, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16_000)}


SILERO, RAPID = "silero_vad/data", "rapidocr_onnxruntime/models"

#: (distribution, file in it, inputs).
MODELS: list[tuple[str, str, Mapping[str, Any]]] = [
    ("magika", "magika/models/*/model.onnx", {"bytes": RANDOM.integers(0, 257, (2, 2048)).astype(np.int32)}),
    ("silero-vad", f"{SILERO}/silero_vad.onnx", speech()),
    ("silero-vad", f"{SILERO}/silero_vad_16k_op15.onnx", speech()),
    ("silero-vad", f"{SILERO}/silero_vad_op18_ifless.onnx", speech()),
    (
        "silero-vad",
        f"{SILERO}/silero_vad_16k_sequence.onnx",
        {"input": image(5, 576) * 0.1, "h": image(1, 1, 128), "c": image(1, 1, 128)},
    ),
    ("rapidocr-onnxruntime", f"{RAPID}/ch_PP-OCRv4_det_infer.onnx", {"x": image(1, 3, 96, 128)}),
    ("rapidocr-onnxruntime", f"{RAPID}/ch_PP-OCRv4_rec_infer.onnx", {"x": image(2, 3, 48, 160)}),
    ("rapidocr-onnxruntime", f"{RAPID}/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": image(2, 3, 48, 192)}),
]


def carried(distribution: str, pattern: str) -> Path:
    """Return a file of an installed distribution; skip the test without it."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: pip install --no-deps {distribution}")
    for file in files:
        if file.match(pattern):
            return Path(str(file.locate()))
    pytest.skip(f"this version of {distribution} has no {pattern}")


@pytest.mark.parametrize(("distribution", "pattern", "inputs"), MODELS, ids=[pattern for _, pattern, _ in MODELS])
def test_a_model_of_a_wheel_agrees_op_by_op(distribution: str, pattern: str, inputs: Mapping[str, Any]) -> None:
    path = carried(distribution, pattern)
    proto = find_model(str(path)).proto
    weights = {entry.name for entry in proto.graph.initializer}
    taken = {entry.name for entry in proto.graph.input} - weights
    feeds = {name: value for name, value in inputs.items() if name in taken}
    model = compile_model(FoundModel(path.stem, proto), inputs=feeds)
    agreeing_values(proto, model, feeds, rtol=2e-4)
