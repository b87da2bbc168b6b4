"""Measure the important paths and report which targets are met.

python -m benchmarks                  10 million records, about ten minutes
python -m benchmarks --records 1000000
python -m benchmarks --large 50000000 also check that memory does not grow with the input
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import many_files, nsys, perfetto
from benchmarks.chrome_json import KINDS, readings
from benchmarks.measure import drop_caches, part, run, traceconv

DATA = Path(__file__).parent / "data"
MB = 1_000_000
#: Records for which the targets on memory and report times are defined.
FULL_SIZE = 10_000_000
#: Size of the trace files.
TRACE_BYTES = 500_000_000
#: Events of the Perfetto trace.
PERFETTO_EVENTS = 1_000_000
#: Events of the Nsight Systems report, and number of small files.
NSYS_EVENTS = 1_000_000
SMALL_FILES = 1_200
#: Targets in CPU time: of an event of the report, of all small files, and events of the Perfetto trace per second.
_NSYS_SECONDS, _SMALL_FILES_SECONDS, _PERFETTO_RATE = 4e-6, 8, 500_000
#: Targets for trace JSON: 1.5 times the rate of Perfetto's trace_processor, in multiples of json.load without garbage
#: collection, as measured on a machine that has both.
_TIMES_FAST_LOAD = {
    "compact": 1.6, "indented": 2.4, "flows": 2.9, "rarer": 2.6,
    "pytorch": 1.7, "pytorch_stacks": 1.7, "pytorch_memory": 1.5,
}  # fmt: skip
_FAST_LOAD = "json.load, no collector"
#: Targets relative to message objects: 5 and 1.5 M slices/s on a machine where those reach 0.15 M/s.
_TIMES_OBJECTS = {
    ("read", "traceconv reader"): 1.5,
    ("perfetto, no args", "traceconv export perfetto"): 33,
    ("perfetto", "traceconv export perfetto"): 10,
}
#: Exports, and the targets of timelines in million slices per second.
_SLICE_RATES = {"chrome": 1.5, "perfetto": 1.5, "perfetto --no-args": 5.0, "msprof": None, "parquet": None}


@dataclass(frozen=True)
class Result:
    """A measurement. `met` is None without a target, or if the input is too small for it."""

    name: str
    value: float
    shown: str
    target: str
    met: bool | None


class Bench:
    """Run the measurements in sequence and print each result at once."""

    def __init__(self, records: int, repeat: int) -> None:
        self.results: list[Result] = []
        self._records = records
        self._repeat = repeat
        self._full = records >= FULL_SIZE

    def all(self, large: int | None) -> None:
        """Run all measurements. `large`: records of an additional large ingest."""
        self._startup()
        self._overhead()
        capture, size = self._capture(self._records)
        store = DATA / "bench.duckdb"
        self._wire(capture)
        rss = self._ingest(capture, size, store)
        self._store(store)
        self._export(store)
        self._perfetto(store)
        self._nsys()
        self._many_files()
        self._trace_json()
        if large is not None:
            self._flatness(large, rss)

    def _add(self, name: str, value: float, shown: str, target: str = "", met: bool | None = None) -> None:
        result = Result(name, value, shown, target, met)
        self.results.append(result)
        print(_line(result), flush=True)

    def _startup(self) -> None:
        nothing = _best_of(10, lambda: run([sys.executable, "-c", "pass"]).seconds)
        seconds = _best_of(10, lambda: traceconv("--help").seconds)
        ratio = seconds / nothing
        target = "≤ 13.6 × python -c pass"  # 150 ms if that takes 11 ms
        shown = f"{seconds * 1e3:.0f} ms = {ratio:.1f} × {nothing * 1e3:.0f} ms"
        self._add("traceconv --help", ratio, shown, target, ratio <= 13.6)

    def _overhead(self) -> None:
        """Profiling overhead."""
        found = json.loads(run([sys.executable, "-m", "benchmarks.overhead", "--json"]).output)
        for what, name in (("span", "span"), ("task", "task record")):
            off, on = found[f"{what}_off_ns"], found[f"{what}_on_ns"]
            self._add(f"{name}, not profiled", off, f"{off:,.0f} ns")
            self._add(f"{name}, profiled", on, f"{on:,.0f} ns")
        for level, goal in (("1", 1.03), ("2", 1.08)):
            ratio = found["levels"][level]
            value = 100 * (ratio["wall"] - 1)
            shown = f"{value:+.1f} % of {ratio['plain_us']:.0f} µs per op, without kernels"
            met = ratio["wall"] <= goal
            self._add(f"profiled ÷ plain, level {level}", ratio["wall"], shown, f"≤ {goal - 1:+.0%}", met)
        ratio = found["computing"]
        shown = f"{100 * (ratio['wall'] - 1):+.1f} % of {ratio['plain_us']:.0f} µs per op, with kernels"
        self._add("profiled ÷ plain, level 2", ratio["wall"], shown)

    def _capture(self, records: int) -> tuple[Path, int]:
        """Generate a capture unless it exists; return its folder and its number of records."""
        folder = DATA / f"{records}"
        if not any(folder.glob("PROF_*/manifest.json")):
            shutil.rmtree(folder, ignore_errors=True)
            generated = run([sys.executable, "-m", "benchmarks.generate", "--records", str(records), "-o", folder])
            self._add("generate", generated.seconds, f"{generated.seconds:.1f} s, {generated.peak_bytes / MB:.0f} MB")
        (manifest,) = folder.glob("PROF_*/manifest.json")
        files = json.loads(manifest.read_text("utf-8"))["files"]
        return manifest.parent, sum(file["record_count"] for file in files)

    def _wire(self, capture: Path) -> None:
        decoded = part("decode", capture)
        rate = decoded["bytes"] / decoded["seconds"] / MB
        self._add("wire decode", rate, f"{rate:,.0f} MB/s")
        nested = part("nesting", capture)
        rate = nested["slices"] / nested["seconds"] / 1e6
        self._add("nesting, begin/end", rate, f"{rate:.1f} M slices/s", "≥ 5 M slices/s", rate >= 5)
        paired = part("pairing", capture)
        rate = paired["slices"] / paired["seconds"] / 1e6
        self._add("pairing", rate, f"{rate:.1f} M slices/s")

    def _ingest(self, capture: Path, records: int, store: Path) -> int:
        """Ingest, alternating with a bulk insert of the same rows; return the peak memory."""
        seconds, insert_seconds, peak = [], [], 0
        for _ in range(self._repeat):
            store.unlink(missing_ok=True)
            ingested = traceconv("ingest", capture, "--db", store)
            seconds.append(ingested.seconds)
            peak = max(peak, ingested.peak_bytes)
            insert_seconds.append(part("insert", store, DATA / "insert.duckdb")["seconds"])
        best, best_insert = min(seconds), min(insert_seconds)
        rate = records / best
        self._add("ingest", rate, f"{records:,} records in {best:.2f} s: {rate / 1e6:.2f} M/s")
        ratio = best_insert / best
        met = ratio >= 0.75 if self._full else None
        self._add("ingest ÷ bulk insert", ratio, f"{ratio:.0%} of its rate ({best_insert:.2f} s)", "≥ 75 %", met)
        within = peak <= 450 * MB if self._full else None
        self._add("ingest, peak memory", peak, f"{peak / MB:.0f} MB", "≤ 450 MB", within)
        size = store.stat().st_size
        self._add("store size", size, f"{size / MB:.0f} MB, {size / records:.1f} bytes per record")
        return peak

    def _store(self, store: Path) -> None:
        """Reports, on a store whose run is repeated until it has as many tasks as the capture has records."""
        multiplied = DATA / "tasks.duckdb"
        tasks = part("multiply", store, multiplied, str(self._records))["tasks"]
        store = multiplied
        million = f"{tasks / 1e6:.1f} M tasks"
        full = tasks >= FULL_SIZE
        warm = statistics.median(traceconv("report", "op-statistic", "--db", store).seconds for _ in range(5))
        self._add(
            "open + op-statistic, warm", warm, f"{warm:.2f} s ({million})", "≤ 0.3 s", warm <= 0.3 if full else None
        )
        if drop_caches():
            # Starting the program itself is also cold: --version shows its share.
            empty = _cold(["--version"])
            cold = _cold(["report", "op-statistic", "--db", str(store)])
            shown = f"{cold:.2f} s, of which {empty:.2f} s traceconv --version"
            self._add("open + op-statistic, cold", cold, shown, "≤ 0.6 s", cold <= 0.6 if full else None)
        for name, seconds in part("reports", store, "20").items():
            met = seconds <= 0.5 if full else None
            self._add(f"report {name}, top 20", seconds, f"{seconds:.3f} s ({million})", "≤ 0.5 s", met)
        multiplied.unlink()

    def _export(self, store: Path) -> None:
        rows = part("counts", store)
        slices = rows["task"] + rows["api"] + rows["range"]
        full = slices >= 3_000_000
        for what, least in _SLICE_RATES.items():
            target = DATA / "export"
            done = traceconv("export", *what.split(), "-o", target, "--db", store)
            size = sum(file.stat().st_size for file in (target, *target.rglob("*")) if file.is_file())
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink()
            rate = slices / done.seconds / 1e6
            shown = f"{rate:.2f} M slices/s ({slices / 1e6:.1f} M slices, {size / MB:.0f} MB)"
            shown += f", {done.cpu_seconds:.1f} s of CPU"
            peak = done.peak_bytes
            memory = f"export {what}, peak memory", peak, f"{peak / MB:.0f} MB"
            if least is None:
                self._add(f"export {what}", rate, shown)
                self._add(*memory)
            else:
                self._add(f"export {what}", rate, shown, f"≥ {least} M/s", rate >= least if full else None)
                self._add(*memory, "≤ 350 MB", peak <= 350 * MB if full else None)

    def _perfetto(self, store: Path) -> None:
        """Perfetto traces read and written, against message objects; trace JSON written, against json.dumps."""
        found: list[perfetto.Reading] = []
        events = PERFETTO_EVENTS if self._full else PERFETTO_EVENTS // 10
        for one in (*perfetto.readings(events, DATA), *perfetto.exports(store, DATA)):
            found.append(one)
            shown = f"{one.per_second / 1e6:.3f} M/s of CPU time"
            if one.peak_bytes:
                shown += f", {one.peak_bytes / MB:.0f} MB"
            target, met, ratio = "", None, perfetto.ratio(one, found)
            if ratio is not None:
                shown += f", {ratio:.1f} ×"
                least = _TIMES_OBJECTS.get((one.what, one.by))
                if least is not None:
                    target, met = f"≥ {least} × objects", ratio >= least if self._full else None
            if one.by == "traceconv ingest":
                target, met = "≥ 0.5 M/s", one.per_second >= _PERFETTO_RATE if self._full else None
            self._add(f"{one.what}: {one.by.removeprefix('traceconv ')}", one.per_second, shown, target, met)

    def _nsys(self) -> None:
        """A report of Nsight Systems, against reading all its rows with SQLite from Python."""
        events = NSYS_EVENTS if self._full else NSYS_EVENTS // 10
        done, rows_seconds = nsys.reading(events, DATA)
        each = done.cpu_seconds / events
        shown = f"{each * 1e6:.2f} µs of CPU per event, {done.cpu_seconds / rows_seconds:.1f} × sqlite3's rows"
        met = each <= _NSYS_SECONDS if self._full else None
        self._add("nsys: ingest", each, f"{shown}, {done.peak_bytes / MB:.0f} MB", "≤ 4 µs per event", met)

    def _many_files(self) -> None:
        files = SMALL_FILES if self._full else SMALL_FILES // 10
        done = many_files.reading(files, DATA)
        shown = f"{done.cpu_seconds:.1f} s of CPU ({files} files), {done.peak_bytes / MB:.0f} MB"
        met = done.cpu_seconds <= _SMALL_FILES_SECONDS if self._full else None
        self._add("small files: ingest", done.cpu_seconds, shown, "≤ 8 s of CPU", met)

    def _trace_json(self) -> None:
        """Trace JSON against json.load of the same file; damaged files against the undamaged one."""
        size = TRACE_BYTES if self._full else TRACE_BYTES // 10
        rates: dict[tuple[str, str], float] = {}
        for one in readings(KINDS, size):
            rates[one.kind, one.by] = one.bytes_per_s
            rate, peak = one.bytes_per_s / MB, one.peak_bytes / MB
            shown = f"{rate:.1f} MB/s, {peak:.0f} MB"
            target, met = "", None
            if one.by == "traceconv ingest" and one.kind in _TIMES_FAST_LOAD:
                ratio, least = one.bytes_per_s / rates[one.kind, _FAST_LOAD], _TIMES_FAST_LOAD[one.kind]
                shown, target, met = f"{shown}, {ratio:.2f} × {_FAST_LOAD}", f"≥ {least} × {_FAST_LOAD}", ratio >= least
            elif one.kind == "damaged":
                ratio = one.bytes_per_s / rates["compact", one.by]
                shown, target, met = f"{shown}, {ratio:.2f} × compact", "≥ 0.4 × compact", ratio >= 0.4
            elif one.kind == "wrecked":
                target, met = "≥ 35 MB/s", rate >= 35
            name = f"trace JSON, {one.kind}: {one.by.removeprefix('traceconv ')}"
            self._add(name, rate, shown, target, met if self._full else None)

    def _flatness(self, records: int, small_peak: int) -> None:
        capture, count = self._capture(records)
        store = DATA / "large.duckdb"
        store.unlink(missing_ok=True)
        done = traceconv("ingest", capture, "--db", store)
        rate = count / done.seconds
        self._add("ingest, large", rate, f"{count:,} records in {done.seconds:.1f} s: {rate / 1e6:.2f} M/s")
        peak = done.peak_bytes
        shown = f"{peak / MB:.0f} MB, {(peak - small_peak) / MB:+.0f} MB"
        self._add("ingest, large, peak memory", peak, shown, "≤ 450 MB", peak <= 450 * MB)
        store.unlink()


def _best_of(times: int, work: object) -> float:
    assert callable(work)
    return min(float(work()) for _ in range(times))


def _cold(arguments: list[str]) -> float:
    def once() -> float:
        drop_caches()
        return traceconv(*arguments).seconds

    return statistics.median(once() for _ in range(3))


def _line(result: Result) -> str:
    verdict = {True: "met", False: "MISSED", None: ""}[result.met]
    return f"{result.name:<30} {result.shown:<46} {result.target:<24} {verdict}".rstrip()


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Prevent concurrent benchmarks, which would disturb each other."""
    lock = DATA / ".lock"
    DATA.mkdir(exist_ok=True)
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        sys.exit(f"another benchmark is running; if not, remove {lock}")
    try:
        yield
    finally:
        os.close(descriptor)
        lock.unlink()


def main() -> None:
    """Parse the command line and run. The exit code is 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=FULL_SIZE, help="size of the capture (default: %(default)s)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="number of ingests; the best counts (default: %(default)s)"
    )
    parser.add_argument("--large", type=int, metavar="N", help="also ingest N records and check memory")
    arguments = parser.parse_args()
    with _only_one():
        bench = Bench(arguments.records, arguments.repeat)
        bench.all(arguments.large)
        machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
        results = {"records": arguments.records, **machine, "results": [asdict(result) for result in bench.results]}
        (DATA / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    missed = [result.name for result in bench.results if result.met is False]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
