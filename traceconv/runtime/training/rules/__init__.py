"""Gradient rules by ONNX op type.

A rule turns an op into tasks (`gradient.Gradient`), each with its operands, its computation in numpy and its work on
the device. All compute in the element type of their operands.
"""

from __future__ import annotations

from traceconv.runtime.training.gradient import Rule
from traceconv.runtime.training.rules import elementwise, matrix, moves, norms

__all__ = ["RULES"]

RULES: dict[str, Rule] = {**elementwise.RULES, **matrix.RULES, **moves.RULES, **norms.RULES}
