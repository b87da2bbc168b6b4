"""Timestamps and durations in 64 bits: sums and differences that don't fit are reported, and never wrap around.

A timestamp is from -LARGEST to LARGEST nanoseconds (-2^63 is not one), a duration from 0 to LARGEST. The difference of
two timestamps may need one more bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

LARGEST = 2**63 - 1


def is_time(number: int) -> bool:
    """Whether a number is a valid timestamp."""
    return -LARGEST <= number <= LARGEST


def sums(one: Int64, other: Int64 | np.int64) -> tuple[Int64, Mask]:
    """Return one + other, and where the sum is not a valid timestamp; the number there is meaningless."""
    total = one + other
    wrapped = ((one ^ total) & (other ^ total)) < 0
    return total, wrapped | (total < -LARGEST)


def differences(one: Int64, other: Int64) -> tuple[Int64, Mask]:
    """Return one - other, and where the difference is not a valid timestamp; the number there is meaningless."""
    rest = one - other
    wrapped = ((one ^ other) & (one ^ rest)) < 0
    return rest, wrapped | (rest < -LARGEST)
