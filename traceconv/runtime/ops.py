"""The device's traits of ONNX ops: name on the device, how it is computed, cost per element.

`vector_cycles` are cycles of the vector unit per full register, invented but plausible: an add takes one, a division or
an exponential several (`docs/explanation/cost-model.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from traceconv.runtime.graph import Node


class OpKind(Enum):
    """How the device computes an op."""

    MATRIX = "matrix"  # the cube: multiply-accumulate
    ELEMENTWISE = "elementwise"  # the vector unit, element by element
    REDUCE = "reduce"  # the vector unit, passes over all input elements
    WINDOW = "window"  # the vector unit, a window of the input for each output element
    MOVE = "move"  # no arithmetic: data is moved
    VIEW = "view"  # no work: the same bytes in another shape
    SCALAR = "scalar"  # the AI CPU: irregular work


@dataclass(frozen=True, slots=True)
class OpTraits:
    """`device_type` is the op's name in the log; `flops` are operations per element."""

    device_type: str
    kind: OpKind
    vector_cycles: int = 1
    flops: int = 1


#: Kind → ONNX op → (name on the device, vector cycles, flops).
_TABLE: dict[OpKind, dict[str, tuple[str, int, int]]] = {
    OpKind.MATRIX: {
        "Conv": ("Conv2D", 0, 2),
        "ConvInteger": ("QuantConv2D", 0, 2),
        "ConvTranspose": ("Conv2DTranspose", 0, 2),
        "Gemm": ("MatMulV2", 0, 2),
        "MatMul": ("MatMulV2", 0, 2),
        "MatMulInteger": ("QuantMatMulV2", 0, 2),
        "QLinearConv": ("QuantConv2D", 0, 2),
        "QLinearMatMul": ("QuantMatMulV2", 0, 2),
    },
    OpKind.ELEMENTWISE: {
        "Abs": ("Abs", 1, 1),
        "Add": ("Add", 1, 1),
        "And": ("LogicalAnd", 1, 1),
        "BatchNormalization": ("BNInfer", 2, 2),
        "Cast": ("Cast", 1, 0),
        "Ceil": ("Ceil", 1, 1),
        "Clip": ("ClipByValueV2", 2, 2),
        "Cos": ("Cos", 12, 1),
        "DequantizeLinear": ("AscendDequant", 2, 2),
        "Div": ("RealDiv", 4, 1),
        "Elu": ("Elu", 8, 3),
        "Equal": ("Equal", 1, 1),
        "Erf": ("Erf", 12, 1),
        "Exp": ("Exp", 6, 1),
        "FastGelu": ("FastGelu", 14, 8),
        "Floor": ("Floor", 1, 1),
        "Gelu": ("Gelu", 16, 5),
        "Greater": ("Greater", 1, 1),
        "GreaterOrEqual": ("GreaterEqual", 1, 1),
        "HardSigmoid": ("HardSigmoid", 3, 3),
        "HardSwish": ("HardSwish", 4, 4),
        "IsNaN": ("IsNan", 1, 1),
        "LeakyRelu": ("LeakyRelu", 2, 2),
        "Less": ("Less", 1, 1),
        "LessOrEqual": ("LessEqual", 1, 1),
        "Log": ("Log", 6, 1),
        "Max": ("Maximum", 1, 1),
        "Min": ("Minimum", 1, 1),
        "Mish": ("Mish", 18, 4),
        "Mod": ("FloorMod", 5, 1),
        "Mul": ("Mul", 1, 1),
        "Neg": ("Neg", 1, 1),
        "Not": ("LogicalNot", 1, 1),
        "Or": ("LogicalOr", 1, 1),
        "PRelu": ("PRelu", 2, 2),
        "Pow": ("Pow", 12, 1),
        "QuantizeLinear": ("AscendQuant", 3, 3),
        "Reciprocal": ("Reciprocal", 4, 1),
        "Relu": ("Relu", 1, 1),
        "Round": ("Round", 1, 1),
        "Selu": ("Selu", 8, 3),
        "Sigmoid": ("Sigmoid", 10, 3),
        "Sign": ("Sign", 2, 1),
        "Sin": ("Sin", 12, 1),
        "Softplus": ("Softplus", 12, 3),
        "Softsign": ("Softsign", 6, 3),
        "Sqrt": ("Sqrt", 4, 1),
        "Sub": ("Sub", 1, 1),
        "Sum": ("AddN", 1, 1),
        "Tanh": ("Tanh", 10, 4),
        "ThresholdedRelu": ("ThresholdedReluV2", 2, 1),
        "Where": ("SelectV2", 2, 1),
    },
    OpKind.REDUCE: {
        "ArgMax": ("ArgMaxV2", 4, 1),
        "ArgMin": ("ArgMin", 4, 1),
        "CumSum": ("Cumsum", 4, 1),
        "GlobalAveragePool": ("GlobalAveragePool", 1, 1),
        "GlobalMaxPool": ("GlobalMaxPool", 1, 1),
        "GroupNormalization": ("GroupNorm", 8, 8),
        "InstanceNormalization": ("InstanceNorm", 8, 8),
        "LayerNormalization": ("LayerNormV3", 8, 8),
        "LogSoftmax": ("LogSoftmaxV2", 14, 5),
        "LpNormalization": ("LpNorm", 6, 3),
        "RMSNormalization": ("RmsNorm", 6, 5),
        "ReduceL1": ("ReduceL1", 2, 2),
        "ReduceL2": ("ReduceL2", 2, 2),
        "ReduceLogSumExp": ("ReduceLogSumExp", 8, 3),
        "ReduceMax": ("ReduceMaxD", 1, 1),
        "ReduceMean": ("ReduceMeanD", 1, 1),
        "ReduceMin": ("ReduceMinD", 1, 1),
        "ReduceProd": ("ReduceProdD", 1, 1),
        "ReduceSum": ("ReduceSumD", 1, 1),
        "ReduceSumSquare": ("SquareSumV1", 2, 2),
        "SimplifiedLayerNormalization": ("RmsNorm", 6, 5),
        "SkipLayerNormalization": ("AddLayerNorm", 9, 9),
        "Softmax": ("SoftmaxV2", 12, 5),
    },
    OpKind.WINDOW: {
        "AveragePool": ("AvgPoolV2", 1, 1),
        "LRN": ("LRN", 2, 2),
        "LpPool": ("LpPool", 2, 2),
        "MaxPool": ("MaxPoolV3", 1, 1),
    },
    OpKind.MOVE: {
        "Concat": ("ConcatD", 0, 0),
        "DepthToSpace": ("DepthToSpace", 0, 0),
        "Expand": ("BroadcastTo", 0, 0),
        "Gather": ("GatherV2", 0, 0),
        "GatherElements": ("GatherElements", 0, 0),
        "Pad": ("PadV3", 0, 0),
        "Resize": ("Resize", 0, 0),
        "Slice": ("StridedSliceV2", 0, 0),
        "SpaceToDepth": ("SpaceToDepth", 0, 0),
        "Split": ("SplitV", 0, 0),
        "Tile": ("TileD", 0, 0),
        "Transpose": ("Transpose", 0, 0),
        "Trilu": ("Trilu", 0, 0),
        "Upsample": ("Resize", 0, 0),
    },
    OpKind.VIEW: {
        "Dropout": ("Identity", 0, 0),
        "Flatten": ("Reshape", 0, 0),
        "Identity": ("Identity", 0, 0),
        "Reshape": ("Reshape", 0, 0),
        "Squeeze": ("Reshape", 0, 0),
        "Unsqueeze": ("Reshape", 0, 0),
    },
}
TRAITS = {
    name: OpTraits(device_type, kind, cycles, flops)
    for kind, entries in _TABLE.items()
    for name, (device_type, cycles, flops) in entries.items()
}

