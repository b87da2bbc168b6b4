"""The result of an ingest as text: runs with their accounting, losses, and the files without a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from traceconv.base.errors import printable
from traceconv.formats.find_traces import NOT_A_TRACE
from traceconv.lake.folder import is_lake, shown_path

if TYPE_CHECKING:
    from traceconv.base.diagnostics import LogEntry
    from traceconv.pipeline.result import IngestedRun, IngestedRuns, Problem

#: Losses listed per run; the store has all.
_SHOWN_LOSSES = 10
#: Up to this many runs are listed with their accounting; if there are more, one line each.
_RUNS_WITH_ACCOUNTING = 4
#: Runs without losses, and files and folders without a run, that are listed.
_SHOWN_RUNS = _SHOWN_PROBLEMS = 20


def lines_of(result: IngestedRuns) -> Iterator[str]:
    """Describe each run with its accounting, or many runs with a line each; then the files without a run."""
    shown = shown_path(result.store)
    if len(result) <= _RUNS_WITH_ACCOUNTING:
        for run in result:
            yield from _with_accounting(run, shown)
        if any(run.action != "kept" for run in result):
            yield _rate(result)
    else:
        without_losses = 0
        for run in result:
            without_losses += not run.lossy
            if run.lossy or without_losses <= _SHOWN_RUNS:
                yield _line(run, shown)
                yield from _losses(run)
        if without_losses > _SHOWN_RUNS:
            command = f"traceconv {'lake list' if is_lake(result.store) else 'info'} {shown}"
            yield f"… and {without_losses - _SHOWN_RUNS:,} more without losses; list them with: {command}"
        added = sum(run.action != "kept" for run in result)
        kept = f", {len(result) - added:,} already in {shown}" if added < len(result) else ""
        yield f"{added:,} runs ingested{kept}"
        yield _rate(result)
    same = [f"run {run_id} has the same times and counts as run {other}" for run_id, other in result.same]
    yield from listed("possible duplicate: ", same)
    yield from listed("skipped: ", [f"{printable(str(one.path))} {_reason(one)}" for one in result.others])
    yield from listed("failed: ", [one.message for one in result.unusable])


def losses_of(result: IngestedRuns) -> Iterator[str]:
    """Describe the losses of all runs, and the files that can't be used."""
    for run in result:
        yield from (line.strip() for line in _losses(run))
    yield from listed("failed: ", [one.message for one in result.unusable])


def _reason(problem: Problem) -> str:
    """Why a file was skipped, without its name, which precedes it."""
    return NOT_A_TRACE if str(problem.path) in problem.message else problem.message


def listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines, each after the title, and how many were omitted."""
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
    if run.accounts.by_record:
        heads = ("records", "rows", "paired", "used", "lost")
        yield f"  {'type':<22}" + "".join(f"{head:>11}" for head in heads)
    for record, account in sorted(run.accounts.by_record.items()):
        counts = (account.records, account.rows, account.paired, account.used, account.lost)
        yield f"  {printable(record, 22):<22}" + "".join(f"{count:>11,}" for count in counts)
    yield from _losses(run)


def _rate(result: IngestedRuns) -> str:
    """Return the time of all runs, with the commit of their rows."""
    records, seconds = sum(run.record_count for run in result), result.seconds
    rate = f"({records / seconds:,.0f} records/s)" if seconds else ""
    size_bytes = sum(run.size_bytes for run in result)
    size = f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 100_000 else f"{size_bytes / 1e3:.1f} kB"
    return f"  {records:,} records, {size} in {seconds:.2f} s {rate}"


def _losses(run: IngestedRun) -> Iterator[str]:
    from traceconv.base.diagnostics import Code, Severity

    # Worth a line although nothing was lost.
    notable = (
        Code.CUT_AT, Code.NO_END, Code.CLOCK_STOPPED, Code.REPEATED_RECORDS, Code.MOVED_FILE, Code.PROFILER_WARNING,
        Code.FOR_VIEWERS,
    )  # fmt: skip
    if run.action != "kept" and not run.record_count:
        yield f"  warning: {printable(run.label)} contains no events"
    losses = [entry for entry in run.log if entry.severity is not Severity.INFO or entry.code in notable]
    alike: dict[tuple[object, ...], list[LogEntry]] = {}
    for entry in losses:
        alike.setdefault((entry.source_id, entry.severity, entry.message), []).append(entry)
    for entry, *others in list(alike.values())[:_SHOWN_LOSSES]:
        place = f" at byte {entry.byte_offset}" if entry.byte_offset is not None else ""
        place += f" and {len(others):,} more place{'s' * (len(others) > 1)}" if others else ""
        events = sum(one.event_count or 0 for one in (entry, *others))
        count = f" ({events:,} record{'s' if events > 1 else ''})" if events else ""
        name, message = printable(run.source_names.get(entry.source_id or 0, run.label)), printable(entry.message)
        file = f"{name}: " if entry.source_id and not message.startswith(name) else ""
        yield f"  {entry.severity.value}: {file}{message}{place}{count}"
    if len(alike) > _SHOWN_LOSSES:
        yield f"  … and {len(alike) - _SHOWN_LOSSES} more, in the table import_log"
