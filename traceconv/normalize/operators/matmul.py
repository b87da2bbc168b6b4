"""Products of matrices and vectors. The bias that addmm, baddbmm and linear add counts too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from traceconv.normalize.operators.arguments import Arguments, Shape, Tensor, known, require
from traceconv.normalize.operators.work import (
    Formula,
    Work,
    broadcast,
    bytes_as,
    bytes_of,
    matrix_type,
    same_type,
    with_options,
)


def _product(
    a: Tensor, b: Tensor, shape: Shape, inner: int, *, added: Tensor | None = None,
    dtype: str | None = None, is_composite: bool = False,
) -> Work:  # fmt: skip
    """The product of a and b with a result of this shape, to which another tensor is added; dtype: of the result."""
    inner *= 2 if a.dtype == "fp4" else 1  # two numbers in a byte
    count = prod(shape)
    return Work(
        "gemm", matrix_type(a, b), 2 * count * inner + (count if added else 0), bytes_of(a, b, added),
        bytes_as(count, dtype), is_composite,
    )  # fmt: skip


def _mm(
    of: Arguments, *, first: int = 0, batched: bool = False, added: int | None = None, beta: int | None = None,
    result: int | None = None, dtype: str | None = None,
) -> Work:  # fmt: skip
    """A matrix product of the arguments `first` and the next.

    added   argument that is added to it
    beta    argument with its factor; 0: it is ignored
    result  argument for the result, if the call has one
    dtype   type of the result, if it is not that of both factors
    """
    a, b = of.tensor(first), of.tensor(first + 1)
    rank = 3 if batched else 2
    require(len(a.shape) == len(b.shape) == rank and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2])
    is_ignored = beta is not None and of.value(beta) in ("0", "0.", "0.0")
    bias = None if added is None or is_ignored else of.optional(added)
    out = None if result is None else of.optional(result)
    to = out.dtype if out else dtype or same_type(a, b)
    return _product(a, b, (*a.shape[:-1], b.shape[-1]), a.shape[-1], added=bias, dtype=to)


def _scaled_mm(of: Arguments) -> Work:
    """Scales follow the factors, the bias is the fifth argument and the result's type the seventh, since PyTorch 2.5.

    In older versions they are elsewhere: the bytes of the result are unknown then.
    """
    is_recent = len(of) == 8 and of.optional(2) is not None and of.optional(3) is not None
    work = _mm(of, added=4 if is_recent else None, dtype=of.dtype(6) if is_recent else "")
    return work if is_recent and of.dtype(6) else replace(work, write_bytes=None)


def _typed_mm(of: Arguments, *, dtype: int, added: int | None = None) -> Work:
    """A product whose factors have scales; dtype: argument with the result's type."""
    work = _mm(of, added=added, dtype=of.dtype(dtype) or "")
    return work if of.dtype(dtype) else replace(work, write_bytes=None)


def _grouped_mm(of: Arguments, *, ends: int, dtype: int) -> Work:
    """Products of groups; ends: argument with the end of each group in the dimension that both ranks don't show.

    What the last end leaves out is not computed. It is a tensor's element, which profiles don't contain, so only the
    operations of groups with a dimension of their own on both sides are known.
    """
    a, b, groups = of.tensor(0), of.tensor(1), of.optional(ends)
    to = of.dtype(dtype)
    if len(a.shape) == len(b.shape) == 3 and groups is None:
        return _mm(of, batched=True, dtype=to)
    group_count = known(groups).count
    require({len(a.shape), len(b.shape)} <= {2, 3} and a.shape[-1] == b.shape[-2])
    count = a.shape[-2] * b.shape[-1] * (group_count if len(a.shape) == len(b.shape) == 2 else 1)
    return Work("gemm", matrix_type(a, b), None, bytes_of(a, b), bytes_as(count, to or same_type(a, b)))


def _scaled_mm_into(of: Arguments) -> Work:
    """cutlass_scaled_mm of vLLM: result, a, b, scales of a and b, bias."""
    out, a, b = of.tensor(0), of.tensor(1), of.tensor(2)
    require(len(a.shape) == 2 and b.shape and a.shape[1] == b.shape[0] and out.shape == (a.shape[0], b.shape[-1]))
    return _product(a, b, out.shape, a.shape[1], added=of.optional(5), dtype=out.dtype)


def _te_gemm(of: Arguments) -> Work:
    """te_gemm_ts of Transformer Engine, as cuBLAS: a, transposed or not (4), b (5), the same (9), result (10)."""
    a, b, out = of.tensor(0), of.tensor(5), of.tensor(10)
    flags = {"1": True, "True": True, "0": False, "False": False}
    a_transposed, b_transposed = (known(flags.get(of.value(place) or "")) for place in (4, 9))
    require(len(a.shape) == len(b.shape) == 2)
    m, k = a.shape if a_transposed else a.shape[::-1]
    n, k_of_b = b.shape[::-1] if b_transposed else b.shape
    require(k == k_of_b and out.count == m * n)
    return _product(a, b, (n, m), k, dtype=out.dtype)


def _mv(of: Arguments, *, first: int = 0) -> Work:
    a, x = of.tensor(first), of.tensor(first + 1)
    require(len(a.shape) == 2 and x.shape == a.shape[1:])
    return _product(a, x, a.shape[:1], a.shape[1], added=of.optional(0) if first else None, dtype=a.dtype)


