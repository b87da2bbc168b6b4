"""Find trace files below a folder by their first bytes.

Hidden files and folders are skipped, and so are those of recordings that are read as one. Links are followed; each file
and folder is read once.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from traceconv.base.errors import InputError, printable
from traceconv.formats.common.files import head_of, why_empty
from traceconv.formats.json_items.format import FORMAT as JSON_ITEMS
from traceconv.formats.json_items.format import may_have_items
from traceconv.formats.registry import SURE, TRACE_NAME, best_match
from traceconv.formats.unsupported import what_it_is

#: How deep below a given folder files are searched, and how many folders and files at most.
MAX_DEPTH = 8
MAX_FOLDERS = 50_000
MAX_FILES = 200_000

_NUMBERS = re.compile(r"([0-9]+)")
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True)
class FoundTrace:
    """A file that may be a trace. `sure`: it is one by its first bytes; otherwise it must be read to tell."""

    path: Path
    reader: str
    sure: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a folder.

    traces    sorted by name, with numbers in names by value
    unusable  (file or folder, why): files named like traces that can't be read, folders that can't be listed
    others    (file, why it is not ingested)
    """

    traces: tuple[FoundTrace, ...]
    unusable: tuple[tuple[Path, str], ...]
    others: tuple[tuple[Path, str], ...]


def by_numbers(path: Path) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """The sort key of a path: by its names, with numbers in them by value, so that rank10 follows rank9."""
    return tuple(
        tuple(
            (1, int(part[:19]), part) if part[0] in _DIGITS else (0, 0, part) for part in _NUMBERS.split(name) if part
        )
        for name in path.parts
    )


def find_traces(top: Path, own: Callable[[Path], bool], wanted: str | None = None, *, has_items: bool = False) -> Found:
    """The trace files below `top`.

    own        whether a folder belongs to a recording that is read as one; it is skipped
    wanted     the reader for all of them: files that it recognises, or that are named like traces
    has_items  a rule file describes the items of JSON documents, which are included

    Raises InputError if `top` can't be listed or contains too many files.
    """
    traces: list[FoundTrace] = []
    unusable: list[tuple[Path, str]] = []
    others: list[tuple[Path, str]] = []
    for path, problem in _files(top, own):
        if problem is not None:
            unusable.append((path, problem))
            continue
        try:
            head = head_of(path)
        except InputError as error:
            unusable.append((path, str(error)))
            continue
        best, confidence = best_match(head)
        other = what_it_is(head, path.name) if confidence < SURE else None
        called_trace = TRACE_NAME.search(path.name) is not None
        if wanted is not None:
            if (best.name == wanted and confidence) or called_trace:
                traces.append(FoundTrace(path, wanted, best.name == wanted and confidence >= SURE))
            else:
                others.append((path, f"is not a file for the reader {wanted}"))
        elif has_items and confidence < SURE and called_trace and may_have_items(head):
            traces.append(FoundTrace(path, JSON_ITEMS.name, False))
        elif other is not None:
            others.append((path, other))
        elif confidence and (reason := best.why_skipped(path)) is not None:
            others.append((path, reason))
        elif confidence:
            traces.append(FoundTrace(path, best.name, confidence >= SURE))
        elif called_trace:
            what = why_empty(path) if not head.strip(b" \t\r\n\0") else "does not begin like a trace"
            unusable.append((path, f"{printable(str(path))} {what}"))
        else:
            others.append((path, "is not a trace"))
    return Found(tuple(traces), tuple(unusable), tuple(others))


def _files(top: Path, own: Callable[[Path], bool]) -> Iterator[tuple[Path, str | None]]:
    """(regular file, None), sorted by name, and (folder, why it can't be listed)."""
    seen: set[tuple[int, int]] = set()
    folders = files = 0
    todo: list[tuple[Path, int]] = [(top, 0)]
    while todo:
        path, depth = todo.pop()
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # a dangling link, or deleted since it was listed
        except OSError as error:
            if error.errno != errno.ELOOP:
                yield path, f"can't read {printable(str(path))}: {error.strerror or error}"
            continue
        key = (status.st_dev, status.st_ino)
        if key in seen:
            continue
        seen.add(key)
        if not stat.S_ISDIR(status.st_mode):
            if stat.S_ISREG(status.st_mode):
                files += 1
                if files > MAX_FILES:
                    raise InputError(
                        f"{printable(str(top))} contains more than {MAX_FILES} files; specify a folder in it"
                    )
                yield path, None
            continue
        if own(path) or depth > MAX_DEPTH:
            continue
        folders += 1
        if folders > MAX_FOLDERS:
            raise InputError(f"{printable(str(top))} contains more than {MAX_FOLDERS} folders; specify one of them")
        try:
            with os.scandir(path) as entries:
                names = [Path(entry.path) for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            if path == top:
                raise InputError(f"can't read {printable(str(top))}: {error.strerror or error}") from error
            yield path, f"can't read {printable(str(path))}: {error.strerror or error}"
            continue
        todo.extend((name, depth + 1) for name in sorted(names, key=by_numbers, reverse=True))
