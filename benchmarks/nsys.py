"""Nsight Systems reports: ingest of a generated SQLite export, per event.

    python -m benchmarks.nsys [--events 1000000] [--json]

The report has the published schema and the proportions of a training job: 45 % calls into CUDA from two threads, 36 %
kernels with 600 names on four streams, 10 % system calls, 6 % NVTX ranges nested three deep, 3 % copies.

Seconds are CPU time (user and system, all threads), which other load on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Measured, run, traceconv

_START_NS = 3_000_000_000_001
_MACHINE_PID = 1 << 48 | 4711 << 24
_KERNEL_NAMES, _CALL_NAMES = 600, 12
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,"
    " globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,"
    " launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,"
    " gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,"
    " blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,"
    " localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,"
    " sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,"
    " globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER,"
    " dstKind INTEGER, copyCount INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,"
    " callchainId INTEGER",
    "OSRT_API": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,"
    " correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER,"
    " callchainId INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,"
    " category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,"
    " domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,"
    " int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
}
_DESCRIBING = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT);
INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H100');
"""
_WRITE = "import sys, pathlib, benchmarks.nsys as n; n.write(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"
_Columns = dict[str, "NDArray[np.int64] | int | Sequence[str | int | None] | None"]


def write(path: Path, events: int) -> None:
    """Write a report of about `events` events. The same number gives the same report."""
    path.unlink(missing_ok=True)
    rng = np.random.default_rng(1)
    with sqlite3.connect(path) as db:
        db.executescript(_DESCRIBING)
        db.execute("INSERT INTO PROCESSES VALUES (?, 4711, 'python3')", (_MACHINE_PID,))
        strings = [(1 + i, f"kernel_{i}_{'x' * (i % 40)}") for i in range(_KERNEL_NAMES)]
        strings += [(1001 + i, f"void at::native::kernel_{i}<float, {i}>(int, float*)") for i in range(_KERNEL_NAMES)]
        strings += [(2001 + i, f"cudaCall{i}_v7000") for i in range(_CALL_NAMES)]
        strings += [(3001 + i, name) for i, name in enumerate(("read", "write", "poll", "pthread_cond_wait"))]
        strings += [(4001 + i, f"aten::op_{i}") for i in range(200)]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
        for table, columns, rows in _tables(events, rng):
            db.execute(f"CREATE TABLE {table} ({_TABLES[table]})")
            names = ", ".join(columns)
            places = ", ".join("?" * len(columns))
            listed = [
                values.tolist()
                if isinstance(values, np.ndarray)
                else values
                if isinstance(values, list)
                else [values] * rows
                for values in columns.values()
            ]
            db.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", zip(*listed, strict=True))  # noqa: S608 - our names
    db.close()


