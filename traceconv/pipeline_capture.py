"""Ingest of one capture: a folder of raw logs of the reference NPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa

from traceconv.diagnostics import Accounts, Code, ImportLog, Severity
from traceconv.errors import InputError, printable
from traceconv.normalize.raw_log import RawLogNormalizer, RunFacts
from traceconv.normalize.rows import rows_from_tuples
from traceconv.pipeline import IngestedRun, Observer
from traceconv.readers.identity import Identity, RunColumns, RunNames
from traceconv.readers.npulog.discover import CaptureFolder, fingerprint
from traceconv.readers.npulog.reader import CaptureReader
from traceconv.schema import table
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.writer import StoreWriter


def ingest_capture(
    capture: CaptureFolder, writer: StoreWriter, replace: bool, observer: Observer, names: RunNames
) -> IngestedRun:
    """Reads a capture into the store that is being written. `replace`: also when it is there already.

    Raises InputError when nothing of it can be used; StoreError when the store can't be written.
    """
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
