"""Connections to the store's file: create it, open it, explain why that fails.

A store is a DuckDB file. It is written with the storage version of DuckDB 1.2, so that older shells and libraries can
open it. It is attached under a fixed name and made current, so that its views and macros don't depend on the file name.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from weakref import WeakSet

import duckdb

from traceconv._version import __version__
from traceconv.base.errors import StoreError, option, printable, reason_of
from traceconv.base.interrupts import at_interrupt, is_interrupt
from traceconv.base.workers import Workers
from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.catalogue import columns_of_tables, time_limit, wrong_in
from traceconv.store.migrations import OLDEST_VERSION, columns_since
from traceconv.store.valid_files import file_state, is_known, remember_checked

#: Rows of a group. A thread that loads holds a group in memory, uncompressed: half of DuckDB's usual size lets two
#: threads stay below their memory limit with long args, and leaves less to compress for the commit.
GROUP_ROWS = 61_440
#: The oldest storage format with the features of a store, which all DuckDB versions from 1.2 read.
STORAGE_OPTIONS = f"STORAGE_VERSION 'v1.2.0', ROW_GROUP_SIZE {GROUP_ROWS}"

#: Environment variable with the path of the store, and the default file name.
STORE_VARIABLE = "TRACECONV_DB"
STORE_NAME = "trace.duckdb"

#: Name of the attached store.
_ALIAS = "store"
#: Memory limit of a connection before it spills to disk; loading sets another limit.
MEMORY_LIMIT = "1GB"
#: Position and value of the magic bytes of a DuckDB file.
_MAGIC = slice(8, 12)
_MAGIC_BYTES = b"DUCK"
#: Connections that Ctrl-C interrupts.
_CONNECTIONS: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()
#: A connection that `connect_ahead` creates.
_AHEAD: list[Future[duckdb.DuckDBPyConnection]] = []
#: Raised by DuckDB 2 and later while another thread uses the same connection.
_BUSY: tuple[type[duckdb.Error], ...] = tuple(filter(None, [getattr(duckdb, "ResourceInUseException", None)]))
#: Number of interrupts, one per millisecond, until every call has ended.
_INTERRUPTS = 100


class OlderStoreError(StoreError):
    """The store has an older schema version that `store.migrate` can migrate."""


def default_store_path() -> Path:
    """Return the default path: $TRACECONV_DB, or trace.duckdb in the current folder."""
    return named_store(Path(os.environ.get(STORE_VARIABLE) or STORE_NAME))


def named_store(path: Path) -> Path:
    """Expand `~` in a user's path if there is a home folder."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def names_file(path: Path, db: Path | None) -> bool:
    """Whether an argument is a file and not a run of the store: it exists, or could be one and there is no store."""
    if db is not None or os.path.exists(path):
        return db is None
    return (path.suffix != "" or len(path.parts) > 1) and not os.path.exists(default_store_path())


def is_duckdb(path: Path) -> bool:
    """Whether a path is a DuckDB file, by its first bytes. Pipes are not opened, since that would wait for a writer."""
    if not os.path.isfile(path):
        return False
    try:
        with path.open("rb") as file:
            return file.read(_MAGIC.stop)[_MAGIC] == _MAGIC_BYTES
    except OSError:
        return False  # reported when it is read


def create_store(path: Path) -> duckdb.DuckDBPyConnection:
    """Create an empty database file and return a connection with it as current database.

    Raises StoreError if the file exists or can't be created.
    """
    if os.path.exists(path):
        raise StoreError(f"{_shown(path)} already exists; choose another name or remove it")
    return _attach(path, read_only=False)


def check_path(path: Path) -> str:
    """Return the absolute path. Raises StoreError for paths that DuckDB doesn't support."""
    absolute = str(path.absolute())
    try:
        absolute.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{_shown(path)}: DuckDB only opens paths that are valid UTF-8; choose another") from error
    if "\\" in absolute:
        raise StoreError(f"{_shown(path)}: DuckDB reads a backslash in a path as a slash; choose another")
    return absolute


