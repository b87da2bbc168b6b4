"""Invariants of any input: balanced accounting, row counts that match it, error messages instead of tracebacks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.events.items import Items
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import TraceSource
from traceconv.formats.common.limits import Limits
from traceconv.formats.format import ReadRequest
from traceconv.formats.npulog.discover import find_captures, fingerprint
from traceconv.formats.npulog.reader import CaptureReader
from traceconv.formats.registry import open_source
from traceconv.normalize.npulog.raw_log import RawLogNormalizer
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.own_columns import NotAsWritten
from traceconv.normalize.trace.own_export import OwnExport, header_of
from traceconv.normalize.trace.rule_files import built_in
from traceconv.normalize.trace.second_pass import SecondPass

#: Small, so that inputs of some KB reach them.
LIMITS = Limits(event_bytes=1 << 16, ratio=1000)
#: For documents that are not traces: the items of the corpus.
ITEMS = (
    Items("result.kernels.item", "us", "op", "at.begin", end="at.end", device="npu", stream="queue"),
    Items("result.copies.item", "ns", "what", "from", duration="for", fixed_category="copy"),
)
_SOURCE = 1


class Broken(AssertionError):
    """Something that must hold does not."""


def read_events(reader: str, path: Path) -> int:
    """Reads a trace file, without making rows of it; the number of events."""
    log, accounts = ImportLog(), Accounts()
    source = open_source(reader, ReadRequest(path, log, accounts, LIMITS, items=ITEMS))
    count = 0
    for batch in source.batches():
        count += batch.columns.count
        for field, values in (*batch.columns.labels.items(), *batch.columns.raw.items()):
            _must(len(values) == batch.columns.count, f"column {field} has another length")
    _source_says(source, log)
    for name, account in accounts.by_record.items():
        _must(account.balanced, f"the accounting of {name} doesn't balance: {account}")
    return count


def read_rows(reader: str, path: Path) -> int:
    """Reads a trace file and makes rows of it, as ingest does up to the store; the number of rows."""
    try:
        return _rows(reader, path, own=True)
    except NotAsWritten:
        return _rows(reader, path, own=False)


def _rows(reader: str, path: Path, *, own: bool) -> int:
    log, accounts = ImportLog(), Accounts()
    source = open_source(reader, ReadRequest(path, log, accounts, LIMITS, items=ITEMS))
    passes: FirstPass | OwnExport | None = None
    second: SecondPass | None = None
    made: dict[str, int] = {}
    try:
        for batch in source.batches():
            if passes is None:
                passes = _passes(source, log, accounts, own)
            passes.take(batch)
        passes = passes or _passes(source, log, accounts, own)
        passes.end()
        if isinstance(passes, FirstPass):
            second = SecondPass(passes, source.keys)
            second.prepare()
        tables = second.tables() if second is not None else passes.tables()  # type: ignore[union-attr]
        for name, batches in tables:
            made[name] = made.get(name, 0) + _count(name, batches)
    finally:
        if passes is not None:
            passes.close()
        if second is not None:
            second.close()
    _balanced(accounts, log)
    _source_says(source, log)
    if isinstance(passes, FirstPass):
        slices = sum(
            account.rows for name, account in accounts.by_record.items() if name[:2] in ("X ", "B ", "b ", "S ")
        )
        rows = sum(made.get(name, 0) for name in ("task", "api", "range"))
        _must(slices == rows, f"{slices} slices in the accounting, {rows} rows")
    return sum(made.values())


def _passes(source: TraceSource, log: ImportLog, accounts: Accounts, own: bool) -> FirstPass | OwnExport:
    found = header_of(source.keys) if own else None
    if found is not None:
        return OwnExport(found, accounts, _SOURCE, ORDINAL_BITS)
    return FirstPass(log, accounts, _SOURCE, ORDINAL_BITS, built_in())


def read_capture(folder: Path) -> int:
    """Reads a capture and makes rows of it; the number of rows."""
    rows = 0
    for capture in find_captures([folder]):
        fingerprint(capture)
        log, accounts = ImportLog(), Accounts()
        reader = CaptureReader(capture, log, accounts)
        normalizer = RawLogNormalizer(log, accounts, reader.clock_hz)
        try:
            for name, batches in normalizer.tables(reader.events()):
                rows += _count(name, batches)
        finally:
            normalizer.close()
        _balanced(accounts, log)
    return rows


def _count(name: str, batches: Iterable[pa.RecordBatch]) -> int:
    count = 0
    for batch in batches:
        batch.validate(full=True)
        count += batch.num_rows
    return count


def _balanced(accounts: Accounts, log: ImportLog) -> None:
    for name, one in accounts.by_record.items():
        _must(one.balanced, f"the accounting of {name} doesn't balance: {one}")
        _must(min(one.records, one.rows, one.paired, one.used, one.lost) >= 0, f"{name}: below 0: {one}")
    for entry in log:
        _must(isinstance(entry.message, str) and bool(entry.message), f"no words: {entry}")


def _source_says(source: TraceSource, log: ImportLog) -> None:
    _must(source.size_bytes >= 0, "no size")
    source.options()
    for first_id, count, offset, size in source.blocks:
        _must(count >= 0 and first_id >= 1 << ORDINAL_BITS, "a block without a place")
        _must((offset is None) == (size is None), "half a place")
        _must(offset is None or (offset >= 0 and (size or 0) >= 0), "a place below 0")
    _must(all(entry.byte_offset is None or entry.byte_offset >= 0 for entry in log), "a log row before the file")


def _must(holds: bool, message: str) -> None:
    if not holds:
        raise Broken(message)
