"""Ranges of sequence numbers: which records a stream has, and which are missing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from traceconv.events.npu import ORDINAL_BITS


class Ranges:
    """Disjoint ranges of sequence numbers, [first, end)."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in sorted(ranges):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            elif first < end:
                self._firsts.append(first)
                self._ends.append(end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._ends, strict=True)))

    @property
    def count(self) -> int:
        """The number of sequence numbers."""
        return sum(self._ends) - sum(self._firsts)

    def cut(self, first: int, end: int) -> list[tuple[int, int]]:
        """Remove [first, end); return the ranges that were present."""
        low, high = bisect_right(self._ends, first), bisect_left(self._firsts, end)
        if low >= high or first >= end:
            return []
        found = list(zip(self._firsts[low:high], self._ends[low:high], strict=True))
        (start, _), (_, stop) = found[0], found[-1]
        rest = [(f, e) for f, e in ((start, min(first, stop)), (max(end, start), stop)) if f < e]
        self._firsts[low:high], self._ends[low:high] = [f for f, _ in rest], [e for _, e in rest]
        return [(max(first, f), min(end, e)) for f, e in found]

    def take(self, first: int, end: int) -> int:
        """Remove [first, end); return how many numbers were present."""
        return sum(e - f for f, e in self.cut(first, end))

    def take_first(self, count: int) -> None:
        """Remove the first `count` numbers."""
        for first, end in self:
            count -= self.take(first, min(end, first + count))

    def without(self, others: Ranges) -> Ranges:
        """These ranges without those of `others`."""
        rest = Ranges(self)
        for first, end in others:
            rest.take(first, end)
        return rest


def unseen() -> Ranges:
    """All sequence numbers: `cut` then returns what is new in a range."""
    return Ranges([(0, 1 << ORDINAL_BITS)])
