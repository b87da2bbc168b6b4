"""What an ingest is to read, found in the paths that were named: captures, output folders of vendors, trace files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from traceconv.base.errors import InputError, printable
from traceconv.formats.common.files import STDIN
from traceconv.formats.find_traces import find_traces
from traceconv.formats.npulog.discover import CaptureFolder, find_captures
from traceconv.formats.registry import choose_reader, in_captures
from traceconv.formats.vendor_folder.discover import VendorFolder, find_vendor_folders
from traceconv.normalize.vendor_csv.spec import spec
from traceconv.pipeline.result import Problem


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace file.

    top   the folder in which it was found; None: it was named itself
    sure  whether it is a trace for certain; else it is no loss when it is none
    """

    path: Path
    reader: str
    top: Path | None = None
    sure: bool = True


@dataclass(slots=True)
class Sources:
    """What was found.

    captures, folders  with the folder in which each was found; None: it was named itself
    unusable           what should have given a run
    others             files that are no traces, in folders that were named
    """

    captures: list[tuple[CaptureFolder, Path | None]] = field(default_factory=list)
    folders: list[tuple[VendorFolder, Path | None]] = field(default_factory=list)
    traces: list[TraceFile] = field(default_factory=list)
    unusable: list[Problem] = field(default_factory=list)
    others: list[Problem] = field(default_factory=list)


def find_sources(paths: Sequence[Path], reader: str | None, *, has_items: bool = False) -> Sources:
    """All that is to be read, in the order of `paths`, in a folder in the order of names; what is named twice, once.

    reader     the name of the reader for all of them; None: the one that knows the first bytes
    has_items  rules say where documents of JSON that no other reader knows have items

    Raises InputError for a path that does not exist, and when there is nothing to read at all; UsageError for a
    reader that there is not.
    """
    found = Sources()
    logs: list[tuple[Path, Path | None]] = []
    seen: set[str] = set()
    for path in paths:
        if path != STDIN and not os.path.lexists(path):
            raise InputError(f"{printable(str(path), 400)}: there is no such file or folder")
        if path != STDIN and os.path.isdir(path) and not in_captures(reader):
            _in_folder(path, reader, found, logs, seen, has_items)
            continue
        try:
            name = choose_reader(path, reader, has_items=has_items)
            if in_captures(name):
                find_captures([path])
        except InputError as error:
            found.unusable.append(Problem(path, str(error)))
            continue
        if in_captures(name):
            logs.append((path, None))
        elif path == STDIN or _is_new(path, seen):
            found.traces.append(TraceFile(path, name))
    _captures(logs, found)
    return found


def vendor_folders(path: Path) -> list[VendorFolder]:
    """The output folders of msprof and torch_npu at or below a path."""

    def kind_of(name: str) -> str | None:
        kind = spec().kind_of(name)
        return None if kind is None else kind.becomes

    return find_vendor_folders(path, kind_of)


def _in_folder(
    top: Path,
    reader: str | None,
    found: Sources,
    logs: list[tuple[Path, Path | None]],
    seen: set[str],
    has_items: bool,
) -> None:
    folders = vendor_folders(top) if reader is None else []
    captures: list[CaptureFolder] = []
    reason: InputError | None = None
    if reader is None:
        try:
            captures = find_captures([top])
        except InputError as error:
            reason = error
    own = {os.path.realpath(capture.path) for capture in captures}
    logs += [(capture.path, top) for capture in captures]
    folders = [folder for folder in folders if os.path.realpath(folder.path) not in own]
    found.folders += [(folder, None if folder.path == top else top) for folder in folders if _is_new(folder.path, seen)]
    whole = own | {os.path.realpath(folder.path) for folder in folders if _stands_for_all(folder)}
    files = {os.path.realpath(file) for folder in folders for file in (*folder.files, *(one for one, _ in folder.left))}
    try:
        traces = find_traces(top, lambda folder: os.path.realpath(folder) in whole, reader, has_items=has_items)
    except InputError as error:
        found.unusable.append(Problem(top, str(error)))
        return
    count = len(captures) + len(folders)
    for one in traces.traces:
        if os.path.realpath(one.path) not in files:
            count += 1
            if _is_new(one.path, seen):
                found.traces.append(TraceFile(one.path, one.reader, top, one.sure))
    unusable = [Problem(path, why) for path, why in traces.unusable if os.path.realpath(path) not in files]
    others = [Problem(path, why) for path, why in traces.others if os.path.realpath(path) not in files]
    found.unusable += unusable
    if count or unusable:
        found.others += others
    elif reason is None or others:
        shown = printable(str(top), 400)
        such = f", such as {printable(others[0].path.name, 60)}" if others else ""
        found.unusable.append(Problem(top, f"{shown}: no capture and no trace found in {len(others)} files{such}"))
    else:
        found.unusable.append(Problem(top, str(reason)))


def _stands_for_all(folder: VendorFolder) -> bool:
    """Whether all below the folder belongs to one recording: else only its files do."""
    return folder.path.name.startswith("PROF_") or os.path.isdir(folder.path / "ASCEND_PROFILER_OUTPUT")


def _captures(logs: Sequence[tuple[Path, Path | None]], found: Sources) -> None:
    """Logs become captures together, since several files may be of one."""
    tops = {os.path.realpath(path): top for path, top in reversed(logs)}
    for capture in find_captures([path for path, _ in logs]):
        top = tops.get(os.path.realpath(capture.path))
        found.captures.append((capture, None if top is None or capture.path == top else top))


def _is_new(path: Path, seen: set[str]) -> bool:
    key = os.path.realpath(path)
    fresh = key not in seen
    seen.add(key)
    return fresh
