"""A user's SQL on a read-only store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb

from traceconv.base.errors import UsageError, printable
from traceconv.reports.render import Row, Table
from traceconv.reports.run import BATCH_ROWS, reading
from traceconv.store.documented_sql import SqlColumn


def check_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return the single statement of `sql`. Raises UsageError if it can't be parsed, or there are several."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise UsageError("the SQL is not UTF-8 text") from None
    with explained():
        statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"the SQL has {len(statements)} statements; pass exactly one")
    return statements[0].query.strip().rstrip(";")


def ask(connection: duckdb.DuckDBPyConnection, statement: str) -> Table:
    """Run a statement; return its rows in batches. Raises UsageError with DuckDB's message."""
    with explained():
        connection.execute(statement)
        columns = tuple(SqlColumn(name, str(kind), "text", "") for name, kind, *_ in connection.description or ())
        # The first batch is read now, so that errors come before anything is written.
        first = connection.fetchmany(BATCH_ROWS)
    return Table(columns, _batches(connection, first))


def _batches(connection: duckdb.DuckDBPyConnection, first: Sequence[Row]) -> Iterator[Sequence[Row]]:
    batch = first
    while batch:
        yield batch
        with explained():
            batch = connection.fetchmany(BATCH_ROWS)


@contextmanager
def explained() -> Iterator[None]:
    """Turn DuckDB's errors into one line: their first line and their hint."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except (duckdb.IOException, duckdb.FatalException, duckdb.InternalException) as error:
        # The store is at fault, not the statement.
        with reading():
            raise error
    except duckdb.Error as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        kept = lines[:1] + [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate"))]
        raise UsageError(printable(" ".join(kept), 500)) from error
