"""Small models that tests train, and images of digits to train them on."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx_models import ModelBuilder


def mlp(batch: int | str = "batch", features: int = 64, hidden: int = 32, classes: int = 10) -> onnx.ModelProto:
    """Gemm, Relu, MatMul, a bias, Softmax; weights w0, w1, w2, w3."""
    b = ModelBuilder(seed=5)
    scale = {"w0": (features, hidden), "w1": (hidden,), "w2": (hidden, classes), "w3": (classes,)}
    w = [b.weight(shape) for shape in scale.values()]
    x = b.node("Relu", [b.node("Gemm", ["x", w[0], w[1]])])
    x = b.node("Softmax", [b.node("Add", [b.node("MatMul", [x, w[2]]), w[3]])], axis=-1)
    return smaller(b.model({"x": [batch, features]}, [x]), ("w0", "w1", "w2", "w3"))


def smaller(model: onnx.ModelProto, names: tuple[str, ...]) -> onnx.ModelProto:
    """Weights to begin with that don't make the first losses huge."""
    for entry in model.graph.initializer:
        if entry.name in names:
            values = onnx.numpy_helper.to_array(entry) * 0.2
            entry.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), entry.name))
    return model


def digits() -> tuple[Any, Any]:
    """Images of digits, and which they are: a file of scikit-learn, whose import takes longer than most tests."""
    [folder] = find_spec("sklearn").submodule_search_locations  # type: ignore[union-attr,misc]
    rows = np.loadtxt(Path(folder) / "datasets" / "data" / "digits.csv.gz", np.int64, delimiter=",")
    return (rows[:, :-1].reshape(-1, 8, 8) / 16).astype(np.float32), rows[:, -1]


def convnet() -> onnx.ModelProto:
    """Conv, batch normalisation, Relu, MaxPool, Dropout, Gemm on 8 × 8 images."""
    b = ModelBuilder(seed=2)
    x = b.node("Conv", ["x", b.weight([8, 1, 3, 3])], pads=[1, 1, 1, 1])
    norm = [b.constant(np.ones(8, np.float32)), b.constant(np.zeros(8, np.float32))]
    running = [b.constant(np.zeros(8, np.float32)), b.constant(np.ones(8, np.float32))]
    x = b.node("Relu", [b.node("BatchNormalization", [x, *norm, *running])])
    x = b.node("Flatten", [b.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])])
    x = b.node("Dropout", [x, b.constant(np.float32(0.2))])
    model = b.model({"x": ["batch", 1, 8, 8]}, [b.node("Gemm", [x, b.weight([128, 10]), b.weight([10])])])
    return smaller(model, ("w6", "w7"))
