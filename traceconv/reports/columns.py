"""Columns of a report or a table, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.reports.render import is_number
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
    """Return columns by name. Raises UsageError for an unknown column, with the nearest, and for a duplicate."""
    known = {column.name: column for column in report.columns}
    for name in names:
        if name not in known:
            near = suggestion(name, list(known))
            listed = ", ".join(known) if len(known) <= _MOST_LISTED else f"traceconv schema {report.name}"
            raise UsageError(f"{report.name} has no column '{printable(name)}'.{near} All: {listed}")
        if names.count(name) > 1:
            raise UsageError(f"duplicate column '{name}'")
    return tuple(known[name] for name in names)


def order_term(report: HasColumns, name: str, *, ascending: bool | None = None) -> OrderTerm:
    """Return a column to sort by. Default: numbers descending, text ascending."""
    (column,) = find_columns(report, [name])
    return OrderTerm(column.name, is_number(column) if ascending is None else not ascending)


def parse_order(report: HasColumns, text: str) -> OrderTerm:
    """Parse `COLUMN`, `COLUMN ASC` or `COLUMN DESC`. Raises UsageError."""
    name, _, way = text.strip().partition(" ")
    ways = {"": None, "ASC": True, "DESC": False}
    if way.strip().upper() not in ways:
        raise UsageError(f"order_by needs COLUMN, COLUMN ASC or COLUMN DESC, not '{printable(text, 60)}'")
    return order_term(report, name, ascending=ways[way.strip().upper()])
