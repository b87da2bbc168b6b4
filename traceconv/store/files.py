"""The files that a database is on the disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def remove_database(file: Path) -> None:
    """Removes a database file and its write-ahead log, as far as they are there."""
    for path in (file, file.with_name(file.name + ".wal")):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    remove_temporary(file)


def remove_temporary(file: Path) -> None:
    """Removes what a killed program left of DuckDB's temporary files; the file itself must be ours alone."""
    folder = file.with_name(file.name + ".tmp")
    with contextlib.suppress(OSError):
        for path in folder.glob("duckdb_temp_*"):
            path.unlink(missing_ok=True)
        folder.rmdir()


def sync(path: Path) -> None:
    """Waits until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
