"""Sums of hardware counters over the parts of a device."""

from __future__ import annotations

_LIMIT = 1 << 63


def add_counter(sums: dict[str, int | float], name: str, value: object) -> None:
    """Add a counter's value to its sum, which is an integer if all of its values are.

    What is no number, or an integer of more than 64 bits, is left out.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < _LIMIT:
        value = int(value)
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < _LIMIT):
        sums[name] = sums.get(name, 0) + value
