"""What a file that calls itself a store may hold: our tables as we make them, and beside them whatever its user adds.

A store may come from anywhere, and SQL of ours runs on it. So our tables must be tables, with our columns, and nothing
may take the place of a function of DuckDB. The views and macros that our own SQL needs are not taken from
the file: `define` makes them anew, for the connection alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

import duckdb

from traceconv.base.errors import StoreError, printable
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier, sql_type
from traceconv.store.documented_sql import DocumentedSql, load_folder
from traceconv.store.functions import functions

#: What to read a catalogue may take; that of a sound store takes milliseconds.
_CATALOGUE_SECONDS = 20.0
_WORD = re.compile(r"[a-z_]+")
#: Macros of a database (?) under the name of a function of DuckDB's own.
_SHADOWS = (
    "SELECT function_name FROM duckdb_functions() GROUP BY function_name "
    "HAVING bool_or(database_name = ? AND NOT internal) AND bool_or(internal) ORDER BY 1"
)

#: By table and column: its type, and the expression of its default.
TableColumns: TypeAlias = "dict[str, dict[str, tuple[str, str | None]]]"


def views() -> dict[str, DocumentedSql]:
    """The views that every store has over its tables, by name."""
    return load_folder("traceconv.store", "views")


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, seconds: float = _CATALOGUE_SECONDS) -> Iterator[None]:
    """Interrupts what the connection does when it takes longer. Raises StoreError then."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        connection.interrupt()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (duckdb.InterruptException, KeyboardInterrupt) as error:
        if not late.is_set():
            raise
        raise StoreError(f"its catalogue can't be read in {seconds:g} s: it is not a store of ours") from error
    finally:
        timer.cancel()


def columns_of_tables(connection: duckdb.DuckDBPyConnection, store: str) -> TableColumns:
    """The columns of all tables of the attached database, with their type and default; views are no tables.

    `connection` must not have the store as current database: what lies in it could stand for what is asked here.
    """
    found: TableColumns = {}
    for table, column, kind, default in connection.execute(
        "SELECT table_name, column_name, data_type, column_default FROM duckdb_columns() WHERE database_name = ?1 "
        "AND schema_name = 'main' AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE database_name = ?1)",
        [store],
    ).fetchall():
        found.setdefault(table, {})[column] = (kind, default)
    return found


def wrong_in(
    connection: duckdb.DuckDBPyConnection,
    store: str,
    found: TableColumns,
    older: Mapping[tuple[str, str], str | None],
) -> str | None:
    """Why a database with these tables is no sound store, in the words of an error; None when it is one.

    older  columns, as (table, column), that its version has under another name, or not at all (None)
    """
    for name, schema in tables().items():
        if name not in found:
            return f"it has no table {name}"
        for column in schema.columns:
            stored = older.get((name, column.name), column.name)
            if stored is None:
                matches = column.name not in found[name]
            else:
                matches = found[name].get(stored) == (sql_type(column), None)
            if not matches:
                return f"column {stored or column.name} of its table {name} is not what it is in a store"
    for (shadow,) in connection.execute(_SHADOWS, [store]).fetchall():
        return f"its macro {printable(shadow, 60)} takes the place of DuckDB's own; drop it"
    run = f"{quote_identifier(store)}.main.run"
    (distinct,) = connection.execute(f"SELECT count(*) = count(DISTINCT run_id) FROM {run}").fetchall()  # noqa: S608 - ours
    return None if distinct[0] else "two rows of its table run have one run_id, or one has none"


def define(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Makes our views and functions that a query of ours names, for this connection: they hide those of the file."""
    for statement in _definitions(sql):
        connection.execute(statement)


@cache
def _definitions(sql: str) -> tuple[str, ...]:
    """The statements in an order in which each finds what it needs."""
    known: Mapping[str, str] = {
        **{name: f"CREATE OR REPLACE TEMP MACRO {body}" for name, body in functions().items()},
        **{name: f"CREATE OR REPLACE TEMP VIEW {name} AS\n{view.body}" for name, view in views().items()},
    }
    made: dict[str, str] = {}

    def need(text: str) -> None:
        for word in dict.fromkeys(_WORD.findall(text)):
            if word in known and word not in made and known[word] is not text:
                need(known[word])
                made[word] = known[word]

    need(sql)
    return tuple(made.values())
