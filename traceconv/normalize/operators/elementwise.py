"""Elementwise operators: one operation per element of the result."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from traceconv.normalize.operators.arguments import Arguments, element_bytes, promoted, require
from traceconv.normalize.operators.work import (
    Formula,
    Work,
    broadcast,
    bytes_as,
    bytes_of,
    vector_type,
    with_options,
)


def _elementwise(
    of: Arguments, *, inputs: tuple[int, ...], length: int, dtype: str | None = None, in_place: bool = False,
    divides: bool = False, values: tuple[int, ...] | None = None, category: str = "elementwise",
) -> Work:  # fmt: skip
    """One operation per element of the result.

    inputs   arguments that are broadcast; scalars among them are not tensors
    length   number of arguments without the one for the result
    dtype    of the result, if it doesn't depend on the inputs
    divides  the result of integers is fp32
    values   arguments whose types determine that of the result, if not all inputs do
    category category of the work, such as loss
    """
    tensors = [one for place in inputs if (one := of.optional(place))]
    require(tensors and all(place < len(of) for place in inputs))
    shape = broadcast([one.shape for one in tensors])
    out = of.optional(0) if in_place else of.optional(length) if len(of) == length + 1 else None
    if out is not None:
        shape, dtype = out.shape, out.dtype
    elif dtype is None:
        of_values = tensors if values is None else [one for place in values if (one := of.optional(place))]
        dtype = promoted(of_values)
        has_scalar = len(of_values) < len(inputs if values is None else values)
        if dtype is not None and "fp" not in dtype and dtype != "bf16" and (divides or has_scalar):
            # A floating-point scalar makes a result of integers floating-point. More arguments: the way of rounding,
            # a text that is not recorded, makes a quotient an integer.
            dtype = "fp32" if divides and len(of) == length else None
    count = prod(shape)
    write = bytes_as(count, dtype)
    return Work(category, vector_type(tensors), count, bytes_of(*tensors), write)


def _gated(of: Arguments) -> Work:
    """silu_and_mul and others of vLLM, SGLang and AITER: result, input with both halves."""
    out, x = of.tensor(0), of.tensor(1)
    require(x.count == 2 * out.count)
    return Work("elementwise", vector_type([x]), out.count, x.size_bytes, out.size_bytes)


def _converted(of: Arguments) -> Work:
    """static_scaled_fp8_quant of vLLM: result, input, scale."""
    out, x = of.tensor(0), of.tensor(1)
    require(out.shape == x.shape)
    return Work("elementwise", vector_type([x]), out.count, bytes_of(x, of.optional(2)), out.size_bytes)


def _gated_in_two(of: Arguments) -> Work:
    """The product of one half of the input with a function of the other half."""
    x = of.tensor(0)
    require(x.count % 2 == 0)
    return Work("elementwise", vector_type([x]), x.count // 2, x.size_bytes, x.size_bytes // 2)


def _gated_in_two_backward(of: Arguments) -> Work:
    """Gradient, input: the gradients of both halves."""
    gradient, x = of.tensor(0), of.tensor(1)
    require(2 * gradient.count == x.count)
    return Work("elementwise", vector_type([x]), x.count, bytes_of(gradient, x), x.size_bytes)


def _npu_dropout(of: Arguments) -> Work:
    """_npu_dropout: as native_dropout, with a mask of bits, in multiples of 128."""
    x = of.tensor(0)
    mask = -(-x.count // 128) * 16
    return Work("elementwise", vector_type([x]), x.count, x.size_bytes, x.size_bytes + mask)


def _npu_dropout_backward(of: Arguments) -> Work:
    x, mask = of.tensor(0), of.tensor(1)
    return Work("elementwise", vector_type([x]), x.count, bytes_of(x, mask), x.size_bytes)


def _dropout(of: Arguments) -> Work:
    """native_dropout: the product with a mask that is drawn and returned."""
    x = of.tensor(0)
    return Work("elementwise", vector_type([x]), x.count, x.size_bytes, x.size_bytes + x.count)


def _rotary_embedding(of: Arguments) -> Work:
    """rotary_embedding of vLLM, in place: positions, query, key, size of a head, cosines and sines by position.

    Each element of the part that is rotated: two products and a sum.
    """
    positions, query, size, table = of.tensor(0), of.tensor(1), of.integer(3), of.tensor(4)
    require(size >= 1 and len(table.shape) == 2 and table.shape[1] <= size)
    rotated = [one for one in (query, of.optional(2)) if one is not None]
    require(not any(one.count % size for one in rotated))
    counts = [one.count // size * table.shape[1] for one in rotated]
    moved = sum(count * element_bytes(one.dtype) for count, one in zip(counts, rotated, strict=True))
    rows = positions.count * table.shape[1] * element_bytes(table.dtype)
    return Work("elementwise", vector_type([query]), 3 * sum(counts), moved + rows + positions.size_bytes, moved)


def _rotary_mul(of: Arguments) -> Work:
    """npu_rotary_mul: the product with cosines and that of the turned input with sines, which are broadcast."""
    x, cosine, sine = of.tensor(0), of.tensor(1), of.tensor(2)
    require(broadcast([x.shape, cosine.shape, sine.shape]) == x.shape)
    return Work("elementwise", vector_type([x]), 3 * x.count, bytes_of(x, cosine, sine), x.size_bytes)


def _of_lists(of: Arguments) -> Work:
    """One operation per element of the first list of tensors, whose types are not recorded: the bytes are unknown."""
    return Work("elementwise", None, sum(map(prod, of.shapes(0))))


def _elementwise_formulas() -> dict[str, Formula]:
    found: dict[str, Formula] = {}

    def add(names: str, length: int, inputs: tuple[int, ...] = (0,), **options: object) -> None:
        for name in names.split():
            found[f"aten::{name}"] = with_options(_elementwise, inputs=inputs, length=length, **options)
            found[f"aten::{name}_"] = with_options(_elementwise, inputs=inputs, length=length, in_place=True, **options)

    add("abs bitwise_not ceil floor neg relu round sgn sign square trunc", 1)
    add(
        "acos asin atan cos cosh digamma erf erfc exp exp2 expm1 lgamma log log10 log1p log2 mish reciprocal rsqrt "
        "sigmoid silu sin sinh sqrt tan tanh",
        1,
        divides=True,
    )
    add("isfinite isinf isnan logical_not", 1, dtype="bool")
    add("hardswish hardsigmoid", 1)
    add("gelu leaky_relu", 2)
    add("hardtanh softplus", 3)
    add("clamp", 3, (0, 1, 2))
    add("elu", 4)
    add("bitwise_and bitwise_or bitwise_xor clamp_max clamp_min fmod maximum minimum mul pow remainder", 2, (0, 1))
    add("atan2 div true_divide", 2, (0, 1), divides=True)
    add("add rsub sub", 3, (0, 1))
    add("eq ge gt le logical_and logical_or logical_xor lt ne", 2, (0, 1), dtype="bool")
    add("hardsigmoid_backward hardswish_backward sigmoid_backward silu_backward tanh_backward", 2, (0, 1))
    add("gelu_backward threshold_backward", 3, (0, 1))
    add("hardtanh_backward leaky_relu_backward", 4, (0, 1))
    add("masked_fill", 3, (0, 1), values=(0,))
    add("where", 3, (0, 1, 2), values=(1, 2))
    add("lerp", 3, (0, 1, 2))
    add("addcdiv addcmul", 4, (0, 1, 2))
    return found


def _list_formulas() -> dict[str, Formula]:
    names = (
        "abs add addcdiv addcmul ceil clamp_max clamp_min cos div erf exp floor lerp log maximum minimum mul neg pow "
        "reciprocal round rsqrt sigmoid sign sin sqrt sub tan tanh trunc"
    )
    return {f"aten::_foreach_{name}{end}": _of_lists for name in names.split() for end in ("", "_")}


FORMULAS: Mapping[str, Formula] = {
    **_elementwise_formulas(),
    **_list_formulas(),
    "aten::mse_loss": with_options(_elementwise, inputs=(0, 1), length=3, category="loss"),
    "aten::mse_loss_backward": with_options(_elementwise, inputs=(0, 1, 2), length=4, category="loss"),
    "aten::native_dropout": _dropout,
    "aten::native_dropout_backward": with_options(_elementwise, inputs=(0, 1), length=3, values=(0,)),
    "aten::glu": _gated_in_two,
    "aten::glu_backward": _gated_in_two_backward,
    "npu::_npu_dropout": _npu_dropout,
    "npu::npu_dropout_backward": _npu_dropout_backward,
    "npu::npu_swiglu": _gated_in_two,
    "npu::npu_swiglu_backward": _gated_in_two_backward,
    "npu::npu_rotary_mul": _rotary_mul,
    "_C::rotary_embedding": _rotary_embedding,
    **{
        f"{library}::{function}_and_mul": _gated
        for library in ("_C", "sgl_kernel", "aiter")
        for function in ("silu", "gelu", "gelu_tanh")
    },
    "_C::mul_and_silu": _gated,
    "_C::fatrelu_and_mul": _gated,
    "_C::swigluoai_and_mul": _gated,
    "_C::static_scaled_fp8_quant": _converted,
}
