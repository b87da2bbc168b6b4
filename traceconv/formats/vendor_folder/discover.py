"""Find output folders of msprof and torch_npu below a path, and the files to read in each.

*_ascend_pt/ASCEND_PROFILER_OUTPUT/      torch_npu: trace_view.json and CSV files; PROF_* next to it is the same
                                         recording and is skipped
PROF_*/mindstudio_profiler_output/       msprof: msprof_*.json and CSV files; names end with the time of export
PROF_*/device_*/{timeline,summary}/      legacy msprof: names end with device, model and iteration
any folder with such files

Both also write databases: ascend_pytorch_profiler*.db instead of these files or with them, PROF_*/msprof_*.db. One is
read if there is no timeline; elsewhere than in folders of these names it is a trace of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from traceconv.base.errors import InputError
from traceconv.formats.common.folder_walk import walk

_TIMELINE = re.compile(r"(?:trace_view|msprof(?:_slice_\d+)?(?:_\d+)*)\.json(?:\.(?:gz|zst|xz))?", re.IGNORECASE)
_PART = re.compile(r"(?:task_time|hccl|step_trace)(?:_\d+)+\.json(?:\.(?:gz|zst|xz))?", re.IGNORECASE)
_FACTS = re.compile(r"(?:profiler_info(?:_\d+)?\.json|profiler_metadata\.json|info\.json(?:\.\d+)?)", re.IGNORECASE)
_DATABASE = re.compile(r"(?:ascend_(?:pytorch|mindspore)_profiler(?:_\d+)?|msprof_\d+)\.db", re.IGNORECASE)
_COMMUNICATION = re.compile(r"communication\.json", re.IGNORECASE)
_MATRIX = re.compile(r"communication_matrix\.json", re.IGNORECASE)
_OTHER = re.compile(r".+\.(?:csv|json|json\.(?:gz|zst|xz)|db|xlsx)", re.IGNORECASE)
_EXPORT_TIME = re.compile(r"_(\d{14})\.")
_SLICE = re.compile(r"_slice_(\d{1,9})(?=[_.])", re.IGNORECASE)
_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_UNKNOWN = "unknown kind of file"
_OLDER = "the folder contains a newer export of the same recording"


@dataclass(frozen=True, slots=True)
class VendorFolder:
    """One recording's output.

    path       the folder of the recording: PROF_*, *_ascend_pt, or that of the files
    timelines  files of events, to be read as one trace, or a database; may be empty
    tables     CSV files of known kinds
    facts      small JSON files that describe the recording
    left       (file, why it is not read)
    communication  torch_npu's figures of collectives, which complete tasks of the timeline
    """

    path: Path
    timelines: tuple[Path, ...]
    tables: tuple[Path, ...]
    facts: tuple[Path, ...]
    left: tuple[tuple[Path, str], ...]
    communication: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are read."""
        return (*self.timelines, *self.tables, *self.facts, *self.communication)

    @property
    def is_complete(self) -> bool:
        """Whether all files below the folder belong to this recording, including those that are not read."""
        return _has_own_folder(self.path)

    @property
    def unknown(self) -> tuple[Path, ...]:
        """Files next to those of the recording that need not belong to it."""
        return () if self.is_complete else tuple(file for file, why in self.left if why == _UNKNOWN)

    def name_of(self, file: Path) -> str:
        """Return the path of a file inside the recording, with '/'."""
        return file.relative_to(self.path).as_posix() if file.is_relative_to(self.path) else file.name


def find_vendor_folders(path: Path, kind_of: Callable[[str], str | None]) -> list[VendorFolder]:
    """Return the recordings at or below a folder, by name; none if `path` is not a folder.

    `kind_of` returns the kind of rows of a CSV file by its name: `nothing` for sums, None for an unknown name.
    """
    found: list[VendorFolder] = []

    def enter(folder: Path) -> bool:
        recording = _recording_in(folder, kind_of)
        if recording is not None:
            found.append(recording)
        return recording is None

    with suppress(InputError):  # of too many folders: the recordings found so far
        for _ in walk(path, lambda entry: os.path.isdir(entry) and not entry.is_symlink(), enter):
            pass
    return found


def _recording_in(folder: Path, kind_of: Callable[[str], str | None]) -> VendorFolder | None:
    files, folders = _listed(folder)
    output = next((one for one in folders if one.name == _OUTPUT), None)
    if output is not None:
        facts = (file for file in files if _FACTS.fullmatch(file.name))
        recording = _recording(folder, [*_listed(output)[0], *facts], kind_of)
        if recording is not None:
            return recording
    if folder.name.startswith("PROF_"):
        files = _inside_prof(files, folders)
    return _recording(folder, files, kind_of)


