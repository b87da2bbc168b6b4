"""Find folders with raw data, and the streams and descriptions in each.

PROF_*/host/data/             records of the host, with the prefix `aging.` or `unaging.`
PROF_*/device_N/data/         records of a device; names contain its number
PROF_*/{host,device_N}/       info.json, sample.json, start_info, end_info, host_start.log, dev_start.log, which may end
                              with the number of the device

FRAMEWORK/torch.*, profiler_info*.json  next to PROF_*: what torch_npu recorded

A job is a recording of 2020, as with MindSpore 1: X.N.slice_K of device N in a folder JOB*, or in `data` in it.

A stream is cut into slices X.slice_K anywhere, also inside a record. Next to each is X.slice_K.done with its size.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from traceconv.base.errors import InputError
from traceconv.formats.common.folder_walk import walk

_PROF = re.compile(r"PROF_.+")
_DEVICE = re.compile(r"device_(\d{1,5})")
_OF_JOB = re.compile(r"(?:hwts\.log\.data\.45|training_trace\.46)\.dev\.profiler_default_tag\.\d{1,5}\.slice_\d{1,9}")
_JOB_SLICE = re.compile(
    r"(?P<name>.+?)(?:\.dev\.profiler_default_tag)?\.(?P<device>\d{1,5})\.slice_(?P<number>\d{1,9})"
)
_SLICE = re.compile(r"(?:(?P<kind>aging|unaging)\.)?(?P<name>.+)\.slice_(?P<number>\d{1,9})")
_TORCH, _ABOUT = re.compile(r"torch\."), re.compile(r"profiler_info(?:_\d+)?\.json")
_DESCRIPTION = re.compile(
    r"(?P<name>info\.json|sample\.json|start_info|end_info|host_start\.log|dev_start\.log)(?:\.\d{1,5})?"
)


@dataclass(frozen=True, slots=True)
class Stream:
    """The slices of one stream.

    name      without the prefix, the number of the device and that of the slice
    is_aging  the oldest slices may have been deleted, when the storage limit was reached: all but `unaging`
    """

    name: str
    is_aging: bool
    files: tuple[Path, ...]


@dataclass(slots=True)
class Side:
    """The host, or a device.

    descriptions  name without the number of the device → file
    """

    device: int | None
    descriptions: dict[str, Path] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RawFolder:
    """A recording: its host, which may have recorded nothing, and its devices by number.

    framework  files that torch_npu wrote next to it
    about      its profiler_info_RANK.json; None if there is none
    is_job     it is a job
    """

    path: Path
    host: Side
    devices: tuple[Side, ...]
    framework: tuple[Path, ...] = ()
    about: Path | None = None
    is_job: bool = False

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.host, *self.devices)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are read, by name."""
        found = [file for side in self.sides for stream in side.streams for file in stream.files]
        found += [file for side in self.sides for file in side.descriptions.values()]
        return tuple(sorted([*found, *self.framework, *((self.about,) if self.about else ())]))


def find_raw_folders(top: Path) -> list[Path]:
    """Return the folders of recordings at or below a folder, by name; none if `top` is not a folder."""
    found: list[Path] = []

    def enter(folder: Path) -> bool:
        named = folder if folder.name else folder.absolute()  # the name identifies it
        if named.name == "data" and named.parent in found:
            return False
        is_raw = is_raw_folder(named)
        if is_raw:
            found.append(named)
        return not is_raw or is_job(named)

    with suppress(InputError):  # of too many folders: those found so far
        for _ in walk(top, lambda entry: os.path.isdir(entry) and not entry.is_symlink(), enter):
            pass
    return found


def is_raw_folder(folder: Path) -> bool:
    """Whether a folder has the name of a recording and contains slices, or is a job."""
    if not _PROF.fullmatch(folder.name):
        return is_job(folder)
    sides = (one for one in _folders_in(folder) if one == "host" or _DEVICE.fullmatch(one))
    return any(_SLICE.fullmatch(name) for side in sides for name in _files_in(folder / side / "data"))


