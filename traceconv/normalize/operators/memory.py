"""Copies, fills and indexing: no operations, but for sums into selected elements.

Selected rows and elements count once per index: if an index occurs twice, caches may read it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from traceconv.normalize.operators.arguments import Arguments, element_bytes, require
from traceconv.normalize.operators.work import Formula, Work, bytes_of, vector_type, with_options


def _copy(of: Arguments) -> Work:
    """Destination and source, which is broadcast."""
    out, x = of.tensor(0), of.tensor(1)
    return Work("memory", None, 0, x.size_bytes, out.size_bytes)


def _fill(of: Arguments) -> Work:
    out = of.tensor(0)
    return Work("memory", None, 0, 0, out.size_bytes)


def _rows(of: Arguments) -> Work:
    """Rows of a table, selected by indices: only these are read."""
    rows, indices = of.tensor(0), of.tensor(1)
    require(len(rows.shape) == 2)
    moved = indices.count * rows.shape[1] * element_bytes(rows.dtype)
    return Work("indexing", None, 0, moved + indices.size_bytes, moved)


def _index_select(of: Arguments) -> Work:
    x, dim, indices = of.tensor(0), of.integer(1), of.tensor(2)
    require(-len(x.shape) <= dim < len(x.shape))
    place = dim % len(x.shape)
    moved = prod(x.shape[:place] + x.shape[place + 1 :]) * indices.count * element_bytes(x.dtype)
    return Work("indexing", None, 0, moved + indices.size_bytes, moved)


def _gather(of: Arguments) -> Work:
    x, indices = of.tensor(0), of.tensor(2)
    moved = indices.count * element_bytes(x.dtype)
    return Work("indexing", None, 0, moved + indices.size_bytes, moved)


def _embedding_backward(of: Arguments) -> Work:
    gradient, indices, count = of.tensor(0), of.tensor(1), of.integer(2)
    require(gradient.shape)
    write = count * gradient.shape[-1] * element_bytes(gradient.dtype)
    return Work("indexing", vector_type([gradient]), gradient.count, bytes_of(gradient, indices), write)


def _copied(of: Arguments) -> Work:
    """A result with the input's size and type, such as that of flip."""
    x = of.tensor(0)
    return Work("memory", None, 0, x.size_bytes, x.size_bytes)


def _of_list(of: Arguments) -> Work:
    """A copy of a list of tensors or of selected elements, whose number or type is not recorded."""
    return Work("memory", None, 0)


def _into_selected(of: Arguments, *, is_sum: bool = False) -> Work:
    """Target, dimension, indices, elements that replace those selected or are added to them: all in place."""
    target, indices, x = of.tensor(0), of.tensor(2), of.tensor(3)
    moved = x.count * element_bytes(target.dtype)
    read = bytes_of(x, indices) + (moved if is_sum else 0)
    return Work("indexing", vector_type([target]) if is_sum else None, x.count if is_sum else 0, read, moved)


def _scatter(of: Arguments, *, is_sum: bool = False) -> Work:
    """As _into_selected, with an element per index; the source may have more. A reduction is unknown."""
    target, indices, x = of.tensor(0), of.tensor(2), of.optional(3)
    require(len(of) == 4)
    moved = indices.count * element_bytes(target.dtype)
    read = indices.size_bytes + (moved if x else 0) + (moved if is_sum else 0)
    compute_type = vector_type([target]) if is_sum else None
    return Work("indexing", compute_type, indices.count if is_sum else 0, read, moved)


def _loss_of_classes_backward(of: Arguments) -> Work:
    """nll_loss_backward: gradient, log-probabilities, classes, weights, …: one element per row is written.

    The rest of the result is filled with 0 before, by an operator of its own.
    """
    x, target = of.tensor(1), of.tensor(2)
    write = target.count * element_bytes(x.dtype)
    return Work("loss", vector_type([x]), target.count, bytes_of(of.optional(0), target, of.optional(3)), write)


def _cached(of: Arguments) -> Work:
    """reshape_and_cache_flash of vLLM: key, value, their caches, slot of each token, to which both are copied.

    Tokens of the padding have no slot: they count, as the slots are not recorded.
    """
    key, value, keys, values, slots = (of.tensor(place) for place in range(5))
    require(len(slots.shape) == 1 and key.shape and value.shape and key.shape[0] == value.shape[0])
    counts = [slots.count * prod(one.shape[1:]) for one in (key, value)]
    read = counts[0] * element_bytes(key.dtype) + counts[1] * element_bytes(value.dtype) + slots.size_bytes
    write = counts[0] * element_bytes(keys.dtype) + counts[1] * element_bytes(values.dtype)
    return Work("memory", None, 0, read, write)


FORMULAS: Mapping[str, Formula] = {
    "aten::copy_": _copy,
    "aten::fill_": _fill,
    "aten::zero_": _fill,
    "aten::flip": _copied,
    "aten::roll": _copied,
    "aten::tril": _copied,
    "aten::triu": _copied,
    "aten::cat": _of_list,
    "aten::index": _of_list,
    "aten::embedding": _rows,
    "aten::index_select": _index_select,
    "aten::gather": _gather,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::index_add_": with_options(_into_selected, is_sum=True),
    "aten::index_copy_": _into_selected,
    "aten::scatter_": _scatter,
    "aten::scatter_add_": with_options(_scatter, is_sum=True),
    "aten::nll_loss_backward": _loss_of_classes_backward,
    "_C_cache_ops::reshape_and_cache_flash": _cached,
}
