"""SQL that a user wrote, on a store that it can only read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb

from traceconv.base.errors import UsageError, printable
from traceconv.reports.render import Row, Table
from traceconv.reports.run import BATCH_ROWS, reading
from traceconv.store.documented_sql import SqlColumn


def check_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The one statement of `sql`. Raises UsageError when it can't be parsed, or is more than one."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise UsageError("the SQL is not UTF-8 text") from None
    with explained():
        statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"one statement at a time, not {len(statements)}")
    return statements[0].query.strip().rstrip(";")


def ask(connection: duckdb.DuckDBPyConnection, statement: str) -> Table:
    """Runs a statement. The rows come in batches. Raises UsageError with what DuckDB says against it."""
    with explained():
        connection.execute(statement)
        columns = tuple(_column(name, kind) for name, kind, *_ in connection.description or ())
        # The first batch now, so that what goes wrong at once is said before anything is written.
        first = connection.fetchmany(BATCH_ROWS)
    return Table(columns, _batches(connection, first))


def _batches(connection: duckdb.DuckDBPyConnection, first: Sequence[Row]) -> Iterator[Sequence[Row]]:
    batch = first
    while batch:
        yield batch
        with explained():
            batch = connection.fetchmany(BATCH_ROWS)


def _column(name: str, kind: object) -> SqlColumn:
    # Values of a free query are shown as they are: what they mean is known to who wrote it.
    return SqlColumn(name=name, type=str(kind), unit="text", doc="")


@contextmanager
def explained() -> Iterator[None]:
    """Turns what DuckDB says into one line: its first, and its hint."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except (duckdb.IOException, duckdb.FatalException, duckdb.InternalException) as error:
        # Not what was asked for is wrong, but what it was asked of.
        with reading():
            raise error
    except duckdb.Error as error:
        said = [line for line in str(error).splitlines() if line.strip()]
        kept = said[:1] + [line for line in said[1:] if line.startswith(("Did you mean", "Candidate"))]
        raise UsageError(printable(" ".join(kept), 500)) from error
