"""Integers of 64 bits: the limits of times, and numbers as other programs write them."""

from __future__ import annotations

import re

#: A timestamp is from -LARGEST to LARGEST nanoseconds (-2^63 is not one), a duration from 0 to LARGEST.
LARGEST = 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def parse_int64(value: object) -> int | None:
    """Return an integer, decimal text or float without a fraction as a 64-bit integer; None for anything else.

    Text has ASCII digits and an optional sign. `int` alone would accept blanks, underscores and digits of other
    scripts, and a bool is an int to it.
    """
    if (isinstance(value, str) and _INTEGER.fullmatch(value)) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def is_time(number: int) -> bool:
    """Whether a number is a valid timestamp."""
    return -LARGEST <= number <= LARGEST
