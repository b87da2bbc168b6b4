"""Ingest: read → normalize → store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traceconv.base.diagnostics import Severity
from traceconv.base.errors import DataLossError, InputError, UsageError, option, printable
from traceconv.formats.common.files import COMPRESSED
from traceconv.formats.common.identity import Naming, RunNames, names_of, rank_pattern
from traceconv.formats.nsys.format import REPORT_SUFFIXES
from traceconv.pipeline.discover import Sources, find_sources
from traceconv.pipeline.result import IngestedRun, IngestedRuns, NothingUsable, Observer, Problem
from traceconv.pipeline.run_copy import note_same_content
from traceconv.pipeline.run_import import Recording, import_run
from traceconv.reports.statements import report_statements
from traceconv.store.writer import StoreWriter

if TYPE_CHECKING:
    from traceconv.pipeline.trace_file import TraceOptions

#: Starting a process takes as long as reading this much text; a file takes as long as this much more.
_JOB_BYTES, _FILE_BYTES = 32 << 20, 1 << 19
#: The suffixes of files that are expanded first, and how much text they have for each byte.
_EXPANDED, _TIMES_EXPANDED = {*COMPRESSED, *REPORT_SUFFIXES}, 8
#: More processes would only wait for the store.
_MOST_JOBS = 8


def ingest(
    paths: Sequence[Path],
    store_path: Path,
    *,
    replace: bool = False,
    strict: bool = False,
    observer: Observer | None = None,
    reader: str | None = None,
    trace_options: TraceOptions | None = None,
    naming: Naming | None = None,
    jobs: int | None = None,
    derive: bool = True,
    on_wait: Callable[[], None] = lambda: None,
) -> IngestedRuns:
    """Import all captures, vendors' folders, trace files and lakes in `paths`, in this order and in one transaction.

    Files that can't be used are skipped and listed in the result.

    replace   re-import captures that are already in the store, in place of their runs
    strict    on any loss, raise DataLossError and leave the store unchanged
    reader    the reader for all paths; None: chosen by each file's first bytes
    naming    the user's ranks, hosts and groups; None: taken from paths and files
    jobs      number of processes that read, which doesn't change what is stored; 1: this one only; None: one per core,
              if there is enough to read
    derive    whether to fill tables that are computed from others, which some reports need
    on_wait   called once if another ingest into the store has to end first

    Raises UsageError for fewer than one job, InputError if a path does not exist or nothing can be used (NothingUsable
    for several reasons), StoreError if the store can't be written.
    """
    started = time.perf_counter()
    found = find_recordings(paths, reader, trace_options, naming, jobs)
    lakes, recordings = found.lakes, found.recordings
    result = IngestedRuns(store_path)
    result.unusable = found.unusable
    result.others = [one for one in found.others if os.path.realpath(one.path) != os.path.realpath(store_path)]
    observer = observer or Observer()
    observer.plan(len(recordings), sum(recording.size_bytes for recording in recordings))
    if strict and result.unusable:
        raise _strict_error(result.unusable[0])
    if lakes and naming is not None and naming != Naming():
        raise UsageError(f"runs of a lake keep their names; omit {option('--group')} and {option('--rank-pattern')}")
    if not recordings and not lakes:
        raise nothing_usable(result)
    with ExitStack() as stack:
        writer = stack.enter_context(StoreWriter(store_path, report_statements, on_wait))

        def is_wanted(digest: str) -> bool:
            return replace or writer.run_of(digest) is None

        turns = stack.enter_context(reading(recordings, found.names, found.processes, is_wanted, observer))
        _import_recordings(turns, found, writer, result, replace=replace, strict=strict)
        if lakes:
            _import_lakes(lakes, writer, result, replace=replace, strict=strict)
        if not result:
            raise nothing_usable(result)
        imported = [run.run_id for run in result if run.action != "kept"]
        if imported:
            result.same = note_same_content(writer, imported)
            writer.commit(derive=derive)
    result.seconds = time.perf_counter() - started
    return result


class Found(NamedTuple):
    """What an ingest reads, in this order.

    names      of the runs
    sure       whether a recording is certainly one; if not, failing to read it is not a loss
    lakes, unusable, others  as in `Sources`
    processes  number of processes that read; 0: only this one
    """

    recordings: Sequence[Recording]
    names: Sequence[RunNames]
    sure: Sequence[bool]
    lakes: Sequence[Path]
    unusable: list[Problem]
    others: Sequence[Problem]
    processes: int


def find_recordings(
    paths: Sequence[Path],
    reader: str | None,
    trace_options: TraceOptions | None,
    naming: Naming | None,
    jobs: int | None,
) -> Found:
    """Find what is to be read, and name its runs. Parameters and errors are those of `ingest`."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"{option('--jobs')} must be at least 1, not {jobs}")
    has_items = trace_options is not None and bool(trace_options.items)
    sources = find_sources(paths, reader, has_items=has_items)
    found = list(_recordings(sources, trace_options))
    recordings = [recording for recording, _, _ in found]
    job_count = job_count_for(recordings) if jobs is None else min(jobs, len(recordings))
    return Found(
        recordings,
        names_of([(recording.path, top) for recording, top, _ in found], naming or Naming()),
        [sure for _, _, sure in found],
        sources.lakes,
        sources.unusable,
        sources.others,
        0 if job_count == 1 else job_count,
    )


