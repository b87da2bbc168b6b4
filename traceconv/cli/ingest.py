"""`traceconv ingest`: logs into the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from traceconv.pipeline import IngestedRun, Observer
    from traceconv.pipeline_trace import TraceOptions

#: Losses that are shown one by one; the store has them all.
_SHOWN_LOSSES = 10


def ingest(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Captures (PROF_…), folders that hold some at any depth, single .bin files; output folders of msprof and "
        "torch_npu; traces in JSON (.gz, .zst), - for standard input.",
    ),
    db: Path | None = typer.Option(
        None, "--db", metavar="FILE", envvar="TRACECONV_DB", help="The store. Default: trace.duckdb"
    ),
    replace: bool = typer.Option(False, "--replace", help="Read captures again that are in the store already."),
    strict: bool = typer.Option(False, "--strict", help="Store nothing if anything at all would be lost."),
    reader: str | None = typer.Option(
        None, "--reader", metavar="NAME", help="Read all paths with this reader: chrome_json, nsys, speedscope …"
    ),
    rules: list[Path] = typer.Option(
        [], "--rules", metavar="FILE", help="Rules (TOML) for events of trace files, tried before the built-in ones."
    ),
    max_event_mb: int = typer.Option(
        256, "--max-event-mb", min=1, help="Of a trace file: give up an event that is larger than this."
    ),
    max_ratio: int = typer.Option(
        1000, "--max-ratio", min=1, help="Of a packed file: stop when it unfolds to more than so many times its size."
    ),
) -> None:
    """Normalise logs and traces into a DuckDB store.

    All paths go in as one transaction: the store has all of them, or is as it was. A damaged capture gives all
    that is intact; what was lost is said, and kept in the table import_log.

    An output folder of msprof or torch_npu is one run: its timeline, completed by the CSV files beside it.

    Exit code: 0 all is in, 3 with losses, 1 nothing usable.

    \b
    Examples:
      traceconv ingest raw/
      traceconv ingest raw/PROF_000001_20260101000000_ABCDEF --db night.duckdb
      traceconv ingest raw/ --replace --strict

      traceconv ingest worker0.pt.trace.json.gz

      traceconv ingest ASCEND_PROFILER_OUTPUT/

      curl -s http://host/trace.json | traceconv ingest - --db web.duckdb
    """
    from traceconv.errors import EXIT_DATA_LOSS
    from traceconv.pipeline import ingest as ingest_captures
    from traceconv.store.database import default_store_path

    store = db or default_store_path()
    with _progress() as observer:
        runs = ingest_captures(
            paths,
            store,
            replace=replace,
            strict=strict,
            observer=observer,
            reader=reader,
            trace_options=_trace_options(rules, max_event_mb, max_ratio),
        )
    for run in runs:
        for line in _summary(run, store):
            typer.echo(line, err=True)
    if any(run.lossy for run in runs):
        raise typer.Exit(EXIT_DATA_LOSS)


def _trace_options(rules: list[Path], max_event_mb: int, max_ratio: int) -> TraceOptions | None:
    """How trace files are to be read; None when all is as by default, so that nothing is loaded for it."""
    if not rules and (max_event_mb, max_ratio) == (256, 1000):
        return None
    from traceconv.normalize.trace_json.classify import read_rules
    from traceconv.pipeline_trace import TraceOptions
    from traceconv.readers.chrome_json.limits import Limits

    return TraceOptions(Limits(max_event_mb << 20, max_ratio), tuple(map(read_rules, rules)))


def _summary(run: IngestedRun, store: Path) -> Iterator[str]:
    """What became of one capture: the books, the rate, the losses."""
    from traceconv.diagnostics import Code, Severity
    from traceconv.errors import printable

    name, shown = printable(run.label), printable(str(store))
    if run.action == "kept":
        lossy = ", with losses" if run.lossy else ""
        yield f"{name} is in {shown} already, as run {run.run_id}{lossy}; nothing done (--replace reads it again)"
        return
    yield f"{name} {run.action} as run {run.run_id} in {shown}"
    heads = ("records", "rows", "merged", "consumed", "lost")
    yield f"  {'type':<22}" + "".join(f"{head:>12}" for head in heads)
    books = sorted(run.accounts.by_record.items())
    for record, account in books:
        numbers = (account.records, account.rows, account.merged, account.consumed, account.lost)
        yield f"  {printable(record, 22):<22}" + "".join(f"{number:>12,}" for number in numbers)
    rate = run.record_count / run.seconds if run.seconds else 0
    size = run.size_bytes / 1e6
    yield f"  {run.record_count:,} records, {size:,.1f} MB in {run.seconds:.2f} s ({rate:,.0f} records/s)"
    losses = [entry for entry in run.log if entry.severity is not Severity.INFO or entry.code is Code.CUT_AT]
    for entry in losses[:_SHOWN_LOSSES]:
        place = f" at byte {entry.byte_offset}" if entry.byte_offset is not None else ""
        count = f" ({entry.event_count:,} records)" if entry.event_count else ""
        file = f"{printable(run.source_names.get(entry.source_id or 0, name))}: " if entry.source_id else ""
        yield f"  {entry.severity.value}: {file}{printable(entry.message)}{place}{count}"
    if len(losses) > _SHOWN_LOSSES:
        yield f"  … and {len(losses) - _SHOWN_LOSSES} more; all are in the table import_log"


@contextmanager
def _progress() -> Iterator[Observer | None]:
    """A progress bar on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar)


class _Bar:
    """Tells a rich progress bar how an ingest goes on."""

    def __init__(self, bar: object) -> None:
        from rich.progress import Progress

        assert isinstance(bar, Progress)
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def start(self, label: str, total_bytes: int) -> None:
        """A run of so many bytes begins to be read."""
        from traceconv.errors import printable

        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(printable(label, 40), total=total_bytes)

    def advance(self, byte_count: int) -> None:
        """So many more bytes were read."""
        self._bar.advance(self._task, byte_count)
