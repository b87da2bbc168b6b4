"""The tables of a report that contain events, with the tracks and names of their rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """Work of a GPU: rows with start, end, deviceId, contextId, streamId, correlationId, globalPid.

    names    columns with the id of the name in StringIds; the first that exists counts
    enum     (column, table of its labels)
    title    name of rows without one: `{}` is the label, or the value of the column `number`
    apart    on a separate track next to its stream, since it lasts while the stream works
    """

    table: str
    category: str
    title: str
    names: tuple[str, ...] = ()
    enum: tuple[str, str] | None = None
    number: str | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class CallTable:
    """Calls of host threads: rows with start, end, globalTid and a name (nameId or textId, in StringIds)."""

    table: str
    category: str


DEVICE_TABLES = (
    DeviceTable("CUPTI_ACTIVITY_KIND_KERNEL", "kernel", "kernel", names=("demangledName", "shortName", "mangledName")),
    DeviceTable("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy", "CUDA memcpy {}", enum=("copyKind", "ENUM_CUDA_MEMCPY_OPER")),
    DeviceTable("CUPTI_ACTIVITY_KIND_MEMSET", "memset", "CUDA memset"),
    DeviceTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph", "CUDA graph {}", number="graphId"),
    DeviceTable(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "synchronization",
        "{}",
        enum=("syncType", "ENUM_CUPTI_SYNC_TYPE"),
        apart=True,
    ),
)
CALL_TABLES = (
    CallTable("CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_api"),
    CallTable("CUPTI_ACTIVITY_KIND_OVERHEAD", "overhead"),
    CallTable("PROFILER_OVERHEAD", "overhead"),
    CallTable("OSRT_API", "osrt"),
    CallTable("CUDNN_EVENTS", "cudnn"),
    CallTable("CUBLAS_EVENTS", "cublas"),
    CallTable("MPI_P2P_EVENTS", "mpi"),
    CallTable("MPI_COLLECTIVES_EVENTS", "mpi"),
    CallTable("MPI_START_WAIT_EVENTS", "mpi"),
    CallTable("MPI_OTHER_EVENTS", "mpi"),
)
#: Event classes of rows in these tables that are no calls: the profiler has started or finished to record CUDA, the
#: system's libraries, cuDNN or cuBLAS. nsys stats leaves them out.
NOTES = frozenset((10, 11, 31, 32, 33, 34, 35, 36))
NVTX = "NVTX_EVENTS"
GPU_METRICS = "GPU_METRICS"
MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
STRINGS = "StringIds"
SPAN_TABLES = tuple(table.table for table in (*DEVICE_TABLES, *CALL_TABLES))
#: In the order in which they are read.
EVENT_TABLES = (*SPAN_TABLES, NVTX, GPU_METRICS, MEMORY_USAGE)
#: Tables that describe others or the report itself.
DESCRIBING = (
    STRINGS,
    "ThreadNames",
    "PROCESSES",
    "ANALYSIS_DETAILS",
    "ANALYSIS_FILE",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "ProcessStreams",
    "MPI_COMMUNICATORS",
    "MPI_RANKS",
    "DIAGNOSTIC_EVENT",
    "sqlite_sequence",
)
DESCRIBING_PREFIXES = ("ENUM_", "TARGET_INFO_", "sqlite_stat")

#: Labels that the SQLite file may lack (exports before 2021).
LABELS = {
    "ENUM_CUDA_MEMCPY_OPER": {
        0: "Unknown",
        1: "Host-to-Device",
        2: "Device-to-Host",
        3: "Host-to-Array",
        4: "Array-to-Host",
        5: "Array-to-Array",
        6: "Array-to-Device",
        7: "Device-to-Array",
        8: "Device-to-Device",
        9: "Host-to-Host",
        10: "Peer-to-Peer",
    },
    "ENUM_CUDA_DEV_MEM_EVENT_OPER": {
        0: "allocation",
        1: "deallocation",
        2: "static allocation",
        3: "static deallocation",
    },
    "ENUM_CUPTI_SYNC_TYPE": {
        1: "Event Synchronize",
        2: "Stream Wait Event",
        3: "Stream Synchronize",
        4: "Context Synchronize",
    },
}
