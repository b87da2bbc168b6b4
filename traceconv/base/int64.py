"""Times and lengths in 64 bits: sums and differences that do not fit are reported, and never wrap around.

A time is from -LARGEST to LARGEST, in nanoseconds: its negative is one too, and -2^63 is none. A length is from 0 to
LARGEST, and ends at a time. The difference of two times may need one bit more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

LARGEST = 2**63 - 1


def is_time(number: int) -> bool:
    """Whether a number is a time."""
    return -LARGEST <= number <= LARGEST


def sums(one: Int64, other: Int64 | np.int64) -> tuple[Int64, Mask]:
    """one + other, and where that is no time: the number there means nothing."""
    total = one + other
    wrapped = ((one ^ total) & (other ^ total)) < 0
    return total, wrapped | (total < -LARGEST)


def differences(one: Int64, other: Int64) -> tuple[Int64, Mask]:
    """one - other, and where 64 bits can't hold that: the number there means nothing."""
    rest = one - other
    wrapped = ((one ^ other) & (one ^ rest)) < 0
    return rest, wrapped | (rest < -LARGEST)
