"""Whole numbers in texts of others."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def whole_number(text: str) -> int | None:
    """The number that a text writes, in ASCII digits with a sign or none; None when it is none of 64 bits.

    `int` takes more: blanks, underscores, digits of other scripts. `str.isdigit` is true of "²", which `int` refuses.
    """
    value = int(text) if _WHOLE.fullmatch(text) else None
    return value if value is not None and -(2**63) <= value < 2**63 else None
