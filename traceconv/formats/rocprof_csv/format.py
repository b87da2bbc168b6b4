"""The format of rocprofv3's tables, and which files of a folder belong to one recording."""

from __future__ import annotations

import os
import re
from pathlib import Path

from traceconv.formats.format import Format

#: Ends of the names of a process's tables, in the order in which they are read: counters have the dispatches that they
#: were measured in.
TABLES = (
    "counter_collection", "kernel_trace", "memory_copy_trace", "hip_api_trace", "hsa_api_trace", "rccl_api_trace",
    "marker_api_trace", "rocdecode_api_trace", "rocjpeg_api_trace", "memory_allocation_trace", "scratch_memory_trace",
)  # fmt: skip
AGENTS = "agent_info"
_NAME = re.compile(rf"(?P<prefix>.*?)(?:{'|'.join((*TABLES, AGENTS))})(?P<end>\.csv(?:\.(?:gz|zst|xz))?)", re.DOTALL)
_HEADER = re.compile(
    rb'(?:\xef\xbb\xbf)?(?:"?Guid"?,)?"?(?:Kind"?,"?(?:Agent_Id|Direction|Operation|Stream_Id)|Domain"?,"?Function|'
    rb'Correlation_Id"?,"?Dispatch_Id)"?,[^\r\n]*"?(?:Start_Timestamp|Counter_Value)\b'
)


def tables(path: Path) -> tuple[Path, ...]:
    """Return the tables with the name of one, in the order in which they are read. Other files are alone."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return (path,)
    named = (path.with_name(f"{found['prefix']}{kind}{found['end']}") for kind in TABLES)
    return tuple(one for one in named if one == path or os.path.isfile(one))


def parts(path: Path) -> tuple[Path, ...]:
    """Return the files of a recording, to one of which a path leads: its tables, kernels first, and processors."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return (path,)
    agents = path.with_name(f"{found['prefix']}{AGENTS}{found['end']}")
    read = sorted(tables(path), key=lambda one: "_kernel_trace" not in f"_{one.name}")
    return (*read, *([agents] if os.path.isfile(agents) and agents not in read else []))


FORMAT = Format(
    "rocprof_csv",
    "a table of rocprofv3 (CSV)",
    lambda head: 96 if _HEADER.match(head) else 0,
    "traceconv.formats.rocprof_csv.reader:RocprofCsvReader",
    "traceconv.formats.rocprof_csv.locate:locate",
    event_times="Start_Timestamp, and End_Timestamp minus it: ns in the file",
    parts=parts,
)
