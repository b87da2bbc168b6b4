"""Ingest: read → normalise → store. The only place where the three meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceconv.base.diagnostics import Severity
from traceconv.base.errors import DataLossError, InputError, printable
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.identity import Naming, RunNames, names_of
from traceconv.pipeline.discover import Sources, find_sources
from traceconv.pipeline.result import IngestedRun, IngestedRuns, NothingUsable, Observer, Problem, SilentObserver
from traceconv.pipeline.run_import import Recording, import_run
from traceconv.pipeline.same_content import same_content
from traceconv.reports.catalog import report_statements
from traceconv.store.writer import StoreWriter

if TYPE_CHECKING:
    from traceconv.pipeline.trace_file import TraceOptions


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
    on_wait: Callable[[], None] = lambda: None,
) -> IngestedRuns:
    """Normalises all captures and trace files in `paths` into the store, in one transaction: captures first.

    Returns what became of each. What can't be used is left out, and named in the result.

    replace   a capture that is in the store already is read again and takes the place of its run
    strict    any loss raises DataLossError, and the store stays as it was
    reader    the reader to use for all paths; None: the one that knows the file's first bytes
    naming    what the user says of ranks, hosts and groups; None: names and files say it
    on_wait   called once when another ingest into the store has to end first

    Raises InputError when a path does not exist, and when nothing in any of them can be used (NothingUsable when
    there are several reasons); StoreError when the store can't be written.
    """
    has_items = trace_options is not None and trace_options.items is not None
    sources = find_sources(paths, reader, has_items=has_items)
    result = IngestedRuns()
    result.unusable, result.others = sources.unusable, sources.others
    todo = _Todo(sources, naming or Naming(), observer or SilentObserver(), trace_options)
    if strict and result.unusable:
        raise _strictly(result.unusable[0])
    if not todo.count:
        raise _nothing_usable(result)
    with StoreWriter(store_path, report_statements, on_wait) as writer:
        for recording, sure, names in todo.each():
            run_count, run_id = writer.run_count(), writer.next_run_id()
            try:
                run = import_run(recording, names, writer, todo.observer, replace=replace)
            except InputError as error:
                if writer.run_count() < run_count:  # the run that it was to replace is gone: only all can be undone
                    raise
                writer.delete_run(run_id)
                problem = Problem(recording.path, str(error))
                if strict and sure:
                    raise _strictly(problem) from error
                (result.unusable if sure else result.others).append(problem)
                continue
            finally:
                todo.observer.done()
            result.append(run)
            if strict and run.lossy:
                raise _strict_run(run)
        if not result:
            raise _nothing_usable(result)
        if any(run.action != "kept" for run in result):
            result.same = same_content(writer, [run.run_id for run in result if run.action != "kept"])
            writer.commit()
    return result


def _strictly(problem: Problem) -> DataLossError:
    return DataLossError(f"{problem.message}; nothing was stored, since --strict was given")


def _strict_run(run: IngestedRun) -> DataLossError:
    messages = [entry.message for entry in run.log if entry.severity is not Severity.INFO]
    first = messages[0] if messages else f"is in the store already, as run {run.run_id}, with losses"
    return _strictly(Problem(Path(run.source_path), f"{printable(run.label)}: {printable(first)}"))


def _nothing_usable(result: IngestedRuns) -> InputError:
    problems = [*result.unusable, *result.others]
    return InputError(problems[0].message) if len(problems) == 1 else NothingUsable(problems)


class _Todo:
    """The runs that are to be read: what each is called, and how it is read."""

    def __init__(
        self, sources: Sources, naming: Naming, observer: Observer, trace_options: TraceOptions | None
    ) -> None:
        self.observer = observer
        self._sources = sources
        self._options = trace_options
        places: list[tuple[Path, Path | None]] = [(capture.path, top) for capture, top in sources.captures]
        places += [(folder.path, top) for folder, top in sources.folders]
        places += [(trace.path, trace.top) for trace in sources.traces]
        self._names = names_of(places, naming)
        self.count = len(places)
        sizes = [file.size_bytes for capture, _ in sources.captures for file in capture.files]
        sizes += [_size(file) for folder, _ in sources.folders for file in folder.files]
        sizes += [_size(trace.path) for trace in sources.traces]
        observer.plan(self.count, sum(sizes))

    def each(self) -> Iterator[tuple[Recording, bool, RunNames]]:
        """(recording, whether it is one for certain, what it is called) of each."""
        names = iter(self._names)
        # Each kind is loaded when there is one of it, with all that it alone needs.
        if self._sources.captures:
            from traceconv.pipeline.capture import CaptureRecording
        for capture, _ in self._sources.captures:
            yield CaptureRecording(capture), True, next(names)
        if not self._sources.folders and not self._sources.traces:
            return
        from traceconv.pipeline.trace_file import TraceOptions, TraceRecording

        options = self._options or TraceOptions()
        if self._sources.folders:
            from traceconv.pipeline.vendor_folder.folder import FolderRecording
        for folder, _ in self._sources.folders:
            yield FolderRecording(folder, options), True, next(names)
        for trace in self._sources.traces:
            yield TraceRecording(trace.path, trace.reader, options), trace.sure, next(names)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path != STDIN else 0
    except OSError:
        return 0  # said when it is read
