"""Split chunks of a CSV file into records of cells with line numbers and byte offsets.

Damage affects only its own record. A batch of lines that all are records is parsed at once; others line by line, since
columnar CSV parsers report no byte offsets and don't recover from unclosed quotes.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from traceconv.base.diagnostics import Account, Code, ImportLog

#: Longer records are lost; a quote must be closed within this size.
MAX_RECORD_BYTES = 1 << 20
#: Size of the text of a batch, which may exceed it by a record.
_MOST_BATCH_BYTES = 8 << 20
_BOM = b"\xef\xbb\xbf"

_Line: TypeAlias = "tuple[int, int, bytes]"


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in the order of the file.

    first_ordinal  number of the first record of the batch, from 0, the header not counted
    byte_offset    of the first record
    byte_count     bytes up to the end of the last one
    rows           cells, as many as in the header unless the file is ragged
    offsets        byte offset of each record
    lines          the line on which each record begins, from 1
    """

    first_ordinal: int
    byte_offset: int
    byte_count: int
    rows: list[list[str]]
    offsets: list[int]
    lines: list[int]


@dataclass
class CsvRecords:
    """The records of one file. Call `open`, then `batches`.

    Records with more or fewer cells than the header are counted as lost in `account`, and logged.

    name    the file's, for the log
    ragged  matches lines that begin a record; records may then have any number of cells, and quotes may be plain
            characters
    batch_rows  most records in a batch; large ones are fewer
    """

    chunks: Iterable[bytes]
    log: ImportLog
    account: Account
    name: str
    ragged: re.Pattern[bytes] | None = None
    header: tuple[str, ...] = ()
    batch_rows: int = 4096
    _width: int | None = None

    def __post_init__(self) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_BYTES))
        self._lines = _lines(self.chunks)
        self._pending: deque[_Line] = deque()
        self._records = self._split()

    def open(self) -> tuple[str, ...]:
        """Read the header and return its cells without padding; none for an empty file."""
        for _, _, row in self._records:
            self.header = tuple(cell.strip().removeprefix("\ufeff") for cell in row)
            self._width = None if self.ragged else len(self.header)
            break
        return self.header

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the records after the header."""
        ordinal = 0
        while True:
            # What is left of a damaged batch is read line by line.
            batch = self._sound_batch(ordinal) if self._width and not self._pending else None
            if batch is None:
                records = list(self._next_batch())
                if not records:
                    return
                offsets, lines, rows = (list(column) for column in zip(*records, strict=True))
                batch = RecordBatch(ordinal, offsets[0], self._end - offsets[0], rows, offsets, lines)
            yield batch
            ordinal += len(batch.rows)

    def _sound_batch(self, ordinal: int) -> RecordBatch | None:
        """Return a batch of the next lines; None if they aren't one record each: then they are pending."""
        lines, size = [], 0
        for line in self._lines:
            lines.append(line)
            size += len(line[2])
            if len(lines) == self.batch_rows or size >= _MOST_BATCH_BYTES:
                break
        rows = self._rows_of([text for _, _, text in lines])
        if rows is None:
            self._pending.extend(lines)
            return None
        offsets, numbers, texts = (list(column) for column in zip(*lines, strict=True))
        self._end = offsets[-1] + len(texts[-1])
        return RecordBatch(ordinal, offsets[0], self._end - offsets[0], rows, offsets, numbers)

    def _rows_of(self, lines: list[bytes]) -> list[list[str]] | None:
        """Return the cells of each line; None if one is blank, damaged, or not a record of its own."""
        text = b"".join(lines)
        if (
            not text.endswith(b"\n")
            or b"\0" in text
            or len(text) >= _MOST_BATCH_BYTES
            or max(map(len, lines)) > MAX_RECORD_BYTES
            or any(map(bytes.isspace, lines))
            or any(line.count(b'"') & 1 for line in lines)
        ):
            return None
        try:
            rows = list(csv.reader(text[:-1].decode().split("\n")))
        except (UnicodeDecodeError, csv.Error):
            return None
        # A quote that is open at the end of a line would join it with the next one.
        return rows if len(rows) == len(lines) and {*map(len, rows)} == {self._width} else None

    def _next_batch(self) -> Iterator[tuple[int, int, list[str]]]:
        begin: int | None = None
        for count, record in enumerate(self._records, start=1):
            begin = record[0] if begin is None else begin
            yield record
            if count == self.batch_rows or self._end - begin >= _MOST_BATCH_BYTES:
                return

    def _split(self) -> Iterator[tuple[int, int, list[str]]]:
        """Yield (offset, line, cells) of each record."""
        self._end = 0
        while (line := self._next_start()) is not None:
            if line[2].count(b'"') % 2 == 0:
                yield from self._parsed(line, line[2])
            else:
                yield from self._quoted(line)

    def _next_line(self) -> _Line | None:
        return self._pending.popleft() if self._pending else next(self._lines, None)

    def _next_start(self) -> _Line | None:
        """The next line that is not blank.

        NUL bytes before it replaced records; if there is no such line, they are padding.
        """
        hole: _Line | None = None
        hole_bytes = 0
        while True:
            line = self._next_line()
            if line is not None and line[2].startswith(b"\0"):
                hole = hole or line
                line, size = _after_nul(line)
                hole_bytes += size
            if line is None or line[2].strip():
                break
        if hole is not None and line is not None:
            self._lose(hole, hole_bytes, "NUL bytes instead of records")
        elif hole is not None:
            message = f"{self.name}: NUL bytes at the end"
            self.log.add(Code.PADDING, message, byte_offset=hole[0], byte_count=hole_bytes)
        return line

    def _quoted(self, first: _Line) -> Iterator[tuple[int, int, list[str]]]:
        """Yield the record that a line with an open quote begins. The quote continues it on the next line."""
        offset, number, text = first
        parts = [first]
        size, closed = len(text), False
        while size <= MAX_RECORD_BYTES and not closed and (line := self._next_line()) is not None:
            if self.ragged and self.ragged.match(line[2]):  # the quote was part of a name
                self._pending.appendleft(line)
                break
            parts.append(line)
            size += len(line[2])
            closed = line[2].count(b'"') % 2 == 1
        joined = b"".join(part[2] for part in parts)
        row = _cells(self._decoded(joined, offset)) if closed else None
        if row is not None and (self._width is None or self._fits(row)):
            self._keep(offset, joined)
            yield offset, number, self._trimmed(row)
            return
        single: list[str] | None
        if self.ragged:
            single = self._decoded(text, offset).rstrip("\r\n").split(",")
        else:
            single = _cells(self._decoded(text, offset)) if self._width is not None else None
        if single is not None and (self._width is None or self._fits(single)):  # a quote within a cell
            self._keep(offset, text)
            yield offset, number, self._trimmed(single)
        else:
            self._lose(first, len(text), "unclosed quote")
        self._pending.extendleft(reversed(parts[1:]))

    def _parsed(self, line: _Line, text: bytes) -> Iterator[tuple[int, int, list[str]]]:
        offset, number, _ = line
        if len(text) > MAX_RECORD_BYTES:
            self._lose(line, len(text), f"a record of more than {MAX_RECORD_BYTES} bytes")
            return
        row = _cells(self._decoded(text, offset))
        if row is None:
            self._lose(line, len(text), "malformed CSV")
        elif self._width is not None and not self._fits(row):
            self._lose(line, len(text), f"{len(row)} cells where the header has {self._width}")
        else:
            self._keep(offset, text)
            yield offset, number, self._trimmed(row)

    def _keep(self, offset: int, text: bytes) -> None:
        """Note the end of the records, and a last line without a line end, which may be truncated."""
        self._end = offset + len(text)
        if not text.endswith(b"\n"):
            message = f"{self.name}: the last line has no line break: its last cell may be truncated"
            self.log.add(Code.NO_END, message, byte_offset=self._end)

    def _fits(self, row: list[str]) -> bool:
        width = self._width or 0
        return len(row) == width or (len(row) > width and not any(cell.strip() for cell in row[width:]))

    def _trimmed(self, row: list[str]) -> list[str]:
        return row if self._width is None else row[: self._width]

    def _decoded(self, text: bytes, offset: int) -> str:
        if offset == 0:
            text = text.removeprefix(_BOM)
        try:
            shown = text.decode()
        except UnicodeDecodeError:
            self.log.add(
                Code.BAD_BYTES, f"{self.name}: bytes that are not UTF-8", byte_offset=offset, byte_count=len(text)
            )
            shown = text.decode("utf-8", "replace")
        if "\0" not in shown:
            return shown
        count = text.count(b"\0")
        self.log.add(Code.BAD_BYTES, f"{self.name}: NUL bytes in a record", byte_offset=offset, byte_count=count)
        return shown.replace("\0", "\ufffd")

    def _lose(self, line: _Line, size: int, why: str) -> None:
        self.account.add(lost=1)
        message = f"{self.name}: line {line[1]}: {why}"
        self.log.add(Code.DAMAGED_EVENT, message, byte_offset=line[0], byte_count=size, event_count=1)


def _after_nul(line: _Line) -> tuple[_Line, int]:
    """Return a line without its leading NUL bytes, and their number."""
    offset, number, text = line
    rest = text.lstrip(b"\0")
    size = len(text) - len(rest) if rest.strip() else len(text)
    return (offset + size, number, text[size:]), size


def _cells(text: str) -> list[str] | None:
    """Return the cells of one record; None if it is malformed."""
    try:
        rows = list(csv.reader([text.rstrip("\r\n")]))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _lines(chunks: Iterable[bytes]) -> Iterator[_Line]:
    """Yield (offset, number, bytes with the line's end) of each line.

    A line that is too long for a record is replaced by one that is just too long, to bound memory.
    """
    rest, offset, number = b"", 0, 1
    skipped = 0
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            size = len(line) + 1
            if skipped:
                yield offset, number, b"x" * (MAX_RECORD_BYTES + 1)
                offset, skipped = offset + skipped + size, 0
            else:
                yield offset, number, line + b"\n"
                offset += size
            number += 1
        if len(rest) > MAX_RECORD_BYTES:
            skipped, rest = skipped + len(rest), b""
    if skipped:
        yield offset, number, b"x" * (MAX_RECORD_BYTES + 1)
    elif rest:
        yield offset, number, rest
