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
