"""The tasks of each stream that were launched but have not started, from launches and starts in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST
from traceconv.normalize.sort.stable_order import stable_order


@dataclass(frozen=True, slots=True)
class Changes:
    """Launches or starts: the place of each one's stream in a list, its task, its time and that of the launch."""

    stream: NDArray[np.int32]
    ids: Int64
    ts_ns: Int64
    submit_ns: Int64


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
    length: int = 0
    last_ns: int | None = None
    last_submit_ns: int = -LARGEST


class StreamQueues:
    """Takes the changes of streams, one range of time after another."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}

    def take(self, launches: Changes, starts: Changes) -> tuple[Changes, Int64, list[tuple[int, Lengths]]]:
        """Return the launches, the lengths after them, and the lengths of each stream.

        At equal times, launches come before starts, those of smaller task IDs first.
        """
        by_id = np.argsort(launches.ids, kind="stable")
        stream = np.concatenate((launches.stream[by_id], starts.stream))
        ts_ns = np.concatenate((launches.ts_ns[by_id], starts.ts_ns))
        order = np.argsort(ts_ns, kind="stable")
        order = order[stable_order(stream[order].view(np.uint32))]
        stream, ts_ns = stream[order], ts_ns[order]
        is_launch = order < len(by_id)
        length = np.cumsum(np.where(is_launch, 1, -1))
        found = []
        for head, end in _groups(stream):
            queue = self._queues.setdefault(int(stream[head]), _Queue())
            own = length[head:end]
            own += queue.length - (own[0] - (1 if is_launch[head] else -1))
            found.append((int(stream[head]), _lengths(queue, own, ts_ns[head:end])))
            queue.length, queue.last_ns = int(own[-1]), int(ts_ns[end - 1])
        order = by_id[order[is_launch]]
        submit_ns = ts_ns[is_launch]
        return Changes(stream[is_launch], launches.ids[order], submit_ns, submit_ns), length[is_launch], found

    def reordered(self, starts: Changes) -> Changes:
        """Return the starts, of those that `take` gets, before which a task started that was launched later."""
        order = np.lexsort((starts.submit_ns, starts.ts_ns, starts.stream))
        stream, submit_ns = starts.stream[order], starts.submit_ns[order]
        found = np.zeros(len(order), np.bool_)
        for head, end in _groups(stream):
            queue = self._queues.setdefault(int(stream[head]), _Queue())
            latest = np.maximum.accumulate(np.concatenate(([queue.last_submit_ns], submit_ns[head:end])))
            found[head:end] = submit_ns[head:end] < latest[:-1]
            queue.last_submit_ns = int(latest[-1])
        rows = order[found]
        return Changes(starts.stream[rows], starts.ids[rows], starts.ts_ns[rows], starts.submit_ns[rows])


def _groups(stream: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """Return the first row of each group of equal numbers, and the row after its last."""
    heads = np.flatnonzero(np.concatenate(([True], stream[1:] != stream[:-1]))) if len(stream) else stream
    return pairwise([*heads.tolist(), len(stream)])


def _lengths(queue: _Queue, length: Int64, ts_ns: Int64) -> Lengths:
    """Return the lengths of a queue from its last change before to the last of these."""
    low = int(length.min())
    # Doubles are exact for sums of fewer than 2^21 numbers below 2^32.
    number, lasts = length[:-1] - low, np.diff(ts_ns).view(np.uint64)
    counts = np.bincount(length - low)
    halves = (
        np.bincount(number, (lasts >> np.uint64(shift) & np.uint64(0xFFFFFFFF)).astype(np.float64), len(counts))
        for shift in (0, 32)
    )
    smaller, larger = (half.astype(np.uint64) for half in halves)
    kept = np.flatnonzero(counts)
    lengths, counts, dur_ns = kept + low, counts[kept], (smaller + (larger << np.uint64(32)))[kept]
    if queue.last_ns is not None:
        until_first = np.diff([queue.last_ns, ts_ns[0]]).view(np.uint64)
        lengths, counts = np.append(lengths, queue.length), np.append(counts, 0)
        dur_ns = np.concatenate((dur_ns, until_first))
    # Durations of 63 bits: a longer one is split.
    rest = dur_ns - np.minimum(dur_ns, np.uint64(LARGEST))
    split = np.flatnonzero(rest)
    return Lengths(
        np.concatenate((lengths, lengths[split])),
        np.concatenate((counts, np.zeros(len(split), np.int64))),
        np.concatenate((dur_ns - rest, rest[split])).view(np.int64),
        queue.last_ns,
        int(ts_ns[-1]),
    )
