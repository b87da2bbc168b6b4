"""Write cupti_monitor.json.gz and cupti_monitor.pftrace: made-up activity, as the CUPTI monitor of PyTorch writes it.

Run it with a Python that has torch 2.14 for CUDA; a GPU, and the package cupti-python, are not needed.
"""

from __future__ import annotations

import enum
import json
import random
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

CALLS = {"LaunchKernel_v7000": 211, "MemcpyAsync_v3020": 41, "MemsetAsync_v3020": 51, "GraphLaunch_v10000": 311,
         "StreamSynchronize_v3020": 131, "DeviceSynchronize_v3020": 165}  # fmt: skip
CALLS = {f"cuda{name}": number for name, number in CALLS.items()}
cupti: Any = ModuleType("cupti.cupti")
cupti.Runtime_api_trace_cbid, cupti.Driver_api_trace_cbid = enum.IntEnum("R", CALLS), enum.IntEnum("D", {"cuInit": 1})
sys.modules |= {"cupti": ModuleType("cupti"), "cupti.cupti": cupti}

from torch.profiler._cupti.monitor_trace import merge_trace_window_into_chrome_trace  # type: ignore[import-not-found] # noqa: E402

BASE_NS, START_NS = 1_759_300_074_000_000_000, 1_764_000_000_123_456_789
PID, TID, NO_STREAM, GRAPH = 4242, 100, 2**32 - 1, 9 << 32
Rows = dict[str, list[dict[str, Any]]]


class Program:
    """One step after another: eager work on streams 7 and 20, a graph of five nodes on 13 and 14, and waits."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.ns = START_NS
        self.rows: Rows = {}
        self.host: list[str] = []
        self.free_ns = {7: START_NS, 20: START_NS}
        self.correlation, self.external = 100, 0

    def add(self, kind: str, start: int, dur: int, **columns: object) -> None:
        self.rows.setdefault(kind, []).append({"start_ns": start, "end_ns": start + dur, **columns})

    def on_stream(self, kind: str, start: int, dur: int, stream: int, node: int = 0, **columns: object) -> int:
        node = node and GRAPH + node
        self.add(
            kind, start, dur, device_id=0, context_id=1, stream_id=stream, correlation_id=self.correlation,
            graph_id=node >> 32, graph_node_id=node, annotation=None, channel=1, channel_type=1, **columns,
        )  # fmt: skip
        return start + dur

    def call(self, name: str, dur: int) -> None:
        self.correlation += 1
        number = next(value for key, value in CALLS.items() if key.startswith(name))
        self.add(
            "cuda_runtime", self.ns, dur, cbid=number, process_id=PID, thread_id=TID, correlation_id=self.correlation
        )
        self.ns += dur + 700

    def on_host(self, cat: str, name: str, start: int) -> None:
        ts, dur = (f"{ns // 1000}.{ns % 1000:03d}" for ns in (start - BASE_NS, self.ns - start))
        times = f'"ts": {ts}, "dur": {dur}'
        rest = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": TID, "args": {"External id": self.external}}
        self.host.append(f"{json.dumps(rest)[:-1]}, {times}}}")

    def operator(self, number: int) -> None:
        start, stream, dur = self.ns, 7 if number % 3 else 20, self.rng.randrange(3000, 30_000)
        self.external += 1
        self.ns += 900
        self.call("cudaMemcpy" if number == 4 else "cudaMemset" if number == 5 else "cudaLaunch", 4000)
        at = max(self.free_ns[stream], self.ns + self.rng.randrange(1000, 3000))
        if number == 4:
            end = self.on_stream(
                "gpu_memcpy", at, dur, stream, bytes=1 << 20, copy_kind=1, src_kind=2, dst_kind=3, flags=1
            )
        elif number == 5:
            end = self.on_stream("gpu_memset", at, dur, stream, bytes=4096, value=0, memory_kind=3, flags=0)
        else:
            end = self.kernel(at, dur, stream, f"kernel_{number}<float, 4>(float*)")
        self.free_ns[stream] = end + self.rng.randrange(100, 900)
        ids = {"correlation_id": self.correlation, "external_id": self.external, "user_external_id": self.external}
        self.rows.setdefault("external_correlation", []).append(ids)
        self.on_host("cpu_op", f"aten::op{number}", start)
        self.ns += 200

    def kernel(self, start: int, dur: int, stream: int, name: str, node: int = 0) -> int:
        sizes = dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)
        return self.on_stream(
            "kernel", start, dur, stream, node, name=name, grid_x=8, block_x=256, **sizes, registers_per_thread=32,
            static_shared_memory=0, dynamic_shared_memory=1024, priority=0, queued=0,
        )  # fmt: skip

    def graph(self) -> None:
        self.call("cudaGraphLaunch", 9000)
        end = self.kernel(max(*self.free_ns.values(), self.ns + 1500), 5000, 13, "graph_a", 1)
        self.on_stream("graph_event_node", end + 100, 1, 14, 4)
        end = self.kernel(end + 200, 4000, 13, "graph_b", 2)
        end = self.kernel(end, 3000, 14, "graph_c", 3)
        waits = {"process_id": PID, "thread_id": 777, "host_fn": "my_callback", "host_fn_addr": 4096}
        self.free_ns = dict.fromkeys((7, 20), self.on_stream("graph_host_node", end + 500, 2000, 14, 5, **waits) + 100)

    def wait(self, name: str, sync_type: int, stream: int, dur: int) -> None:
        start = self.ns + 300
        self.call(name, dur)
        self.add(
            "cuda_sync", start, dur - 600, context_id=1, sync_type=sync_type, stream_id=stream,
            correlation_id=self.correlation, cuda_event_id=0, cuda_event_sync_id=0,
        )  # fmt: skip

    def step(self, number: int) -> None:
        start = self.ns
        self.ns += 40
        for operator in range(6):
            self.operator(operator)
        self.graph()
        self.wait("cudaStreamSynchronize", 3, 7, self.free_ns[7] + 2000 - self.ns)
        self.wait("cudaDeviceSynchronize", 4, NO_STREAM, 2000)
        self.on_host("user_annotation", f"ProfilerStep#{number}", start)
        self.ns += 5000


def column(values: list[Any]) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64 if isinstance(values[0], int) else object)


def main() -> None:
    program = Program()
    for number in range(5):
        program.step(number)
    for number in range(10):
        program.rows.setdefault("pm_sampling", []).append(
            {"start_ns": START_NS + number * 10_000, "device_id": 0, "sm__cycles_active.avg.pct": number * 10}
        )
    columns = {
        kind: {name: column([row[name] for row in rows]) for name in rows[0]} for kind, rows in program.rows.items()
    }
    window = {
        "columns": columns,
        "graph_deps": {GRAPH + 2: [GRAPH + 1], GRAPH + 3: [GRAPH + 2], GRAPH + 4: [GRAPH + 1], GRAPH + 5: [GRAPH + 3]},
        "thread_resource_map": {PID: {TID: TID}},
        "user_annotations": dict.fromkeys(range(2, program.external, 3), "forward"),
    }
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "baseTimeNanoseconds": BASE_NS}
    with tempfile.TemporaryDirectory() as folder:
        host = Path(folder) / "host.json"
        host.write_text(f'{json.dumps(head)[:-1]}, "traceEvents": [{", ".join(program.host)}]}}')
        for name in ("cupti_monitor.json.gz", "cupti_monitor.pftrace"):
            merge_trace_window_into_chrome_trace(host, Path(__file__).with_name(name), window, trace_name="trace")


if __name__ == "__main__":
    main()
