"""Small traces of PyTorch's profiler, for tests with many files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def events(count: int = 4, start_us: int = 1_700_000_000_000_000, step_us: int = 1000) -> list[dict[str, Any]]:
    """Steps with a call and a kernel in each."""
    found: list[dict[str, Any]] = []
    for number in range(count):
        ts = start_us + number * step_us
        step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7}
        found.append({**step, "ts": ts, "dur": step_us - 10})
        found.append({**call, "ts": ts + 5, "dur": 3, "args": {"correlation": number + 1}})
        args = {"device": 0, "stream": 7, "correlation": number + 1, "grid": [1, 1, 1], "block": [1, 1, 1]}
        found.append({**kernel, "ts": ts + 20, "dur": step_us // 2, "args": args})
    return found


def write_trace(path: Path, *, rank: int | None = None, seed: int = 0, count: int = 4, **keys: object) -> Path:
    """Write a trace with `keys` at its top level; the times depend on `seed`. Compressed if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    around: dict[str, object] = {"schemaVersion": 1, **keys}
    if rank is not None:
        around["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 8}
    text = json.dumps({**around, "traceEvents": events(count, 1_700_000_000_000_000 + seed)}).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.name.endswith(".gz") else text)
    return path
