"""Migrate an older store to the current schema version in a copy, which then replaces it."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import duckdb

from traceconv.base.errors import StoreError, StoreMigrated, printable, reason_of
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.database import (
    OlderStoreError,
    open_own_file,
    open_store,
    raise_interrupt,
)
from traceconv.store.derived_tables import fill_derived_tables
from traceconv.store.file_lock import FileLock
from traceconv.store.files import remove_database, sync
from traceconv.store.migrations import migration_statements, unfilled_columns
from traceconv.store.statements import definition_statements


def open_migrated(path: Path, report_statements: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """Migrate an older store and open it for reading. If it can't be written, migrate a temporary copy.

    Raises StoreError if both fail; the store is then unchanged.
    """
    target = Path(os.path.realpath(path))
    if os.access(target, os.W_OK) and os.access(target.parent, os.W_OK):
        lock = FileLock(target, lambda: None)
        try:
            return open_store(path)  # another program has migrated it in the meantime
        except OlderStoreError:
            migrate(target, report_statements)
        finally:
            lock.release()
        return open_store(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix="traceconv-", suffix=".duckdb")
    except OSError as error:
        raise _refused(target, error) from error
    os.close(descriptor)
    copy = Path(name)
    try:
        done = _migrate_copy(target, copy, report_statements)
        connection = open_store(copy)
    finally:
        remove_database(copy)  # an open file can be read after it is removed
    warnings.warn(StoreMigrated(f"{done}, in a temporary copy: the store can't be written"), stacklevel=2)
    return connection


def migrate(path: Path, report_statements: Sequence[str]) -> None:
    """Migrate an older store. The caller has its lock.

    Warns with StoreMigrated. Raises StoreError if it fails; the store is then unchanged.
    """
    copy = path.with_name(path.name + ".migrating")
    log = path.with_name(path.name + ".wal")
    if log.exists():
        open_store(path, read_only=False, older=True).close()  # merges the log
    try:
        done = _migrate_copy(path, copy, report_statements, takes_its_place=True)
    finally:
        remove_database(copy)
    warnings.warn(StoreMigrated(done), stacklevel=2)


def _migrate_copy(path: Path, copy: Path, report_statements: Sequence[str], *, takes_its_place: bool = False) -> str:
    """Migrate into `copy`; return a description."""
    log = path.with_name(path.name + ".wal")
    try:
        before = path.stat()
        remove_database(copy)
        shutil.copyfile(path, copy)
        if log.exists():
            shutil.copyfile(log, copy.with_name(copy.name + ".wal"))
        # While it is open for reading, no other program can write to it. It is opened after copying, because closing
        # the copied file would drop this lock.
        with open_store(path, older=True):
            if (path.stat().st_mtime_ns, path.stat().st_size) != (before.st_mtime_ns, before.st_size):
                raise StoreError(f"{printable(str(path))} changed while it was copied to be migrated; try again")
            done = _upgrade(path, copy, report_statements)
            if takes_its_place:
                shutil.copymode(path, copy)
                sync(copy)
                copy.replace(path)
                sync(path.parent)
    except (OSError, duckdb.Error) as error:
        raise _refused(path, error) from error
    except RuntimeError as error:
        raise_interrupt(error)
        raise
    return done


def _upgrade(path: Path, copy: Path, report_statements: Sequence[str]) -> str:
    with open_own_file(copy) as connection:
        connection.execute("BEGIN TRANSACTION")
        [(version,)] = connection.execute("SELECT schema_version FROM store_info").fetchall()
        for statement in migration_statements(version):
            connection.execute(statement)
        fill_derived_tables(connection)
        connection.execute(";\n".join([*definition_statements(), *report_statements]))
        formats = connection.execute("SELECT DISTINCT source_format FROM run").fetchall()
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    done = f"{printable(str(path))} was migrated from schema version {version} to {SCHEMA_VERSION}"
    unfilled = unfilled_columns(version, {name for (name,) in formats})
    if not unfilled:
        return done
    return f"{done}; NULL in its runs until these are ingested again: {', '.join(unfilled)}"


def _refused(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"can't migrate {printable(str(path))} to schema version {SCHEMA_VERSION}: {reason_of(error)}; "
        "the store is as it was before"
    )
