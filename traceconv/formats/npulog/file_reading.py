"""A log file while it is read: decodes its records, and reports unusable parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import InputError, printable, reason_of
from traceconv.formats.npulog.manifest import ManifestFile
from traceconv.formats.npulog.ranges import Ranges
from traceconv.formats.npulog.sources import SourceFile
from traceconv.schema import record_by_tag
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire.codec import decode_block, missing_fields, unknown_fields
from traceconv.wire.frames import Block, Damage, FileHeader, FrameDecoder


class FileReading:
    """The state of reading one file: its decoder, and its unusable parts."""

    def __init__(self, source: SourceFile, header: FileHeader | None, log: ImportLog, accounts: Accounts) -> None:
        self.source = source
        self.file = source.file
        self.decoder = FrameDecoder(any_order=True)
        self.first_sequence = None if header is None else header.first_sequence
        schemas = (*(header.schemas if header else ()), *record_by_tag().values())
        self.tag = next((schema.tag for schema in schemas if schema.name == source.record), None)
        #: Sequence numbers of the first record read and after the last one; byte offset of the first block.
        self.first = self.end = 0
        self.header_bytes = 0
        self._log = log
        self._accounts = accounts
        self._layouts: dict[tuple[int, int], np.dtype[np.void]] = {}
        self._unknown: dict[str, int] = {}
        self._strange: dict[str, int] = {}
        self._longer = 0
        self._shorter = 0
        #: Repeats that follow one another: whether they are identical, first record, records, byte, bytes.
        self._repeat: tuple[bool, int, int, int, int] | None = None

    def take(self, item: Block) -> Iterator[tuple[int, RecordArray]]:
        """Decode a block."""
        known = record_by_tag().get(item.tag)
        header = self.decoder.header
        if self.tag not in (None, item.tag):
            name = known.name if known else f"tag {item.tag}"
            self._strange[name] = self._strange.get(name, 0) + item.record_count
            return
        if self.end == 0:
            self.first, self.header_bytes = item.sequence, item.byte_offset
        self.end = max(self.end, item.sequence + item.record_count)
        first_id = self.source.add_block(item)
        layout = self._layouts.get((item.tag, item.record_size))
        if layout is not None:  # as this version writes them: no check per block
            yield first_id, np.frombuffer(item.payload, layout)
            return
        written = next((schema for schema in header.schemas if schema.tag == item.tag), known) if header else known
        if known is None or written is None or known.name != self.source.record:
            name = written.name if written is not None else f"tag {item.tag}"
            self._unknown[name] = self._unknown.get(name, 0) + item.record_count
            return
        try:
            records = decode_block(item, written, known)
        except ValueError:
            message = f"records of {item.record_size} bytes where the header says {written.size_bytes}"
            self.note(Code.DAMAGED_BLOCK, message, item.record_count, item.byte_offset, item.byte_count)
            self._accounts[self.source.record].add(lost=item.record_count)
            return
        longer, shorter = unknown_fields(item, written, known), missing_fields(written, known)
        self._longer += item.record_count if longer else 0
        self._shorter += item.record_count if shorter else 0
        if not longer and [(f.name, f.type) for f in written.fields] == [(f.name, f.type) for f in known.fields]:
            self._layouts[item.tag, item.record_size] = dtype_of(known)
        yield first_id, records

    def repeat(self, rest: Block, count: int, same: bool) -> None:
        """Note that the first `count` records of a block are repeated; `rest`: the records after them."""
        first = rest.sequence - count
        if self._repeat is not None:
            was_same, known_first, known_count, offset, size = self._repeat
            if same == was_same and (known_first + known_count, offset + size) == (first, rest.byte_offset):
                self._repeat = (same, known_first, known_count + count, offset, size + rest.byte_count)
                return
        self._note_repeat()
        self._repeat = (same, first, count, rest.byte_offset, rest.byte_count)

    def _note_repeat(self) -> None:
        if self._repeat is None:
            return
        same, first, count, offset, size = self._repeat
        if same:
            message = f"repeats {count} records from {first} on: dropped"
            self.note(Code.REPEATED_RECORDS, message, count, offset, size)
        else:
            message = f"has {count} records from {first} on that differ elsewhere: dropped"
            self.note(Code.CONFLICTING_RECORDS, message, count, offset, size)

    def note_damage(self, damage: Damage, missing: Ranges, counted: ManifestFile | None) -> None:
        """Report damaged bytes, with the missing records that they contained."""
        count = damage.event_count
        if damage.sequence is not None:
            first, end = damage.sequence, damage.sequence + (count or 0)
            if count is None and counted is not None:
                end = counted.sequences[1]
            if count is not None or counted is not None:
                count = missing.take(first, end)
        elif count is not None:
            count = None
        self.note(damage.code, damage.message, count, damage.byte_offset, damage.byte_count)

    def refuse(self, error: OSError | InputError) -> None:
        """Report that the file can't be read, or not to its end."""
        if isinstance(error, OSError):
            self.note(Code.UNREADABLE_FILE, f"can't be read: {reason_of(error)}", 0)
        else:
            self.note(Code.NEWER_VERSION, str(error), 0)

    def note(self, code: Code, message: str, event_count: int | None, *place: int) -> None:
        """Add an entry to the log. `place`: byte offset and byte count."""
        offset, size = place or (None, None)
        source_id = self.source.source_id
        self._log.add(code, message, source_id=source_id, byte_offset=offset, byte_count=size, event_count=event_count)

    def report(self) -> None:
        """Report the unusable parts of the file."""
        self._note_repeat()
        for name, count in self._unknown.items():
            message = f"records of a type that is unknown, or unexpected in this file: {printable(name)}"
            self.note(Code.UNKNOWN_RECORD, message, count)
            self._accounts[name].add(lost=count)
        for name, count in self._strange.items():
            # Records of another stream: its own sequence numbers show whether they are missing there.
            self.note(Code.STRAY_BLOCK, f"{count} records of another file's type: {printable(name)}", None)
        for code, count in ((Code.LONGER_RECORD, self._longer), (Code.SHORTER_RECORD, self._shorter)):
            if count:
                self.note(code, code.doc.rstrip("."), count)
