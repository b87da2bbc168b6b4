"""Compare cells of a vendor's table with the results of exact arithmetic, and list those that differ.

A cell agrees if rounding explains the difference: vendors print times to the nanosecond, and add or subtract before
they round. With `exact`, only the same number agrees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

#: Cells without a value.
NO_VALUE = frozenset(("", "N/A", "NA", "n/a", "None", "null", "NULL", "nan", "NaN"))
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
#: Maximum number of differences listed per file; further ones are only counted.
KEPT = 100_000
#: Negative numbers, stored as unsigned 64 bits, are at least this large, in ns and in µs.
_WRAPPED = Decimal(2) ** 63 / 1000
_TURN = Decimal(2) ** 64


@dataclass(frozen=True, slots=True)
class Difference:
    """A cell that disagrees. `row` contains the values that identify its row."""

    file: str
    row: str
    column: str
    vendor: str
    ours: str
    off_by: str


@dataclass(slots=True)
class Tally:
    """The result of checking one file.

    by_doubles  cells that agree only because the vendor's double arithmetic gives the same digits
    reason      why it was not checked; None if it was
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
        """Compare a cell in µs with nanoseconds, unless either is unknown.

        double_us  the result of the vendor's arithmetic in doubles: the same double agrees too
        """
        if ours_ns is None or not self._is_cell(cell):
            return
        value, ours = number(cell), Decimal(ours_ns)
        if value is None:
            self._differ(row, column, cell.strip(), us(ours), "not a number")
        elif value >= _WRAPPED:
            self._differ(row, column, cell.strip(), us(ours), f"wrapped at 2^64, should be {us(_unwrapped(value))}")
        elif abs(value * 1000 - ours) > (0 if self.exact else slack_ns):
            if double_us is not None and not self.exact and float(value) == double_us:
                self.by_doubles += 1
            else:
                self._differ(row, column, cell.strip(), us(ours), us(value * 1000 - ours))

    def wrapped(self, row: str, column: str, cell: str) -> None:
        """Check a time that can't be computed from other cells: it must be a number that did not wrap at 2^64."""
        if not self._is_cell(cell):
            return
        value = number(cell)
        if value is None:
            self._differ(row, column, cell.strip(), "", "not a number")
        elif value >= _WRAPPED:
            self._differ(row, column, cell.strip(), us(_unwrapped(value)), "wrapped at 2^64")

    def number(self, row: str, column: str, cell: str, ours: Decimal | int | None, slack: Decimal | int) -> None:
        """Compare a number, unless ours is unknown."""
        if ours is None or not self._is_cell(cell):
            return
        value = number(cell)
        if value is None or abs(value - ours) > (0 if self.exact else slack):
            off = "not a number" if value is None else _plain(value - Decimal(ours))
            self._differ(row, column, cell.strip(), _plain(Decimal(ours)), off)

    def text(self, row: str, column: str, cell: str, ours: str | None) -> None:
        """Compare a text with its white space, unless ours is unknown."""
        if ours is not None and self._is_cell(cell) and cell != ours:
            self._differ(row, column, cell, ours, "")

    def _is_cell(self, cell: str) -> bool:
        """Whether a cell has a value. Count it if so."""
        has_value = cell.strip() not in NO_VALUE
        self.cells += has_value
        return has_value

    def row_missing(self, row: str, *, in_vendors: bool) -> None:
        """Report a row that is on one side only."""
        self.cells += 1
        self._differ(row, "", "" if in_vendors else "a row", "a row" if in_vendors else "", "no such row")

    def _differ(self, row: str, column: str, vendor: str, ours: str, off: str) -> None:
        self.differing += 1
        if len(self.differences) < KEPT:
            self.differences.append(Difference(self.file, row, column, vendor, ours, off))


def number(cell: str) -> Decimal | None:
    """Return the exact number in a cell; None for anything else."""
    text = cell.strip()
    return Decimal(text) if len(text) < 100 and _NUMBER.fullmatch(text) else None


def us(ns: Decimal) -> str:
    """Format nanoseconds as msprof prints them: µs with three decimals, or more if needed."""
    value = ns.normalize() / 1000
    usual = f"{value:.3f}"
    return usual if Decimal(usual) == value else f"{value:f}"


def _unwrapped(value_us: Decimal) -> Decimal:
    """Return the negative ns of a value that wrapped as ns or as µs."""
    ns = value_us * 1000
    return ns - _TURN if ns < _TURN + 1 else (value_us - _TURN) * 1000


def _plain(value: Decimal) -> str:
    rounded = value.quantize(Decimal("0.000001")) if abs(value) < 10**20 else value
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
