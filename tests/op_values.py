"""Compares every tensor that leaves an op with what onnxruntime has for it in the model as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx_models import onnxruntime_values

from traceconv.runtime.compiled import CompiledModel


def agreeing_values(
    proto: onnx.ModelProto, model: CompiledModel, inputs: Mapping[str, Any], *, rtol: float = 1e-4, steps: int = 0
) -> dict[str, Any]:
    """Our values, once those that onnxruntime also has agree.

    rtol   how far floats may be apart, as a share of the tensor's largest; 50 times that in half precision
    steps  how far integers may be apart
    """
    made = [tensor.name for op in model.program.ops for tensor in op.writes]
    outputs = model.program.graph.outputs
    ours: dict[str, Any] = model.executor.run(inputs, made)
    theirs = onnxruntime_values(proto, inputs, [*made, *outputs])
    assert set(outputs) <= set(theirs)
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype and ours[name].shape == value.shape, name
        if value.dtype.kind in "iub":
            np.testing.assert_allclose(ours[name].astype(np.int64), value.astype(np.int64), atol=steps, err_msg=name)
        elif value.size:
            allowed = rtol * (50 if value.dtype == np.float16 else 1)
            scale = float(np.abs(value.astype(np.float64)).max())
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=allowed * max(scale, 1e-6), err_msg=name)
    # Some tensors are only ours (a copy that several ops read would be), never those that most ops make.
    assert len(theirs) >= len(model.program.ops)
    return ours
