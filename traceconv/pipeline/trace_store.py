"""Trace files read like a store: ingested into a store that is kept in the cache.

A store is named by the paths, sizes, modification times and ends of its files, and by the versions of traceconv and of
the schema. It is created under a temporary name and renamed, so that several processes may create the same one at once.
The least recently used stores are removed when the cache exceeds its size.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from traceconv._version import __version__
from traceconv.base.cache_folder import cache_folder
from traceconv.base.errors import InputError, StoreError, UsageError, option, printable
from traceconv.base.temporary_folder import temporary_folder
from traceconv.lake.folder import is_lake
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.database import default_store_path, is_duckdb, named_store

if TYPE_CHECKING:
    from traceconv.pipeline.result import Observer

_FOLDER = "stores"
_MAX_BYTES = 2 << 30
#: Bytes at both ends of a file that are part of its identity.
_END_BYTES = 64 << 10
#: Folders with more files are not cached.
_MOST_FILES = 10_000
_STALE_SECONDS = 24 * 3600

#: Follows the ingest of files that are not in the cache.
Observed: TypeAlias = "Callable[[], AbstractContextManager[Observer | None]]"


@dataclass(frozen=True, slots=True)
class TraceStore:
    """A store to read.

    losses  lines that report lost data of the files it was made from; `notes`: what is only notable
    made    whether it was made from files, so that changes would be lost
    """

    path: Path
    losses: Sequence[str] = ()
    notes: Sequence[str] = ()
    made: bool = False


@contextmanager
def store_of(
    paths: Sequence[Path],
    db: Path | None = None,
    *,
    cache: bool = True,
    observed: Observed = nullcontext,
) -> Iterator[TraceStore]:
    """Yield the store made from the files `paths`, which may be a store or a lake itself; without any, `db` or the
    default.

    Without `cache`, the store is removed at the end of the block.

    Raises UsageError if both are given, InputError if nothing can be used.
    """
    if not paths:
        yield _as_it_is(default_store_path() if db is None else named_store(db))
        return
    if db is not None:
        raise UsageError(
            f"{option('--db')} and trace files exclude each other; ingest the files into the store instead"
        )
    if len(paths) == 1 and (paths[0].suffix == ".duckdb" or is_duckdb(paths[0]) or is_lake(paths[0])):
        yield _as_it_is(paths[0])
        return
    for path in paths:
        if is_duckdb(path):
            raise UsageError(f"{printable(str(path))} is a store: open it alone; traceconv runs merge combines stores")
        if is_lake(path):
            raise UsageError(f"{printable(str(path))} is a lake: open it alone, or ingest it into a store")
    folder = cache_folder() if cache else None
    key = None if folder is None else _key(paths)
    if folder is not None and key is not None:
        kept = folder / _FOLDER / f"{key}.duckdb"
        store = _cached(kept) or _make(paths, kept, observed)
        if store is not None:
            yield store
            return
    with temporary_folder() as temporary:
        path = temporary / "trace.duckdb"
        yield _with_losses(path, _ingest(paths, path, observed))


def _as_it_is(path: Path) -> TraceStore:
    """A store or lake of the user."""
    if not is_lake(path):
        return TraceStore(path)
    from traceconv.lake.views import usable_lake

    lake = usable_lake(path)
    return TraceStore(path, lake.problems, lake.notes())


def _key(paths: Sequence[Path]) -> str | None:
    """Return a name for the content of files and folders; None if they can't be cached."""
    from traceconv.formats.registry import parts_of  # on use: reports and exports of stores need no format

    found: list[object] = [__version__, SCHEMA_VERSION]
    for path in paths:
        if str(path) == "-":
            return None
        absolute = path.absolute()
        found.append(str(absolute))
        files = list(parts_of(absolute))
        if os.path.isdir(absolute):
            files = [Path(top, name) for top, _, names in sorted(os.walk(absolute)) for name in sorted(names)]
        if len(found) + len(files) > _MOST_FILES:
            return None
        if not os.path.lexists(absolute):
            raise InputError(f"{printable(str(path))} does not exist")
        found.extend(_identity(file) for file in files)
    return hashlib.sha256(json.dumps(found).encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _identity(path: Path) -> list[object]:
    """Return what changes with a file's content; for a file that can't be read, why. Ingest reports such files."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return [str(path), "not a regular file"]  # opening a pipe without a writer would wait for one
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            ends = hashlib.sha256(file.read(_END_BYTES))
            file.seek(max(0, state.st_size - _END_BYTES))
            ends.update(file.read(_END_BYTES))
    except OSError as error:
        return [str(path), error.errno]
    return [str(path), state.st_size, state.st_mtime_ns, ends.hexdigest()]


def _cached(kept: Path) -> TraceStore | None:
    try:
        losses = json.loads(kept.with_suffix(".json").read_text("utf-8"))
        os.utime(kept)  # the time of its last use
        return _with_losses(kept, losses)
    except (OSError, ValueError):
        return None


def _make(paths: Sequence[Path], kept: Path, observed: Observed) -> TraceStore | None:
    """Ingest into the cache; None if the folder can't be used, or a file changes meanwhile."""
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _evict(kept.parent)
        folder = Path(tempfile.mkdtemp(suffix=".partial", dir=kept.parent))
    except OSError:
        return None
    try:
        path = folder / "trace.duckdb"
        losses = _ingest(paths, path, observed)
        if _key(paths) != kept.stem:
            return None
        (folder / "losses.json").write_text(json.dumps(losses), "utf-8")
        (folder / "losses.json").replace(kept.with_suffix(".json"))
        path.replace(kept)
        _evict(kept.parent, kept)
        return _with_losses(kept, losses)
    except (OSError, StoreError):
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _evict(folder: Path, newest: Path | None = None) -> None:
    """Remove the least recently used stores until the cache has its size, and files left by crashes."""
    stores = []
    for path in folder.iterdir():
        with suppress(OSError):
            state = path.stat()
            if path.suffix == ".duckdb":
                stores.append((path == newest, state.st_mtime_ns, state.st_size, path))
            elif path.suffix == ".partial" and time.time() - state.st_mtime > _STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
    total = sum(size for _, _, size, _ in stores)
    for is_newest, _, size, path in sorted(stores):
        if total <= _MAX_BYTES or is_newest:
            break
        total -= size
        for one in (path, path.with_suffix(".json")):
            with suppress(OSError):
                one.unlink()


def _ingest(paths: Sequence[Path], store: Path, observed: Observed) -> dict[str, list[str]]:
    """Ingest files; return the lines that report losses, and those that report what is only notable."""
    from traceconv.pipeline.ingest import ingest
    from traceconv.pipeline.ingest_text import losses_of

    with observed() as observer:
        result = ingest(paths, store, observer=observer)
    return {"losses" if result.lossy else "notes": list(losses_of(result))}


def _with_losses(path: Path, lines: dict[str, list[str]]) -> TraceStore:
    return TraceStore(path, lines.get("losses", ()), lines.get("notes", ()), made=True)
