"""Find captures in the given paths: capture folders, folders that contain some, and single log files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traceconv.base.errors import InputError, printable, reason_of
from traceconv.formats.common.folder_walk import walk
from traceconv.formats.npulog.manifest import Manifest, ManifestProblem, read_manifest
from traceconv.wire.log_writer import MANIFEST
from traceconv.wire.magic import BLOCK_MAGIC, FILE_MAGIC

_SNIFF_BYTES = 2 << 20  # a full block and more: a file whose header is lost still shows the start of a block
_EDGE_BYTES = 4096
_OWNER = re.compile(r"host|device_([0-9]{1,10})")
_LOG_NAME = re.compile(r"([a-z][a-z0-9_]*)\.slice_([0-9]{1,18})\.bin")
_SOUGHT = "host/data/*.bin, device_<n>/data/*.bin or a manifest.json of format npulog"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file of a capture.

    relative_path  inside the capture, with '/'
    record         record type by the file's name: a hint only; the blocks contain their type
    device_id      device by the folder's name; None for the host's files
    slice_index    number of the slice by the file's name; 0 if it has none
    """

    path: Path
    relative_path: str
    record: str
    device_id: int | None
    slice_index: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CaptureFolder:
    """A capture: its files by (device, host first; record; slice), and its manifest.

    manifest          None if it can't be used
    manifest_problem  why: begins with missing, unreadable or invalid; None if the manifest is valid, and for a single
                      file outside a capture
    missing           paths in the manifest that don't exist
    unreadable        folders of the capture that can't be listed
    """

    path: Path
    manifest: Manifest | None
    manifest_problem: str | None
    files: tuple[LogFile, ...]
    missing: tuple[str, ...]
    unreadable: tuple[str, ...] = ()


def find_captures(paths: Sequence[Path]) -> list[CaptureFolder]:
    """The captures at or below `paths`, each once, in the order of `paths`; below a folder by name, numbers by value.

    A path may be a capture, a folder that contains some not too deep below, or a log file. Log files of one
    capture are one capture of only those files. Raises InputError for a path that doesn't exist, can't be read, or
    contains no capture.
    """
    folders: dict[str, Path] = {}
    #: The files that were named in a capture; None: all of it.
    named: dict[str, dict[str, Path] | None] = {}
    for path in paths:
        for folder, file in _search(path):
            key = os.path.realpath(folder)
            folders.setdefault(key, folder)
            files = named.setdefault(key, {})
            if file is None:
                named[key] = None
            elif files is not None:
                files.setdefault(os.path.realpath(file), file)
    return [_capture(folder, named[key]) for key, folder in folders.items()]


def fingerprint(capture: CaptureFolder) -> str:
    """A digest that identifies a capture, wherever it is and whatever its name.

    Covers each file's relative path, its size and the first and last 4 KiB, which contain the writer's id and the
    CRC-32 of blocks, and whether there is a manifest. Files that can't be read count by path and size. A copy with
    changes in the middle of a file is the same capture.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(b"whole" if capture.manifest is not None else b"cut off")
    for file in capture.files:
        name = file.relative_path.encode("utf-8", "surrogateescape")
        digest.update(len(name).to_bytes(8, "little") + name + file.size_bytes.to_bytes(8, "little"))
        try:
            with file.path.open("rb") as stream:
                digest.update(stream.read(_EDGE_BYTES))
                stream.seek(max(0, file.size_bytes - _EDGE_BYTES))
                digest.update(stream.read(_EDGE_BYTES))
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()


def _search(path: Path) -> Iterable[tuple[Path, Path | None]]:
    """(capture, None) for each capture in `path`, or (its capture, file) if it is a file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{_shown(path)} does not exist") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        return [(folder, None) for folder in _captures_below(path)]
    if not stat.S_ISREG(mode):
        hint = "; pipe a trace through standard input: … | traceconv ingest -" if stat.S_ISFIFO(mode) else ""
        raise InputError(f"{_shown(path)} is neither a file nor a folder{hint}")
    if path.name == MANIFEST and _is_capture(path.absolute().parent):
        return [(path.parent, None)]
    _check_log(path)
    return [(_capture_of(path), path)]


def _captures_below(top: Path) -> list[Path]:
    found: list[Path] = []

    def enter(folder: Path) -> bool:
        if _is_capture(folder):
            found.append(folder)
            return False
        return True

    unreadable = [folder for folder, _ in walk(top, os.path.isdir, enter)]
    if not found:
        raise InputError(_nothing_found(top, unreadable))
    return found


