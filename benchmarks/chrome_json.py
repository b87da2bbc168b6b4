"""Trace JSON: ingest compared with json.load of the same file in the same run.

    python -m benchmarks.chrome_json [--megabytes 500] [--kinds compact pytorch chromium …] [--json]
    python -m benchmarks.chrome_json --like trace.json.gz [--megabytes 500]

Each kind of file is written to a temporary folder, read by `json.load` in a new process (with the garbage collector on,
the default, and off), and ingested by `traceconv`. The lower bound of an ingest is the sum of three times: what the
libraries take for two rows, decoding the events to columns in one thread, and inserting the resulting tables into a
new store from Arrow tables in memory with both. The output has seconds, CPU seconds, MB/s, peak memory and the ratio
of rates: to json.load, and for damaged files to the undamaged file with the same events.

compact   events of PyTorch's profiler: operators, calls, kernels, flows; no spaces
indented  the same, one key per line
flows     small events and many flows
rarer     events of other writers: counters, async events, begins and ends, IDs and rarer keys of slices
damaged   compact, with one malformed event per MB
wrecked   compact, with a NaN or a raw tab in every event

Kinds with the shapes of real traces (`benchmarks/shapes`, `trace_shape.py`): pytorch, pytorch_stacks (with Python
functions), pytorch_memory (with allocations), torch_npu, jax, chromium, dftracer. json.load cannot read dftracer,
which has an event per line: its lines are loaded one by one.

`--like` specifies a real PyTorch trace whose events are repeated with later times and new IDs: `like` in their original
format, `like compact` without spaces.

`--processor` specifies a binary of Perfetto's trace_processor to measure as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import ROWS_ALONE, Measured, part, run, traceconv
from benchmarks.repeated_trace import write_repeated
from benchmarks.shaped_trace import KINDS as SHAPED
from benchmarks.shaped_trace import write_shaped

_LOAD = "import gc, json, sys; sys.argv[2] == 'off' and gc.disable(); json.load(open(sys.argv[1], 'rb'))"
_LOAD_LINES = (
    "import gc, json, sys; sys.argv[2] == 'off' and gc.disable(); "
    "events = [json.loads(line) for line in open(sys.argv[1], 'rb') if line.startswith(b'{')]"
)
MADE_UP = ("compact", "indented", "flows", "rarer", "damaged", "wrecked")
KINDS = (*MADE_UP, *SHAPED)
LOWER_BOUND = "lower bound"
_BASE_US = 1_700_000_000_000_000


def _events(rng: random.Random) -> Iterator[str]:
    """Endless events of PyTorch's profiler: an operator, two calls inside it, a kernel, a flow."""
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


def _rarer_events(rng: random.Random) -> Iterator[str]:
    """Endless events other than plain slices, as other tools write them, one of each kind in turn."""
    for number in itertools.count():
        ts, thread, name = _BASE_US + 20 * number, rng.randrange(8), f"work {rng.randrange(300)}"
        where = f'"pid": 42, "tid": {thread}, "ts": {ts}.{rng.randrange(1000):03d}'
        at_end = f'"pid": 42, "tid": {thread}, "ts": {ts + 9}'
        local = f'"id2": {{"local": "0x{number % 1000:x}"}}'
        memory = f'"allocated": {rng.randrange(10**9)}, "reserved": {10**9}'
        yield f'"ph": "X", "id": {number}, "cat": "POSIX", "name": "{name}", {where}, "dur": 7, "args": {{"fd": 3}}'
        yield f'"ph": "X", "cat": "v8", "name": "{name}", {where}, "dur": 5, "cname": "good", "sf": {thread}'
        yield f'"ph": "C", "name": "memory", {where}, "args": {{{memory}}}'
        yield f'"ph": "C", "name": "utilisation", "id": {thread}, {where}, "args": {{"%": {rng.random():.4f}}}'
        yield f'"ph": "b", "cat": "ipc", "name": "{name}", {local}, {where}, "args": {{"size": {number}}}'
        yield f'"ph": "e", "cat": "ipc", "name": "{name}", {local}, {at_end}'
        yield f'"ph": "B", "cat": "f", "name": "{name}", {where}, "args": {{"line": {thread}}}'
        yield f'"ph": "E", "cat": "f", "name": "{name}", {at_end}, "args": {{"returned": {number}}}'
        yield f'"ph": "i", "s": "t", "cat": "mark", "name": "{name}", {where}, "args": {{"frame": {number}}}'


def _compact(event: str) -> str:
    return "{" + event.replace(", ", ",").replace(": ", ":") + "}"


def _indented(event: str) -> str:
    return "  {\n    " + event.replace(', "', ',\n    "') + "\n  }"


def _small(event: str) -> str:
    """Drop the args of operators."""
    head, _, args = event.partition(', "args"')
    return _compact(head if args else event)


