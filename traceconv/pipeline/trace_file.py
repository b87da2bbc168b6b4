"""Ingest of one trace file: two passes over its events, then its rows, table by table, into the open transaction."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.base.malloc_tuning import trim_heap
from traceconv.base.prefetch import prefetch
from traceconv.events.items import Items
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import TraceBatch, TraceSource
from traceconv.formats.chrome_json.reader import SOURCE_ID
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.identity import EPOCH_RANGE, Identity, epoch_offset_ns, of_keys
from traceconv.formats.common.limits import Limits
from traceconv.formats.format import ReadRequest
from traceconv.formats.registry import format_of, open_source
from traceconv.normalize.table_waits import TableWaits
from traceconv.normalize.trace.classify import MemoryMarkers, RuleSet, built_in
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.own_columns import NotAsWritten
from traceconv.normalize.trace.own_export import OwnExport, header_of
from traceconv.normalize.trace.second_pass import SecondPass, TableRows
from traceconv.pipeline.collective_sizes import size_collectives
from traceconv.pipeline.derived_rows import DerivedRows
from traceconv.pipeline.recorded_identity import host_and_rank
from traceconv.pipeline.run_import import RunContent, RunTarget, Source, no_usable_events
from traceconv.pipeline.step_reduces import settle_reduces
from traceconv.pipeline.task_waits import set_table_waits, settle_table_waits
from traceconv.pipeline.unclear_launches import drop_unclear_launches

_EDGE_BYTES = 64 << 10
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How trace files are read. `rules`: tried before those of the package."""

    limits: Limits = field(default_factory=Limits)
    rules: tuple[RuleSet, ...] = ()

    @property
    def items(self) -> Items | None:
        """Where documents of JSON have items: the first of the rules that say so."""
        return next((one.items for one in self.rules if one.items is not None), None)


@dataclass(frozen=True, slots=True)
class TraceRecording:
    """A trace file (`-`: standard input), as it becomes a run. `format`: the name of its reader."""

    path: Path
    format: str
    options: TraceOptions

    def digest(self) -> str | None:
        return None if self.path == STDIN else _fingerprint(self.path)

    def read(self, target: RunTarget) -> RunContent:
        """Stores its events. Raises InputError when it contains no usable events."""
        total_bytes = 0 if self.path == STDIN else self.path.stat().st_size
        try:
            target.observer.start(target.label, total_bytes, 2)
            read = _Read(self, target)
        except NotAsWritten as changed:
            if self.path == STDIN:
                message = "standard input is an export of traceconv that was changed; ingest it from a file"
                raise InputError(f"{message} ({printable(str(changed))})") from None
            target.observer.start(target.label, total_bytes, 2)
            read = _Read(self, target, changed=str(changed))
        log, reader, run_columns = read.log, read.reader, read.run_columns
        if read.derived is not None:
            read.derived.insert(target)
            if read.unclear_launches:
                drop_unclear_launches(target)
            if settle_reduces(target):
                set_table_waits(target)
            else:
                settle_table_waits(target, read.table_waits)
            size_collectives(target)
        complete = not log.lossy and not any(entry.code is Code.NO_END for entry in log)
        columns = {
            "options": reader.options(),
            "epoch_offset_ns": epoch_offset_ns(reader.keys, run_columns.get("start_ns")),
            **run_columns,
        }
        container = "" if reader.container == "plain" else f" {reader.container}"
        source = Source(SOURCE_ID, target.label, f"{self.format}{container}", reader.size_bytes, reader.digest)
        return RunContent(
            columns,
            _identity(target, read),
            [source],
            [(SOURCE_ID, *block) for block in reader.blocks],
            reader.size_bytes,
            complete and run_columns.get("complete", True) is not False,
            log,
            read.accounts,
        )


def _identity(target: RunTarget, read: _Read) -> Identity:
    """Whose recording it is: by what an export of ours kept, then the file's other keys, then its events."""
    kept = Identity(
        read.run_columns.get("rank"),  # type: ignore[arg-type]  # the columns have the types of the table run
        read.run_columns.get("host"),  # type: ignore[arg-type]
        read.run_columns.get("group_label"),  # type: ignore[arg-type]
    )
    host, rank = host_and_rank(target, read.run_columns.get("writer"), read.process_names)
    return kept.over(of_keys(read.reader.keys)).over(Identity(rank, host))


class _Passes(Protocol):
    """What makes rows of events: takes all batches, then gives the tables."""

    def precompute_times(self, batch: TraceBatch) -> None:
        """Parse the times of a batch before it is taken, in any thread."""

    def take(self, batch: TraceBatch) -> None: ...

    def end(self) -> None: ...

    def tables(self) -> Iterator[TableRows]: ...

    def run_columns(self) -> dict[str, object]: ...

    def close(self) -> None: ...


