"""Check that a file is a store: traceconv's tables with their columns, and anything its user added.

A store may come from anyone, and traceconv runs SQL on it. So the tables must be tables with the right columns, and no
macro may shadow a function of DuckDB. The views and macros that this SQL needs are not taken from the file: `define`
creates them for the connection.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, TypeAlias

import duckdb

from traceconv.base.errors import StoreError, printable
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier, sql_type

if TYPE_CHECKING:
    from traceconv.store.documented_sql import DocumentedSql

#: Time limit for reading the catalogue; a valid store takes milliseconds.
_CATALOGUE_SECONDS = 20.0
_WORD = re.compile(r"[a-z_]+")
#: DuckDB's functions, and the macros of a database (?): grouping them by name in SQL takes a third longer.
_FUNCTIONS = "SELECT function_name, internal FROM duckdb_functions() WHERE internal OR database_name = ?"

#: What is generated in a column without values (`store.empty_columns`), in the catalogue and as a default expression.
_NULL = r"(?:NULL|CAST\((?:NULL|CAST\(NULL AS [A-Z]+\)) AS [A-Z]+\))"
_GENERATED = " GENERATED ALWAYS AS"
#: A column in the CREATE TABLE statement of a catalogue, without a default. Quotes are a pair or missing: a name with
#: other characters doesn't match.
_PLAIN_COLUMN = rf'(?:"[a-z0-9_]+"|[a-z0-9_]+) [A-Z]+(?: USING COMPRESSION [A-Z]+|{_GENERATED} ?\({_NULL}\))?'
_PLAIN_TABLE = re.compile(rf'CREATE TABLE (?:"[a-z0-9_]+"|[a-z0-9_]+)\(({_PLAIN_COLUMN}(?:, {_PLAIN_COLUMN})*)\);')

#: Table → column → (type, default expression).
TableColumns: TypeAlias = "dict[str, dict[str, tuple[str, str | None]]]"


@cache
def views() -> Mapping[str, DocumentedSql]:
    """Return the views of every store, by name."""
    from traceconv.store.documented_sql import SqlFolder, parse

    return SqlFolder(resources.files("traceconv.store") / "views", parse)


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, seconds: float = _CATALOGUE_SECONDS) -> Iterator[None]:
    """Interrupt the connection after a time limit. Raises StoreError."""
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
        raise StoreError(
            f"reading its catalogue takes more than {seconds:g} s: it is not a store of traceconv"
        ) from error
    finally:
        timer.cancel()


def columns_of_tables(connection: duckdb.DuckDBPyConnection, store: str) -> TableColumns:
    """Return the columns of all tables (not views) of the attached database, with type and default.

    The store must not be the connection's current database, or its objects could shadow those queried here.
    """
    found: TableColumns = {}
    for name, sql in connection.execute(
        "SELECT table_name, sql FROM duckdb_tables() WHERE database_name = ? AND schema_name = 'main'", [store]
    ).fetchall():
        if plain := _PLAIN_TABLE.fullmatch(sql):
            columns = (column.split(" ")[:2] for column in plain[1].split(", "))
            found[name] = {column.strip('"'): (kind, None) for column, kind in columns}
        else:
            found[name] = {}
    if all(found.values()):
        return found
    # This binds all views of the store, which takes ten times as long.
    for table, column, kind, default in connection.execute(
        "SELECT table_name, column_name, data_type, column_default FROM duckdb_columns() "
        "WHERE database_name = ? AND schema_name = 'main'",
        [store],
    ).fetchall():
        if table in found:
            is_null = default is not None and re.fullmatch(_NULL, default)
            found[table][column] = (kind, None if is_null else default)
    return found


def generated_columns(connection: duckdb.DuckDBPyConnection) -> dict[str, Set[str]]:
    """Return the columns of the tables of a valid store, its current database, that are generated as NULL."""
    found: dict[str, Set[str]] = {}
    for name, sql in connection.execute(
        "SELECT table_name, sql FROM duckdb_tables() WHERE database_name = current_database() AND sql LIKE ?",
        [f"%{_GENERATED}%"],
    ).fetchall():
        if name in tables():
            found[name] = set(re.findall(rf'"?(\w+)"? [A-Z]+{_GENERATED} ?\({_NULL}\)', sql))
    return found


def wrong_in(
    connection: duckdb.DuckDBPyConnection,
    store: str,
    found: TableColumns,
    lacking: Set[tuple[str, str]],
) -> str | None:
    """Return why a database with these tables is not a valid store; None if it is one.

    lacking  columns, as (table, column), that its version doesn't have
    """
    for name, schema in tables().items():
        if name not in found:
            if all((name, column.name) in lacking for column in schema.columns):
                continue
            return f"it has no table {name}"
        for column in schema.columns:
            actual = found[name].get(column.name)
            if actual != (None if (name, column.name) in lacking else (sql_type(column), None)):
                problem = "is missing" if actual is None else "has an unexpected type"
                return f"column {column.name} of its table {name} {problem}"
    names: dict[bool, set[str]] = {False: set(), True: set()}
    for function, internal in connection.execute(_FUNCTIONS, [store]).fetchall():
        names[internal].add(function)
    if shadows := names[False] & names[True]:
        return f"its macro {printable(min(shadows), 60)} shadows a DuckDB function; drop the macro"
    run = f"{quote_identifier(store)}.main.run"
    (distinct,) = connection.execute(f"SELECT count(*) = count(DISTINCT run_id) FROM {run}").fetchall()  # noqa: S608 - ours
    return None if distinct[0] else "its table run has a duplicate or NULL run_id"


def define(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Create the views and functions that a query uses, for this connection; they shadow those of the file."""
    for statement in _definitions(sql):
        connection.execute(statement)


@cache
def _definitions(sql: str) -> tuple[str, ...]:
    """Return the statements, ordered by dependency."""
    from traceconv.store.functions import function_body, function_names

    macros, all_views = function_names(), views()
    made: dict[str, str] = {}

    def need(text: str, name: str = "") -> None:
        for word in dict.fromkeys(_WORD.findall(text)):
            if word in made or word == name:
                continue
            if word in macros:
                statement = f"CREATE OR REPLACE TEMP MACRO {function_body(word)}"
            elif word in all_views:
                statement = f"CREATE OR REPLACE TEMP VIEW {word} AS\n{all_views[word].body}"
            else:
                continue
            need(statement, word)
            made[word] = statement

    need(sql)
    return tuple(made.values())
