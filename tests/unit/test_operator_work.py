"""The formulas of operators, on shapes whose work is worked out by hand."""

from __future__ import annotations

import json
import random
from math import ceil, floor, prod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from traceconv.normalize.operators.described import described
from traceconv.normalize.operators.registry import names_with_formula, work_of
from traceconv.normalize.operators.work import Work

BF16, FP32, HALF, LONG, FP8 = "c10::BFloat16", "float", "c10::Half", "long int", "c10::Float8_e4m3fn"


def work(name: str, *arguments: object, values: bool = True) -> Work | None:
    """The work of a call: tensors are (shape, type), lists of them lists of shapes, others their values as text."""
    dims = [argument[0] if isinstance(argument, tuple) else argument if isinstance(argument, list) else []
            for argument in arguments]  # fmt: skip
    types = [argument[1] if isinstance(argument, tuple) else "TensorList" if isinstance(argument, list)
             else "Scalar" if argument else "" for argument in arguments]  # fmt: skip
    texts = ["" if isinstance(argument, (tuple, list)) else argument or "" for argument in arguments]
    return work_of(name, json.dumps(dims), json.dumps(types), json.dumps(texts) if values else None)


def numbers(found: Work | None) -> tuple[int | None, int | None, int | None]:
    assert found is not None
    return found.flops, found.read_bytes, found.write_bytes


def test_matrix_products() -> None:
    # 2 · 3 · 5 · 4 operations; 3 · 4 and 4 · 5 elements in, 3 · 5 out
    mm = work("aten::mm", ([3, 4], BF16), ([4, 5], BF16))
    assert mm == Work("gemm", "bf16 matrix", 120, 24 + 40, 30)
    # and 15 additions of a bias of 5 elements
    addmm = work("aten::addmm", ([5], FP32), ([3, 4], FP32), ([4, 5], FP32), "1", "1")
    assert addmm == Work("gemm", "fp32 matrix", 135, 4 * (5 + 12 + 20), 60)
    # beta = 0: the bias is not read
    assert numbers(work("aten::addmm", ([5], FP32), ([3, 4], FP32), ([4, 5], FP32), "0", "1")) == (120, 128, 60)
    assert numbers(work("aten::bmm", ([7, 3, 4], HALF), ([7, 4, 5], HALF))) == (840, 7 * 64, 7 * 30)
    baddbmm = work("aten::baddbmm", ([7, 3, 5], HALF), ([7, 3, 4], HALF), ([7, 4, 5], HALF), "1", "1")
    assert numbers(baddbmm) == (840 + 105, 7 * 94, 7 * 30)
    assert numbers(work("aten::mv", ([3, 4], FP32), ([4], FP32))) == (24, 64, 12)
    assert numbers(work("aten::addmv", ([3], FP32), ([3, 4], FP32), ([4], FP32), "1", "1")) == (27, 76, 12)
    assert numbers(work("aten::dot", ([4], FP32), ([4], FP32))) == (8, 32, 4)
    assert work("aten::mm", ([3, 4], "BFloat16"), ([4, 5], "BFloat16")) == mm
    assert numbers(work("aten::_int_mm", ([3, 4], "signed char"), ([4, 5], "signed char"))) == (120, 32, 60)


def test_products_of_any_rank_are_composite() -> None:
    linear = work("aten::linear", ([2, 3, 4], BF16), ([5, 4], BF16), ([5], BF16))
    assert linear == Work("gemm", "bf16 matrix", 2 * 2 * 3 * 4 * 5 + 30, 48 + 40 + 10, 60, is_composite=True)
    # 6 batches by broadcasting: 2 · 3
    matmul = work("aten::matmul", ([2, 1, 3, 4], BF16), ([3, 4, 5], BF16))
    assert matmul == Work("gemm", "bf16 matrix", 6 * 120, 48 + 120, 6 * 30, is_composite=True)
    assert numbers(work("aten::matmul", ([4], BF16), ([4, 5], BF16))) == (40, 48, 10)


def test_scaled_products() -> None:
    arguments = [([32, 64], FP8), ([64, 16], FP8), ([], FP32), ([], FP32)]
    recent = work("aten::_scaled_mm", *arguments, ([16], BF16), None, "15", "True")
    assert recent == Work("gemm", "fp8 matrix", 2 * 32 * 64 * 16 + 512, 2048 + 1024 + 32, 1024)
    # The type of the result is unknown.
    older = work("aten::_scaled_mm", *arguments[:2], None, "15", *arguments[2:], None, "True")
    assert older == Work("gemm", "fp8 matrix", 65_536, 3072, None)
    into = work("_C::cutlass_scaled_mm", ([32, 16], BF16), *arguments, None)
    assert into == Work("gemm", "fp8 matrix", 65_536, 3072, 1024)
    te = [([16, 64], FP8), None, "0", "0", "1", ([32, 64], FP8), None, "0", "0", "0", ([32, 16], BF16)]
    assert numbers(work("tex_ts::te_gemm_ts", *te)) == (65_536, 3072, 1024)


