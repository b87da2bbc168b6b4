"""`traceconv ingest`: import logs and traces into the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import EXIT_DATA_LOSS, printable
from traceconv.cli.completions import complete_reader
from traceconv.cli.options import store_path

if TYPE_CHECKING:
    from traceconv.pipeline.result import IngestedRun, IngestedRuns, Problem
    from traceconv.pipeline.trace_file import TraceOptions

#: Losses listed per run; the store has all.
_SHOWN_LOSSES = 10
#: Up to this many runs are listed with their accounting; if there are more, one line each.
_RUNS_WITH_ACCOUNTING = 4
#: Runs without losses, and files and folders without a run, that are listed.
_SHOWN_RUNS = _SHOWN_PROBLEMS = 20


def ingest(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Captures (PROF_…), single .bin files; output folders of msprof and torch_npu; trace files, - for "
        "standard input; folders that contain any of these at any depth.",
    ),
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
    reader: str | None = typer.Option(
        None,
        "--reader",
        metavar="NAME",
        help="Reader for all paths: chrome_json, nsys, speedscope …",
        autocompletion=complete_reader,
    ),
    pattern: str | None = typer.Option(
        None,
        "--rank-pattern",
        metavar="REGEX",
        help="Regex that extracts rank, host and group from the path: (?P<rank>…), (?P<host>…), (?P<group>…).",
    ),
    group: str | None = typer.Option(
        None, "--group", metavar="NAME", help="Group label for all these runs, such as a job (run.group_label)."
    ),
    rules: list[Path] = typer.Option(
        [], "--rules", metavar="FILE", help="Rule file (TOML) for trace events, tried before the built-in rules."
    ),
    max_event_mb: int = typer.Option(64, "--max-event-mb", min=1, help="Skip events of trace files larger than this."),
    max_ratio: int = typer.Option(1000, "--max-ratio", min=1, help="Maximum decompression ratio."),
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
    from traceconv.base.malloc_tuning import limit_arenas, require_address_space

    require_address_space()
    limit_arenas()
    from traceconv.cli.output import print_message
    from traceconv.cli.progress import ingest_progress
    from traceconv.formats.common.identity import Naming, rank_pattern
    from traceconv.pipeline.ingest import ingest as ingest_paths
    from traceconv.pipeline.result import NothingUsable

    store = store_path(db)
    started = time.perf_counter()
    try:
        with ingest_progress() as observer:
            result = ingest_paths(
                paths,
                store,
                replace=replace,
                strict=strict,
                observer=observer,
                reader=reader,
                trace_options=_trace_options(rules, max_event_mb, max_ratio),
                naming=Naming(None if pattern is None else rank_pattern(pattern), group),
                on_wait=lambda: print_message(
                    f"waiting for another ingest into {printable(str(store))} to finish (Ctrl-C to cancel)"
                ),
            )
    except NothingUsable as error:
        for line in _listed("failed: ", [problem.message for problem in error.problems]):
            print_message(line, "")
        raise
    for line in _report(result, store, time.perf_counter() - started):
        print_message(line, "")
    if result.lossy:
        raise typer.Exit(EXIT_DATA_LOSS)


def _trace_options(rules: list[Path], max_event_mb: int, max_ratio: int) -> TraceOptions | None:
    """Return how to read trace files; None for the defaults, so that nothing is imported for them."""
    if not rules and (max_event_mb, max_ratio) == (64, 1000):
        return None
    from traceconv.formats.common.limits import Limits
    from traceconv.normalize.trace.rule_files import read_rules
    from traceconv.pipeline.trace_file import TraceOptions

    return TraceOptions(Limits(max_event_mb << 20, max_ratio), tuple(map(read_rules, rules)))


def _report(result: IngestedRuns, store: Path, seconds: float) -> Iterator[str]:
    """Describe each run with its accounting, or many runs with a line each; then the files without a run."""
    shown = printable(str(store))
    if len(result) <= _RUNS_WITH_ACCOUNTING:
        for run in result:
            yield from _with_accounting(run, shown)
    else:
        without_losses = 0
        for run in result:
            without_losses += not run.lossy
            if run.lossy or without_losses <= _SHOWN_RUNS:
                yield _line(run, shown)
                yield from _losses(run)
        if without_losses > _SHOWN_RUNS:
            yield f"… and {without_losses - _SHOWN_RUNS:,} more without losses; list them with: traceconv info {shown}"
        added = sum(run.action != "kept" for run in result)
        kept = f", {len(result) - added:,} already in {shown}" if added < len(result) else ""
        yield f"{added:,} runs ingested{kept}"
        yield _rate(sum(run.record_count for run in result), sum(run.size_bytes for run in result), seconds)
    same = [f"run {run_id} has the same times and counts as run {other}" for run_id, other in result.same]
    yield from _listed("possible duplicate: ", same)
    yield from _listed("skipped: ", [f"{printable(str(one.path))} {_reason(one)}" for one in result.others])
    yield from _listed("failed: ", [one.message for one in result.unusable])


def losses_of(result: IngestedRuns) -> Iterator[str]:
    """Describe the losses of all runs, and the files that can't be used."""
    for run in result:
        yield from (line.strip() for line in _losses(run))
    yield from _listed("failed: ", [one.message for one in result.unusable])


