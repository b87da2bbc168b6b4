"""`traceconv ingest`: import logs and traces into the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import EXIT_DATA_LOSS, printable
from traceconv.cli.completions import complete_reader
from traceconv.cli.options import store_path

if TYPE_CHECKING:
    from traceconv.pipeline.result import IngestedRuns, Observer


PATHS = typer.Argument(
    ...,
    metavar="PATH…",
    help="Captures (PROF_…), single .bin files; output folders of msprof and torch_npu; trace files, - for "
    "standard input; folders that contain any of these at any depth.",
)
READER = typer.Option(
    None,
    "--reader",
    metavar="NAME",
    help="Reader for all paths: chrome_json, nsys, speedscope …",
    autocompletion=complete_reader,
)
PATTERN = typer.Option(
    None,
    "--rank-pattern",
    metavar="REGEX",
    help="Regex that extracts rank, host and group from the path: (?P<rank>…), (?P<host>…), (?P<group>…).",
)
GROUP = typer.Option(
    None, "--group", metavar="NAME", help="Group label for all these runs, such as a job (run.group_label)."
)
RULES = typer.Option(
    [], "--rules", metavar="FILE", help="Rule file (TOML) for trace events, tried before the built-in rules."
)
MAX_EVENT_MB = typer.Option(64, "--max-event-mb", min=1, help="Skip events of trace files larger than this.")
MAX_RATIO = typer.Option(1000, "--max-ratio", min=1, help="Maximum decompression ratio.")
JOBS = typer.Option(
    None, "--jobs", min=1, metavar="N", help="Processes that read files. Default: one per core, at most 8; 1: none."
)


def ingest(
    paths: list[Path] = PATHS,
    db: Path | None = typer.Option(
        None,
        "--db",
        metavar="FILE",
        envvar="TRACECONV_DB",
        show_envvar=False,
        help="The store. Default: $TRACECONV_DB, else ./trace.duckdb.",
    ),
    replace: bool = typer.Option(False, "--replace", help="Re-import captures already in the store."),
    strict: bool = typer.Option(False, "--strict", help="Fail on any loss and leave the store unchanged."),
    reader: str | None = READER,
    pattern: str | None = PATTERN,
    group: str | None = GROUP,
    rules: list[Path] = RULES,
    max_event_mb: int = MAX_EVENT_MB,
    max_ratio: int = MAX_RATIO,
    jobs: int | None = JOBS,
) -> None:
    """Import logs and traces into a DuckDB store.

    The import is a single transaction: Ctrl-C or a full disk leave the store unchanged. Intact data of damaged files is
    recovered; losses are reported and stored in the table import_log. A file that can't be used is reported and does
    not stop the remaining files.

    Each capture and each trace file is its own run with its own clock. Rank, host and group are stored in the
    table run if the file or its path provides them. An output folder of msprof or torch_npu is a single run: its
    timeline, completed by the CSV files next to it. Hidden files are skipped.

    Exit codes: 0 success; 3 success with losses or unusable files; 1 nothing usable.

    \b
    Examples:
      traceconv ingest raw/
      traceconv ingest raw/PROF_000001_20260101000000_ABCDEF --db night.duckdb
      traceconv ingest raw/ --replace --strict
      traceconv ingest worker0.pt.trace.json.gz
      traceconv ingest rank*/
      traceconv ingest traces/ --group job7 --rank-pattern 'gpu(?P<rank>[0-9]+)'
      traceconv ingest ASCEND_PROFILER_OUTPUT/
      curl -s http://host/trace.json | traceconv ingest - --db web.duckdb
    """
    prepare_memory()
    from traceconv.store.database import connect_ahead

    connect_ahead()
    from traceconv.cli.output import print_message
    from traceconv.pipeline.ingest import ingest as ingest_paths
    from traceconv.pipeline.ingest import naming_of, trace_options_of

    store = store_path(db)

    def run(observer: Observer) -> IngestedRuns:
        return ingest_paths(
            paths,
            store,
            replace=replace,
            strict=strict,
            observer=observer,
            reader=reader,
            trace_options=trace_options_of(rules, max_event_mb, max_ratio),
            naming=naming_of(pattern, group),
            jobs=jobs,
            on_wait=lambda: print_message(
                f"waiting for another ingest into {printable(str(store))} to finish (Ctrl-C to cancel)"
            ),
        )

    show_result(run)


def prepare_memory() -> None:
    """Configure the allocator of this process, before pyarrow and DuckDB are loaded."""
    from traceconv.base.malloc_tuning import limit_arenas, require_address_space

    require_address_space()
    limit_arenas()


def show_result(run: Callable[[Observer], IngestedRuns]) -> None:
    """Run an ingest, show its progress and its result; exit with code 3 if something was lost."""
    from traceconv.cli.output import print_message
    from traceconv.cli.progress import ingest_progress
    from traceconv.pipeline.ingest_text import lines_of, listed
    from traceconv.pipeline.result import NothingUsable

    try:
        with ingest_progress() as observer:
            result = run(observer)
    except NothingUsable as error:
        for line in listed("failed: ", [problem.message for problem in error.problems]):
            print_message(line, "")
        raise
    for line in lines_of(result):
        print_message(line, "")
    if result.lossy:
        raise typer.Exit(EXIT_DATA_LOSS)
