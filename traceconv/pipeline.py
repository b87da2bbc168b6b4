"""Ingest: read → normalise → store. The only place where the three meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from traceconv.diagnostics import Accounts, Code, ImportLog, LogEntry, Severity
from traceconv.errors import DataLossError, InputError, printable
from traceconv.normalize.raw_log import RawLogNormalizer, RunFacts
from traceconv.normalize.rows import rows_from_tuples
from traceconv.pipeline_sources import Problem, Sources, find_sources
from traceconv.readers.chrome_json.containers import STDIN
from traceconv.readers.identity import Identity, Naming, RunColumns, RunNames, names_of
from traceconv.readers.npulog.discover import CaptureFolder, fingerprint
from traceconv.readers.npulog.reader import CaptureReader
from traceconv.reports.catalog import report_statements
from traceconv.schema import table
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.writer import StoreWriter

if TYPE_CHECKING:
    from traceconv.pipeline_trace import TraceOptions


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
    """

    def __init__(self) -> None:
        super().__init__()
        self.unusable: list[Problem] = []
        self.others: list[Problem] = []

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
) -> IngestedRuns:
    """Normalises all captures and trace files in `paths` into the store, in one transaction: captures first.

    Returns what became of each. What can't be used is left out, and named in the result.

    replace   a capture that is in the store already is read again and takes the place of its run
    strict    any loss raises DataLossError, and the store stays as it was
    reader    the reader to use for all paths; None: the one that knows the file's first bytes
    naming    what the user says of ranks, hosts and groups; None: names and files say it

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
    with StoreWriter(store_path, report_statements) as writer:
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
        for capture, _ in self._sources.captures:
            yield capture.path, True, partial(_ingest_capture, capture, writer, replace, self.observer, next(names))
        if not self._sources.folders and not self._sources.traces:
            return
        from traceconv.pipeline_trace import TraceOptions, ingest_trace  # with all that it alone needs

        options = self._options or TraceOptions()
        if self._sources.folders:
            from traceconv.pipeline_folder import ingest_folder
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


def _ingest_capture(
    capture: CaptureFolder, writer: StoreWriter, replace: bool, observer: Observer, names: RunNames
) -> IngestedRun:
    started = time.perf_counter()
    label, source_path = names.label, _text(str(capture.path))
    digest = fingerprint(capture)
    known = writer.run_of(digest)
    if known is not None and not replace:
        return IngestedRun(known[0], known[1], source_path, "kept", was_lossy=writer.lossy(known[0]))
    if known is not None:
        writer.delete_run(known[0])
    run_id = known[0] if known is not None else writer.next_run_id()
    size_bytes = sum(file.size_bytes for file in capture.files)
    observer.start(label, size_bytes)
    log, accounts = ImportLog(), Accounts()
    reader = CaptureReader(capture, log, accounts, _counting(observer, accounts))
    normalizer = RawLogNormalizer(log, accounts, reader.clock_hz)
    step_count = 0
    try:
        for name, batches in normalizer.tables(reader.events()):
            row_count = writer.insert(name, run_id, batches)
            step_count += row_count if name == "step" else 0
        facts = normalizer.facts
    finally:
        normalizer.close()
    for device_id, streams in normalizer.unordered_streams.items():
        overlaps = writer.set_waits(run_id, device_id, streams)
        if overlaps:
            message = f"task: device {device_id}: begins before the task before it on its stream ends"
            log.add(Code.OVERLAP, message, event_count=overlaps)
    if (capture.manifest_problem or "").startswith("missing"):
        for device_id, stream_id, last_ns in normalizer.last_times:
            after = "" if facts.start_ns is None else f", {last_ns - facts.start_ns} ns after the start of the run"
            log.add(Code.CUT_AT, f"device {device_id}, stream {stream_id}: the log ends at {last_ns} ns{after}")
    _check_books(capture, accounts, log, step_count)
    complete = capture.manifest is not None and capture.manifest_problem is None and not log.lossy
    columns = names.columns(Identity(host=facts.host))
    _insert_run(writer, run_id, columns, digest, source_path, facts, complete)
    _insert_provenance(writer, run_id, reader, log, accounts)
    return IngestedRun(
        run_id,
        label,
        source_path,
        "ingested" if known is None else "replaced",
        time.perf_counter() - started,
        size_bytes,
        complete,
        accounts,
        tuple(log),
        {source.source_id: source.file.relative_path for source in reader.sources},
        rank=columns.rank,
        host=columns.host,
        group_label=columns.group_label,
    )


def told(batches: Iterator[pa.RecordBatch], observer: Observer) -> Iterator[pa.RecordBatch]:
    """The same batches; the observer is told of their rows."""
    for batch in batches:
        observer.stored(batch.num_rows)
        yield batch


def _counting(observer: Observer, accounts: Accounts) -> Callable[[int], None]:
    """Tells of the bytes that were read, and of the records that the books have since the last time."""
    known = 0

    def advance(byte_count: int) -> None:
        nonlocal known
        observer.advance(byte_count)
        count = sum(account.records for account in accounts.by_record.values())
        observer.counted(count - known)
        known = count

    return advance


def _check_books(capture: CaptureFolder, accounts: Accounts, log: ImportLog, step_count: int) -> None:
    """InputError when nothing of the capture could be used; AssertionError when the books don't balance."""
    for record, account in accounts.by_record.items():
        assert account.balanced, f"the books of {record} don't balance: {account}"
    if not step_count and not any(account.rows for account in accounts.by_record.values()):
        reasons = [entry.message for entry in log if entry.severity is not Severity.INFO]
        shown = printable(str(capture.path))
        reason = f" ({reasons[-1]})" if reasons else ""
        raise InputError(f"{shown}: nothing in it can be used{reason}; see: traceconv info {shown}")


