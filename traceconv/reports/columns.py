"""Columns of a report or a table, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.reports.render import heading, is_number
from traceconv.store.documented_sql import OrderTerm, SqlColumn

#: Columns that an error lists; a report with more has them in `traceconv schema`.
_MOST_LISTED = 25


class HasColumns(Protocol):
    """A report, or another table with a name."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> tuple[SqlColumn, ...]: ...


def find_columns(report: HasColumns, names: Sequence[str]) -> tuple[SqlColumn, ...]:
    """Return columns by name: `total_ns`, `total` as a table shows it, or msprof's `Total Time(us)`.

    Raises UsageError for an unknown column, with the nearest, for an ambiguous one, and for a duplicate.
    """
    found = [_find(report, name) for name in names]
    for column in found:
        if found.count(column) > 1:
            raise UsageError(f"duplicate column '{column.name}'")
    return tuple(found)


def _find(report: HasColumns, name: str) -> SqlColumn:
    known = {column.name: column for column in report.columns}
    if name in known:
        return known[name]
    for names_of in (lambda one: (one.name, heading(one)), lambda one: (one.msprof or "",)):
        same = [one.name for one in report.columns if plain_name(name) in map(plain_name, names_of(one))]
        if len(same) == 1:
            return known[same[0]]
        if same:
            raise UsageError(f"{report.name}: '{printable(name)}' can be {' or '.join(same)}")
    near = suggestion(name, [*known, *(heading(one) for one in report.columns)])
    listed = ", ".join(known) if len(known) <= _MOST_LISTED else f"traceconv schema {report.name}"
    raise UsageError(f"{report.name} has no column '{printable(name)}'.{near} All: {listed}")


def plain_name(name: str) -> str:
    """Return a name in lower case without what people leave out: `Total Time(us)` → `total time`."""
    words = re.sub(r"\((us|KB|%)\)", " ", name[:200].replace("%", " percent "))
    return " ".join(re.split(r"[\s_-]+", words.lower())).strip()


def parse_order(report: HasColumns, text: str, *, ascending: bool | None = None) -> OrderTerm:
    """Parse `COLUMN`, `COLUMN ASC` or `COLUMN DESC`. Raises UsageError for an unknown column.

    ascending  direction of a column without one; None: numbers descending, text ascending
    """
    name, _, way = text.strip().rpartition(" ")
    own = {"ASC": True, "DESC": False}.get(way.upper())
    if own is None and any(name == column.name for column in report.columns):
        raise UsageError(f"order_by needs COLUMN, COLUMN ASC or COLUMN DESC, not '{printable(text, 60)}'")
    (column,) = find_columns(report, [text.strip() if own is None else name])
    chosen = ascending if own is None else own
    return OrderTerm(column.name, is_number(column) if chosen is None else not chosen)
