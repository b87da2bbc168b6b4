"""The rule of every op that can be trained through, by its ONNX name.

A rule knows shapes and attributes and gives tasks (`gradient.Gradient`): what each reads, what it computes in numpy,
and what the device does for it. All compute in the element type that they are given.
"""

from __future__ import annotations

from traceconv.runtime.training.gradient import Rule
from traceconv.runtime.training.rules import elementwise, matrix, moves, norms

__all__ = ["RULES"]

RULES: dict[str, Rule] = {**elementwise.RULES, **matrix.RULES, **moves.RULES, **norms.RULES}