def test_scalars_of_older_versions_are_not_tensors() -> None:
    """PyTorch 1.9 records the kind of a scalar as its type; a tensor without dimensions has the C++ name: int."""
    assert numbers(work("aten::clamp_min", ([3, 4], FP32), ([], "Int"))) == (12, 48, 48)
    assert numbers(work("aten::mul", ([3, 4], FP32), ([], "Double"))) == (12, 48, 48)
    assert numbers(work("aten::mul", ([3, 4], FP32), ([], "double"))) == (12, 48 + 8, 48)
    # A floating-point scalar makes the result of integers fp32, not fp64 as a tensor does.
    assert numbers(work("aten::mul", ([3, 4], LONG), ([], "Double"))) == (12, 96, None)
    assert numbers(work("aten::div", ([3, 4], LONG), ([], "Int"))) == (12, 96, 48)


def test_mismatched_shapes_are_unknown() -> None:
    assert work("aten::mm", ([3, 4], BF16), ([5, 4], BF16)) is None
    assert work("aten::bmm", ([7, 3, 4], BF16), ([1, 4, 5], BF16)) is None
    assert work("aten::linear", ([3, 4], BF16), ([5, 3], BF16)) is None
    assert work("_C::cutlass_scaled_mm", ([2, 3], BF16), ([2, 4], FP8), ([], FP8)) is None
    mixed = work("aten::mm", ([3, 4], BF16), ([4, 5], FP32))
    assert mixed == Work("gemm", None, 120, 24 + 80, None)


