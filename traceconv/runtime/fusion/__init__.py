"""Passes that rewrite a graph before it is lowered, in a fixed order. Each logs the ops that it joins.

    fold-constants      compute ops with constant inputs when the model is loaded
    split-dequantize    copy a Dequantize with several readers for each of them
    quantized           join Dequantize, an op, an activation and Quantize into one integer op
    host-quantize       run Quantize and Dequantize at the model's inputs and outputs on the host
    fold-affine         fold batch normalization or a per-channel Mul or Add into the weight and bias of a Conv
    cancel-transposes   remove two Transposes that undo each other
    merge-transposes    join two other Transposes in a row into one
    attention           join MatMul, scale, mask, Softmax and MatMul into one op
    layer-norm          join (x - mean) / sqrt(var + eps), scaled and shifted, into one op
    rms-norm            the same without the mean
    gelu                join x/2 · (1 + erf(x/√2)) into one op; fast-gelu: with tanh; swish: with sigmoid
    conv-add-act        join Conv, a residual Add and an activation
    matmul-bias-act     join MatMul or Gemm, a bias, a residual Add and an activation
    elementwise         join elementwise ops of one shape that only feed each other
    matmul-elementwise  join such a chain (or a GELU) with the matrix op before it, if nothing else reads that
    view                Reshape, Flatten, Dropout …: no work; in the group of the op that produces their bytes

In training, only rewrites that compute every value of the model apply: a fused op also writes the values that gradients
read. One is for training alone:

    norm-add-act        join batch normalization, or Dropout, with a residual Add and an activation

Afterwards each op of the model is in exactly one group, as an original. Groups never form a cycle: only the last op of
a group is read outside the group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from traceconv.runtime.fusion.affine import fold_affine
from traceconv.runtime.fusion.attention import attention
from traceconv.runtime.fusion.elementwise import elementwise, matmul_elementwise
from traceconv.runtime.fusion.epilogue import conv_add_act, matmul_bias_act, norm_add_act
from traceconv.runtime.fusion.gelu import gelus
from traceconv.runtime.fusion.grouping import FusedGraph, Group, finish
from traceconv.runtime.fusion.norms import norms
from traceconv.runtime.fusion.quantized import host_quantize, quantized, split_dequantize
from traceconv.runtime.fusion.state import Rewrite, State
from traceconv.runtime.fusion.transposes import transposes
from traceconv.runtime.graph import Graph

__all__ = ["BODY_PASSES", "PASSES", "TRAINING_PASSES", "FusedGraph", "Group", "Pass", "Rewrite", "fuse"]

Pass = Callable[[State], None]

#: The passes in order: patterns of many ops run before chains, which would split them.
PASSES: tuple[Pass, ...] = (
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

#: The passes for training. The others change weights or don't keep what gradients read.
TRAINING_PASSES: tuple[Pass, ...] = (
    norms,
    gelus,
    norm_add_act,
    conv_add_act,
    matmul_bias_act,
    elementwise,
    matmul_elementwise,
)

#: The passes for bodies of control flow, of which the host does no part.
BODY_PASSES: tuple[Pass, ...] = tuple(one for one in PASSES if one is not host_quantize)


def fuse(graph: Graph, passes: Sequence[Pass] = PASSES, trained: Collection[str] = ()) -> FusedGraph:
    """Apply the passes in order. `trained`: names of nodes that work differently in training."""
    state = State.of(graph, trained)
    for rewrite in passes:
        state.refresh()
        rewrite(state)
    return finish(state)
