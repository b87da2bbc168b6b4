"""Ingest: read → normalise → store. The only place where the three meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from traceconv.base.diagnostics import Accounts, LogEntry, Severity
from traceconv.base.errors import DataLossError, InputError, printable
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.identity import Naming, names_of
from traceconv.pipeline.discover import Problem, Sources, find_sources
from traceconv.pipeline.provenance_rows import same_content
from traceconv.reports.catalog import report_statements
from traceconv.store.writer import StoreWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from traceconv.pipeline.trace_file import TraceOptions


class Observer(Protocol):
    """Is told how an ingest goes on."""

    def plan(self, run_count: int, total_bytes: int) -> None:
        """So many runs are to be read, of so many bytes together."""

    def start(self, label: str, total_bytes: int, passes: int = 1) -> None:
        """A run of so many bytes begins to be read. `passes` 2: its rows are stored when all is read."""

    def advance(self, byte_count: int) -> None:
        """So many more bytes were read."""

    def counted(self, event_count: int) -> None:
        """So many more events were read."""

    def storing(self) -> None:
        """All events of the run are read; now its rows are made and stored."""

    def stored(self, row_count: int) -> None:
        """So many more rows of the run are on their way into the store."""

    def done(self) -> None:
        """The run is stored, or was found not to be usable."""


class SilentObserver:
    """Tells nobody."""

    def plan(self, run_count: int, total_bytes: int) -> None: ...

    def start(self, label: str, total_bytes: int, passes: int = 1) -> None: ...

    def advance(self, byte_count: int) -> None: ...

    def counted(self, event_count: int) -> None: ...

    def storing(self) -> None: ...

    def stored(self, row_count: int) -> None: ...

    def done(self) -> None: ...


@dataclass(frozen=True, slots=True)
class IngestedRun:
    """What became of one source.

    action     ingested, replaced, or kept (it was in the store already, and was left alone)
    seconds    wall time; with `record_count` it gives the rate
    was_lossy  of a run that was kept: something could not be read when it was ingested
    rank, host, group_label  as in the table run; None: not known
    """

    run_id: int
    label: str
    source_path: str
    action: str
    seconds: float = 0.0
    size_bytes: int = 0
    complete: bool = True
    accounts: Accounts = field(default_factory=Accounts)
    log: tuple[LogEntry, ...] = ()
    source_names: Mapping[int, str] = field(default_factory=dict)
    was_lossy: bool = False
    rank: int | None = None
    host: str | None = None
    group_label: str | None = None

    @property
    def record_count(self) -> int:
        return sum(account.records for account in self.accounts.by_record.values())

    @property
    def lossy(self) -> bool:
        """Whether the store lacks something of the source."""
        return self.was_lossy or any(entry.severity is not Severity.INFO for entry in self.log)


class IngestedRuns(list[IngestedRun]):
    """What became of each run, and of what gave none.

    unusable  files and folders that should have given a run, each with the reason
    others    files in folders that are no traces
    same      (run, an earlier one that seems to have the same content) for each such run
    """

    def __init__(self) -> None:
        super().__init__()
        self.unusable: list[Problem] = []
        self.others: list[Problem] = []
        self.same: list[tuple[int, int]] = []

    @property
    def lossy(self) -> bool:
        """Whether the store lacks something of what was to be read."""
        return bool(self.unusable) or any(run.lossy for run in self)


class NothingUsable(InputError):
    """Of several files or folders none could be used; `problems` has the reasons."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"none of {len(self.problems)} files and folders can be used; nothing was stored")


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
    sources = find_sources(paths, reader)
    result = IngestedRuns()
    result.unusable, result.others = sources.unusable, sources.others
    todo = _Todo(sources, naming or Naming(), observer or SilentObserver(), trace_options)
    if strict and result.unusable:
        raise _strictly(result.unusable[0])
    if not todo.count:
        raise _nothing_usable(result)
    with StoreWriter(store_path, report_statements, on_wait) as writer:
        for path, sure, ingest_one in todo.each(writer, replace):
            run_count, run_id = writer.run_count(), writer.next_run_id()
            try:
                run = ingest_one()
            except InputError as error:
                if writer.run_count() < run_count:  # the run that it was to replace is gone: only all can be undone
                    raise
                writer.delete_run(run_id)
                problem = Problem(path, str(error))
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

    def each(self, writer: StoreWriter, replace: bool) -> Iterator[tuple[Path, bool, Callable[[], IngestedRun]]]:
        """(path, whether it is a recording for certain, what reads it) of each."""
        names = iter(self._names)
        # Each kind is loaded when there is one of it, with all that it alone needs.
        if self._sources.captures:
            from traceconv.pipeline.capture import ingest_capture
        for capture, _ in self._sources.captures:
            yield capture.path, True, partial(ingest_capture, capture, writer, replace, self.observer, next(names))
        if not self._sources.folders and not self._sources.traces:
            return
        from traceconv.pipeline.trace_file import TraceOptions, ingest_trace

        options = self._options or TraceOptions()
        if self._sources.folders:
            from traceconv.pipeline.vendor_folder.folder import ingest_folder
        for folder, _ in self._sources.folders:
            one = partial(ingest_folder, folder, writer, replace, self.observer, options, next(names))
            yield folder.path, True, one
        for trace in self._sources.traces:
            read = partial(ingest_trace, trace.path, writer, replace, self.observer, options, trace.reader, next(names))
            yield trace.path, trace.sure, read


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path != STDIN else 0
    except OSError:
        return 0  # said when it is read


def told(batches: Iterator[pa.RecordBatch], observer: Observer) -> Iterator[pa.RecordBatch]:
    """The same batches; the observer is told of their rows."""
    for batch in batches:
        observer.stored(batch.num_rows)
        yield batch
