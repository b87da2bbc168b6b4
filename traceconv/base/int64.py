"""Arrays of timestamps and durations: sums and differences that don't fit 64 bits are reported, and never wrap around.

The difference of two timestamps may need one more bit.
"""

from __future__ import annotations

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.integers import LARGEST

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


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


def has_duplicates(values: Int64) -> bool:
    """Whether a value occurs twice. numpy.unique hashes, which takes up to 100 times as long for distinct values."""
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())
