"""Output folders of msprof without a timeline: every row of the tables, each task once."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

from recount.tally import Tally, nanoseconds
from recount.torch_npu import rows_of


def add_up(folder: Path) -> tuple[Tally, dict[tuple[str, str], list[int]]]:
    """Sum up the tables; return also the durations of kernels by type and core.

    A row of task_time is the row of op_summary with its device, stream, number and start, if there is one.
    """
    tally = Tally()
    kernels: dict[tuple[str, str], list[int]] = defaultdict(list)
    seen: set[tuple[object, ...]] = set()
    for row in _rows(folder, "op_summary"):
        place = _place(row, "Device_id", "Stream ID", "Task ID")
        start_ns, dur_ns = _us(row["Task Start Time(us)"]), _us(row["Task Duration(us)"])
        seen.add((*place, start_ns))
        kind = "collective" if row["Task Type"].upper() in ("HCCL", "COMMUNICATION") else "compute"
        tally.slice(("task", kind, place[0], place[1], row["Op Name"]), start_ns, dur_ns)
        if kind == "compute":
            kernels[row["OP Type"], row["Task Type"]].append(dur_ns)
    for row in _rows(folder, "task_time"):
        place = _place(row, "Device_id", "stream_id", "task_id")
        start_ns = _us(row["task_start(us)"])
        if (*place, start_ns) not in seen:
            key = ("task", _kind(row["kernel_type"]), place[0], place[1], row["kernel_name"])
            tally.slice(key, start_ns, _us(row["task_time(us)"]))
    for row in _rows(folder, "step_trace"):
        end_ns, time_ns = _us(row["Iteration End(us)"]), _us(row["Iteration Time(us)"])
        tally.steps.add((int(row["Iteration ID"]), end_ns - time_ns if time_ns else None, end_ns))
    return tally, kernels


def _kind(kernel_type: str) -> str:
    """Kind of a task that is not an operator: event waits and records do no work, copies move data."""
    if re.match("EVENT|NOTIFY", kernel_type):
        return "sync"
    return "copy" if re.match("MEMCPY|SDMA", kernel_type) else "compute"


def _rows(folder: Path, name: str) -> list[dict[str, str]]:
    paths = sorted(path for path in folder.rglob("*.csv") if re.fullmatch(rf"{name}(_\d+)+\.csv", path.name))
    return [row for path in paths for row in rows_of(path)]


def _place(row: dict[str, str], *columns: str) -> tuple[int | None, ...]:
    return tuple(None if row[column] == "N/A" else int(row[column]) for column in columns)


def _us(cell: str) -> int:
    return nanoseconds(Decimal(cell))
