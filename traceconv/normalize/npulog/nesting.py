"""Begin and end events of threads → nested slices with depth, parent and self time, batch by batch.

Each begin and its end share a key. A stack per thread, in C or in `_nest`, takes the events in the order of the log:

- an end closes the begin with its key; begins above it on the stack have lost their end: no duration;
- an end that is `apart` leaves those above it open: they go on, and it does not enclose them;
- an end whose key is not on the stack is unmatched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import LARGEST, is_time
from traceconv.schema.dtypes import RecordArray, gather, join

#: parent_id of a slice at depth 0.
NO_PARENT = -1
#: What an event is.
BEGIN, END, END_APART = range(3)
_HALVES = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices that are closed (or will stay open), in the order of their start; arrays of one length.

    begins             the begin records; `ids` are theirs
    dur_ns, self_ns    meaningless where `unfinished`
    depth, parent_id   int32; int64, NO_PARENT at depth 0
    paired             number of ends that were paired
    end_values         a field of their ends, 0 without an end
    """

    begins: RecordArray
    ids: Int64
    start_ns: Int64
    dur_ns: Int64
    self_ns: Int64
    depth: NDArray[np.int32]
    parent_id: Int64
    unfinished: Mask
    paired: int
    end_values: NDArray[np.uint64]


class _Events(NamedTuple):
    """Begins and ends in the order of the log. `child_ns`: durations of the children so far."""

    records: RecordArray
    ids: Int64
    halves: _HALVES
    ns: Int64
    child_ns: Int64

    def take(self, places: Int64) -> _Events:
        columns = self.ids[places], self.halves[places], self.ns[places], self.child_ns[places]
        return _Events(gather(self.records, places), *columns)

    def then(self, new: _Events) -> _Events:
        return _Events(
            join([self.records, new.records]),
            np.concatenate([self.ids, new.ids]),
            np.concatenate([self.halves, new.halves]),
            np.concatenate([self.ns, new.ns]),
            np.concatenate([self.child_ns, new.child_ns]),
        )


class _Nested(NamedTuple):
    """What nesting found. `slices`: rows of begin and end places (end or -1), dur, self, depth, parent ID, unfinished.

    still_open   places of begins, by thread, the outermost first
    unmatched_ends, negative, too_long  as in `Nester`
    """

    slices: Int64
    still_open: Int64
    unmatched_ends: int
    negative: int
    too_long: int


class Nester:
    """Nests the begin and end events of any number of threads. Carries only the open begins."""

    def __init__(self, thread: str, key: str, dtype: np.dtype[np.void], of_end: str | None = None) -> None:
        """`thread`, `key` and `of_end` (for `end_values`) name fields of the records, which are of `dtype`."""
        self._of_end = of_end
        self._thread = thread
        self._key = key
        none = np.zeros(0, np.int64)
        self._open = _Events(np.zeros(0, dtype), none, none.astype(np.uint8), none, none)
        self.unmatched_ends = 0
        self.negative = 0
        #: Slices whose duration exceeds 64 bits: they are unfinished.
        self.too_long = 0

    def feed(self, records: RecordArray, ids: Int64, halves: _HALVES, ns: Int64) -> Slices:
        """Take the next events in the order of the log; return the slices that they close.

        `halves`: BEGIN, END or, for ends that leave open what began after their begin, END_APART.
        """
        new = _Events(records, ids, halves, ns, np.zeros(len(records), np.int64))
        if len(self._open.records):
            new = self._open.then(new)
        nested = self._nested(new)
        self._open = new.take(nested.still_open)
        self.unmatched_ends += nested.unmatched_ends
        self.negative += nested.negative
        self.too_long += nested.too_long
        start_ns = new.ns[nested.slices[0]]
        if np.all(start_ns[1:] >= start_ns[:-1]):
            return self._slices(new, nested.slices)
        return self._slices(new, nested.slices[:, np.argsort(start_ns, kind="stable")])

    def finish(self) -> Slices:
        """Return the begins without an end, as unfinished slices."""
        events, count = self._open, len(self._open.records)
        depth, parent_id = _open_nesting(events.records[self._thread], events.ids)
        zeros, places = np.zeros(count, np.int64), np.arange(count)
        self._open = events.take(places[:0])
        return self._slices(events, np.stack([places, zeros - 1, zeros, zeros, depth, parent_id, zeros + 1]))

    def _slices(self, events: _Events, slices: Int64) -> Slices:
        begins, ends, dur_ns, self_ns, depth, parent_id, unfinished = slices
        end_values = np.zeros(len(ends), np.uint64)
        if self._of_end is not None and len(ends):
            end_values = np.where(ends < 0, end_values, np.ascontiguousarray(events.records[self._of_end])[ends])
        return Slices(
            gather(events.records, begins),
            events.ids[begins],
            events.ns[begins],
            dur_ns,
            self_ns,
            depth.astype(np.int32),
            parent_id,
            unfinished.astype(np.bool_),
            int(np.count_nonzero(ends >= 0)),
            end_values,
        )

    def _nested(self, events: _Events) -> _Nested:
        threads, keys = (np.ascontiguousarray(events.records[name]) for name in (self._thread, self._key))
        if not native.AVAILABLE:
            return _nest(events, threads.tolist(), keys.tolist())
        rows = np.empty((8, len(keys)), np.int64)
        halves, ns = np.ascontiguousarray(events.halves), np.ascontiguousarray(events.ns)
        closed, still_open, *counts = native.nest(threads, keys, halves, ns, events.ids, events.child_ns, rows)
        return _Nested(rows[:7, :closed], rows[7, :still_open], *counts)