def _dot(of: Arguments) -> Work:
    a, b = of.tensor(0), of.tensor(1)
    require(len(a.shape) == 1 and a.shape == b.shape)
    return _product(a, b, (), a.count, dtype=a.dtype)


def _matmul(of: Arguments) -> Work:
    a, b = of.tensor(0), of.tensor(1)
    require(a.shape and b.shape)
    rows = a.shape if len(a.shape) > 1 else (1, *a.shape)
    columns = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = broadcast([rows[:-2], columns[:-2]])
    require(rows[-1] == columns[-2])
    return _product(a, b, (*batch, rows[-2], columns[-1]), rows[-1], dtype=same_type(a, b), is_composite=True)


def _linear(of: Arguments, *, bias: int | None = 2, dtype: int | None = None) -> Work:
    """The product with a transposed weight.

    dtype  argument with the result's type; without one, or if it is None, that of 16-bit and wider factors
    """
    x, weight = of.tensor(0), of.tensor(1)
    require(x.shape and len(weight.shape) == 2 and x.shape[-1] == weight.shape[1])
    own = None if x.dtype in ("fp8", "int8") else same_type(x, weight)
    return _product(
        x, weight, (*x.shape[:-1], weight.shape[0]), x.shape[-1], added=None if bias is None else of.optional(bias),
        dtype=(None if dtype is None else of.dtype(dtype)) or own, is_composite=True,
    )  # fmt: skip


def _awq_gemm(of: Arguments) -> Work:
    """awq_gemm of vLLM: input, 8 weights of 4 bits in each integer, scales by group and column, zeros."""
    x, weight, scales = of.tensor(0), of.tensor(1), of.tensor(2)
    require(len(x.shape) == len(weight.shape) == len(scales.shape) == 2)
    require(x.shape[1] == weight.shape[0] and scales.shape[1] == 8 * weight.shape[1])
    return _decoded(x, (x.shape[0], scales.shape[1]), bytes_of(x, weight, scales, of.optional(3)))


def _marlin_gemm(of: Arguments) -> Work:
    """marlin_gemm of vLLM: input, packed weights (2) with scales and zeros; the extents are arguments 12 to 14."""
    x = of.tensor(0)
    rows, columns, inner = (of.integer(place) for place in (12, 13, 14))
    require(x.shape == (rows, inner) and columns >= 0)
    return _decoded(x, (rows, columns), bytes_of(x, *(of.optional(place) for place in range(2, 8))))


def _decoded(x: Tensor, shape: Shape, read_bytes: int) -> Work:
    """The product of x with weights that are decoded to its type."""
    return Work("gemm", matrix_type(x, x), 2 * prod(shape) * x.shape[1], read_bytes, bytes_as(prod(shape), x.dtype))


#: Input, weight, scales of both, type of the result.
_LINEAR_OF_BLOCKS = with_options(_linear, bias=None, dtype=4)
FORMULAS: Mapping[str, Formula] = {
    "aten::mm": with_options(_mm, result=2),
    "aten::bmm": with_options(_mm, batched=True, result=2),
    "aten::addmm": with_options(_mm, first=1, added=0, beta=3, result=5),
    "aten::_addmm_activation": with_options(_mm, first=1, added=0, beta=3, result=6),
    "aten::baddbmm": with_options(_mm, first=1, added=0, beta=3, batched=True, result=5),
    "aten::mv": _mv,
    "aten::addmv": with_options(_mv, first=1),
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::matmul": _matmul,
    "aten::linear": _linear,
    "aten::_int_mm": with_options(_mm, dtype="int32"),
    "aten::_scaled_mm": _scaled_mm,
    # Lists of scales follow the factors.
    "aten::_scaled_mm_v2": with_options(_typed_mm, added=8, dtype=9),
    "aten::_grouped_mm": with_options(_grouped_mm, ends=2, dtype=4),
    "aten::_scaled_grouped_mm": with_options(_grouped_mm, ends=4, dtype=7),
    "_C::cutlass_scaled_mm": _scaled_mm_into,
    "_C::awq_gemm": _awq_gemm,
    "_C::marlin_gemm": _marlin_gemm,
    "vllm::rocm_unquantized_gemm": _linear,
    "vllm::w8a8_triton_block_scaled_mm_func": with_options(_linear, bias=None, dtype=5),
    "vllm::rocm_aiter_gemm_a8w8": with_options(_linear, bias=4, dtype=5),
    "vllm::rocm_aiter_gemm_a8w8_blockscale": _LINEAR_OF_BLOCKS,
    "vllm::rocm_aiter_triton_gemm_a8w8_blockscale": _LINEAR_OF_BLOCKS,
    "aiter::gemm_a8w8_blockscale": _LINEAR_OF_BLOCKS,
    "aiter::gemm_a16w16": with_options(_linear, dtype=3),
    "sgl_kernel::fp8_scaled_mm": with_options(_typed_mm, added=5, dtype=4),
    "sgl_kernel::int8_scaled_mm": with_options(_typed_mm, added=5, dtype=4),
    "sgl_kernel::fp8_blockwise_scaled_mm": with_options(_typed_mm, dtype=4),
    "tex_ts::te_gemm_ts": _te_gemm,
}
