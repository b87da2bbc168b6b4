"""Gradients of convolutions and matrix products: one task per operand, each with the work of the op."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from traceconv.runtime.cost import MatrixWork
from traceconv.runtime.graph import Tensor
from traceconv.runtime.training.gradient import (
    Compute,
    Gradient,
    NoRule,
    Rule,
    Same,
    Site,
    Values,
    VectorUse,
    unbroadcast,
)
from traceconv.runtime.training.rules.windows import Windows, windows_of


def _conv(site: Site) -> list[Gradient | Same]:
    x, w = site.x(0), site.x(1)
    groups = site.node.int("group", 1)
    win = windows_of(site, x.shape[2:], site.y.shape[2:], w.shape[2:])
    kernel, pixels = math.prod(w.shape[2:]), x.shape[0] * math.prod(site.y.shape[2:])
    work = MatrixWork(groups, pixels, w.shape[1] * kernel, w.shape[0] // groups, x.elem_bytes)
    return _conv_gradients(
        site,
        f"{'Depthwise' if groups > 1 and w.shape[1] == 1 else ''}Conv{len(w.shape) - 2}DBackprop",
        lambda value, dy: [filter_gradient(win, groups, value, dy).reshape(w.shape)],
        replace(work, m=work.k, k=work.m),
        lambda f, dy: [input_gradient(win, groups, f, dy)],
        work,
    )


def _conv_gradients(
    site: Site, prefix: str, of_filter: Compute, filter_work: MatrixWork, of_input: Compute, input_work: MatrixWork
) -> list[Gradient | Same]:
    """Return the filter's gradient first: the exchange and the update wait for it."""
    x, w = site.x(0), site.x(1)
    found: list[Gradient | Same] = []
    if site.wants(1):
        found.append(Gradient(f"{prefix}Filter", (x.name, site.dy), (1,), of_filter, filter_work))
    if site.wants(2):
        bias = VectorUse(1, 1)
        found.append(Gradient("BiasAddGrad", (site.dy,), (2,), lambda dy: [dy.sum(axis=(0, *range(2, dy.ndim)))], bias))
    if site.wants(0):
        found.append(Gradient(f"{prefix}Input", (w.name, site.dy), (0,), of_input, input_work))
    return found


