"""Find what to ingest in the given paths: captures, vendors' output folders and trace files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traceconv.base.errors import InputError, printable
from traceconv.formats.ascend_raw.folder import find_raw_folders, is_job
from traceconv.formats.ascend_raw.format import FORMAT as ASCEND_RAW
from traceconv.formats.common.files import STDIN
from traceconv.formats.find_traces import NOT_A_TRACE, find_traces
from traceconv.formats.registry import check_reader, choose_reader, in_captures, parts_of
from traceconv.lake.folder import is_lake
from traceconv.pipeline.result import Problem

if TYPE_CHECKING:
    from traceconv.formats.npulog.discover import CaptureFolder
    from traceconv.formats.vendor_folder.discover import VendorFolder


class TraceFile(NamedTuple):
    """A trace file.

    top   the folder in which it was found; None: the user named the file
    sure  it is certainly a trace; if not, failing to read it is not a loss
    """

    path: Path
    reader: str
    top: Path | None = None
    sure: bool = True


@dataclass(slots=True)
class Sources:
    """Sources found in the given paths.

    lakes              of many runs

    captures, folders  each with the folder in which it was found; None: the user named it
    unusable           files and folders that should have given a run
    others             files in the named folders that are not traces
    """

    captures: list[tuple[CaptureFolder, Path | None]] = field(default_factory=list)
    folders: list[tuple[VendorFolder, Path | None]] = field(default_factory=list)
    traces: list[TraceFile] = field(default_factory=list)
    lakes: list[Path] = field(default_factory=list)
    unusable: list[Problem] = field(default_factory=list)
    others: list[Problem] = field(default_factory=list)


def find_sources(paths: Sequence[Path], reader: str | None, *, has_items: bool = False) -> Sources:
    """Return everything to read, in the order of `paths` and by name within a folder, without duplicates.

    reader     reader to use for all paths; None: chosen by each file's first bytes
    has_items  a rule file describes the items of JSON documents that no other reader recognises

    Raises InputError if a path does not exist, UsageError for an unknown reader.
    """
    if reader is not None:
        check_reader(reader)
    search = _Search(reader, has_items)
    for path in paths:
        search.add(path)
    if not search.logs:
        return search.found
    from traceconv.formats.npulog.discover import find_captures

    # Several log files may belong to one capture.
    tops = {os.path.realpath(path): top for path, top in reversed(search.logs)}
    for capture in find_captures([path for path, _ in search.logs]):
        top = tops.get(os.path.realpath(capture.path))
        search.found.captures.append((capture, None if capture.path == top else top))
    return search.found


def vendor_folders(path: Path) -> list[VendorFolder]:
    """Return the output folders of msprof and torch_npu at or below a path."""
    from traceconv.formats.vendor_folder.discover import find_vendor_folders
    from traceconv.normalize.vendor_csv.spec import spec

    def kind_of(name: str) -> str | None:
        kind = spec().kind_of(name)
        return None if kind is None else kind.becomes

    return find_vendor_folders(path, kind_of)


class _Search:
    def __init__(self, reader: str | None, has_items: bool) -> None:
        self.found = Sources()
        #: Captures and single log files, each with the folder in which it was found.
        self.logs: list[tuple[Path, Path | None]] = []
        self._reader = reader
        self._has_items = has_items
        self._seen: set[str] = set()

    def add(self, path: Path) -> None:
        if self._reader is None and is_lake(path):
            if self._is_new(path):
                self.found.lakes.append(path)
            return
        if path != STDIN and not os.path.lexists(path):
            raise InputError(f"{printable(str(path), 400)} does not exist")
        if path != STDIN and os.path.isdir(path) and not in_captures(self._reader):
            self._add_folder(path)
            return
        path = path if path == STDIN else parts_of(path)[0]
        try:
            reader = choose_reader(path, self._reader, has_items=self._has_items)
            if in_captures(reader):
                from traceconv.formats.npulog.discover import find_captures

                find_captures([path])
        except InputError as error:
            self.found.unusable.append(Problem(path, str(error)))
            return
        if in_captures(reader):
            self.logs.append((path, None))
        elif path == STDIN or self._is_new(path):
            self.found.traces.append(TraceFile(path, reader))

    def _add_folder(self, top: Path) -> None:
        found = self.found
        captures: list[CaptureFolder] = []
        reason: InputError | None = None
        if self._reader is None:
            from traceconv.formats.npulog.discover import find_captures

            try:
                captures = find_captures([top])
            except InputError as error:
                reason = error
        self.logs += [(capture.path, top) for capture in captures]
        complete = {os.path.realpath(capture.path) for capture in captures}
        folders = vendor_folders(top) if self._reader is None else []
        folders = [folder for folder in folders if os.path.realpath(folder.path) not in complete]
        found.folders += [
            (folder, None if folder.path == top else top) for folder in folders if self._is_new(folder.path)
        ]
        complete |= {os.path.realpath(folder.path) for folder in folders if folder.is_complete}
        raw = find_raw_folders(top) if self._reader in (None, ASCEND_RAW.name) else []
        raw = [one for one in raw if not any(os.path.realpath(part) in complete for part in (one, *one.parents))]
        complete |= {os.path.realpath(folder) for folder in raw if not is_job(folder)}
        found.traces += [
            TraceFile(folder, ASCEND_RAW.name, None if folder == top else top) for folder in raw if self._is_new(folder)
        ]
        files = {
            os.path.realpath(file) for folder in folders for file in (*folder.files, *(path for path, _ in folder.left))
        }
        files |= {os.path.realpath(file) for folder in raw for file in parts_of(folder)}
        try:
            listed = find_traces(
                top, lambda folder: os.path.realpath(folder) in complete, self._reader, has_items=self._has_items
            )
        except InputError as error:
            found.unusable.append(Problem(top, str(error)))
            return
        traces = [trace for trace in listed.traces if not files or os.path.realpath(trace.path) not in files]
        unusable = [Problem(path, why) for path, why in listed.unusable if os.path.realpath(path) not in files]
        others = [Problem(path, why) for path, why in listed.others if os.path.realpath(path) not in files]
        unknown = {os.path.realpath(file) for folder in folders for file in folder.unknown}
        others += [
            Problem(trace.path, "is a trace, but not a known part of its folder's recording; name it to ingest it")
            for trace in listed.traces
            if unknown and trace.sure and os.path.realpath(trace.path) in unknown
        ]
        leads = [parts_of(trace.path) for trace in traces]
        read = {path for one in leads for path in one}
        others = [one for one in others if one.path not in read]
        found.traces += [
            TraceFile(lead[0], trace.reader, top, trace.sure)
            for trace, lead in zip(traces, leads, strict=True)
            if self._is_new(lead[0])
        ]
        found.unusable += unusable
        if captures or folders or raw or traces or unusable:
            found.others += others
        else:
            message = _nothing_found(top, others) if reason is None or others else str(reason)
            found.unusable.append(Problem(top, message))

    def _is_new(self, path: Path) -> bool:
        key = os.path.realpath(path)
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new


def _nothing_found(top: Path, others: Sequence[Problem]) -> str:
    counted = f"{len(others)} file{'' if len(others) == 1 else 's'}"
    message = f"{printable(str(top), 400)}: no capture and no trace found in {counted}"
    if not others:
        return message
    example = next((one for one in others if one.message != NOT_A_TRACE), others[0])
    message += f", such as {printable(example.path.name, 60)}"
    return message if example.message == NOT_A_TRACE else f"{message}, which {example.message}"
