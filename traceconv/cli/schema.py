"""`traceconv schema`: the tables, views and reports of any store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.cli import options
from traceconv.cli.completions import complete_table

if TYPE_CHECKING:
    from traceconv.store.documented_sql import SqlColumn


def schema(
    name: str | None = typer.Argument(
        None, metavar="NAME", help="A table, view or report. Default: list all.", autocompletion=complete_table
    ),
    db: Path | None = typer.Option(
        None, "--db", metavar="FILE", help="Describe this store: with its row counts, and tables that were added to it."
    ),
) -> None:
    """Describe the tables, views and reports of a store.

    \b
    Examples:
      traceconv schema
      traceconv schema task
      traceconv schema op-statistic
      traceconv schema --db trace.duckdb
    """
    from traceconv.cli.output import print_lines

    counts, added = ({}, {}) if db is None else _contents(db)
    print_lines(_listing(counts, added) if name is None else _described(name, added))


def _contents(db: Path) -> tuple[dict[str, int], dict[str, list[SqlColumn]]]:
    """Return the number of rows of each table of a store, and the columns of tables and views added to it."""
    from traceconv.reports.catalog import reports
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.run import reading
    from traceconv.schema import tables
    from traceconv.schema.ddl import quote_identifier
    from traceconv.store.catalogue import views
    from traceconv.store.database import lock_down
    from traceconv.store.documented_sql import SqlColumn

    added: dict[str, list[SqlColumn]] = {}
    with open_current_store(options.store_path(db)) as connection, reading():
        lock_down(connection)
        counts = " UNION ALL ".join(
            f"SELECT '{one}', count(*) FROM {quote_identifier(one)}"  # noqa: S608 - our tables
            for one in tables()
        )
        for table, column, kind, doc in connection.execute(
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
            "WHERE database_name = 'store' AND schema_name = 'main' ORDER BY table_name, column_index"
        ).fetchall():
            if table not in {*tables(), *views(), *reports(), "store_info"}:
                added.setdefault(table, []).append(SqlColumn(printable(column), kind, "text", printable(doc or "")))
        return dict(connection.execute(counts).fetchall()), added


def _described(name: str, added: Mapping[str, list[SqlColumn]]) -> Iterator[str]:
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
    if name in added:
        return description(printable(name), "added to the store", None, "", added[name])
    near = suggestion(wanted, [*tables(), *views(), *reports(), *added])
    raise UsageError(f"unknown table, view or report '{printable(name)}'.{near} List them with: traceconv schema")


def _listing(counts: Mapping[str, int], added: Mapping[str, list[SqlColumn]]) -> Iterator[str]:
    from traceconv.reports.catalog import reports
    from traceconv.schema import tables
    from traceconv.store.catalogue import views

    found = (
        ("Tables", {table.name: table.doc for table in tables().values()}),
        ("Views", {view.name: view.title for view in views().values()}),
        ("Reports", {report.name: report.title for report in reports().values()}),
        ("Added to the store", {printable(name, 60): f"{len(columns)} columns" for name, columns in added.items()}),
    )
    width = max(len(name) for _, entries in found for name in entries)
    for title, entries in found:
        if entries:
            yield f"{title}:"
            for name, doc in entries.items():
                rows = f"{counts[name]:>13,} rows  " if name in counts else ""
                yield f"  {name:<{width}}  {rows}{doc}"
            yield ""
    yield "For the columns: traceconv schema NAME"
