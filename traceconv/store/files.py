"""The files of a database on disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def is_empty(path: Path) -> bool:
    """Whether a path is a file without content, such as `mktemp` makes."""
    return os.path.isfile(path) and path.stat().st_size == 0


def remove_database(file: Path) -> None:
    """Remove a database file and its write-ahead log, if they exist."""
    for path in (file, file.with_name(file.name + ".wal")):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    remove_temporary(file)


def remove_temporary(file: Path) -> None:
    """Remove DuckDB's temporary files left by a killed program; no other program may use the database."""
    folder = file.with_name(file.name + ".tmp")
    with contextlib.suppress(OSError):
        for path in folder.glob("duckdb_temp_*"):
            path.unlink(missing_ok=True)
        folder.rmdir()


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_new(partial: Path, target: Path) -> None:
    """Rename a file without replacing another, except an empty one. Raises FileExistsError."""
    try:
        os.link(partial, target)
    except FileExistsError:
        if not is_empty(target):
            raise
        partial.replace(target)
    except OSError:  # a file system without hard links
        if os.path.exists(target):
            raise FileExistsError from None
        partial.rename(target)
    else:
        partial.unlink()
