"""Numbers by 64-bit key, for many keys at once: sorted runs, the larger ones in a temporary file."""

from __future__ import annotations

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.normalize.sort.spool import Spool

#: Entries in memory, of 16 bytes.
KEPT_ENTRIES = 1 << 19
#: Keys that are looked up in a file at once: each may read a page.
_LOOKED_UP = 1 << 11
#: Bits per key of a run in the file: less than 2 % of other keys are looked up there.
_BITS_PER_KEY = 16

_KEY_DTYPE = np.dtype([("key", "<i8")])
_NUMBER_DTYPE = np.dtype([("number", "<i8")])


class NumbersByKey:
    """Keys are added once; `find` returns their numbers. Recent keys are found faster."""

    def __init__(self) -> None:
        #: Sorted keys and their numbers, each run at least twice as long as the next.
        self._runs: list[tuple[Int64, Int64]] = []
        self._spilled: list[_SpilledRun] = []
        self._keys, self._numbers = Spool(_KEY_DTYPE), Spool(_NUMBER_DTYPE)

    def close(self) -> None:
        """Free the disk space."""
        self._keys.close()
        self._numbers.close()

    @property
    def entries(self) -> int:
        """The number of entries in memory."""
        return sum(len(keys) for keys, _ in self._runs)

    def find(self, keys: Int64) -> Int64:
        """Return the number of each key, −1 for unknown keys."""
        found = np.full(len(keys), -1, np.int64)
        missing = np.argsort(keys)  # sorted keys are found faster, and read fewer pages
        for run_keys, numbers in reversed(self._runs):
            missing = _look_up(keys, missing, run_keys, numbers, found)
        for run in reversed(self._spilled):
            possible = missing[run.may_have(keys[missing])]
            for first in range(0, len(possible), _LOOKED_UP):
                some = possible[first : first + _LOOKED_UP]
                run_keys = self._keys.mapped(run.first, run.count)["key"]
                _look_up(keys, some, run_keys, self._numbers.mapped(run.first, run.count)["number"], found)
            missing = missing[found[missing] < 0]
        return found

    def add(self, keys: Int64, numbers: Int64) -> None:
        """Add distinct keys that are new."""
        if not len(keys):
            return
        order = np.argsort(keys)
        self._runs.append((keys[order], numbers[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            self._merge(2)
        if self.entries >= KEPT_ENTRIES:
            self._merge(len(self._runs))
            self._spill(*self._runs.pop())

    def _merge(self, count: int) -> None:
        """Merge the last runs."""
        merged = self._runs[-count:]
        keys = np.concatenate([run_keys for run_keys, _ in merged])
        order = np.argsort(keys, kind="stable")  # merges sorted stretches
        numbers = np.concatenate([numbers for _, numbers in merged])
        self._runs[-count:] = [(keys[order], numbers[order])]

    def _spill(self, keys: Int64, numbers: Int64) -> None:
        self._spilled.append(_SpilledRun(self._keys.count, keys))
        self._keys.append(keys.view(_KEY_DTYPE))
        self._numbers.append(numbers.view(_NUMBER_DTYPE))


def _look_up(keys: Int64, places: NDArray[np.intp], run_keys: Int64, numbers: Int64, found: Int64) -> NDArray[np.intp]:
    """Set the numbers of the keys at `places` that are in the run. Return the other places."""
    wanted = keys[places]
    at = np.minimum(np.searchsorted(run_keys, wanted), len(run_keys) - 1)
    hit = run_keys[at] == wanted
    found[places[hit]] = numbers[at[hit]]
    missing: NDArray[np.intp] = places[~hit]
    return missing


class _SpilledRun:
    """A sorted run in the file, with a Bloom filter."""

    def __init__(self, first: int, keys: Int64) -> None:
        """`first`: its first row."""
        self.first = first
        self.count = len(keys)
        self._bits = np.uint64((self.count * _BITS_PER_KEY - 1).bit_length())
        self._filter = np.zeros((1 << int(self._bits)) // 8 + 1, np.uint8)
        for bit in self._places(keys):
            np.bitwise_or.at(self._filter, bit >> np.uint64(3), _mask(bit))

    def may_have(self, keys: Int64) -> NDArray[np.bool_]:
        """Return which keys may be in the run."""
        one, other = (self._filter[bit >> np.uint64(3)] & _mask(bit) for bit in self._places(keys))
        found: NDArray[np.bool_] = (one != 0) & (other != 0)
        return found

    def _places(self, keys: Int64) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the two bits of each key. Consecutive keys have bits anywhere."""
        mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xBF58476D1CE4E5B9)
        rest = np.uint64(64) - self._bits
        return mixed >> rest, (mixed << np.uint64(32) | mixed >> np.uint64(32)) >> rest


def _mask(bits: NDArray[np.uint64]) -> NDArray[np.uint8]:
    mask: NDArray[np.uint8] = np.array([1 << bit for bit in range(8)], np.uint8)[bits & np.uint64(7)]
    return mask
