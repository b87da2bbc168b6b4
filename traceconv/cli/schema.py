"""`traceconv schema`: what the tables, views and reports of a store are, without needing one."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from traceconv.base.errors import UsageError, printable, suggestion


def schema(
    name: str | None = typer.Argument(None, metavar="NAME", help="A table, view or report. Default: list them all."),
) -> None:
    """Describe the tables, views and reports of a store, and their columns.

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
    if wanted in tables():
        table = tables()[wanted]
        columns = [SqlColumn(c.name, sql_type(c), c.unit, c.doc) for c in table.columns]
        return description(table.name, "table", None, table.doc, columns)
    if wanted in views():
        view = views()[wanted]
        return description(view.name, "view", view.title, view.doc, view.columns)
    if wanted in reports():
        return report_description(reports()[wanted])
    near = suggestion(wanted, [*tables(), *views(), *reports()])
    raise UsageError(f"there is no table, view or report '{printable(name)}'.{near} All: traceconv schema")


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
    yield "Columns of one: traceconv schema NAME"
