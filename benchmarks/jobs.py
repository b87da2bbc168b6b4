"""Traces of many ranks, read by one process or several: elapsed and CPU time, and memory of all processes.

    python -m benchmarks.jobs [--files 16] [--megabytes 40] [--gz] [--jobs 1,2] [--rounds 3] [--json]

The files have the shape of a PyTorch trace (shaped_trace) and different digests. The numbers of processes take turns.
CPU time is that of the process that stores, of its main thread, and of all that read; the main thread is the serial
part. Memory is the largest sum of the proportional set sizes of all processes, sampled every 0.1 s.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.shaped_trace import write_shaped

_SECONDS_BETWEEN = 0.1
_HEADS = {
    "seconds": "elapsed s", "total": "CPU s", "storing": "storing", "main": "its main thread", "reading": "reading",
    "mb_per_main_second": "MB per s of it", "peak_bytes": "memory MB",
}  # fmt: skip


def write(folder: Path, files: int, megabytes: int, *, packed: bool) -> int:
    """Write the files; return the size of their text."""
    first = folder / "first.json"
    write_shaped(first, "pytorch", megabytes * 1_000_000)
    text = first.read_bytes()
    first.unlink()
    for number in range(files):
        blanks = b" " * number + b"\n"  # another digest
        if packed:
            with gzip.open(folder / f"rank{number}.json.gz", "wb", compresslevel=6) as stream:
                stream.write(text + blanks)
        else:
            (folder / f"rank{number}.json").write_bytes(text + blanks)
    return files * len(text)


def ingest(folder: str, store: str, jobs: str) -> None:
    """Ingest as the command does, and print the times of this process and of those it started."""
    from traceconv.cli.app import run

    begin, main = time.perf_counter(), time.thread_time()
    code = run(["ingest", folder, "--db", store, "--jobs", jobs])
    seconds, main = time.perf_counter() - begin, time.thread_time() - main
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    storing, reading = (one.ru_utime + one.ru_stime for one in used)
    print(json.dumps({"seconds": seconds, "main": main, "storing": storing, "reading": reading}))
    sys.exit(code)


def measure(folder: Path, jobs: int) -> dict[str, float]:
    """Ingest in a new process."""
    store = folder.parent / "jobs.duckdb"
    program = (
        "import gc, sys; gc.set_threshold(150_000); "
        "from traceconv.base.malloc_tuning import limit_arenas; limit_arenas(); "
        "from traceconv.base.quick_imports import make_imports_quick; make_imports_quick(); "
        "from benchmarks.jobs import ingest; ingest(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, str(folder), str(store), str(jobs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peak = [0]
    watching = threading.Thread(target=_watch, args=(process, peak))
    watching.start()
    output, _ = process.communicate()
    watching.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    store.unlink()
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return {**found, "total": found["storing"] + found["reading"], "peak_bytes": peak[0]}


def _watch(process: subprocess.Popen[str], peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], sum(map(_proportional_bytes, _family(process.pid))))
        time.sleep(_SECONDS_BETWEEN)


def _family(pid: int) -> list[int]:
    """A process and all those below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in below for one in _family(int(child)))]


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> None:
    """Measure by turns."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--files", type=int, default=16)
    arguments.add_argument("--megabytes", type=int, default=40, help="size of the text of a file")
    arguments.add_argument("--gz", action="store_true", help="compress the files")
    arguments.add_argument("--jobs", default="1,2", help="numbers of processes that read")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", action="store_true", help="print a line of JSON per measurement")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "job"
        folder.mkdir()
        size_bytes = write(folder, options.files, options.megabytes, packed=options.gz)
        if not options.json:
            print("jobs  " + "  ".join(f"{head:>15}" for head in _HEADS.values()))
        for _ in range(options.rounds):
            for jobs in map(int, options.jobs.split(",")):
                found = measure(folder, jobs)
                found["mb_per_main_second"] = size_bytes / 1e6 / found["main"]
                if options.json:
                    print(json.dumps({"jobs": jobs, **found}), flush=True)
                    continue
                shown = {**found, "peak_bytes": found["peak_bytes"] / 1e6}
                print(f"{jobs:>4}  " + "  ".join(f"{shown[name]:>15.2f}" for name in _HEADS), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
