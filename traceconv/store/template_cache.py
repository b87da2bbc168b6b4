"""Cache the file of an empty store, because creating it takes longer than ingesting a small trace.

Each of hundreds of comments, views and macros is a statement. The file depends only on the statements and on DuckDB, so
it is created once, cached, and then copied. Its name is a digest of the files that the statements are made from:
reading these takes less time than making the statements. It is not compressed: decompressing it took 3 ms of CPU time.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from traceconv._version import __version__
from traceconv.base.cache_folder import cache_folder
from traceconv.base.digest import blake2b
from traceconv.base.errors import StoreError
from traceconv.store.database import STORAGE_OPTIONS, create_store

#: Several versions may be in use: those created last are kept.
_KEPT_FILES = 4

if TYPE_CHECKING:
    from importlib.abc import Traversable

_DIGEST_BYTES = 16
#: Packages with the files that the statements of `store_statements` are made from, and their suffixes.
_CODE_AND_DATA = (".py", ".sql", ".toml")
_SOURCES = {
    "traceconv.normalize": (".toml",),
    "traceconv.schema": _CODE_AND_DATA,
    "traceconv.schemas": _CODE_AND_DATA,
    "traceconv.store": _CODE_AND_DATA,
}


def empty_store(report_statements: Callable[[], Sequence[str]]) -> bytes | None:
    """Return the bytes of an empty store with all tables, views and reports; None if they can't be cached.

    report_statements  a function whose statements are made from the files of the package that it is in
    """
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / f"blank-store-{_key(report_statements).hex()}"
    with contextlib.suppress(OSError):
        if (cached := _intact(path.read_bytes())) is not None:
            return cached
    try:
        from traceconv.store.statements import store_statements

        return _create(folder, path, [*store_statements(), *report_statements()])
    except (OSError, StoreError, duckdb.Error):
        return None  # if it also fails for the store, that error is reported


@cache  # files of a running program don't change
def _key(report_statements: Callable[[], Sequence[str]]) -> bytes:
    """Return a digest of all that the file depends on."""
    module, name = report_statements.__module__, report_statements.__qualname__
    of_all = blake2b(digest_size=_DIGEST_BYTES)
    texts = (duckdb.__version__, STORAGE_OPTIONS, __version__, module, name)
    package = module.rpartition(".")[0]
    others = _files(package) if package else (statement.encode() for statement in report_statements())
    for part in (*(text.encode() for text in texts), *others):
        of_all.update(len(part).to_bytes(8, "little") + part)
    return of_all.digest()


def _files(package: str) -> Iterator[bytes]:
    """Yield the names and contents of the files of `_SOURCES` and of `package`."""
    for name, suffixes in {**_SOURCES, package: _CODE_AND_DATA}.items():
        waiting: list[tuple[str, Traversable]] = [(name, resources.files(name))]
        while waiting:
            path, folder = waiting.pop()
            for one in sorted(folder.iterdir(), key=lambda file: file.name):
                if one.name.endswith(suffixes):
                    yield f"{path}/{one.name}".encode()
                    yield one.read_bytes()
                elif "." not in one.name and one.name != "__pycache__" and one.is_dir():
                    waiting.append((f"{path}/{one.name}", one))


def _create(folder: Path, path: Path, statements: Sequence[str]) -> bytes:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as workplace:
        file = Path(workplace) / "blank.duckdb"
        with create_store(file) as connection:
            connection.execute("BEGIN TRANSACTION")
            connection.execute(";\n".join(statements))
            connection.execute("COMMIT")
            connection.execute("CHECKPOINT")
        content = file.read_bytes()
        cached = Path(workplace) / "cached"
        cached.write_bytes(_digest(content) + content)
        cached.replace(path)
    with contextlib.suppress(OSError):
        kept = sorted(folder.glob("blank-store-*"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        for older in kept[_KEPT_FILES:]:
            older.unlink()
    return content


def _intact(cached: bytes) -> bytes | None:
    """Return the store of a cached file; None if the file is damaged."""
    content = cached[_DIGEST_BYTES:]
    return content if _digest(content) == cached[:_DIGEST_BYTES] else None


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()
