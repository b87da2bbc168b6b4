"""Reductions: one operation per element that is reduced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from traceconv.normalize.operators.arguments import Arguments, Shape, Tensor, element_bytes, require
from traceconv.normalize.operators.work import Formula, Work, bytes_as, bytes_of, vector_type, with_options


def _reduction(of: Arguments, *, dims: int, keep: int, dtype: int | None = None, result: str = "same") -> Work:
    """One operation per element that is reduced.

    dims, keep  arguments with the dimensions and whether they are kept; a call without them reduces all
    dtype       argument with the type of the result
    result      same: the type of the input; sum: int64 for integers; or a type
    """
    x = of.tensor(0)
    all_dims = len(of) <= (2 if dtype is not None else 1)
    out = None if all_dims else next((one for place in range(keep + 1, len(of)) if (one := of.optional(place))), None)
    count = out.count if out else 1 if all_dims else _kept(x.shape, of, dims)
    type_place = 1 if all_dims else dtype
    to = x.dtype if result == "same" else result
    if result == "sum":
        to = x.dtype if vector_type([x]) else "int64"
    if out is not None:
        to = out.dtype
    elif dtype is not None and type_place is not None and type_place < len(of):
        to = of.dtype(type_place) or ("" if of.value(type_place) or not of.values else to)
    write = None if count is None or not to else bytes_as(count, to)
    return Work("reduction", vector_type([x]), x.count, x.size_bytes, write)


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


def _cumulative(of: Arguments) -> Work:
    x = of.tensor(0)
    require(vector_type([x]))
    return Work("reduction", vector_type([x]), x.count, x.size_bytes, x.size_bytes)


def _extremum(of: Arguments) -> Work:
    """max and min: of two tensors, elementwise and called maximum inside; of a dimension, with indices; of all."""
    require(of.optional(1) is None)
    found = _reduction(of, dims=1, keep=2)
    if found.write_bytes is None or len(of) == 1:
        return found
    count = found.write_bytes // element_bytes(of.tensor(0).dtype)
    return replace(found, write_bytes=found.write_bytes + count * element_bytes("int64"))


def _norms(of: Arguments) -> Work:
    """_foreach_norm: one norm per tensor of a list, whose types are not recorded."""
    return Work("reduction", None, sum(map(prod, of.shapes(0))))


def _bag(of: Arguments) -> Work:
    """_embedding_bag: table, indices, start of each bag, …, weights of the rows, whether the end follows the starts.

    A sum per element of the rows, and a product if they have weights.
    """
    table, indices, starts, weights = of.tensor(0), of.tensor(1), of.tensor(2), of.optional(6)
    has_end = of.flag(7)
    require(len(table.shape) == 2)
    rows = Tensor((indices.count, table.shape[1]), table.dtype)
    bags = None if has_end is None else max(starts.count - has_end, 0) * table.shape[1]
    flops = rows.count * (2 if weights else 1)
    read = bytes_of(rows, indices, starts, weights)
    return Work("indexing", vector_type([table]), flops, read, None if bags is None else bytes_as(bags, table.dtype))


def _loss_of_classes(of: Arguments) -> Work:
    """nll_loss_forward: log-probabilities, class, weight of each class, …: one number per row is read and added."""
    x, target, weights = of.tensor(0), of.tensor(1), of.optional(2)
    require(x.shape)
    reduction = of.integers(3)
    is_each = None if reduction is None else reduction == [0]
    read = target.count * element_bytes(x.dtype) + bytes_of(target, weights)
    count = None if is_each is None else target.count if is_each else 1
    write = None if count is None else bytes_as(count, x.dtype)
    return Work("loss", vector_type([x]), target.count * (2 if weights else 1), read, write)


FORMULAS: Mapping[str, Formula] = {
    "aten::sum": with_options(_reduction, dims=1, keep=2, dtype=3, result="sum"),
    "aten::mean": with_options(_reduction, dims=1, keep=2, dtype=3),
    "aten::amax": with_options(_reduction, dims=1, keep=2),
    "aten::amin": with_options(_reduction, dims=1, keep=2),
    "aten::max": _extremum,
    "aten::min": _extremum,
    "aten::argmax": with_options(_reduction, dims=1, keep=2, result="int64"),
    "aten::argmin": with_options(_reduction, dims=1, keep=2, result="int64"),
    "aten::all": with_options(_reduction, dims=1, keep=2, result="bool"),
    "aten::any": with_options(_reduction, dims=1, keep=2, result="bool"),
    "aten::linalg_vector_norm": with_options(_reduction, dims=2, keep=3, dtype=4),
    "aten::cumsum": _cumulative,
    "aten::cumprod": _cumulative,
    "aten::_foreach_norm": _norms,
    "aten::_embedding_bag": _bag,
    "aten::nll_loss_forward": _loss_of_classes,
}
