"""Build Nsight Systems reports in SQLite by the published schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER);
CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER,
  metricName TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUPTI_SYNC_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
  staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, gridId INTEGER NOT NULL,
  graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
  callchainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER,
  callchainId INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
  int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL,
  value INTEGER NOT NULL);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,
  bytes INTEGER NOT NULL, memKind INTEGER, memoryOperationType INTEGER, name TEXT);
CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER);
CREATE TABLE SCHED_EVENTS (start INTEGER NOT NULL, cpu INTEGER NOT NULL, isSchedIn INTEGER NOT NULL, globalTid INTEGER,
  threadState INTEGER, threadBlock INTEGER);
"""


def global_tid(pid: int, tid: int, machine: int = 1) -> int:
    """A thread as reports number it: machine, process and thread in one number."""
    return machine << 48 | pid << 24 | tid


def insert(db: sqlite3.Connection, table: str, rows: Sequence[dict[str, object]]) -> None:
    """Rows by the names of their columns; all of one shape."""
    columns = list(rows[0])
    places = ", ".join("?" * len(columns))
    names = ", ".join(f'"{column}"' for column in columns)
    db.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", [tuple(row.values()) for row in rows])


def kernel(start: int, end: int, name: int, correlation: int, pid: int = 100, **other: object) -> dict[str, object]:
    """A row of the table of kernels; `name` is the id of its short name, and the full name's is one more."""
    row: dict[str, object] = {
        "start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": correlation,
        "globalPid": global_tid(pid, 0), "demangledName": name + 1, "shortName": name, "registersPerThread": 32,
        "gridX": 8, "gridY": 1, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1, "staticSharedMemory": 0,
        "dynamicSharedMemory": 0, "gridId": 1,
    }  # fmt: skip
    return {**row, **other}


def call(start: int, end: int, name: int, correlation: int, pid: int = 100, tid: int = 100) -> dict[str, object]:
    """A row of the table of calls into CUDA."""
    return {
        "start": start, "end": end, "eventClass": 0, "globalTid": global_tid(pid, tid), "correlationId": correlation,
        "nameId": name, "returnValue": 0,
    }  # fmt: skip


def node(time: int, number: int, original: int | None = None, pid: int = 100) -> dict[str, object]:
    """A row of the table of the nodes of graphs: the creation of a node, or of its copy."""
    return {
        "start": time, "end": time, "eventClass": 90, "globalTid": global_tid(pid, pid), "nameId": 40,
        "graphNodeId": number, "originalGraphNodeId": original,
    }  # fmt: skip


def new_report(path: Path) -> sqlite3.Connection:
    """A report without events; the caller fills in, commits and closes it."""
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    strings = {1: "gemm", 2: "void gemm<float>(float*)", 3: "ncclDevKernel", 4: "ncclDevKernel_AllReduce(args)",
               10: "cudaLaunchKernel_v7000", 11: "cuLaunchKernel", 12: "cudaMemcpyAsync_v3020", 13: "read",
               14: "cudaDeviceSynchronize_v3020", 15: "OS runtime libraries profiling started",
               20: "main loop", 30: "python3", 40: "Graph Node Creation", 41: "cudaGraphLaunch_v10000"}  # fmt: skip
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", list(strings.items()))
    db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.11.0')")
    db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H100', 85899345920)")
    db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1720000000123456789, 'then', 'then')")
    db.execute("INSERT INTO PROCESSES VALUES (?, 100, 'train.py')", (global_tid(100, 0),))
    db.execute("INSERT INTO ThreadNames VALUES (30, 0, ?)", (global_tid(100, 100),))
    db.execute("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'HTOD', 'Host-to-Device')")
    return db
