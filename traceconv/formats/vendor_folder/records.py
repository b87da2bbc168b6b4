"""Chunks of a CSV file → records of cells, each with its line and byte; what is broken costs its own record only.

The bytes are walked through line by line, in Python, since no columnar CSV parser says where a record stands or goes
on after a quote that nobody closed. What it costs is little beside the rest: a few hundred thousand records a second.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from traceconv.base.diagnostics import Account, Code, ImportLog

#: A record that is longer than this is given up, and so is a quote that is not closed within it.
MAX_RECORD_BYTES = 1 << 20
_BATCH_ROWS = 4096
_BOM = b"\xef\xbb\xbf"

_Line: TypeAlias = "tuple[int, int, bytes]"


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in the order of the file.

    first_ordinal  number of the first record of the batch, from 0, the header not counted
    byte_offset    where it stands
    byte_count     bytes up to the end of the last one
    rows           cells, as many as the header has unless the file was opened as ragged
    offsets        where each record stands
    lines          the line on which each one begins, from 1
    """

    first_ordinal: int
    byte_offset: int
    byte_count: int
    rows: list[list[str]]
    offsets: list[int]
    lines: list[int]


class CsvRecords:
    """The records of one file: `header` once `open` was called, then `batches`.

    What is no record of as many cells as the header has is booked as lost in `account`, with its line and byte.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        log: ImportLog,
        account: Account,
        name: str,
        *,
        ragged: re.Pattern[bytes] | None = None,
    ) -> None:
        """`name`: of the file, for the log.

        `ragged`: how the lines begin that begin a record. Then records may have any number of cells, and quotes need
        not mean anything.
        """
        csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_BYTES))
        self._log = log
        self._account = account
        self._name = name
        self._ragged = ragged
        self._width: int | None = None
        self._records = self._split(_lines(chunks))
        self.header: tuple[str, ...] = ()

    def open(self) -> tuple[str, ...]:
        """Reads the header: its cells without padding. Empty when the file is."""
        for _, _, row in self._records:
            self.header = tuple(cell.strip().removeprefix("\ufeff") for cell in row)
            self._width = None if self._ragged else len(self.header)
            break
        return self.header

    def batches(self) -> Iterator[RecordBatch]:
        """The records behind the header."""
        ordinal = 0
        rows: list[list[str]] = []
        offsets: list[int] = []
        lines: list[int] = []
        for offset, line, row in self._records:
            rows.append(row)
            offsets.append(offset)
            lines.append(line)
            if len(rows) == _BATCH_ROWS:
                yield RecordBatch(ordinal, offsets[0], self._end - offsets[0], rows, offsets, lines)
                ordinal += len(rows)
                rows, offsets, lines = [], [], []
        if rows:
            yield RecordBatch(ordinal, offsets[0], self._end - offsets[0], rows, offsets, lines)

    def _split(self, lines: Iterator[_Line]) -> Iterator[tuple[int, int, list[str]]]:
        """(offset, line, cells) of each record. A record goes on with the next line while a quote is open."""
        pending: deque[_Line] = deque()
        self._end = 0
        # NUL bytes: only what follows tells whether they are in the place of records, or no more than an end.
        hole: _Line | None = None
        hole_bytes = 0
        while True:
            first = pending.popleft() if pending else next(lines, None)
            if first is not None and first[2].startswith(b"\0"):
                hole = hole or first
                first, size = _behind_nul(first)
                hole_bytes += size
            if first is not None and not first[2].strip():
                continue
            if hole is not None and first is not None:
                self._lose(hole, hole_bytes, "NUL bytes in the place of records")
                hole, hole_bytes = None, 0
            elif hole is not None:
                message = f"{self._name}: NUL bytes at the end"
                self._log.add(Code.PADDING, message, byte_offset=hole[0], byte_count=hole_bytes)
            if first is None:
                return
            offset, number, text = first
            if text.count(b'"') % 2 == 0:
                yield from self._parsed(first, text)
                continue
            parts = [first]
            size, closed = len(text), False
            while size <= MAX_RECORD_BYTES:
                line = pending.popleft() if pending else next(lines, None)
                if line is None:
                    break
                if self._ragged and self._ragged.match(line[2]):  # the quote was no more than a part of a name
                    pending.appendleft(line)
                    break
                parts.append(line)
                size += len(line[2])
                if line[2].count(b'"') % 2:
                    closed = True
                    break
            whole = b"".join(part[2] for part in parts)
            row = _cells(self._decoded(whole, offset)) if closed else None
            if row is not None and (self._width is None or self._fits(row)):
                self._keep(offset, whole)
                yield offset, number, self._trimmed(row)
                continue
            single: list[str] | None
            if self._ragged:
                single = self._decoded(text, offset).rstrip("\r\n").split(",")
            else:
                single = _cells(self._decoded(text, offset)) if self._width is not None else None
            if single is not None and (self._width is None or self._fits(single)):  # a quote that begins no cell
                self._keep(offset, text)
                yield offset, number, self._trimmed(single)
            else:
                self._lose(first, len(text), "a quote that is not closed")
            pending.extendleft(reversed(parts[1:]))

    def _parsed(self, line: _Line, text: bytes) -> Iterator[tuple[int, int, list[str]]]:
        offset, number, _ = line
        if len(text) > MAX_RECORD_BYTES:
            self._lose(line, len(text), f"a record of more than {MAX_RECORD_BYTES} bytes")
            return
        row = _cells(self._decoded(text, offset))
        if row is None:
            self._lose(line, len(text), "no record of a CSV file")
        elif self._width is not None and not self._fits(row):
            self._lose(line, len(text), f"{len(row)} cells where the header has {self._width}")
        else:
            self._keep(offset, text)
            yield offset, number, self._trimmed(row)

    def _keep(self, offset: int, text: bytes) -> None:
        """Notes how far the records go, and when the last of them has no end: it may be cut, with all its cells."""
        self._end = offset + len(text)
        if not text.endswith(b"\n"):
            message = f"{self._name}: the text ends inside its last line, whose last cell may be cut"
            self._log.add(Code.NO_END, message, byte_offset=self._end)

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
            self._log.add(
                Code.BAD_BYTES, f"{self._name}: bytes that are not UTF-8", byte_offset=offset, byte_count=len(text)
            )
            shown = text.decode("utf-8", "replace")
        if "\0" not in shown:
            return shown
        count = text.count(b"\0")
        self._log.add(Code.BAD_BYTES, f"{self._name}: NUL bytes in a record", byte_offset=offset, byte_count=count)
        return shown.replace("\0", "\ufffd")

    def _lose(self, line: _Line, size: int, why: str) -> None:
        self._account.records += 1
        self._account.lost += 1
        message = f"{self._name}: line {line[1]}: {why}"
        self._log.add(Code.DAMAGED_EVENT, message, byte_offset=line[0], byte_count=size, event_count=1)


def _behind_nul(line: _Line) -> tuple[_Line, int]:
    """What follows the NUL bytes that a line begins with, and how many bytes are before it."""
    offset, number, text = line
    rest = text.lstrip(b"\0")
    size = len(text) - len(rest) if rest.strip() else len(text)
    return (offset + size, number, text[size:]), size


def _cells(text: str) -> list[str] | None:
    """The cells of one record; None when it is none."""
    try:
        rows = list(csv.reader([text.rstrip("\r\n")]))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _lines(chunks: Iterable[bytes]) -> Iterator[_Line]:
    """(offset, number, bytes with the line's end) of each line.

    In the place of a line that is too long for any record stands one that is just too long: it is lost all the same.
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
