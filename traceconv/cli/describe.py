"""Descriptions of tables, views and reports for the terminal, from their schema or header."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from traceconv.store.documented_sql import DocumentedSql, SqlColumn


def description(name: str, kind: str, title: str | None, doc: str, columns: Sequence[SqlColumn]) -> Iterator[str]:
    """Describe a table, view or report and its columns."""
    yield f"{name} ({kind})" if title is None else f"{name} ({kind}): {title}"
    yield from _wrapped(doc, "  ")
    yield ""
    yield "Columns:"
    for column in columns:
        label = "" if column.msprof is None else f", msprof: {column.msprof}"
        yield f"  {column.name}  {column.type}, {column.unit}{label}"
        yield from _wrapped(column.doc, "      ")


def report_description(report: DocumentedSql) -> Iterator[str]:
    """Describe a report: its question, columns, parameters and order."""
    yield from description(report.name, "report", report.title, report.doc, report.columns)
    from traceconv.reports.run import OPTION_NAMES

    yield ""
    yield "Parameters of the macro and options of the command (default NULL: all rows):"
    for parameter in report.parameters:
        yield f"  {parameter.name}  {parameter.type}, --{OPTION_NAMES.get(parameter.name, parameter.name)}"
        yield from _wrapped(parameter.doc, "      ")
    terms = ", ".join(f"{term.column} descending" if term.descending else term.column for term in report.order)
    yield ""
    yield from _wrapped(f"Order: {terms}. With --top: the largest by {report.measure}.", "")
    yield from _wrapped(f"Needs rows in {', '.join(report.needs)}. {report.when_empty}", "")
    yield ""
    command = report.name.replace("_", "-")
    yield f"In a terminal: traceconv report {command}"
    yield f"In SQL:        FROM {report.name};  FROM {report.name}({report.parameters[0].name} := 1)"


def _wrapped(text: str, indent: str) -> list[str]:
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
