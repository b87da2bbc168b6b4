"""Which files are known to be valid stores, because a check takes longer than a report on a small store.

A file is known by numbers that differ after any change of it. Those of the files that were checked last are also in the
cache folder, for the processes that come later.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import duckdb

from traceconv._version import __version__
from traceconv.base.cache_folder import cache_folder
from traceconv.schema.model import SCHEMA_VERSION

#: Maximum number of files, in memory and in the cache folder.
_MOST_FILES, _MOST_WRITTEN = 10_000, 200
#: Later changes have other times on every file system.
_SETTLED_NS = 2_000_000_000

_known: set[str] = set()
#: Cache files that were read.
_read: set[Path] = set()


def file_state(path: Path) -> str | None:
    """Return what differs after any change of a file, on one line; None if a log next to it has changes, too."""
    if os.path.exists(f"{path}.wal"):
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    # The time of the last status change can't be set.
    numbers = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return " ".join(map(str, (__version__, duckdb.__version__, SCHEMA_VERSION, *numbers)))


def is_known(state: str | None) -> bool:
    """Whether a file in this state is known to be valid."""
    if state is None:
        return False
    if state not in _known and (file := _cache_file()) is not None and file not in _read:
        _read.add(file)
        _known.update(_written(file))
    return state in _known


def remember_valid(path: Path) -> None:
    """Let this process open a store without a check until the file changes: it has just written or checked it."""
    if (state := file_state(path)) is not None:
        if len(_known) >= _MOST_FILES:
            _known.clear()
        _known.add(state)


def remember_checked(path: Path, state: str | None) -> None:
    """The same for all processes, unless the file has changed since it was in this state."""
    if state is None or state != file_state(path):
        return
    remember_valid(path)
    file = _cache_file()
    if file is None:
        return
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        if time.time_ns() - path.stat().st_ctime_ns < _SETTLED_NS:
            return
        written = [*_written(file)[1 - _MOST_WRITTEN :], state]
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.write_text("\n".join(written), encoding="utf-8")
        partial.replace(file)


def _cache_file() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "valid-stores"


def _written(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