#: Traits of groups of nodes. For attention, cycles and flops are those of its softmax, per score.
KINDS: dict[str, OpTraits] = {
    "attention": OpTraits("FlashAttentionScore", OpKind.MATRIX, 12, 5),
    "fast-gelu": TRAITS["FastGelu"],
    "gelu": TRAITS["Gelu"],
    "layer-norm": TRAITS["LayerNormalization"],
    "rms-norm": TRAITS["RMSNormalization"],
    "swish": OpTraits("Swish", OpKind.ELEMENTWISE, 11, 4),
}

#: Integer matrix ops → index of the right operand among the inputs.
INTEGER_MATRIX = {"ConvInteger": 1, "MatMulInteger": 1, "QLinearConv": 3, "QLinearMatMul": 3}

#: Activations that fixpipe applies to the cube's results, without the vector cores.
FIXPIPE_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "PRelu"})

#: Ops that may follow a matrix op inside one fused op.
ACTIVATIONS = FIXPIPE_ACTIVATIONS | frozenset(
    {"Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Mish", "Selu", "Sigmoid", "Softplus", "Tanh"}
)


def traits_of(node: Node) -> OpTraits:
    """Return the traits of a node; an op that is not in the table runs on the AI CPU under its ONNX name."""
    return TRAITS.get(node.op_type) or OpTraits(node.op_type, OpKind.SCALAR)
