"""Cache the file of an empty store, because creating it takes longer than ingesting a small trace.

Each of hundreds of comments, views and macros is a statement. The file depends only on the statements and on DuckDB, so
it is created once, compressed, cached under their digest, and then copied.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import duckdb

from traceconv.base.cache_folder import cache_folder
from traceconv.base.errors import StoreError
from traceconv.store.database import STORAGE_OPTIONS, create_store, store_statements

_DIGEST_BYTES = 16
#: Maximum size of a template; a larger cached file is not one.
_MOST_BYTES = 64 << 20


def empty_store(report_statements: Sequence[str]) -> bytes | None:
    """Return the bytes of an empty store with all tables, views and reports; None if they can't be cached."""
    folder = cache_folder()
    if folder is None:
        return None
    statements = [*store_statements(), *report_statements]
    key = _digest("\0".join((duckdb.__version__, STORAGE_OPTIONS, *statements)).encode())
    path = folder / f"blank-store-{key.hex()}"
    with contextlib.suppress(OSError):
        if (cached := _decompressed(path.read_bytes())) is not None:
            return cached
    try:
        return _create(folder, path, statements)
    except (OSError, StoreError, duckdb.Error):
        return None  # if it also fails for the store, that error is reported


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
        compressed = Path(workplace) / "compressed"
        compressed.write_bytes(_digest(content) + zlib.compress(content, 1))
        for older in folder.glob("blank-store-*"):
            with contextlib.suppress(OSError):
                older.unlink()
        compressed.replace(path)
    return content


def _decompressed(cached: bytes) -> bytes | None:
    """Decompress the file; None if it is damaged."""
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(cached[_DIGEST_BYTES:], _MOST_BYTES)
    except zlib.error:
        return None
    return content if decompressor.eof and _digest(content) == cached[:_DIGEST_BYTES] else None


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