def open_store(path: Path, *, read_only: bool = True, older: bool = False) -> duckdb.DuckDBPyConnection:
    """Open the store at `path` as the connection's current database. Use as a context manager.

    older  open a store of an older schema version unchanged, if it can be migrated

    Raises OlderStoreError for such a store otherwise, and StoreError if the file doesn't exist, can't be read, is not a
    store of a supported version, or is being written by another program.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{_shown(path)} does not exist; create a store with: {_ingest_command()}") from None
    except OSError as error:
        raise StoreError(f"can't open {_shown(path)}: {reason_of(error)}") from None
    if not stat.S_ISREG(mode):
        raise StoreError(f"{_shown(path)} is a folder or a device, not a store; name a file with {option('--db')}")
    connection = _attach(path, read_only=read_only)
    try:
        # A cursor doesn't have the store as its current database, so the store can't shadow DuckDB's functions.
        with connection.cursor() as cursor:
            _check(path, cursor, older)
    except BaseException:
        connection.close()
        raise
    return connection


def attach_store(connection: duckdb.DuckDBPyConnection, path: Path, name: str) -> None:
    """Attach another store for reading, as the database `name`. Raises StoreError as `open_store` does."""
    try:
        connection.execute(f"ATTACH {quote_text(check_path(path))} AS {quote_identifier(name)} (READ_ONLY)")
    except duckdb.Error as error:
        raise StoreError(_why_not(path, error)) from error
    with connection.cursor() as cursor:
        _check(path, cursor, older=False, name=name)


def open_own_file(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a store that this process has just created for writing, without checks."""
    return _attach(path, read_only=False)


def new_cursor(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Return another connection to an open store, for a second query while rows are read."""
    cursor = connection.cursor()
    _CONNECTIONS.add(cursor)
    # Cursors don't inherit the settings of a connection.
    cursor.execute(f"USE {_ALIAS}")
    cursor.execute("SET python_enable_replacements = false")
    return cursor


def close_in_use(connections: Sequence[duckdb.DuckDBPyConnection]) -> None:
    """Close connections, interrupting calls of other threads on them."""
    if not _BUSY:
        # DuckDB 1 crashes or hangs if a connection is closed during a call, and can't report whether there is one.
        for _ in range(_INTERRUPTS):
            for connection in connections:
                connection.interrupt()
            time.sleep(0.001)
    for connection in connections:
        while True:
            try:
                connection.close()
            except _BUSY:
                connection.interrupt()
                time.sleep(0.001)
            else:
                break


def lock_down(
    connection: duckdb.DuckDBPyConnection, writable: Path | None = None, *, fixed_memory: bool = True
) -> None:
    """Restrict a connection to its store, for SQL of users.

    It has no files (except `writable`, as the target of a COPY), no network, no extensions, and can't undo this.

    fixed_memory  its memory limit can't be changed either, which `sorted_on_disk` needs
    """
    if not fixed_memory:
        connection.execute("SET allowed_configs = ['memory_limit', 'disabled_optimizers']")
    if writable is not None:
        connection.execute(f"SET allowed_paths = [{quote_text(str(writable.absolute()))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def raise_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt if `error` is DuckDB's error for Ctrl-C."""
    if is_interrupt(error):
        raise KeyboardInterrupt from None


def _attach(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    # An absolute path can't be mistaken for a URL (`sqlite:…`, `https:…`).
    file = check_path(path)
    options = "READ_ONLY" if read_only else STORAGE_OPTIONS
    try:
        connection = connect_memory(_spill_folder(path))
    except duckdb.Error as error:
        raise StoreError(_why_not(path, error, read_only)) from error
    try:
        connection.execute(f"ATTACH {quote_text(file)} AS {_ALIAS} ({options})")
        connection.execute(f"USE {_ALIAS}")
    except duckdb.Error as error:
        connection.close()
        raise StoreError(_why_not(path, error, read_only)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def connect_ahead() -> None:
    """Let a thread create the next connection while modules are imported."""
    if not _AHEAD:
        thread = Workers(1, "traceconv-connect")
        _AHEAD.append(thread.submit(_new_connection))
        thread.shutdown(wait=False)


def _new_connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
        },
    )
    _CONNECTIONS.add(connection)
    return connection


def _interrupt() -> None:
    """Interrupt what all connections compute; those that compute nothing are not affected."""
    for connection in list(_CONNECTIONS):
        with contextlib.suppress(duckdb.Error):  # it is closed
            connection.interrupt()


at_interrupt.append(_interrupt)


def connect_memory(spill_folder: str) -> duckdb.DuckDBPyConnection:
    """Return a connection without a store, with the settings of all connections. DuckDB spills to `spill_folder`."""
    connection = _AHEAD.pop().result() if _AHEAD else _new_connection()
    try:
        # A name in SQL must not refer to a Python variable.
        connection.execute("SET python_enable_replacements = false")
        # DuckDB takes `python -c` for interactive and would print a progress bar to standard output. In a notebook
        # without ipywidgets, it prints none, and refuses to change that.
        with contextlib.suppress(duckdb.InvalidInputException):
            connection.execute("SET enable_progress_bar = false")
        connection.execute(f"SET memory_limit = {quote_text(MEMORY_LIMIT)}")
        connection.execute(f"SET temp_directory = {quote_text(spill_folder)}")
    except BaseException:
        connection.close()
        raise
    return connection


def _spill_folder(path: Path) -> str:
    """Return the folder for spilling: next to the store, or the temporary folder if that is not writable.

    DuckDB creates it if needed, and removes it.
    """
    if os.access(path.absolute().parent, os.W_OK):
        return f"{path.absolute()}.tmp"
    return temporary_spill_folder()


def temporary_spill_folder() -> str:
    """Return a folder for spilling in the system's temporary folder."""
    return str(Path(tempfile.gettempdir()) / f"traceconv-{os.getpid()}.tmp")


def _check(path: Path, connection: duckdb.DuckDBPyConnection, older: bool, name: str = _ALIAS) -> None:
    state = file_state(path)
    try:
        with time_limit(connection):
            if is_known(state):
                _checked_version(path, connection, older, name)
                return
            found = columns_of_tables(connection, name)
            if "store_info" not in found:
                raise StoreError(
                    f"{_shown(path)} is a DuckDB file, but was not created by traceconv; choose another store"
                )
            version = _checked_version(path, connection, older, name)
            wrong = wrong_in(connection, name, found, columns_since(version))
    except duckdb.Error as error:
        raise StoreError(_why_not(path, error)) from error
    if wrong is not None:
        raise StoreError(
            f"{_shown(path)} is not a valid store: {wrong}; to replace it, ingest its sources again into a new store"
        )
    remember_checked(path, state)


def _checked_version(path: Path, connection: duckdb.DuckDBPyConnection, older: bool, name: str) -> int:
    info = f"{quote_identifier(name)}.main.store_info"
    rows = connection.execute(f"SELECT schema_version, writer FROM {info} LIMIT 2").fetchall()  # noqa: S608 - our name
    if len(rows) != 1 or type(rows[0][0]) is not int:
        raise StoreError(f"{_shown(path)} is not a complete store; ingest again into a new store")
    version: int = rows[0][0]
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{_shown(path)} has schema version {version} (written by {printable(str(rows[0][1]))}), this is "
            f"{__version__} with version {SCHEMA_VERSION}; upgrade traceconv"
        )
    if version < OLDEST_VERSION:
        raise StoreError(
            f"{_shown(path)} has schema version {version}, but the oldest supported one is {OLDEST_VERSION}; "
            f"ingest its sources again into a new store: {_ingest_command()}"
        )
    if version < SCHEMA_VERSION and not older:
        raise OlderStoreError(
            f"{_shown(path)} has the older schema version {version} (now {SCHEMA_VERSION}); "
            "run a report on it or ingest into it to migrate it"
        )
    return version


