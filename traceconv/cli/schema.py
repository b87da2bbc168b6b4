"""`traceconv schema`: the tables, views and reports of any store."""

from __future__ import annotations

from pathlib import Path

import typer

from traceconv.cli import options
from traceconv.cli.completions import complete_table


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
    from traceconv.cli.output import write_lines
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.described import catalogue
    from traceconv.store.database import lock_down

    if db is None:
        found = catalogue()
    else:
        with open_current_store(options.store_path(db)) as connection:
            lock_down(connection)
            found = catalogue(connection)
    write_lines((found if name is None else found.find(name)).lines())