def is_job(folder: Path) -> bool:
    """Whether a folder is a job. It may contain other files and recordings, too."""
    return _job_data(folder) is not None


def _job_data(folder: Path) -> Path | None:
    """Return the folder with the slices of a job; None if it is none."""
    for data in () if _PROF.fullmatch(folder.name) else (folder, folder / "data"):
        with suppress(OSError), os.scandir(data) as entries:
            if any(_OF_JOB.fullmatch(entry.name) and entry.is_file() for entry in entries):
                return data
    return None


def raw_folder(folder: Path) -> RawFolder:
    """Return what a recording consists of."""
    if (data := _job_data(folder)) is not None:
        return _job(folder, data)
    host, devices = Side(None), list[Side]()
    for name in _folders_in(folder):
        if name == "host":
            host = _side(folder / name, None)
        elif match := _DEVICE.fullmatch(name):
            devices.append(_side(folder / name, int(match[1])))
    devices.sort(key=lambda side: side.device or 0)
    around = folder.absolute().parent
    recordings = [name for name in _folders_in(around) if _PROF.fullmatch(name)]
    # Files of the framework belong to the only recording next to them, or the first one.
    if recordings[:1] != [folder.name]:
        return RawFolder(folder, host, tuple(devices))
    inside = around / "FRAMEWORK"
    framework = tuple(inside / name for name in _files_in(inside) if _TORCH.match(name))
    about = next((around / name for name in _files_in(around) if _ABOUT.fullmatch(name)), None)
    return RawFolder(folder, host, tuple(devices), framework, about)


def _side(folder: Path, device: int | None) -> Side:
    side = Side(device)
    for name in _files_in(folder):
        if match := _DESCRIPTION.fullmatch(name):
            side.descriptions[match["name"]] = folder / name
    slices: dict[tuple[str, bool], list[tuple[int, Path]]] = {}
    for name in _files_in(folder / "data"):
        if match := _SLICE.fullmatch(name):
            stream = match["name"] if device is None else match["name"].removesuffix(f".{device}")
            key = (stream, match["kind"] != "unaging")
            slices.setdefault(key, []).append((int(match["number"]), folder / "data" / name))
    # Slice 10 follows slice 9; what never ages comes first.
    for (stream, is_aging), files in sorted(slices.items()):
        side.streams.append(Stream(stream, is_aging, tuple(file for _, file in sorted(files))))
    return side


def _job(folder: Path, data: Path) -> RawFolder:
    slices: dict[tuple[int, str], list[tuple[int, Path]]] = {}
    for name in _files_in(data):
        if match := _JOB_SLICE.fullmatch(name):
            key = (int(match["device"]), match["name"])
            slices.setdefault(key, []).append((int(match["number"]), data / name))
    devices = {device: Side(device) for device, _ in sorted(slices)}
    for (device, stream), files in sorted(slices.items()):
        devices[device].streams.append(Stream(stream, True, tuple(file for _, file in sorted(files))))
    return RawFolder(folder, Side(None), tuple(devices.values()), is_job=True)


def gaps(stream: Stream) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the first and last slice of each gap; before the first one only if nothing ages."""
    numbers = [number_of(file) for file in stream.files]
    for before, after in pairwise(numbers if stream.is_aging else [-1, *numbers]):
        if after > before + 1:
            yield before + 1, after - 1


def number_of(file: Path) -> int:
    """Return the number of a slice."""
    match = _SLICE.fullmatch(file.name)
    return int(match["number"]) if match else 0


def _files_in(folder: Path) -> list[str]:
    """Return the names of the regular files in a folder, sorted: reading a pipe or a device would not end."""
    return _names_in(folder, os.path.isfile)


def _folders_in(folder: Path) -> list[str]:
    return _names_in(folder, os.path.isdir)


def _names_in(folder: Path, is_wanted: Callable[[Path], bool]) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if is_wanted(path))
    except OSError:
        return []
