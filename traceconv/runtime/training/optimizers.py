"""SGD with momentum, and Adam: one task per parameter, which updates it and its slots in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.runtime.training.gradient import Values, VectorUse

OPTIMIZERS = ("sgd", "adam")


class UpdateTask(NamedTuple):
    """The task that updates a parameter. Each of its slots has the parameter's shape."""

    op_type: str
    slots: tuple[str, ...]
    work: VectorUse


_ADAM = UpdateTask("ApplyAdam", ("adam_m", "adam_v"), VectorUse(20, 14))
_MOMENTUM = UpdateTask("ApplyMomentum", ("momentum",), VectorUse(4, 4))
_GRADIENT_DESCENT = UpdateTask("ApplyGradientDescent", (), VectorUse(2, 2))


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer: SGD uses `momentum`, Adam uses `beta1`, `beta2` and `epsilon`.

    SGD: v ← momentum · v + g; w ← w - lr · v. Adam (Kingma, Ba 2014): m ← β₁ m + (1 - β₁) g, v ← β₂ v + (1 - β₂) g²,
    w ← w - lr · (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε), with t from 1.
    """

    kind: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def check(self) -> None:
        """Raise UsageError for an unknown kind or a value out of range."""
        if self.kind not in OPTIMIZERS:
            near = suggestion(self.kind, list(OPTIMIZERS)) or f" Choose one of: {', '.join(OPTIMIZERS)}."
            raise UsageError(f"{option('--optimizer')} {printable(self.kind, 40)}: unknown optimizer.{near}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise UsageError(f"{option('--lr')} {self.lr}: must be above 0")
        for name in ("momentum", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{option(f'--{name}')} {getattr(self, name)}: must be at least 0 and below 1")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise UsageError(f"epsilon {self.epsilon}: must be above 0")

    @property
    def task(self) -> UpdateTask:
        """The task that updates a parameter."""
        if self.kind == "adam":
            return _ADAM
        return _MOMENTUM if self.momentum else _GRADIENT_DESCENT

    def apply(self, step: int, weight: Values, gradient: Values, slots: Sequence[Values]) -> None:
        """Update `weight` and `slots` in place; `step` counts from 1."""
        if self.kind == "adam":
            m, v = slots
            m *= self.beta1
            m += (1.0 - self.beta1) * gradient
            v *= self.beta2
            v += (1.0 - self.beta2) * (gradient * gradient)
            scale = self.lr / (1.0 - self.beta1**step)
            weight -= scale * m / (np.sqrt(v / (1.0 - self.beta2**step)) + self.epsilon)
            return
        if slots:
            slots[0][...] = self.momentum * slots[0] + gradient
            gradient = slots[0]
        weight -= self.lr * gradient
