"""Finds captures in the paths that a user names: folders of logs, folders that hold such folders, single files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from traceconv.base.errors import InputError, printable
from traceconv.formats.npulog.manifest import Manifest, ManifestProblem, read_manifest
from traceconv.wire.frames import BLOCK_MAGIC, FILE_MAGIC
from traceconv.wire.log_writer import MANIFEST

#: How deep below a named folder captures are looked for.
MAX_DEPTH = 8
#: How many folders are looked at below a named folder, so that a slip such as `/` ends with a sentence.
MAX_FOLDERS = 50_000

_SNIFF_BYTES = 2 << 20  # a full block and more: a file whose header is lost still shows the start of a block
_EDGE_BYTES = 4096
_OWNER = re.compile(r"host|device_([0-9]{1,10})")
_LOG_NAME = re.compile(r"([a-z][a-z0-9_]*)\.slice_([0-9]{1,18})\.bin")
_SOUGHT = "host/data/*.bin, device_<n>/data/*.bin or a manifest.json of format npulog"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file of a capture.

    relative_path  inside the capture, with '/'
    record         record type by the file's name: a hint only, the blocks say what they hold
    device_id      device by the folder's name; None for the host's files
    slice_index    number of the slice by the file's name; 0 when it has none
    """

    path: Path
    relative_path: str
    record: str
    device_id: int | None
    slice_index: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CaptureFolder:
    """A capture: its files by (device, host first; record; slice), and what its manifest says of them.

    manifest          None when there is none that can be used
    manifest_problem  why: begins with missing, unreadable or invalid; None when the manifest is sound,
                      and for a single file that lies outside of a capture
    missing           paths that the manifest names and that are not there
    unreadable        folders of the capture that could not be listed
    """

    path: Path
    manifest: Manifest | None
    manifest_problem: str | None
    files: tuple[LogFile, ...]
    missing: tuple[str, ...]
    unreadable: tuple[str, ...] = ()


@dataclass(slots=True)
class _Wanted:
    """What was asked for of one capture: all of it (`files` None), or single files."""

    folder: Path
    files: dict[str, Path] | None = None


def find_captures(paths: Sequence[Path]) -> list[CaptureFolder]:
    """The captures that `paths` name, in the order of `paths`, below a folder in the order of their names.

    A path may be a capture, a folder that holds some at any depth up to `MAX_DEPTH`, or a single log file:
    that is a capture of that file alone, and several files of one capture are one capture. What is named
    twice comes once. Raises InputError for a path that does not exist, can't be read, or holds no capture.
    """
    wanted: dict[str, _Wanted] = {}
    for path in paths:
        for folder, file in _search(path):
            key = os.path.realpath(folder)
            known = wanted.get(key)
            if file is None:
                wanted[key] = _Wanted(known.folder if known else folder)
            elif known is None:
                wanted[key] = _Wanted(folder, {os.path.realpath(file): file})
            elif known.files is not None:
                known.files.setdefault(os.path.realpath(file), file)
    return [_whole(one.folder) if one.files is None else _part(one) for one in wanted.values()]


def fingerprint(capture: CaptureFolder) -> str:
    """A digest by which the same capture is known again, wherever it lies and whatever it is called.

    Covers each file's relative path, its size and the first and last 4 KiB: the file header has the writer's
    id, and block headers have the CRC-32 of what they hold; and whether there is a manifest. Files that can't be
    read count by path and size. Bytes in the middle of a file are not looked at: a copy in which they were mended
    is known as the same capture.
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
    """(capture, None) for each whole capture in `path`, or (its capture, file) when it is a file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{_shown(path)}: there is no such file or folder") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        return [(folder, None) for folder in _captures_below(path)]
    if not stat.S_ISREG(mode):
        hint = "; a trace may come by standard input: … | traceconv ingest -" if stat.S_ISFIFO(mode) else ""
        raise InputError(f"{_shown(path)}: is neither a file nor a folder{hint}")
    if path.name == MANIFEST and _is_capture(path.absolute().parent):
        return [(path.parent, None)]
    _check_log(path)
    return [(_capture_of(path), path)]


def _captures_below(top: Path) -> list[Path]:
    found: list[Path] = []
    unreadable: list[Path] = []
    seen: set[tuple[int, int]] = set()
    # A stack of (folder, depth), last first, so that captures come in the order of their names.
    todo = [(top, 0)]
    while todo:
        folder, depth = todo.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue  # a symbolic link led back
            seen.add((status.st_dev, status.st_ino))
            entries = sorted((entry for entry in folder.iterdir() if entry.is_dir()), key=_by_name, reverse=True)
        except OSError as error:
            if folder == top:
                raise _unreadable(top, error) from error
            unreadable.append(folder)
            continue
        if _is_capture(folder):
            found.append(folder)
        elif depth < MAX_DEPTH:
            todo.extend((entry, depth + 1) for entry in entries)
        if len(seen) > MAX_FOLDERS:
            raise InputError(f"{_shown(top)}: holds more than {MAX_FOLDERS} folders; name one nearer to the capture")
    if not found:
        raise InputError(_nothing_found(top, unreadable))
    return found


