"""What ops were found to take, on disk: one small file for each, which may go at any time.

A file appears whole or not at all (it is written beside its name, and renamed), so that several processes may write at
a time: who comes last wins, with the same content. What can't be read, or is not what was written, counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from traceconv.base.cache_folder import cache_folder
from traceconv.base.errors import OutputError, printable

_FOLDER = "op-profiles"
_MAX_BYTES = 4 << 20
#: What decides how long an op takes: when it changes, what was kept is of no use.
_COST_MODULES = ("cost.py", "pricing.py", "ops.py", "lower.py", "launch.py", "device.py", "kernels.py", "load.py")


@dataclass(frozen=True, slots=True)
class CacheSize:
    """How much is kept, and where; `folder` None: nothing is, since $TRACECONV_CACHE is empty."""

    folder: Path | None
    entry_count: int
    size_bytes: int


def digest(data: bytes) -> str:
    """A fingerprint of some bytes."""
    return hashlib.sha256(data).hexdigest()


@cache
def cost_model_digest() -> str:
    """A fingerprint of the code that makes an op's cost."""
    folder = resources.files("traceconv.runtime")
    return digest(b"".join(folder.joinpath(name).read_bytes() for name in _COST_MODULES))


def get(key: dict[str, object]) -> dict[str, Any] | None:
    """What is kept under a key; None when nothing is, or it is damaged."""
    path = _path(key)
    if path is None:
        return None
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        entry = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("key") != _plain(key):
        return None
    value = entry.get("value")
    return value if isinstance(value, dict) and entry.get("sum") == _sum(value) else None


def put(key: dict[str, object], value: dict[str, object]) -> None:
    """Keeps a value under a key. A folder that can't be written keeps nothing, and is no error."""
    path = _path(key)
    if path is None:
        return
    value = _plain(value)
    text = json.dumps({"key": key, "value": value, "sum": _sum(value)})
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(suffix=".partial", prefix=f"{path.stem[:16]}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(partial).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(partial).unlink()
            raise


def size() -> CacheSize:
    """How much is kept."""
    folder = _folder()
    sizes = []
    for path in _entries(folder, ".json"):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return CacheSize(folder, len(sizes), sum(sizes))


def reset() -> int:
    """Forgets all; returns how many entries there were. Raises OutputError when some can't be removed."""
    folder = _folder()
    removed = 0
    try:
        for path in _entries(folder, ".json", ".partial"):
            with suppress(FileNotFoundError):  # another process was faster
                path.unlink()
                removed += path.suffix == ".json"
    except OSError as error:
        raise OutputError(f"can't empty {printable(str(folder))}: {error.strerror or error}") from error
    return removed


def _folder() -> Path | None:
    base = cache_folder()
    return None if base is None else base / _FOLDER


def _entries(folder: Path | None, *suffixes: str) -> list[Path]:
    try:
        return [] if folder is None else sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    except OSError:
        return []


def _path(key: dict[str, object]) -> Path | None:
    folder = _folder()
    return None if folder is None else folder / f"{digest(json.dumps(key, sort_keys=True).encode())}.json"


def _plain(value: dict[str, object]) -> dict[str, object]:
    """As JSON gives it back."""
    plain: dict[str, object] = json.loads(json.dumps(value))
    return plain


def _sum(value: dict[str, object]) -> str:
    return digest(json.dumps(value, sort_keys=True).encode())