def _nothing_found(top: Path, unreadable: list[Path]) -> str:
    if unreadable:
        rest = f"; some folders can't be read, such as {_shown(unreadable[0])}"
        return f"{_shown(top)}: no capture found (looked for {_SOUGHT}){rest}"
    if not any(top.iterdir()):
        return f"{_shown(top)} is empty; specify a capture (PROF_…), a trace, or a folder that contains some"
    return f"{_shown(top)}: no capture found (looked for {_SOUGHT})"


def _is_capture(folder: Path) -> bool:
    """Whether `folder` contains logs where a capture has them, or a manifest."""
    if any(files for _, files in _log_folders(folder)):
        return True
    try:
        read_manifest(folder)
    except ManifestProblem:
        return False
    return True


def _capture(folder: Path, named: Mapping[str, Path] | None) -> CaptureFolder:
    """The capture in a folder: all of it, or only the named files."""
    listed = _log_folders(folder) if named is None else []
    places: list[tuple[Path, str | None]] = [
        (path, f"{data}/{path.name}") for data, paths in listed for path in paths or ()
    ]
    places += [(path, _place_in_capture(path)) for path in (named or {}).values()]
    files = sorted((file for path, place in places if (file := _log_file(path, place)) is not None), key=_by_stream)
    relative_paths = {file.relative_path for file in files}
    manifest, problem, missing = None, None, []
    if named is None or any(place is not None for _, place in places):
        try:
            manifest = read_manifest(folder)
        except ManifestProblem as error:
            problem = str(error)
    if manifest is not None and named is None:
        missing = sorted({file.path for file in manifest.files} - relative_paths)
    elif manifest is not None:
        manifest = replace(manifest, files=tuple(file for file in manifest.files if file.path in relative_paths))
    unreadable = tuple(data for data, paths in listed if paths is None)
    return CaptureFolder(folder, manifest, problem, tuple(files), tuple(missing), unreadable)


def _log_folders(folder: Path) -> list[tuple[str, list[Path] | None]]:
    """(relative path, its log files or None if it can't be listed) of each data folder of a capture."""
    found: list[tuple[str, list[Path] | None]] = []
    try:
        owners = sorted((entry for entry in folder.iterdir() if _OWNER.fullmatch(entry.name)), key=_by_name)
    except OSError:
        return [(".", None)]
    for owner in owners:
        data = owner / "data"
        try:
            if data.is_dir():
                files = [path for path in data.iterdir() if path.suffix == ".bin" and path.is_file()]
                found.append((f"{owner.name}/data", sorted(files, key=_by_name)))
        except OSError:
            found.append((f"{owner.name}/data", None))
    return found


def _log_file(path: Path, relative_path: str | None) -> LogFile | None:
    """A log file; None if it was deleted since it was listed, which the manifest will show."""
    try:
        size_bytes = path.stat().st_size
    except OSError:
        return None
    relative_path = relative_path or path.name
    name = _LOG_NAME.fullmatch(path.name)
    record, slice_index = (name[1], int(name[2])) if name else (path.stem, 0)
    return LogFile(path, relative_path, record, owner_of(relative_path), slice_index, size_bytes)


def owner_of(relative_path: str) -> int | None:
    """The device of a file by its folder in the capture; None: the host."""
    owner = _OWNER.fullmatch(relative_path.split("/")[0])
    return int(owner[1]) if owner and owner[1] else None


def _place_in_capture(path: Path) -> str | None:
    """The relative path of a log file in its capture, by the names of its parent folders; None outside a capture."""
    place = path.absolute().parts[-3:]
    fits = len(place) == 3 and place[1] == "data" and _OWNER.fullmatch(place[0])
    return "/".join(place) if fits else None


def _capture_of(path: Path) -> Path:
    """The capture folder of a log file; outside a capture, its parent folder."""
    return path.parent if _place_in_capture(path) is None else path.absolute().parent.parent.parent


def _check_log(path: Path) -> None:
    """Raise InputError if a file is not a log."""
    try:
        with path.open("rb") as file:
            head = file.read(_SNIFF_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not head:
        raise InputError(f"{_shown(path)} is empty")
    if not head.startswith(FILE_MAGIC) and BLOCK_MAGIC not in head:
        raise InputError(f"{_shown(path)} is not a raw log; specify a capture (PROF_…) or one of its .bin files")


def _by_stream(file: LogFile) -> tuple[int, str, int, str]:
    return (-1 if file.device_id is None else file.device_id, file.record, file.slice_index, file.relative_path)


def _by_name(path: Path) -> str:
    return path.name


def _shown(path: Path) -> str:
    return printable(str(path), 400)


def _unreadable(path: Path, error: OSError | ValueError) -> InputError:
    return InputError(f"can't read {_shown(path)}: {reason_of(error)}")
