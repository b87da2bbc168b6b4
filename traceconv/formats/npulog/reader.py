"""A capture's files → event batches: what others refer to first, then the host, then each device.

Memory is bounded by one batch and the undecided bytes of one file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.events.npu import EventBatch
from traceconv.formats.npulog.discover import CaptureFolder, LogFile, owner_of
from traceconv.formats.npulog.file_reading import FileReading
from traceconv.formats.npulog.manifest import Manifest, ManifestFile
from traceconv.formats.npulog.ranges import Ranges
from traceconv.formats.npulog.sources import SourceFile
from traceconv.formats.npulog.stream import Found, StreamReader, plausible
from traceconv.schema import record_by_tag, records
from traceconv.schema.dtypes import RecordArray, join
from traceconv.wire.frames import MAX_HEADER_BYTES, Damage, FileHeader, FrameDecoder, first_block_header

#: Order of record types: what others refer to comes first.
_ORDER = (
    *("dictionary", "capture", "thread", "model", "fusion", "op", "clock_stop", "api", "range", "memory"),
    *("device", "stream", "sync", "step_mark", "task", "event_wait", "stream_range", "pmu_pipe_utilization", "counter"),
)
_BATCH_BYTES = 4 << 20

#: Device (None: the host) and record type.
_Stream = tuple[int | None, str]


class CaptureReader:
    """Reads one capture. Use `events` once; `sources` and `clock_hz` are available from the beginning.

    on_bytes  called with the number of bytes read since the last call
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
        self.sources: list[SourceFile] = []
        #: device_id → nominal frequency of its counter.
        self.clock_hz: dict[int, int] = {}
        self._readings: dict[_Stream, list[FileReading]] = {}
        peeked = [(file, *_peek(file)) for file in capture.files]
        writer_id, manifest = _writer(capture.manifest, [header for _, header, _ in peeked if header])
        self._note_capture(capture, manifest)
        self._missing = set(capture.missing) if manifest else set()
        #: What the manifest counts, by stream.
        self._counted: dict[_Stream, list[ManifestFile]] = {}
        for counted in manifest.files if manifest else ():
            self._counted.setdefault((owner_of(counted.path), counted.record), []).append(counted)
        named = {file.path for file in manifest.files} if manifest else set()
        order = sorted(peeked, key=lambda one: _place(one[0], one[1], one[2], one[0].relative_path in named))
        for number, (file, header, record) in enumerate(order, start=1):
            if header and header.device_id is not None and header.writer_id == writer_id:
                self.clock_hz.setdefault(header.device_id, header.clock_hz)
            device_id = header.device_id if header else file.device_id
            source = SourceFile(number, file, record, device_id)
            self.sources.append(source)
            if header is not None and header.writer_id != writer_id:
                message = f"belongs to another capture (writer {header.writer_id:016x}): not read"
                log.add(Code.FOREIGN_FILE, message, source_id=number, byte_count=file.size_bytes)
                continue
            reading = FileReading(source, header, self._log, self._accounts)
            self._readings.setdefault((device_id, record), []).append(reading)

    def events(self) -> Iterator[EventBatch]:
        """The events of all files, one record type of one owner after another."""
        for stream in sorted({*self._readings, *self._counted}, key=_pass_order):
            device_id, record = stream
            yield from _batched(self._read_stream(stream), record, device_id)

    def _read_stream(self, stream: _Stream) -> Iterator[tuple[int, RecordArray]]:
        """(id of the first record, records) of each intact block of one stream, each record once, in order."""
        readings = self._readings.get(stream, [])
        reader = StreamReader(readings, self._on_bytes)
        damages: list[tuple[FileReading, Damage]] = []
        for found in reader.read():
            if isinstance(found.item, Damage):
                damages.append((found.file, found.item))
                continue
            if found.repeated is not None:
                found.file.repeat(found.item, *found.repeated)
            if found.item.record_count:
                yield from found.file.take(found.item)
        self._note_losses(stream, reader, damages)
        for reading in readings:
            reading.report()

    def _note_losses(self, stream: _Stream, reader: StreamReader, damages: list[tuple[FileReading, Damage]]) -> None:
        """Report what is missing from a stream: in a missing file, in damaged bytes, or between blocks."""
        readings, record = self._readings.get(stream, []), stream[1]
        file_bytes = sum(reading.source.file.size_bytes for reading in readings)
        size = _record_size(record, readings)
        counted = self._trusted(stream, size)
        holes = [hole for hole in reader.holes if plausible(hole[1] - hole[0], size, file_bytes)]
        jumps = [hole for hole in reader.holes if not plausible(hole[1] - hole[0], size, file_bytes)]
        there = Ranges([(0, reader.end)]).without(Ranges([hole[:2] for hole in reader.holes]))
        if counted:
            missing = Ranges([file.sequences for file in counted])
            spare = there.without(missing)
            missing = missing.without(there)
            if spare.count:
                self._note_spare(record, readings, spare)
            unplaced = spare.count
        else:
            missing = Ranges([hole[:2] for hole in holes])
            known_to = [reader.end, *(reading.first_sequence or 0 for reading in readings)]
            known_to += [damage.sequence + (damage.event_count or 0) for _, damage in damages if damage.sequence]
            if plausible(max(known_to) - reader.end, size, file_bytes):
                missing = Ranges([*missing, (reader.end, max(known_to))])
            self._note_jumps(jumps)
            unplaced = there.without(Ranges([(0, jumps[0][1])])).count if jumps else 0
        # Records with implausible sequence numbers may be those that seem to be missing.
        missing.take_first(min(unplaced, missing.count))
        if missing.count:
            self._accounts[record].add(lost=missing.count)
        for file in self._counted.get(stream, ()):
            if file.path in self._missing:
                self._note_missing(file, missing)
        for reading, damage in damages:
            reading.note_damage(damage, missing, next((one for one in counted if _holds(one, damage.sequence)), None))
        for first, end, after in holes:
            count = missing.take(first, end)
            if count:
                block = after.item
                what = "file" if block.byte_offset <= after.file.header_bytes else "block"
                message = f"{count} records are missing before this {what}"
                after.file.note(Code.MISSING_RECORDS, message, count, block.byte_offset, 0)
        self._note_rest(missing, readings, bool(counted))

    def _note_rest(self, missing: Ranges, readings: list[FileReading], counted: bool) -> None:
        """Report what is missing at the end, where no block and no damage shows it."""
        if not missing.count:
            return
        what = "that the manifest counts are missing" if counted else "are missing at the end"
        message = f"{missing.count} records {what}"
        last = max(readings, key=lambda reading: reading.end, default=None)
        source_id = None if last is None else last.source.source_id
        self._log.add(Code.MISSING_RECORDS, message, source_id=source_id, event_count=missing.count)

    def _trusted(self, stream: _Stream, record_size: int) -> list[ManifestFile]:
        """The manifest's files of a stream, without implausible counts."""
        trusted = []
        for file in self._counted.get(stream, ()):
            if plausible(file.record_count, record_size, file.size_bytes):
                trusted.append(file)
            else:
                message = f"manifest.json counts {file.record_count} records in {printable(file.path)}: implausible"
                self._log.add(Code.BAD_MANIFEST, message)
        return trusted

    def _note_missing(self, file: ManifestFile, missing: Ranges) -> None:
        count = missing.take(*file.sequences)
        if count or not file.record_count:
            message = f"{printable(file.path)} is missing"
            self._log.add(Code.MISSING_FILE, message, byte_count=file.size_bytes, event_count=count)
        else:
            message = f"{printable(file.path)} is missing; its records are in other files"
            self._log.add(Code.MOVED_FILE, message, event_count=file.record_count)

    def _note_spare(self, record: str, readings: list[FileReading], spare: Ranges) -> None:
        first = next(iter(spare))[0]
        reading = next((one for one in readings if one.first <= first < one.end), None)
        message = f"{spare.count} {printable(record)} records from {first} on are not counted by the manifest"
        source_id = None if reading is None else reading.source.source_id
        self._log.add(Code.EXTRA_RECORDS, message, source_id=source_id, event_count=spare.count)

    def _note_jumps(self, jumps: list[_Hole]) -> None:
        for first, end, after in jumps:
            message = f"sequence numbers jump from {first} to {end}: the number of missing records is unknown"
            after.file.note(Code.MISSING_RECORDS, message, None, after.item.byte_offset, 0)

    def _note_capture(self, capture: CaptureFolder, manifest: Manifest | None) -> None:
        """Report the problems of the capture other than damage in its files."""
        problem = capture.manifest_problem
        if problem is not None:
            code = Code.NO_MANIFEST if problem.startswith("missing") else Code.BAD_MANIFEST
            self._log.add(code, f"manifest.json is {problem}")
        if manifest is None and capture.manifest is not None:
            self._log.add(Code.BAD_MANIFEST, "manifest.json is from another capture and is ignored")
        for path in capture.unreadable:
            self._log.add(Code.UNREADABLE_FILE, f"{printable(path)} can't be listed")


