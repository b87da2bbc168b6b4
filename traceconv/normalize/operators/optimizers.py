"""Fused optimizers on lists of tensors: operations per parameter, counted in the definition of torch.optim.

The types of a list's tensors are not recorded, so the bytes are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from traceconv.normalize.operators.arguments import Arguments, UnknownWork, known
from traceconv.normalize.operators.work import Formula, Work


def _adam(of: Arguments) -> Work:
    """Parameters, gradients, averages, their squares, largest, steps; rate, two betas, decay, epsilon, AMSGrad.

    Both averages (3, 4), their corrections (2), root, epsilon, quotient, rate, difference (5). Decay of the gradient,
    or of the parameter in AdamW: product and sum. AMSGrad: a maximum.
    """
    decay, keeps_largest = _number(of, 9), known(of.flag(11))
    return _updated(of, 14 + 2 * (decay != 0) + keeps_largest)


def _sgd(of: Arguments) -> Work:
    """Parameters, gradients, momenta; decay, momentum, rate, dampening, Nesterov's momentum, …, first step.

    Rate and difference (2). Decay: product and sum. Momentum: product and sum, but in the first step; dampening: a
    product. Nesterov: product and sum.
    """
    decay, momentum, dampening = _number(of, 3), _number(of, 4), _number(of, 6)
    is_nesterov, is_first = known(of.flag(7)), known(of.flag(9))
    per_parameter = 2 + 2 * (decay != 0)
    if momentum != 0:
        per_parameter += 0 if is_first else 2 + (dampening != 0)
        per_parameter += 2 * is_nesterov
    return _updated(of, per_parameter)


def _updated(of: Arguments, per_parameter: int) -> Work:
    return Work("optimizer", None, per_parameter * sum(map(prod, of.shapes(0))))


def _number(of: Arguments, place: int) -> float:
    try:
        return float(of.value(place) or "")
    except ValueError as error:
        raise UnknownWork from error


FORMULAS: Mapping[str, Formula] = {
    "aten::_fused_adam_": _adam,
    "aten::_fused_adamw_": _adam,
    "aten::_fused_sgd_": _sgd,
}
