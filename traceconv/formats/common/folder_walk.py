"""Walk the files and folders below a folder, each once, in the order of their names."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from traceconv.base.errors import InputError, printable, reason_of

#: Maximum depth below the given folder.
MAX_DEPTH = 8
#: Maximum number of folders, so that a mistake such as `/` ends with an error.
MAX_FOLDERS = 50_000

_NUMBERS = re.compile(r"([0-9]+)")
_DIGITS = frozenset("0123456789")


def walk(
    top: Path, visit: Callable[[os.DirEntry[str]], bool], enter: Callable[[Path], bool]
) -> Iterator[tuple[Path, str | None]]:
    """Yield (regular file, None) and (file or folder, why it can't be read). Links are followed.

    visit  whether to look at an entry of a folder
    enter  whether to list a folder; called for `top`, too

    Raises InputError if `top` can't be listed or contains too many folders.
    """
    seen: set[tuple[int, int]] = set()
    folders = 0
    # A stack, last first.
    todo: list[tuple[Path, int]] = [(top, 0)]
    while todo:
        path, depth = todo.pop()
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # a dangling link, or deleted since it was listed
        except OSError as error:
            if error.errno != errno.ELOOP:
                yield path, _unreadable(path, error)
            continue
        key = (status.st_dev, status.st_ino)
        if key in seen:
            continue
        seen.add(key)
        if stat.S_ISREG(status.st_mode):
            yield path, None
        if not stat.S_ISDIR(status.st_mode) or depth > MAX_DEPTH or not enter(path):
            continue
        folders += 1
        if folders > MAX_FOLDERS:
            raise InputError(f"{printable(str(top))} contains more than {MAX_FOLDERS} folders; specify one of them")
        try:
            with os.scandir(path) as entries:
                inside = [Path(entry.path) for entry in entries if visit(entry)]
        except OSError as error:
            if path == top:
                raise InputError(_unreadable(top, error)) from error
            yield path, _unreadable(path, error)
            continue
        todo.extend((one, depth + 1) for one in sorted(inside, key=by_numbers, reverse=True))


def by_numbers(path: Path) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """The sort key of a path: by its names, with numbers in them by value, so that rank10 follows rank9."""
    return tuple(
        tuple(
            (1, int(part[:19]), part) if part[0] in _DIGITS else (0, 0, part) for part in _NUMBERS.split(name) if part
        )
        for name in path.parts
    )


def _unreadable(path: Path, error: OSError) -> str:
    return f"can't read {printable(str(path))}: {reason_of(error)}"
