"""A user's SQL on a read-only store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb

from traceconv.base.errors import UsageError, printable
from traceconv.lake.views import is_open_lake
from traceconv.reports.catalog import define_named
from traceconv.reports.fetch import BATCH_ROWS, reading, with_types
from traceconv.reports.render import Row, Table
from traceconv.schema.ddl import quote_identifier
from traceconv.store.database import MEMORY_LIMIT
from traceconv.store.documented_sql import SqlColumn


def check_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return the single statement of `sql`; for a lake, define the reports and views in it.

    Raises UsageError if it can't be parsed, if there are several, or if it is not one that reads a lake.
    """
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise UsageError("the SQL is not UTF-8 text") from None
    with explained(sql):
        statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"the SQL has {len(statements)} statements; pass exactly one")
    if is_open_lake(connection):
        if statements[0].type != duckdb.StatementType.SELECT:  # others could write files in the lake
            raise UsageError("a query of a lake must be a SELECT statement")
        define_named(connection, sql)
    text = statements[0].query.encode()
    end = len(text)
    for at, kind in reversed(duckdb.tokenize(text.decode())):  # DuckDB 1 omits comments
        if kind != duckdb.token_type.comment and text[at : at + 1] != b";":
            break
        end = at
    return text[:end].decode().strip()


#: Types of times: Python's have no nanoseconds, months or infinity.
_TIMES = "(?:TIMESTAMP(?:_\\w+)?|DATE|TIME(?:_NS)?|INTERVAL)(?: WITH TIME ZONE)?"


def ask(connection: duckdb.DuckDBPyConnection, statement: str) -> Table:
    """Run a statement; return its rows in batches, with times as DuckDB writes them.

    Raises UsageError with DuckDB's message.
    """
    with explained(statement):
        if connection.extract_statements(statement)[0].type == duckdb.StatementType.SELECT:
            described = connection.execute(f"DESCRIBE {statement}").fetchall()
            statement = with_types(statement, [(name, kind) for name, kind, *_ in described], _TIMES, "VARCHAR")
        connection.execute(statement)
        columns = tuple(SqlColumn(name, str(kind), "text", "") for name, kind, *_ in connection.description or ())
        # The first batch is read now, so that errors come before anything is written.
        first = connection.fetchmany(BATCH_ROWS)
    return Table(columns, _batches(connection, first))


def with_64_bits(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the relation with HUGEINT, the type of sums, as BIGINT: pandas would get floats."""
    if "HUGEINT" not in map(str, relation.types):
        return relation
    return relation.project(
        ", ".join(
            f"{f'#{i}::BIGINT' if str(kind) == 'HUGEINT' else f'#{i}'} AS {quote_identifier(name)}"
            for i, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), 1)
        )
    )


def _batches(connection: duckdb.DuckDBPyConnection, first: Sequence[Row]) -> Iterator[Sequence[Row]]:
    batch = first
    while batch:
        yield batch
        with explained():
            batch = connection.fetchmany(BATCH_ROWS)


@contextmanager
def explained(sql: str = "") -> Iterator[None]:
    """Turn DuckDB's errors into one line: their first line and their hint. `sql`: the statement."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except (duckdb.IOException, duckdb.FatalException, duckdb.InternalException) as error:
        # The store is at fault, not the statement.
        with reading():
            raise error
    except duckdb.OutOfMemoryException as error:
        raise UsageError(
            f"the statement needs more memory than it gets here, {MEMORY_LIMIT}; select fewer rows, such as a window "
            "of time, or ask a DuckDB shell, which takes what the machine has"
        ) from error
    except duckdb.Error as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        kept = lines[:1] + [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate", "\t"))]
        raise UsageError(printable(" ".join(map(str.strip, kept)), 500) + _hint(sql)) from error


def _hint(sql: str) -> str:
    """What people write who know the command line."""
    from traceconv.reports.catalog import reports

    names = "|".join(name.replace("_", "-") for name in reports() if "_" in name)
    if match := re.search(rf"\b({names})\b", sql, re.IGNORECASE):
        return f". In SQL, that report is {match[1].lower().replace('-', '_')}"
    if match := re.search(rf"\b({'|'.join(reports())})\s*\(\s*(\w+)\s*=(?!>)", sql, re.IGNORECASE):
        return f". Parameters are written {match[1]}({match[2]} := …)"
    return ""
