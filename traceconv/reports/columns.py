"""Columns of a report by their names."""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.reports.render import is_number
from traceconv.store.documented_sql import DocumentedSql, OrderTerm, SqlColumn


def find_columns(report: DocumentedSql, names: Sequence[str]) -> tuple[SqlColumn, ...]:
    """Columns of a report by their names. Raises UsageError when one is not there, with the nearest, or is twice."""
    known = {column.name: column for column in report.columns}
    for name in names:
        if name not in known:
            near = suggestion(name, list(known))
            raise UsageError(
                f"{report.name} has no column '{printable(name)}'.{near} All: traceconv schema {report.name}"
            )
        if names.count(name) > 1:
            raise UsageError(f"columns: {name} is named twice")
    return tuple(known[name] for name in names)


def order_term(report: DocumentedSql, name: str, *, ascending: bool | None = None) -> OrderTerm:
    """A report's column to sort by. Unless it is said, numbers begin with the largest, texts from A."""
    (column,) = find_columns(report, [name])
    return OrderTerm(column.name, is_number(column) if ascending is None else not ascending)


def parse_order(report: DocumentedSql, text: str) -> OrderTerm:
    """The same from `COLUMN`, `COLUMN ASC` or `COLUMN DESC`. Raises UsageError."""
    name, _, way = text.strip().partition(" ")
    ways = {"": None, "ASC": True, "DESC": False}
    if way.strip().upper() not in ways:
        raise UsageError(f"order_by needs COLUMN, COLUMN ASC or COLUMN DESC, not '{printable(text, 60)}'")
    return order_term(report, name, ascending=ways[way.strip().upper()])
