"""Descriptions of tables, views and reports, from their schema or header."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import duckdb

from traceconv.base.display import TextDisplay
from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.reports.catalog import Report, renamed_reports, reports
from traceconv.reports.fetch import reading
from traceconv.reports.no_rows import IN_TRACES
from traceconv.reports.question import OPTION_NAMES, takes_times_of_steps
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier
from traceconv.store.catalogue import views
from traceconv.store.documented_sql import SqlColumn, table_columns

#: What steps select in a report without parameters for them.
TIME_OF_STEPS = (
    "Only the time from the start of the first of these steps to the end of the last one and of its tasks; not "
    "together with --from and --to."
)
_KINDS = {"table": "Tables", "view": "Views", "report": "Reports", "added to the store": "Added to the store"}


@dataclass(frozen=True, slots=True, repr=False)
class Described(TextDisplay):
    """A table, view or report. Its repr is what `traceconv schema NAME` prints.

    kind       table, view, report, or "added to the store"
    title      of a view or report; None for others
    columns    each with `name`, `type`, `unit`, `doc` and msprof's label (None: none)
    row_count  of a table of the store; None for others
    report     the report's header: `parameters`, `order`, `measure` and others; None if it is not a report
    """

    name: str
    kind: str
    title: str | None
    doc: str
    columns: tuple[SqlColumn, ...]
    row_count: int | None = None
    report: Report | None = None

    def lines(self) -> Iterator[str]:
        """Describe it and its columns."""
        heading = f"{printable(self.name)} ({self.kind})"
        yield heading if self.title is None else f"{heading}: {self.title}"
        yield from _wrapped(self.doc, "  ")
        yield ""
        yield "Columns:"
        for column in self.columns:
            label = "" if column.msprof is None else f", msprof: {column.msprof}"
            yield f"  {column.name}  {column.type}, {column.unit}{label}"
            yield from _wrapped(column.doc, "      ")
        if self.report is not None:
            yield from _report_lines(self.report)


class Catalogue(TextDisplay, list[Described]):
    """Tables, views and reports. Its repr is the list that the command prints."""

    def __init__(self, described: Iterable[Described], *, by_kind: bool = True) -> None:
        super().__init__(described)
        self._by_kind = by_kind

    def find(self, name: str) -> Described:
        """Return one by name, in which - may stand for _. Raises UsageError, with the nearest name."""
        wanted = name.replace("-", "_")
        found = next((one for one in self if one.name in (name, wanted)), None)
        if found is None:
            near = suggestion(wanted, [one.name for one in self])
            raise UsageError(
                f"unknown table, view or report '{printable(name)}'.{near} List them with: traceconv schema"
            )
        return found

    def lines(self) -> Iterator[str]:
        """List the names, each with its title or description."""
        width = max((len(printable(one.name, 60)) for one in self), default=0)
        if not self._by_kind:
            yield from (f"{one.name:<{width}}  {one.title}" for one in self)
            return
        for kind, heading in _KINDS.items():
            entries = [one for one in self if one.kind == kind]
            if entries:
                yield f"{heading}:"
                for one in entries:
                    rows = "" if one.row_count is None else f"{one.row_count:>13,} rows  "
                    doc = one.title or textwrap.shorten(one.doc.partition(". ")[0], 78, placeholder=" …")
                    doc = doc or f"{len(one.columns)} columns"
                    yield f"  {printable(one.name, 60):<{width}}  {rows}{doc}"
                yield ""
        yield "For the columns: traceconv schema NAME"


def catalogue(connection: duckdb.DuckDBPyConnection | None = None) -> Catalogue:
    """Describe all tables, views and reports; with a store, also its row counts and what was added to it."""
    counts, added = ({}, {}) if connection is None else _contents(connection)
    return Catalogue(
        [
            *(
                Described(table.name, "table", None, table.doc, table_columns(table), counts.get(table.name))
                for table in tables().values()
            ),
            *(Described(view.name, "view", view.title, view.doc, tuple(view.columns)) for view in views().values()),
            *map(described_report, reports().values()),
            *(Described(name, "added to the store", None, "", tuple(columns)) for name, columns in added.items()),
        ]
    )


def report_catalogue() -> Catalogue:
    """Describe the reports, with their names on the command line."""
    found = (replace(described_report(one), name=one.name.replace("_", "-")) for one in reports().values())
    return Catalogue(found, by_kind=False)


def described_report(report: Report) -> Described:
    """Describe a report."""
    return Described(report.name, "report", report.title, report.doc, tuple(report.columns), None, report)


def _contents(connection: duckdb.DuckDBPyConnection) -> tuple[dict[str, int], dict[str, list[SqlColumn]]]:
    """Return the number of rows of each table of a store, and the columns of tables and views added to it."""
    added: dict[str, list[SqlColumn]] = {}
    with reading():
        counts = " UNION ALL ".join(
            f"SELECT '{one}', count(*) FROM {quote_identifier(one)}"  # noqa: S608 - our tables
            for one in tables()
        )
        for table, column, kind, doc in connection.execute(
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
            "WHERE database_name = 'store' AND schema_name = 'main' ORDER BY table_name, column_index"
        ).fetchall():
            if table not in {*tables(), *views(), *reports(), *renamed_reports(), "store_info"}:
                added.setdefault(table, []).append(SqlColumn(printable(column), kind, "text", printable(doc or "")))
        return dict(connection.execute(counts).fetchall()), added


def _report_lines(report: Report) -> Iterator[str]:
    """Describe the findings, the parameters and the order of a report."""
    if report.findings:
        yield ""
        yield "Findings:"
    for one in report.findings:
        yield f"  {one.name}{' (a heuristic)' if one.heuristic else ''}: {one.reports}"
        yield from _wrapped(one.doc, "      ")
        parts = {"count": one.count, "total_count": one.total, "affected_ns": one.affected}
        yield from _wrapped("; ".join(f"{name}: {text}" for name, text in parts.items() if text), "      ")
    yield ""
    yield "Parameters of the macro and options of the command (default NULL: all rows):"
    for parameter in report.parameters:
        option_name = OPTION_NAMES.get(parameter.name, parameter.name).replace("_", "-")
        yield f"  {parameter.name}  {parameter.type}, --{option_name}"
        yield from _wrapped(parameter.doc, "      ")
    if takes_times_of_steps(report):
        yield "  --step, --steps"
        yield from _wrapped(TIME_OF_STEPS, "      ")
    yield ""
    yield from _wrapped(f"Order: {report.order_text}. With --top: the largest by {report.measure}.", "")
    in_traces = (IN_TRACES[table] for table in report.needs if table in IN_TRACES)
    yield from _wrapped(" ".join((f"Needs rows in {', '.join(report.needs)}.", *in_traces, report.when_empty)), "")
    yield ""
    command = report.name.replace("_", "-")
    yield f"In a terminal: traceconv report {command}"
    yield f"In SQL:        FROM {report.name};  FROM {report.name}({report.parameters[0].name} := 1)"


def _wrapped(text: str, indent: str) -> list[str]:
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
