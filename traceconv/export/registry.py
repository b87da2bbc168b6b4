"""The list of export targets. Writers are imported when used, so that listing is fast.

Other packages add targets through the entry point group `traceconv.exports`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.base.plugins import PluginError, all_plugins, find_plugin

if TYPE_CHECKING:
    import duckdb

GROUP = "traceconv.exports"


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a writer: counts of each kind written and omitted, the decompressed size, and the path of a folder.

    notes  lines for the user, such as why nothing was written
    """

    rows: Mapping[str, int]
    size_bytes: int
    omitted: Mapping[str, int] = field(default_factory=dict)
    path: Path | None = None
    notes: tuple[str, ...] = ()


#: Writes a run: writer(connection, run_id, output, **options). `output` is a path, None for standard output.
Writer: TypeAlias = "Callable[..., Written]"


class Option(NamedTuple):
    """A keyword argument of a writer, and an option of its command. A bool that is True has a `--no-` form.

    long, metavar  of the option; None: by the name, and by the kind
    """

    name: str
    kind: type[bool] | type[int] | type[str]
    help: str
    default: bool | int | str | None = None
    long: str | None = None
    metavar: str | None = None

    @property
    def flag(self) -> str:
        """The option as on the command line."""
        return self.long or f"--{self.name.replace('_', '-')}"


class Export(NamedTuple):
    """An export target.

    title    what the file is, with its article: "a Chrome trace"
    file     a typical file name, for the examples of the help
    writer   the `Writer`, as "module:function"
    doc      help text after the first line
    folder   the writer makes a folder; its `output` is the folder to put it in, None for the source's
    many_runs  it is called for each of several runs, all unless the user selects some
    merges     it is called once with a list of all runs that the user selects
    suffixes  of its files; those of other targets and of tables and pictures are refused. None: any
    """

    name: str
    title: str
    file: str
    writer: str
    doc: str = ""
    options: tuple[Option, ...] = ()
    folder: bool = False
    suffixes: tuple[str, ...] | None = None
    many_runs: bool = False
    merges: bool = False

    def runs(self, connection: duckdb.DuckDBPyConnection, wanted: str | None) -> tuple[tuple[int, ...], str | None]:
        """Return the runs that `wanted` names, and a note on the default. Raises UsageError."""
        from traceconv.reports.run_choice import chosen_runs

        several = self.many_runs or self.merges
        default = "all" if self.many_runs else None
        return chosen_runs(connection, wanted, self.title, several=several, default=default)

    def check(
        self, connection: duckdb.DuckDBPyConnection, run_id: int, output: Path | None, options: Mapping[str, object]
    ) -> None:
        """Raise UsageError for the suffix of another kind of file, and for a device that the run does not have."""
        name = Path("" if output is None else output.name.removesuffix(".gz"))
        suffix = name.suffix.lower()
        foreign = {suffix for export in EXPORTS for suffix in export.suffixes or ()}.union(_OTHER_SUFFIXES)
        if self.suffixes is not None and suffix not in self.suffixes and suffix in foreign:
            raise UsageError(
                f"{printable(str(output))}: export {self.name} writes {self.title}, not {suffix}; name it "
                f"{printable(name.stem + self.suffixes[0])}"
            )
        device = options.get("device")
        sql = "SELECT device_id FROM device WHERE run_id = ? ORDER BY device_id"
        if device is not None and (device,) not in (found := connection.execute(sql, [run_id]).fetchall()):
            known = ", ".join(str(one) for (one,) in found) or "none"
            raise UsageError(f"run {run_id} has no device {device}. Devices: {known}")

    def write(
        self,
        connection: duckdb.DuckDBPyConnection,
        run_ids: Sequence[int],
        output: Path | None,
        options: Mapping[str, object],
    ) -> Written:
        """Write one run, or several with `many_runs` or `merges`, after the checks of `check`; return the sum."""
        for run_id in run_ids:
            self.check(connection, run_id, output, options)
        writer = self.load_writer()
        if self.merges:
            return writer(connection, run_ids, output, **options)
        total = writer(connection, run_ids[0], output, **options)
        for run_id in run_ids[1:]:
            one = writer(connection, run_id, output, **options)
            rows, omitted = (
                {kind: mine.get(kind, 0) + other.get(kind, 0) for kind in {**mine, **other}}
                for mine, other in ((total.rows, one.rows), (total.omitted, one.omitted))
            )
            size = total.size_bytes + one.size_bytes
            total = Written(rows, size, omitted, one.path, (*total.notes, *one.notes))
        return total

    def load_writer(self) -> Writer:
        """Import the writer."""
        found: Writer = pkgutil.resolve_name(self.writer)
        return found


#: Suffixes of files that no target writes, but a report, a query or another program does.
_OTHER_SUFFIXES = (".csv", ".parquet", ".duckdb", ".png", ".pdf", ".txt", ".md", ".xlsx", ".zip")

_DEVICE = Option("device", int, "Omit rows of other devices.")
_ARGS = Option("args", bool, "Write the arguments of slices.", True)
_PATH = Option("critical_path", bool, "Show the path that traceconv analyze critical-path found as arrows.", False)
#: The options of `excerpt.find_excerpt`.
EXCERPT = (
    Option("steps", str, "Only what overlaps these steps: 3-5, 3- or -5.", metavar="A-B"),
    Option(
        "from_ns",
        str,
        "Only what overlaps the time from here on: since the start of the run (1.5ms), or absolute ns without a unit.",
        long="--from",
        metavar="TIME",
    ),
    Option("to_ns", str, "End of that time.", long="--to", metavar="TIME"),
)

