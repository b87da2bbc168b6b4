"""Results of rocprofv3 with every kind of record."""

from __future__ import annotations

from typing import Any


def results() -> dict[str, Any]:
    def times(start: int, end: int, correlation: int) -> dict[str, Any]:
        return {
            "thread_id": 11, "correlation_id": {"internal": correlation, "external": 0},
            "start_timestamp": start, "end_timestamp": end,
        }  # fmt: skip

    def dispatch(number: int, kernel: int = 1) -> dict[str, Any]:
        return {"agent_id": {"handle": 71}, "queue_id": {"handle": 3}, "kernel_id": kernel, "dispatch_id": number}

    return {"rocprofiler-sdk-tool": [{
        "metadata": {"pid": 10, "command": ["/usr/bin/app", "-x"], "note": "{[\"}]"},
        "agents": [
            {"id": {"handle": 70}, "type": 1, "logical_node_type_id": 0, "name": "cpu"},
            {"id": {"handle": 71}, "type": 2, "logical_node_type_id": 0, "name": "gfx942", "product_name": "MI300X"},
        ],
        "counters": [{"id": {"handle": 5}, "name": "SQ_WAVES"}, {"id": {"handle": 6}, "name": "Busy"}],
        "strings": {
            "callback_records": [{"kind": "NONE", "operations": []}],
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "HIP_RUNTIME_API", "operations": ["hipMalloc", "hipLaunchKernel", "hipMemcpy"]},
                {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
                {"kind": "MARKER_CORE_API", "operations": ["roctxRangePushA"]},
            ],
            "marker_api": [{"key": 9, "value": "step 4"}],
        },
        "kernel_symbols": [{"kernel_id": 1, "kernel_name": "_Z3add.kd", "formatted_kernel_name": "add(int*)",
                            "truncated_kernel_name": "add"}],
        "callback_records": {"counter_collection": [{
            "thread_id": 11,
            "dispatch_data": {"correlation_id": {"internal": 2}, "start_timestamp": 1000, "end_timestamp": 1051,
                              "dispatch_info": dispatch(1)},
            "records": [{"counter_id": {"handle": 5}, "value": 12.0}, {"counter_id": {"handle": 5}, "value": 30.0},
                        {"counter_id": {"handle": 6}, "value": 0.5}],
        }]},
        "buffer_records": {
            "kernel_dispatch": [
                {"kind": 7, "operation": 0, **times(1000, 1051, 2), "dispatch_info": dispatch(1)},
                {"kind": 7, "operation": 0, **times(1100, 1203, 3), "dispatch_info": dispatch(2)},
                {"kind": 7, "operation": 0, **times(1300, 1301, 4), "dispatch_info": dispatch(3, kernel=99)},
            ],
            "hip_api": [
                {"kind": 1, "operation": 1, **times(900, 950, 2)}, {"kind": 1, "operation": 1, **times(960, 990, 3)},
                {"kind": 1, "operation": 2, **times(1500, 1900, 5)},
            ],
            "marker_api": [{"kind": 3, "operation": 0, **times(800, 2000, 9)}],
            "memory_copy": [{"kind": 2, "operation": 1, **times(1600, 1700, 5), "src_agent_id": {"handle": 70},
                             "dst_agent_id": {"handle": 71}, "bytes": 4096}],
            "pc_sample_host_trap": [{"record": {"timestamp": 5}}],
        },
    }]}  # fmt: skip


def newer_results() -> dict[str, Any]:
    """The records that versions since ROCm 7 write: of the driver, events of HIP, graphs, allocations."""
    document = results()
    [tool] = document["rocprofiler-sdk-tool"]
    tool["buffer_records"].pop("pc_sample_host_trap")
    tool["strings"]["buffer_records"] += [
        {"kind": "KFD_EVENT_PAGE_FAULT", "operations": ["NONE", "KFD_EVENT_PAGE_FAULT_START"]},
        {"kind": "KFD_QUEUE", "operations": ["NONE", "KFD_QUEUE_EVICT"]},
        {"kind": "HIP_EVENT", "operations": ["HIP_EVENT_RECORD", "HIP_EVENT_WAIT"]},
        {"kind": "KERNEL_DISPATCH", "operations": ["NONE"]},
        {"kind": "HIP_GRAPH", "operations": ["NONE", "HIP_GRAPH_OPERATION_EXEC_LAUNCH"]},
        {"kind": "MEMORY_ALLOCATION", "operations": ["NONE", "MEMORY_ALLOCATION_ALLOCATE"]},
        {"kind": "SCRATCH_MEMORY", "operations": ["NONE", "SCRATCH_MEMORY_ALLOC"]},
    ]
    on_host = {"thread_id": 11, "correlation_id": {"internal": 5, "external": 0}}
    on_gpu = {"agent_id": {"handle": 71}, "queue_id": {"handle": 3}}
    fault = {"kind": 4, "operation": 1, "timestamp": 2100, "pid": 10, "agent_id": {"handle": 71},
             "address": {"handle": 4096}}  # fmt: skip
    evicted = {"kind": 5, "operation": 1, "start_timestamp": 2200, "end_timestamp": 2300, "pid": 10}
    launch = {"kind": 1, "operation": 1, "start_timestamp": 2380, "end_timestamp": 2399}
    tool["buffer_records"]["hip_api"].append({**launch, **on_host, "correlation_id": {"internal": 12, "external": 0}})
    tool["buffer_records"] |= {
        "kfd": [{"record": {"index": 1, "data": fault}}, evicted],  # the two forms in which versions write them
        "hip_event": [{"kind": 6, "operation": 1, "start_timestamp": 2400, "end_timestamp": 2450, **on_host, **on_gpu,
                       "correlation_id": {"internal": 12, "external": 0}, "hip_event_handle": 8}],
        "hip_graph": [{"kind": 8, "operation": 1, "start_timestamp": 1510, "end_timestamp": 1800, **on_host,
                       "graph_exec_id": {"handle": 1}, "kernel_dispatch_count": 2}],
        "memory_allocation": [{"kind": 9, "operation": 1, "start_timestamp": 1520, "end_timestamp": 1530, **on_host,
                               "agent_id": {"handle": 71}, "allocation_size": 64}],
        "scratch_memory": [{"kind": 10, "operation": 1, "start_timestamp": 1540, "end_timestamp": 1550, **on_host,
                            **on_gpu, "flags": 2, "allocation_size": 0}],
    }  # fmt: skip
    return document
