"""Trace JSON: ingest side by side with json.load of the same file, in the same run.

    python -m benchmarks.chrome_json [--megabytes 500] [--kinds compact indented flows damaged] [--processor BINARY]

Each kind is written to a temporary folder, read by `json.load` in a process of its own (with the garbage collector on,
as it is by default, and off), and ingested by `traceconv`. What is printed are seconds, MB/s, the peak of memory and
the ratio of the rates. `--processor` names a binary of Perfetto's trace_processor, to be measured too.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Measured, run, traceconv

_LOAD = "import gc, json, sys; sys.argv[2] == 'off' and gc.disable(); json.load(open(sys.argv[1], 'rb'))"
_BASE_US = 1_700_000_000_000_000


def _events(rng: random.Random) -> Iterator[str]:
    """Events as PyTorch's profiler writes them: an operator, two calls inside of it, a kernel, a flow; for ever."""
    at = 0.0
    correlation = 0
    while True:
        correlation += 1
        dur = rng.randrange(20_000, 90_000) / 1000
        name = f"aten::op_{rng.randrange(300)}"
        shape = [rng.randrange(1, 2048) for _ in range(4)]
        ts = _BASE_US + int(at)
        fraction = f"{rng.randrange(1000):03d}"
        yield (
            f'"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 42, "tid": 42, "ts": {ts}.{fraction}, "dur": {dur}, '
            f'"args": {{"External id": {correlation}, "Input Dims": [{shape}, [], []], "Ev Idx": {correlation}, '
            f'"Input type": ["float", "", ""], "Concrete Inputs": ["", "1", "{rng.random()}"]}}'
        )
        yield (
            f'"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 42, "tid": 42, '
            f'"ts": {ts + 5}.{fraction}, "dur": 6.25, '
            f'"args": {{"External id": {correlation}, "cbid": 211, "correlation": {correlation}}}'
        )
        yield (
            f'"ph": "X", "cat": "kernel", "name": "void at::native::kernel_{rng.randrange(200)}<float, 4>(int)", '
            f'"pid": 0, "tid": 7, "ts": {ts + 30}.{fraction}, "dur": {dur / 2:.3f}, '
            f'"args": {{"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation}, '
            f'"registers per thread": 32, "grid": [128, 1, 1], '
            f'"block": [256, 1, 1], "est. achieved occupancy %": {rng.randrange(100)}}}'
        )
        yield (
            f'"ph": "s", "id": {correlation}, "pid": 42, "tid": 42, "ts": {ts + 5}.{fraction}, '
            '"cat": "ac2g", "name": "ac2g"'
        )
        yield (
            f'"ph": "f", "id": {correlation}, "pid": 0, "tid": 7, "ts": {ts + 30}.{fraction}, "cat": "ac2g", '
            '"name": "ac2g", "bp": "e"'
        )
        at += 100


def _compact(event: str) -> str:
    return "{" + event.replace(", ", ",").replace(": ", ":") + "}"


def _indented(event: str) -> str:
    return "  {\n    " + event.replace(', "', ',\n    "') + "\n  }"


def _small(event: str) -> str:
    """Events that say little: of operators no args."""
    head, _, args = event.partition(', "args"')
    return _compact(head if args else event)


def write(path: Path, kind: str, size_bytes: int) -> None:
    """A trace of about `size_bytes`; `damaged` has one broken event in each MB."""
    layout: Callable[[str], str] = {"indented": _indented, "flows": _small}.get(kind, _compact)
    written, next_damage = 0, 1 << 20
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": [\n')
        for number, event in enumerate(_events(random.Random(1))):
            text = layout(event)
            if kind == "damaged" and written > next_damage:
                text, next_damage = text.replace('"name":"', '"name":', 1), next_damage + (1 << 20)
            file.write((",\n" if number else "") + text)
            written += len(text)
            if written > size_bytes:
                break
        file.write("\n]}\n")


def _line(what: str, size: int, measured: Measured, base: float | None) -> float:
    rate = size / measured.seconds / 1e6
    ratio = f"  {rate / base:5.1f} × json.load" if base else ""
    print(
        f"  {what:<28}{measured.seconds:8.2f} s{rate:9.1f} MB/s{measured.peak_bytes / 1e6:9.0f} MB{ratio}", flush=True
    )
    return rate


def main() -> None:
    """Measures each kind."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--megabytes", type=int, default=500)
    arguments.add_argument("--kinds", nargs="+", default=["compact", "indented", "flows", "damaged"])
    arguments.add_argument("--processor", help="a trace_processor_shell to measure too")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in asked.kinds:
            path, store = Path(folder) / f"{kind}.json", Path(folder) / f"{kind}.duckdb"
            write(path, kind, asked.megabytes * 1_000_000)
            size = path.stat().st_size
            print(f"{kind}: {size / 1e6:.0f} MB")
            base = None
            if kind != "damaged":  # json.load reads no damaged file
                base = _line("json.load", size, run([sys.executable, "-c", _LOAD, path, "on"]), None)
                _line("json.load, no collector", size, run([sys.executable, "-c", _LOAD, path, "off"]), base)
            if asked.processor and kind != "damaged":
                _line("trace_processor", size, run([asked.processor, "-Q", "SELECT 1", path]), base)
            options = ["--db", store] if kind != "damaged" else ["--db", store, "--max-ratio", "1000"]
            try:
                _line("traceconv ingest", size, traceconv("ingest", path, *options), base)
            except RuntimeError as error:
                if "exit code 3" not in str(error):
                    raise
                print("  traceconv ingest: read with losses (exit code 3); its seconds stand in what it says:")
                print("  " + next(line.strip() for line in str(error).splitlines() if " records, " in line))


if __name__ == "__main__":
    main()
