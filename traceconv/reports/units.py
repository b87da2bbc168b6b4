"""Quantities as tables show them and users type them: `1.584 ms`, `2 min 05 s`, `1.5MiB`, `12%`."""

from __future__ import annotations

import re
from decimal import Decimal

from traceconv.base.errors import UsageError, printable

_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
#: Unit of a column → the units that its values can be given in, in multiples of it.
UNITS: dict[str, dict[str, int]] = {
    "ns": {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9},
    "byte": {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40},
    "flop": {f"{prefix}FLOP": size for prefix, size in _PREFIXES.items()},
    "flop/s": {f"{prefix}FLOP/s": size for prefix, size in _PREFIXES.items()},
    "byte/s": {f"{prefix}B/s": size for prefix, size in _PREFIXES.items()},
    "percent": {"%": 1},
}
_PART = re.compile(r"([0-9]{1,40}(?:\.[0-9]{1,40})?) ?([^\W\d_][\w/]{0,9}|%)\s*")


def quantity(text: str, unit: str) -> Decimal | None:
    """Return an amount in `unit`, or None if `text` is a number without a unit or no quantity at all.

    Raises UsageError, with the known units, for an unknown one.
    """
    rest = text.strip()
    sign, rest = (-1, rest[1:].lstrip()) if rest.startswith("-") else (1, rest)
    known, total, place = UNITS.get(unit, {}), Decimal(0), 0
    while match := _PART.match(rest, place):
        if not known:
            return None
        if match[2] not in known:
            shown = ", ".join(one for one in known if one != "us")
            raise UsageError(f"'{printable(text, 60)}': unknown unit '{match[2]}'; use {shown}")
        total += Decimal(match[1]) * known[match[2]]
        place = match.end()
    return sign * total if place and place == len(rest) else None


def moment(text: str) -> tuple[int, bool]:
    """Parse a time: an integer of absolute nanoseconds, or a duration since the start of the run.

    Return it in ns, and whether it is relative. Raises UsageError.
    """
    found = quantity(text, "ns")
    if found is None:
        if re.fullmatch(r"-?[0-9]{1,19}", text.strip()) and -(1 << 63) <= (absolute := int(text)) < 1 << 63:
            return absolute, False
    elif found == found.to_integral_value() and abs(found) < 1 << 63:
        return int(found), True
    raise UsageError(
        f"'{printable(text, 60)}' is not a time: pass one since the start of the run, such as 1.5ms (ns, µs, ms, s, "
        "min, h), or an absolute one in integer ns"
    )
