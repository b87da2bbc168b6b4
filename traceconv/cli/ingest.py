"""`traceconv ingest`: logs into the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from traceconv.pipeline.result import IngestedRun, IngestedRuns, Problem
    from traceconv.pipeline.trace_file import TraceOptions

#: Losses that are shown one by one; the store has them all.
_SHOWN_LOSSES = 10
#: Up to so many runs are told of with their books; of more, a line each, and only of so many.
_RUNS_WITH_BOOKS = 4
_SHOWN_RUNS = 20
#: Files and folders that gave no run, shown one by one.
_SHOWN_PROBLEMS = 20


def _readers(incomplete: str) -> list[str]:
    """The readers, for the shell's completion."""
    from traceconv.formats.registry import format_names

    return [name for name in format_names() if name.startswith(incomplete)]


def ingest(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Captures (PROF_…), single .bin files; output folders of msprof and torch_npu; trace files, - for "
        "standard input; folders that hold any of these, at any depth.",
    ),
    db: Path | None = typer.Option(
        None, "--db", metavar="FILE", envvar="TRACECONV_DB", help="The store. Default: trace.duckdb"
    ),
    replace: bool = typer.Option(False, "--replace", help="Read captures again that are in the store already."),
    strict: bool = typer.Option(False, "--strict", help="Store nothing if anything at all would be lost."),
    reader: str | None = typer.Option(
        None,
        "--reader",
        metavar="NAME",
        help="Read all paths with this reader: chrome_json, nsys, speedscope …",
        autocompletion=_readers,
    ),
    pattern: str | None = typer.Option(
        None,
        "--rank-pattern",
        metavar="REGEX",
        help="Where a path says whose recording it is: groups (?P<rank>…), (?P<host>…), (?P<group>…).",
    ),
    group: str | None = typer.Option(
        None, "--group", metavar="NAME", help="What all these recordings are of, such as a job: run.group_label."
    ),
    rules: list[Path] = typer.Option(
        [], "--rules", metavar="FILE", help="Rules (TOML) for events of trace files, tried before the built-in ones."
    ),
    max_event_mb: int = typer.Option(
        64, "--max-event-mb", min=1, help="Of a trace file: give up an event that is larger than this."
    ),
    max_ratio: int = typer.Option(
        1000, "--max-ratio", min=1, help="Of a packed file: stop when it unfolds to more than so many times its size."
    ),
) -> None:
    """Normalise logs and traces into a DuckDB store.

    All that can be used goes in as one transaction: Ctrl-C or a full disk leave the store as it was. A damaged file
    gives all that is intact; what was lost is said, and kept in the table import_log. A file that can't be used at
    all is named, and does not keep the others out.

    Each capture and each trace file is a run of its own, on its own clock. Its rank, host and group stand in the
    table run, as far as the file or its name says them. An output folder of msprof or torch_npu is one run: its
    timeline, completed by the CSV files beside it. Hidden files are left out.

    Exit code: 0 all is in, 3 with losses or with files that can't be used, 1 nothing usable.

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
    from traceconv.base.errors import EXIT_DATA_LOSS, printable
    from traceconv.cli.options import store_path
    from traceconv.cli.output import say
    from traceconv.cli.progress import ingest_progress
    from traceconv.formats.common.identity import Naming, rank_pattern
    from traceconv.pipeline.ingest import ingest as ingest_captures
    from traceconv.pipeline.result import NothingUsable

    store = store_path(db)
    naming = Naming(None if pattern is None else rank_pattern(pattern), group)
    started = time.perf_counter()
    try:
        with ingest_progress() as observer:
            result = ingest_captures(
                paths,
                store,
                replace=replace,
                strict=strict,
                observer=observer,
                reader=reader,
                trace_options=_trace_options(rules, max_event_mb, max_ratio),
                naming=naming,
                on_wait=lambda: say(
                    f"waiting for another ingest into {printable(str(store))} to end (Ctrl-C: give up)"
                ),
            )
    except NothingUsable as error:
        for line in _listed("not read: ", [problem.message for problem in error.problems]):
            say(line, "")
        raise
    for line in _report(result, store, time.perf_counter() - started):
        say(line, "")
    if result.lossy:
        raise typer.Exit(EXIT_DATA_LOSS)


def _trace_options(rules: list[Path], max_event_mb: int, max_ratio: int) -> TraceOptions | None:
    """How trace files are to be read; None when all is as by default, so that nothing is loaded for it."""
    if not rules and (max_event_mb, max_ratio) == (64, 1000):
        return None
    from traceconv.formats.common.limits import Limits
    from traceconv.normalize.trace.classify import read_rules
    from traceconv.pipeline.trace_file import TraceOptions

    return TraceOptions(Limits(max_event_mb << 20, max_ratio), tuple(map(read_rules, rules)))


def _report(result: IngestedRuns, store: Path, seconds: float) -> Iterator[str]:
    """What became of all: each run with its books, or of many a line each; then what gave no run."""
    from traceconv.base.errors import printable

    if len(result) <= _RUNS_WITH_BOOKS:
        for run in result:
            yield from _summary(run, store)
    else:
        shown = printable(str(store))
        dull = 0
        for run in result:
            dull += not run.lossy
            if run.lossy or dull <= _SHOWN_RUNS:
                yield _line(run, shown)
                yield from _losses(run)
        if dull > _SHOWN_RUNS:
            yield f"… and {dull - _SHOWN_RUNS:,} more without losses; traceconv info {shown} lists them"
        count, size = sum(run.record_count for run in result), sum(run.size_bytes for run in result)
        fresh = sum(run.action != "kept" for run in result)
        rate = count / seconds if seconds else 0
        kept = f", {len(result) - fresh:,} were in {shown} already" if fresh < len(result) else ""
        yield f"{fresh:,} runs ingested{kept}"
        yield f"  {count:,} records, {size / 1e6:,.1f} MB in {seconds:.2f} s ({rate:,.0f} records/s)"
    same = [f"run {run_id} has the times and counts of run {other}" for run_id, other in result.same]
    yield from _listed("the same recording twice? ", same)
    yield from _listed("left out: ", [f"{printable(str(one.path))} {_reason(one)}" for one in result.others])
    yield from _listed("not read: ", [one.message for one in result.unusable])


def _reason(problem: Problem) -> str:
    """Why a file was left out, without its name, which goes before."""
    return "is no trace" if str(problem.path) in problem.message else problem.message


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_SHOWN_PROBLEMS]:
        yield title + " ".join(line.split())
    if len(lines) > _SHOWN_PROBLEMS:
        yield f"{title}… and {len(lines) - _SHOWN_PROBLEMS:,} more"


def _line(run: IngestedRun, store: str) -> str:
    """One run of many."""
    from traceconv.base.errors import printable

    name = printable(run.label)
    if run.action == "kept":
        lossy = ", with losses" if run.lossy else ""
        return f"{name} is in {store} already, as run {run.run_id}{lossy}"
    return f"{name} {run.action} as run {run.run_id}{_whose(run)}: {run.record_count:,} records"


def _whose(run: IngestedRun) -> str:
    from traceconv.base.errors import printable

    known = [
        None if run.rank is None else f"rank {run.rank}",
        None if run.host is None else f"host {printable(run.host, 60)}",
        None if run.group_label is None else f"group {printable(run.group_label, 60)}",
    ]
    said = ", ".join(part for part in known if part is not None)
    return f" ({said})" if said else ""


def _summary(run: IngestedRun, store: Path) -> Iterator[str]:
    """What became of one capture: the books, the rate, the losses."""
    from traceconv.base.errors import printable

    name, shown = printable(run.label), printable(str(store))
    if run.action == "kept":
        lossy = ", with losses" if run.lossy else ""
        yield f"{name} is in {shown} already, as run {run.run_id}{lossy}; nothing done (--replace reads it again)"
        return
    of_many = run.rank is not None or run.group_label is not None  # a host alone tells nothing apart
    yield f"{name} {run.action} as run {run.run_id} in {shown}{_whose(run) if of_many else ''}"
    heads = ("records", "rows", "paired", "used", "lost")
    yield f"  {'type':<22}" + "".join(f"{head:>11}" for head in heads)
    books = sorted(run.accounts.by_record.items())
    for record, account in books:
        numbers = (account.records, account.rows, account.paired, account.used, account.lost)
        yield f"  {printable(record, 22):<22}" + "".join(f"{number:>11,}" for number in numbers)
    rate = run.record_count / run.seconds if run.seconds else 0
    size = run.size_bytes / 1e6
    yield f"  {run.record_count:,} records, {size:,.1f} MB in {run.seconds:.2f} s ({rate:,.0f} records/s)"
    yield from _losses(run)


def _losses(run: IngestedRun) -> Iterator[str]:
    from traceconv.base.diagnostics import Code, Severity
    from traceconv.base.errors import printable

    name = printable(run.label)
    told = (Code.CUT_AT, Code.NO_END, Code.REPEATED_RECORDS, Code.MOVED_FILE)  # nothing is lost that was there
    losses = [entry for entry in run.log if entry.severity is not Severity.INFO or entry.code in told]
    for entry in losses[:_SHOWN_LOSSES]:
        place = f" at byte {entry.byte_offset}" if entry.byte_offset is not None else ""
        count = f" ({entry.event_count:,} records)" if entry.event_count else ""
        file = f"{printable(run.source_names.get(entry.source_id or 0, name))}: " if entry.source_id else ""
        yield f"  {entry.severity.value}: {file}{printable(entry.message)}{place}{count}"
    if len(losses) > _SHOWN_LOSSES:
        yield f"  … and {len(losses) - _SHOWN_LOSSES} more; all are in the table import_log"
