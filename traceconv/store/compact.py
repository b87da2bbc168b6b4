"""Rewrite a store without its free space, in a copy that takes its place: DuckDB's files never shrink."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb

from traceconv.base.errors import StoreError, printable, reason_of
from traceconv.schema.ddl import quote_text
from traceconv.store.database import STORAGE_OPTIONS, lock_down, open_store, raise_interrupt
from traceconv.store.file_lock import FileLock
from traceconv.store.files import remove_database, sync
from traceconv.store.load_memory import prepare_to_load
from traceconv.store.partial_store import partial_store, remove_orphan
from traceconv.store.text_sizes import sizes_in_store


def compact(path: Path) -> None:
    """Copy everything in a store, also what its user added. Raises StoreError; the store is then unchanged."""
    target = Path(os.path.realpath(path))
    partial = partial_store(target)
    lock = FileLock(target, lambda: None)
    try:
        if target.with_name(target.name + ".wal").exists():
            open_store(target, read_only=False).close()  # merges the log, which must not be applied to the copy
        remove_orphan(partial)
        # While it is open for reading, no other program can write to it.
        with open_store(target) as connection:
            prepare_to_load(connection, sizes_in_store(connection))
            # Rows keep their order, and files are smaller: rows of a run stay together.
            connection.execute("SET preserve_insertion_order = true")
            connection.execute(f"ATTACH {quote_text(str(partial))} AS partial ({STORAGE_OPTIONS})")
            # Creating a view of the user may not read files.
            lock_down(connection)
            connection.execute("COPY FROM DATABASE store TO partial")
            connection.execute("CHECKPOINT partial")
            connection.execute("DETACH partial")
            shutil.copymode(target, partial)
            sync(partial)
            partial.replace(target)
            sync(target.parent)
    except (OSError, duckdb.Error) as error:
        raise StoreError(f"can't rewrite {printable(str(path))}: {reason_of(error)}") from error
    except RuntimeError as error:
        raise_interrupt(error)
        raise
    finally:
        remove_database(partial)
        lock.release()
