"""Op profiles cached on disk: one small file each, which may be deleted at any time.

A file is written under a temporary name and renamed, so several processes may write at once: the last one wins, with
the same content. A file that is unreadable or damaged counts as missing.
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
from traceconv.base.errors import OutputError, printable, reason_of

_FOLDER = "op-profiles"
_MAX_BYTES = 4 << 20
#: The modules that determine how long an op takes: when one changes, cached profiles are invalid.
_COST_MODULES = ("cost.py", "pricing.py", "ops.py", "lower.py", "launch.py", "device.py", "kernels.py", "load.py",
                 "workspace.py", "control.py")  # fmt: skip


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The size of the cache; `folder` None: no cache, since $TRACECONV_CACHE is empty."""

    folder: Path | None
    entry_count: int
    size_bytes: int


def digest(data: bytes) -> str:
    """Return a fingerprint of some bytes."""
    return hashlib.sha256(data).hexdigest()


@cache
def cost_model_digest() -> str:
    """Return a fingerprint of the code that computes an op's cost."""
    folder = resources.files("traceconv.runtime")
    return digest(b"".join(folder.joinpath(name).read_bytes() for name in _COST_MODULES))


def get(key: dict[str, object]) -> dict[str, Any] | None:
    """Return the value cached under a key; None if it is missing or damaged."""
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
    """Cache a value under a key. Does nothing if the folder can't be written."""
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
    """Return the size of the cache."""
    folder = _folder()
    sizes = []
    for path in _entries(folder, ".json"):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return CacheSize(folder, len(sizes), sum(sizes))


def reset() -> int:
    """Empty the cache; return the number of entries. Raises OutputError when some can't be removed."""
    folder = _folder()
    removed = 0
    try:
        for path in _entries(folder, ".json", ".partial"):
            with suppress(FileNotFoundError):  # another process removed it
                path.unlink()
                removed += path.suffix == ".json"
    except OSError as error:
        raise OutputError(f"can't empty {printable(str(folder))}: {reason_of(error)}; remove it by hand") from error
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
    """Return a value as JSON restores it."""
    plain: dict[str, object] = json.loads(json.dumps(value))
    return plain


def _sum(value: dict[str, object]) -> str:
    return digest(json.dumps(value, sort_keys=True).encode())
