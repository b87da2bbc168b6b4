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


@dataclass(frozen=True, slots=True)
class MetricTable:
    """Values of counters over time, in the column `value`.

    time   column with the time
    kind   columns that identify the metric
    place  columns that identify what was measured
    names  table of the names of metrics, in the column `name`, by the columns of `kind`
    """

    table: str
    time: str
    kind: tuple[str, str]
    place: tuple[str, ...]
    names: str
    name: str


@dataclass(frozen=True, slots=True)
class MarkerTable:
    """Moments of a thread (globalTid) or a process (globalPid).

    time             column with the time
    title            name of the rows: `{}` is the label of a value; rows without a label are named by the category
    enum             (column with that value, table of its labels)
    labelled         (column, table of its labels) whose labels are stored in place of numbers
    zero_is_unknown  rows with a time of 0 have none
    """

    table: str
    category: str
    title: str
    enum: tuple[str, str] | None = None
    labelled: tuple[tuple[str, str], ...] = ()
    time: str = "start"
    zero_is_unknown: bool = False

    @property
    def enums(self) -> tuple[tuple[str, str], ...]:
        """All columns with labels, and the tables of these."""
        return (*self.labelled, self.enum) if self.enum else self.labelled


DEVICE_TABLES = (
    DeviceTable("CUPTI_ACTIVITY_KIND_KERNEL", "kernel", "kernel", names=("demangledName", "shortName", "mangledName")),
    DeviceTable("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy", "CUDA memcpy {}", enum=("copyKind", "ENUM_CUDA_MEMCPY_OPER")),
    DeviceTable("CUPTI_ACTIVITY_KIND_MEMSET", "memset", "CUDA memset"),
    DeviceTable("CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS", "decompress", "CUDA memory decompression"),
    DeviceTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph", "CUDA graph {}", number="graphId"),
    DeviceTable(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "synchronization",
        "{}",
        enum=("syncType", "ENUM_CUPTI_SYNC_TYPE"),
        apart=True,
    ),
    DeviceTable(
        "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH", "host_function", "CUDA host function", apart=True
    ),
)
#: What an OpenMP runtime reports (OMPT), each in a table of its own.
_OPENMP = (
    "THREAD", "PARALLEL", "SYNC_REGION_WAIT", "SYNC_REGION", "TASK", "MASTER", "REDUCTION", "TASK_CREATE",
    "TASK_SCHEDULE", "CANCEL", "MUTEX_WAIT", "CRITICAL_SECTION", "MUTEX_RELEASED", "LOCK_INIT", "LOCK_DESTROY",
    "WORKSHARE", "DISPATCH", "FLUSH",
)  # fmt: skip
CALL_TABLES = (
    CallTable("CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_api"),
    CallTable("CUPTI_ACTIVITY_KIND_OVERHEAD", "overhead"),
    CallTable("CUPTI_ACTIVITY_KIND_JIT", "overhead"),
    CallTable("PROFILER_OVERHEAD", "overhead"),
    CallTable("CUDA_GRAPH_NODE_EVENTS", "cuda_graph"),
    CallTable("CUDA_GRAPH_EVENTS", "cuda_graph"),
    CallTable("CUDA_HOST_CALLBACK", "host_callback"),
    CallTable("OSRT_API", "osrt"),
    CallTable("SYSCALL", "syscall"),
    CallTable("CUDNN_EVENTS", "cudnn"),
    CallTable("CUBLAS_EVENTS", "cublas"),
    CallTable("MPI_P2P_EVENTS", "mpi"),
    CallTable("MPI_COLLECTIVES_EVENTS", "mpi"),
    CallTable("MPI_START_WAIT_EVENTS", "mpi"),
    CallTable("MPI_OTHER_EVENTS", "mpi"),
    CallTable("UCP_SUBMIT_EVENTS", "ucx"),
    CallTable("UCP_PROGRESS_EVENTS", "ucx"),
    CallTable("UCP_EVENTS", "ucx"),
    *(CallTable(f"CUPTI_ACTIVITY_KIND_OPENACC_{kind}", "openacc") for kind in ("DATA", "LAUNCH", "OTHER")),
    *(CallTable(f"OPENMP_EVENT_KIND_{kind}", "openmp") for kind in _OPENMP),
)
_OF_TYPE, _OF_LIST = ("typeId", "metricId"), ("metricsListId", "metricsIdx")
METRIC_TABLES = (
    MetricTable("GPU_METRICS", "timestamp", _OF_TYPE, ("typeId",), "TARGET_INFO_GPU_METRICS", "metricName"),
    MetricTable("SOC_METRICS", "timestamp", _OF_TYPE, (), "TARGET_INFO_SOC_METRICS", "metricName"),
    MetricTable("NET_NIC_METRIC", "start", _OF_LIST, ("globalId", "portId"), "TARGET_INFO_NETWORK_METRICS", "name"),
    MetricTable(
        "NET_IB_SWITCH_METRIC", "start", _OF_LIST, ("globalId", "portId"), "TARGET_INFO_NETWORK_METRICS", "name"
    ),
)
MARKER_TABLES = (
    MarkerTable(
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "memory",
        "{}",
        enum=("memoryOperationType", "ENUM_CUDA_DEV_MEM_EVENT_OPER"),
    ),
    MarkerTable(
        "CUDA_GPU_MEMORY_POOL_EVENTS",
        "memory_pool",
        "memory pool: {}",
        enum=("operationType", "ENUM_CUDA_MEMPOOL_OPER"),
        labelled=(("poolType", "ENUM_CUDA_MEMPOOL_TYPE"),),
    ),
    MarkerTable("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "page_fault", "CPU page fault"),
    MarkerTable(
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        "page_fault",
        "GPU page faults",
        labelled=(("faultAccessType", "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE"),),
    ),
    MarkerTable("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "cuda_event", "CUDA event", time="timestamp", zero_is_unknown=True),
    MarkerTable(
        "SCHED_EVENTS",
        "scheduling",
        "{}",
        enum=("isSchedIn", "SCHED_EVENTS"),
        labelled=(
            ("threadState", "ENUM_SAMPLING_THREAD_STATE"),
            ("threadBlock", "ENUM_SCHEDULING_THREAD_BLOCK"),
        ),
    ),
    MarkerTable(
        "COMPOSITE_EVENTS", "cpu_sample", "CPU sample", labelled=(("threadState", "ENUM_SAMPLING_THREAD_STATE"),)
    ),
)
#: Event classes of rows in these tables that are no calls: the profiler has started or finished to record CUDA, the
#: system's libraries, cuDNN or cuBLAS (nsys stats leaves them out), or 67, the call stack of a call with its own row.
NOTES = frozenset((10, 11, 31, 32, 33, 34, 35, 36, 67))
#: What CUPTI writes for an ID that a row doesn't have, such as the stream of a wait for all streams.
NO_ID = {"deviceId": 0xFFFF_FFFF, "contextId": 0xFFFF_FFFF, "streamId": 0xFFFF_FFFF, "correlationId": 0}
#: Columns of calls and moments, apart from their names, with IDs in StringIds.
TEXT_IDS = frozenset(("CpuInstruction", "module", "sourceFile", "srcFile", "funcName", "varName", "kernelName"))
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"
SPAN_TABLES = (*(table.table for table in DEVICE_TABLES), *(table.table for table in CALL_TABLES))
#: In the order in which they are read.
EVENT_TABLES = (*SPAN_TABLES, NVTX, *(table.table for table in (*METRIC_TABLES, *MARKER_TABLES)))
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
    "UCP_WORKERS",
    "NIC_ID_MAP",
    "DIAGNOSTIC_EVENT",
    "sqlite_sequence",
)
DESCRIBING_PREFIXES = ("ENUM_", "TARGET_INFO_", "sqlite_stat")

#: Labels that the SQLite file may lack (exports before 2021).
LABELS = {
    "SCHED_EVENTS": {0: "scheduled out", 1: "scheduled in"},
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
        11: "Unified Host-to-Device",
        12: "Unified Device-to-Host",
        13: "Unified Device-to-Device",
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