CONVOLUTION = ["[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]


def test_convolutions() -> None:
    # Height and width: (224 + 2 · 3 − 6 − 1) // 2 + 1 = 112
    first = work("aten::convolution", ([32, 3, 224, 224], FP32), ([64, 3, 7, 7], FP32), None, *CONVOLUTION)
    out = 32 * 64 * 112 * 112
    assert numbers(first) == (2 * out * 3 * 7 * 7, 4 * (32 * 3 * 224 * 224 + 64 * 3 * 7 * 7), 4 * out)
    # Two groups: each filter sees half of the channels. The bias is added by another kernel, but read.
    grouped = work(
        "aten::convolution",
        ([1, 8, 10], FP32),
        ([6, 4, 3], FP32),
        ([6], FP32),
        "[1]",
        "[1]",
        "[1]",
        "False",
        "[0]",
        "2",
    )
    assert numbers(grouped) == (2 * 60 * 4 * 3, 4 * (80 + 72 + 6), 240)
    # Transposed: each of 5 · 4 inputs is multiplied with 3 · 2 filters; length (4 − 1) · 2 − 2 + 3 − 1 + 1 + 1 = 8.
    turned = work(
        "aten::convolution", ([1, 5, 4], FP32), ([5, 3, 3], FP32), None, "[2]", "[1]", "[1]", "True", "[1]", "1"
    )
    assert numbers(turned) == (2 * 20 * 3 * 3, 4 * (20 + 45), 4 * 3 * 8)
    dilated = work(
        "aten::convolution", ([1, 1, 9, 9], FP32), ([1, 1, 3, 3], FP32), None, "[1]", "[0]", "[2]", "False", "[0]", "1"
    )
    assert numbers(dilated) == (2 * 25 * 9, 4 * 90, 100)


def test_a_convolution_needs_its_stride() -> None:
    arguments = [([32, 3, 224, 224], FP32), ([64, 3, 7, 7], FP32), None, *CONVOLUTION]
    assert work("aten::convolution", *arguments, values=False) is None
    assert work("aten::convolution", *arguments[:3], "[0, 0]", *arguments[4:]) is None
    assert work("aten::convolution", *arguments[:8], "2") is None


def test_convolution_backward_counts_the_gradients_that_are_wanted() -> None:
    gradient, x, weight = ([2, 6, 8, 8], FP32), ([2, 4, 8, 8], FP32), ([6, 4, 3, 3], FP32)
    one = 2 * (2 * 6 * 8 * 8) * 4 * 9
    rest = [None, "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    both = work("aten::convolution_backward", gradient, x, weight, *rest, "[True, True, True]")
    assert numbers(both) == (2 * one, 4 * (768 + 512 + 216), 4 * (512 + 216 + 6))
    first_layer = work("aten::convolution_backward", gradient, x, weight, *rest, "[False, True, False]")
    assert numbers(first_layer) == (one, 4 * (768 + 512), 4 * 216)
    assert work("aten::convolution_backward", gradient, x, weight, *rest, values=False) is None
    old = work("aten::cudnn_convolution_backward_input", None, gradient, weight, values=False)
    assert numbers(old) == (one, 4 * (768 + 216), None)


def test_attention() -> None:
    q, k, v = ([2, 8, 16, 4], BF16), ([2, 8, 16, 4], BF16), ([2, 8, 16, 6], BF16)
    pairs = 2 * 8 * 16 * 16
    flash = work("aten::_scaled_dot_product_flash_attention", q, k, v, "0.", "False", "False", None)
    assert flash == Work("attention", "bf16 matrix", 2 * pairs * (4 + 6), 2 * (1024 + 1024 + 1536), 2 * 1536, True)
    causal = work("aten::_scaled_dot_product_flash_attention", q, k, v, "0.", "True", "False", None)
    assert numbers(causal)[0] == pairs * 10
    bias = ([2, 8, 16, 16], BF16)
    efficient = work("aten::_scaled_dot_product_efficient_attention", q, k, v, bias, "True", "0.", "True", None)
    assert numbers(efficient) == (pairs * 10, 2 * (1024 + 1024 + 1536 + 4096), 2 * 1536)
    # Grouped queries: 2 heads of keys and values for 8 of queries
    few = ([2, 2, 16, 4], BF16)
    grouped = work("aten::_scaled_dot_product_cudnn_attention", q, few, few, None, "True", "0.", "False", "False")
    assert numbers(grouped) == (2 * pairs * 8, 2 * (1024 + 256 + 256), 2 * 1024)


def test_attention_with_the_sequence_before_the_heads() -> None:
    q = ([2, 16, 8, 4], HALF)
    rest = ["0.0", "0.5", "True"]
    assert numbers(work("flash_attn::_flash_attn_forward", q, q, q, *rest, "-1", "-1"))[0] == 2 * 8 * 256 * 8
    # A causal mask is a window without a right side; a shorter window is not counted.
    assert numbers(work("flash_attn::_flash_attn_forward", q, q, q, *rest, "-1", "0"))[0] == 2 * 8 * 256 * 8
    assert numbers(work("flash_attn::_flash_attn_forward", q, q, q, *rest, "4", "0"))[0] is None
    assert numbers(work("aiter::mha_fwd", q, q, q, *rest, "-1", "-1"))[0] == 2 * 8 * 256 * 8


def test_attention_backward_has_five_products() -> None:
    q, lse = ([2, 8, 16, 4], BF16), ([2, 8, 16], FP32)
    rest = [None, None, "16", "16", "0.", "False"]
    backward = work("aten::_scaled_dot_product_flash_attention_backward", q, q, q, q, q, lse, *rest)
    assert numbers(backward) == (5 * 2 * 2 * 8 * 256 * 4, 5 * 2048 + 1024, 3 * 2048)


def test_causal_attention_of_different_lengths_is_unknown() -> None:
    q, k = ([2, 8, 1, 4], BF16), ([2, 8, 16, 4], BF16)
    found = work("aten::_scaled_dot_product_flash_attention", q, k, k, "0.", "True", "False", None)
    assert numbers(found) == (None, 2 * (64 + 1024 + 1024), 128)
    assert numbers(work("aten::_scaled_dot_product_flash_attention", q, k, k, values=False))[0] is None


def test_normalization_and_softmax() -> None:
    layer = work("aten::native_layer_norm", ([5, 8], BF16), "[8]", ([8], BF16), ([8], BF16), "1e-05")
    assert layer == Work("normalization", "fp32 vector", 8 * 40, 2 * (40 + 8 + 8), 80)
    weights = [([4], FP32)] * 4
    assert numbers(work("aten::cudnn_batch_norm", ([2, 4, 3], FP32), *weights, "True", "0.1", "1e-5")) == (192, 128, 96)
    assert numbers(work("aten::cudnn_batch_norm", ([2, 4, 3], FP32), *weights, "False", "0.1", "1e-5")) == (96, 160, 96)
    unknown = work("aten::cudnn_batch_norm", ([2, 4, 3], FP32), *weights, "True", "0.1", "1e-5", values=False)
    assert numbers(unknown) == (None, 128, 96)
    image = ([2, 4, 3], FP32)
    backward = work("aten::cudnn_batch_norm_backward", image, image, *weights, ([4], FP32), "1e-5", ([0], "bool"))
    assert numbers(backward) == (9 * 24, 2 * 96 + 3 * 16, 96 + 2 * 16)
    rows, scale = ([5, 8], BF16), ([8], BF16)
    assert numbers(work("_C::fused_add_rms_norm", rows, rows, scale, "1e-05")) == (5 * 40, 176, 160)
    assert numbers(work("aten::_softmax", ([5, 8], HALF), "-1", "False")) == (200, 80, 80)
    assert numbers(work("aten::_softmax", ([5, 8], HALF), "-1", "True")) == (200, 80, 160)
    assert numbers(work("aten::_softmax_backward_data", ([5, 8], FP32), ([5, 8], FP32), "-1", "5")) == (160, 320, 80)


def test_elementwise_operators_broadcast_and_promote() -> None:
    assert numbers(work("aten::add", ([3, 1], FP32), ([4], FP32), "1")) == (12, 4 * 7, 48)
    assert numbers(work("aten::mul", ([3, 4], BF16), ([], FP32))) == (12, 24 + 4, 24)
    assert numbers(work("aten::add", ([12], BF16), ([12], FP32), "1")) == (12, 72, 48)
    assert numbers(work("aten::add_", ([12], BF16), ([12], FP32), "1")) == (12, 72, 24)
    assert numbers(work("aten::eq", ([12], LONG), "3")) == (12, 96, 12)
    assert numbers(work("aten::div", ([12], LONG), ([12], LONG))) == (12, 192, 48)
    # A scalar may make a result of integers floating-point.
    assert numbers(work("aten::mul", ([12], LONG), "3")) == (12, 96, None)
    # How it is rounded isn't recorded, and integers that are rounded stay integers.
    assert numbers(work("aten::div", ([12], LONG), ([12], LONG), None)) == (12, 192, None)
    assert numbers(work("aten::div", ([12], FP32), ([12], FP32), None)) == (12, 96, 48)
    assert numbers(work("aten::clamp", ([12], LONG), None, "0.5")) == (12, 96, None)
    assert numbers(work("aten::clamp", ([4], FP32), ([3, 1], BF16), ([4], FP32))) == (12, 16 + 6 + 16, 48)
    assert numbers(work("aten::where", ([12], "bool"), ([12], BF16), ([], FP32))) == (12, 12 + 24 + 4, 24)
    assert work("aten::add", ([3], FP32), ([4], FP32), "1") is None
    out = work("aten::mul", ([12], BF16), ([12], BF16), ([12], FP32))
    assert numbers(out) == (12, 48, 48)


def test_reductions() -> None:
    assert numbers(work("aten::sum", ([5, 8], FP32), "[1]", "True", None)) == (40, 160, 20)
    assert numbers(work("aten::sum", ([5, 8], FP32), None)) == (40, 160, 4)
    assert numbers(work("aten::sum", ([5, 8], BF16), "[0, -1]", "False", "6")) == (40, 80, 4)
    assert numbers(work("aten::sum", ([5, 8], "bool"), "[0]", "False", None)) == (40, 40, 64)
    assert numbers(work("aten::argmax", ([5, 8], FP32), "1", "False")) == (40, 160, 40)
    assert numbers(work("aten::argmax", ([5, 8], FP32), None, "False")) == (40, 160, 8)
    assert numbers(work("aten::mean", ([5, 8], FP32), "[1]", "True", None, values=False)) == (40, 160, None)
    norm = ("aten::linalg_vector_norm", ([5, 8], BF16), "2", "[1]", "True")
    assert numbers(work(*norm, None)) == (40, 80, 10)
    assert numbers(work(*norm, "6")) == (40, 80, 20)  # the result is fp32


def test_copies_and_rows_of_tables() -> None:
    assert numbers(work("aten::copy_", ([5, 8], BF16), ([8], FP32), "False")) == (0, 32, 80)
    assert numbers(work("aten::fill_", ([5, 8], BF16), "0")) == (0, 0, 80)
    table, indices = ([1000, 8], BF16), ([3, 2], LONG)
    assert numbers(work("aten::embedding", table, indices, "-1", "False", "False")) == (0, 96 + 48, 96)
    assert numbers(work("aten::index_select", table, "0", ([3], LONG))) == (0, 48 + 24, 48)
    assert numbers(work("aten::gather", table, "0", indices, "False")) == (0, 12 + 48, 12)


X, Q, HALVES, I8 = ([4, 6], FP32), ([3, 2, 8], BF16), ([3, 8], BF16), ([3, 2], LONG)
SCALES = ([1, 1], FP32)
LISTS: list[object] = [[[4, 5], [3]]] * 4
IMAGE = ([2, 3, 7, 9], FP32)


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "read", "write"),
    [
        # Windows: ⌊(7 + 2 · 1 − 3) / 2⌋ + 1 = 4 and ⌊(9 + 2 · 1 − 3) / 2⌋ + 1 = 5, of 9 elements each; indices of int64
        ("aten::max_pool2d_with_indices", [IMAGE, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"],
         6 * 20 * 9, 4 * 378, 6 * 20 * 12),
        ("aten::max_pool2d_with_indices", [IMAGE, None, None, None, None, None], None, 4 * 378, None),
        ("aten::max_pool2d_with_indices_backward",
         [([2, 3, 4, 5], FP32), IMAGE, None, None, None, None, None, ([2, 3, 4, 5], LONG)], 120, 120 * 12, 4 * 378),
        # Windows of 3 rows and 5 columns of 7 · 9: (7 + 3 − 1) · (9 + 5 − 1) elements
        ("aten::_adaptive_avg_pool2d", [IMAGE, "[3, 5]"], 6 * 9 * 13, 4 * 378, 4 * 90),
        ("aten::_adaptive_avg_pool2d", [IMAGE, None], None, 4 * 378, None),
        ("aten::_adaptive_avg_pool2d_backward", [([2, 3, 3, 5], FP32), IMAGE], 6 * 9 * 13, 4 * 90, 4 * 378),
        # 4 products and 3 sums per element of the result
        ("aten::upsample_bilinear2d", [IMAGE, "[14, 9]", "False", None, None], 6 * 126 * 7, 4 * 378, 4 * 756),
        ("aten::upsample_nearest2d", [IMAGE, None, "[2., 2.]"], None, None, None),
        # Normalized input 2, products with the scale 1, sums 1 + 2, differences and products 4; scale 2, shift 1
        ("aten::native_layer_norm_backward",
         [X, X, "[6]", ([4, 1], FP32), ([4, 1], FP32), ([6], FP32), ([6], FP32), "[True, True, True]"],
         13 * 24, 4 * (48 + 8 + 6), 4 * (24 + 12)),
        ("aten::native_layer_norm_backward",
         [X, X, "[6]", ([4, 1], FP32), ([4, 1], FP32), ([6], FP32), ([6], FP32), "[False, True, True]"],
         5 * 24, 4 * (48 + 8 + 6), 4 * 12),
        ("aten::native_layer_norm_backward", [X, X, None, ([4, 1], FP32), ([4, 1], FP32), None, None, None],
         None, 4 * (48 + 8), None),
        # Normalized input 1, product with the scale 1, of both 2, difference and products 3; scale 2
        ("aten::_fused_rms_norm_backward", [X, X, "[6]", ([4, 1], FP32), ([6], FP32), "[True, True]"],
         9 * 24, 4 * (48 + 4 + 6), 4 * (24 + 6)),
        # With statistics that are given: input 1, scale 2 + 2, shift 1
        ("aten::native_batch_norm_backward",
         [([2, 4, 3], FP32), ([2, 4, 3], FP32), *[([4], FP32)] * 5, "False", "1e-5", "[True, True, True]"],
         6 * 24, 4 * (48 + 12), 4 * (24 + 8)),
        ("npu::npu_rms_norm", [Q, ([8], BF16), "1e-06"], 4 * 48, 2 * 56, 2 * 48),
        # 14 per parameter, 2 for the decay, 1 for AMSGrad
        ("aten::_fused_adamw_", [*LISTS, [], [[], []], "0.1", "0.9", "0.99", "0.01", "1e-8", "False", "False"],
         16 * 23, None, None),
        ("aten::_fused_adam_", [*LISTS, LISTS[0], [[], []], "0.1", "0.9", "0.99", "0.", "1e-8", "True", "False"],
         15 * 23, None, None),
        # Rate and difference 2, decay 2, momentum and dampening 3, Nesterov 2
        ("aten::_fused_sgd_", [*LISTS[:3], "0.1", "0.9", "0.1", "0.2", "True", "False", "False"], 9 * 23, None, None),
        ("aten::_fused_sgd_", [*LISTS[:2], [], "0.", "0.", "0.1", "0.", "False", "False", "False"], 2 * 23, None, None),
        ("aten::_foreach_mul_", [LISTS[0], "2"], 23, None, None),
        ("aten::_foreach_norm", [LISTS[0], "2"], 23, None, None),
        # 3 · 2 rows of 8; bags that start at 3 places, the last of them the end
        ("aten::_embedding_bag", [([9, 8], BF16), ([6], LONG), ([3], LONG), "False", "0", "False", None, "True", "-1"],
         48, 2 * 48 + 8 * 9, 2 * 2 * 8),
        ("aten::nll_loss_forward", [X, ([4], LONG), None, "1", "-100"], 4, 4 * 4 + 8 * 4, 4),
        ("aten::cat", [[[4, 5], [3, 5]], "0"], 0, None, None),
        ("aten::scatter_add_", [X, "0", I8, ([3, 2], FP32)], 6, 8 * 6 + 2 * 4 * 6, 4 * 6),
        ("aten::index_add_", [X, "0", ([3], LONG), ([3, 6], FP32), "1"], 18, 8 * 3 + 2 * 4 * 18, 4 * 18),
        # Packed sequences: lengths are not recorded. 3 tokens, 2 heads, depth 8
        ("flash_attn::_flash_attn_varlen_forward", [Q, Q, Q, ([2], "int"), ([2], "int"), "3", "3"], None, 288, 96),
        # the gradient, the result and its 2 · 3 sums are read, too
        ("flash_attn::_flash_attn_varlen_backward", [Q, Q, Q, Q, Q, ([2, 3], FP32), Q, Q, Q, ([2], "int")], None,
         5 * 96 + 24, 288),
        ("npu::npu_fusion_attention", [*[([2, 16, 32], BF16)] * 3, "8", None], None, 3 * 2048, 2048),
        # 4 rows and 6 columns in 2 groups: their extents are not recorded
        ("aten::_grouped_mm", [([4, 6], BF16), ([2, 6, 5], BF16), ([2], "int"), None, None], None, 2 * 84, 2 * 20),
        ("aten::_grouped_mm", [([2, 4, 6], BF16), ([2, 6, 5], BF16), None, None, None], 2 * 240, 2 * 108, 2 * 40),
        # The gradient of the weight
        ("aten::cudnn_convolution_backward", [([2, 4, 8], FP32), ([2, 6, 8], FP32), ([6, 4, 3], FP32)],
         2 * 96 * 12, 4 * 160, 4 * 72),
        # 2 tokens, heads of 8, of which 4 are rotated: 4 heads of the query, 1 of the key, in two products and a sum
        ("_C::rotary_embedding", [([2], LONG), ([2, 32], BF16), ([2, 8], BF16), "8", ([99, 4], BF16), "True"],
         3 * 2 * 5 * 4, 2 * 40 + 2 * 8 + 8 * 2, 2 * 40),
        ("npu::npu_rotary_mul", [Q, ([1, 1, 8], BF16), ([1, 1, 8], BF16)], 3 * 48, 2 * 64, 2 * 48),
        ("npu::npu_swiglu", [HALVES, "-1"], 12, 48, 24),
        ("npu::_npu_dropout", [([3, 100], FP32), "0.5"], 300, 1200, 1200 + 3 * 16),
        # 2 tokens of 3 have a slot in a cache of bytes
        ("_C_cache_ops::reshape_and_cache_flash",
         [([3, 1, 8], BF16), ([3, 1, 8], BF16), *[([5, 16, 1, 8], "unsigned char")] * 2, ([2], LONG), None],
         0, 2 * 32 + 16, 32),
        # Products of serving programs: 3 · 4 by 5 · 4, in scaled blocks; 15 is the result's type, bf16
        *[
            (name, [([3, 4], FP8), ([5, 4], FP8), SCALES, SCALES, *more], 120, 32, 30)
            for name, more in {
                "vllm::w8a8_triton_block_scaled_mm_func": ["[128, 128]", "15"],
                "vllm::rocm_aiter_gemm_a8w8": [None, "15"],
                "vllm::rocm_aiter_gemm_a8w8_blockscale": ["15"],
                "vllm::rocm_aiter_triton_gemm_a8w8_blockscale": ["15"],
                "aiter::gemm_a8w8_blockscale": ["15", "False"],
            }.items()
        ],
        ("aiter::gemm_a8w8_blockscale", [([3, 4], FP8), ([5, 4], FP8), SCALES, SCALES, None], 120, 32, None),
        *[
            (name, [([3, 4], FP8), ([4, 5], FP8), SCALES, SCALES, *more], flops, read, 30)
            for name, more, flops, read in (
                ("sgl_kernel::fp8_scaled_mm", ["15", ([5], BF16)], 135, 42),
                ("sgl_kernel::int8_scaled_mm", ["15", None], 120, 32),
                ("sgl_kernel::fp8_blockwise_scaled_mm", ["15"], 120, 32),
            )
        ],
        # As TraceLens reports them for traces of vLLM and SGLang: FLOPs, and MiB of inputs and results
        ("vllm::rocm_unquantized_gemm", [([8192, 2880], BF16), ([5120, 2880], BF16), ([5120], BF16)],
         241_633_853_440, int(153.134765625 * 2**20) - 2 * 8192 * 5120, 2 * 8192 * 5120),
        ("aiter::gemm_a16w16", [([15360, 4096], BF16), ([24576, 4096], BF16), None, "15", None, None, None],
         3_092_376_453_120, 1032 * 2**20 - 2 * 15360 * 24576, 2 * 15360 * 24576),
        ("aiter::rms_norm", [([8192, 2880], BF16), ([2880], BF16), "1e-05", "0"],
         4 * 8192 * 2880, 2 * 2880 * 8193, 2 * 8192 * 2880),
        ("aiter::rmsnorm2d_fwd_with_add_ck", [*[([8192, 2880], BF16)] * 4, ([2880], BF16), "1e-05", "0"],
         5 * 8192 * 2880, 2 * 2880 * (2 * 8192 + 1), 4 * 8192 * 2880),
        # 8 weights in 32 bits, a group of 4 rows
        ("_C::awq_gemm", [([3, 8], HALF), ([8, 2], "int"), ([2, 16], HALF), ([2, 2], "int"), "8"],
         2 * 3 * 8 * 16, 2 * 24 + 4 * 16 + 2 * 32 + 4 * 4, 2 * 48),
        ("_C::marlin_gemm", [([3, 8], HALF), None, ([1, 32], "int"), None, ([2, 16], HALF), *[None] * 6, "1125", "3",
                             "16", "8", "True"],
         2 * 3 * 8 * 16, 2 * 24 + 4 * 32 + 2 * 32, 2 * 48),
        ("sgl_kernel::silu_and_mul", [([3, 4], BF16), ([3, 8], BF16)], 12, 48, 24),
        ("_C::rms_norm_static_fp8_quant", [([3, 4], FP8), ([3, 4], BF16), ([4], BF16), ([1], FP32), "1e-05"],
         5 * 12, 24 + 8 + 4, 12),
        ("_C::fused_add_rms_norm_static_fp8_quant",
         [([3, 4], FP8), ([3, 4], BF16), ([3, 4], BF16), ([4], BF16), ([1], FP32), "1e-05"],
         6 * 12, 48 + 8 + 4, 12 + 24),
        ("aten::max", [X, "0", "True"], 24, 96, 6 * 12),
        ("aten::max", [X, X], None, None, None),
    ],
)  # fmt: skip
def test_more_formulas(
    name: str, arguments: list[object], flops: int | None, read: int | None, write: int | None
) -> None:
    found = work(name, *arguments)
    assert (numbers(found) if found else (None, None, None)) == (flops, read, write)


def test_lists_without_shapes_are_unknown() -> None:
    """torch_npu doesn't record those of lists."""
    assert work("aten::_foreach_mul_", [], "2") is None
    assert work("aten::_fused_sgd_", [], [], [], "0.", "0.", "0.1", "0.", "False", "False", "False") is None


REFERENCE = json.loads(Path(__file__).with_name("torch_operators.json").read_text())


def without_bias(name: str, dims: list[Any], flops: int) -> int:
    """Operations without the additions of a bias, which torch.utils.flop_counter doesn't count."""
    if name == "aten::linear" and dims[2]:
        return flops - prod(dims[0][:-1]) * dims[1][0]
    rows, columns = {"aten::addmm": (1, 2), "aten::baddbmm": (1, 2)}.get(name, (None, None))
    return flops if rows is None or columns is None else flops - prod(dims[rows][:-1]) * dims[columns][-1]


def counted_by_torch(name: str, dims: list[Any], values: list[str], flops: int) -> int:
    """Its count for the gradient of a weight lacks the division by the number of groups: it is corrected here."""
    if name != "aten::convolution_backward" or values[9] == "1":
        return flops
    of_x, of_weight, _ = json.loads(values[10].lower())
    one = 2 * prod(dims[1] if values[7] == "True" else dims[0]) * prod(dims[2][1:])
    assert flops == one * of_x + one * int(values[9]) * of_weight
    return one * (of_x + of_weight)


@pytest.mark.parametrize("call", REFERENCE["calls"], ids=lambda call: str(call[0]))
def test_operations_and_results_as_pytorch_counts_them(call: list[Any]) -> None:
    """See make_torch_operators.py. Forward passes of attention also return sums and seeds, which are not counted."""
    name, dims, types, values, flops, result_bytes = call
    found = work_of(name, json.dumps(dims), json.dumps(types), json.dumps(values))
    assert found is not None
    if flops is not None:
        assert found.flops is not None
        assert without_bias(name, dims, found.flops) == counted_by_torch(name, dims, values, flops)
    if found.category == "attention" and not name.endswith("_backward"):
        result_bytes = 4 * prod(dims[0])
    assert found.write_bytes == result_bytes


def test_no_arguments_are_an_error() -> None:
    """Random ones, many of them with mistakes: work is unknown or numbers of 64 bits."""
    chance = random.Random(0)
    numbers_of = [0, 1, 2, 3, 8, 2**31, 2**62, 10**30]
    texts = ["", "True", "False", "0", "1", "-1", "0.5", "nan", "[]", "[2, 2]", "[0, -3]", "[1, 1, 1]", "[True, False]",
             "[True, True, True]", "[1e9]", "{}", "15", str(10**40)]  # fmt: skip

    def shape() -> list[int]:
        return chance.choices(numbers_of[:5] if chance.random() < 0.8 else numbers_of, k=chance.randrange(5))

    for name in names_with_formula():
        for _ in range(30):
            count = chance.randrange(12)
            types = chance.choices([BF16, FP32, LONG, FP8, "bool", "", "Scalar", "TensorList", "other"], k=count)
            dims = [[shape(), shape()] if one == "TensorList" else shape() for one in types]
            if chance.random() < 0.3 and dims:
                dims = [dims[0]] * count
            values = chance.choices(texts, k=count if chance.random() < 0.9 else 2)
            found = work_of(name, json.dumps(dims), json.dumps(types), json.dumps(values))
            known = [] if found is None else [found.flops, found.read_bytes, found.write_bytes]
            assert all(one is None or 0 <= one < 2**63 for one in known), (name, dims, types, values)


def test_elements_of_adaptive_windows_by_counting() -> None:
    for extent in range(1, 12):
        for result in range(1, 14):
            ends = [(floor(i * extent / result), ceil((i + 1) * extent / result)) for i in range(result)]
            found = work("aten::_adaptive_avg_pool2d", ([1, extent, 1], FP32), f"[{result}, 1]")
            assert found is not None and found.flops == sum(end - start for start, end in ends)


def test_unknown_operators_and_arguments() -> None:
    assert work("my::mm", ([3, 4], BF16), ([4, 5], BF16)) is None
    assert work("aten::mm", ([3, 4], "c10::NewType"), ([4, 5], "c10::NewType")) is None
    for dims in ("[[3, -4], [4, 5]]", "[[3, 4.0], [4, 5]]", "[[3, true], [1, 5]]", "[[3, 4]]", "{}", "[", "null"):
        assert work_of("aten::mm", dims, '["float", "float"]', None) is None, dims
    huge = f"[[{2**62}, {2**62}], [{2**62}, 4]]"
    assert work_of("aten::mm", huge, '["float", "float"]', None) == Work("gemm", "fp32 matrix")


def test_the_text_of_torch_npu() -> None:
    found = work_of("aten::mm", '"32,1000;\\r\\n1000,4096"', '"float;\\r\\nfloat"', None)
    assert found is not None and found.flops == 2 * 32 * 1000 * 4096
    added = work_of("aten::add", '"32;\\r\\n;\\r\\n"', '"float;\\r\\nfloat;\\r\\nScalar"', None)
    assert numbers(added) == (32, 132, 128)


def shown_of(arguments: list[tuple[str, str]]) -> list[tuple[str | None, str | None]]:
    found = described(*(pa.array(texts, pa.string()) for texts in zip(*arguments, strict=True)))
    return list(zip(*(texts.to_pylist() for texts in found), strict=True))


@pytest.mark.parametrize(
    ("dims", "types", "shown"),
    [
        ("[[5, 128], [], []]", '["c10::Half", "Scalar", ""]', ("5,128", "Half")),
        ("[[], [2], []]", '["Scalar", "float", ""]', (";2", "Scalar;float")),
        ("[[[2, 3], [4]], []]", '["TensorList", "Scalar"]', ("2,3|4", "TensorList")),
        ("[[1]]", "[]", (None, None)),
        ("[[1]]", '["\\ud800"]', ("1", "?")),
        ('"32,10;\\r\\n"', '"float;\\r\\nScalar"', ("32,10", "float")),
    ],
)
def test_shown_shapes_and_types(dims: str, types: str, shown: tuple[str, str]) -> None:
    assert shown_of([(dims, types)]) == [shown]


@pytest.mark.parametrize(
    ("dims", "count"),
    [
        ("[]", 0), ("[[]]", 1), ("[[],[]]", 2), ("[[2,3],[],[4]]", 3), ("[[],[5],[]]", 3), ("[[1],[2]]", 1),
        ("[[0]]", 1), ("[[999999999999999999]]", 1), ("[[9223372036854775808]]", 1), ("[[true]]", 1), ("[[1.0]]", 1),
        ("[[-1]]", 1), ("[[[1,2],[3]],[]]", 2), ("[4]", 1), ("[[1]", 1), (f"[[{','.join(['1'] * 64)}]]", 1),
        (f"[[{','.join(['1'] * 65)}]]", 1),
    ],
)  # fmt: skip
def test_shapes_have_the_same_text_however_they_are_written(dims: str, count: int) -> None:
    """With blanks, they are parsed as JSON."""
    types = json.dumps(["c10::Half"] * count)
    plain, parsed, again = shown_of([(dims, types), (dims.replace("[", "[ "), types), (dims, types)])
    assert plain == parsed == again
