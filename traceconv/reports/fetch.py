"""Reading a store: the rows of a statement, in batches or as a Parquet file, and DuckDB's errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from traceconv.base.errors import OutputError, StoreError, printable, reason_of
from traceconv.reports.filters import Value
from traceconv.reports.render import Row
from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.memory_limit import sorted_on_disk

#: Rows fetched at once.
BATCH_ROWS = 4096


def fetch(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Value]) -> Iterator[Sequence[Row]]:
    """Run a statement and yield its rows in batches; only one batch is in memory."""

    def ask() -> Iterator[Sequence[Row]]:
        connection.execute(sql, list(values))
        while batch := connection.fetchmany(BATCH_ROWS):
            yield batch

    with reading():
        yield from sorted_on_disk(connection, ask)


@contextmanager
def reading() -> Iterator[None]:
    """Turn DuckDB's errors on reading a store into StoreErrors, and its interrupt into KeyboardInterrupt."""
    try:
        yield
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise StoreError(
            f"the store was written by another version of traceconv ({reason_of(error)}); "
            "ingest its sources into a new store"
        ) from error
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except duckdb.OutOfMemoryException as error:
        raise StoreError(f"not enough memory or disk space: {reason_of(error)}") from error
    except duckdb.DataError as error:  # a value out of range or of another type
        raise StoreError(f"the store has invalid values: {reason_of(error)}") from error
    except duckdb.Error as error:
        raise StoreError(f"can't read the store; it may be damaged: {reason_of(error)}") from error


def with_types(sql: str, columns: Sequence[tuple[str, str]], types: str, target: str) -> str:
    """Return a SELECT of the rows of a statement with values of some types, also those in lists and structs, cast.

    columns  the statement's names and types
    types    regular expression of the types
    """
    cast = [re.sub(rf'(?<![\w"])(?:{types})(?=[\[,)]|$)', target, kind) for _, kind in columns]
    if cast == [kind for _, kind in columns]:
        return sql
    chosen = [
        f"#{place}{'' if new == kind else f'::{new}'} AS {quote_identifier(name)}"
        for place, ((name, kind), new) in enumerate(zip(columns, cast, strict=True), 1)
    ]
    return f"SELECT {', '.join(chosen)} FROM ({sql}\n)"  # noqa: S608 - the statement is the caller's to run


def write_parquet(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Value], path: Path) -> None:
    """Write the rows of a statement to a Parquet file, with 128-bit integers as exact decimals.

    Raises OutputError if the file can't be written.
    """
    connection.execute(f"DESCRIBE {sql}", list(values))
    columns = [(name, kind) for name, kind, *_ in connection.fetchall()]
    sql = with_types(sql, columns, "U?HUGEINT", "DECIMAL(38,0)")
    try:
        connection.execute(
            f"COPY ({sql}\n) TO {quote_text(str(path.absolute()))} (FORMAT parquet, USE_TMP_FILE false)",
            list(values),
        )
    except (duckdb.IOException, duckdb.PermissionException) as error:
        raise OutputError(f"can't write {printable(str(path))}: {reason_of(error)}") from error