def write(path: Path, kind: str, size_bytes: int) -> None:
    """Write a trace of about `size_bytes`."""
    layout: Callable[[str], str] = {"indented": _indented, "flows": _small}.get(kind, _compact)
    written, next_damage = 0, 1 << 20
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": [\n')
        events = _rarer_events if kind == "rarer" else _events
        for number, event in enumerate(events(random.Random(1))):
            text = layout(event)
            if kind == "wrecked":
                text = text.replace('"args":{', '"args":{"rate":NaN,', 1)
                text = text if "NaN" in text else text.replace('"name":"', '"name":"\t', 1)
            elif kind == "damaged" and written > next_damage:
                text, next_damage = text.replace('"name":"', '"name":', 1), next_damage + (1 << 20)
            file.write((",\n" if number else "") + text)
            written += len(text)
            if written > size_bytes:
                break
        file.write("\n]}\n")


@dataclass(frozen=True)
class Reading:
    """One measurement: a file read by a program.

    cpu_seconds, peak_bytes  0 for a lower bound
    parts                    the times that a lower bound is the sum of
    """

    kind: str
    by: str
    size_bytes: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    parts: str = ""

    @property
    def bytes_per_s(self) -> float:
        """Bytes read per second."""
        return self.size_bytes / self.seconds


def readings(
    kinds: Sequence[str],
    size_bytes: int,
    processor: str | None = None,
    like: Path | None = None,
    *,
    folder: Path | None = None,
    collector: bool = True,
    compare: bool = True,
) -> Iterator[Reading]:
    """Write each kind of file and measure each reader.

    like       the trace that the kinds `like …` repeat
    folder     for the files; default: that of temporary files
    collector  measure json.load with the garbage collector on, too
    compare    measure other readers than traceconv, and lower bounds
    """
    with tempfile.TemporaryDirectory(dir=folder) as files:
        for kind in kinds:
            path, store = Path(files) / f"{kind}.json", Path(files) / f"{kind}.duckdb"
            if like is not None:
                write_repeated(path, like, size_bytes, compact=kind == "like compact")
            elif kind in SHAPED:
                write_shaped(path, kind, size_bytes)
            else:
                write(path, kind, size_bytes)
            size = path.stat().st_size

            def reading(by: str, measured: Measured, kind: str = kind, size: int = size) -> Reading:
                return Reading(kind, by, size, measured.seconds, measured.cpu_seconds, measured.peak_bytes)

            compared = compare and kind not in ("damaged", "wrecked")  # no other program reads these
            if compared:
                load = _LOAD_LINES if kind == "dftracer" else _LOAD
                if collector:
                    yield reading("json.load", run([sys.executable, "-c", load, path, "on"]))
                yield reading("json.load, no collector", run([sys.executable, "-c", load, path, "off"]))
                if processor:
                    yield reading("trace_processor", run([processor, "-Q", "SELECT 1", path]))
            yield reading("traceconv ingest", traceconv("ingest", path, "--db", store, accepted=(0, 3)))
            if compared:
                yield _lower_bound(kind, path, store)
            path.unlink()
            store.unlink()


def _lower_bound(kind: str, trace: Path, store: Path) -> Reading:
    """What the ingest of a trace into a store takes at least. Changes the store."""
    seconds = {
        "decoding": part("decoding", trace)["seconds"],
        "bulk insert": part("insert", store, store.with_suffix(".insert"))["seconds"],
        "start": min(run([sys.executable, "-c", ROWS_ALONE, store]).seconds for _ in range(2)),
    }
    parts = ", ".join(f"{name} {seconds[name]:.2f} s" for name in ("start", "decoding", "bulk insert"))
    return Reading(kind, LOWER_BOUND, trace.stat().st_size, sum(seconds.values()), 0, 0, parts)


def main() -> None:
    """Measure each kind."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--megabytes", type=int, default=500)
    arguments.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, metavar="KIND")
    arguments.add_argument("--like", type=Path, help="a real trace to repeat, instead of the kinds")
    arguments.add_argument("--processor", help="a trace_processor_shell to measure as well")
    arguments.add_argument("--json", action="store_true", help="print the results as JSON")
    options = arguments.parse_args()
    base: dict[str, float] = {}
    found = []
    kinds = ("like", "like compact") if options.like else options.kinds
    for one in readings(kinds, options.megabytes * 1_000_000, options.processor, options.like):
        found.append(asdict(one))
        if options.json:
            continue
        key = "compact" if one.kind in ("damaged", "wrecked") else one.kind + " json.load"
        against = base.get(key)
        compared = "" if against is None else f"  {one.bytes_per_s / against:5.2f} × {key.split()[-1]}"
        base[one.kind if one.by == "traceconv ingest" else f"{one.kind} {one.by}"] = one.bytes_per_s
        rate, peak = one.bytes_per_s / 1e6, f"{one.peak_bytes / 1e6:8.0f} MB" if one.peak_bytes else "  " + one.parts
        print(
            f"{one.kind:<15}{one.by:<26}{one.seconds:8.2f} s{one.cpu_seconds:8.2f} s CPU{rate:9.1f} MB/s"
            f"{peak}{compared}",
            flush=True,
        )
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
