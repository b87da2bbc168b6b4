"""Gradients of normalizations and softmax: one task, which recomputes statistics that were not saved."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceconv.runtime.training.gradient import Gradient, NoRule, Rule, Same, Site, Values, VectorUse


def _per_channel(values: Values, rank: int) -> Values:
    return values.reshape(1, -1, *[1] * (rank - 2))


def _normalized(
    x: Values, mean: Values, var: Values, epsilon: float, scale: Values, dy: Values, axes: tuple[int, ...]
) -> tuple[Values, Values]:
    """Return (normalized x, gradient of x) if x is normalized with its mean and variance over `axes`."""
    inverse = 1.0 / np.sqrt(var + epsilon)
    xhat = (x - mean) * inverse
    g = dy * scale
    mean_g = g.mean(axis=axes, keepdims=True)
    mean_gx = (g * xhat).mean(axis=axes, keepdims=True)
    return xhat, inverse * (g - mean_g - xhat * mean_gx)


def _batch_norm(site: Site) -> list[Gradient | Same]:
    """Use the batch statistics that the op saves."""
    epsilon = site.node.float("epsilon", 1e-5)
    x, scale = site.x(0), site.x(1)

    def compute(xv: Values, gamma: Values, mean: Values, var: Values, dy: Values) -> list[Values]:
        rank = xv.ndim
        axes = (0, *range(2, rank))
        mean, var, factor = (_per_channel(v, rank) for v in (mean, var, gamma))
        xhat, dx = _normalized(xv, mean, var, epsilon, factor, dy, axes)
        gradients = {0: dx, 1: (dy * xhat).sum(axis=axes), 2: dy.sum(axis=axes)}
        return [gradients[position].astype(dy.dtype, copy=False) for position in site.wanted]

    reads = (x.name, scale.name, *site.saved[:2], site.dy)
    return [Gradient("BatchNormGrad", reads, site.wanted, compute, VectorUse(8, 11))]


def _layer_norm(site: Site) -> list[Gradient | Same]:
    rank = len(site.x(0).shape)
    first = site.node.int("axis", -1) % rank
    return _without_statistics("LayerNormGrad", site, range(first, rank), range(first), per_channel=False)


def _instance_norm(site: Site) -> list[Gradient | Same]:
    spatial = range(2, len(site.x(0).shape))
    return _without_statistics("InstanceNormGrad", site, spatial, (0, *spatial), per_channel=True)


def _without_statistics(
    op_type: str, site: Site, normalized: Iterable[int], summed: Iterable[int], *, per_channel: bool
) -> list[Gradient | Same]:
    """Recompute mean and variance over the `normalized` axes; parameters are constant over the `summed` axes."""
    epsilon, axes, outer = site.node.float("epsilon", 1e-5), tuple(normalized), tuple(summed)

    def compute(x: Values, gamma: Values, dy: Values) -> list[Values]:
        mean = x.mean(axis=axes, keepdims=True)
        var = ((x - mean) ** 2).mean(axis=axes, keepdims=True)
        factor = _per_channel(gamma, x.ndim) if per_channel else gamma
        xhat, dx = _normalized(x, mean, var, epsilon, factor, dy, axes)
        gradients = {0: dx, 1: (dy * xhat).sum(axis=outer), 2: dy.sum(axis=outer)}
        return [gradients[k].reshape(site.x(k).shape).astype(dy.dtype, copy=False) for k in site.wanted]

    return [Gradient(op_type, (site.x(0).name, site.x(1).name, site.dy), site.wanted, compute, VectorUse(14, 14))]


def _softmax(site: Site) -> list[Gradient | Same]:
    rank, is_log = len(site.y.shape), site.node.op_type == "LogSoftmax"
    axis = site.node.int("axis", 1 if site.opset < 13 else -1) % rank
    # Before opset 13, a softmax is over `axis` and all axes after it.
    axes = tuple(range(axis, rank)) if site.opset < 13 else (axis,)

    def compute(y: Values, dy: Values) -> list[Values]:
        if is_log:
            return [dy - np.exp(y) * dy.sum(axis=axes, keepdims=True)]
        return [y * (dy - (dy * y).sum(axis=axes, keepdims=True))]

    work = VectorUse(9 if is_log else 4, 4)
    return [Gradient(f"{site.node.op_type}Grad", (site.y.name, site.dy), (0,), compute, work)]


def _lrn(site: Site) -> list[Gradient | Same]:
    """y = x · s^-β, s = bias + α/size · Σ x² over neighbouring channels."""
    size, bias = site.node.int("size", 1), site.node.float("bias", 1.0)
    alpha, beta = site.node.float("alpha", 1e-4), site.node.float("beta", 0.75)
    before, after = (size - 1) // 2, size // 2

    def around(values: Values, below: int, above: int) -> Values:
        total = np.zeros_like(values)
        channels = values.shape[1]
        for shift in range(-below, above + 1):
            to = slice(max(0, -shift), min(channels, channels - shift))
            taken = slice(max(0, shift), min(channels, channels + shift))
            total[:, to] += values[:, taken]
        return total

    def compute(x: Values, dy: Values) -> list[Values]:
        s = bias + alpha / size * around(x * x, before, after)
        # Channel c contributes to the sums of channels c - after to c + before.
        shared = around(dy * x * s ** (-beta - 1), after, before)
        return [(dy * s**-beta - 2 * alpha * beta / size * x * shared).astype(dy.dtype, copy=False)]

    if size < 1:
        raise NoRule("its size must be positive")
    return [Gradient("LRNGrad", (site.x(0).name, site.dy), (0,), compute, VectorUse(16, 4 + 4 * size))]


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax,
    "Softmax": _softmax,
}
