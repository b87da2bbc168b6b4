"""Gradients of pooling, reductions and ops that only move data."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from traceconv.runtime.training.gradient import Gradient, NoRule, Rule, Same, Site, Values, VectorUse, passed_on
from traceconv.runtime.training.rules.windows import windows_of

# Pooling


def _max_pool(site: Site) -> list[Gradient | Same]:
    """Pass the gradient to the first maximum of each window, like onnxruntime."""
    x, rank = site.x(0), len(site.x(0).shape) - 2
    win = windows_of(site, x.shape[2:], site.y.shape[2:], site.node.ints("kernel_shape", []))
    taps = math.prod(win.kernel)

    def compute(xv: Values, dy: Values) -> list[Values]:
        looked = win.of(xv, -np.inf)
        flat = looked.reshape(*looked.shape[: 2 + rank], taps)
        chosen = flat.argmax(axis=-1)[..., None] == np.arange(taps)
        return [win.back((dy[..., None] * chosen).reshape(looked.shape))]

    return [Gradient("MaxPoolGrad", (x.name, site.dy), (0,), compute, VectorUse(2, 1, site.y.count * taps))]


def _average_pool(site: Site) -> list[Gradient | Same]:
    x = site.x(0)
    win = windows_of(site, x.shape[2:], site.y.shape[2:], site.node.ints("kernel_shape", []))
    padding = site.node.int("count_include_pad", 0)
    counted = np.ones((1, 1, *win.extents), np.float64)
    if padding:
        # Explicit padding counts; padding added by rounding up does not.
        before = [(0, 0), (0, 0), *zip(win.begins, win.stated_ends, strict=True)]
        added = [(0, max(0, n - s)) for n, s in zip(win.ends, win.stated_ends, strict=True)]
        wide = np.pad(np.pad(counted, before, constant_values=1), [(0, 0), (0, 0), *added])
        none = (0,) * len(added)
        plain = replace(win, extents=tuple(wide.shape[2:]), begins=none, stated_ends=none)
        counts = plain.of(wide).sum(axis=tuple(range(-len(added), 0)))
    else:
        counts = win.of(counted).sum(axis=tuple(range(-len(win.kernel), 0)))

    def compute(dy: Values) -> list[Values]:
        share = (dy / counts.astype(dy.dtype)).reshape(*dy.shape, *[1] * len(win.kernel))
        return [win.back(np.broadcast_to(share, (*dy.shape, *win.kernel)))]

    taps = math.prod(win.kernel)
    return [Gradient("AvgPoolGrad", (site.dy,), (0,), compute, VectorUse(1, 1, site.y.count * taps))]


# Reductions


def _axes(site: Site) -> tuple[int, ...]:
    rank = len(site.x(0).shape)
    if site.node.op_type == "GlobalAveragePool":
        return tuple(range(2, rank))
    axes = site.node.ints("axes", []) or site.integers(1, "axes")
    if not axes:
        return () if site.node.int("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(axis % rank for axis in axes)


def _reduce(site: Site) -> list[Gradient | Same]:
    shape, axes = site.x(0).shape, _axes(site)
    count = 1 if site.node.op_type == "ReduceSum" else math.prod(shape[axis] for axis in axes)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))

    def compute(dy: Values) -> list[Values]:
        return [np.broadcast_to(dy.reshape(kept) / count, shape).astype(dy.dtype)]

    return [Gradient(f"{site.node.op_type}Grad", (site.dy,), (0,), compute, VectorUse(1, 1))]


# Moves


def _transpose(site: Site) -> list[Gradient | Same]:
    rank = len(site.x(0).shape)
    order = site.node.ints("perm", []) or list(range(rank))[::-1]
    inverse = tuple(np.argsort(order).tolist())

    def compute(dy: Values) -> list[Values]:
        return [np.ascontiguousarray(dy.transpose(inverse))]

    return [Gradient("Transpose", (site.dy,), (0,), compute, VectorUse(0, 0, scattered=True))]


def _concat(site: Site) -> list[Gradient | Same]:
    """Split the gradient, all parts in one task."""
    axis = site.node.int("axis", 1) % len(site.y.shape)
    ends = np.cumsum([site.x(place).shape[axis] for place in range(len(site.node.inputs))])

    def compute(dy: Values) -> list[Values]:
        parts = np.split(dy, ends[:-1], axis=axis)
        return [np.ascontiguousarray(parts[place]) for place in site.wanted]

    return [Gradient("SplitV", (site.dy,), site.wanted, compute, VectorUse(0, 0))]


def _split(site: Site) -> list[Gradient | Same]:
    """Concatenate the gradients, with zeros for parts that nothing depends on."""
    axis = site.node.int("axis", 0) % len(site.x(0).shape)
    parts = [site.tensors[name] for name in site.node.outputs if name]
    if len(parts) != len(site.node.outputs):
        raise NoRule("one of its outputs has no name")
    reads = tuple(dy for dy in site.dys if dy is not None)

    def compute(*dys: Values) -> list[Values]:
        remaining = iter(dys)
        pieces = [
            np.zeros(part.shape, part.numpy_dtype) if dy is None else next(remaining)
            for part, dy in zip(parts, site.dys, strict=True)
        ]
        return [np.concatenate(pieces, axis=axis)]

    return [Gradient("ConcatD", reads, (0,), compute, VectorUse(0, 0))]


def _slice(site: Site) -> list[Gradient | Same]:
    x = site.x(0)
    rank = len(x.shape)
    if site.opset >= 10:
        starts, ends = site.integers(1, "starts") or [], site.integers(2, "ends") or []
        axes = site.integers(3, "axes") or list(range(len(starts)))
        steps = site.integers(4, "steps") or [1] * len(starts)
    else:
        starts, ends = site.node.ints("starts", []), site.node.ints("ends", [])
        axes, steps = site.node.ints("axes", list(range(len(starts)))), [1] * len(starts)
    slices = [slice(None)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # A negative step to the first element: Python uses None, ONNX a very negative number.
        stop = None if step < 0 and end < -x.shape[axis] else end
        slices[axis] = slice(start, stop, step)

    def compute(dy: Values) -> list[Values]:
        gradient = np.zeros(x.shape, dy.dtype)
        gradient[tuple(slices)] = dy
        return [gradient]

    return [Gradient("StridedSliceGrad", (site.dy,), (0,), compute, VectorUse(0, 0, scattered=True))]


def _pad(site: Site) -> list[Gradient | Same]:
    mode = site.node.text("mode", "constant")
    if mode != "constant":
        raise NoRule(f"mode {mode[:20]!r}")
    x = site.x(0)
    rank = len(x.shape)
    constant = site.integers(1, "pads") if site.opset >= 11 else None
    pads = site.node.ints("pads", [0] * 2 * rank) if constant is None else constant
    axes = site.integers(3, "axes")
    if axes is not None:
        full = [0] * 2 * rank
        for index, axis in enumerate(axes):
            full[axis % rank], full[axis % rank + rank] = pads[index], pads[index + len(axes)]
        pads = full
    if min(pads, default=0) < 0:
        raise NoRule("negative padding")
    inner = tuple(slice(pads[axis], pads[axis] + x.shape[axis]) for axis in range(rank))
    return [Gradient("PadV3Grad", (site.dy,), (0,), lambda dy: [np.ascontiguousarray(dy[inner])], VectorUse(0, 0))]


def _gather(site: Site) -> list[Gradient | Same]:
    """Add up the gradients of rows that were gathered several times."""
    x, index = site.x(0), site.x(1)
    axis = site.node.int("axis", 0) % len(x.shape)
    op_type = "EmbeddingDenseGrad" if axis == 0 else "GatherV2Grad"

    def compute(indices: Values, dy: Values) -> list[Values]:
        gradient = np.zeros(x.shape, dy.dtype)
        rows = np.moveaxis(gradient, axis, 0)
        gathered = dy.reshape(*x.shape[:axis], index.count, *x.shape[axis + 1 :])
        np.add.at(rows, indices.reshape(-1), np.moveaxis(gathered, axis, 0))
        return [gradient]

    if not site.wants(0) or len(site.wanted) > 1:
        raise NoRule("only the data can have a gradient")
    return [Gradient(op_type, (index.name, site.dy), (0,), compute, VectorUse(2, 1, scattered=True))]


def _view(site: Site) -> list[Gradient | Same]:
    return [Same(0)]


RULES: dict[str, Rule] = {
    "AveragePool": _average_pool,
    "Concat": _concat,
    "Expand": lambda site: [passed_on(site, 0, "ReduceSumD")],
    "Flatten": _view,
    "Gather": _gather,
    "GlobalAveragePool": _reduce,
    "Identity": _view,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _view,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _view,
    "Transpose": _transpose,
    "Unsqueeze": _view,
}
