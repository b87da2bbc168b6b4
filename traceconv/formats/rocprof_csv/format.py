"""The format of rocprof's tables, and which files of a folder belong to one recording."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from traceconv.formats.format import Format

#: Ends of the names of a recording's tables, in the order in which they are read: counters have the dispatches that
#: they were measured in. Those of rocpd's converter have the same columns, and one table for calls and markers.
TABLES = (
    "counter_collection", "counter_collection_trace", "kernel_trace", "memory_copy_trace", "hip_event_trace",
    "hip_api_trace", "hsa_api_trace", "rccl_api_trace", "rocshmem_api_trace", "marker_api_trace", "rocdecode_api_trace",
    "rocjpeg_api_trace", "hipfile_api_trace", "region_trace", "regions_trace", "graph_launch_trace",
    "memory_allocation_trace", "scratch_memory_trace",
)  # fmt: skip
AGENTS = "agent_info"
_NAME = re.compile(rf"(?P<prefix>.*?)(?:{'|'.join((*TABLES, AGENTS))})(?P<end>\.csv(?:\.(?:gz|zst|xz))?)", re.DOTALL)
_HEADER = re.compile(
    rb'(?:\xef\xbb\xbf)?(?:"?Guid"?,)?"?(?:Kind"?,"?(?:Agent_Id|Direction|Operation|Stream_Id)|Domain"?,"?Function|'
    rb'Correlation_Id"?,"?Dispatch_Id|Dispatch_ID"?,"?GPU_ID|(?:Index"?,"?)?KernelName"?,"?gpu-id)"?,'
    rb'[^\r\n]*"?(?:Start_Timestamp|Counter_Value|BeginNs)\b'
)
#: Columns of the first two versions of rocprof, and their names in rocprofv3.
_RENAMED = {
    "Index": "Dispatch_Id", "KernelName": "Kernel_Name", "gpu-id": "Agent_Id", "queue-id": "Queue_Id",
    "pid": "Process_Id", "tid": "Thread_Id", "BeginNs": "Start_Timestamp", "EndNs": "End_Timestamp",
    "Dispatch_ID": "Dispatch_Id", "GPU_ID": "Agent_Id", "Queue_ID": "Queue_Id", "PID": "Process_Id",
    "TID": "Thread_Id", "Correlation_ID": "Correlation_Id",
}  # fmt: skip


def column_names(header: Sequence[str]) -> list[str]:
    """Return the names of a table's columns in rocprofv3."""
    return [_RENAMED.get(name, name) for name in header]


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
    "a table of rocprof (CSV)",
    lambda head: 96 if _HEADER.match(head) else 0,
    "traceconv.formats.rocprof_csv.reader:RocprofCsvReader",
    "traceconv.formats.rocprof_csv.locate:locate",
    event_times="Start_Timestamp, and End_Timestamp minus it: ns in the file",
    parts=parts,
)
