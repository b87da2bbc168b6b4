"""Many small traces, as of the ranks of a job: CPU time per file of one ingest into one store.

    python -m benchmarks.many_files [--files 1200] [--json]

Each file is a PyTorch trace of ten launches with their ops, kernels and flows. Seconds are CPU time (user and system,
all threads), which other load on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import Measured, traceconv

_LAUNCHES = 10


def write(folder: Path, files: int) -> None:
    """Write the traces of `files` ranks."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for rank in range(files):
        events: list[dict[str, object]] = []
        for number in range(_LAUNCHES):
            at = 1_700_000_000_000_000 + rank * 1_000_000 + number * 100
            host = {"pid": rank + 10, "tid": rank + 10}
            stream, flow = {"pid": 0, "tid": 7}, {"id": number, "cat": "ac2g", "name": "ac2g"}
            launch = {"correlation": number, "External id": number}
            kernel = {"device": 0, "stream": 7, "correlation": number, "grid": [8, 1, 1], "block": [256, 1, 1]}
            events += [
                {"ph": "X", "cat": "cpu_op", "name": f"aten::op{number}", **host, "ts": at, "dur": 60.5},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **host, "ts": at + 10, "dur": 8.25,
                 "args": launch},
                {"ph": "X", "cat": "kernel", "name": f"gemm_{number}", **stream, "ts": at + 30, "dur": 25.125,
                 "args": kernel},
                {"ph": "s", **flow, **host, "ts": at + 10},
                {"ph": "f", "bp": "e", **flow, **stream, "ts": at + 30},
            ]  # fmt: skip
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))


def reading(files: int, folder: Path) -> Measured:
    """Ingest generated traces in a new process into a new store in `folder`."""
    traces, store = folder / "many_files", folder / "benchmark_many_files.duckdb"
    write(traces, files)
    store.unlink(missing_ok=True)
    done = traceconv("ingest", traces, "--db", store)
    shutil.rmtree(traces)
    store.unlink()
    return done


def main() -> None:
    """Measure one ingest."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--files", type=int, default=1200)
    arguments.add_argument("--json", action="store_true", help="print the results as JSON")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = reading(options.files, Path(folder))
    if options.json:
        print(json.dumps({"files": options.files, "cpu_seconds": done.cpu_seconds, "peak_bytes": done.peak_bytes}))
    else:
        each = done.cpu_seconds * 1e3 / options.files
        print(f"{done.cpu_seconds:.1f} s of CPU, {each:.1f} ms per file, {done.peak_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