def _inside_prof(files: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    databases = [file for file in files if _DATABASE.fullmatch(file.name)]
    for one in folders:
        if one.name == "mindstudio_profiler_output":
            inside = _listed(one)[0]
            if inside:
                return inside + databases
    found = [file for file in files if _FACTS.fullmatch(file.name)] + databases
    for one in folders:
        if one.name == "host" or one.name.startswith("device_"):
            direct, below = _listed(one)
            found += [file for file in direct if _FACTS.fullmatch(file.name)]
            for kind in below:
                if kind.name in ("timeline", "summary"):
                    found += _listed(kind)[0]
    return found


def _recording(path: Path, files: Sequence[Path], kind_of: Callable[[str], str | None]) -> VendorFolder | None:
    timelines = [file for file in files if _TIMELINE.fullmatch(file.name)]
    of_torch = [file for file in timelines if file.name.casefold().startswith("trace_view.")]
    kinds = {file: kind_of(file.name) for file in files}
    tables = [file for file in files if kinds[file] is not None]
    has_records = any(kinds[file] not in (None, "nothing") for file in tables)
    databases = [file for file in files if _DATABASE.fullmatch(file.name)]
    of_ranks = [file for file in databases if not file.name.startswith("msprof_")]
    if not timelines and not has_records and (not databases or len(of_ranks) > 1 or not _has_own_folder(path)):
        return None
    left: list[tuple[Path, str]] = []
    if timelines:
        left += [(file, "the timeline and the tables, which are read, have the same recording") for file in databases]
    elif databases and len(of_ranks) <= 1:
        # That of torch_npu, which contains msprof's, or the last export.
        *earlier, newest = sorted(set(databases) - set(of_ranks)) + of_ranks
        left += [(file, _OLDER) for file in earlier]
        left += [(file, "the database, which is read, has the same records") for file in tables]
        timelines, tables = [newest], []
    parts = [file for file in files if _PART.fullmatch(file.name)]
    if of_torch:  # a superset of msprof's timeline
        parts += [file for file in timelines if file not in of_torch]
        timelines = of_torch
    if timelines:
        left += [(file, "the timeline contains the same events") for file in parts]
    else:
        timelines = parts
    older = _of_older_exports((*timelines, *tables))
    left += [(file, _OLDER) for file in sorted(older)]
    read = [file for file in (*timelines, *tables) if file not in older]
    facts = [file for file in files if _FACTS.fullmatch(file.name)]
    communication = [file for file in files if _COMMUNICATION.fullmatch(file.name)] if timelines else []
    if timelines:
        why = "sums of the timeline, which traceconv report links computes"
        left += [(file, why) for file in files if _MATRIX.fullmatch(file.name)]
    known = {*timelines, *tables, *facts, *communication, *(file for file, _ in left)}
    left += [(file, _UNKNOWN) for file in files if file not in known and _OTHER.fullmatch(file.name)]
    chosen = set(read)
    return VendorFolder(
        path,
        tuple(file for file in timelines if file in chosen),
        tuple(file for file in tables if file in chosen),
        tuple(facts),
        tuple(left),
        tuple(communication),
    )


def _has_own_folder(path: Path) -> bool:
    """Whether a folder contains nothing but one recording."""
    return path.name.startswith("PROF_") or os.path.isdir(path / _OUTPUT)


def slice_number(file: Path) -> int:
    """Return the number of a slice of a table; 0 for a complete table."""
    match = _SLICE.search(file.name)
    return int(match[1]) if match else 0


def _of_older_exports(files: Iterable[Path]) -> set[Path]:
    """Return the files that a later export repeats.

    Names contain the second of writing, which may differ within an export: a new export begins when a file, or a
    slice of one, is repeated.
    """
    by_second: dict[str, list[tuple[Path, str, str]]] = {}
    for file in files:
        if match := _EXPORT_TIME.search(file.name):
            kind, _, number = _EXPORT_TIME.sub(".", file.name).partition("_slice_")
            by_second.setdefault(match[1], []).append((file, kind.partition(".")[0], number))
    exports: list[dict[str, dict[str, Path]]] = []
    for _, written in sorted(by_second.items()):
        last = exports[-1] if exports else {}
        again = any(number in last[kind] or "" in (number, *last[kind]) for _, kind, number in written if kind in last)
        if again or not exports:
            exports.append({})
        for file, kind, number in written:
            exports[-1].setdefault(kind, {})[number] = file
    newest = {kind: slices for export in exports for kind, slices in export.items()}
    read = {file for slices in newest.values() for file in slices.values()}
    return {file for written in by_second.values() for file, _, _ in written} - read


def _listed(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the regular files and the folders in a folder, sorted by name; none if it can't be listed."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
            files = [Path(entry.path) for entry in found if entry.is_file()]
            folders = [Path(entry.path) for entry in found if entry.is_dir()]
    except OSError:
        return [], []
    return files, folders
