"""Fields of many messages by their numbers: sorted once, so that each number's are found without a search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.wire.protobuf import LEN, FieldTable, Int64, Mask, UInt64

#: Numbers from here on are not told apart.
_FAR = 255


class Fields:
    """The fields of messages by their numbers."""

    def __init__(self, found: FieldTable, count: int) -> None:
        self.found = found
        self.count = count
        narrow = np.minimum(found.number, _FAR).astype(np.uint8)
        self._order = np.argsort(narrow, kind="stable")
        self._bounds = np.append(0, np.cumsum(np.bincount(narrow, minlength=_FAR + 1)))

    def of(self, number: int) -> NDArray[np.intp]:
        """The places of the fields of a number below 255; those of one message in their order."""
        return self._order[self._bounds[number] : self._bounds[number + 1]]

    def numbers(self) -> list[int]:
        """The numbers that there are; 255 stands for all from there on."""
        found: list[int] = np.flatnonzero(np.diff(self._bounds)).tolist()
        return found

    def scalar(self, number: int, missing: int) -> UInt64:
        """The last value of a number in each message."""
        column = np.full(self.count, missing, np.uint64)
        of = self.of(number)
        of = of[self.found.kind[of] != LEN]
        column[self.found.row[of]] = self.found.value[of]
        return column

    def piece(self, number: int) -> tuple[Int64, Int64]:
        """Where the last text of a number stands in each message, and its size: −1 where there is none."""
        at, size = np.full(self.count, -1, np.int64), np.full(self.count, -1, np.int64)
        of = self.of(number)
        of = of[self.found.kind[of] == LEN]
        row = self.found.row[of]
        at[row], size[row] = self.found.at[of], self.found.value[of].astype(np.int64)
        return at, size

    def has(self, number: int) -> Mask:
        """Which messages have a field of a number."""
        return np.bincount(self.found.row[self.of(number)], minlength=self.count) > 0

    def counts(self, places: NDArray[np.intp]) -> Int64:
        """How many of some fields each message has."""
        return np.bincount(self.found.row[places], minlength=self.count)
