"""A capture's files → event batches: what others refer to first, then the host, then each device.

Memory holds one batch and what is undecided of one file, whatever the size of the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import numpy as np

from traceconv.diagnostics import Accounts, Code, ImportLog
from traceconv.errors import InputError, printable
from traceconv.events import EventBatch
from traceconv.readers.npulog.discover import CaptureFolder, LogFile
from traceconv.readers.npulog.sources import SourceFile
from traceconv.schema import record_by_tag
from traceconv.schema.dtypes import RecordArray, dtype_of, join
from traceconv.wire.codec import decode_block, missing_fields, unknown_fields
from traceconv.wire.frames import MAX_HEADER_BYTES, Block, Damage, FileHeader, FrameDecoder

#: Order of record types: what is referred to comes before what refers to it.
_ORDER = (
    *("dictionary", "capture", "thread", "model", "op", "fusion", "api", "range", "memory"),
    *("device", "stream", "sync", "step_mark", "task", "stream_range", "pmu_pipe_utilization", "counter"),
)
_CHUNK_BYTES = 2 << 20
_BATCH_BYTES = 4 << 20


class CaptureReader:
    """Reads one capture. Use `events` once; `sources` and `clock_hz` are there from the beginning.

    on_bytes  is told how many bytes were read, each time some are
    """

    def __init__(
        self,
        capture: CaptureFolder,
        log: ImportLog,
        accounts: Accounts,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._log = log
        self._accounts = accounts
        self._on_bytes = on_bytes
        self._counted = {file.path: file for file in capture.manifest.files} if capture.manifest else {}
        self.sources: list[SourceFile] = []
        #: device_id → nominal frequency of its counter.
        self.clock_hz: dict[int, int] = {}
        self._note_capture(capture)
        for number, file in enumerate(capture.files, start=1):
            header = _peek(file)
            record = header.schemas[0].name if header and header.schemas else file.record
            if header and header.device_id is not None:
                self.clock_hz.setdefault(header.device_id, header.clock_hz)
            device_id = header.device_id if header else file.device_id
            self.sources.append(SourceFile(number, file, record, device_id))

    def events(self) -> Iterator[EventBatch]:
        """The events of all files, one record type of one owner after another."""
        for (device_id, record), files in groupby(sorted(self.sources, key=_place), key=_stream):
            yield from _batched(self._read_stream(list(files)), record, device_id)

    def _read_stream(self, files: list[SourceFile]) -> Iterator[tuple[int, RecordArray]]:
        """(id of the first record, records) of each whole block of the slices of one stream."""
        end = 0
        for source in files:
            reading = _FileReading(source, self._log, self._accounts)
            yield from self._read_file(reading)
            first = reading.first if reading.first is not None else end
            known_to = max(first + reading.read + reading.lost, reading.end)
            if first > end and not self._counted:
                missing = first - end
                reading.lose(Code.MISSING_RECORDS, f"{missing} records are missing before this file", missing, 0, 0)
            counted = self._counted.get(source.file.relative_path)
            if counted is not None:
                missing = counted.record_count - reading.read - reading.lost
                if missing > 0:
                    message = f"{missing} records that the manifest counts are not there"
                    reading.lose(Code.MISSING_RECORDS, message, missing)
            reading.report()
            end = max(end, known_to)

    def _read_file(self, reading: _FileReading) -> Iterator[tuple[int, RecordArray]]:
        source = reading.source
        try:
            with source.file.path.open("rb", buffering=0) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    for item in reading.decoder.feed(chunk):
                        yield from reading.take(item)
                    self._on_bytes(len(chunk))
            for item in reading.decoder.finish():
                yield from reading.take(item)
        except OSError as error:
            reading.lose(Code.UNREADABLE_FILE, f"can't be read: {error.strerror or error}", 0)
        except InputError as error:
            reading.lose(Code.NEWER_VERSION, str(error), 0)

    def _note_capture(self, capture: CaptureFolder) -> None:
        """What is wrong with the capture as a whole."""
        problem = capture.manifest_problem
        if problem is not None:
            code = Code.NO_MANIFEST if problem.startswith("missing") else Code.BAD_MANIFEST
            self._log.add(code, f"manifest.json is {problem}")
        for path in capture.missing:
            counted = self._counted[path]
            account = self._accounts[counted.record]
            account.records += counted.record_count
            account.lost += counted.record_count
            message = f"{printable(path)} is missing"
            self._log.add(Code.MISSING_FILE, message, byte_count=counted.size_bytes, event_count=counted.record_count)
        for path in capture.unreadable:
            self._log.add(Code.UNREADABLE_FILE, f"{printable(path)} can't be listed")


class _FileReading:
    """One file on its way: its decoder, and what was read and lost of it."""

    def __init__(self, source: SourceFile, log: ImportLog, accounts: Accounts) -> None:
        self.source = source
        self.decoder = FrameDecoder()
        self.read = 0
        self.lost = 0
        self._first_block: int | None = None
        #: Sequence number after the last whole block.
        self.end = 0
        self._log = log
        self._accounts = accounts
        self._layouts: dict[tuple[int, int], np.dtype[np.void]] = {}
        self._unknown: dict[str, int] = {}
        self._longer = 0
        self._shorter = 0

    def take(self, item: Block | Damage) -> Iterator[tuple[int, RecordArray]]:
        """Decodes a block; puts damage down."""
        if isinstance(item, Damage):
            self.lose(item.code, item.message, item.event_count, item.byte_offset, item.byte_count)
            return
        self.end = item.sequence + item.record_count
        if self._first_block is None:
            self._first_block = item.sequence
        self.read += item.record_count
        first_id = self.source.add_block(item)
        layout = self._layouts.get((item.tag, item.record_size))
        if layout is not None:  # as this version writes them: nothing to look at block by block
            yield first_id, np.frombuffer(item.payload, layout)
            return
        known = record_by_tag().get(item.tag)
        header = self.decoder.header
        written = next((schema for schema in header.schemas if schema.tag == item.tag), known) if header else known
        if known is None or written is None or known.name != self.source.record:
            name = written.name if written is not None else f"tag {item.tag}"
            self._unknown[name] = self._unknown.get(name, 0) + item.record_count
            return
        try:
            records = decode_block(item, written, known)
        except ValueError:
            self.read -= item.record_count
            message = f"records of {item.record_size} bytes where the header says {written.size_bytes}"
            self.lose(Code.DAMAGED_BLOCK, message, item.record_count, item.byte_offset, item.byte_count)
            return
        longer, shorter = unknown_fields(item, written, known), missing_fields(written, known)
        self._longer += item.record_count if longer else 0
        self._shorter += item.record_count if shorter else 0
        if not longer and [(f.name, f.type) for f in written.fields] == [(f.name, f.type) for f in known.fields]:
            self._layouts[item.tag, item.record_size] = dtype_of(known)
        yield first_id, records

    @property
    def first(self) -> int | None:
        """Sequence number of the file's first record; None when nothing tells."""
        header = self.decoder.header
        return self._first_block if header is None else header.first_sequence

    def lose(
        self,
        code: Code,
        message: str,
        event_count: int | None,
        byte_offset: int | None = None,
        byte_count: int | None = None,
    ) -> None:
        """Puts a loss down, in the log and in the books."""
        self._log.add(
            code,
            message,
            source_id=self.source.source_id,
            byte_offset=byte_offset,
            byte_count=byte_count,
            event_count=event_count,
        )
        if event_count:
            self.lost += event_count if code is not Code.REPEATED_RECORDS else 0  # those were read before
            self._accounts[self.source.record].records += event_count
            self._accounts[self.source.record].lost += event_count

    def report(self) -> None:
        """Says what the file holds that this version does not know."""
        source_id = self.source.source_id
        for name, count in self._unknown.items():
            message = f"records of a type that this version does not know, or not in this file: {printable(name)}"
            self._log.add(Code.UNKNOWN_RECORD, message, source_id=source_id, event_count=count)
            account = self._accounts[name]
            account.records += count
            account.lost += count
        for code, count in ((Code.LONGER_RECORD, self._longer), (Code.SHORTER_RECORD, self._shorter)):
            if count:
                self._log.add(code, code.doc.rstrip("."), source_id=source_id, event_count=count)


