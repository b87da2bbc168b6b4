"""Cells of a vendor's table against what exact arithmetic gives: the tally of one file, and the cells that differ.

A cell agrees when it lies within the rounding of what is printed: vendors print times to the nanosecond, and add up or
subtract before they round. With `exact`, only the same number agrees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

_NOTHING = frozenset(("", "N/A", "NA", "n/a", "None", "null", "NULL", "nan", "NaN"))
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
#: Differences that are kept one by one, of one file; further ones are counted.
KEPT = 100_000
#: What a number below 0 becomes in 64 bits without a sign, from here on, in ns and in µs alike.
_WRAPPED = Decimal(2) ** 63 / 1000
_TURN = Decimal(2) ** 64


@dataclass(frozen=True, slots=True)
class Difference:
    """A cell that does not agree. `row` names its row by the values that tell it from others."""

    file: str
    row: str
    column: str
    vendor: str
    ours: str
    off_by: str


@dataclass(slots=True)
class Tally:
    """What came of checking one file.

    by_doubles  cells that agree only since the vendor's own doubles come to the same digits
    reason      why it could not be checked; None when it was
    """

    file: str
    exact: bool = False
    cells: int = 0
    by_doubles: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    reason: str | None = None

    def time(
        self,
        row: str,
        column: str,
        cell: str,
        ours_ns: Decimal | int | None,
        slack_ns: Decimal | int,
        double_us: float | None = None,
    ) -> None:
        """A cell in µs against ns. Nothing is compared when either side is not known.

        double_us  what the vendor's arithmetic in doubles comes to: the same double agrees too
        """
        value = number(cell)
        if ours_ns is None or cell.strip() in _NOTHING:
            return
        wrapped = value is not None and value >= _WRAPPED
        ours = Decimal(ours_ns)
        self.cells += 1
        if value is not None and not wrapped and abs(value * 1000 - ours) <= (0 if self.exact else slack_ns):
            return
        if value is not None and double_us is not None and not self.exact and float(value) == double_us:
            self.by_doubles += 1
            return
        off = "no number" if value is None else us(value * 1000 - ours)
        if wrapped and value is not None:
            off = f"wrapped at 2^64: {us(_unwrapped(value))} was meant"
        self._differ(row, column, cell, us(ours), off)

    def wrapped(self, row: str, column: str, cell: str) -> None:
        """A cell of a time that nothing tells of, but that can't be one when it is a number that wrapped at 2^64."""
        value = number(cell)
        if cell.strip() in _NOTHING:
            return
        self.cells += 1
        if value is None:
            self._differ(row, column, cell, "", "no number")
        elif value >= _WRAPPED:
            self._differ(row, column, cell, us(_unwrapped(value)), "wrapped at 2^64")

    def number(self, row: str, column: str, cell: str, ours: Decimal | int | None, slack: Decimal | int) -> None:
        """A cell that is a plain number."""
        if ours is None or cell.strip() in _NOTHING:
            return
        value = number(cell)
        self.cells += 1
        if value is None or abs(value - ours) > (0 if self.exact else slack):
            off = "no number" if value is None else _plain(value - Decimal(ours))
            self._differ(row, column, cell, _plain(Decimal(ours)), off)

    def text(self, row: str, column: str, cell: str, ours: str | None) -> None:
        """A cell that is text."""
        if ours is None or cell.strip() in _NOTHING:
            return
        self.cells += 1
        if cell.strip() != ours:
            self._differ(row, column, cell, ours, "")

    def row_missing(self, row: str, *, in_vendors: bool) -> None:
        """A row that only one side has."""
        self.cells += 1
        self._differ(row, "", "" if in_vendors else "a row", "a row" if in_vendors else "", "no such row")

    def _differ(self, row: str, column: str, vendor: str, ours: str, off: str) -> None:
        self.differing += 1
        if len(self.differences) < KEPT:
            self.differences.append(Difference(self.file, row, column, vendor.strip(), ours, off))


def number(cell: str) -> Decimal | None:
    """The number that a cell holds, exactly; None for anything else."""
    text = cell.strip()
    return Decimal(text) if len(text) < 100 and _NUMBER.fullmatch(text) else None


def us(ns: Decimal) -> str:
    """Nanoseconds as msprof prints them: µs with three decimals, more only where there are more."""
    value = ns.normalize() / 1000
    return f"{value:.3f}" if value == value.quantize(Decimal("0.001")) else f"{value:f}"


def _unwrapped(value_us: Decimal) -> Decimal:
    """The ns below 0 that were meant: it was ns that wrapped, or µs."""
    ns = value_us * 1000
    return ns - _TURN if ns < _TURN + 1 else (value_us - _TURN) * 1000


def _plain(value: Decimal) -> str:
    rounded = value.quantize(Decimal("0.000001")) if abs(value) < 10**20 else value
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
