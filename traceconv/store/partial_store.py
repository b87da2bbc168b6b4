"""The temporary file in which a new store, or a copy of one, is written before it gets its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from errno import ENOENT
from pathlib import Path

import duckdb

from traceconv.base.errors import StoreError, printable, reason_of
from traceconv.store.database import check_path, create_store, open_own_file, open_store
from traceconv.store.files import remove_database
from traceconv.store.template_cache import empty_store


def partial_store(target: Path) -> Path:
    """Return the temporary name of a store that is written."""
    return target.with_name(target.name + ".partial")


def remove_orphan(partial: Path) -> None:
    """Remove the files of a killed writer. Raises StoreError if it is still running."""
    if not os.path.exists(partial):
        return
    try:
        open_store(partial, read_only=False).close()
    except StoreError as error:
        if "in use" in str(error):
            raise
    remove_database(partial)


def create_partial(
    partial: Path, report_statements: Callable[[], Sequence[str]]
) -> tuple[duckdb.DuckDBPyConnection, bool]:
    """Create a store; return it, and whether it has its tables and reports because a template was copied."""
    check_path(partial)
    template = empty_store(report_statements)
    if template is None:
        return create_store(partial), False
    try:
        with partial.open("xb") as file:
            file.write(template)
        return open_own_file(partial), True
    except StoreError:
        remove_database(partial)
        raise
    except OSError as error:
        remove_database(partial)
        why = "its folder does not exist" if error.errno == ENOENT else reason_of(error)
        raise StoreError(f"can't create {printable(str(partial))}: {why}") from error
