"""What an operator computes and moves: formulas from the definitions of PyTorch's operators and of attention libraries.

A multiply-accumulate counts as 2 operations. Matrix products, convolutions and attention count the operations of their
products, and the bias that addmm, baddbmm and linear add; convolutions add it in a kernel of their own. Elementwise
operators count 1 per element of the result, reductions 1 per element that they reduce. Bytes are those of each input
and result once. What the recorded arguments don't determine is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from traceconv.normalize.operators.arguments import (
    Arguments,
    Shape,
    Tensor,
    element_bytes,
    fits,
    parse_arguments,
    promoted,
)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one execution.

    category      as kernel_category has it, such as gemm
    compute_type  number format and unit that limit it: "bf16 matrix", "fp32 vector"; None if unknown
    flops         operations
    read_bytes    bytes of the inputs
    write_bytes   bytes of the results
    is_composite  operators inside it may do the work, which then counts there
    """

    category: str | None
    compute_type: str | None = None
    flops: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    is_composite: bool = False


_Formula: TypeAlias = "Callable[[Arguments], Work | None]"


def work_of(name: str, dims: str, types: str, values: str | None) -> Work | None:
    """Return the work of an operator with these args of its event (JSON); None if it is unknown."""
    formula = _FORMULAS.get(name)
    found = parse_arguments(dims, types, values) if formula is not None else None
    work = formula(found) if formula is not None and found is not None else None
    if work is None:
        return None
    return Work(
        work.category, work.compute_type, fits(work.flops), fits(work.read_bytes), fits(work.write_bytes),
        work.is_composite,
    )  # fmt: skip


def names_with_formula() -> Iterable[str]:
    """Return the names of all operators that have a formula."""
    return _FORMULAS.keys()


# Matrix products


def _product(
    a: Tensor | None, b: Tensor | None, shape: Shape, inner: int, *, added: Tensor | None = None,
    dtype: str | None = None, is_composite: bool = False,
) -> Work | None:  # fmt: skip
    """The product of a and b with a result of this shape, to which another tensor is added; dtype: of the result."""
    if a is None or b is None:
        return None
    inner *= 2 if a.dtype == "fp4" else 1  # two numbers in a byte
    count = prod(shape)
    return Work(
        "gemm", _matrix_type(a, b), 2 * count * inner + (count if added else 0), _bytes(a, b, added),
        None if dtype is None else count * element_bytes(dtype), is_composite,
    )  # fmt: skip


def _mm(
    of: Arguments, *, first: int = 0, batched: bool = False, added: int | None = None, beta: int | None = None,
    result: int | None = None, dtype: str | None = None,
) -> Work | None:  # fmt: skip
    """A matrix product of the arguments `first` and the next.

    added   argument that is added to it
    beta    argument with its factor; 0: it is ignored
    result  argument for the result, if the call has one
    dtype   type of the result, if it is not that of both factors
    """
    a, b = of.tensor(first), of.tensor(first + 1)
    rank = 3 if batched else 2
    if a is None or b is None or len(a.shape) != rank or len(b.shape) != rank:
        return None
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None
    is_ignored = beta is not None and of.value(beta) in ("0", "0.", "0.0")
    bias = None if added is None or is_ignored else of.tensor(added)
    out = None if result is None else of.tensor(result)
    to = out.dtype if out else dtype or _same_type(a, b)
    return _product(a, b, (*a.shape[:-1], b.shape[-1]), a.shape[-1], added=bias, dtype=to)


def _scaled_mm(of: Arguments) -> Work | None:
    """Scales follow the factors, the bias is the fifth argument and the result's type the seventh, since PyTorch 2.5.

    In older versions they are elsewhere: the bytes of the result are unknown then.
    """
    is_recent = len(of) == 8 and of.tensor(2) is not None and of.tensor(3) is not None
    work = _mm(of, added=4 if is_recent else None, dtype=of.dtype(6) if is_recent else "")
    if work is None or (is_recent and of.dtype(6)):
        return work
    return replace(work, write_bytes=None)


def _scaled_mm_into(of: Arguments) -> Work | None:
    """cutlass_scaled_mm of vLLM: result, a, b, scales of a and b, bias."""
    out, a, b = of.tensor(0), of.tensor(1), of.tensor(2)
    if out is None or a is None or b is None or len(a.shape) != 2 or out.shape != (a.shape[0], b.shape[-1]):
        return None
    if a.shape[1] != b.shape[0]:
        return None
    return _product(a, b, out.shape, a.shape[1], added=of.tensor(5), dtype=out.dtype)


