"""PyTorch traces whose kernels are launched one by one, and by graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Trace:
    """A trace of one thread and one stream, in the order of calls."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._now, self._correlation = 0, 0

    def _add(self, cat: str, name: str, dur: int, tid: int = 1, **args: object) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "ts": self._now, "dur": dur, "pid": tid, "tid": tid, "args": args}
        self.events.append(event)

    def kernel(self, name: str, grid: int) -> None:
        self._now += 1
        where = {"device": 0, "stream": 7, "correlation": self._correlation, "grid": [grid, 1, 1], "block": [32, 1, 1]}
        self._add("kernel", name, 1, 7, **where)

    def op(self, kernel: str, grid: int = 1, operator: str = "", module: str = "") -> None:
        """An operator that launches a kernel; its shape is that of the grid."""
        self._correlation += 1
        if module:
            self._add("python_function", f"nn.Module: {module}", 5)
        shape = {
            "Input Dims": [[grid, grid], [grid, grid]],
            "Input type": ["float", "float"],
            "Concrete Inputs": ["", ""],
        }
        self._add("cpu_op", operator or f"aten::{kernel}", 5, **shape)
        self._add("cuda_runtime", "cudaLaunchKernel", 3, correlation=self._correlation)
        self.kernel(kernel, grid)
        self._now += 10

    def graph(self, *kernels: tuple[str, int]) -> None:
        self._correlation += 1
        self._add("cuda_runtime", "cudaGraphLaunch", 1, correlation=self._correlation)
        for name, grid in kernels:
            self.kernel(name, grid)
        self._now += 10

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path


LAYER = [("mm", 4), ("relu", 5), ("mm", 6), ("add", 7), ("norm", 8), ("softmax", 9), ("mm", 10), ("gelu", 11)]


def eager(trace: Trace, module: str = "", scale: int = 1) -> Trace:
    for name, grid in LAYER:
        trace.op(name, grid * scale, module=module)
    return trace
