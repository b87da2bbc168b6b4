"""The onnx package's networks with random weights from a seed: their own weights are constant, which hides errors.

Scales keep values tame: convolutions by their fan-in, normalisation near one, and what is added to a
residual path small, or it would grow from block to block until the softmax saturates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper


def seeded(
    proto: onnx.ModelProto, seed: int, *, size: int = 224, swap: Mapping[int, int] | None = None
) -> onnx.ModelProto:
    """The same graph with seeded weights, for images of size × size.

    `swap` replaces extents wherever a weight or a Reshape states them: dense layers depend on the image's size.
    """
    random = np.random.default_rng(seed)
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    del changed.graph.value_info[:]
    for entry in changed.graph.input:
        dims = entry.type.tensor_type.shape.dim
        if len(dims) == 4 and dims[2].dim_value == 224:
            dims[2].dim_value = dims[3].dim_value = size
    for entry in changed.graph.initializer:
        if entry.data_type == onnx.TensorProto.INT64:
            values = numpy_helper.to_array(entry)
            swapped = np.array([(swap or {}).get(int(v), int(v)) for v in values.reshape(-1)], np.int64)
            entry.CopyFrom(numpy_helper.from_array(swapped.reshape(values.shape), entry.name))
    for entry in changed.graph.output:  # shapes of other sizes are inferred
        entry.type.tensor_type.ClearField("shape")
    shapes = {entry.name: numpy_helper.to_array(entry) for entry in changed.graph.initializer}
    roles = _roles(changed)
    for node in changed.graph.node:
        if node.op_type == "ConstantOfShape":
            values = _values(roles.get(node.output[0], "weight"), tuple(int(v) for v in shapes[node.input[0]]), random)
            node.op_type = "Constant"
            del node.input[:], node.attribute[:]
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values.astype(np.float32))))
    return changed


def _roles(proto: onnx.ModelProto) -> dict[str, str]:
    """Constant → what it is for: scale, branch_scale, shift or variance; anything else is a weight or bias."""
    roles: dict[str, str] = {}
    source = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type == "Unsqueeze"}
    added = {name for node in proto.graph.node if node.op_type == "Sum" for name in node.input}
    for node in proto.graph.node:
        if node.op_type == "BatchNormalization":
            scale = "branch_scale" if node.output[0] in added else "scale"
            roles.update(zip(node.input[1:], (scale, "shift", "shift", "variance"), strict=True))
        elif node.op_type in ("Mul", "Add"):
            name = node.input[1]
            while name in source:
                name = source[name]
            roles[name] = "scale" if node.op_type == "Mul" else "shift"
    return roles


def _values(role: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if role in ("scale", "variance"):
        return random.uniform(0.7, 1.3, shape)
    if role == "branch_scale":
        return random.uniform(0.1, 0.4, shape)
    if role == "shift" or len(shape) < 2:
        return random.standard_normal(shape) * 0.1
    values = random.standard_normal(shape, dtype=np.float32)
    # What a filter answers to is how its window varies: else every image would end in much the same place,
    # since after a rectifier all values are positive.
    values -= values.mean(axis=tuple(range(1, len(shape))), keepdims=True)
    values *= np.sqrt(2.0 / np.prod(shape[1:]))
    return values


def image(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Noise over patches of one colour: two images of noise alone have the same averages, and get the same answers."""
    random = np.random.default_rng(seed)
    batch, channels, height, width = shape
    patches = random.standard_normal((batch, channels, 4, 4)).repeat(-(-height // 4), 2).repeat(-(-width // 4), 3)
    noise = random.standard_normal(shape)
    return (patches[:, :, :height, :width] + 0.5 * noise).astype(np.float32)