def _nest(events: _Events, threads: list[int], keys: list[int]) -> _Nested:
    """Find slices; `child_ns` of the events is updated."""
    halves, ns, ids, child_ns = (one.tolist() for one in (events.halves, events.ns, events.ids, events.child_ns))
    stacks: dict[int, list[int]] = {}
    open_depths: dict[tuple[int, int], list[int]] = {}  # (thread, key) → depths of its open begins
    rows: list[tuple[int, ...]] = []  # of _Nested.slices
    unmatched = negative = too_long = 0
    for place, thread in enumerate(threads):
        stack = stacks.setdefault(thread, [])
        same_key = open_depths.setdefault((thread, keys[place]), [])
        if halves[place] == BEGIN:
            same_key.append(len(stack))
            stack.append(place)
            continue
        if not same_key:
            unmatched += 1
            continue
        depth, apart = same_key.pop(), halves[place] == END_APART
        for above in range(len(stack) - 1, depth, -1):
            depths = open_depths[thread, keys[stack[above]]]
            if apart:
                depths[depths.index(above)] -= 1
            else:
                depths.pop()
                rows.append((stack[above], -1, 0, 0, above, ids[stack[above - 1]], True))
        begin = stack[depth]
        del stack[depth : depth + 1 if apart else None]
        dur = ns[place] - ns[begin]
        parent = stack[depth - 1] if depth else None
        unknown = dur < 0 or not is_time(dur)
        negative += dur < 0
        too_long += dur >= 0 and unknown
        if parent is not None and not unknown:
            child_ns[parent] = min(child_ns[parent] + dur, LARGEST)
        parent_id = NO_PARENT if parent is None else ids[parent]
        times = (0, 0) if unknown else (dur, dur - child_ns[begin])
        rows.append((begin, place, *times, depth, parent_id, unknown))
    still_open = np.array([place for _, stack in sorted(stacks.items()) for place in stack], np.int64)
    events.child_ns[:] = child_ns
    return _Nested(np.array(sorted(rows), np.int64).reshape(-1, 7).T, still_open, unmatched, negative, too_long)


def _open_nesting(thread: NDArray[np.unsignedinteger], ids: Int64) -> tuple[Int64, Int64]:
    """Return depth and parent of open begins, which are sorted by thread, the outermost first."""
    depth = np.zeros(len(ids), np.int64)
    parent = np.full(len(ids), NO_PARENT, np.int64)
    for place in range(1, len(ids)):  # as many as calls are nested, not as many as events
        if thread[place] == thread[place - 1]:
            depth[place] = depth[place - 1] + 1
            parent[place] = ids[place - 1]
    return depth, parent
