"""Gradients of elementwise ops: one task for all operands; a sum passes its gradient on without a task."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from traceconv.runtime.graph import FLOATS, Node
from traceconv.runtime.training.gradient import (
    Gradient,
    NoRule,
    Rule,
    Same,
    Site,
    Values,
    VectorUse,
    broadcast_attribute,
    passed_on,
    unbroadcast,
)

_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


def erf(x: Values) -> Values:
    """Return the error function of each element, computed in double precision."""
    flat = [math.erf(value) for value in x.reshape(-1).astype(np.float64).tolist()]
    return np.array(flat, x.dtype).reshape(x.shape)


def _sigmoid(x: Values) -> Values:
    half: Values = 0.5 * (np.tanh(0.5 * x) + 1.0)
    return half


def _gelu(node: Node, x: Values, y: Values, dy: Values) -> Values:
    if node.text("approximate", "none") == "tanh":
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
        t = np.tanh(inner)
        slope = math.sqrt(2.0 / math.pi) * (1.0 + 3 * 0.044715 * x**2)
        approximate: Values = dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)
        return approximate
    exact: Values = dy * (0.5 * (1.0 + erf(x * math.sqrt(0.5))) + x * np.exp(-0.5 * x * x) * _INV_SQRT_2PI)
    return exact


def _selu(node: Node, x: Values, y: Values, dy: Values) -> Values:
    alpha, gamma = node.float("alpha", _SELU[0]), node.float("gamma", _SELU[1])
    return np.where(x > 0, dy * gamma, dy * (y + gamma * alpha))


def _mish(node: Node, x: Values, y: Values, dy: Values) -> Values:
    t = np.tanh(np.logaddexp(np.zeros_like(x), x))
    gradient: Values = dy * (t + x * (1.0 - t * t) * _sigmoid(x))
    return gradient


Slope = Callable[[Node, Values, Values, Values], Values]

#: Op type → (type of its gradient, operands besides dY, (node, x, y, dy) → dX, cycles per register, flops per element).
_UNARY: dict[str, tuple[str, str, Slope, int, int]] = {
    "Abs": ("AbsGrad", "x", lambda n, x, y, dy: dy * np.sign(x), 2, 2),
    "Cos": ("CosGrad", "x", lambda n, x, y, dy: -dy * np.sin(x), 13, 3),
    "Elu": ("EluGrad", "xy", lambda n, x, y, dy: np.where(x > 0, dy, dy * (y + n.float("alpha", 1.0))), 4, 3),
    "Erf": ("ErfGrad", "x", lambda n, x, y, dy: dy * (2.0 / math.sqrt(math.pi)) * np.exp(-x * x), 9, 4),
    "Exp": ("ExpGrad", "y", lambda n, x, y, dy: dy * y, 1, 1),
    "Gelu": ("GeluGrad", "x", _gelu, 20, 12),
    "HardSigmoid": (
        "HardSigmoidGrad", "y",
        lambda n, x, y, dy: np.where((y > 0) & (y < 1), dy * n.float("alpha", 0.2), np.zeros_like(dy)), 3, 2,
    ),
    "HardSwish": (
        "HardSwishGrad", "x",
        lambda n, x, y, dy: np.where(x <= -3, np.zeros_like(dy), np.where(x >= 3, dy, dy * (x / 3.0 + 0.5))), 5, 4,
    ),
    "LeakyRelu": (
        "LeakyReluGrad", "x", lambda n, x, y, dy: np.where(x > 0, dy, dy * n.float("alpha", 0.01)), 2, 2
    ),
    "Log": ("LogGrad", "x", lambda n, x, y, dy: dy / x, 4, 1),
    "Mish": ("MishGrad", "x", _mish, 24, 8),
    "Neg": ("Neg", "", lambda n, x, y, dy: -dy, 1, 1),
    "Reciprocal": ("ReciprocalGrad", "y", lambda n, x, y, dy: -dy * y * y, 3, 3),
    "Relu": ("ReluGrad", "y", lambda n, x, y, dy: np.where(y > 0, dy, np.zeros_like(dy)), 1, 1),
    "Selu": ("SeluGrad", "xy", _selu, 4, 3),
    "Sigmoid": ("SigmoidGrad", "y", lambda n, x, y, dy: dy * y * (1.0 - y), 3, 3),
    "Sin": ("SinGrad", "x", lambda n, x, y, dy: dy * np.cos(x), 13, 2),
    "Softplus": ("SoftplusGrad", "x", lambda n, x, y, dy: dy * _sigmoid(x), 11, 4),
    "Softsign": ("SoftsignGrad", "x", lambda n, x, y, dy: dy / (1.0 + np.abs(x)) ** 2, 7, 3),
    "Sqrt": ("SqrtGrad", "y", lambda n, x, y, dy: 0.5 * dy / y, 5, 2),
    "Tanh": ("TanhGrad", "y", lambda n, x, y, dy: dy * (1.0 - y * y), 3, 3),
    "ThresholdedRelu": (
        "ThresholdedReluGrad", "x",
        lambda n, x, y, dy: np.where(x > n.float("alpha", 1.0), dy, np.zeros_like(dy)), 2, 1,
    ),
}  # fmt: skip


def _unary(site: Site) -> list[Gradient | Same]:
    op_type, reads, slope, cycles, flops = _UNARY[site.node.op_type]
    names = {"x": site.x(0).name, "y": site.y.name}

    def compute(*values: Values) -> list[Values]:
        given = dict(zip(reads, values, strict=False))
        dy = values[-1]
        return [slope(site.node, given.get("x", dy), given.get("y", dy), dy)]

    return [Gradient(op_type, (*(names[k] for k in reads), site.dy), (0,), compute, VectorUse(cycles, flops))]


def _sum(site: Site) -> list[Gradient | Same]:
    broadcast_attribute(site)
    return [passed_on(site, position) for position in site.wanted]


def _sub(site: Site) -> list[Gradient | Same]:
    broadcast_attribute(site)
    shape = site.x(1).shape
    negated = VectorUse(1, 1 + (shape != site.y.shape))
    return [
        Gradient("SubGrad", (site.dy,), (1,), lambda dy: [unbroadcast(-dy, shape)], negated)
        if position
        else passed_on(site, 0)
        for position in site.wanted
    ]


Slopes = Callable[[Values, Values, Values, Values], tuple[Values, Values]]


def _power_slopes(a: Values, b: Values, y: Values, dy: Values) -> tuple[Values, Values]:
    with np.errstate(divide="ignore", invalid="ignore"):
        of_exponent = np.where(a > 0, dy * y * np.log(np.where(a > 0, a, 1)), 0)
    return dy * b * a ** (b - 1), of_exponent


#: Op type → (type of its gradient, operands of the gradients of a and of b besides dY,
#: (a, b, y, dy) → gradients before `unbroadcast`, cycles, flops).
_BINARY: dict[str, tuple[str, tuple[str, str], Slopes, int, int]] = {
    "Div": ("RealDivGrad", ("b", "by"), lambda a, b, y, dy: (dy / b, -dy * y / b), 9, 4),
    "Max": ("MaximumGrad", ("ab", "ab"), lambda a, b, y, dy: (dy * (a >= b), dy * (a < b)), 3, 2),
    "Min": ("MinimumGrad", ("ab", "ab"), lambda a, b, y, dy: (dy * (a <= b), dy * (a > b)), 3, 2),
    "Mul": ("MulGrad", ("b", "a"), lambda a, b, y, dy: (dy * b, dy * a), 2, 2),
    "Pow": ("PowGrad", ("ab", "aby"), _power_slopes, 14, 3),
}


def _binary(site: Site) -> list[Gradient | Same]:
    """Compute both gradients in one task."""
    broadcast_attribute(site)
    if len(site.node.inputs) != 2:
        raise NoRule("it must have two operands")
    op_type, needs, slopes, cycles, flops = _BINARY[site.node.op_type]
    shapes = [site.x(0).shape, site.x(1).shape]
    names = {"a": site.x(0).name, "b": site.x(1).name, "y": site.y.name}
    reads = [key for key in names if any(key in needs[k] for k in site.wanted)]

    def compute(*values: Values) -> list[Values]:
        dy = values[-1]
        # What is not read only affects a gradient that is not wanted.
        given = {**dict.fromkeys(names, dy), **dict(zip(reads, values, strict=False))}
        both = slopes(given["a"], given["b"], given["y"], dy)
        return [unbroadcast(both[k].astype(dy.dtype, copy=False), shapes[k]) for k in site.wanted]

    return [
        Gradient(op_type, (*(names[key] for key in reads), site.dy), site.wanted, compute, VectorUse(cycles, flops))
    ]


def _clip(site: Site) -> list[Gradient | Same]:
    low: float | None
    high: float | None
    if site.opset >= 11:
        bounds = [site.constant(1, "minimum"), site.constant(2, "maximum")]
        low, high = (None if bound is None else float(bound.reshape(-1)[0]) for bound in bounds)
    else:
        low, high = site.node.float("min", -3.4e38), site.node.float("max", 3.4e38)

    def compute(x: Values, dy: Values) -> list[Values]:
        inside = np.ones(x.shape, np.bool_)
        if low is not None:
            inside &= x >= low
        if high is not None:
            inside &= x <= high
        return [dy * inside]

    return [Gradient("ClipByValueGrad", (site.x(0).name, site.dy), (0,), compute, VectorUse(3, 2))]


def _prelu(site: Site) -> list[Gradient | Same]:
    shape = site.x(1).shape

    def compute(x: Values, slope: Values, dy: Values) -> list[Values]:
        rank = x.ndim
        # Before opset 7, a vector is one slope per channel.
        aligned = slope.reshape(-1, *[1] * (rank - 2)) if slope.ndim == 1 and rank > 2 and site.opset < 7 else slope
        of_slope = unbroadcast(np.where(x > 0, 0, dy * x), aligned.shape).reshape(shape)
        both = [np.where(x > 0, dy, dy * aligned), of_slope.astype(dy.dtype, copy=False)]
        return [both[position] for position in site.wanted]

    return [Gradient("PReluGrad", (site.x(0).name, site.x(1).name, site.dy), site.wanted, compute, VectorUse(4, 4))]


def _where(site: Site) -> list[Gradient | Same]:
    def compute(condition: Values, dy: Values) -> list[Values]:
        both = {1: np.where(condition, dy, 0), 2: np.where(condition, 0, dy)}
        return [unbroadcast(both[k].astype(dy.dtype), site.x(k).shape) for k in site.wanted]

    return [Gradient("SelectGrad", (site.x(0).name, site.dy), site.wanted, compute, VectorUse(2, 1))]


def _cast(site: Site) -> list[Gradient | Same]:
    back = site.x(0)
    if back.elem_type not in FLOATS:
        raise NoRule("its operand is not a float")
    if back.elem_type == site.y.elem_type:
        return [Same(0)]
    return [Gradient("Cast", (site.dy,), (0,), lambda dy: [dy.astype(back.numpy_dtype)], VectorUse(1, 0))]


def _dropout(site: Site) -> list[Gradient | Same]:
    """Multiply with the mask, which includes the scale: 0 or 1 / (1 - ratio). No mask: nothing was dropped."""
    if not site.saved:
        return [Same(0)]
    return [Gradient("DropOutDoMask", (site.saved[0], site.dy), (0,), lambda mask, dy: [dy * mask], VectorUse(1, 1))]


RULES: dict[str, Rule] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    "Add": _sum,
    "Cast": _cast,
    "Clip": _clip,
    "Dropout": _dropout,
    "PRelu": _prelu,
    "Sub": _sub,
    "Sum": _sum,
    "Where": _where,
}
