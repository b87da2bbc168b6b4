"""Build databases as torch_npu and msprof write them, by the published schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

#: A time of today, which no double can represent.
T0 = 1_736_408_883_709_301_271
PID, NONE = 4711, 2**32 - 1
#: Of msprof since schema 1.2 (blockNum); torch_npu's own tables follow.
SCHEMA = """
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,
  globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockNum INTEGER, mixBlockNum INTEGER,
  taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER,
  outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER, opState INTEGER,
  hf32Eligible INTEGER, gridDim INTEGER, blockDim INTEGER);
CREATE TABLE COMMUNICATION_TASK_INFO (name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER,
  groupName INTEGER, notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, transportType INTEGER,
  size INTEGER, dataType INTEGER, linkType INTEGER, opId INTEGER, isMaster INTEGER, bandwidth NUMERIC);
CREATE INDEX CommunicationTaskIndex ON COMMUNICATION_TASK_INFO (globalTaskId);
CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER,
  groupName INTEGER, opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER,
  count NUMERIC, opType INTEGER, deviceId INTEGER, rankSize INTEGER);
CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER,
  connectionId INTEGER PRIMARY KEY, name INTEGER);
CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_LINK_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE HOST_INFO (hostUid TEXT, hostName TEXT);
CREATE TABLE NPU_INFO (id INTEGER, name TEXT);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
CREATE TABLE META_DATA (name TEXT, value TEXT);
CREATE TABLE SESSION_TIME_INFO (startTimeNs INTEGER, endTimeNs INTEGER);
CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,
  sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER,
  type INTEGER);
CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER);
CREATE TABLE PYTORCH_CALLCHAINS (id INTEGER, stack INTEGER, stackDepth INTEGER);
CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);
CREATE TABLE GC_RECORD (startNs INTEGER, endNs INTEGER, globalTid INTEGER);
CREATE TABLE OP_MEMORY (name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER,
  activeReleaseTime INTEGER, duration INTEGER, activeDuration INTEGER, allocationTotalAllocated INTEGER,
  allocationTotalReserved INTEGER, allocationTotalActive INTEGER, releaseTotalAllocated INTEGER,
  releaseTotalReserved INTEGER, releaseTotalActive INTEGER, streamPtr INTEGER, deviceId INTEGER);
CREATE TABLE MEMORY_RECORD (component INTEGER, timestamp INTEGER, totalAllocated INTEGER, totalReserved INTEGER,
  totalActive INTEGER, streamPtr INTEGER, deviceId INTEGER);
CREATE TABLE MEMCPY_INFO (globalTaskId NUMERIC, size NUMERIC, memcpyOperation NUMERIC);
CREATE TABLE ENUM_MEMCPY_OPERATION (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC);
CREATE TABLE HBM (deviceId INTEGER, timestampNs INTEGER, bandwidth NUMERIC, hbmId INTEGER, type INTEGER);
CREATE TABLE OSRT_API (name NUMERIC, globalTid NUMERIC, startNs NUMERIC, endNs NUMERIC);
CREATE TABLE OVERLAP_ANALYSIS (id INTEGER PRIMARY KEY, deviceId INTEGER, startNs NUMERIC, endNs NUMERIC, type INTEGER);
CREATE TABLE MSTX_EVENTS (startNs INTEGER, endNs INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER,
  message INTEGER, globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER, connectionId INTEGER);
