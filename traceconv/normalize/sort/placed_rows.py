"""Rows that come in nearly the order of their places: written there directly, only stragglers are sorted."""

from __future__ import annotations

import numpy as np

from traceconv.base.int64 import Int64
from traceconv.normalize.sort.external_sort import RUN_ROWS, ExternalSort
from traceconv.normalize.sort.spool import Spool
from traceconv.schema.dtypes import RecordArray, plain

#: Rows of a stretch, and the number of stretches in memory.
_STRETCH_BITS, _MOST_STRETCHES = 14, 32


class PlacedRows(Spool):
    """A spool whose rows are placed in any order, each place from 0 on once; readable after `end`.

    Stretches of rows are in memory as long as rows come for them, and are then written. Rows that come later are sorted
    by their place, and put there in the end.
    """

    def __init__(self, dtype: np.dtype[np.void], run_rows: int = RUN_ROWS) -> None:
        super().__init__(dtype)
        self._stretches_held: dict[int, RecordArray] = {}
        self._written: set[int] = set()
        self._late_dtype = np.dtype([("place", "<i8"), ("row", dtype)])
        self._late = ExternalSort(self._late_dtype, "place", run_rows)

    def place(self, rows: RecordArray, places: Int64) -> None:
        """Add rows at these places."""
        if not len(rows):
            return
        numbers = places >> _STRETCH_BITS
        low = int(numbers.min())
        present = (np.flatnonzero(np.bincount(numbers - low)) + low).tolist()
        if len(present) > _MOST_STRETCHES:
            self._add_late(rows, places)
            return
        for number in present:
            own = np.flatnonzero(numbers == number) if len(present) > 1 else slice(None)
            if number in self._written:
                self._add_late(plain(rows)[own].view(rows.dtype), places[own])
                continue
            held = self._stretches_held.pop(number, None)
            if held is None:
                held = np.empty(1 << _STRETCH_BITS, self.dtype)  # each row of which is written
            self._stretches_held[number] = held  # the last one: dicts keep the order of insertion
            plain(held)[places[own] - (number << _STRETCH_BITS)] = plain(rows)[own]
        while len(self._stretches_held) > _MOST_STRETCHES:
            self._write_oldest()

    def _add_late(self, rows: RecordArray, places: Int64) -> None:
        late = np.empty(len(rows), self._late_dtype)
        late["place"], late["row"] = places, rows
        self._late.add(late)

    def _write_oldest(self, count: int | None = None) -> None:
        """Write a stretch, of which the rows from `count` on (None: unknown) are unused."""
        number = next(iter(self._stretches_held))
        self._written.add(number)
        first = number << _STRETCH_BITS
        rows = self._stretches_held.pop(number)
        self.write(first, rows if count is None else rows[: max(0, count - first)])

    def end(self, count: int) -> None:
        """Write what is left, when all places below `count` have rows."""
        while self._stretches_held:
            self._write_oldest(count)
        for late in self._late.windows():
            self.put(np.ascontiguousarray(late["place"]), None, np.ascontiguousarray(late["row"]))
        self._late.close()
        self.count = count

    def close(self) -> None:
        """Free the disk space."""
        super().close()
        self._late.close()