#: (first, end, what comes after) of sequence numbers without records.
_Hole = tuple[int, int, Found]


def _holds(file: ManifestFile, sequence: int | None) -> bool:
    first, end = file.sequences
    return sequence is not None and first <= sequence < end


def _record_size(record: str, readings: list[FileReading]) -> int:
    written = (schema for reading in readings if (header := reading.decoder.header) for schema in header.schemas)
    schemas = (*record_by_tag().values(), *written)
    return next((schema.size_bytes for schema in schemas if schema.name == record), 1)


def _writer(manifest: Manifest | None, headers: list[FileHeader]) -> tuple[int | None, Manifest | None]:
    """The capture's writer: the manifest's, or that of most files; and the manifest if it is from this writer."""
    writers = Counter(header.writer_id for header in headers)
    if manifest is not None and (manifest.writer_id in writers or not writers):
        return manifest.writer_id, manifest
    return (writers.most_common(1)[0][0] if writers else None), None


def _batched(blocks: Iterable[tuple[int, RecordArray]], record: str, device_id: int | None) -> Iterator[EventBatch]:
    """Join blocks to batches that are large enough for vectorised steps."""
    parts: list[tuple[int, RecordArray]] = []
    size = 0
    for part in blocks:
        is_lower = parts and part[0] < parts[-1][0]  # from another file, which has a lower number
        if is_lower or size >= _BATCH_BYTES:
            yield _joined(parts, record, device_id)
            parts, size = [], 0
        parts.append(part)
        size += part[1].nbytes
    if parts:
        yield _joined(parts, record, device_id)


