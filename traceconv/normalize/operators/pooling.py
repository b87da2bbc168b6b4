"""Pooling and interpolation: operations per element of each window."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod

from traceconv.normalize.operators.arguments import Arguments, Shape, element_bytes, known, require
from traceconv.normalize.operators.work import Formula, Work, bytes_as, bytes_of, of_each, vector_type, with_options


def _pooling(of: Arguments, *, rank: int, has_indices: bool) -> Work:
    """Input, size of the window, stride, padding, dilation (with indices only), whether sizes are rounded up.

    One operation per element of each window, those of the padding too.
    """
    x = of.tensor(0)
    require(len(x.shape) in (rank + 1, rank + 2))
    window = of_each(of.integers(1), rank)
    count = _windows(of, x.shape[-rank:], window, has_indices)
    if window is None or count is None:
        return Work("pooling", vector_type([x]), None, x.size_bytes)
    count *= prod(x.shape[:-rank])
    write = bytes_as(count, x.dtype)
    if write is not None and has_indices:
        write += count * element_bytes("int64")
    return Work("pooling", vector_type([x]), count * prod(window), x.size_bytes, write)


def _windows(of: Arguments, extents: Shape, window: list[int] | None, has_indices: bool) -> int | None:
    """Number of windows of one channel; stride: that of the window by default."""
    rank = len(extents)
    stride = of.integers(2)
    strides = window if stride == [] else of_each(stride, rank)
    padding = of_each(of.integers(3), rank)
    dilation = of_each(of.integers(4), rank) if has_indices else [1] * rank
    is_up = of.flag(5 if has_indices else 4)
    if window is None or strides is None or padding is None or dilation is None or is_up is None:
        return None
    if min(*window, *strides, *dilation) < 1 or min(padding) < 0:
        return None
    count = 1
    for extent, size, step, pad, apart in zip(extents, window, strides, padding, dilation, strict=True):
        reach = extent + 2 * pad - apart * (size - 1) - 1
        if reach < 0:
            return None
        places = (reach + (step - 1 if is_up else 0)) // step + 1
        # The last window starts within the input or its padding on the left.
        count *= places - (is_up and (places - 1) * step >= extent + pad)
    return count


def _max_pooling_backward(of: Arguments, *, indices: int) -> Work:
    """Gradient, input, …, indices: each gradient is added to one element."""
    gradient, x, places = of.tensor(0), of.tensor(1), of.tensor(indices)
    read = bytes_of(gradient, places)
    return Work("pooling", vector_type([gradient]), gradient.count, read, x.size_bytes)


def _mean_pooling_backward(of: Arguments, *, rank: int) -> Work:
    """Gradient, input, size of the window: each gradient is added to all elements of its window."""
    gradient, x, window = of.tensor(0), of.tensor(1), of_each(of.integers(2), rank)
    flops = None if window is None or min(window) < 1 else gradient.count * prod(window)
    return Work("pooling", vector_type([gradient]), flops, gradient.size_bytes, x.size_bytes)


def _adaptive_pooling(of: Arguments, *, rank: int, has_indices: bool) -> Work:
    """Input, extents of the result."""
    x, extents = of.tensor(0), of_each(of.integers(1), rank)
    require(len(x.shape) in (rank + 1, rank + 2))
    if extents is None or min(extents) < 0:
        return Work("pooling", vector_type([x]), None, x.size_bytes)
    count = prod(x.shape[:-rank]) * prod(extents)
    write = bytes_as(count, x.dtype)
    if write is not None and has_indices:
        write += count * element_bytes("int64")
    flops = prod(x.shape[:-rank]) * _adaptive_windows(x.shape[-rank:], extents)
    return Work("pooling", vector_type([x]), flops, x.size_bytes, write)


def _adaptive_pooling_backward(of: Arguments, *, rank: int) -> Work:
    """Gradient, input."""
    gradient, x = of.tensor(0), of.tensor(1)
    require(len(gradient.shape) == len(x.shape) > rank)
    flops = prod(x.shape[:-rank]) * _adaptive_windows(x.shape[-rank:], list(gradient.shape[-rank:]))
    return Work("pooling", vector_type([gradient]), flops, gradient.size_bytes, x.size_bytes)


def _adaptive_windows(extents: Shape, results: list[int]) -> int:
    """Elements of all windows: the i-th of n is from ⌊i·extent/n⌋ to ⌈(i+1)·extent/n⌉, so neighbours may share one."""
    return prod(
        extent + result - gcd(extent, result) if result else 0 for extent, result in zip(extents, results, strict=True)
    )


def _interpolation(of: Arguments, *, rank: int, taps: int) -> Work:
    """Input, extents of the result: products of `taps` elements with weights, and their sum; 1: a copy.

    The weights, which all rows and channels share, are not counted.
    """
    x, extents = of.tensor(0), known(of_each(of.integers(1), rank))
    require(len(x.shape) == rank + 2 and min(extents) >= 0)
    count = prod(x.shape[:2]) * prod(extents)
    # A smaller result may skip elements of the input.
    is_all = all(result >= extent for result, extent in zip(extents, x.shape[2:], strict=True))
    flops = 0 if taps == 1 else count * (2 * taps - 1)
    return Work("elementwise", vector_type([x]), flops, x.size_bytes if is_all else None, bytes_as(count, x.dtype))


def _interpolation_backward(of: Arguments, *, rank: int, taps: int) -> Work:
    """Gradient, its extents, extents of the input: a product and a sum per element of the result and of its window."""
    gradient, extents = of.tensor(0), known(of.integers(2))
    require(len(extents) == rank + 2 and min(extents) >= 0)
    flops = gradient.count * (1 if taps == 1 else 2 * taps)
    write = bytes_as(prod(extents), gradient.dtype)
    return Work("elementwise", vector_type([gradient]), flops, gradient.size_bytes, write)


def _pooling_formulas() -> dict[str, Formula]:
    found: dict[str, Formula] = {}
    for rank in (2, 3):
        mean, adaptive = f"aten::avg_pool{rank}d", f"aten::_adaptive_avg_pool{rank}d"
        for name, indices in ((f"aten::max_pool{rank}d_with_indices", 7), (f"aten::adaptive_max_pool{rank}d", 2)):
            is_adaptive = indices == 2
            found[name] = with_options(_adaptive_pooling if is_adaptive else _pooling, rank=rank, has_indices=True)
            found[f"{name}_backward"] = with_options(_max_pooling_backward, indices=indices)
        found[mean] = with_options(_pooling, rank=rank, has_indices=False)
        found[f"{mean}_backward"] = with_options(_mean_pooling_backward, rank=rank)
        found[adaptive] = with_options(_adaptive_pooling, rank=rank, has_indices=False)
        found[f"{adaptive}_backward"] = with_options(_adaptive_pooling_backward, rank=rank)
    return found


def _interpolation_formulas() -> dict[str, Formula]:
    """By rank, and number of elements from which one of the result is computed."""
    found: dict[str, Formula] = {}
    kinds = {"nearest1d": (1, 1), "nearest2d": (2, 1), "nearest3d": (3, 1), "linear1d": (1, 2), "bilinear2d": (2, 4),
             "trilinear3d": (3, 8), "bicubic2d": (2, 16)}  # fmt: skip
    for kind, (rank, taps) in kinds.items():
        found[f"aten::upsample_{kind}"] = with_options(_interpolation, rank=rank, taps=taps)
        found[f"aten::upsample_{kind}_backward"] = with_options(_interpolation_backward, rank=rank, taps=taps)
    return found


FORMULAS: Mapping[str, Formula] = {**_pooling_formulas(), **_interpolation_formulas()}
