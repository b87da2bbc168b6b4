"""The work of an operator, and what its formulas share.

Conventions of all formulas: a multiply-accumulate counts as 2 operations. Every other operation on an element counts as
1, whatever it is: an exponential and a comparison too. Bytes are those of each input and result once, whatever their
strides and the caches. What the recorded arguments don't determine is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from traceconv.normalize.operators.arguments import Arguments, Shape, Tensor, element_bytes, promoted, require


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


#: The work of a call with these arguments. Raises UnknownWork.
Formula: TypeAlias = "Callable[[Arguments], Work]"


def with_options(function: Callable[..., Work], **options: object) -> Formula:
    """Return a formula that calls a function with these options."""
    return lambda of: function(of, **options)


def bytes_of(*tensors: Tensor | None) -> int:
    """Return the bytes of tensors; absent ones have none."""
    return sum(one.size_bytes for one in tensors if one is not None)


def bytes_as(count: int, dtype: str | None) -> int | None:
    """Return the bytes of elements of a type; None if the type is unknown."""
    return None if dtype is None else count * element_bytes(dtype)


def broadcast(shapes: list[Shape]) -> Shape:
    """Return the shape of tensors that are broadcast. Raises UnknownWork if they don't match."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {extent for extent in extents if extent != 1}
        require(len(wide) <= 1)
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def of_each(numbers: list[int] | None, count: int) -> list[int] | None:
    """Return one number per dimension; a single one is that of all."""
    if numbers is not None and len(numbers) == 1:
        return numbers * count
    return numbers if numbers is not None and len(numbers) == count else None


def same_type(a: Tensor, b: Tensor) -> str | None:
    """Return the type of both tensors; None if they differ."""
    return a.dtype if a.dtype == b.dtype else None


def matrix_type(a: Tensor, b: Tensor) -> str | None:
    """Return the compute type of a product."""
    dtype = same_type(a, b)
    return dtype and f"{dtype} matrix"


def vector_type(tensors: list[Tensor]) -> str | None:
    """Return the compute type of arithmetic on elements.

    Vector units compute formats of up to 32 bits as fp32; integers have no peak here.
    """
    dtype = promoted(tensors)
    if dtype == "fp64":
        return "fp64 vector"
    return "fp32 vector" if dtype in ("fp32", "fp16", "bf16", "fp8") else None
