"""A map from keys to a few numbers that is kept on disk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.sort.external_sort import RUN_ROWS, ExternalSort
from traceconv.normalize.sort.spool import Spool
from traceconv.schema.dtypes import gather

UInt64 = NDArray[np.uint64]
_KEY_DTYPE = np.dtype([("key", "<u8")])


class SpillIndex:
    """Unsigned 64-bit keys, each with a few int64 values. Add everything, then look up: that sorts the rows, once."""

    def __init__(self, value_names: tuple[str, ...], run_rows: int = RUN_ROWS) -> None:
        self._names = value_names
        self._rows = Spool(np.dtype([*_KEY_DTYPE.descr, *((name, "<i8") for name in value_names)]))
        self._keys = Spool(_KEY_DTYPE)
        self._added: ExternalSort | None = ExternalSort(self._rows.dtype, "key", run_rows)
        #: The first key, if each key is its predecessor plus 1, as in logs of consecutive numbers: no search is needed.
        self._first: np.uint64 | None = None

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
        self._sort()
        found = np.zeros(len(keys), np.bool_)
        values = {name: np.zeros(len(keys), np.int64) for name in self._names}
        if len(keys) and self._first is not None:
            after = keys - self._first  # very large for smaller keys
            found = after < np.uint64(self._rows.count)
            part = gather(self._rows.mapped(), np.where(found, after, 0).astype(np.int64))
            for name in self._names:
                values[name] = np.where(found, part[name], 0)
        elif len(keys) and self._keys.count:
            all_keys, rows = self._keys.mapped()["key"], self._rows.mapped()
            order = np.argsort(keys)  # so that the files are read from start to end
            place = np.searchsorted(all_keys, keys[order])
            np.minimum(place, len(all_keys) - 1, out=place)
            hit = all_keys[place] == keys[order]
            found[order] = hit
            for name in self._names:
                values[name][order[hit]] = rows[name][place[hit]]
        return found, values

    def _sort(self) -> None:
        if self._added is not None:
            for rows in self._added.windows():
                keys = np.ascontiguousarray(rows["key"])
                if not self._keys.count:
                    self._first = keys[0]
                if self._first is not None and not _follow(keys, self._first, self._keys.count):
                    self._first = None
                self._keys.append(keys.view(_KEY_DTYPE))
                self._rows.append(rows)
            self._added.close()
            self._added = None

    def close(self) -> None:
        """Free the disk space."""
        for part in (self._added, self._keys, self._rows):
            if part is not None:
                part.close()


def _follow(keys: UInt64, first: np.uint64, count: int) -> bool:
    """Whether these keys are consecutive, after `count` consecutive ones from `first` on."""
    return int(keys[0]) == int(first) + count and bool(np.all(np.diff(keys) == 1))
