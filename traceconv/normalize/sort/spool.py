"""Rows that are spilled to a temporary file while a pass runs: appended as arrays, read back in chunks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import pairwise
from typing import BinaryIO, cast

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.errors import OutputError
from traceconv.base.int64 import Int64
from traceconv.schema.dtypes import RecordArray, plain


def spill_file() -> BinaryIO:
    """Open a temporary file without a name."""
    return cast(BinaryIO, tempfile.TemporaryFile(prefix="traceconv-"))


def close_quietly(file: BinaryIO) -> None:
    """Close a spill file. After a full disk, closing would fail to write the data in its buffer again."""
    with suppress(OSError):
        file.close()


@contextmanager
def spilling() -> Iterator[None]:
    """Turn an OSError while spilling into an OutputError with a remedy."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot spill to {tempfile.gettempdir()}: {error.strerror}; free disk space, or set TMPDIR"
        ) from error


class Spool:
    """Structured rows of one dtype, in a temporary file if there are many. OutputError when the disk is full."""

    CHUNK_ROWS = 1 << 16
    #: As much as this stays in memory, which takes less time than a temporary file for the rows of a small recording.
    KEPT_BYTES = 1 << 16

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self.dtype = dtype
        self.count = 0
        self._file: BinaryIO | None = None
        #: What `take` reads into: new memory for each chunk would take longer than reading it.
        self._chunk: RecordArray = np.empty(0, dtype)

    def append(self, rows: RecordArray) -> None:
        """Add rows of the spool's dtype."""
        self.write(self.count, rows)

    def write(self, first: int, rows: RecordArray) -> None:
        """Write rows from row `first` on, which may be beyond the last one."""
        if not len(rows):
            return
        with spilling():
            if self._file is None:
                self._file = BytesIO()
            if isinstance(self._file, BytesIO) and (first + len(rows)) * self.dtype.itemsize > self.KEPT_BYTES:
                kept, self._file = self._file, spill_file()
                self._file.write(kept.getbuffer())
            self._file.seek(first * self.dtype.itemsize)
            self._file.write(np.ascontiguousarray(rows, self.dtype).view(np.uint8).data)
            self._file.flush()  # a full disk is reported here
        self.count = max(self.count, first + len(rows))

    def read(self, first: int, count: int) -> RecordArray:
        """Return rows `first` to `first + count` as a new array."""
        return self._read_into(np.empty(count, self.dtype), first)

    def _read_into(self, rows: RecordArray, first: int) -> RecordArray:
        if len(rows):
            assert self._file is not None
            self._file.seek(first * self.dtype.itemsize)
            self._file.readinto(rows.view(np.uint8).data)  # type: ignore[attr-defined]
        return rows

    def take(self, rows: Int64) -> RecordArray:
        """Return these distinct rows, given in ascending order.

        Unless they are consecutive, at most a chunk is read at a time, however sparse they are.
        """
        if not len(rows):
            return np.empty(0, self.dtype)
        if int(rows[-1]) - int(rows[0]) + 1 == len(rows):
            return self.read(int(rows[0]), len(rows))
        found = np.empty(len(rows), self.dtype)
        for first, count, own in self._stretches(rows):
            if len(self._chunk) < count:
                self._chunk = np.empty(min(self.CHUNK_ROWS, self.count), self.dtype)
            chunk = plain(self._read_into(self._chunk[:count], first))
            np.take(chunk, rows[own] - first, out=plain(found)[own], mode="clip")  # other modes copy `out`
        return found

    def put(self, rows: Int64, name: str | None, values: NDArray[np.generic]) -> None:
        """Write one field (None: all) of these rows, given in ascending order. At most a chunk is in memory at a time.

        All fields may be written beyond the last row.
        """
        for first, count, own in self._stretches(rows) if len(rows) else ():
            stretch = np.zeros(count, self.dtype)
            known = min(count, max(0, self.count - first))
            stretch[:known] = self.read(first, known)
            (stretch if name is None else stretch[name])[rows[own] - first] = values[own]
            self.write(first, stretch)

    def _stretches(self, rows: Int64) -> Iterator[tuple[int, int, slice]]:
        """Yield what to read for these rows: the first row, the count, and which of `rows` it covers."""
        bounds = (np.flatnonzero(np.diff(rows // self.CHUNK_ROWS)) + 1).tolist()
        for start, stop in pairwise((0, *bounds, len(rows))):
            first = int(rows[start])
            yield first, int(rows[stop - 1]) - first + 1, slice(start, stop)

    def mapped(self, first: int, count: int) -> RecordArray:
        """Return rows (at least one), as a memory map if they are in a file; valid until `close`."""
        assert self._file is not None
        if isinstance(self._file, BytesIO):
            return self.read(first, count)
        return np.memmap(self._file, self.dtype, "r", first * self.dtype.itemsize, (count,))

    def __iter__(self) -> Iterator[RecordArray]:
        for first in range(0, self.count, self.CHUNK_ROWS):
            yield self.read(first, min(self.CHUNK_ROWS, self.count - first))

    def close(self) -> None:
        """Free the disk space."""
        if self._file is not None:
            close_quietly(self._file)
            self._file = None