def _insert_run(
    writer: StoreWriter,
    run_id: int,
    columns: RunColumns,
    digest: str,
    source_path: str,
    facts: RunFacts,
    complete: bool,
) -> None:
    row = {
        **asdict(columns),
        "source_path": source_path,
        "source_format": "npulog",
        "source_digest": digest,
        "writer": facts.writer,
        "model_name": facts.model_name,
        "start_ns": facts.start_ns,
        "end_ns": facts.end_ns,
        "epoch_known": facts.epoch_known,
        "epoch_offset_ns": 0 if facts.epoch_known else None,
        "complete": complete,
        "options": facts.options,
        "schema_version": SCHEMA_VERSION,
    }
    writer.insert("run", run_id, _one(rows_from_tuples("run", tuple(row), [tuple(row.values())])))


def _insert_provenance(
    writer: StoreWriter, run_id: int, reader: CaptureReader, log: ImportLog, accounts: Accounts
) -> None:
    """Where the rows came from, what was lost on the way, and the books."""
    sources = [
        (one.source_id, _text(one.file.relative_path), f"npulog {one.record}", one.file.size_bytes, f"{one.digest:08x}")
        for one in reader.sources
    ]
    blocks = [(one.source_id, *block) for one in reader.sources for block in one.blocks]
    entries = [
        (e.source_id, e.severity.value, e.code.text, e.byte_offset, e.byte_count, e.event_count, e.message) for e in log
    ]
    books = [(name, a.records, a.rows, a.merged, a.consumed, a.lost) for name, a in sorted(accounts.by_record.items())]
    contents: tuple[tuple[str, Sequence[tuple[object, ...]]], ...] = (
        ("source", sources),
        ("source_block", blocks),
        ("import_log", entries),
        ("import_account", books),
    )
    for name, rows in contents:
        columns = tuple(column.name for column in table(name).columns if column.name != "run_id")
        writer.insert(name, run_id, _one(rows_from_tuples(name, columns, rows)))


def _text(path: str) -> str:
    """A path as text: bytes that are no UTF-8 are spelled out."""
    return path.encode("utf-8", "backslashreplace").decode()


def _one(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return iter([batch])
