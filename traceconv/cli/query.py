"""`traceconv query`: read-only SQL on the store."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from traceconv.base.errors import InputError, UsageError, printable, reason_of
from traceconv.cli import options


def query(
    sql: str | None = typer.Argument(None, metavar="SQL", help="A single statement; - reads it from standard input."),
    file: Path | None = typer.Option(None, "--file", "-f", metavar="FILE.sql", help="Read the statement from a file."),
    paths: list[Path] | None = options.FILES,
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    form: str | None = options.FORMAT,
    output: Path | None = options.OUTPUT,
) -> None:
    """Query the store in SQL.

    The statement can only read the store: it can't change it or read other files. Tables and columns: traceconv schema.
    Reports are views and macros.

    \b
    Examples:
      traceconv query "FROM op_statistic LIMIT 5"
      traceconv query "FROM step_trace(run := 2)" --format csv
      traceconv query "SELECT name, dur_ns FROM task" -o tasks.parquet
      traceconv query -f question.sql
      traceconv query "FROM op_statistic" worker0.pt.trace.json.gz
    """
    from traceconv.cli.one_shot import asked_store
    from traceconv.cli.output import write_parquet_file, write_rows
    from traceconv.export.output import partial_of
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.free_query import ask, check_statement, explained
    from traceconv.store.database import lock_down

    chosen_format = options.row_format(form, output)
    paths = paths or []
    if file and sql:
        paths = [Path(sql), *paths]
        sql = None
    if sql is None and file is None:
        raise UsageError('pass a statement such as "FROM op_statistic", or a file of one with -f FILE.sql')
    if sql is not None and sql.strip().lower().endswith(".sql") and len(sql.split()) == 1:
        raise UsageError(f"to run the statement in a file, use -f {printable(sql)}")
    text = _read(file) if sql is None else _read(None) if sql == "-" else sql
    if not text.strip():
        raise UsageError('empty SQL; pass a statement such as "FROM op_statistic"')
    with asked_store(db, paths, cache=cache) as store, open_current_store(store) as connection:
        partial = partial_of(Path(os.path.realpath(output))) if output and chosen_format == "parquet" else None
        lock_down(connection, partial)
        statement = check_statement(connection, text)
        if partial is not None and output is not None:
            with explained(statement):
                write_parquet_file(connection, statement, [], output, partial)
        else:
            write_rows(ask(connection, statement), chosen_format, output)


def _read(file: Path | None) -> str:
    """Read SQL from a file, or from standard input."""
    try:
        return sys.stdin.read() if file is None else file.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise UsageError("the SQL is not UTF-8 text") from None
        name = "standard input" if file is None else printable(str(file))
        raise InputError(f"can't read {name}: {reason_of(error)}") from None
