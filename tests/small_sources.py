"""A small trace of each of some formats, in which every kind of event occurs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nsys_builder as nsys

EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "main"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "worker"}},
    {"ph": "B", "name": "outer", "cat": "a", "pid": 1, "tid": 2, "ts": 10},
    {"ph": "X", "name": "one", "cat": "a", "pid": 1, "tid": 2, "ts": 11.25, "dur": 0.5, "args": {"x": "é\n"}},
    {"ph": "B", "name": "inner", "cat": "a", "pid": 1, "tid": 2, "ts": 13},
    {"ph": "B", "name": "elsewhere", "pid": 1, "tid": 3, "ts": 13},
    {"ph": "E", "pid": 1, "tid": 2, "ts": 20, "args": {"of": "inner"}},
    {"ph": "E", "pid": 1, "tid": 3, "ts": 20, "args": {"of": "elsewhere"}},
    {"ph": "E", "pid": 1, "tid": 2, "ts": 20, "args": {"of": "outer"}},
    {"ph": "b", "name": "sequence", "cat": "c", "id": "0x1", "pid": 1, "ts": 5},
    {"ph": "e", "name": "sequence", "cat": "c", "id": "0x1", "pid": 1, "ts": 25, "args": {"of": "sequence"}},
    {"ph": "i", "name": "now", "pid": 1, "tid": 2, "ts": 12, "s": "t"},
    {"ph": "C", "name": "load", "pid": 1, "ts": 12, "args": {"cpu": 7}},
    {"ph": "s", "name": "arrow", "cat": "f", "id": 9, "pid": 1, "tid": 2, "ts": 11.5},
    {"ph": "f", "name": "arrow", "cat": "f", "id": 9, "pid": 1, "tid": 3, "ts": 14, "bp": "e"},
]


def speedscope() -> dict[str, Any]:
    evented = {
        "type": "evented", "name": "thread 1", "unit": "microseconds", "startValue": 0, "endValue": 10,
        "events": [{"type": kind, "frame": frame, "at": at} for kind, frame, at in
                   (("O", 0, 1), ("O", 1, 2), ("C", 1, 3.5), ("C", 0, 10))],
    }  # fmt: skip
    sampled = {
        "type": "sampled", "name": "thread 2", "unit": "milliseconds", "startValue": 1, "endValue": 8,
        "samples": [[0], [0, 1], [0, 1], [0]], "weights": [1, 2, 1.5, 2.5],
    }  # fmt: skip
    shared = {"frames": [{"name": "main"}, {"name": "f"}]}
    schema = "https://www.speedscope.app/file-format-schema.json"
    return {"$schema": schema, "shared": shared, "profiles": [evented, sampled]}


def nsys_report(folder: Path) -> Path:
    path = folder / "report.sqlite"
    db = nsys.new_report(path)
    nsys.insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", [nsys.kernel(1000, 1500, 1, 5), nsys.kernel(1600, 1700, 3, 6)])
    nsys.insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", [nsys.call(900, 950, 10, 5), nsys.call(960, 990, 14, 7)])
    tid = nsys.global_tid(100, 100)
    db.executemany(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (?, ?, ?, ?, ?, 0)",
        [(1, None, 75, "domain", tid), (800, 1000, 59, "step 1", tid), (805, None, 34, "mark", tid)],
    )
    db.executemany("INSERT INTO GPU_METRICS VALUES (?, 0, 1, ?)", [(1000, 40), (1001, 41)])
    nsys.insert(db, "CUDA_GRAPH_NODE_EVENTS", [nsys.node(905, 7), nsys.node(970, 17, 7)])
    db.execute("INSERT INTO SCHED_EVENTS VALUES (1002, 3, 0, ?, 2, 1)", (tid,))
    db.commit()
    db.close()
    return path
