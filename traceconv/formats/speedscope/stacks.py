"""Samples of a stack → slices: a frame is one slice for as long as it keeps its position in the stack."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from operator import itemgetter

from traceconv.base.integers import LARGEST

#: start and duration in ns, frame, number of its first sample
Slice = tuple[int, int, int, int]


def rounded(ns: int | Decimal) -> int:
    """Round to integer nanoseconds, half to even."""
    return ns if isinstance(ns, int) else int(ns.to_integral_value(ROUND_HALF_EVEN))


class SampledStacks:
    """Collects samples and their weights, which are in two lists; then yields slices, each when it ends.

    Keeps a number for each sample and each distinct stack once, not the samples.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._samples = array("q")
        self._weights = array("q")
        self._exact: int | Decimal = 0
        self._rounded = 0

    def add_sample(self, stack: tuple[int, ...]) -> None:
        """Add a sample: frames from the outermost inwards."""
        self._samples.append(self._numbers.setdefault(stack, len(self._numbers)))

    def add_weight(self, dur_ns: int | Decimal) -> None:
        """Add a weight, the duration of its sample. Sums are rounded, not weights, so that errors don't accumulate."""
        self._exact += dur_ns
        weight = min(rounded(self._exact) - self._rounded, LARGEST)
        self._weights.append(weight)
        self._rounded += weight

    @property
    def sample_count(self) -> int:
        return len(self._samples)

    @property
    def unpaired(self) -> int:
        """Samples without a weight, or weights without a sample."""
        return abs(len(self._samples) - len(self._weights))

    def slices(self, start_ns: int) -> Iterator[Slice]:
        """The slices, from `start_ns` on; those that end at the same time, in the order in which they begin.

        Of slices with the same times, the first encloses the others.
        """
        stacks = list(self._numbers)
        open_frames: list[tuple[int, int, int]] = []  # frame, start, first sample
        ended: list[tuple[int, int, Slice]] = []  # first sample, depth; those that end now
        now, before = start_ns, -1

        def end(same: int) -> None:
            while len(open_frames) > same:
                frame, began, first = open_frames.pop()
                ended.append((first, len(open_frames), (began, now - began, frame, first)))

        for sample, (number, weight) in enumerate(zip(self._samples, self._weights, strict=False)):
            if number != before:
                stack = stacks[number]
                same = 0
                while same < len(stack) and same < len(open_frames) and open_frames[same][0] == stack[same]:
                    same += 1
                end(same)
                open_frames.extend((frame, now, sample) for frame in stack[same:])
                before = number
            if weight:
                yield from _in_order(ended)
                now += weight
        end(0)
        yield from _in_order(ended)


def _in_order(ended: list[tuple[int, int, Slice]]) -> Iterator[Slice]:
    """Take the slices out of the list."""
    ended.sort(key=itemgetter(0, 1))
    for _, _, one in ended:
        yield one
    ended.clear()