def filter_gradient(win: Windows, groups: int, x: Values, dy: Values) -> Values:
    """Return the filter's gradient in a correlation of `x`: outputs × inputs / group × kernel."""
    rank = len(win.kernel)
    n, channels = x.shape[:2]
    taps = math.prod(win.kernel)
    pixels = math.prod(win.outputs)
    # One product per group: outputs / group × N · pixels, and N · pixels × inputs / group · kernel.
    order = (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank))
    columns = win.of(x).transpose(order).reshape(groups, channels // groups * taps, n * pixels)
    rows = dy.transpose(1, 0, *range(2, 2 + rank)).reshape(groups, dy.shape[1] // groups, n * pixels)
    product: Values = np.matmul(rows, columns.transpose(0, 2, 1))
    return product.reshape(dy.shape[1], channels // groups, *win.kernel)


def input_gradient(win: Windows, groups: int, w: Values, dy: Values) -> Values:
    """Return the input's gradient in a correlation with the filter `w`: N × C × extents."""
    n, out_channels = dy.shape[:2]
    taps, pixels = math.prod(win.kernel), math.prod(win.outputs)
    per_group = w.shape[1]
    filters = w.reshape(groups, out_channels // groups, per_group * taps)
    rows = dy.reshape(n, groups, out_channels // groups, pixels)
    parts: Values = np.matmul(filters.transpose(0, 2, 1)[None], rows)
    parts = parts.reshape(n, groups * per_group, taps, pixels)
    shaped = parts.transpose(0, 1, 3, 2).reshape(n, groups * per_group, *win.outputs, *win.kernel)
    return win.back(shaped)


def _conv_transpose(site: Site) -> list[Gradient | Same]:
    """Derive the gradients from a convolution from output to input, whose input gradient the op is."""
    x, w = site.x(0), site.x(1)
    groups = site.node.int("group", 1)
    win = windows_of(site, site.y.shape[2:], x.shape[2:], w.shape[2:])
    if site.node.text("auto_pad", "NOTSET") == "NOTSET" and site.node.ints("output_shape", []):
        raise NoRule("its padding depends on output_shape")
    pixels, kernel = x.shape[0] * math.prod(x.shape[2:]), math.prod(w.shape[2:])
    work = MatrixWork(groups, pixels, x.shape[1] // groups, w.shape[1] * kernel, x.elem_bytes)
    return _conv_gradients(
        site,
        f"Conv{len(w.shape) - 2}DTransposeBackprop",
        lambda value, dy: [filter_gradient(win, groups, dy, value).reshape(w.shape)],
        replace(work, m=work.n, n=work.k, k=work.m),
        lambda f, dy: [_correlate(win, groups, f, dy)],
        work,
    )


def _correlate(win: Windows, groups: int, w: Values, x: Values) -> Values:
    rank = len(win.kernel)
    n, channels = x.shape[:2]
    taps, pixels = math.prod(win.kernel), math.prod(win.outputs)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    columns = win.of(x).transpose(order).reshape(n, groups, channels // groups * taps, pixels)
    filters = w.reshape(groups, w.shape[0] // groups, channels // groups * taps)
    product: Values = np.matmul(filters[None], columns)
    return product.reshape(n, w.shape[0], *win.outputs)


def _gemm(site: Site) -> list[Gradient | Same]:
    a, b = site.x(0), site.x(1)
    alpha, beta = site.node.float("alpha", 1.0), site.node.float("beta", 1.0)
    flip_a, flip_b = site.node.int("transA", 0), site.node.int("transB", 0)
    m, n = site.y.shape
    k = a.shape[0] if flip_a else a.shape[1]

    def of_a(bv: Values, dy: Values) -> list[Values]:
        gradient = alpha * (dy @ (bv if flip_b else bv.T))
        return [np.ascontiguousarray(gradient.T if flip_a else gradient)]

    def of_b(av: Values, dy: Values) -> list[Values]:
        gradient = alpha * ((av if flip_a else av.T) @ dy)
        return [np.ascontiguousarray(gradient.T if flip_b else gradient)]

    found: list[Gradient | Same] = []
    if site.wants(1):
        found.append(Gradient("MatMulGrad", (a.name, site.dy), (1,), of_b, MatrixWork(1, k, n, m, a.elem_bytes)))
    if site.wants(2):
        shape = site.x(2).shape
        if shape == site.y.shape and beta == 1.0:
            found.append(Same(2))
        else:
            found.append(
                Gradient("BiasAddGrad", (site.dy,), (2,), lambda dy: [unbroadcast(beta * dy, shape)], VectorUse(1, 1))
            )
    if site.wants(0):
        found.append(Gradient("MatMulGrad", (b.name, site.dy), (0,), of_a, MatrixWork(1, m, k, n, a.elem_bytes)))
    return found


def _matmul(site: Site) -> list[Gradient | Same]:
    a, b = site.x(0), site.x(1)

    def of_a(bv: Values, dy: Values) -> list[Values]:
        rows, columns = _as_matrices(a, b, dy)
        right = bv.reshape(-1, 1) if bv.ndim == 1 else bv
        product = np.matmul(rows, np.swapaxes(right, -1, -2))
        return [unbroadcast(product.reshape(*product.shape[:-2], *columns), a.shape)]

    def of_b(av: Values, dy: Values) -> list[Values]:
        rows, _ = _as_matrices(a, b, dy)
        left = av.reshape(1, -1) if av.ndim == 1 else av
        if len(b.shape) <= 2:  # a single right side: one product
            columns = rows.shape[-1]
            right = np.broadcast_to(rows, (*left.shape[:-1], columns)).reshape(-1, columns)
            return [(left.reshape(-1, left.shape[-1]).T @ right).reshape(b.shape)]
        return [unbroadcast(np.matmul(np.swapaxes(left, -1, -2), rows), b.shape)]

    k, n = a.shape[-1], b.shape[-1] if len(b.shape) > 1 else 1
    rows = max(1, site.y.count // max(1, n))
    batch = math.prod(site.y.shape[: -2 if len(a.shape) > 1 else -1]) if len(b.shape) > 2 else 1
    m = max(1, rows // max(1, batch))
    found: list[Gradient | Same] = []
    if site.wants(1):
        found.append(Gradient("MatMulGrad", (a.name, site.dy), (1,), of_b, MatrixWork(batch, k, n, m, a.elem_bytes)))
    if site.wants(0):
        found.append(Gradient("MatMulGrad", (b.name, site.dy), (0,), of_a, MatrixWork(batch, m, k, n, a.elem_bytes)))
    return found


def _as_matrices(a: Tensor, b: Tensor, dy: Values) -> tuple[Values, tuple[int, ...]]:
    """Return `dy` with the dimensions dropped for vector operands, and the last dimensions of the gradient of `a`."""
    rows = dy
    if len(b.shape) == 1:
        rows = rows[..., None]
    if len(a.shape) == 1:
        rows = rows[..., None, :]
    return rows, a.shape[-1:] if len(a.shape) == 1 else (rows.shape[-2], a.shape[-1])


RULES: dict[str, Rule] = {"Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul}
