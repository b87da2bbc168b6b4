"""Columns of a report by their names."""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.errors import UsageError, printable, suggestion
from traceconv.store.documented_sql import DocumentedSql, SqlColumn


def find_columns(report: DocumentedSql, names: Sequence[str]) -> tuple[SqlColumn, ...]:
    """Columns of a report by their names. Raises UsageError, with the nearest name, when one is not there."""
    known = {column.name: column for column in report.columns}
    for name in names:
        if name not in known:
            near = suggestion(name, list(known))
            raise UsageError(
                f"{report.name} has no column '{printable(name)}'.{near} All: traceconv schema {report.name}"
            )
    return tuple(known[name] for name in names)
