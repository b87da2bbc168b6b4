"""The tables of a database that are read, and what their columns are called in torch_npu's and msprof's timeline."""

from __future__ import annotations

from typing import NamedTuple


class CounterTable(NamedTuple):
    """Samples: rows with a time, and a series in each column that is not in the title.

    title  of the counter, with columns of IDs, whose texts are shown, and others
    unit   of all series; None if they differ
    """

    table: str
    process: str
    title: str
    unit: str | None = None


STRINGS = "STRING_IDS"
TASK, COMPUTE, SCHEDULE = "TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_SCHEDULE_TASK_INFO"
COMM_OP, COMM_TASK = "COMMUNICATION_OP", "COMMUNICATION_TASK_INFO"
CANN, TORCH, STEPS = "CANN_API", "PYTORCH_API", "STEP_TIME"
OVERLAPS, MARKS, OS_CALLS, COLLECTIONS = "OVERLAP_ANALYSIS", "MSTX_EVENTS", "OSRT_API", "GC_RECORD"
COUNTERS = (
    CounterTable("AICORE_FREQ", "AI Core Freq", "AI Core Freq", "MHz"),
    CounterTable("HBM", "HBM", "HBM {hbmId} {type}", "B/s"),
    CounterTable("DDR", "DDR", "DDR", "B/s"),
    CounterTable("LLC", "LLC", "LLC {llcId} {mode}"),
    CounterTable("QOS", "QoS", "QoS {eventName}", "B/s"),
    CounterTable("ACC_PMU", "Acc PMU", "Accelerator {accId}"),
    CounterTable("SOC_BANDWIDTH_LEVEL", "Stars Soc Info", "Bandwidth level"),
    CounterTable("NIC", "NIC", "Port {funcId}"),
    CounterTable("ROCE", "RoCE", "Port {funcId}"),
    CounterTable("NETDEV_STATS", "NIC", "Network statistics"),
    CounterTable("HCCS", "HCCS", "HCCS", "B/s"),
    CounterTable("PCIE", "PCIe", "PCIe"),
    CounterTable("UB", "UB", "Port {portId}", "B/s"),
    CounterTable("SIO", "SIO", "SIO {name}", "B/s"),
    CounterTable("SAMPLE_PMU_TIMELINE", "AI Core Utilization", "{coreType} {coreId}"),
    CounterTable("NPU_MEM", "NPU MEM", "{type} (npu_mem)", "B"),
    CounterTable("NPU_MODULE_MEM", "NPU MEM", "{moduleId} (npu_module_mem)", "B"),
    CounterTable("MEMORY_RECORD", "NPU MEM", "{component} (memory_record)", "B"),
    CounterTable("CPU_USAGE", "CPU Usage", "CPU {cpuId}", "%"),
    CounterTable("HOST_MEM_USAGE", "Memory Usage", "Memory Usage", "%"),
    CounterTable("HOST_DISK_USAGE", "Disk Usage", "Disk Usage"),
    CounterTable("HOST_NETWORK_USAGE", "Network Usage", "Network Usage"),
)
#: Columns of titles that are IDs of texts, and those that are enums.
TITLE_TEXTS = ("type", "mode", "eventName", "name", "coreType", "component")
TITLE_ENUMS = {"moduleId": "ENUM_MODULE"}
NOT_SERIES = ("deviceId", "timestampNs", "timestamp", "dieId", "streamPtr")
COPIES, MEMORY, TASK_COUNTERS = "MEMCPY_INFO", "OP_MEMORY", "TASK_PMU_INFO"
#: Changes of blocks that MEMORY has, if it exists.
GRAPH_MEMORY = "NPU_OP_MEM"
CONNECTIONS, STACKS = "CONNECTION_IDS", "PYTORCH_CALLCHAINS"
#: In the order in which they are read.
EVENT_TABLES = (
    *(TASK, COMM_OP, CANN, TORCH, STEPS, OVERLAPS, MARKS, OS_CALLS, COLLECTIONS),
    *(counter.table for counter in COUNTERS),
)
#: Tables that describe others or the recording, and sums of what others contain.
DESCRIBING = (
    STRINGS,
    COMPUTE,
    SCHEDULE,
    COMM_TASK,
    COPIES,
    MEMORY,
    TASK_COUNTERS,
    CONNECTIONS,
    STACKS,
    "META_DATA",
    "HOST_INFO",
    "NPU_INFO",
    "RANK_DEVICE_MAP",
    "SESSION_TIME_INFO",
    "sqlite_sequence",
)
DESCRIBING_PREFIXES = ("ENUM_", "sqlite_stat")