def _nothing_found(top: Path, unreadable: list[Path]) -> str:
    if unreadable:
        rest = f"; some folders can't be read, such as {_shown(unreadable[0])}"
        return f"{_shown(top)}: no capture found (looked for {_SOUGHT}){rest}"
    if not any(top.iterdir()):
        return f"{_shown(top)}: the folder is empty; name a capture (PROF_…) or a folder that holds some"
    return f"{_shown(top)}: no capture found (looked for {_SOUGHT})"


def _is_capture(folder: Path) -> bool:
    """Whether `folder` holds logs where a capture has them, or a manifest that says so."""
    if any(files for _, files, _ in _log_folders(folder)):
        return True
    try:
        read_manifest(folder)
    except ManifestProblem:
        return False
    return True


def _whole(folder: Path) -> CaptureFolder:
    files: list[LogFile] = []
    unreadable: list[str] = []
    for data, paths, problem in _log_folders(folder):
        if problem:
            unreadable.append(data)
        for path in paths:
            _add_file(files, path, f"{data}/{path.name}")
    files.sort(key=_by_stream)
    there = {file.relative_path for file in files}
    try:
        manifest = read_manifest(folder)
    except ManifestProblem as error:
        return CaptureFolder(folder, None, str(error), tuple(files), (), tuple(unreadable))
    missing = tuple(sorted(file.path for file in manifest.files if file.path not in there))
    return CaptureFolder(folder, manifest, None, tuple(files), missing, tuple(unreadable))


def _part(wanted: _Wanted) -> CaptureFolder:
    files: list[LogFile] = []
    in_capture = False
    for path in (wanted.files or {}).values():
        place = _place_in_capture(path)
        in_capture = in_capture or place is not None
        _add_file(files, path, path.name if place is None else place)
    files.sort(key=_by_stream)
    there = {file.relative_path for file in files}
    manifest, problem = None, None
    if in_capture:
        try:
            whole = read_manifest(wanted.folder)
            named = tuple(file for file in whole.files if file.path in there)
            manifest = Manifest(whole.writer_id, whole.version, named, whole.extra)
        except ManifestProblem as error:
            problem = str(error)
    return CaptureFolder(wanted.folder, manifest, problem, tuple(files), ())


def _log_folders(folder: Path) -> list[tuple[str, list[Path], bool]]:
    """(relative path, its log files, whether it can't be listed) for each data folder of a capture."""
    data_folders: list[tuple[str, list[Path], bool]] = []
    try:
        owners = sorted((entry for entry in folder.iterdir() if _OWNER.fullmatch(entry.name)), key=_by_name)
    except OSError:
        return [(".", [], True)]
    for owner in owners:
        relative = f"{owner.name}/data"
        try:
            if (owner / "data").is_dir():
                files = [path for path in (owner / "data").iterdir() if path.suffix == ".bin" and path.is_file()]
                data_folders.append((relative, sorted(files, key=_by_name), False))
        except OSError:
            data_folders.append((relative, [], True))
    return data_folders


def _add_file(files: list[LogFile], path: Path, relative_path: str) -> None:
    try:
        size_bytes = path.stat().st_size
    except OSError:
        return  # gone since it was listed; the manifest, if any, will show it as missing
    name = _LOG_NAME.fullmatch(path.name)
    record, slice_index = (name[1], int(name[2])) if name else (path.stem, 0)
    files.append(LogFile(path, relative_path, record, owner_of(relative_path), slice_index, size_bytes))


def owner_of(relative_path: str) -> int | None:
    """The device in whose folder a file of a capture lies; None: the host's."""
    owner = _OWNER.fullmatch(relative_path.split("/")[0])
    return int(owner[1]) if owner and owner[1] else None


def _place_in_capture(path: Path) -> str | None:
    """The relative path of a log file in its capture, by the names of the folders above; None outside of one."""
    place = path.absolute().parts[-3:]
    fits = len(place) == 3 and place[1] == "data" and _OWNER.fullmatch(place[0])
    return "/".join(place) if fits else None


def _capture_of(path: Path) -> Path:
    """The folder of the capture that a log file belongs to; its own folder when it lies outside of one."""
    return path.parent if _place_in_capture(path) is None else path.absolute().parent.parent.parent


def _check_log(path: Path) -> None:
    """Raises InputError when a file that was named by itself holds nothing of a log."""
    try:
        with path.open("rb") as file:
            head = file.read(_SNIFF_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not head:
        raise InputError(f"{_shown(path)}: the file is empty")
    if not head.startswith(FILE_MAGIC) and BLOCK_MAGIC not in head:
        raise InputError(f"{_shown(path)}: is no log of the NPU runtime; name a capture (PROF_…) or a .bin file of one")


def _by_stream(file: LogFile) -> tuple[int, str, int, str]:
    return (-1 if file.device_id is None else file.device_id, file.record, file.slice_index, file.relative_path)


def _by_name(path: Path) -> str:
    return path.name


def _shown(path: Path) -> str:
    return printable(str(path), 400)


def _unreadable(path: Path, error: OSError | ValueError) -> InputError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return InputError(f"{_shown(path)}: can't be read: {reason}")
