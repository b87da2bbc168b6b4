"""Find trace files below a folder by their first bytes.

Hidden files and folders are skipped, and so are those of recordings that are read as one. Links are followed; each file
and folder is read once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from traceconv.base.errors import InputError, printable
from traceconv.formats.common.files import head_of, why_empty
from traceconv.formats.common.folder_walk import walk
from traceconv.formats.json_items.format import FORMAT as JSON_ITEMS
from traceconv.formats.json_items.format import may_have_items
from traceconv.formats.registry import SURE, TRACE_NAME, best_match

#: Maximum number of files read below a given folder.
MAX_FILES = 200_000

#: The trace of compilations in an output folder of tlparse.
_TLPARSE_TRACE = "chromium_events.json"

#: Why a file without a known content or name is not read.
NOT_A_TRACE = "is not a trace"


class FoundTrace(NamedTuple):
    """A file that may be a trace. `sure`: it is one by its first bytes; otherwise it must be read to find out."""

    path: Path
    reader: str
    sure: bool


class Found(NamedTuple):
    """The content of a folder.

    traces    sorted by name, with numbers in names by value
    unusable  (file or folder, why): files named like traces that can't be read, folders that can't be listed
    others    (file, why it is not ingested)
    """

    traces: tuple[FoundTrace, ...]
    unusable: tuple[tuple[Path, str], ...]
    others: tuple[tuple[Path, str], ...]


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
    unlike: list[tuple[Path, str]] = []  # named like traces, without the start of one
    files = 0
    for path, problem in walk(top, lambda entry: not entry.name.startswith("."), lambda folder: not own(folder)):
        if problem is not None:
            unusable.append((path, problem))
            continue
        files += 1
        if files > MAX_FILES:
            raise InputError(f"{printable(str(top))} contains more than {MAX_FILES} files; specify a folder in it")
        try:
            head = head_of(path)
        except InputError as error:
            unusable.append((path, str(error)))
            continue
        best, confidence = best_match(head, path)
        other = None
        if confidence < SURE:
            from traceconv.formats.unsupported import what_it_is  # compiles patterns that most files don't need

            other = what_it_is(head, path.name)
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
            unlike.append((path, f"{printable(str(path))} {what}"))
        else:
            others.append((path, NOT_A_TRACE))
    extracted = {trace.path.parent for trace in traces if trace.path.name == _TLPARSE_TRACE}
    for path, why in unlike:
        if extracted.isdisjoint(path.parents):
            unusable.append((path, why))
        else:
            others.append((path, "is an artifact of tlparse, not a trace"))
    return Found(tuple(traces), tuple(unusable), tuple(others))
