"""Pages of a SQLite file → the rows of a table as columns, read by the C extension.

This is much faster than SQLite's row by row interface. It reads only what is sound and usual: anything else is left to
SQLite. The format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded

#: The values of a column: integers, texts or values of several types.
Values: TypeAlias = "pa.Array | Coded | Sequence[object]"

_HEADER = struct.Struct(">16sHBB")
_ENCODING_AT, _UTF_8 = 56, 1
_INTERIOR, _LEAVES = 5, b"\r"
_INTERIOR_HEADER, _LAST_CHILD_AT = 12, 8
#: A table of 2^64 rows has fewer levels.
_MOST_LEVELS = 20
_LEAF_HEADER = 8
#: Consecutive pages that are read at once.
_PAGES_AT_ONCE = 64
#: Of pages with one batch of rows.
_MOST_BYTES = 256 << 20
_ABSENT, _INTEGER, _FLOAT, _TEXT = range(4)
#: Instead of the place of a column: that of the rowids.
ROWIDS = -1


class Pages:
    """The pages of a file. Close it after use."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file can't be read, ValueError if its pages can't be read here."""
        self._file = path.open("rb", buffering=0)
        head = self._file.read(100)
        if len(head) < 100 or int.from_bytes(head[_ENCODING_AT : _ENCODING_AT + 4], "big") != _UTF_8:
            self.close()
            raise ValueError(f"{path} is not in UTF-8")
        _, size, _, _ = _HEADER.unpack_from(head)
        self._page_bytes = 65536 if size == 1 else size
        self._usable_bytes = self._page_bytes - head[20]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def rows(
        self, root: int, wanted: Sequence[tuple[int, bool]], most: int, after: int = -(2**63)
    ) -> Iterator[tuple[int, int, list[Values] | None]]:
        """Yield the rows of a table in the order of their rowids: their count, the last rowid, and the columns.

        Columns are None if these rows can't be read here; the count is 0 if this is true of all further rows.

        root    the page with which the table begins
        wanted  the columns to read: their place among the stored ones, or ROWIDS, and whether they have floats
        most    rows at once; only the last batch has fewer
        after   the rowid after which the rows begin
        """
        stored = [place for place, _ in wanted]
        rowids = stored.index(ROWIDS) if ROWIDS in stored else -1
        places = np.full(max(stored) + 1, -1, np.int32)
        for number, place in enumerate(stored):
            if place != ROWIDS:
                places[place] = number
        size = self._page_bytes
        leaves = self._leaves(root, after)
        # `first`: the number of cells of the first page that were yielded. `ends`: of cells up to each page.
        pages, ends, first, last = bytearray(), np.zeros(0, np.int64), 0, after
        complete = False
        while True:
            while not complete and (not len(ends) or ends[-1] - first < most):
                block = next(leaves, b"")
                complete = not block
                if block is None or len(pages) > _MOST_BYTES:
                    yield 0, last, None
                    return
                pages += block
                is_first = not len(ends)
                ends = np.cumsum(np.frombuffer(pages, np.uint8).reshape(-1, size)[:, 3:5] @ np.array([256, 1]))
                if is_first and after > -(2**63):
                    page = bytes(pages[:size])
                    first = bisect_right(range(int(ends[0])), after, key=partial(self._rowid, page))
            until = min(int(ends[-1]), first + most) if len(ends) else 0
            count = until - first
            if not count:
                return
            used = int(np.searchsorted(ends, until)) + 1
            with memoryview(pages) as view, view[: used * size] as rows:
                found = native.sqlite_rows(
                    rows, size, self._usable_bytes, places, len(wanted), rowids, first, count, last
                )
            before_page = int(ends[used - 2]) if used > 1 else 0
            # SQLite reads integers in columns of floats as floats.
            if found is None or any(
                is_float and _INTEGER in kinds for (_, is_float), (_, kinds, _) in zip(wanted, found[2], strict=True)
            ):
                page = bytes(pages[(used - 1) * size : used * size])
                before, last = last, self._rowid(page, until - before_page - 1)
                if last <= before:
                    yield 0, before, None
                    return
                yield count, last, None
            else:
                _, last, columns = found
                yield count, last, [_values(*column, count) for column in columns]
            if count < most:
                return
            del pages[: (used - 1) * size]
            ends, first = ends[used - 1 :] - before_page, until - before_page

    def _rowid(self, page: bytes, cell: int) -> int:
        """Return the rowid of a cell of a leaf page; -2**63 if the page is damaged."""
        at = int.from_bytes(page[_LEAF_HEADER + 2 * cell :][:2], "big")
        _, size = _varint(page[at : at + 9])
        rowid, more = _varint(page[at + size : at + size + 9])
        return rowid if size and more else -(2**63)

    def _leaves(self, root: int, after: int) -> Iterator[bytes | None]:
        """Yield consecutive leaf pages below a page, in order, from the one with the rowid after another on.

        None, at last, for a page that can't be read here.
        """
        size = self._page_bytes
        runs = [(root, 1, _MOST_LEVELS)]
        while runs:
            number, count, levels = runs.pop()
            self._file.seek((number - 1) * size)
            block = self._file.read(count * size)
            kinds = block[::size] if len(block) == count * size else block[: len(block) // size * size : size]
            leaves = len(kinds) - len(kinds.lstrip(_LEAVES))
            if leaves:
                yield block[: leaves * size]
            if leaves == count:
                continue
            if leaves + 1 < count:
                runs.append((number + leaves + 1, count - leaves - 1, levels))
            children = self._children(block[leaves * size : (leaves + 1) * size], after) if levels else None
            if children is None:
                yield None
                return
            # Consecutive children are read together; the first ones are to be read next.
            starts = np.flatnonzero(np.diff(children, prepend=-1) != 1)
            for start, stop in reversed(list(pairwise([*starts.tolist(), len(children)]))):
                for place in reversed(range(start, stop, _PAGES_AT_ONCE)):
                    runs.append((int(children[place]), min(_PAGES_AT_ONCE, stop - place), levels - 1))

    def _children(self, page: bytes, after: int) -> Int64 | None:
        """Return the numbers of the pages below an interior page, in order, without those that end up to a rowid.

        None if it is not a sound one.
        """
        if len(page) < self._page_bytes or page[0] != _INTERIOR:
            return None
        ends = _INTERIOR_HEADER + 2 * int.from_bytes(page[3:5], "big")
        if ends > self._usable_bytes:
            return None
        places = np.frombuffer(page[_INTERIOR_HEADER:ends], ">u2").astype(np.int64)
        if after > -(2**63):
            places = places[bisect_right(places, after, key=lambda place: _varint(page[place + 4 : place + 13])[0]) :]
        # The last child is in the header.
        places = np.append(places, _LAST_CHILD_AT)
        if places.max() > len(page) - 4:
            return None
        children = np.frombuffer(page, np.uint8)[places[:, None] + np.arange(4)].view(">u4")[:, 0].astype(np.int64)
        return children if children.all() else None


def _varint(data: bytes) -> tuple[int, int]:
    """Return the signed integer at the begin of `data`, and its size in bytes; size 0 if it is truncated."""
    value = 0
    for place, byte in enumerate(data[:9]):
        value = value << 8 | byte if place == 8 else value << 7 | byte & 0x7F
        if byte < 0x80 or place == 8:
            return value - (1 << 64) if value >> 63 else value, place + 1
    return 0, 0


def _values(values: bytes, kinds: bytes, texts: list[bytes], count: int) -> Values:
    numbers, kind = np.frombuffer(values, np.int64, count), np.frombuffer(kinds, np.uint8, count)
    used = np.bincount(kind, minlength=4)
    if not used[_FLOAT] and not used[_TEXT]:
        if not used[_ABSENT]:
            return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)])
        return pa.array(numbers, mask=kind == _ABSENT)
    decoded = [text.decode("utf-8", "replace") for text in texts]
    if not used[_FLOAT] and not used[_INTEGER]:
        return Coded(np.where(kind == _TEXT, numbers, len(decoded)).astype(np.int32), [*decoded, None])
    found: list[object] = numbers.tolist()
    floats = numbers.view(np.float64)
    for row in np.flatnonzero(kind != _INTEGER).tolist():
        found[row] = (
            None if kind[row] == _ABSENT else float(floats[row]) if kind[row] == _FLOAT else decoded[numbers[row]]
        )
    return found