def _joined(parts: list[tuple[int, RecordArray]], record: str, device_id: int | None) -> EventBatch:
    ids = np.concatenate([np.arange(first, first + len(records), dtype=np.int64) for first, records in parts])
    return EventBatch(record, device_id, ids, join([records for _, records in parts]))


def _pass_order(stream: _Stream) -> tuple[int, int, str]:
    device_id, record = stream
    order = _ORDER.index(record) if record in _ORDER else len(_ORDER)
    return -1 if device_id is None else device_id, order, record


def _place(file: LogFile, header: FileHeader | None, record: str, named: bool) -> tuple[object, ...]:
    """Order of files: by stream and first record; files that the manifest doesn't list come last."""
    device_id = header.device_id if header else file.device_id
    first = (0, header.first_sequence) if header else (1, 0)
    owner = -1 if device_id is None else device_id
    return owner, record, not named, *first, file.slice_index, file.relative_path


def _peek(file: LogFile) -> tuple[FileHeader | None, str]:
    """The header of a file, None if it can't be read (which is reported later), and its record type."""
    decoder = FrameDecoder()
    head = b""
    try:
        with file.path.open("rb") as stream:
            head = stream.read(MAX_HEADER_BYTES)
        decoder.feed(head)
    except (OSError, InputError):
        pass
    header = decoder.header
    if header is not None and header.schemas:
        return header, header.schemas[0].name
    if file.record in records():
        return header, file.record
    block = first_block_header(head)
    known = record_by_tag().get(block.tag) if block else None
    return header, known.name if known else file.record