class _Read:
    """A file read into the tables of a run. Raises NotAsWritten before it has written any row.

    changed  why the file, though it looks like an export of ours, is to be read as any other; None: it may be one
    """

    def __init__(self, recording: TraceRecording, target: RunTarget, changed: str | None = None) -> None:
        path, options, observer = recording.path, recording.options, target.observer
        # Reading and making rows go on side by side: each has a log of its own, so that the order is always the same.
        self.log, read_log, self.accounts = ImportLog(), ImportLog(), Accounts()
        self.process_names: set[str | None] = set()
        if changed is not None:
            self.log.add(Code.CHANGED_EXPORT, f"an export that was changed: {changed}", source_id=SOURCE_ID)
        request = ReadRequest(path, read_log, self.accounts, options.limits, observer.advance, options.items)
        self.reader = open_source(recording.format, request)
        self._passes: _Passes | None = None
        try:
            with _no_garbage_collection():
                largest = 0  # a batch has a single event that is large, if any
                with closing(self._batches(recording)) as batches_read:
                    for batch in batches_read:
                        observer.counted(batch.columns.count)
                        self._passes = self._passes or self._made_passes(options, own=changed is None)
                        self._passes.take(batch)
                        largest = max(largest, batch.byte_count or 0)
                passes = self._passes = self._passes or self._made_passes(options, own=changed is None)
                self.log.put_first(read_log)
                observer.storing()
                texts = [len(text) for text in self.reader.keys.values()]
                target.writer.make_room(min(max(largest, sum(texts)), options.limits.event_bytes))
                passes.end()
                trim_heap()
                _check_usable(path, self.reader, self.accounts, self.log)
                derived = DerivedRows()
                with closing(prefetch(_rows(passes, derived))) as rows:
                    for name, of_table in groupby(rows, itemgetter(0)):
                        batches = (batch for _, batch in of_table)
                        target.insert(name, self._noted(batches) if name == "process" else batches)
        finally:
            if self._passes is not None:
                self._passes.close()
        self.accounts.check()
        self.run_columns = passes.run_columns()
        self.unclear_launches = isinstance(passes, _AnyTrace) and passes.unclear_launches > 0
        #: What follows from the rows; None: an export of ours, which has it.
        self.derived = derived if isinstance(passes, _AnyTrace) else None
        self.table_waits = passes.table_waits() if isinstance(passes, _AnyTrace) else {}

    def _batches(self, recording: TraceRecording) -> Generator[TraceBatch, None, None]:
        batches = (self._precomputed(batch) for batch in self.reader.batches())
        found = format_of(recording.format)
        # A read that waits for a pipe could not be interrupted.
        if found is not None and found.read_ahead and os.path.isfile(recording.path):
            return prefetch(batches)
        return batches

    def _precomputed(self, batch: TraceBatch) -> TraceBatch:
        if self._passes is not None:
            self._passes.precompute_times(batch)
        return batch

    def _noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # More than two say no more than two.
            if "name" in batch.schema.names and len(self.process_names) < 2:
                self.process_names.update(batch.column("name").to_pylist())
            yield batch

    def _made_passes(self, options: TraceOptions, own: bool) -> _Passes:
        header = header_of(self.reader.keys) if own else None
        if header is not None:
            return OwnExport(header, self.accounts, SOURCE_ID, ORDINAL_BITS)
        return _AnyTrace(self.log, self.accounts, self.reader, options)


def _rows(passes: _Passes, derived: DerivedRows) -> Generator[tuple[str, pa.RecordBatch], None, None]:
    """The batches of all tables, one table after another. `derived` sees those of a trace of any writer."""
    for name, batches in passes.tables():
        if isinstance(passes, _AnyTrace):
            batches = derived.noted(name, batches, passes.memory_markers())
        for batch in batches:
            yield name, batch


class _AnyTrace:
    """The two passes over the events of any writer."""

    def __init__(self, log: ImportLog, accounts: Accounts, reader: TraceSource, options: TraceOptions) -> None:
        self._first = FirstPass(log, accounts, SOURCE_ID, ORDINAL_BITS, (*options.rules, *built_in()))
        self._second: SecondPass | None = None
        self._reader = reader

    def precompute_times(self, batch: TraceBatch) -> None:
        self._first.precompute_times(batch)

    def take(self, batch: TraceBatch) -> None:
        self._first.take(batch)

    def end(self) -> None:
        self._first.end()

    def tables(self) -> Iterator[TableRows]:
        self._second = SecondPass(self._first, self._reader.keys)
        self._second.prepare()
        yield from self._second.tables()

    def memory_markers(self) -> MemoryMarkers | None:
        return self._second.rules.memory if self._second is not None else None

    def table_waits(self) -> dict[int | None, TableWaits]:
        return self._second.table_waits if self._second is not None else {}

    @property
    def unclear_launches(self) -> int:
        return self._second.unclear_launches if self._second is not None else 0

    def run_columns(self) -> dict[str, object]:
        start_ns = self._first.first_ns
        return {
            "writer": (self._second.rules.title if self._second is not None else None) or None,
            "start_ns": start_ns,
            "end_ns": self._first.last_ns,
            "epoch_known": start_ns is not None and start_ns in EPOCH_RANGE,
        }

    def close(self) -> None:
        self._first.close()
        if self._second is not None:
            self._second.close()


def _check_usable(path: Path, reader: TraceSource, accounts: Accounts, log: ImportLog) -> None:
    if any(account.records - account.lost for account in accounts.by_record.values()):
        return
    if reader.found_events and not log.lossy:
        return  # a trace without events: that is what was recorded
    raise InputError(f"{no_usable_events(path, log, 'there is no array of events in it')}; is it a trace?")


def _fingerprint(path: Path) -> str:
    """A digest by which the same file is known again: its size, both ends, and samples from between, or all of it."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            digest.update(size.to_bytes(8, "little"))
            if size <= (_SAMPLES + 1) * _EDGE_BYTES:
                digest.update(stream.read((_SAMPLES + 1) * _EDGE_BYTES))
                return digest.hexdigest()
            for number in range(_SAMPLES + 1):
                stream.seek(max(0, size - _EDGE_BYTES) * number // _SAMPLES)
                digest.update(stream.read(_EDGE_BYTES))
    except OSError as error:
        raise InputError(f"can't read {printable(str(path))}: {error.strerror or error}") from error
    return digest.hexdigest()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Millions of short-lived values without cycles: looking for cycles among them would cost a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
