"""The tables of a lake as views on its Parquet files, named like those of a store, with run_id assigned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from traceconv._version import __version__
from traceconv.base.errors import StoreError, reason_of
from traceconv.lake.entries import Entry, Lake, Value, read_lake
from traceconv.lake.folder import lake_folder
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier, quote_text, sql_type
from traceconv.schema.model import SCHEMA_VERSION, TableSchema
from traceconv.store.database import connect_memory, temporary_spill_folder
from traceconv.store.migrations import OLDEST_VERSION, columns_since

#: The database of an open lake. That of an open store has the same name, and a file.
_DATABASE = "store"
#: Files of many runs are read through buffers outside of DuckDB's limit, so that a process takes less than 1 GB.
_MEMORY_LIMIT = "600MB"
#: The footers of up to this many files are read when a lake is opened, which takes 0.05 ms of CPU time each.
_MOST_CHECKED = 5000
#: Rows of the table run in a statement.
_ROWS_AT_ONCE = 100


def open_lake(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a lake for reading, with its tables in the current database.

    Runs are numbered from 1 in the order in which they were added. Runs that can't be used are omitted: see
    `usable_lake`. Views, functions and reports are defined when they are used, since DuckDB would read files for each
    of them. Raises InputError for a folder that is not a lake or can't be read, StoreError for a damaged file.
    """
    lake = read_lake(lake_folder(path))
    connection = connect_memory(temporary_spill_folder())
    try:
        _omit_unreadable(lake, connection)
        connection.execute(f"SET memory_limit = {quote_text(_MEMORY_LIMIT)}")
        attach_lake(connection, lake, _DATABASE)
        connection.execute(f"USE {_DATABASE}")
        connection.execute("CREATE TABLE store_info (schema_version BIGINT, writer VARCHAR)")
        connection.execute("INSERT INTO store_info VALUES (?, ?)", [SCHEMA_VERSION, f"traceconv {__version__}"])
    except duckdb.Error as error:
        connection.close()
        raise StoreError(
            f"can't read {lake.folder.shown}: {reason_of(error)}; "
            "find damaged files with: traceconv lake list DIR --check"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


def is_open_lake(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a connection is to a lake, and may read its files also when it is locked down."""
    found = connection.execute("SELECT path IS NULL FROM duckdb_databases() WHERE database_name = ?", [_DATABASE])
    return found.fetchall() == [(True,)]


def usable_lake(path: Path) -> Lake:
    """Return the runs of a lake that `open_lake` opens, and why others can't be used."""
    lake = read_lake(lake_folder(path))
    with connect_memory(temporary_spill_folder()) as connection:
        _omit_unreadable(lake, connection)
    return lake


def _omit_unreadable(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    """Omit runs with damaged footers.

    Of many files, or files on S3, only the first of each table is read, as DuckDB does when a view is defined.
    """
    prefix = lake.folder.connect(connection, "checked")
    files = _files(lake.entries)
    every = sum(map(len, files.values())) <= _MOST_CHECKED and lake.folder.is_local
    if every and _are_readable(connection, [prefix + path for some in files.values() for _, path in some]):
        return
    for candidates in files.values():
        for entry, path in candidates:
            if entry not in lake.entries:
                continue
            if not _are_readable(connection, [prefix + path]):
                lake.omit(entry, f"{path} is damaged")
            elif not every:
                break


def _are_readable(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> bool:
    if not paths:
        return True
    try:
        connection.execute("SELECT count(*) FROM parquet_file_metadata(?)", [list(paths)]).fetchall()
    except duckdb.Error:
        return False
    return True


def _files(entries: Sequence[Entry]) -> dict[tuple[str, int], list[tuple[Entry, str]]]:
    """Return the files of each table and schema version, as (run, path)."""
    found: dict[tuple[str, int], list[tuple[Entry, str]]] = {}
    for entry in entries:
        for path, file in entry.paths().items():
            found.setdefault((file.table, entry.schema_version), []).append((entry, path))
    return found


def attach_lake(connection: duckdb.DuckDBPyConnection, lake: Lake, database: str) -> None:
    """Attach an in-memory database with the table run and a view for each other table."""
    connection.execute(f"ATTACH ':memory:' AS {quote_identifier(database)}")
    prefix = lake.folder.connect(connection, database.replace("_", ""))
    _create_run_table(connection, lake.entries, database)
    files = _files(lake.entries)
    keys = ", ".join(quote_text(entry.key) for entry in lake.entries)
    for name, schema in tables().items():
        if name != "run":
            view = f"{quote_identifier(database)}.main.{quote_identifier(name)}"
            connection.execute(f"CREATE VIEW {view} AS {_rows_of(schema, files, keys, prefix)}")


def _create_run_table(connection: duckdb.DuckDBPyConnection, entries: Sequence[Entry], database: str) -> None:
    """The rows come from the entries, since a file of one row for each run takes longer to read."""
    columns = tables()["run"].columns
    name = f"{quote_identifier(database)}.main.run"
    connection.execute(
        f"CREATE TABLE {name} ({', '.join(f'{quote_identifier(c.name)} {sql_type(c)}' for c in columns)})"
    )
    marks = f"({', '.join('?' * len(columns))})"
    for start in range(0, len(entries), _ROWS_AT_ONCE):
        some = entries[start : start + _ROWS_AT_ONCE]
        values: list[Value] = []
        for run_id, entry in enumerate(some, start + 1):
            values += [run_id, *(entry.run[column.name] for column in columns[1:])]
        connection.execute(f"INSERT INTO {name} VALUES {', '.join([marks] * len(some))}", values)


def _rows_of(
    schema: TableSchema, files: Mapping[tuple[str, int], Sequence[tuple[Entry, str]]], keys: str, prefix: str
) -> str:
    """Return the SELECT for the rows of a table in all runs, whose `keys` are in their order."""
    # The number of a run is the place of its key in an enum: DuckDB computes it once per file, and reads only the
    # files of a run that a condition selects.
    parts: list[str] = []
    for version in range(OLDEST_VERSION, SCHEMA_VERSION + 1):
        if of_version := files.get((schema.name, version)):
            listed = ", ".join(quote_text(prefix + path) for _, path in of_version)
            parts.append(
                f"SELECT enum_code(file.run::ENUM({keys}))::BIGINT + 1 AS run_id, {_columns(schema, version)} "
                f"FROM read_parquet([{listed}], hive_partitioning = true, hive_types_autocast = false) AS file"
            )
    if parts:
        return " UNION ALL ".join(parts)
    empty = ", ".join(f"NULL::{sql_type(c)} AS {quote_identifier(c.name)}" for c in schema.columns)
    return f"SELECT {empty} WHERE false"


def _columns(schema: TableSchema, version: int) -> str:
    """Return the columns in files of a schema version; NULL for those that they lack."""
    lacking = columns_since(version)
    found: list[str] = []
    for column in schema.columns[1:]:
        name = quote_identifier(column.name)
        value = "NULL" if (schema.name, column.name) in lacking else f"file.{name}"
        found.append(f"{value}::{sql_type(column)} AS {name}")
    return ", ".join(found)
