"""Reports of Nsight Systems in SQLite, table by table, as its export documents them."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from recount.tally import Slices, Tally

Row = dict[str, Any]

_WORK = {"KERNEL": "compute", "MEMCPY": "copy", "MEMSET": "copy", "SYNCHRONIZATION": "sync"}
_COLLECTIVE = ("nccl", "rccl", "Nccl", "ncclDev", "mscclpp")
_STEP = re.compile(r"(?:ProfilerStep#|(?i:(?:train[ _])?(?:step|iteration|iter))[ _#:=]*)(\d+)")
_PUSH_POP, _START_END, _MARK = 59, 60, 34


def add_up(path: Path) -> Tally:
    """Sum up a report, without the names of copies and waits, which represent numbers."""
    tally = Tally()
    db = sqlite3.connect(path)
    texts = dict(db.execute("SELECT id, value FROM StringIds"))
    launched: list[tuple[tuple[int, int], int]] = []
    for table, kind in _WORK.items():
        for row in _rows(db, f"CUPTI_ACTIVITY_KIND_{table}"):
            name = texts.get(row["demangledName"]) if table == "KERNEL" else None
            collective = name is not None and name.removeprefix("void ").startswith(_COLLECTIVE)
            key = ("task", "collective" if collective else kind, row["deviceId"], row["streamId"], name)
            tally.slice(key, row["start"], row["end"] - row["start"])
            if table != "SYNCHRONIZATION":
                launched.append(((row["globalPid"] >> 24, row["correlationId"]), row["start"]))
    calls = {}
    for row in _rows(db, "CUPTI_ACTIVITY_KIND_RUNTIME"):
        name = texts[row["nameId"]]
        level = "driver" if re.match("cu[A-Z]", name) else "runtime"
        name = name if level == "driver" else re.sub(r"_v\d{4,5}$", "", name)
        tally.slice(("api", level, None, None, name), row["start"], row["end"] - row["start"])
        calls[row["globalTid"] >> 24, row["correlationId"]] = row["start"]
    for row in _rows(db, "OSRT_API"):
        tally.slice(("api", "os", None, None, texts[row["nameId"]]), row["start"], row["end"] - row["start"])
    for row in _rows(db, "CUDA_GRAPH_NODE_EVENTS"):
        tally.slice(("api", "graph", None, None, texts[row["nameId"]]), row["start"], row["end"] - row["start"])
    for row in _rows(db, "SCHED_EVENTS"):
        tally.moment("scheduling", "scheduled in" if row["isSchedIn"] else "scheduled out", row["start"])
    for launch, start in launched:
        if launch in calls and launch[1]:  # CUPTI's IDs begin with 1
            tally.arrow("launch", None, start - calls[launch])
    for row in _rows(db, "NVTX_EVENTS"):
        name = row["text"] if row["text"] is not None else texts.get(row["textId"])
        if row["eventType"] in (_PUSH_POP, _START_END):
            dur_ns = None if row["end"] is None else row["end"] - row["start"]
            tally.slice(("range", "annotation", None, None, name), row["start"], dur_ns)
            step = _STEP.fullmatch(name or "")
            if step and dur_ns is not None:
                tally.steps.add((int(step[1]), row["start"], row["end"]))
        elif row["eventType"] == _MARK:
            tally.moment("nvtx", name, row["start"])
    metrics = {row["metricId"]: row["metricName"] for row in _rows(db, "TARGET_INFO_GPU_METRICS")}
    for row in _rows(db, "GPU_METRICS"):
        tally.sample((metrics[row["metricId"]], "value"), row["timestamp"], row["value"])
    operations = ("allocation", "deallocation", "static allocation", "static deallocation")
    for row in _rows(db, "CUDA_GPU_MEMORY_USAGE_EVENTS"):
        tally.moment("memory", operations[row["memoryOperationType"]], row["start"])
    db.close()
    return tally


def without_titles(tally: Tally) -> Tally:
    """The sums without the names of copies, fills and waits."""
    found = replace(tally, slices=defaultdict(Slices))
    for (table, kind, *place, name), one in tally.slices.items():
        found.slices[(table, kind, *place, None if kind in ("copy", "sync") else name)].add(one)
    return found


def _rows(db: sqlite3.Connection, table: str) -> Iterator[Row]:
    cursor = db.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor.fetchall())
