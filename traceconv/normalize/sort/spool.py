"""Rows put aside on disk while a pass goes on: appended as arrays, read back in chunks, gone at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from traceconv.base.errors import OutputError
from traceconv.schema.dtypes import gather, join


def put_aside_file() -> BinaryIO:
    """A temporary file for rows that are put aside, which has no name."""
    return cast(BinaryIO, tempfile.TemporaryFile(prefix="traceconv-"))


def give_up(file: BinaryIO) -> None:
    """Closes such a file. What it had no room for is still on its way into it, and would be refused once more."""
    with suppress(OSError):
        file.close()


@contextmanager
def room_needed() -> Iterator[None]:
    """OutputError, which says what to do, when rows can't be put aside."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"can't put rows aside in {tempfile.gettempdir()}: {error.strerror}; make room, or set TMPDIR"
        ) from error


class Spool:
    """Structured rows of one dtype in a temporary file. OutputError when there is no room for them."""

    CHUNK_ROWS = 1 << 16

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self.dtype = dtype
        self.count = 0
        self._file: BinaryIO | None = None

    def append(self, rows: NDArray[np.void]) -> None:
        """Adds rows of the spool's dtype."""
        if not len(rows):
            return
        with room_needed():
            if self._file is None:
                self._file = put_aside_file()
            self._file.write(np.ascontiguousarray(rows, self.dtype).view(np.uint8).data)
            self._file.flush()  # a full disk says so here
        self.count += len(rows)

    def read(self, first: int, count: int) -> NDArray[np.void]:
        """Rows `first` to `first + count` as a new array."""
        rows = np.empty(count, self.dtype)
        if count:
            assert self._file is not None
            self._file.seek(first * self.dtype.itemsize)
            self._file.readinto(rows.view(np.uint8).data)  # type: ignore[attr-defined]
            self._file.seek(0, 2)
        return rows

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.void]:
        """These rows, which rise: however far they lie apart, no more than a chunk is read at a time."""
        if not len(rows):
            return np.empty(0, self.dtype)
        parts = []
        for first, count, own in self._stretches(rows):
            parts.append(gather(self.read(first, count), rows[own] - first))
        return join(parts)

    def put(self, rows: NDArray[np.int64], name: str, values: NDArray[np.generic]) -> None:
        """Writes a field of these rows, which rise; no more than a chunk is in memory at a time."""
        if not len(rows):
            return
        assert self._file is not None
        for first, count, own in self._stretches(rows):
            stretch = self.read(first, count)
            stretch[name][rows[own] - first] = values[own]
            with room_needed():
                self._file.seek(first * self.dtype.itemsize)
                self._file.write(stretch.view(np.uint8).data)
                self._file.flush()
        self._file.seek(0, 2)

    def _stretches(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, int, slice]]:
        """Where to read for these rows: the first, how many, and which of `rows` are among them."""
        bounds = (np.flatnonzero(np.diff(rows // self.CHUNK_ROWS)) + 1).tolist()
        for start, stop in pairwise((0, *bounds, len(rows))):
            first = int(rows[start])
            yield first, int(rows[stop - 1]) - first + 1, slice(start, stop)

    def mapped(self) -> NDArray[np.void]:
        """All rows (at least one), each read from disk when it is looked at. Not valid after `close`."""
        assert self._file is not None
        return np.memmap(self._file, self.dtype, mode="r", shape=(self.count,))

    def __iter__(self) -> Iterator[NDArray[np.void]]:
        for first in range(0, self.count, self.CHUNK_ROWS):
            yield self.read(first, min(self.CHUNK_ROWS, self.count - first))

    def close(self) -> None:
        """Frees the disk space."""
        if self._file is not None:
            give_up(self._file)
            self._file = None


class SpillIndex:
    """A map from unsigned 64-bit keys to a few int64 values, on disk, for keys that come nearly in order.

    Look-ups read the sorted runs whose key range they touch: cheap when the keys asked for are close together,
    as the tasks of a batch are. When they are not, the runs are merged into one sorted file, once, and searched there.
    """

    RUN_ROWS = 1 << 16
    CACHED_RUNS = 12

    def __init__(self, value_names: tuple[str, ...]) -> None:
        self._names = value_names
        self._spool = Spool(np.dtype([("key", "<u8"), *((name, "<i8") for name in value_names)]))
        self._merged: tuple[Spool, Spool] | None = None  # keys and rows, both in the order of the keys
        self._pending: list[NDArray[np.void]] = []
        self._pending_count = 0
        self._low: list[int] = []
        self._high: list[int] = []
        self._first: list[int] = [0]
        self._cache: dict[int, tuple[NDArray[np.uint64], NDArray[np.void]]] = {}

    def add(self, keys: NDArray[np.uint64], *values: NDArray[np.int64]) -> None:
        """Adds one value of each name for each key. A key that comes again keeps its first values."""
        rows = np.empty(len(keys), self._spool.dtype)
        rows["key"] = keys
        for name, value in zip(self._names, values, strict=True):
            rows[name] = value
        self._pending.append(rows)
        self._pending_count += len(rows)
        if self._pending_count >= self.RUN_ROWS:
            self._end_run()

    def _end_run(self) -> None:
        if not self._pending_count:
            return
        rows = join(self._pending)
        keys = np.ascontiguousarray(rows["key"])
        if len(keys) > 1 and not np.all(keys[1:] >= keys[:-1]):
            rows = gather(rows, np.argsort(keys, kind="stable"))
        self._spool.append(rows)
        self._low.append(int(rows["key"][0]))
        self._high.append(int(rows["key"][-1]))
        self._first.append(self._spool.count)
        self._pending = []
        self._pending_count = 0

    def look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.int64]]]:
        """Which keys are there, and the values of each name (0 where the key is not there)."""
        self._end_run()
        found = np.zeros(len(keys), np.bool_)
        values = {name: np.zeros(len(keys), np.int64) for name in self._names}
        if not len(keys):
            return found, values
        runs = self._runs(keys)
        if len(runs) > self.CACHED_RUNS and self._merged is None:
            self._merge()
            runs = []
        if self._merged is not None:
            self._look_up_merged(keys, found, values)
        for run in runs:
            run_keys, rows = self._run(run)
            place = np.searchsorted(run_keys, keys)
            np.minimum(place, len(run_keys) - 1, out=place)
            hit = (run_keys[place] == keys) & ~found
            if hit.any():
                found |= hit
                for name in self._names:
                    values[name][hit] = rows[name][place[hit]]
        return found, values

    def _runs(self, keys: NDArray[np.uint64]) -> list[int]:
        """The runs whose key range overlaps that of `keys`."""
        if not self._low:
            return []
        low, high = keys.min(), keys.max()
        touched = (np.array(self._low, np.uint64) <= high) & (np.array(self._high, np.uint64) >= low)
        runs: list[int] = np.flatnonzero(touched).tolist()
        return runs

    def _look_up_merged(
        self, keys: NDArray[np.uint64], found: NDArray[np.bool_], values: dict[str, NDArray[np.int64]]
    ) -> None:
        assert self._merged is not None
        all_keys, rows = (spool.mapped() for spool in self._merged)
        order = np.argsort(keys)  # so that the file is read from its beginning to its end
        asked = keys[order]
        place = np.searchsorted(all_keys["key"], asked)
        np.minimum(place, len(all_keys) - 1, out=place)
        hit = all_keys["key"][place] == asked
        found[order] = hit
        for name in self._names:
            values[name][order[hit]] = rows[name][place[hit]]

    def _merge(self) -> None:
        """Puts all rows in the order of their keys, range by range: memory holds about a run."""
        count = len(self._low)
        samples = [keys[:: max(1, len(keys) // 8)] for keys in map(self._run_keys, range(count))]
        bounds = np.unique(np.sort(np.concatenate(samples))[::8])
        cuts = [[0, *np.searchsorted(keys, bounds).tolist(), len(keys)] for keys in map(self._run_keys, range(count))]
        keys_spool, rows_spool = Spool(np.dtype([("key", "<u8")])), Spool(self._spool.dtype)
        self._merged = keys_spool, rows_spool
        for part in range(len(bounds) + 1):
            pieces = [
                self._spool.read(self._first[run] + cut[part], cut[part + 1] - cut[part])
                for run, cut in enumerate(cuts)
                if cut[part + 1] > cut[part]
            ]
            if not pieces:
                continue
            rows = join(pieces)
            keys = np.ascontiguousarray(rows["key"])
            order = np.argsort(keys, kind="stable")
            keys_spool.append(keys[order].view(keys_spool.dtype))
            rows_spool.append(gather(rows, order))
        self._spool.close()
        self._spool = Spool(rows_spool.dtype)
        self._cache.clear()
        self._low, self._high, self._first = [], [], [0]

    def _run_keys(self, run: int) -> NDArray[np.uint64]:
        return np.ascontiguousarray(self._read_run(run)["key"])

    def _read_run(self, run: int) -> NDArray[np.void]:
        return self._spool.read(self._first[run], self._first[run + 1] - self._first[run])

    def _run(self, run: int) -> tuple[NDArray[np.uint64], NDArray[np.void]]:
        """The keys (contiguous, for searching) and the rows of a run, least recently used runs dropped."""
        cached = self._cache.pop(run, None)
        if cached is None:
            rows = self._read_run(run)
            cached = np.ascontiguousarray(rows["key"]), rows
            while len(self._cache) >= self.CACHED_RUNS:
                del self._cache[next(iter(self._cache))]
        self._cache[run] = cached
        return cached

    def close(self) -> None:
        """Frees the disk space."""
        self._cache.clear()
        for spool in (self._spool, *(self._merged or ())):
            spool.close()