def _te_gemm(of: Arguments) -> Work | None:
    """te_gemm_ts of Transformer Engine, as cuBLAS: a, transposed or not (4), b (5), the same (9), result (10)."""
    a, b, out = of.tensor(0), of.tensor(5), of.tensor(10)
    flags = {"1": True, "True": True, "0": False, "False": False}
    a_transposed, b_transposed = flags.get(of.value(4) or ""), flags.get(of.value(9) or "")
    if a is None or b is None or out is None or a_transposed is None or b_transposed is None:
        return None
    if len(a.shape) != 2 or len(b.shape) != 2:
        return None
    m, k = a.shape if a_transposed else a.shape[::-1]
    n, k_of_b = b.shape[::-1] if b_transposed else b.shape
    if k != k_of_b or out.count != m * n:
        return None
    return _product(a, b, (n, m), k, dtype=out.dtype)


def _mv(of: Arguments, *, first: int = 0) -> Work | None:
    a, x = of.tensor(first), of.tensor(first + 1)
    if a is None or x is None or len(a.shape) != 2 or x.shape != a.shape[1:]:
        return None
    return _product(a, x, a.shape[:1], a.shape[1], added=of.tensor(0) if first else None, dtype=a.dtype)


def _dot(of: Arguments) -> Work | None:
    a, b = of.tensor(0), of.tensor(1)
    if a is None or b is None or len(a.shape) != 1 or a.shape != b.shape:
        return None
    return _product(a, b, (), a.count, dtype=a.dtype)


def _matmul(of: Arguments) -> Work | None:
    a, b = of.tensor(0), of.tensor(1)
    if a is None or b is None or not a.shape or not b.shape:
        return None
    rows = a.shape if len(a.shape) > 1 else (1, *a.shape)
    columns = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = _broadcast([rows[:-2], columns[:-2]])
    if batch is None or rows[-1] != columns[-2]:
        return None
    return _product(a, b, (*batch, rows[-2], columns[-1]), rows[-1], dtype=_same_type(a, b), is_composite=True)


def _linear(of: Arguments) -> Work | None:
    x, weight = of.tensor(0), of.tensor(1)
    if x is None or weight is None or not x.shape or len(weight.shape) != 2 or x.shape[-1] != weight.shape[1]:
        return None
    return _product(
        x, weight, (*x.shape[:-1], weight.shape[0]), x.shape[-1], added=of.tensor(2), dtype=_same_type(x, weight),
        is_composite=True,
    )  # fmt: skip


# Convolutions


def _convolution(of: Arguments) -> Work | None:
    """Input, weight, bias, stride, padding, dilation, transposed, output padding, groups."""
    x, weight = of.tensor(0), of.tensor(1)
    shape = _convolved(of, x, weight)
    if x is None or weight is None or shape is None:
        return None
    # Each element of the larger side of the window is multiplied with a filter's elements: those of one group.
    places = x.count if of.flag(6) else prod(shape)
    dtype = _same_type(x, weight)
    return Work(
        "conv", _matrix_type(x, weight), 2 * places * prod(weight.shape[1:]), _bytes(x, weight, of.tensor(2)),
        None if dtype is None else prod(shape) * element_bytes(dtype),
    )  # fmt: skip


