"""Small networks of other kinds: a decoder, a detector, an LSTM, 8-bit integers, 16-bit floats (fp16, bfloat16).

Each exercises a runtime in its own way: masks and norms composed of small ops, a data-dependent number of boxes,
recurrence, Quantize and Dequantize between ops, half precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from traceconv.runtime.bfloat16 import BF16, tensor_of
from traceconv.runtime.reference_models import Builder, mini_transformer


def mini_half() -> onnx.ModelProto:
    """Return the transformer encoder in fp16."""
    return _encoder("mini_half", TensorProto.FLOAT16, np.dtype(np.float16))


def mini_bf16() -> onnx.ModelProto:
    """Return the transformer encoder in bfloat16."""
    return _encoder("mini_bf16", TensorProto.BFLOAT16, BF16)


def _encoder(name: str, elem_type: int, dtype: np.dtype[Any]) -> onnx.ModelProto:
    model = mini_transformer(layers=1)
    model.graph.name = name
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            weight.CopyFrom(tensor_of(numpy_helper.to_array(weight).astype(dtype), weight.name))
    for entry in (*model.graph.input, *model.graph.output):
        entry.type.tensor_type.elem_type = elem_type
    return model


def mini_lstm(steps: int = 20, width: int = 24, hidden: int = 32) -> onnx.ModelProto:
    """Return a bidirectional LSTM over steps × 1 × width, followed by a dense layer per step."""
    b = Builder()
    size = 1 / math.sqrt(hidden)
    w = b.weight("lstm.w", (2, 4 * hidden, width), size)
    r = b.weight("lstm.r", (2, 4 * hidden, hidden), size)
    bias = b.weight("lstm.b", (2, 8 * hidden), size)
    x = b.node("LSTM", "lstm", ["input", w, r, bias], hidden_size=hidden, direction="bidirectional")
    x = b.node("Transpose", "merge", [x], perm=[0, 2, 1, 3])
    x = b.node("Reshape", "merge", [x, b.constant("merge", np.array([steps, 1, 2 * hidden], np.int64))])
    x = b.node("MatMul", "dense", [x, b.weight("dense.weight", (2 * hidden, 8), math.sqrt(1.5 / hidden))])
    x = b.node("Add", "dense", [x, b.weight("dense.bias", (8,), 0.1)])
    x = b.node("LogSoftmax", "scores", [x], axis=-1)
    return b.model("mini_lstm", {"input": [steps, 1, width]}, x, [steps, 1, 8])


def mini_decoder(
    tokens: int = 32, memory: int = 16, width: int = 48, heads: int = 4, words: int = 96
) -> onnx.ModelProto:
    """Return a decoder block over token ids: causal and cross attention, GELU by tanh, norms in small ops."""
    b = Builder()
    head = width // heads
    scale = b.number("scale", 1 / math.sqrt(head))
    split = b.constant("split_heads", np.array([0, -1, heads, head], np.int64))
    join = b.constant("join_heads", np.array([0, -1, width], np.int64))
    eps, two, three = b.number("eps", 1e-5), b.number("two", 2.0), b.number("three", 3.0)
    cubic = b.number("cubic", 0.044715)
    root, one, half = b.number("root", math.sqrt(2 / math.pi)), b.number("one", 1.0), b.number("half", 0.5)
    mask = np.triu(np.full((tokens, tokens), -1e4, np.float32), 1)
    causal = b.constant("causal_mask", mask.reshape(1, 1, tokens, tokens))

    def norm(scope: str, x: str) -> str:
        centred = b.node("Sub", scope, [x, b.node("ReduceMean", scope, [x], axes=[-1], keepdims=1)])
        variance = b.node("ReduceMean", scope, [b.node("Pow", scope, [centred, two])], axes=[-1], keepdims=1)
        deviation = b.node("Sqrt", scope, [b.node("Add", scope, [variance, eps])])
        scaled = b.node("Div", scope, [centred, deviation])
        scaled = b.node("Mul", scope, [scaled, b.weight(f"{scope}.g", (width,), 0.2, 1.0)])
        return b.node("Add", scope, [scaled, b.weight(f"{scope}.b", (width,), 0.1)])

    def attend(scope: str, x: str, other: str, mask_name: str | None) -> str:
        def project(name: str, source: str, order: list[int]) -> str:
            return b.heads_first(name, b.dense(name, source, width, width), split, order)

        q = project(f"{scope}/q", x, [0, 2, 1, 3])
        k = project(f"{scope}/k", other, [0, 2, 3, 1])
        v = project(f"{scope}/v", other, [0, 2, 1, 3])
        scores = b.node("Mul", scope, [b.node("MatMul", f"{scope}/scores", [q, k]), scale])
        if mask_name is not None:
            scores = b.node("Add", scope, [scores, mask_name])
        y = b.node("MatMul", f"{scope}/context", [b.node("Softmax", scope, [scores], axis=-1), v])
        y = b.node("Reshape", scope, [b.node("Transpose", scope, [y], perm=[0, 2, 1, 3]), join])
        return b.dense(f"{scope}/out", y, width, width)

    def gelu(scope: str, x: str) -> str:
        bent = b.node("Mul", scope, [b.node("Pow", scope, [x, three]), cubic])
        inner = b.node("Mul", scope, [b.node("Add", scope, [x, bent]), root])
        gate = b.node("Add", scope, [b.node("Tanh", scope, [inner]), one])
        return b.node("Mul", scope, [b.node("Mul", scope, [x, half]), gate])

    x = b.node("Gather", "embed", [b.weight("words", (words, width), 1.0), "ids"], axis=0)
    x = b.node("Add", "embed", [x, b.weight("positions", (1, tokens, width), 0.2)])
    y = norm("self_norm", x)
    x = b.node("Add", "self_residual", [attend("self", y, y, causal), x])
    x = b.node("Add", "cross_residual", [attend("cross", norm("cross_norm", x), "memory", None), x])
    y = gelu("ffn/gelu", b.dense("ffn/up", norm("ffn_norm", x), width, 4 * width))
    x = b.node("Add", "ffn_residual", [b.dense("ffn/down", y, 4 * width, width), x])
    x = b.node("MatMul", "logits", [norm("final_norm", x), b.weight("logits.weight", (width, words), 0.2)])
    b.node("Identity", "output", [x], output="logits")
    return b.graph(
        "mini_decoder",
        {"ids": (TensorProto.INT64, [1, tokens]), "memory": (TensorProto.FLOAT, [1, memory, width])},
        {"logits": (TensorProto.FLOAT, [1, tokens, words])},
    )


def mini_detector(classes: int = 3) -> onnx.ModelProto:
    """Return a one-stage detector: convolutions with SiLU, a head for boxes and scores, non-maximum suppression.

    The number of boxes depends on the image.
    """
    b = Builder()

    def conv(scope: str, x: str, c_in: int, c_out: int, k: int, stride: int, *, act: bool = True) -> str:
        w = b.weight(f"{scope}.weight", (c_out, c_in, k, k), math.sqrt(6.0 / (c_in * k * k)))
        pads = [k // 2] * 4
        x = b.node("Conv", scope, [x, w, b.weight(f"{scope}.bias", (c_out,), 0.1)], strides=[stride] * 2, pads=pads)
        return b.node("Mul", scope, [x, b.node("Sigmoid", scope, [x])]) if act else x

    x = conv("stem", "image", 3, 12, 3, 2)
    x = conv("stage1", x, 12, 24, 3, 2)
    x = conv("stage2", x, 24, 24, 3, 2)
    # Per cell: centre, width and height, then a score per class.
    head = conv("head", x, 24, 4 + classes, 1, 1, act=False)
    cells = 8 * 8
    flat = b.node("Reshape", "decode", [head, b.constant("flat", np.array([1, 4 + classes, cells], np.int64))])
    cut = b.constant("cut", np.array([2, 2, classes], np.int64))
    b.node("Split", "decode", [flat, cut], axis=1)
    split = b.nodes[-1]
    split.output.extend(["sizes_raw", "scores_raw"])
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8))).reshape(1, 2, cells).astype(np.float32) * 8 + 4
    offset = b.node("Tanh", "decode", [split.output[0]])
    centre = b.node("Add", "decode", [offset, b.constant("grid", grid)])
    size = b.node("Mul", "decode", [b.node("Sigmoid", "decode/size", ["sizes_raw"]), b.number("most", 24)])
    boxes = b.node("Concat", "decode", [centre, size], axis=1)
    boxes = b.node("Transpose", "decode", [boxes], perm=[0, 2, 1])
    scores = b.node("Sigmoid", "decode/scores", ["scores_raw"])
    limits = [
        b.constant("most_boxes", np.array([10], np.int64)),
        b.constant("iou", np.array([0.4], np.float32)),
        b.constant("least_score", np.array([0.85], np.float32)),
    ]
    chosen = b.node("NonMaxSuppression", "suppress", [boxes, scores, *limits], center_point_box=1)
    which = b.node("Gather", "select", [chosen, b.constant("box_column", np.array(2, np.int64))], axis=1)
    found = b.node("Gather", "select", [boxes, which], axis=1)
    for source, name in ((chosen, "selected"), (found, "boxes")):
        b.node("Identity", f"output/{name}", [source], output=name)
    return b.graph(
        "mini_detector",
        {"image": (TensorProto.FLOAT, [1, 3, 64, 64])},
        {"selected": (TensorProto.INT64, ["found", 3]), "boxes": (TensorProto.FLOAT, [1, "found", 4])},
    )


def mini_quantized() -> onnx.ModelProto:
    """Return a residual network in 8-bit integers as quantisers write it: Quantize and Dequantize around every op."""
    b = Builder()

    def step(scope: str, x: str, scale: float, zero: int, output: str | None = None) -> str:
        """Convert x to integers, and back to floats."""
        pair = [
            b.number(f"{scope}.scale{len(b.weights)}", scale),
            b.constant(f"{scope}.zero{len(b.weights)}", np.array(zero, np.uint8)),
        ]
        return b.node("DequantizeLinear", scope, [b.node("QuantizeLinear", scope, [x, *pair]), *pair], output=output)

    def weight(scope: str, shape: tuple[int, ...], size: float) -> str:
        """Return integer weights with a scale per output channel."""
        values = b.values(shape, size)
        scales = np.abs(values).reshape(shape[0], -1).max(axis=1) / np.float32(127)
        rounded = np.round(values / scales.reshape((-1,) + (1,) * (len(shape) - 1))).astype(np.int8)
        names = [
            b.constant(f"{scope}.weight", rounded),
            b.constant(f"{scope}.scale", scales.astype(np.float32)),
            b.constant(f"{scope}.zero", np.zeros(shape[0], np.int8)),
        ]
        return b.node("DequantizeLinear", f"{scope}/weight", names, axis=0)

    def conv(scope: str, x: str, c_in: int, c_out: int, stride: int, *, relu: bool) -> str:
        w = weight(scope, (c_out, c_in, 3, 3), math.sqrt(6.0 / (c_in * 9)))
        bias = b.weight(f"{scope}.bias", (c_out,), 0.1)
        x = b.node("Conv", scope, [x, w, bias], strides=[stride] * 2, pads=[1, 1, 1, 1])
        x = b.node("Relu", scope, [x]) if relu else x
        return step(scope, x, 0.05, 0 if relu else 128)

    x = step("input", "input", 0.05, 128)
    x = conv("stem", x, 3, 16, 2, relu=True)
    y = conv("block/a", x, 16, 16, 1, relu=True)
    y = conv("block/b", y, 16, 16, 1, relu=False)
    y = b.node("Relu", "block", [b.node("Add", "block", [y, x])])
    x = step("block", y, 0.06, 0)
    x = step("pool", b.node("GlobalAveragePool", "pool", [x]), 0.03, 0)
    x = step("flat", b.node("Flatten", "flat", [x]), 0.03, 0)
    names = [
        b.constant("fc.weight", np.round(b.values((16, 10), math.sqrt(3.0 / 16)) * 127).astype(np.int8)),
        b.number("fc.scale", 1 / 127),
        b.constant("fc.zero", np.array(0, np.int8)),
    ]
    x = b.node("MatMul", "fc", [x, b.node("DequantizeLinear", "fc/weight", names)])
    step("output", x, 0.03, 128, "output")
    return b.graph(
        "mini_quantized",
        {"input": (TensorProto.FLOAT, [1, 3, 32, 32])},
        {"output": (TensorProto.FLOAT, [1, 10])},
    )