def _why_not(path: Path, error: duckdb.Error, read_only: bool = True) -> str:
    """Explain in one line why DuckDB can't attach or read a file."""
    text = str(error)
    shown = _shown(path)
    if "lock on file" in text or "Conflicting lock" in text:
        does = "is writing to it" if read_only else "has it open"
        return f"{shown} is in use: another program {does}; wait for it to end, or close it"
    if "already attached" in text or "already open" in text:
        return f"{shown} is already open in this program; close that connection first"
    if "newer version of DuckDB" in text or "older version of DuckDB" in text:
        return f"{shown} is in a storage format that DuckDB {duckdb.__version__} can't read; upgrade duckdb"
    # Checked only after the error, because opening and closing the file would drop this process's locks on it.
    try:
        with path.open("rb") as file:
            head = file.read(_MAGIC.stop)
    except FileNotFoundError:
        why = reason_of(error).rpartition('": ')[2] if path.parent.is_dir() else "its folder does not exist"
        return f"can't create {shown}: {why}"
    except OSError as why:
        return f"can't open {shown}: {reason_of(why)}"
    if not head:
        return f"{shown} is empty, not a store; create one with: {_ingest_command()}"
    if head[_MAGIC] != _MAGIC_BYTES:
        return f"{shown} is not a DuckDB file; to import it into a store: {_ingest_command()}"
    if not read_only and ("Read-only file system" in text or "Permission denied" in text):
        return f"can't write {shown}: it is read-only; name another store with {option('--db')}"
    return f"can't open {shown}: {reason_of(error)}"


def _ingest_command() -> str:
    return option("traceconv ingest PATH --db FILE", "traceconv.ingest(PATH, db=FILE)")


def _shown(path: Path) -> str:
    return printable(str(path))