"""
TEXTS = (
    "N/A", "KERNEL_AICORE", "MEMCPY_ASYNC", "FFTS_PLUS", "SDMA", "AI_CORE", "aclnnMm_MatMulCommon_MatMulV2", "MatMulV2",
    "dynamic", "YES", "FLOAT16;FLOAT16", '"2,3;3,4"', "ND;ND", "FLOAT16", '"2,4"', "ND", "hcom_allReduce__428_0_1",
    "hcom_allReduce_", "10.170.22.98%enp67s0f5_60000_0", "MESH-RING", "Memcpy", "launch", "aclrtMemcpyAsync",
    "Launch_Ffts", "aten::mm", "MmBackward0", "Enqueue", "Dequeue@aclnnMm", "ProfilerStep#7", "train.py(3): step",
    "train.py(9): main", "float;float", "2,3;\r\n3,4", "read", "PTA", "conv", "aic_total_time", "aic_mac_time",
    "aic_mac_ratio", "aic_total_cycles", "aic_new", "poll", "epoch", "batch", "point",
)  # fmt: skip
ID = {text: 1000 + place for place, text in enumerate(TEXTS)}


def insert(db: sqlite3.Connection, table: str, *rows: Sequence[object]) -> None:
    """Rows of all columns of a table; texts that STRING_IDS has become their IDs."""
    for row in rows:
        cells = [ID.get(cell, cell) if isinstance(cell, str) else cell for cell in row]
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(cells))})", cells)


def tid(thread: int) -> int:
    """A thread of the program, as databases number it."""
    return PID << 32 | thread


def database(path: Path) -> Path:
    """A step with a kernel, a copy and a collective of two parts, and what the host did for them."""
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    db.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(number, text) for text, number in ID.items()])
    insert(
        db, "TASK",
        (T0 + 1000, T0 + 1501, 1, 5, 0, PID, "KERNEL_AICORE", NONE, 2, 30, NONE),
        (T0 + 1600, T0 + 1700, 1, 6, 1, PID, "MEMCPY_ASYNC", NONE, 2, 31, NONE),
        # A task of two parts, which is in no timeline.
        (T0 + 2000, T0 + 2900, 1, 8, 2, PID, "FFTS_PLUS", NONE, 4, 32, NONE),
        (T0 + 2001, T0 + 2400, 1, 8, 3, PID, "SDMA", 0, 4, 32, NONE),
        (T0 + 2500, T0 + 2899, 1, 8, 4, PID, "SDMA", 1, 4, 32, NONE),
        # The same number in another batch, without parts.
        (T0 + 5000, T0 + 5100, 1, -1, 5, PID, "KERNEL_AICORE", NONE, 4, 32, NONE),
    )  # fmt: skip
    insert(
        db, "COMPUTE_TASK_INFO",
        ("aclnnMm_MatMulCommon_MatMulV2", 0, 24, 0, "AI_CORE", "MatMulV2", "ND;ND", "FLOAT16;FLOAT16", '"2,3;3,4"',
         "ND", "FLOAT16", '"2,4"', "N/A", "dynamic", "YES", "N/A", "N/A"),
    )  # fmt: skip
    group = "10.170.22.98%enp67s0f5_60000_0"
    insert(
        db, "COMMUNICATION_TASK_INFO",
        ("Memcpy", 3, "SDMA", 0, group, -1, 65534, 1, 0, 0, 4096, 4, 1, 9, 1, 1e9),
        ("Memcpy", 4, "SDMA", 1, group, -1, 65534, 1, 2, 0, 4096, 4, 1, 9, 0, 1e9),
    )  # fmt: skip
    insert(db, "COMMUNICATION_OP", (
        "hcom_allReduce__428_0_1", T0 + 2001, T0 + 2899, 7, group, 9, 0, 0, 4, "MESH-RING", 2048, "hcom_allReduce_",
        1, 8,
    ))  # fmt: skip
    insert(
        db, "CANN_API",
        (T0 + 410, T0 + 440, 10000, tid(22), 5, "launch"),
        (T0 + 520, T0 + 560, 20000, tid(22), 6, "aclrtMemcpyAsync"),
        (T0 + 600, T0 + 690, 10000, tid(22), 7, "launch"),
        (T0 + 620, T0 + 680, 5500, tid(22), 8, "Launch_Ffts"),
    )  # fmt: skip
    insert(db, "ENUM_API_TYPE", (20000, "acl"), (10000, "node"), (5500, "communication"))
    insert(db, "ENUM_HCCL_LINK_TYPE", (1, "HCCS"))
    # Connections of the framework: its own IDs follow those of calls.
    insert(db, "CONNECTION_IDS", (0, 9 + 100), (1, 9 + 100), (2, 5), (2, 9 + 200), (3, 9 + 200))
    insert(db, "PYTORCH_CALLCHAINS", (0, "train.py(3): step", 0), (0, "train.py(9): main", 1))
    nothing = (None,) * 5
    for start, end, thread, connection, name, *rest in (
        (310, 320, 11, 0, "Enqueue", *nothing, 50002),
        (400, 500, 22, 1, "Dequeue@aclnnMm", *nothing, 50002),
        (100, 900, 11, None, "train.py(3): step", *nothing, 50003),
        (0, 6000, 11, None, "ProfilerStep#7", -1, 0, None, None, None, 50001),
        (300, 330, 11, 2, "aten::mm", 4, 0, "float;float", "2,3;\r\n3,4", 0, 50001),
        (700, 750, 12, 3, "MmBackward0", 4, 11, NONE, None, None, 50001),
    ):
        insert(db, "PYTORCH_API", (str(T0 + start), str(T0 + end), tid(thread), connection, name, *rest))
    insert(db, "STEP_TIME", (7, T0, T0 + 6000))
    insert(db, "GC_RECORD", (T0 + 760, T0 + 770, tid(12)))
    insert(
        db, "OP_MEMORY",
        ("aten::mm", 512, T0 + 305, T0 + 800, None, 495, None, 1536, 2048, 512, 1024, 2048, 0, 99, 1),
        ("conv", 64, T0 + 310, None, None, None, None, 64, 64, None, None, None, None, None, 1),
    )  # fmt: skip
    insert(db, "MEMORY_RECORD", ("PTA", T0 + 305, 1536, 2048, 512, 99, 1))
    insert(db, "MEMCPY_INFO", (1, 4096, 1))
    insert(db, "ENUM_MEMCPY_OPERATION", (1, "host to device"))
    for name, value in (
        ("aic_total_time", 480), ("aic_mac_time", 240.4), ("aic_mac_ratio", 0.5), ("aic_total_cycles", 864),
        ("aic_new", 7),
    ):  # fmt: skip
        insert(db, "TASK_PMU_INFO", (0, name, value))
    insert(db, "HBM", (1, T0 + 900, 2**40, 2, "read"), (1, T0 + 950, 0.5, 2, "read"))
    insert(db, "OSRT_API", ("poll", tid(33), T0 + 150, T0 + 160))
    insert(db, "OVERLAP_ANALYSIS", (0, 1, T0 + 1000, T0 + 1501, 0), (1, 1, T0 + 2001, T0 + 2899, 2))
    insert(
        db, "MSTX_EVENTS",
        (T0 + 90, T0 + 95, 1, NONE, 0, "batch", tid(12), tid(12), "epoch", 4000000000),
        (T0 + 80, T0 + 99, 2, NONE, 0, "epoch", tid(12), tid(12), "epoch", 4000000000),
        (T0 + 92, T0 + 92, 3, NONE, 0, "point", tid(12), tid(12), "epoch", 4000000001),
    )  # fmt: skip
    insert(db, "HOST_INFO", ("1", "node-7"))
    insert(db, "NPU_INFO", (1, "Ascend910B"))
    insert(db, "RANK_DEVICE_MAP", (-1, 1), (3, 1))
    insert(db, "META_DATA", ("SCHEMA_VERSION", "1.2.0"), ("ENV_VARIABLES", '{"HCCL_RDMA_TC": "1"}'))
    insert(db, "SESSION_TIME_INFO", (T0 - 500, T0 + 9000))
    db.commit()
    db.close()
    return path