EXPORTS = (
    Export(
        "chrome",
        "a Chrome trace",
        "trace.json",
        "traceconv.export.chrome:export_chrome",
        """The trace contains every task with its hardware counters, call, range, step, counter, marker, flow and memory
block of the run, with all columns. Timestamps are microseconds since the first event of the run, exact to the
nanosecond; otherData.base_ns is the time of that event. traceconv ingest restores the run from the file.
For a static profile, the trace shows the estimated ops one after another, in a track of that name.

Open the file at https://ui.perfetto.dev (it stays in your browser) or in chrome://tracing.""",
        (_DEVICE, *EXCERPT, _ARGS, _PATH),
        suffixes=(".json",),
    ),
    Export(
        "html",
        "an HTML page",
        "run.html",
        "traceconv.export.html_page:export_html",
        """The page shows where the time of each device goes, in total, over time and by step, what could make the run
faster (traceconv advise), what was lost, and every report: all rows, or the largest if there are more than --top. A
click on a heading sorts; the field above the reports filters.

Several runs, such as the ranks of a job, are on one page (--run all, --run rank=0,rank=1): pictures show the devices of
each, advice and reports are about all of them.

Open the file in any browser, attach it to a ticket, or publish it from CI: it is one file, loads nothing, and the
same run gives the same bytes.""",
        (Option("top", int, "Rows of each report.", 50),),
        suffixes=(".html", ".htm"),
        merges=True,
    ),
    Export(
        "memory-flow",
        "an SVG of device memory over time",
        "memory.svg",
        "traceconv.export.memory_flow:export_memory_flow",
        """Each memory block is a rectangle: its addresses on the vertical axis, its lifetime on the horizontal axis,
its colour by purpose. Hover shows its tensor, op, size and times. Unused address ranges are folded and the
peak is marked. Bytes in use and reserved are plotted below. Blocks too small to see are drawn together,
so the file stays small. If no block of a device has an address, the bytes in use are stacked by purpose,
op type or pool instead.

Open the file in any browser. For the numbers, see the reports memory-peak, memory-live and memory-trace.""",
        (_DEVICE,),
        suffixes=(".svg",),
    ),
    Export(
        "msprof",
        "the output folder of msprof",
        "out",
        "traceconv.export.msprof:export_msprof",
        """The folder mindstudio_profiler_output has the files of "msprof --export=on", in msprof's layout: the
timelines msprof_*.json and step_trace_*.json, the tables op_summary_*.csv, op_statistic_*.csv,
step_trace_*.csv, task_time_*.csv, fusion_op_*.csv and api_statistic_*.csv, and README.txt. Files that
don't apply are absent. The number in their names is the start of the recording in UTC.

The folder is written into the PROF folder that was ingested, or into DIR. traceconv verify checks it
and traceconv ingest reads it.""",
        (Option("overwrite", bool, "Replace an existing mindstudio_profiler_output.", False),),
        folder=True,
    ),
    Export(
        "parquet",
        "Parquet files in a lake",
        "lake",
        "traceconv.export.parquet:export_parquet",
        """A lake is a folder with any number of runs, which traceconv lake, traceconv report and any program that reads
partitioned Parquet use without an import: TABLE/group=LABEL/run=KEY/*.parquet, where KEY is the first 16 digits of
the digest of the source. All tables are written with all columns but run_id, which is assigned when the lake is
read. traceconv ingest DIR restores the runs.

All runs are added unless --run selects some; a run that is already in the lake is kept. A run is visible once it is
complete. DIR can be s3://BUCKET/FOLDER.""",
        (Option("overwrite", bool, "Replace runs that are already in the lake.", False),),
        folder=True,
        many_runs=True,
    ),
    Export(
        "perfetto",
        "a Perfetto trace",
        "trace.pftrace",
        "traceconv.export.perfetto:export_perfetto",
        """The trace (protobuf) contains every task, call, range, step, marker and counter of the run on the tracks of
its processes, devices and streams, with columns as arguments and flows as arrows. Timestamps are exact
nanoseconds. The file is smaller than a Chrome trace. traceconv ingest restores the run from the file, unless
--no-args was given.
For a static profile, the trace shows the estimated ops one after another, in a track of that name.

Several runs, such as the ranks of a job, are in one timeline (--run all, --run rank=0,rank=1), with the clocks of
their hosts aligned by the ends of collectives. ingest restores no run from such a file.

Open the file at https://ui.perfetto.dev (it stays in your browser) or in Perfetto's trace processor.""",
        (_DEVICE, *EXCERPT, _ARGS, _PATH),
        suffixes=(".pftrace", ".perfetto-trace", ".pb"),
        merges=True,
    ),
)


def find_export(name: str) -> Export:
    """Return the target with this name: built in, or of another package.

    Raises UsageError if there is none, PluginError if its package is broken.
    """
    built_in = {export.name: export for export in EXPORTS}
    found = built_in.get(name) or find_plugin(GROUP, name, Export)
    if found is None:
        near = suggestion(name, list(built_in))
        listing = option("List them with: traceconv export --help", f"Choose one of: {', '.join(built_in)}")
        raise UsageError(f"unknown export target '{printable(name)}'.{near} {listing}")
    return found


def all_exports(on_error: Callable[[PluginError], None]) -> Iterator[Export]:
    """Yield the built-in targets, then those of other packages; broken ones go to `on_error`."""
    yield from EXPORTS
    names = {one.name for one in EXPORTS}
    yield from (one for one in all_plugins(GROUP, Export, on_error) if one.name not in names)
