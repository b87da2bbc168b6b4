"""Measure the important paths and report which targets are met.

python -m benchmarks                   everything; the results are written to benchmarks/results.md
python -m benchmarks exports trace-json   only these sections
python -m benchmarks --quick           small inputs; ratios are compared with those in results.md
python -m benchmarks --large 50000000  also check that memory does not grow with the input
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import first_answers, many_files, nsys, perfetto
from benchmarks.chrome_json import KINDS, LOWER_BOUND, readings
from benchmarks.measure import ROWS_ALONE, Measured, drop_caches, part, run, traceconv
from benchmarks.results import RESULTS, Result, line, markdown, ratios, worse

DATA = Path(__file__).parent / "data"
MB = 1_000_000
#: Records for which the targets on memory and report times are defined.
FULL_SIZE = 10_000_000
#: Records of a quick run.
QUICK_SIZE = 300_000
#: Size of the trace files.
TRACE_BYTES = 500_000_000
#: Events of the Perfetto trace.
PERFETTO_EVENTS = 1_000_000
#: Events of the Nsight Systems report, and number of small files.
NSYS_EVENTS = 1_000_000
SMALL_FILES = 1_200
#: Kinds and sizes of the files whose ingest must stay within these bytes of memory.
_MEMORY = (("compact", 2 * 10**9, 400 * MB), ("pytorch", 2 * 10**9, 400 * MB), ("pytorch", 5 * 10**9, 480 * MB))
#: Size of the file for first answers.
FIRST_ANSWER_BYTES = 5_000_000_000
#: Pairs of runs; the slowdown is the median of their ratios, which vary by several percent.
_FIRST_ANSWER_ROUNDS = 3
#: Analyses, and the seconds that a million tasks may take.
_ANALYSES = {
    "critical-path": ("analyze", "critical-path"),
    "what-if": ("analyze", "what-if", "--op-type", "MatMul", "--speed-up", "2"),
    "advise": ("advise",),
}
_ANALYSIS_SECONDS = 1.0
#: Fixed work, with whose time others are compared where nothing else is comparable.
_YARDSTICK = "import json; text = json.dumps(list(range(400_000))); [json.loads(text) for _ in range(20)]"
#: What the library alone takes for a report of a store.
_REPORT_ALONE = """
import sys, duckdb
print(duckdb.connect(sys.argv[1], read_only=True).execute("FROM op_statistic LIMIT 20").fetchall())
"""
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


class Bench:
    """Run the measurements in sequence and print each result at once.

    folder  for generated inputs and stores
    """

    def __init__(self, folder: Path, records: int, repeat: int, processor: str | None = None) -> None:
        self.results: list[Result] = []
        self._folder = folder
        self._fixed_work: Measured | None = None
        self._records = records
        self._repeat = repeat
        self._processor = processor
        self._full = records >= FULL_SIZE
        self._peak = 0

    def sections(self) -> dict[str, Callable[[], None]]:
        """Return the measurements by name."""
        return {
            "start-up": self._startup, "overhead": self._overhead, "wire": self._wire, "ingest": self._ingest,
            "reports": self._reports, "exports": self._export, "perfetto": self._perfetto,
            "nsys": self._nsys, "small-files": self._many_files, "trace-json": self._trace_json,
            "memory": self._memory, "first-answer": self._first_answer,
        }  # fmt: skip

    def run(self, names: Sequence[str], large: int | None) -> None:
        """Run sections, all if none is named. `large`: records of an additional large ingest."""
        chosen = {name: work for name, work in self.sections().items() if not names or name in names}
        if large is not None:
            chosen["large ingest"] = lambda: self._flatness(large)
        for name, work in chosen.items():
            self._attempt(name, work)

    def _attempt(self, name: str, work: Callable[[], None]) -> None:
        """Run measurements. If they fail, that is their result, and the others can still be measured."""
        try:
            work()
        except (RuntimeError, OSError, ValueError, LookupError) as error:
            print(f"{name}: {error!r}", file=sys.stderr, flush=True)
            reason = (str(error).splitlines() or [repr(error)])[-1]
            self._add(name, math.nan, f"failed: {reason}", "", met=False)

    def _yardstick(self) -> Measured:
        """Return what fixed work takes on this machine."""
        if self._fixed_work is None:
            self._fixed_work = min(
                (run([sys.executable, "-c", _YARDSTICK]) for _ in range(3)), key=lambda done: done.cpu_seconds
            )
        return self._fixed_work

    def _add(
        self, name: str, value: float, shown: str, target: str = "", met: bool | None = None, ratio: float | None = None
    ) -> None:
        result = Result(name, value, shown, target, met, ratio)
        self.results.append(result)
        print(line(result), flush=True)

    def _startup(self) -> None:
        nothing = _best_of(10, lambda: run([sys.executable, "-c", "pass"]).seconds)
        seconds = _best_of(10, lambda: traceconv("--help").seconds)
        ratio = seconds / nothing
        target = "≤ 13.6 × python -c pass"  # 150 ms if that takes 11 ms
        shown = f"{seconds * 1e3:.0f} ms = {ratio:.1f} × {nothing * 1e3:.0f} ms"
        self._add("traceconv --help", ratio, shown, target, ratio <= 13.6, 1 / ratio)
        event = self._folder / "event.json"
        event.write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]')
        seconds = _best_of(5, lambda: self._ingest_new(event, self._folder / "event.duckdb").seconds)
        shown = f"{seconds:.2f} s = {seconds / nothing:.1f} × {nothing * 1e3:.0f} ms"
        self._add("ingest of one event", seconds, shown, "≤ 0.3 s", seconds <= 0.3, nothing / seconds)
        store = self._folder / "event.duckdb"
        alone = _best_of(5, lambda: run([sys.executable, "-c", ROWS_ALONE, store]).seconds)
        self._add("two rows, libraries alone", alone, f"{alone:.2f} s")

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
            self._add(
                f"profiled ÷ plain, level {level}", ratio["wall"], shown, f"≤ {goal - 1:+.0%}", met, 1 / ratio["wall"]
            )
        ratio = found["computing"]
        shown = f"{100 * (ratio['wall'] - 1):+.1f} % of {ratio['plain_us']:.0f} µs per op, with kernels"
        self._add("profiled ÷ plain, level 2", ratio["wall"], shown)

    def _capture(self, records: int) -> tuple[Path, int]:
        """Generate a capture unless it exists; return its folder and its number of records."""
        folder = self._folder / f"{records}"
        if not any(folder.glob("PROF_*/manifest.json")):
            generated = run([sys.executable, "-m", "benchmarks.generate", "--records", str(records), "-o", folder])
            self._add("generate", generated.seconds, f"{generated.seconds:.1f} s, {generated.peak_bytes / MB:.0f} MB")
        (manifest,) = folder.glob("PROF_*/manifest.json")
        files = json.loads(manifest.read_text("utf-8"))["files"]
        return manifest.parent, sum(file["record_count"] for file in files)

    def _wire(self) -> None:
        capture, _ = self._capture(self._records)
        decoded = part("decode", capture)
        rate = decoded["bytes"] / decoded["seconds"] / MB
        self._add("wire decode", rate, f"{rate:,.0f} MB/s")
        nested = part("nesting", capture)
        rate = nested["slices"] / nested["seconds"] / 1e6
        self._add("nesting, begin/end", rate, f"{rate:.1f} M slices/s", "≥ 5 M slices/s", rate >= 5)
        paired = part("pairing", capture)
        rate = paired["slices"] / paired["seconds"] / 1e6
        self._add("pairing", rate, f"{rate:.1f} M slices/s")

    @staticmethod
    def _ingest_new(source: Path, store: Path) -> Measured:
        store.unlink(missing_ok=True)
        return traceconv("ingest", source, "--db", store)

    def _store(self) -> Path:
        """Return the capture's store, ingesting it unless it exists."""
        store = self._folder / f"{self._records}.duckdb"
        if not store.exists():
            self._ingest_new(self._capture(self._records)[0], store)
        return store

    def _ingest(self) -> None:
        """Ingest, alternating with a bulk insert of the same rows."""
        capture, records = self._capture(self._records)
        store = self._folder / f"{self._records}.duckdb"
        seconds, insert_seconds, peak = [], [], 0
        for _ in range(self._repeat):
            ingested = self._ingest_new(capture, store)
            seconds.append(ingested.seconds)
            peak = max(peak, ingested.peak_bytes)
            insert_seconds.append(part("insert", store, self._folder / "insert.duckdb")["seconds"])
        best, best_insert = min(seconds), min(insert_seconds)
        rate = records / best
        self._add("ingest", rate, f"{records:,} records in {best:.2f} s: {rate / 1e6:.2f} M/s")
        ratio = best_insert / best
        met = ratio >= 0.75 if self._full else None
        self._add("ingest ÷ bulk insert", ratio, f"{ratio:.0%} of its rate ({best_insert:.2f} s)", "≥ 75 %", met, ratio)
        within = peak <= 450 * MB if self._full else None
        self._add("ingest, peak memory", peak, f"{peak / MB:.0f} MB", "≤ 450 MB", within)
        size = store.stat().st_size
        self._add("store size", size, f"{size / MB:.0f} MB, {size / records:.1f} bytes per record")
        self._peak = peak

    def _reports(self) -> None:
        """Reports and analyses, on a store whose run is repeated until it has as many tasks as the capture records."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:  # the store is large
            store = Path(folder) / "tasks.duckdb"
            tasks = part("multiply", self._store(), store, str(self._records))["tasks"]
            self._ask(store, tasks)
            self._analyse(store, tasks)

    def _ask(self, store: Path, tasks: int) -> None:
        million = f"{tasks / 1e6:.1f} M tasks"
        full = tasks >= FULL_SIZE
        warm = statistics.median(traceconv("report", "op-statistic", "--db", store).seconds for _ in range(5))
        self._add(
            "open + op-statistic, warm", warm, f"{warm:.2f} s ({million})", "≤ 0.3 s", warm <= 0.3 if full else None
        )
        alone = statistics.median(run([sys.executable, "-c", _REPORT_ALONE, store]).seconds for _ in range(5))
        self._add("open + op-statistic, DuckDB alone", alone, f"{alone:.2f} s ({million})")
        if drop_caches():
            # Starting the program itself is also cold: --version shows its share.
            empty = _cold(["--version"])
            cold = _cold(["report", "op-statistic", "--db", str(store)])
            shown = f"{cold:.2f} s, of which {empty:.2f} s traceconv --version"
            self._add("open + op-statistic, cold", cold, shown, "≤ 0.6 s", cold <= 0.6 if full else None)
        asked = part("reports", store, "20")
        for name, seconds in asked["seconds"].items():
            met = seconds <= 0.5 if full else None
            self._add(f"report {name}, top 20", seconds, f"{seconds:.3f} s ({million})", "≤ 0.5 s", met)
        for name, reason in asked["failed"].items():
            self._add(f"report {name}, top 20", math.nan, f"failed: {reason}", "≤ 0.5 s", met=False)
        # Other orders and windows have names of several words.
        total = sum(seconds for name, seconds in asked["seconds"].items() if " " not in name)
        self._add("all reports, top 20", total, f"{total:.2f} s ({million})", ratio=self._yardstick().seconds / total)

    def _analyse(self, store: Path, tasks: int) -> None:
        for name, command in _ANALYSES.items():

            def analyse(name: str = name, command: tuple[str, ...] = command) -> None:
                done = traceconv(*command, "--db", store)
                each, cpu = done.seconds / tasks * 1e6, done.cpu_seconds / tasks * 1e6
                shown = f"{each:.2f} s per million tasks, {cpu:.2f} s of CPU ({tasks / 1e6:.1f} M tasks)"
                met = each <= _ANALYSIS_SECONDS if tasks >= FULL_SIZE else None
                self._add(name, each, shown, "≤ 1 s", met, self._yardstick().cpu_seconds / done.cpu_seconds)
                self._add(f"{name}, peak memory", done.peak_bytes, f"{done.peak_bytes / MB:.0f} MB")

            self._attempt(name, analyse)

    def _export(self) -> None:
        store = self._store()
        rows = part("counts", store)
        slices = rows["task"] + rows["api"] + rows["range"]
        for what in _SLICE_RATES:
            self._attempt(f"export {what}", partial(self._export_as, what, store, slices))

    def _export_as(self, what: str, store: Path, slices: int) -> None:
        least, full = _SLICE_RATES[what], slices >= 3_000_000
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            target = Path(folder) / "export"
            done = traceconv("export", *what.split(), "-o", target, "--db", store)
            size = sum(file.stat().st_size for file in (target, *target.rglob("*")) if file.is_file())
        rate = slices / done.seconds / 1e6
        shown = f"{rate:.2f} M slices/s ({slices / 1e6:.1f} M slices, {size / MB:.0f} MB)"
        shown += f", {done.cpu_seconds:.1f} s of CPU"
        met = rate >= least if full and least is not None else None
        target_rate = f"≥ {least} M/s" if least is not None else ""
        self._add(f"export {what}", rate, shown, target_rate, met, self._yardstick().cpu_seconds / done.cpu_seconds)
        peak = done.peak_bytes
        within = peak <= 350 * MB if full and least is not None else None
        memory = "≤ 350 MB" if least is not None else ""
        self._add(f"export {what}, peak memory", peak, f"{peak / MB:.0f} MB", memory, within)

    def _perfetto(self) -> None:
        """Perfetto traces read and written, against message objects; trace JSON written, against json.dumps."""
        found: list[perfetto.Reading] = []
        events = PERFETTO_EVENTS if self._full else PERFETTO_EVENTS // 10
        for one in (*perfetto.readings(events, self._folder), *perfetto.exports(self._store(), self._folder)):
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
            self._add(f"{one.what}: {one.by.removeprefix('traceconv ')}", one.per_second, shown, target, met, ratio)

    def _nsys(self) -> None:
        """A report of Nsight Systems, against reading all its rows with SQLite from Python."""
        events = NSYS_EVENTS if self._full else NSYS_EVENTS // 10
        done, rows_seconds = nsys.reading(events, self._folder)
        each = done.cpu_seconds / events
        ratio = rows_seconds / done.cpu_seconds
        shown = f"{each * 1e6:.2f} µs of CPU per event, {1 / ratio:.1f} × sqlite3's rows, {done.peak_bytes / MB:.0f} MB"
        met = each <= _NSYS_SECONDS if self._full else None
        self._add("nsys: ingest", each, shown, "≤ 4 µs per event", met, ratio)

    def _many_files(self) -> None:
        files = SMALL_FILES if self._full else SMALL_FILES // 10
        done = many_files.reading(files, self._folder)
        shown = f"{done.cpu_seconds:.1f} s of CPU ({files} files), {done.peak_bytes / MB:.0f} MB"
        met = done.cpu_seconds <= _SMALL_FILES_SECONDS if self._full else None
        self._add(
            "small files: ingest",
            done.cpu_seconds,
            shown,
            "≤ 8 s of CPU",
            met,
            self._yardstick().cpu_seconds / done.cpu_seconds,
        )

    def _trace_json(self) -> None:
        """Trace JSON against json.load of the same file; damaged files against the undamaged one."""
        size = TRACE_BYTES if self._full else TRACE_BYTES // 10
        rates: dict[tuple[str, str], float] = {}
        for kind in KINDS:
            work = partial(self._trace_json_kind, kind, size, rates)
            self._attempt(f"trace JSON, {kind}", work)

    def _trace_json_kind(self, kind: str, size: int, rates: dict[tuple[str, str], float]) -> None:
        """Measure one kind of trace JSON. `rates`: of all so far, in bytes per second by kind and reader."""
        for one in readings((kind,), size, self._processor, folder=self._folder, collector=False):
            rates[one.kind, one.by] = one.bytes_per_s
            rate, peak = one.bytes_per_s / MB, one.peak_bytes / MB
            shown = f"{rate:.1f} MB/s, {one.cpu_seconds:.1f} s of CPU, {peak:.0f} MB"
            target, met, ratio = "", None, None
            if one.by == LOWER_BOUND:
                shown = f"{rate:.1f} MB/s, {one.parts}"
                if processor := rates.get((one.kind, "trace_processor")):
                    shown += f", {one.bytes_per_s / processor:.2f} × trace_processor"
            if one.by == "traceconv ingest" and (against := rates.get((one.kind, _FAST_LOAD))):
                ratio, least = one.bytes_per_s / against, _TIMES_FAST_LOAD.get(one.kind)
                shown = f"{shown}, {ratio:.2f} × {_FAST_LOAD}"
                if least is not None:
                    target, met = f"≥ {least} × {_FAST_LOAD}", ratio >= least
                if processor := rates.get((one.kind, "trace_processor")):
                    shown = f"{shown}, {one.bytes_per_s / processor:.2f} × trace_processor"
                    target, met = "≥ 1.5 × trace_processor", one.bytes_per_s >= 1.5 * processor
            elif one.kind == "damaged":
                ratio = one.bytes_per_s / rates["compact", one.by]
                shown, target, met = f"{shown}, {ratio:.2f} × compact", "≥ 0.4 × compact", ratio >= 0.4
            elif one.kind == "wrecked":
                target, met = "≥ 35 MB/s", rate >= 35
            name = f"trace JSON, {one.kind}: {one.by.removeprefix('traceconv ')}"
            self._add(name, rate, shown, target, met if self._full else None, ratio)

    def _memory(self) -> None:
        """Ingest of long traces: memory must not grow with their size."""
        for kind, size, most in _MEMORY:
            self._attempt(f"trace JSON, {kind}, {size / 1e9:g} GB", partial(self._ingest_long, kind, size, most))

    def _ingest_long(self, kind: str, size: int, most: int) -> None:
        size = size if self._full else size // 50
        for one in readings((kind,), size, folder=self._folder, compare=False):
            shown = f"{one.peak_bytes / MB:.0f} MB, {one.bytes_per_s / MB:.1f} MB/s"
            met = one.peak_bytes <= most if self._full else None
            name = f"trace JSON, {kind}, {size / 1e9:g} GB: peak memory"
            self._add(name, one.peak_bytes, shown, f"≤ {most / MB:.0f} MB", met)

    def _first_answer(self) -> None:
        """The report summary of a long trace, with and without first answers."""
        if not self._full:  # small files have none
            return
        pairs = first_answers.measure("pytorch", FIRST_ANSWER_BYTES, "summary", _FIRST_ANSWER_ROUNDS, self._folder)
        pairs.sort(key=lambda pair: pair[1].seconds / pair[0].seconds)
        plain, first = pairs[len(pairs) // 2]
        shown, goal = first.message_seconds or 0, first_answers.SHOWN_GOAL_S
        size = f"{FIRST_ANSWER_BYTES / 1e9:g} GB"
        self._add(f"first answer, {size}", shown, f"{shown:.2f} s", f"≤ {goal:g} s", shown <= goal)
        slower, goal = first.seconds / plain.seconds, first_answers.SLOWDOWN_GOAL
        met = slower <= goal
        text = f"{slower - 1:+.1%} of {plain.seconds:.0f} s, {first.peak_bytes / MB:.0f} MB"
        self._add(f"slowdown by first answers, {size}", slower, text, f"≤ {goal - 1:+.0%}", met)

    def _flatness(self, records: int) -> None:
        capture, count = self._capture(records)
        store = self._folder / "large.duckdb"
        done = self._ingest_new(capture, store)
        rate = count / done.seconds
        self._add("ingest, large", rate, f"{count:,} records in {done.seconds:.1f} s: {rate / 1e6:.2f} M/s")
        peak = done.peak_bytes
        shown = f"{peak / MB:.0f} MB" + (f", {(peak - self._peak) / MB:+.0f} MB" if self._peak else "")
        self._add("ingest, large, peak memory", peak, shown, "≤ 450 MB", peak <= 450 * MB)
        store.unlink()


def _best_of(times: int, work: Callable[[], float]) -> float:
    return min(work() for _ in range(times))


def _cold(arguments: list[str]) -> float:
    def once() -> float:
        drop_caches()
        return traceconv(*arguments).seconds

    return statistics.median(once() for _ in range(3))


@contextlib.contextmanager
def _only_one() -> Iterator[Path]:
    """Prevent concurrent benchmarks, which would disturb each other; yield a folder that is removed at the end."""
    DATA.mkdir(exist_ok=True)
    lock = DATA / ".lock"
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        sys.exit(f"another benchmark is running; if not, remove {lock}")
    try:
        for left in DATA.glob("run_*"):  # by a run that was killed
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix="run_", dir=DATA) as folder:
            yield Path(folder)
    finally:
        os.close(descriptor)
        lock.unlink()


def main() -> None:
    """Parse the command line and run. The exit code is 1 if a target is missed, or a quick run is clearly slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    names = tuple(Bench(Path(), 0, 0).sections())
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"only these: {', '.join(names)}")
    parser.add_argument("--records", type=int, default=FULL_SIZE, help="size of the capture (default: %(default)s)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="number of ingests; the best counts (default: %(default)s)"
    )
    parser.add_argument("--large", type=int, metavar="N", help="also ingest N records and check memory")
    parser.add_argument("--processor", metavar="PATH", help="also measure this trace_processor on trace JSON")
    parser.add_argument("--quick", action="store_true", help="small inputs; compare ratios with results.md")
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(names):
        parser.error(f"unknown section {', '.join(sorted(unknown))}; the sections are {', '.join(names)}")
    if arguments.quick and not RESULTS.exists():
        parser.error(f"{RESULTS.name} does not exist; run make bench first")
    with _only_one() as folder:
        quick = Bench(folder, QUICK_SIZE, 3)
        if arguments.quick:
            quick.run(arguments.sections, None)
            problems = worse(quick.results, ratios(RESULTS.read_text("utf-8")))
        else:
            bench = Bench(folder, arguments.records, arguments.repeat, arguments.processor)
            bench.run(arguments.sections, arguments.large)
            problems = [f"missed: {one.name}" for one in bench.results if one.met is False]
            if not arguments.sections and arguments.records >= FULL_SIZE:
                quick.run((), None)
                RESULTS.write_text(markdown(bench.results, quick.results), "utf-8")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