#: What COMPUTE and SCHEDULE say of a task: the key in its args, and the column. `name` is its name.
FACTS = {
    "name": "name",
    "Task Type": "taskType",
    "OP Type": "opType",
    "OP State": "opState",
    "Input Shapes": "inputShapes",
    "Input Data Types": "inputDataTypes",
    "Input Formats": "inputFormats",
    "Output Shapes": "outputShapes",
    "Output Data Types": "outputDataTypes",
    "Output Formats": "outputFormats",
    "HF32 Eligible": "hf32Eligible",
    "Attributes": "attrInfo",
    "Grid Dim": "gridDim",
    "Block Dim": "blockDim",
    "Block Num": "blockNum",
    "Mix Block Num": "mixBlockNum",
}
#: Facts that are not IDs of texts.
COUNTS = ("Block Num", "Mix Block Num")
#: The same in older versions, whose blockDim is the number of blocks.
OLDER_FACTS = {**FACTS, "Block Num": "blockDim", "Mix Block Num": "mixBlockDim", "Block Dim": "", "Grid Dim": ""}

#: Columns of a part of a collective, and of a collective: the key in its args. Those of enums have the enum's table.
PART_ARGS = {
    "notify_id": "notifyId",
    "task type": "taskType",
    "src rank": "srcRank",
    "dst rank": "dstRank",
    "transport type": "transportType",
    "size(Byte)": "size",
    "data type": "dataType",
    "link type": "linkType",
    "rdma type": "rdmaType",
    "bandwidth(B/s)": "bandwidth",
}
COLLECTIVE_ARGS = {
    "rank_size": "rankSize",
    "connection_id": "connectionId",
    "data_type": "dataType",
    "alg_type": "algType",
    "count": "count",
    "relay": "relay",
    "retry": "retry",
    "op_type": "opType",
}
TEXT_ARGS = ("taskType", "algType", "opType")
ENUM_ARGS = {
    "transportType": "ENUM_HCCL_TRANSPORT_TYPE",
    "dataType": "ENUM_HCCL_DATA_TYPE",
    "linkType": "ENUM_HCCL_LINK_TYPE",
    "rdmaType": "ENUM_HCCL_RDMA_TYPE",
}

#: A call of a layer is named LAYER@NAME in timelines.
LAYERS = {
    "acl": "AscendCL",
    "model": "Model",
    "node": "Node",
    "communication": "Communication",
    "hccl": "Hccl",
    "runtime": "Runtime",
}
QUEUE, PYTHON = 50002, 50003
#: The first connection of torch_npu's own in newer versions.
FIRST_OF_TORCH = 5 << 28
#: Tracks of the analysis of a timeline, by the type of its rows.
OVERLAP_TRACKS = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
#: Types of mstx events that are points.
POINTS = (0, 3)
#: The type of tasks that are mstx events on a stream, and the category of the flows that lead to them.
MARK_TYPE = "MsTx"
#: The connection of mstx events that are on no stream.
NO_STREAM = 4_000_000_000
#: Names of enums, as far as a database may lack them.
ENUMS: dict[str, dict[int, str]] = {
    "ENUM_API_TYPE": {20000: "acl", 15000: "model", 10000: "node", 5500: "communication", 5000: "runtime"},
    "ENUM_HCCL_DATA_TYPE": dict(
        enumerate(
            ("INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32", "FP64", "BFP16")
        )
    ),
}
#: 2^32 − 1 as a text, a context, a model or a connection: none.
NONE = 2**32 - 1
