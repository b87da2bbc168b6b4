"""Ingest: read → normalise → store. The only place where the three meet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from traceconv.diagnostics import Accounts, Code, ImportLog, LogEntry, Severity
from traceconv.errors import DataLossError, InputError, printable
from traceconv.normalize.raw_log import RawLogNormalizer, RunFacts
from traceconv.normalize.rows import rows_from_tuples
from traceconv.normalize.vendor_csv.spec import spec
from traceconv.readers import choose_reader
from traceconv.readers.npulog.discover import CaptureFolder, find_captures, fingerprint
from traceconv.readers.npulog.reader import CaptureReader
from traceconv.readers.vendor_folder.discover import VendorFolder, find_vendor_folders
from traceconv.reports.catalog import report_statements
from traceconv.schema import table
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.writer import StoreWriter

if TYPE_CHECKING:
    from traceconv.pipeline_trace import TraceOptions


class Observer(Protocol):
    """Is told how an ingest goes on."""

    def start(self, label: str, total_bytes: int) -> None:
        """A run of so many bytes begins to be read."""

    def advance(self, byte_count: int) -> None:
        """So many more bytes were read."""


class _Silent:
    def start(self, label: str, total_bytes: int) -> None: ...

    def advance(self, byte_count: int) -> None: ...


@dataclass(frozen=True, slots=True)
class IngestedRun:
    """What became of one source.

    action     ingested, replaced, or kept (it was in the store already, and was left alone)
    seconds    wall time; with `record_count` it gives the rate
    was_lossy  of a run that was kept: something could not be read when it was ingested
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

    @property
    def record_count(self) -> int:
        return sum(account.records for account in self.accounts.by_record.values())

    @property
    def lossy(self) -> bool:
        """Whether the store lacks something of the source."""
        return self.was_lossy or any(entry.severity is not Severity.INFO for entry in self.log)


def ingest(
    paths: Sequence[Path],
    store_path: Path,
    *,
    replace: bool = False,
    strict: bool = False,
    observer: Observer | None = None,
    reader: str | None = None,
    trace_options: TraceOptions | None = None,
) -> list[IngestedRun]:
    """Normalises all captures and trace files in `paths` into the store, in one transaction: captures first.

    Returns what became of each.

    replace   a capture that is in the store already is read again and takes the place of its run
    strict    any loss raises DataLossError, and the store stays as it was
    reader    the reader to use for all paths; None: the one that knows the file's first bytes

    Raises InputError when a path holds nothing that can be read, StoreError when the store can't be written.
    """
    readers = [choose_reader(path, reader) for path in paths]
    logs = [path for path, name in zip(paths, readers, strict=True) if name == "npulog"]
    captures, folders = _recordings(logs) if reader is None else (find_captures(logs), [])
    traces = [(path, name) for path, name in zip(paths, readers, strict=True) if name != "npulog"]
    with StoreWriter(store_path, report_statements) as writer:
        runs = [_ingest_capture(capture, writer, replace, observer or _Silent()) for capture in captures]
        if traces or folders:
            from traceconv.pipeline_trace import TraceOptions, ingest_trace  # with all that it alone needs

            options = trace_options or TraceOptions()
        if folders:
            from traceconv.pipeline_folder import ingest_folder

            runs += [ingest_folder(folder, writer, replace, observer or _Silent(), options) for folder in folders]
        if traces:
            runs += [ingest_trace(path, writer, replace, observer or _Silent(), options, name) for path, name in traces]
        lossy = [run for run in runs if run.lossy]
        if strict and lossy:
            messages = [entry.message for entry in lossy[0].log if entry.severity is not Severity.INFO]
            first = messages[0] if messages else f"is in the store already, as run {lossy[0].run_id}, with losses"
            label = printable(lossy[0].label)
            raise DataLossError(f"{label}: {printable(first)}; nothing was stored, since --strict was given")
        if any(run.action != "kept" for run in runs):
            writer.commit()
    return runs


def vendor_folders(path: Path) -> list[VendorFolder]:
    """The output folders of msprof and torch_npu at or below a path."""

    def kind_of(name: str) -> str | None:
        kind = spec().kind_of(name)
        return None if kind is None else kind.becomes

    return find_vendor_folders(path, kind_of)


def _recordings(paths: Sequence[Path]) -> tuple[list[CaptureFolder], list[VendorFolder]]:
    """Captures, and output folders of vendors that lie in none of them. InputError for a path with neither."""
    captures: list[CaptureFolder] = []
    found: dict[str, VendorFolder] = {}
    for path in paths:
        folders = vendor_folders(path)
        try:
            captures += find_captures([path])
        except InputError:
            if not folders:
                raise
        found.update((os.path.realpath(folder.path), folder) for folder in folders)
    own = {os.path.realpath(capture.path) for capture in captures}
    return find_captures(paths) if not found else captures, [folder for key, folder in found.items() if key not in own]


def _ingest_capture(capture: CaptureFolder, writer: StoreWriter, replace: bool, observer: Observer) -> IngestedRun:
    started = time.perf_counter()
    label, source_path = _text(capture.path.resolve().name), _text(str(capture.path))
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
    reader = CaptureReader(capture, log, accounts, observer.advance)
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
    _insert_run(writer, run_id, label, digest, source_path, facts, complete)
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
    )


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
    label: str,
    digest: str,
    source_path: str,
    facts: RunFacts,
    complete: bool,
) -> None:
    row = {
        "label": label,
        "host": facts.host,
        "source_path": source_path,
        "source_format": "npulog",
        "source_digest": digest,
        "writer": facts.writer,
        "model_name": facts.model_name,
        "start_ns": facts.start_ns,
        "end_ns": facts.end_ns,
        "epoch_known": facts.epoch_known,
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
