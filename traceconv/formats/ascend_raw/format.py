"""The format of the folders with raw data of Ascend NPUs."""

from __future__ import annotations

import os
from pathlib import Path

from traceconv.formats.format import Format


def _parts(path: Path) -> tuple[Path, ...]:
    if not os.path.isdir(path):
        return (path,)
    from traceconv.formats.ascend_raw.folder import is_raw_folder, raw_folder  # most paths are files

    return raw_folder(path).files if is_raw_folder(path) else (path,)


FORMAT = Format(
    "ascend_raw",
    "raw data of Ascend NPUs (PROF_*, JOB*)",
    lambda head: 0,  # a folder
    "traceconv.formats.ascend_raw.reader:AscendRawReader",
    "traceconv.formats.ascend_raw.reader:locate",
    event_times="ticks of the device or the host, or ns: converted by host_start.log, dev_start.log and start_info; "
    "of JOB*, 10 ns per tick",
    parts=_parts,
)