@contextmanager
def reading(
    recordings: Sequence[Recording],
    names: Sequence[RunNames],
    processes: int,
    is_wanted: Callable[[str], bool],
    observer: Observer,
    *,
    one_store: bool = True,
) -> Iterator[Iterator[tuple[Recording, Observer]]]:
    """Yield an iterator over the recordings, each with its observer, while other processes read those that follow.

    processes  their number; 0: only this one reads
    is_wanted  whether a recording with this digest has to be read
    one_store  whether one writer stores all recordings
    """
    if processes == 0:
        yield ((one, observer.of_run()) for one in recordings)
        return
    from traceconv.pipeline.reader_pool import Readers

    with Readers(recordings, names, processes, is_wanted, observer, one_store=one_store) as readers:
        yield readers.recordings()


def _import_recordings(
    turns: Iterable[tuple[Recording, Observer]],
    found: Found,
    writer: StoreWriter,
    result: IngestedRuns,
    *,
    replace: bool,
    strict: bool,
) -> None:
    for (recording, run_observer), names, sure in zip(turns, found.names, found.sure, strict=True):
        run_count, run_id = writer.run_count(), writer.next_run_id()
        writer.changed = False
        try:
            run = import_run(recording, names, writer, run_observer, replace=replace)
        except InputError as error:
            if writer.run_count() < run_count:  # the replaced run is gone: undo everything
                raise
            if writer.changed:
                writer.delete_run(run_id)
            problem = Problem(recording.path, str(error))
            if strict and sure:
                raise _strict_error(problem) from error
            (result.unusable if sure else result.others).append(problem)
            continue
        finally:
            run_observer.done()
        result.append(run)
        writer.end_run()
        if strict and run.lossy:
            raise _strict_run(run)


def _import_lakes(
    lakes: Sequence[Path], writer: StoreWriter, result: IngestedRuns, *, replace: bool, strict: bool
) -> None:
    from traceconv.pipeline.lake_import import import_lake

    for number, path in enumerate(lakes):
        runs, problems = import_lake(path, f"lake_{number}", writer, replace=replace)
        result.unusable += problems
        result.extend(runs)
        if strict and problems:
            raise _strict_error(problems[0])
        lossy = next((run for run in runs if run.lossy), None)
        if strict and lossy is not None:
            raise _strict_run(lossy)


def job_count_for(recordings: Sequence[Recording]) -> int:
    """Return how many processes read, by default: one per core, if that many have enough to do."""
    sizes = [
        recording.size_bytes * (_TIMES_EXPANDED if recording.path.suffix in _EXPANDED else 1) + _FILE_BYTES
        for recording in recordings
    ]
    worth = sum(sizes) // _JOB_BYTES
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, len(recordings), worth, _MOST_JOBS))


def trace_options_of(rules: Sequence[Path], max_event_mb: int, max_ratio: int) -> TraceOptions | None:
    """Return how to read trace files; None for the defaults, so that nothing is imported for them.

    Raises UsageError for a number below 1, and InputError or UsageError for a rule file that can't be used.
    """
    for name, value in (("max_event_mb", max_event_mb), ("max_ratio", max_ratio)):
        if value < 1:
            raise UsageError(f"{option('--' + name.replace('_', '-'), name)} must be at least 1, not {value}")
    if not rules and (max_event_mb, max_ratio) == (64, 1000):
        return None
    from traceconv.formats.common.limits import Limits
    from traceconv.normalize.trace.rule_files import read_rules
    from traceconv.pipeline.trace_file import TraceOptions

    return TraceOptions(Limits(max_event_mb << 20, max_ratio), tuple(map(read_rules, rules)))


def naming_of(pattern: str | None, group: str | None) -> Naming:
    """Return how runs are named. Raises UsageError for an invalid pattern of paths."""
    return Naming(None if pattern is None else rank_pattern(pattern), group)


def _strict_error(problem: Problem) -> DataLossError:
    return DataLossError(f"{problem.message}; nothing was stored, since {option('--strict')} was given")


def _strict_run(run: IngestedRun) -> DataLossError:
    messages = [entry.message for entry in run.log if entry.severity is not Severity.INFO]
    first = messages[0] if messages else f"is already in the store as run {run.run_id}, with losses"
    return _strict_error(Problem(Path(run.source_path), f"{printable(run.label)}: {printable(first)}"))


def nothing_usable(result: IngestedRuns) -> InputError:
    """Return the error for an ingest without runs."""
    problems = [*result.unusable, *map(_with_name, result.others)]
    return InputError(problems[0].message) if len(problems) == 1 else NothingUsable(problems)


def _with_name(problem: Problem) -> Problem:
    name = printable(str(problem.path))
    return problem if name in problem.message else Problem(problem.path, f"{name} {problem.message}")


def _recordings(sources: Sources, options: TraceOptions | None) -> Iterator[tuple[Recording, Path | None, bool]]:
    """Yield each recording with the folder in which it was found, and whether it is certainly a recording."""
    # Each kind is imported on demand, with all the modules that only it needs.
    if sources.captures:
        from traceconv.pipeline.capture import CaptureRecording

        for capture, top in sources.captures:
            yield CaptureRecording(capture), top, True
    if not sources.folders and not sources.traces:
        return
    from traceconv.pipeline.trace_file import TraceOptions, TraceRecording

    options = options or TraceOptions()
    if sources.folders:
        from traceconv.pipeline.vendor_folder.folder import FolderRecording

        for folder, top in sources.folders:
            yield FolderRecording(folder, options), top, True
    for trace in sources.traces:
        yield TraceRecording(trace.path, trace.reader, options), trace.top, trace.sure
