"""Ingest one capture: a folder of raw logs of the reference NPU."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.base.prefetch import prefetch
from traceconv.formats.common.identity import Identity
from traceconv.formats.npulog.discover import CaptureFolder, fingerprint
from traceconv.formats.npulog.format import FORMAT as NPULOG
from traceconv.formats.npulog.reader import CaptureReader
from traceconv.normalize.npulog.raw_log import RawLogNormalizer, TableRows
from traceconv.pipeline.derived_rows import add_unfinished_steps
from traceconv.pipeline.result import Observer
from traceconv.pipeline.run_import import SMALL_BYTES, RunContent, RunTarget, Source, no_usable_events, path_text
from traceconv.pipeline.task_waits import set_stream_waits, settle_op_summary_waits

#: A table, with its number because it may come more than once, and a batch of its rows.
_Batch: TypeAlias = "tuple[tuple[int, str], pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class CaptureRecording:
    """A capture to import."""

    capture: CaptureFolder
    format: str = NPULOG.name

    @property
    def path(self) -> Path:
        return self.capture.path

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.capture.files)

    def digest(self) -> str:
        return fingerprint(self.capture)

    def read(self, target: RunTarget) -> RunContent:
        """Store its events. Raises InputError if it contains no usable events."""
        capture, writer, run_id = self.capture, target.writer, target.run_id
        target.observer.start(target.label, self.size_bytes)
        log, accounts = ImportLog(), Accounts()
        reader = CaptureReader(capture, log, accounts, _counting(target.observer, accounts))
        normalizer = RawLogNormalizer(log, accounts, reader.clock_hz)
        step_count = 0
        try:
            with closing(_prefetched(normalizer.tables(reader.events()), self.size_bytes)) as rows:
                for (_, name), of_table in groupby(rows, itemgetter(0)):
                    row_count = writer.insert(name, run_id, (batch for _, batch in of_table))
                    step_count += row_count if name == "step" else 0
            facts = normalizer.facts
        finally:
            normalizer.close()
        for device_id, streams in normalizer.unordered_streams.items():
            overlaps = set_stream_waits(target, device_id, streams)
            message = f"task: device {device_id}: starts before the previous task on its stream ends"
            log.count(Code.OVERLAP, message, overlaps)
        settle_op_summary_waits(target, normalizer.op_summary_waits)
        if (capture.manifest_problem or "").startswith("missing"):
            for device_id, stream_id, last_ns in normalizer.last_times:
                after = "" if facts.start_ns is None else f", {last_ns - facts.start_ns} ns after the start of the run"
                log.add(Code.CUT_AT, f"device {device_id}, stream {stream_id}: the log ends at {last_ns} ns{after}")
        _check_usable(capture, accounts, log, step_count)
        if capture.manifest is None or log.lossy:
            unfinished = add_unfinished_steps(target)
            log.count(Code.UNFINISHED, "step: recorded in rows, but without marks from the device", unfinished)
        complete = capture.manifest is not None and capture.manifest_problem is None and not log.lossy
        names = ("writer", "model_name", "start_ns", "end_ns", "epoch_known", "options")
        columns = {name: getattr(facts, name) for name in names}
        columns["epoch_offset_ns"] = 0 if facts.epoch_known else None
        sources = []
        for one in reader.sources:
            path, digest = path_text(one.file.relative_path), f"{one.digest:08x}"
            sources.append(Source(one.source_id, path, f"npulog {one.record}", one.file.size_bytes, digest))
        blocks = [(source.source_id, *block) for source in reader.sources for block in source.blocks]
        return RunContent(columns, Identity(host=facts.host), sources, blocks, self.size_bytes, complete, log, accounts)


def _prefetched(tables: Iterator[TableRows], size_bytes: int) -> Generator[_Batch, None, None]:
    """Yield the batches of all tables, which a thread prepares while others are stored."""
    rows = (((number, name), batch) for number, (name, batches) in enumerate(tables) for batch in batches)
    return rows if size_bytes < SMALL_BYTES else prefetch(rows)


def _counting(observer: Observer, accounts: Accounts) -> Callable[[int], None]:
    """Report the bytes read, and the records accounted for since the last call."""
    known = 0

    def advance(byte_count: int) -> None:
        nonlocal known
        observer.advance(byte_count)
        count = sum(account.records for account in accounts.by_record.values())
        observer.counted(count - known)
        known = count

    return advance


def _check_usable(capture: CaptureFolder, accounts: Accounts, log: ImportLog, step_count: int) -> None:
    """Raise InputError if the capture has no usable events; a complete capture may have none."""
    accounts.check()
    is_intact = capture.manifest is not None and capture.manifest.files and not log.lossy
    if not is_intact and not step_count and not any(account.rows for account in accounts.by_record.values()):
        error = no_usable_events(capture.path, log, "its files have no events")
        raise InputError(f"{error}; see: traceconv info {printable(str(capture.path))}")