def _batched(blocks: Iterable[tuple[int, RecordArray]], record: str, device_id: int | None) -> Iterator[EventBatch]:
    """Joins blocks to batches that are worth the overhead of a vectorised step."""
    parts: list[tuple[int, RecordArray]] = []
    size = 0
    for part in blocks:
        parts.append(part)
        size += part[1].nbytes
        if size >= _BATCH_BYTES:
            yield _joined(parts, record, device_id)
            parts, size = [], 0
    if parts:
        yield _joined(parts, record, device_id)


def _joined(parts: list[tuple[int, RecordArray]], record: str, device_id: int | None) -> EventBatch:
    ids = np.concatenate([np.arange(first, first + len(records), dtype=np.int64) for first, records in parts])
    return EventBatch(record, device_id, ids, join([records for _, records in parts]))


def _stream(source: SourceFile) -> tuple[int | None, str]:
    return source.device_id, source.record


def _place(source: SourceFile) -> tuple[int, int, str, int]:
    order = _ORDER.index(source.record) if source.record in _ORDER else len(_ORDER)
    owner = -1 if source.device_id is None else source.device_id
    return owner, order, source.record, source.file.slice_index


def _peek(file: LogFile) -> FileHeader | None:
    """The header of a file; None when it can't be read: that is said when the file is."""
    decoder = FrameDecoder()
    try:
        with file.path.open("rb") as stream:
            decoder.feed(stream.read(MAX_HEADER_BYTES))
    except (OSError, InputError):
        return None
    return decoder.header
