"""A map from keys to a few numbers that is kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.sort.external_sort import RUN_ROWS, ExternalSort
from traceconv.normalize.sort.spool import Spool
from traceconv.schema.dtypes import RecordArray, gather, join

UInt64 = NDArray[np.uint64]
_KEY_DTYPE = np.dtype([("key", "<u8")])
#: Rows that are mapped at a time: 10 MB with four values.
_PART_ROWS = 1 << 18


class SpillIndex:
    """Unsigned 64-bit keys, each with a few int64 values. Add everything, then look up: that sorts the rows, once."""

    def __init__(
        self, value_names: tuple[str, ...], run_rows: int = RUN_ROWS, part_rows: int = _PART_ROWS,
        settle: Callable[[RecordArray], RecordArray] | None = None,
    ) -> None:  # fmt: skip
        """`settle`: takes and returns the rows of repeated keys, in order; of each, the first one is looked up."""
        self._names = value_names
        self._settle = settle
        self._part_rows = part_rows
        self._rows = Spool(np.dtype([*_KEY_DTYPE.descr, *((name, "<i8") for name in value_names)]))
        self._keys = Spool(_KEY_DTYPE)
        self._added: ExternalSort | None = ExternalSort(self._rows.dtype, "key", run_rows)
        #: The first key, if each key is its predecessor plus 1, as in logs of consecutive numbers: no search is needed.
        self._first: np.uint64 | None = None
        #: Last key of each part of the sorted rows.
        self._last_keys: UInt64 = np.empty(0, np.uint64)

    def add(self, keys: UInt64, *values: Int64) -> None:
        """Add one value of each name for each key. A repeated key keeps its first values."""
        assert self._added is not None, "rows are added before the first look-up"
        rows = np.empty(len(keys), self._rows.dtype)
        rows["key"] = keys
        for name, value in zip(self._names, values, strict=True):
            rows[name] = value
        self._added.add(rows)

    def look_up(self, keys: UInt64) -> tuple[Mask, dict[str, Int64]]:
        """Return which keys are present, and the values of each name (0 for absent keys)."""
        self.sort()
        found = np.zeros(len(keys), np.bool_)
        values = {name: np.zeros(len(keys), np.int64) for name in self._names}
        order = np.argsort(keys, kind="stable")  # takes little time for keys that are in order, as most are
        for number, own in self._parts(keys[order]):
            first = number * self._part_rows
            count = min(self._part_rows, self._rows.count - first)
            asked = order[own]
            if self._first is None:
                known = self._keys.mapped(first, count)["key"]
                place = np.searchsorted(known, keys[asked])
                np.minimum(place, count - 1, out=place)
                hit = known[place] == keys[asked]
            else:
                place = (keys[asked] - (self._first + np.uint64(first))).astype(np.int64)
                hit = (place >= 0) & (place < count)
            asked, rows = asked[hit], gather(self._rows.mapped(first, count), place[hit])
            found[asked] = True
            for name in self._names:
                values[name][asked] = rows[name]
        return found, values

    def bounds(self) -> tuple[int, int]:
        """Return the least and the largest key. There must be one."""
        self.sort()
        return int(self._keys.read(0, 1)["key"][0]), int(self._last_keys[-1])

    def _parts(self, keys: UInt64) -> Iterator[tuple[int, slice]]:
        """Yield the number of each part of the rows that may have keys of these, which are in order, and their slice.

        A part at a time is mapped, because mapped pages count as memory of this process. A key that is in several
        parts belongs to the first.
        """
        bounds = [0, *np.searchsorted(keys, self._last_keys, "right").tolist()]
        for number, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                yield number, slice(start, stop)

    def sort(self) -> None:
        """Sort what was added, before the first look-up."""
        if self._added is not None:
            for rows in self._added.windows():
                keys = np.ascontiguousarray(rows["key"])
                if self._settle is not None and (same := keys[1:] == keys[:-1]).any():
                    repeated = np.concatenate([same, [False]]) | np.concatenate([[False], same])
                    rows[repeated] = self._settle(rows[repeated])
                if not self._keys.count:
                    self._first = keys[0]
                if self._first is not None and not _follow(keys, self._first, self._keys.count):
                    self._first = None
                self._keys.append(keys.view(_KEY_DTYPE))
                self._rows.append(rows)
            self._added.close()
            self._added = self._settle = None  # it may refer to what has this index
            ends = [*range(self._part_rows, self._keys.count, self._part_rows), self._keys.count]
            if self._keys.count:
                self._last_keys = join([self._keys.read(end - 1, 1) for end in ends])["key"]

    def close(self) -> None:
        """Free the disk space."""
        for part in (self._added, self._keys, self._rows):
            if part is not None:
                part.close()


def _follow(keys: UInt64, first: np.uint64, count: int) -> bool:
    """Whether these keys are consecutive, after `count` consecutive ones from `first` on."""
    return int(keys[0]) == int(first) + count and bool(np.all(np.diff(keys) == 1))
