"""Rewrites of a graph before it is lowered, one after another, each leaving a log of what it put together.

    fold-constants      ops whose inputs are all known: computed at load
    split-dequantize    a Dequantize that several ops read: one for each
    quantized           Dequantize, an op, an activation, Quantize: one integer op
    host-quantize       Quantize and Dequantize at the model's inputs and outputs: the host's
    fold-affine         Conv, then batch normalisation or a per-channel Mul/Add: folded into weight and bias
    cancel-transposes   two Transposes that undo each other: gone
    merge-transposes    two that don't: one
    attention           MatMul, scale, mask, Softmax, MatMul: one op
    layer-norm          (x - mean) / sqrt(var + eps), scaled and shifted: one op
    rms-norm            the same without the mean
    gelu                x/2 · (1 + erf(x/√2)), as exporters write it out; fast-gelu with tanh; swish with sigmoid
    conv-add-act        Conv, then a residual Add, then an activation: one op
    matmul-bias-act     MatMul or Gemm, then a bias, a residual Add, an activation: one op
    elementwise         elementwise ops of one shape that only feed each other: one op
    matmul-elementwise  such a chain (or a GELU) behind a matrix op that nothing else reads: joins it
    view                Reshape, Flatten, Dropout …: no work; kept with the op that makes its bytes

Each op of the model is in exactly one group afterwards, as an original. Groups never make a cycle: all
but the last of the ops of a group are read inside the group alone.
"""

from __future__ import annotations

from collections.abc import Callable

from traceconv.runtime.fusion.affine import fold_affine
from traceconv.runtime.fusion.attention import attention
from traceconv.runtime.fusion.elementwise import elementwise, matmul_elementwise
from traceconv.runtime.fusion.epilogue import conv_add_act, matmul_bias_act
from traceconv.runtime.fusion.gelu import gelus
from traceconv.runtime.fusion.grouping import FusedGraph, Group, finish
from traceconv.runtime.fusion.norms import norms
from traceconv.runtime.fusion.quantized import host_quantize, quantized, split_dequantize
from traceconv.runtime.fusion.state import Rewrite, State
from traceconv.runtime.fusion.transposes import transposes
from traceconv.runtime.graph import Graph

__all__ = ["PASSES", "FusedGraph", "Group", "Rewrite", "fuse"]

#: The passes, in the order in which they run: patterns of many ops before chains that would take them apart.
PASSES: tuple[Callable[[State], None], ...] = (
    split_dequantize,
    quantized,
    host_quantize,
    fold_affine,
    transposes,
    attention,
    norms,
    gelus,
    conv_add_act,
    matmul_bias_act,
    elementwise,
    matmul_elementwise,
)


def fuse(graph: Graph) -> FusedGraph:
    """Applies every pass, in order."""
    state = State.of(graph)
    for rewrite in PASSES:
        state.refresh()
        rewrite(state)
    return finish(state)
