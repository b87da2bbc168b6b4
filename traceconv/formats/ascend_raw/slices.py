"""The slices of a stream → arrays of whole records. Damaged records are counted, and reading resumes at the next."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import InputError, printable, reason_of
from traceconv.formats.ascend_raw.folder import Stream, gaps, number_of
from traceconv.formats.ascend_raw.records import Layout
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.files import file_size, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from traceconv.base.arrays import NDArray
    from traceconv.base.int64 import Mask

#: Bytes that are read at once.
_CHUNK_BYTES = 1 << 22
#: The longest line of text, in bytes.
_MOST_LINE = 1 << 20
#: Bytes after a damaged record in which the next intact one is looked for.
_SEARCHED_BYTES = 1 << 16


class Slices:
    """Reads the streams of one recording. `advance` is called with the number of bytes read."""

    def __init__(self, log: ImportLog, accounts: Accounts, advance: Callable[[int], None]) -> None:
        self._log = log
        self._accounts = accounts
        self._advance = advance

    def text(self, stream: Stream) -> Iterator[str]:
        """Yield the lines of a stream of text."""
        rest = b""
        for piece in self.pieces(stream, 0):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > _MOST_LINE:
                self.lose(stream, 1, Code.BAD_TEXT, "a line that is too long")
                rest = b""
            yield from (line.decode("utf-8", "replace") for line in lines)
        if rest:
            yield rest.decode("utf-8", "replace")

    def records(self, stream: Stream, layout: Layout) -> Iterator[NDArray[np.void]]:
        """Yield the records of a stream; they are accounted for as lost only if they are damaged."""
        size = layout.dtype.itemsize
        for first, last in gaps(stream):
            message = f"{printable(stream.name)}: slices {first} to {last} are missing"
            self._log.add(Code.MISSING_RECORDS, message, source_id=SOURCE_ID)
        # If the oldest slices are gone, the first one that is left may begin inside a record.
        has_gone = stream.is_aging and number_of(stream.files[0]) > 0
        skipped = sum(map(file_size, stream.files)) % size if has_gone else 0
        rest = b""
        for piece in self.pieces(stream, skipped):
            rest = yield from self._intact(stream, layout, memoryview(rest + piece))
        if rest:
            self.lose(stream, 1, Code.TRUNCATED, "the last record is truncated")

    def pieces(self, stream: Stream, skipped: int) -> Iterator[bytes]:
        """Yield the bytes of a stream after some that are skipped."""
        for file in stream.files:
            try:
                with opened(file) as source:
                    if skipped:
                        self._advance(len(source.read(skipped)))
                        skipped = 0
                    while piece := source.read(_CHUNK_BYTES):
                        self._advance(len(piece))
                        yield piece
            except (OSError, InputError) as error:
                reason = reason_of(error) if isinstance(error, OSError) else str(error)
                self.lose(stream, 1, Code.UNREADABLE_FILE, f"can't read {printable(file.name)}: {reason}")

    def _intact(self, stream: Stream, layout: Layout, data: memoryview) -> Generator[NDArray[np.void], None, bytes]:
        """Yield the intact records, and return the bytes after the last whole one."""
        size = layout.dtype.itemsize
        while len(data) >= size:
            records = np.frombuffer(data, layout.dtype, len(data) // size)
            bad = np.flatnonzero(~_valid(records, layout))
            if not len(bad):
                yield records
                data = data[len(records) * size :]
                break
            kept, begin = _resume(data, int(bad[0]), layout)
            if kept:
                yield records[:kept]
            lost = max(1, (begin - kept * size) // size)
            self.lose(stream, lost, Code.DAMAGED_BLOCK, "records without the number that all have")
            data = data[begin:]
        return bytes(data)

    def lose(self, stream: Stream, count: int, code: Code, what: str) -> None:
        """Account for records of a stream that are lost."""
        self._log.count(code, f"{printable(stream.name)}: {what}", count, SOURCE_ID)
        self._accounts[f"{stream.name} records"].add(lost=count)


def _valid(records: NDArray[np.void], layout: Layout) -> Mask:
    if layout.check is None:
        return np.ones(len(records), np.bool_)
    found: Mask = np.isin(records[layout.check], np.array(layout.magic, records[layout.check].dtype))
    return found


def _resume(data: memoryview, bad: int, layout: Layout) -> tuple[int, int]:
    """Return how many records before a bad one are intact, and where the next intact one begins.

    It may begin inside the record before the bad one, from which bytes are missing.
    """
    size = layout.dtype.itemsize
    if len(layout.magic) > 1:  # too weak to find another beginning
        return bad, (bad + 1) * size
    assert layout.check is not None and layout.dtype.fields is not None
    kind, offset = layout.dtype.fields[layout.check][:2]
    wanted = np.array(layout.magic, kind).tobytes()
    base = max(0, bad - 1) * size
    searched = bytes(data[base : base + _SEARCHED_BYTES])
    at = offset
    while (at := searched.find(wanted, at + 1)) >= 0:
        # Two in a row, unless the data ends: the number may be anywhere by chance.
        after = at + size
        if after + len(wanted) > len(searched) or searched.startswith(wanted, after):
            begin = base + at - offset
            return min(bad, begin // size), begin
    end = base + len(searched)
    return bad, end - (end - bad * size) % size
