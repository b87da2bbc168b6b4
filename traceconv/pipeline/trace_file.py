"""Ingest one trace file: two passes over its events, then its rows, table by table."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.digest import blake2b
from traceconv.base.errors import InputError, printable, reason_of
from traceconv.base.malloc_tuning import trim_heap
from traceconv.base.prefetch import prefetch
from traceconv.events.items import Items
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import DeviceTables, TraceBatch, TraceSource
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.files import STDIN, file_size
from traceconv.formats.common.identity import EPOCH_RANGE, Identity, epoch_offset_ns, of_keys
from traceconv.formats.common.limits import Limits
from traceconv.formats.format import ReadRequest
from traceconv.formats.registry import format_of, open_source, parts_of
from traceconv.normalize.trace.classify import PLAIN, RuleSet
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.own_columns import NotAsWritten
from traceconv.normalize.trace.own_export import OwnExport, header_of, is_ours
from traceconv.normalize.trace.rule_files import built_in
from traceconv.normalize.trace.second_pass import SecondPass, TableRows
from traceconv.pipeline.derived_rows import settle_reduces, size_collectives
from traceconv.pipeline.recorded_identity import host_and_rank
from traceconv.pipeline.run_import import SMALL_BYTES, RunContent, RunTarget, Source, not_a_trace
from traceconv.pipeline.task_launches import (
    bind_flows_to_waits,
    drop_unclear_launch_flows,
    find_launches_by_arg,
    is_track_of_waits,
    unmark_flows_between_tasks,
)
from traceconv.pipeline.task_waits import settle_op_summary_waits
from traceconv.pipeline.trace_memory import insert_blocks

#: Turns events into rows: takes all batches, whose times any thread may parse before, then yields the tables.
_Passes: TypeAlias = "_OwnTrace | _AnyTrace"
_EDGE_BYTES = 64 << 10
_SAMPLES = 64


class TraceOptions(NamedTuple):
    """How trace files are read. `rules` are tried before the built-in ones."""

    limits: Limits = Limits()
    rules: tuple[RuleSet, ...] = ()

    @property
    def items(self) -> tuple[Items, ...]:
        """Where JSON documents have items, by the first rules that define them."""
        return next((one.items for one in self.rules if one.items), ())


class TraceRecording(NamedTuple):
    """A trace file (`-`: standard input) to ingest. `format`: the name of its reader."""

    path: Path
    format: str
    options: TraceOptions

    @property
    def size_bytes(self) -> int:
        return sum(map(file_size, parts_of(self.path)))

    def digest(self) -> str | None:
        if self.path == STDIN:
            return None
        digests = [_fingerprint(path) for path in parts_of(self.path)]
        return digests[0] if len(digests) == 1 else blake2b("".join(digests).encode(), digest_size=16).hexdigest()

    def read(self, target: RunTarget) -> RunContent:
        """Store its events. Raises InputError if it contains no usable events."""
        total_bytes = self.size_bytes
        try:
            target.observer.start(target.label, total_bytes, 2)
            read = _Read(self, target)
        except NotAsWritten as changed:
            if self.path == STDIN:
                message = "standard input is a modified export of traceconv; ingest it from a file"
                raise InputError(f"{message} ({printable(str(changed))})") from None
            target.observer.start(target.label, total_bytes, 2)
            read = _Read(self, target, changed=str(changed))
        log, reader, run_columns = read.log, read.reader, read.run_columns
        read.passes.complete(target)
        if isinstance(reader, DeviceTables):
            from traceconv.pipeline.vendor_folder.database import add_tables  # most files have none

            add_tables(reader, target, log)
        complete = not log.lossy and not any(entry.code is Code.NO_END for entry in log)
        columns = {
            "options": reader.options(),
            "epoch_offset_ns": epoch_offset_ns(reader.keys, run_columns.get("start_ns")),
            **run_columns,
        }
        container = "" if reader.container == "plain" else f" {reader.container}"
        source = Source(SOURCE_ID, target.label, f"{self.format}{container}", reader.size_bytes, reader.digest)
        more = [
            Source(number, one.name, f"{self.format}{container}", one.size_bytes, one.digest)
            for number, one in enumerate(reader.more_sources, SOURCE_ID + 1)
        ]
        return RunContent(
            columns,
            _identity(target, read),
            [source, *more],
            [(SOURCE_ID, *block) for block in reader.blocks],
            reader.size_bytes,
            complete and run_columns.get("complete", True) is not False,
            log,
            read.accounts,
        )


def _identity(target: RunTarget, read: _Read) -> Identity:
    """Rank, host and group: from an export's own columns, then the file's other keys, then its events."""
    kept = Identity(
        read.run_columns.get("rank"),  # type: ignore[arg-type]  # the columns have the types of the table run
        read.run_columns.get("host"),  # type: ignore[arg-type]
        read.run_columns.get("group_label"),  # type: ignore[arg-type]
    )
    host, rank = host_and_rank(target, read.passes.rules.hosts, read.process_names)
    return kept.over(of_keys(read.reader.keys)).over(Identity(rank, host))


class _Read:
    """A file that was read into the tables of a run. Raises NotAsWritten before any row is written.

    changed  how the file differs from an export of ours, although it looks like one; None: it may be one
    """

    def __init__(self, recording: TraceRecording, target: RunTarget, changed: str | None = None) -> None:
        options, observer = recording.options, target.observer
        # The thread that reads ahead has a log of its own, so that the order of entries is always the same.
        self.log, read_log, self.accounts = ImportLog(), ImportLog(), Accounts()
        self.process_names: set[str | None] = set()
        if changed is not None:
            self.log.add(Code.CHANGED_EXPORT, f"a modified export: {changed}", source_id=SOURCE_ID)
        request = ReadRequest(recording.path, read_log, self.accounts, options.limits, observer.advance, options.items)
        self.reader = open_source(recording.format, request)
        self._is_own = changed is None
        self._passes: _Passes | None = None
        try:
            with _no_garbage_collection():
                largest = 0  # a large event has a batch of its own
                with closing(self._batches(recording)) as batches_read:
                    for batch in batches_read:
                        observer.counted(batch.columns.count)
                        self._passes = self._passes or self._new_passes(options)
                        self._passes.take(batch)
                        largest = max(largest, batch.byte_count or 0)
                self.passes = self._passes = self._passes or self._new_passes(options)
                self.log.put_first(read_log)
                observer.storing()
                texts = [len(text) for text in self.reader.keys.values()]
                target.writer.make_room(min(max(largest, sum(texts)), options.limits.event_bytes))
                self.passes.end()
                _check_usable(recording.path, self.reader, self.accounts, self.log)
                self.passes.prepare()
                is_small = self.reader.size_bytes < SMALL_BYTES
                if not is_small:  # sorting and nesting have used the first pass's free memory
                    trim_heap()
                rows_made = ((name, batch) for name, batches in self.passes.tables() for batch in batches)
                with closing(rows_made if is_small else prefetch(rows_made)) as rows:
                    for name, of_table in groupby(rows, itemgetter(0)):
                        batches = (batch for _, batch in of_table)
                        target.insert(name, self._noted(batches) if name == "process" else batches)
        finally:
            if self._passes is not None:
                self._passes.close()
        self.accounts.check()
        self.run_columns = self.passes.run_columns()

    def _batches(self, recording: TraceRecording) -> Generator[TraceBatch, None, None]:
        batches = (self._precomputed(batch) for batch in self.reader.batches())
        found = format_of(recording.format)
        # A read that waits for a pipe could not be interrupted.
        is_large = recording.size_bytes >= SMALL_BYTES
        if is_large and found is not None and found.read_ahead and os.path.isfile(recording.path):
            return prefetch(batches)
        return batches

    def _precomputed(self, batch: TraceBatch) -> TraceBatch:
        if self._passes is not None:
            self._passes.precompute_times(batch)
        return batch

    def _noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Only a single name is used.
            if "name" in batch.schema.names and len(self.process_names) < 2:
                self.process_names.update(batch.column("name").to_pylist())
            yield batch

    def _new_passes(self, options: TraceOptions) -> _Passes:
        header = header_of(self.reader.keys) if self._is_own else None
        if header is not None:
            return _OwnTrace(header, self.accounts, SOURCE_ID, ORDINAL_BITS)
        return _AnyTrace(self.log, self.accounts, self.reader, options, may_be_ours=self._is_own)


class _OwnTrace(OwnExport):
    """An export of ours, which has all rows."""

    rules = PLAIN

    def prepare(self) -> None:
        """Do nothing: events have the order of the rows."""

    def complete(self, target: RunTarget) -> None:
        """Do nothing: no rows must be derived from those that are stored."""


class _AnyTrace:
    """The two passes over the events of any writer."""

    def __init__(
        self, log: ImportLog, accounts: Accounts, reader: TraceSource, options: TraceOptions, *, may_be_ours: bool
    ) -> None:
        self._first = FirstPass(log, accounts, SOURCE_ID, ORDINAL_BITS, (*options.rules, *built_in()))
        self._may_be_ours = may_be_ours
        self._second: SecondPass | None = None
        self._reader = reader
        self._has_allocations = self._has_reduces = self._has_collectives = self._has_waits_apart = False
        self._tables: set[str] = set()  # those with rows
        self.precompute_times = self._first.precompute_times
        self.take = self._first.take
        self.end = self._first.end

    def prepare(self) -> None:
        """Do everything that needs the events in another order than the source's."""
        self._second = SecondPass(self._first, self._reader.keys, keeps_all=self._reader.keeps_all)
        self._second.prepare()

    def tables(self) -> Iterator[TableRows]:
        second = self._second
        assert second is not None
        for name, batches in second.tables():
            yield name, self._searched(name, batches)

    @property
    def rules(self) -> RuleSet:
        return PLAIN if self._second is None else self._second.rules

    def _searched(self, table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of a table, which are searched for what `complete` derives rows from."""
        assert self._second is not None
        memory = self._second.rules.memory
        for batch in batches:
            self._tables.add(table)
            if table == "range":
                self._has_reduces = self._has_reduces or "reduce" in _distinct(batch, "kind")
            elif table == "task":
                self._has_collectives = self._has_collectives or "collective" in _distinct(batch, "kind")
            elif table == "marker" and memory is not None:
                self._has_allocations = self._has_allocations or memory.name in _distinct(batch, "name")
            elif table == "track":
                self._has_waits_apart = self._has_waits_apart or any(map(is_track_of_waits, _distinct(batch, "name")))
            yield batch

    def complete(self, target: RunTarget) -> None:
        second = self._second
        assert second is not None
        if self._may_be_ours and is_ours(self._reader.keys):
            message = "traceconv exported it without args, or with several runs: devices, among others, are unknown"
            self._first.log.add(Code.FOR_VIEWERS, message, source_id=SOURCE_ID)
        elif self._has_allocations and second.rules.memory is not None:
            unread = insert_blocks(target, second.rules.memory)
            message = f"{second.rules.memory.name} events whose size is not a number: they are in no block of memory"
            self._first.log.count(Code.BAD_NUMBER, message, unread, 1)
        if second.launch_arg is not None and {"api", "task"} <= self._tables:
            unclear = find_launches_by_arg(target, second.launch_arg)
            message = f"tasks whose {second.launch_arg} occurs in another number of calls: their launch is unknown"
            self._first.log.count(Code.UNCLEAR_LAUNCH, message, unclear, 1)
            ran = "SELECT DISTINCT step_id, device_id FROM task WHERE run_id = $run AND step_id + device_id IS NOT NULL"
            found = second.slices.step_rows(target.fetch(ran))
            target.run_sql("DELETE FROM step WHERE run_id = $run")
            target.writer.insert("step", target.run_id, found)
        if self._has_waits_apart:
            bind_flows_to_waits(target)
        if second.has_flows_between_tasks:
            unmark_flows_between_tasks(target)
        if second.unclear_launches:
            message = "tasks whose correlation ID is used by several calls or processes: their launch is unknown"
            self._first.log.count(Code.UNCLEAR_LAUNCH, message, second.unclear_launches, 1)
            drop_unclear_launch_flows(target)
        if self._has_reduces:
            settle_reduces(target)
        else:
            settle_op_summary_waits(target, second.op_summary_waits)
        if self._has_reduces or self._has_collectives:
            target.writer.at_commit(size_collectives, target.run_id)

    def run_columns(self) -> dict[str, object]:
        start_ns, end_ns = (None, None) if self.rules.no_starts else (self._first.first_ns, self._first.last_ns)
        return {
            "writer": self.rules.title or None,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "epoch_known": start_ns is not None and start_ns in EPOCH_RANGE,
        }

    def close(self) -> None:
        self._first.close()
        if self._second is not None:
            self._second.close()


def _distinct(batch: pa.RecordBatch, column: str) -> list[str]:
    """Return the distinct values of a text column, which may be missing."""
    if column not in batch.schema.names:
        return []
    values = batch.column(column)
    distinct = values.dictionary if pa.types.is_dictionary(values.type) else values.unique()
    return [value for value in distinct.to_pylist() if value is not None]


def _check_usable(path: Path, reader: TraceSource, accounts: Accounts, log: ImportLog) -> None:
    if any(account.records - account.lost for account in accounts.by_record.values()):
        return
    if reader.found_events and not log.lossy:
        return  # a recording without events
    raise not_a_trace(path, log, reader.size_bytes)


def _fingerprint(path: Path) -> str:
    """Return a digest that identifies the file: of its size and samples from start to end, or of all of it."""
    digest = blake2b(digest_size=16)
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
        raise InputError(f"can't read {printable(str(path))}: {reason_of(error)}") from error
    return digest.hexdigest()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Turn off garbage collection: it would take a third of the time, and the values have no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
