"""`traceconv query`: read-only SQL on the store."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from traceconv.base.errors import InputError, UsageError
from traceconv.cli import options


def query(
    sql: str = typer.Argument(..., metavar="SQL", help="A single statement; - reads it from standard input."),
    db: Path | None = options.DB,
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
      traceconv query - < question.sql
    """
    from traceconv.cli.output import write_parquet_file, write_rows
    from traceconv.export.output import partial_of
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.free_query import ask, check_statement
    from traceconv.store.database import lock_down

    chosen_format = options.row_format(form, output)
    text = _standard_input() if sql == "-" else sql
    if not text.strip():
        raise UsageError('empty SQL; pass a statement such as "FROM op_statistic"')
    with open_current_store(options.store_path(db)) as connection:
        partial = partial_of(Path(os.path.realpath(output))) if output and chosen_format == "parquet" else None
        lock_down(connection, partial)
        statement = check_statement(connection, text)
        if partial is not None and output is not None:
            write_parquet_file(connection, statement, [], output, partial)
        else:
            write_rows(ask(connection, statement), chosen_format, output)


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except OSError as error:
        raise InputError(f"can't read standard input: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError("the SQL is not UTF-8 text") from None
