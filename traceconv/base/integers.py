"""Whole numbers as others write them."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def whole_number(value: object) -> int | None:
    """A whole number of 64 bits, also from a text or a float without fraction; None for anything else, such as true.

    A text has ASCII digits, with a sign or none. `int` takes more: blanks, underscores, digits of other scripts; and
    `str.isdigit` is true of "²", which `int` refuses.
    """
    if (isinstance(value, str) and _WHOLE.fullmatch(value)) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return value if type(value) is int and -(2**63) <= value < 2**63 else None
