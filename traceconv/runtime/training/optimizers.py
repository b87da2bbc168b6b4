"""SGD with momentum, and Adam: one task a parameter, which changes it and its slots in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.runtime.training.gradient import Values, VectorUse

OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True, slots=True)
class Optimizer:
    """How parameters follow their gradients. `momentum` is SGD's; `beta1`, `beta2` and `epsilon` are Adam's.

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
        """Raises UsageError for what no optimizer can be."""
        if self.kind not in OPTIMIZERS:
            near = suggestion(self.kind, list(OPTIMIZERS)) or f" Choose one of: {', '.join(OPTIMIZERS)}."
            raise UsageError(f"--optimizer {printable(self.kind, 40)}: unknown optimizer.{near}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise UsageError(f"--lr {self.lr}: must be above 0")
        for name in ("momentum", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"--{name} {getattr(self, name)}: must be at least 0 and below 1")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise UsageError(f"epsilon {self.epsilon}: must be above 0")

    @property
    def slots(self) -> tuple[str, ...]:
        """What it keeps for each parameter, of the parameter's shape."""
        if self.kind == "adam":
            return ("adam_m", "adam_v")
        return ("momentum",) if self.momentum else ()

    @property
    def op_type(self) -> str:
        """The task's type on the device."""
        if self.kind == "adam":
            return "ApplyAdam"
        return "ApplyMomentum" if self.momentum else "ApplyGradientDescent"

    @property
    def work(self) -> VectorUse:
        """What a task costs an element."""
        if self.kind == "adam":
            return VectorUse(20, 14)
        return VectorUse(4, 4) if self.momentum else VectorUse(2, 2)

    def apply(self, step: int, weight: Values, gradient: Values, slots: Sequence[Values]) -> None:
        """Changes `weight` and `slots` in place; `step` counts from 1."""
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
