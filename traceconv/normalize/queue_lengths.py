"""The tasks of each stream that were launched but have not started, from launches and starts in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST
from traceconv.normalize.sort.stable_order import stable_order


@dataclass(frozen=True, slots=True)
class Changes:
    """Launches or starts: the place of each one's stream in a list, its task, its time, and both times of the task."""

    stream: NDArray[np.int32]
    ids: Int64
    ts_ns: Int64
    submit_ns: Int64
    start_ns: Int64


@dataclass(frozen=True, slots=True)
class Lengths:
    """How often the queue had each length after a change, and for how long. Lengths may repeat.

    start_ns  time of the last change before, None if there is none; dur_ns counts from then to end_ns
    end_ns    time of the last change
    """

    queue_length: Int64
    change_count: Int64
    dur_ns: Int64
    start_ns: int | None
    end_ns: int


@dataclass(slots=True)
class _Queue:
    """A stream's queue so far, and its lengths in the current stretch of time.

    parts        lengths, the number of changes to each, and the time with it
    until_first  the length before the stretch, and its time until the first change in it
    """

    length: int = 0
    last_ns: int | None = None
    last_submit_ns: int = -LARGEST
    start_ns: int | None = None
    parts: list[tuple[Int64, Int64, NDArray[np.uint64]]] = field(default_factory=list)
    until_first: tuple[int, np.uint64] | None = None

    def add(self, length: Int64, ts_ns: Int64) -> None:
        """Add changes: the length after each, and its time."""
        if self.last_ns is not None:
            lasts = np.diff([self.last_ns, ts_ns[0]]).view(np.uint64)
            if self.parts:
                self.parts.append((np.array([self.length]), np.zeros(1, np.int64), lasts))
            else:
                self.start_ns, self.until_first = self.last_ns, (self.length, lasts[0])
        low = int(length.min())
        number = length - low
        counts = np.bincount(number)
        dur_ns = np.zeros(len(counts), np.uint64)
        np.add.at(dur_ns, number[:-1], np.diff(ts_ns).view(np.uint64))
        kept = np.flatnonzero(counts)
        self.parts.append((kept + low, counts[kept], dur_ns[kept]))
        self.length, self.last_ns = int(length[-1]), int(ts_ns[-1])

    def end_stretch(self) -> Lengths:
        """Return the lengths in the stretch, and begin the next one."""
        assert self.last_ns is not None
        all_lengths, all_counts, all_dur_ns = (np.concatenate(columns) for columns in zip(*self.parts, strict=True))
        lengths, number = np.unique(all_lengths, return_inverse=True)
        counts, dur_ns = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.uint64)
        np.add.at(counts, number, all_counts)
        np.add.at(dur_ns, number, all_dur_ns)
        if self.until_first is not None:
            length, lasts = self.until_first
            lengths, counts, dur_ns = np.append(lengths, length), np.append(counts, 0), np.append(dur_ns, lasts)
        # Durations of 63 bits: a longer one is split.
        rest = dur_ns - np.minimum(dur_ns, np.uint64(LARGEST))
        split = np.flatnonzero(rest)
        found = Lengths(
            np.concatenate((lengths, lengths[split])),
            np.concatenate((counts, np.zeros(len(split), np.int64))),
            np.concatenate((dur_ns - rest, rest[split])).view(np.int64),
            self.start_ns,
            self.last_ns,
        )
        self.parts, self.until_first = [], None
        return found


class StreamQueues:
    """Takes the changes of streams, one range of time after another. A stretch of time has one or more of them."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}

    def take(self, launches: Changes, starts: Changes) -> tuple[NDArray[np.int32], Int64, Int64]:
        """Return the stream and the task of each launch, and the length after it.

        At equal times, launches come before starts, in the order in which the tasks start; of equal starts, smaller
        task IDs first.
        """
        by_start = np.lexsort((launches.ids, launches.start_ns))
        stream = np.concatenate((launches.stream[by_start], starts.stream))
        ts_ns = np.concatenate((launches.ts_ns[by_start], starts.ts_ns))
        order = np.argsort(ts_ns, kind="stable")
        order = order[stable_order(stream[order].view(np.uint32))]
        stream, ts_ns = stream[order], ts_ns[order]
        is_launch = order < len(by_start)
        length = np.cumsum(np.where(is_launch, 1, -1))
        for head, end in _groups(stream):
            queue = self._queues.setdefault(int(stream[head]), _Queue())
            own = length[head:end]
            own += queue.length - (own[0] - (1 if is_launch[head] else -1))
            queue.add(own, ts_ns[head:end])
        return stream[is_launch], launches.ids[by_start[order[is_launch]]], length[is_launch]

    def end_stretch(self) -> list[tuple[int, Lengths]]:
        """Return the lengths of each stream since the last stretch."""
        return [(stream, queue.end_stretch()) for stream, queue in sorted(self._queues.items()) if queue.parts]

    def reordered(self, starts: Changes) -> tuple[NDArray[np.int32], Int64]:
        """Return the stream and the task of the starts, of those that `take` gets, before which a task started that was
        launched later.
        """
        order = np.lexsort((starts.submit_ns, starts.ts_ns, starts.stream))
        stream, submit_ns = starts.stream[order], starts.submit_ns[order]
        found = np.zeros(len(order), np.bool_)
        for head, end in _groups(stream):
            queue = self._queues.setdefault(int(stream[head]), _Queue())
            latest = np.maximum.accumulate(np.concatenate(([queue.last_submit_ns], submit_ns[head:end])))
            found[head:end] = submit_ns[head:end] < latest[:-1]
            queue.last_submit_ns = int(latest[-1])
        rows = order[found]
        return starts.stream[rows], starts.ids[rows]


def _groups(stream: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """Return the first row of each group of equal numbers, and the row after its last."""
    heads = np.flatnonzero(np.concatenate(([True], stream[1:] != stream[:-1]))) if len(stream) else stream
    return pairwise([*heads.tolist(), len(stream)])