def _tables(events: int, rng: np.random.Generator) -> Iterator[tuple[str, _Columns, int]]:
    calls = events * 45 // 100
    kernels = events * 36 // 100
    copies = events * 3 // 100
    thread = _MACHINE_PID + 4711 + rng.integers(0, 2, calls)
    at = _START_NS + np.cumsum(rng.integers(3_000, 9_000, calls))
    call_ends = at + rng.integers(1_000, 3_000, calls)
    correlation = np.arange(calls) + 100
    launching = np.sort(rng.permutation(calls)[: kernels + copies])
    is_copy = np.zeros(kernels + copies, np.bool_)
    is_copy[rng.permutation(kernels + copies)[:copies]] = True
    starts = at[launching] + rng.integers(4_000, 20_000, kernels + copies)
    ends = starts + rng.integers(1_000, 9_000, kernels + copies)
    name = rng.integers(0, _KERNEL_NAMES, kernels)
    common: _Columns = {"deviceId": 0, "contextId": 1, "globalPid": _MACHINE_PID}
    kernel, copy = ~is_copy, is_copy
    yield (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {
            "start": starts[kernel], "end": ends[kernel], **common, "streamId": 7 + rng.integers(0, 4, kernels),
            "correlationId": correlation[launching[kernel]], "demangledName": 1001 + name, "shortName": 1 + name,
            "mangledName": 1 + name, "launchType": 0, "cacheConfig": 0,
            "registersPerThread": 16 + 8 * rng.integers(0, 20, kernels), "gridX": rng.integers(1, 5000, kernels),
            "gridY": 1 + rng.integers(0, 4, kernels), "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1,
            "staticSharedMemory": 1024 * rng.integers(0, 4, kernels), "dynamicSharedMemory": 0,
            "localMemoryPerThread": 0, "localMemoryTotal": 81_199_104, "gridId": np.arange(kernels),
            "sharedMemoryExecuted": 32_768,
        },
        kernels,
    )  # fmt: skip
    yield (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {
            "start": starts[copy], "end": ends[copy], **common, "streamId": 7 + rng.integers(0, 4, copies),
            "correlationId": correlation[launching[copy]], "bytes": rng.integers(4, 1 << 24, copies),
            "copyKind": 1 + rng.integers(0, 2, copies), "srcKind": 0, "dstKind": 2, "copyCount": 1,
        },
        copies,
    )  # fmt: skip
    yield (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        {
            "start": at, "end": call_ends, "eventClass": 0, "globalTid": thread, "correlationId": correlation,
            "nameId": 2001 + rng.integers(0, _CALL_NAMES, calls), "returnValue": 0,
        },
        calls,
    )  # fmt: skip
    system_calls = events // 10
    begin = _START_NS + np.cumsum(rng.integers(10_000, 40_000, system_calls))
    yield (
        "OSRT_API",
        {
            "start": begin, "end": begin + rng.integers(1_000, 9_000, system_calls), "eventClass": 27,
            "globalTid": _MACHINE_PID + 4720 + rng.integers(0, 8, system_calls),
            "nameId": 3001 + rng.integers(0, 4, system_calls), "returnValue": 0,
            "callchainId": np.arange(system_calls),
        },
        system_calls,
    )  # fmt: skip
    depth = 3
    groups = events * 6 // 100 // depth
    inner = np.tile(np.arange(depth), groups)
    first = np.repeat(_START_NS + 100_000 * np.arange(groups), depth)
    texts: list[str | None] = [f"step {row // 300}" if row % 300 == 0 else None for row in range(groups * depth)]
    yield (
        "NVTX_EVENTS",
        {
            "start": first + inner * 10_000, "end": first + 90_000 - inner * 10_000, "eventType": 59,
            "globalTid": _MACHINE_PID + 4711, "text": texts, "domainId": 0,
            "textId": [None if text else 4001 + row % 200 for row, text in enumerate(texts)],
        },
        groups * depth,
    )  # fmt: skip


def _rows_seconds(path: Path) -> float:
    """Return the CPU time in which Python reads all rows of events."""
    begin = time.process_time()
    with sqlite3.connect(path) as db:
        for table in _TABLES:
            rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - our names
            while rows.fetchmany(10_000):
                pass
    db.close()
    return time.process_time() - begin


def reading(events: int, folder: Path) -> tuple[Measured, float]:
    """Ingest a generated report in a new process into a new store in `folder`.

    Return that, and the CPU time of reading its rows with the module sqlite3.
    """
    path, store = folder / "benchmark.sqlite", folder / "benchmark_nsys.duckdb"
    # In this process, it would take memory that counts as that of every program measured later.
    run([sys.executable, "-c", _WRITE, path, str(events)])
    store.unlink(missing_ok=True)
    done = traceconv("ingest", path, "--db", store)
    rows_seconds = _rows_seconds(path)
    path.unlink()
    store.unlink()
    return done, rows_seconds


def main() -> None:
    """Measure one ingest."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--json", action="store_true", help="print the results as JSON")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done, rows_seconds = reading(options.events, Path(folder))
    if options.json:
        found = {"cpu_seconds": done.cpu_seconds, "rows_seconds": rows_seconds, "peak_bytes": done.peak_bytes}
        print(json.dumps({"events": options.events, **found}))
    else:
        each, ratio = done.cpu_seconds * 1e6 / options.events, done.cpu_seconds / rows_seconds
        print(f"{each:.2f} µs of CPU per event, {ratio:.1f} × sqlite3's rows, {done.peak_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
