"""Two small networks built with `onnx.helper`, identical on every machine.

They have the structure of real networks (residual blocks with batch normalization; attention and a feed-forward network
with GELU), but are small enough for samples and tests. Weights are integer hashes of a counter, so they do not depend
on the version of numpy.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from traceconv.base.arrays import NDArray

_OPSET = 17
_IR_VERSION = 8


class Builder:
    """Collects nodes and weights of one graph; `scope` is the module path at the start of a node's name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._count = 0
        self._names: dict[str, int] = {}

    def values(self, shape: tuple[int, ...], scale: float, center: float = 0.0) -> NDArray[np.float32]:
        """Return values that depend on the number of weights so far."""
        values = _uniform(len(self.weights), math.prod(shape)).reshape(shape) * scale + center
        return values.astype(np.float32)

    def weight(self, name: str, shape: tuple[int, ...], scale: float, center: float = 0.0) -> str:
        return self.constant(name, self.values(shape, scale, center))

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def number(self, name: str, value: float) -> str:
        return self.constant(name, np.array(value, np.float32))

    def node(
        self,
        op_type: str,
        scope: str,
        inputs: list[str],
        *,
        output: str | None = None,
        **attributes: int | float | str | list[int],
    ) -> str:
        self._count += 1
        output = output or f"t{self._count}"
        name = f"/{scope}/{op_type}"
        repeated = self._names[name] = self._names.get(name, -1) + 1
        node = helper.make_node(op_type, inputs, [output], name=f"{name}_{repeated}" if repeated else name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in sorted(attributes.items()))
        self.nodes.append(node)
        return output

    def dense(self, scope: str, x: str, n_in: int, n_out: int) -> str:
        x = self.node("MatMul", scope, [x, self.weight(f"{scope}.weight", (n_in, n_out), math.sqrt(3.0 / n_in))])
        return self.node("Add", scope, [x, self.weight(f"{scope}.bias", (n_out,), 0.1)])

    def heads_first(self, scope: str, x: str, split: str, order: list[int]) -> str:
        """Split the last axis into attention heads, and permute the axes."""
        return self.node("Transpose", scope, [self.node("Reshape", scope, [x, split])], perm=order)

    def graph(
        self, name: str, inputs: dict[str, tuple[int, list[int]]], outputs: dict[str, tuple[int, list[int | str]]]
    ) -> onnx.ModelProto:
        """Return the model; inputs and outputs are (element type, shape)."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(key, *value) for key, value in inputs.items()],
            [helper.make_tensor_value_info(key, *value) for key, value in outputs.items()],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR_VERSION
        model.producer_name = "traceconv"
        return model

    def model(self, name: str, inputs: dict[str, list[int]], result: str, shape: list[int]) -> onnx.ModelProto:
        self.node("Identity", "output", [result], output="output")
        return self.graph(
            name,
            {key: (TensorProto.FLOAT, extents) for key, extents in inputs.items()},
            {"output": (TensorProto.FLOAT, [*shape])},
        )


def _uniform(stream: int, count: int) -> NDArray[np.float64]:
    """Return `count` numbers in [-1, 1): the splitmix64 finaliser over a counter (Steele, Lea, Flood 2014)."""
    state = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 32)
    state *= np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    fractions: NDArray[np.float64] = (state >> np.uint64(11)).astype(np.float64) / float(1 << 52)
    return fractions - 1.0


def mini_resnet() -> onnx.ModelProto:
    """Return a residual network: stem, four blocks in two stages, pooling, a dense layer; input 1×3×64×64."""
    b = Builder()

    def conv(scope: str, x: str, c_in: int, c_out: int, k: int, stride: int, relu: bool) -> str:
        w = b.weight(f"{scope}.weight", (c_out, c_in, k, k), math.sqrt(3.0 / (c_in * k * k)))
        p = k // 2
        x = b.node("Conv", f"{scope}/conv", [x, w], strides=[stride, stride], pads=[p, p, p, p])
        norm = [
            b.weight(f"{scope}.bn.weight", (c_out,), 0.25, 1.0),
            b.weight(f"{scope}.bn.bias", (c_out,), 0.1),
            b.weight(f"{scope}.bn.mean", (c_out,), 0.1),
            b.weight(f"{scope}.bn.var", (c_out,), 0.4, 1.0),
        ]
        x = b.node("BatchNormalization", f"{scope}/bn", [x, *norm])
        return b.node("Relu", f"{scope}/relu", [x]) if relu else x

    x = conv("stem", "input", 3, 16, 7, 2, True)
    x = b.node("MaxPool", "stem/pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 16
    for stage, (width, stride) in enumerate(((16, 1), (32, 2))):
        for block in range(2):
            scope = f"layer{stage + 1}/{block}"
            step = stride if block == 0 else 1
            y = conv(f"{scope}/a", x, channels, width, 3, step, True)
            y = conv(f"{scope}/b", y, width, width, 3, 1, False)
            if channels != width:
                x = conv(f"{scope}/down", x, channels, width, 1, step, False)
            x = b.node("Relu", f"{scope}/relu", [b.node("Add", f"{scope}/add", [y, x])])
            channels = width
    x = b.node("GlobalAveragePool", "pool", [x])
    x = b.node("Flatten", "flatten", [x])
    w = b.weight("fc.weight", (channels, 10), math.sqrt(3.0 / channels))
    x = b.node("Gemm", "fc", [x, w, b.weight("fc.bias", (10,), 0.1)])
    x = b.node("Softmax", "softmax", [x], axis=-1)
    return b.model("mini_resnet", {"input": [1, 3, 64, 64]}, x, [1, 10])


def mini_transformer(layers: int = 2, tokens: int = 64, width: int = 64, heads: int = 4) -> onnx.ModelProto:
    """Return pre-norm transformer encoder blocks, with GELU composed of Erf; input 1×tokens×width."""
    b = Builder()
    head = width // heads
    split = b.constant("split_heads", np.array([0, tokens, heads, head], np.int64))
    join = b.constant("join_heads", np.array([0, tokens, width], np.int64))
    scale = b.number("scale", math.sqrt(head))
    root2, one, half = b.number("root2", math.sqrt(2.0)), b.number("one", 1.0), b.number("half", 0.5)

    def norm(scope: str, x: str) -> str:
        pair = [b.weight(f"{scope}.weight", (width,), 0.25, 1.0), b.weight(f"{scope}.bias", (width,), 0.1)]
        return b.node("LayerNormalization", scope, [x, *pair], axis=-1, epsilon=1e-5)

    def project(scope: str, x: str, order: list[int]) -> str:
        return b.heads_first(scope, b.dense(scope, x, width, width), split, order)

    x = "input"
    for layer in range(layers):
        s = f"layer{layer}"
        y = norm(f"{s}/attention_norm", x)
        q = project(f"{s}/attention/q", y, [0, 2, 1, 3])
        k = project(f"{s}/attention/k", y, [0, 2, 3, 1])
        v = project(f"{s}/attention/v", y, [0, 2, 1, 3])
        scores = b.node("Div", f"{s}/attention", [b.node("MatMul", f"{s}/attention/scores", [q, k]), scale])
        weights = b.node("Softmax", f"{s}/attention", [scores], axis=-1)
        y = b.node("MatMul", f"{s}/attention/context", [weights, v])
        y = b.node("Transpose", f"{s}/attention", [y], perm=[0, 2, 1, 3])
        y = b.node("Reshape", f"{s}/attention", [y, join])
        y = b.dense(f"{s}/attention/out", y, width, width)
        x = b.node("Add", f"{s}/attention_residual", [y, x])
        y = norm(f"{s}/ffn_norm", x)
        y = b.dense(f"{s}/ffn/up", y, width, 4 * width)
        g = b.node("Erf", f"{s}/ffn/gelu", [b.node("Div", f"{s}/ffn/gelu", [y, root2])])
        g = b.node("Add", f"{s}/ffn/gelu", [g, one])
        g = b.node("Mul", f"{s}/ffn/gelu", [b.node("Mul", f"{s}/ffn/gelu", [y, g]), half])
        y = b.dense(f"{s}/ffn/down", g, 4 * width, width)
        x = b.node("Add", f"{s}/ffn_residual", [y, x])
    x = norm("final_norm", x)
    return b.model("mini_transformer", {"input": [1, tokens, width]}, x, [1, tokens, width])
