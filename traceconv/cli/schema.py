"""`traceconv schema`: the tables, views and reports of any store."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from traceconv.base.errors import UsageError, printable, suggestion


def schema(
    name: str | None = typer.Argument(None, metavar="NAME", help="A table, view or report. Default: list all."),
) -> None:
    """Describe the tables, views and reports of a store.

    \b
    Examples:
      traceconv schema
      traceconv schema task
      traceconv schema op-statistic
    """
    from traceconv.cli.output import print_lines

    print_lines(_listing() if name is None else _described(name))


def _described(name: str) -> Iterator[str]:
    from traceconv.cli.describe import description, report_description
    from traceconv.reports.catalog import reports
    from traceconv.schema import tables
    from traceconv.schema.ddl import sql_type
    from traceconv.store.catalogue import views
    from traceconv.store.documented_sql import SqlColumn

    wanted = name.replace("-", "_")
    if table := tables().get(wanted):
        columns = [SqlColumn(c.name, sql_type(c), c.unit, c.doc) for c in table.columns]
        return description(table.name, "table", None, table.doc, columns)
    if view := views().get(wanted):
        return description(view.name, "view", view.title, view.doc, view.columns)
    if report := reports().get(wanted):
        return report_description(report)
    near = suggestion(wanted, [*tables(), *views(), *reports()])
    raise UsageError(f"unknown table, view or report '{printable(name)}'.{near} List them with: traceconv schema")


def _listing() -> Iterator[str]:
    from traceconv.reports.catalog import reports
    from traceconv.schema import tables
    from traceconv.store.catalogue import views

    found = (
        ("Tables", {table.name: table.doc for table in tables().values()}),
        ("Views", {view.name: view.title for view in views().values()}),
        ("Reports", {report.name: report.title for report in reports().values()}),
    )
    width = max(len(name) for _, entries in found for name in entries)
    for title, entries in found:
        yield f"{title}:"
        for name, doc in entries.items():
            yield f"  {name:<{width}}  {doc}"
        yield ""
    yield "For the columns: traceconv schema NAME"