def _convolved(of: Arguments, x: Tensor | None, weight: Tensor | None) -> Shape | None:
    """The shape of a convolution's result."""
    if x is None or weight is None or len(x.shape) != len(weight.shape) or len(x.shape) < 3:
        return None
    transposed, groups = of.flag(6), of.integers(8)
    window = [_of_each(of.integers(place), len(x.shape) - 2) for place in (3, 4, 5, 7)]
    if transposed is None or groups is None or len(groups) != 1 or None in window:
        return None
    stride, padding, dilation, more = (numbers or [] for numbers in window)
    if min(stride, default=0) < 1 or groups[0] < 1:
        return None
    if x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups[0]):
        return None
    spatial = []
    for place, (extent, size) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True)):
        reach = dilation[place] * (size - 1)
        if transposed:
            spatial.append((extent - 1) * stride[place] - 2 * padding[place] + reach + more[place] + 1)
        else:
            spatial.append((extent + 2 * padding[place] - reach - 1) // stride[place] + 1)
    if min(spatial) < 0:
        return None
    return (x.shape[0], weight.shape[1] * groups[0] if transposed else weight.shape[0], *spatial)


def _of_each(numbers: list[int] | None, count: int) -> list[int] | None:
    """One number per dimension; a single one is that of all."""
    if numbers is not None and len(numbers) == 1:
        return numbers * count
    return numbers if numbers is not None and len(numbers) == count else None


def _convolution_backward(of: Arguments) -> Work | None:
    """Gradient, input, weight, sizes of the bias, stride, padding, dilation, transposed, …, mask of the results.

    The gradients of input and weight have as many multiply-accumulates as the convolution has; that of the bias is a
    sum, in a kernel of its own.
    """
    gradient, x, weight = of.tensor(0), of.tensor(1), of.tensor(2)
    transposed, mask = of.flag(7), of.flags(10)
    if gradient is None or x is None or weight is None or transposed is None or mask is None or len(mask) != 3:
        return None
    if not len(gradient.shape) == len(x.shape) == len(weight.shape) >= 3:
        return None
    one = 2 * (x if transposed else gradient).count * prod(weight.shape[1:])
    read = _bytes(gradient, weight if mask[0] else None, x if mask[1] else None)
    out = [x] * mask[0] + [weight] * mask[1]
    bias = gradient.shape[1] * element_bytes(gradient.dtype) if mask[2] else 0
    return Work("conv", _matrix_type(x, weight), (mask[0] + mask[1]) * one, read, _bytes(*out) + bias)


def _cudnn_backward_input(of: Arguments) -> Work | None:
    """Sizes of the input, gradient, weight."""
    gradient, weight = of.tensor(1), of.tensor(2)
    if gradient is None or weight is None or len(gradient.shape) != len(weight.shape) or len(weight.shape) < 3:
        return None
    # The size of the input isn't recorded.
    flops = 2 * gradient.count * prod(weight.shape[1:])
    return Work("conv", _matrix_type(gradient, weight), flops, _bytes(gradient, weight))


# Attention


def _attention(
    of: Arguments, *, causal: int, backward: bool = False, heads: int = 1, more: int | None = None,
    window: int | None = None, is_composite: bool = False,
) -> Work | None:  # fmt: skip
    """Scaled dot-product attention of query, key and value; in a backward pass they follow the gradient.

    heads   dimension of the heads: 1, before the sequence, or 2, after it
    causal  argument with the flag
    more    another argument that is read, such as a bias
    window  the first of two arguments with the reach of a sliding window, -1 if it is unlimited

    Forward: query · key and scores · value. Backward: the scores again, as no implementation stores them, and the
    gradients of scores, value, query and key. A causal mask halves them, because implementations skip the masked half.
    With different lengths of query and key, the part that is masked depends on the implementation: unknown.
    """
    first = 1 if backward else 0
    q, k, v = (of.tensor(first + place) for place in range(3))
    if q is None or k is None or v is None or not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        return None
    order = (0, 1, 2, 3) if heads == 1 else (0, 2, 1, 3)
    batch, q_heads, rows, depth = (q.shape[place] for place in order)
    k_batch, k_heads, columns, k_depth = (k.shape[place] for place in order)
    v_batch, v_heads, v_rows, v_depth = (v.shape[place] for place in order)
    if not (batch == k_batch == v_batch and k_heads == v_heads and columns == v_rows and depth == k_depth):
        return None
    if k_heads == 0 or q_heads % k_heads:
        return None
    pairs = batch * q_heads * rows * columns
    flops: int | None = 2 * pairs * (3 * depth + 2 * v_depth if backward else depth + v_depth)
    is_causal = of.flag(causal)
    if is_causal is None or (is_causal and rows != columns) or _is_limited(of, window, is_causal):
        flops = None
    elif is_causal:
        flops = pairs * (3 * depth + 2 * v_depth if backward else depth + v_depth)
    dtype = promoted([q, k, v])
    size = None if dtype is None else element_bytes(dtype)
    also = None if more is None else of.tensor(more)
    if backward:
        # The gradient, the forward pass's result and the sums of its softmax.
        read = _bytes(*(of.tensor(place) for place in range(6)), also)
        write = None if size is None else (q.count + k.count + v.count) * size
    else:
        read = _bytes(q, k, v, also)
        write = None if size is None else batch * q_heads * rows * v_depth * size
    return Work("attention", _matrix_type(q, k), flops, read, write, is_composite)


def _is_limited(of: Arguments, window: int | None, is_causal: bool) -> bool:
    """Whether a sliding window limits the attention more than the causal mask."""
    if window is None:
        return False
    left, right = of.integers(window), of.integers(window + 1)
    return left not in (None, [-1]) or right not in (None, [-1], *([[0]] if is_causal else []))


# Normalization and softmax: operations per element, counted in the definition


def _normalization(
    of: Arguments, per_element: int | None, *, x: int = 0, scale: int | None = None, shift: int | None = None,
    reads: tuple[int, ...] = (), writes: tuple[int, ...] = (),
) -> Work | None:  # fmt: skip
    """Normalization of the argument x: operations per element, one more for a scale and a shift if they are given."""
    tensor = of.tensor(x)
    if tensor is None:
        return None
    affine = [one for place in (scale, shift) if place is not None and (one := of.tensor(place))]
    flops = None if per_element is None else tensor.count * (per_element + len(affine))
    read = _bytes(tensor, *affine, *(of.tensor(place) for place in reads))
    write = _bytes(*(of.tensor(place) for place in writes)) if writes else tensor.size_bytes
    return Work("normalization", _vector_type([tensor]), flops, read, write)


def _batch_norm(of: Arguments) -> Work | None:
    """Training: mean (1), variance (3), centre and divide (2). Otherwise the last alone; the flag is argument 5."""
    is_training = of.flag(5)
    per_element = None if is_training is None else 6 if is_training else 2
    reads = (3, 4) if is_training is False else ()
    return _normalization(of, per_element, scale=1, shift=2, reads=reads)


def _softmax(of: Arguments) -> Work | None:
    """Maximum, difference, exponential, sum, quotient; for log_softmax the difference from the sum's logarithm."""
    x = of.tensor(0)
    if x is None:
        return None
    out = of.tensor(3)
    to_float = of.flag(2)
    dtype = out.dtype if out else "fp32" if to_float else x.dtype if to_float is False or x.dtype == "fp32" else None
    write = None if dtype is None else x.count * element_bytes(dtype)
    return Work("softmax", _vector_type([x]), 5 * x.count, x.size_bytes, write)


def _softmax_backward(of: Arguments) -> Work | None:
    """Product with the result, its sum, difference, product; for log_softmax exponential, sum, product, difference."""
    gradient, out = of.tensor(0), of.tensor(1)
    if gradient is None or out is None or gradient.shape != out.shape:
        return None
    dtype = of.dtype(3) or (gradient.dtype if gradient.dtype != "fp32" else None)
    write = None if dtype is None else gradient.count * element_bytes(dtype)
    return Work("softmax", _vector_type([gradient]), 4 * gradient.count, _bytes(gradient, out), write)


# Elementwise operators, reductions, copies


def _elementwise(
    of: Arguments, *, inputs: tuple[int, ...], length: int, dtype: str | None = None, in_place: bool = False,
    divides: bool = False, values: tuple[int, ...] | None = None,
) -> Work | None:  # fmt: skip
    """One operation per element of the result.

    inputs   arguments that are broadcast; scalars among them are not tensors
    length   number of arguments without the one for the result
    dtype    of the result, if it doesn't depend on the inputs
    divides  the result of integers is fp32
    values   arguments whose types determine that of the result, if not all inputs do
    """
    tensors = [one for place in inputs if (one := of.tensor(place))]
    shape = _broadcast([one.shape for one in tensors])
    if not tensors or shape is None or any(place >= len(of) for place in inputs):
        return None
    out = of.tensor(0) if in_place else of.tensor(length) if len(of) == length + 1 else None
    if out is not None:
        shape, dtype = out.shape, out.dtype
    elif dtype is None:
        of_values = tensors if values is None else [one for place in values if (one := of.tensor(place))]
        dtype = promoted(of_values)
        has_scalar = len(of_values) < len(inputs if values is None else values)
        if dtype is not None and "fp" not in dtype and dtype != "bf16" and (divides or has_scalar):
            # A floating-point scalar makes a result of integers floating-point.
            dtype = "fp32" if divides else None
    count = prod(shape)
    write = None if dtype is None else count * element_bytes(dtype)
    return Work("elementwise", _vector_type(tensors), count, _bytes(*tensors), write)


def _reduction(of: Arguments, *, dims: int, keep: int, dtype: int | None = None, result: str = "same") -> Work | None:
    """One operation per element that is reduced.

    dims, keep  arguments with the dimensions and whether they are kept; a call without them reduces all
    dtype       argument with the type of the result
    result      same: the type of the input; sum: int64 for integers; or a type
    """
    x = of.tensor(0)
    if x is None:
        return None
    all_dims = len(of) <= (2 if dtype is not None else 1)
    out = None if all_dims else next((one for place in range(keep + 1, len(of)) if (one := of.tensor(place))), None)
    count = out.count if out else 1 if all_dims else _kept(x.shape, of, dims)
    type_place = 1 if all_dims else dtype
    to = x.dtype if result == "same" else result
    if result == "sum":
        to = x.dtype if _vector_type([x]) else "int64"
    if out is not None:
        to = out.dtype
    elif dtype is not None and type_place is not None and type_place < len(of):
        to = of.dtype(type_place) or ("" if of.value(type_place) or not of.values else to)
    write = None if count is None or not to else count * element_bytes(to)
    return Work("reduction", _vector_type([x]), x.count, x.size_bytes, write)


def _kept(shape: Shape, of: Arguments, place: int) -> int | None:
    """Number of elements after the reduction of some dimensions; all if none are given."""
    if not of.values:
        return None
    numbers = of.integers(place)
    if numbers is None:
        return None if of.value(place) else 1
    gone = {number % len(shape) for number in numbers if shape} if numbers else set(range(len(shape)))
    if any(not -len(shape) <= number < max(len(shape), 1) for number in numbers):
        return None
    return prod(extent for place, extent in enumerate(shape) if place not in gone)


def _cumulative(of: Arguments) -> Work | None:
    x = of.tensor(0)
    if x is None or _vector_type([x]) is None:
        return None
    return Work("reduction", _vector_type([x]), x.count, x.size_bytes, x.size_bytes)


def _copy(of: Arguments) -> Work | None:
    """Destination and source, which is broadcast."""
    out, x = of.tensor(0), of.tensor(1)
    return Work("memory", None, 0, x.size_bytes, out.size_bytes) if out and x else None


def _fill(of: Arguments) -> Work | None:
    out = of.tensor(0)
    return Work("memory", None, 0, 0, out.size_bytes) if out else None


def _rows(of: Arguments, *, table: int = 0, index: int = 1) -> Work | None:
    """Rows of a table, selected by indices: only these are read."""
    rows, indices = of.tensor(table), of.tensor(index)
    if rows is None or indices is None or len(rows.shape) != 2:
        return None
    moved = indices.count * rows.shape[1] * element_bytes(rows.dtype)
    return Work("indexing", None, 0, moved + indices.size_bytes, moved)


def _index_select(of: Arguments) -> Work | None:
    x, dim, indices = of.tensor(0), of.integers(1), of.tensor(2)
    if x is None or dim is None or len(dim) != 1 or indices is None or not -len(x.shape) <= dim[0] < len(x.shape):
        return None
    place = dim[0] % len(x.shape)
    moved = prod(x.shape[:place] + x.shape[place + 1 :]) * indices.count * element_bytes(x.dtype)
    return Work("indexing", None, 0, moved + indices.size_bytes, moved)


def _gather(of: Arguments) -> Work | None:
    x, indices = of.tensor(0), of.tensor(2)
    if x is None or indices is None:
        return None
    moved = indices.count * element_bytes(x.dtype)
    return Work("indexing", None, 0, moved + indices.size_bytes, moved)


def _embedding_backward(of: Arguments) -> Work | None:
    gradient, indices, count = of.tensor(0), of.tensor(1), of.integers(2)
    if gradient is None or indices is None or count is None or len(count) != 1 or not gradient.shape:
        return None
    write = count[0] * gradient.shape[-1] * element_bytes(gradient.dtype)
    return Work("indexing", _vector_type([gradient]), gradient.count, _bytes(gradient, indices), write)


def _gated(of: Arguments) -> Work | None:
    """silu_and_mul and others of vLLM: result, input with both halves."""
    out, x = of.tensor(0), of.tensor(1)
    if out is None or x is None or x.count != 2 * out.count:
        return None
    return Work("elementwise", _vector_type([x]), out.count, x.size_bytes, out.size_bytes)


def _converted(of: Arguments) -> Work | None:
    """static_scaled_fp8_quant of vLLM: result, input, scale."""
    out, x, scale = of.tensor(0), of.tensor(1), of.tensor(2)
    if out is None or x is None or out.shape != x.shape:
        return None
    return Work("elementwise", _vector_type([x]), out.count, _bytes(x, scale), out.size_bytes)


def _bytes(*tensors: Tensor | None) -> int:
    return sum(one.size_bytes for one in tensors if one is not None)


def _broadcast(shapes: list[Shape]) -> Shape | None:
    """The shape of tensors that are broadcast; None if they don't match."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _same_type(a: Tensor, b: Tensor) -> str | None:
    return a.dtype if a.dtype == b.dtype else None


def _matrix_type(a: Tensor, b: Tensor) -> str | None:
    return f"{a.dtype} matrix" if a.dtype == b.dtype else None


def _vector_type(tensors: list[Tensor]) -> str | None:
    """Vector units compute formats of up to 32 bits as fp32; integers have no peak here."""
    dtype = promoted(tensors)
    if dtype == "fp64":
        return "fp64 vector"
    return "fp32 vector" if dtype in ("fp32", "fp16", "bf16", "fp8") else None


def _with(function: Callable[..., Work | None], **options: object) -> _Formula:
    return lambda of: function(of, **options)


def _elementwise_formulas() -> dict[str, _Formula]:
    found: dict[str, _Formula] = {}

    def add(names: str, length: int, inputs: tuple[int, ...] = (0,), **options: object) -> None:
        for name in names.split():
            found[f"aten::{name}"] = _with(_elementwise, inputs=inputs, length=length, **options)
            found[f"aten::{name}_"] = _with(_elementwise, inputs=inputs, length=length, in_place=True, **options)

    add("abs bitwise_not ceil floor neg relu round sgn sign square trunc", 1)
    add(
        "acos asin atan cos cosh digamma erf erfc exp exp2 expm1 lgamma log log10 log1p log2 mish reciprocal rsqrt "
        "sigmoid silu sin sinh sqrt tan tanh",
        1,
        divides=True,
    )
    add("isfinite isinf isnan logical_not", 1, dtype="bool")
    add("gelu leaky_relu", 2)
    add("clamp hardtanh softplus", 3)
    add("elu", 4)
    add("bitwise_and bitwise_or bitwise_xor clamp_max clamp_min fmod maximum minimum mul pow remainder", 2, (0, 1))
    add("atan2 div true_divide", 2, (0, 1), divides=True)
    add("add rsub sub", 3, (0, 1))
    add("eq ge gt le logical_and logical_or logical_xor lt ne", 2, (0, 1), dtype="bool")
    add("sigmoid_backward silu_backward tanh_backward", 2, (0, 1))
    add("gelu_backward threshold_backward", 3, (0, 1))
    add("hardtanh_backward leaky_relu_backward", 4, (0, 1))
    add("masked_fill", 3, (0, 1), values=(0,))
    add("where", 3, (0, 1, 2), values=(1, 2))
    add("lerp", 3, (0, 1, 2))
    add("addcdiv addcmul", 4, (0, 1, 2))
    return found


#: By the operator's name in the profile. Operators that only call others with a formula need none.
_FORMULAS: Mapping[str, _Formula] = {
    "aten::mm": _with(_mm, result=2),
    "aten::bmm": _with(_mm, batched=True, result=2),
    "aten::addmm": _with(_mm, first=1, added=0, beta=3, result=5),
    "aten::_addmm_activation": _with(_mm, first=1, added=0, beta=3, result=6),
    "aten::baddbmm": _with(_mm, first=1, added=0, beta=3, batched=True, result=5),
    "aten::mv": _mv,
    "aten::addmv": _with(_mv, first=1),
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::matmul": _matmul,
    "aten::linear": _linear,
    "aten::_int_mm": _with(_mm, dtype="int32"),
    "aten::_scaled_mm": _scaled_mm,
    "_C::cutlass_scaled_mm": _scaled_mm_into,
    "tex_ts::te_gemm_ts": _te_gemm,
    "aten::convolution": _convolution,
    "aten::convolution_overrideable": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::convolution_backward_overrideable": _convolution_backward,
    "aten::cudnn_convolution_backward_input": _cudnn_backward_input,
    "aten::_scaled_dot_product_flash_attention": _with(_attention, causal=4),
    "aten::_scaled_dot_product_efficient_attention": _with(_attention, causal=6, more=3),
    "aten::_scaled_dot_product_cudnn_attention": _with(_attention, causal=6, more=3),
    "aten::_scaled_dot_product_fused_attention_overrideable": _with(_attention, causal=5, more=3),
    "aten::_scaled_dot_product_flash_attention_backward": _with(_attention, backward=True, causal=11),
    "aten::_scaled_dot_product_efficient_attention_backward": _with(_attention, backward=True, causal=11, more=6),
    "aten::_scaled_dot_product_cudnn_attention_backward": _with(_attention, backward=True, causal=14, more=8),
    "FlashAttnFunc": _with(_attention, heads=2, causal=5, is_composite=True),
    "flash_attn::_flash_attn_forward": _with(_attention, heads=2, causal=5, window=6),
    "flash_attn::_flash_attn_backward": _with(_attention, backward=True, heads=2, causal=11, window=12),
    "aiter::_flash_attn_forward": _with(_attention, heads=2, causal=5, window=6, is_composite=True),
    "aiter::_flash_attn_backward": _with(_attention, backward=True, heads=2, causal=12, window=13, is_composite=True),
    "aiter::mha_fwd": _with(_attention, heads=2, causal=5, window=6),
    "aiter::fmha_v3_fwd": _with(_attention, heads=2, causal=5, window=6),
    "aiter::mha_bwd": _with(_attention, backward=True, heads=2, causal=8, window=9),
    "aiter::fmha_v3_bwd": _with(_attention, backward=True, heads=2, causal=8, window=9),
    "aten::native_batch_norm": _batch_norm,
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::miopen_batch_norm": _batch_norm,
    "aten::native_layer_norm": _with(_normalization, per_element=6, scale=2, shift=3),
    # Backward: normalized input (2), sums for shift (1) and scale (2), their products and differences (4).
    "aten::native_batch_norm_backward": _with(_normalization, per_element=9, reads=(1, 2, 5, 6)),
    "aten::cudnn_batch_norm_backward": _with(_normalization, per_element=9, reads=(1, 2, 5, 6)),
    "aten::miopen_batch_norm_backward": _with(_normalization, per_element=9, reads=(1, 2, 5, 6)),
    "aten::native_group_norm": _with(_normalization, per_element=6, scale=1, shift=2),
    # Square, sum, product with the reciprocal root.
    "aten::_fused_rms_norm": _with(_normalization, per_element=3, scale=2),
    "_C::rms_norm": _with(_normalization, per_element=3, x=1, scale=2),
    "_C::fused_add_rms_norm": _with(_normalization, per_element=4, scale=2, reads=(1,), writes=(0, 1)),
    "aten::_softmax": _softmax,
    "aten::_log_softmax": _softmax,
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::_log_softmax_backward_data": _softmax_backward,
    **_elementwise_formulas(),
    "_C::silu_and_mul": _gated,
    "_C::gelu_and_mul": _gated,
    "_C::gelu_tanh_and_mul": _gated,
    "_C::static_scaled_fp8_quant": _converted,
    "aten::sum": _with(_reduction, dims=1, keep=2, dtype=3, result="sum"),
    "aten::mean": _with(_reduction, dims=1, keep=2, dtype=3),
    "aten::amax": _with(_reduction, dims=1, keep=2),
    "aten::amin": _with(_reduction, dims=1, keep=2),
    "aten::argmax": _with(_reduction, dims=1, keep=2, result="int64"),
    "aten::argmin": _with(_reduction, dims=1, keep=2, result="int64"),
    "aten::all": _with(_reduction, dims=1, keep=2, result="bool"),
    "aten::any": _with(_reduction, dims=1, keep=2, result="bool"),
    "aten::linalg_vector_norm": _with(_reduction, dims=2, keep=3),
    "aten::cumsum": _cumulative,
    "aten::cumprod": _cumulative,
    "aten::copy_": _copy,
    "aten::fill_": _fill,
    "aten::zero_": _fill,
    "aten::embedding": _rows,
    "aten::index_select": _index_select,
    "aten::gather": _gather,
    "aten::embedding_dense_backward": _embedding_backward,
}