def _reason(problem: Problem) -> str:
    """Why a file was skipped, without its name, which precedes it."""
    return "is not a trace" if str(problem.path) in problem.message else problem.message


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_SHOWN_PROBLEMS]:
        yield title + " ".join(line.split())
    if len(lines) > _SHOWN_PROBLEMS:
        yield f"{title}… and {len(lines) - _SHOWN_PROBLEMS:,} more"


def _line(run: IngestedRun, store: str) -> str:
    """One run of many."""
    if run.action == "kept":
        lossy = ", with losses" if run.lossy else ""
        if run.given_label not in (None, run.label):
            copied = f"has the same content as run {run.run_id} ({printable(run.label)})"
            return f"{printable(run.given_label)} {copied} in {store}{lossy}"
        return f"{printable(run.label)} is already in {store} as run {run.run_id}{lossy}"
    return f"{printable(run.label)} {run.action} as run {run.run_id}{_origin(run)}: {run.record_count:,} records"


def _origin(run: IngestedRun) -> str:
    known = (("rank", run.rank), ("host", run.host), ("group", run.group_label))
    shown = ", ".join(f"{name} {printable(str(value), 60)}" for name, value in known if value is not None)
    return f" ({shown})" if shown else ""


def _with_accounting(run: IngestedRun, store: str) -> Iterator[str]:
    if run.action == "kept":
        yield f"{_line(run, store)}; nothing to do (--replace re-imports it)"
        return
    one_of_many = run.rank is not None or run.group_label is not None  # a host alone distinguishes nothing
    yield f"{printable(run.label)} {run.action} as run {run.run_id} in {store}{_origin(run) if one_of_many else ''}"
    heads = ("records", "rows", "paired", "used", "lost")
    yield f"  {'type':<22}" + "".join(f"{head:>11}" for head in heads)
    for record, account in sorted(run.accounts.by_record.items()):
        counts = (account.records, account.rows, account.paired, account.used, account.lost)
        yield f"  {printable(record, 22):<22}" + "".join(f"{count:>11,}" for count in counts)
    yield _rate(run.record_count, run.size_bytes, run.seconds)
    yield from _losses(run)


def _rate(records: int, size_bytes: int, seconds: float) -> str:
    rate = records / seconds if seconds else 0
    return f"  {records:,} records, {size_bytes / 1e6:,.1f} MB in {seconds:.2f} s ({rate:,.0f} records/s)"


def _losses(run: IngestedRun) -> Iterator[str]:
    from traceconv.base.diagnostics import Code, Severity

    # Worth a line although nothing was lost.
    notable = (Code.CUT_AT, Code.NO_END, Code.CLOCK_STOPPED, Code.REPEATED_RECORDS, Code.MOVED_FILE)
    losses = [entry for entry in run.log if entry.severity is not Severity.INFO or entry.code in notable]
    for entry in losses[:_SHOWN_LOSSES]:
        place = f" at byte {entry.byte_offset}" if entry.byte_offset is not None else ""
        count = f" ({entry.event_count:,} records)" if entry.event_count else ""
        name = run.source_names.get(entry.source_id or 0, run.label)
        file = f"{printable(name)}: " if entry.source_id else ""
        yield f"  {entry.severity.value}: {file}{printable(entry.message)}{place}{count}"
    if len(losses) > _SHOWN_LOSSES:
        yield f"  … and {len(losses) - _SHOWN_LOSSES} more, in the table import_log"
