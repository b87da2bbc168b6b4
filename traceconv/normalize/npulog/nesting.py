"""Begin and end events of threads → nested slices with depth, parent and self time, batch by batch.

Each begin and its end share a key. On a log without gaps the level of each event is a running sum of +1 and −1, and
everything is found by sorting (`_nest_by_sorting`). If events are missing, a stack processes them one at a time
(`_nest_by_stack`), which defines the correct result:

- an end closes the begin with its key; begins above it on the stack have lost their end: no duration;
- an end that is `apart` leaves those above it open: they go on, and it does not enclose them;
- an end whose key is not on the stack is unmatched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import LARGEST, Int64, Mask, differences, is_time
from traceconv.normalize.npulog.pairing import stable_order
from traceconv.schema.dtypes import RecordArray, gather, join

#: parent_id of a slice at depth 0.
NO_PARENT = -1


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
    is_end: Mask
    apart: Mask
    ns: Int64
    child_ns: Int64

    def take(self, places: Int64, child_ns: Int64) -> _Events:
        columns = self.ids[places], self.is_end[places], self.apart[places], self.ns[places], child_ns[places]
        return _Events(gather(self.records, places), *columns)


class _Nested(NamedTuple):
    """What nesting found. `slices`: rows of begin and end places (end or -1), dur, self, depth, parent ID, unfinished.

    still_open  places of begins, by thread, the outermost first
    """

    slices: Int64
    still_open: Int64
    child_ns: Int64


class Nester:
    """Nests the begin and end events of any number of threads. Carries only the open begins."""

    def __init__(self, thread: str, key: str, dtype: np.dtype[np.void], of_end: str | None = None) -> None:
        """`thread`, `key` and `of_end` (for `end_values`) name fields of the records, which are of `dtype`."""
        self._of_end = of_end
        self._thread = thread
        self._key = key
        self._open = _new_events(np.zeros(0, dtype), np.zeros(0, np.int64), None, np.zeros(0, np.int64), None)
        self.unmatched_ends = 0
        self.negative = 0
        #: Slices whose duration exceeds 64 bits: they are unfinished.
        self.too_long = 0

    def feed(self, records: RecordArray, ids: Int64, is_end: Mask, ns: Int64, apart: Mask | None = None) -> Slices:
        """Take the next events in the order of the log; return the slices that they close.

        `apart`: ends that leave open what began after their begin; None: none do.
        """
        new = _new_events(records, ids, is_end, ns, apart)
        if len(self._open.records):
            new = _Events(
                join([self._open.records, records]),
                np.concatenate([self._open.ids, ids]),
                np.concatenate([self._open.is_end, new.is_end]),
                np.concatenate([self._open.apart, new.apart]),
                np.concatenate([self._open.ns, ns]),
                np.concatenate([self._open.child_ns, new.child_ns]),
            )
        nested = self._nest_by_sorting(new) or self._nest_by_stack(new)
        self._open = new.take(nested.still_open, nested.child_ns)
        by_start = np.argsort(new.ns[nested.slices[0]], kind="stable")
        return self._slices(new, nested.slices[:, by_start])

    def finish(self) -> Slices:
        """Return the begins without an end, as unfinished slices."""
        events, count = self._open, len(self._open.records)
        depth, parent_id = _open_nesting(events.records[self._thread], events.ids)
        zeros, places = np.zeros(count, np.int64), np.arange(count)
        self._open = events.take(places[:0], zeros)
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

    def _nest_by_sorting(self, events: _Events) -> _Nested | None:
        """Find slices by sorting; None if events are missing, or sums of durations might exceed 64 bits."""
        count = len(events.records)
        if not count:
            return None
        threads, keys = (np.ascontiguousarray(events.records[name]) for name in (self._thread, self._key))
        by_thread = stable_order(threads)
        thread = threads[by_thread]
        is_end = events.is_end[by_thread]
        level = np.cumsum(np.where(is_end, -1, 1))
        starts_thread = np.ones(count, np.bool_)
        starts_thread[1:] = thread[1:] != thread[:-1]
        segment = np.cumsum(starts_thread) - 1
        first = np.flatnonzero(starts_thread)
        before = np.concatenate([[0], level])[first]
        # A begin is at the level before it, an end at the level after it: the same for both of a pair.
        depth = level - before[segment] - ~is_end
        if depth.min() < 0:
            return None
        group = segment * (int(depth.max()) + 1) + depth
        by_group = stable_order(group.astype(np.uint64))
        grouped = group[by_group]
        grouped_end = is_end[by_group]
        source = by_thread[by_group]  # place in `events`
        # Within a group begins and ends alternate; a last begin is still open.
        last = np.ones(count, np.bool_)
        last[:-1] = grouped[1:] != grouped[:-1]
        begin_at = np.flatnonzero(~grouped_end)
        closed = ~last[begin_at]
        opens = begin_at[~closed]
        begin_closed = begin_at[closed]
        if len(begin_closed) * 2 + len(opens) != count or not grouped_end[begin_closed + 1].all():
            return None
        begins, ends = source[begin_closed], source[begin_closed + 1]
        if not np.array_equal(keys[begins], keys[ends]):
            return None
        dur, beyond = differences(events.ns[ends], events.ns[begins])
        if beyond.any():
            return None
        negative = dur < 0
        if float(dur.sum(dtype=np.float64, where=~negative)) + float(events.child_ns.max()) > LARGEST / 2:
            return None
        # The parent is the last begin of the level above before the child.
        stride = np.int64(count)
        begin_rank = grouped[begin_at] * stride + by_group[begin_at]
        has_parent = depth[by_group[begin_closed]] > 0
        child = begin_closed[has_parent]
        above = np.searchsorted(begin_rank, (grouped[child] - 1) * stride + by_group[child]) - 1
        parent = source[begin_at[above]]
        parent_id = np.full(len(begins), NO_PARENT, np.int64)
        parent_id[has_parent] = events.ids[parent]
        child_ns = events.child_ns.copy()
        if len(parent):
            # Children of one parent are adjacent; integer sums, since floats would not be exact.
            first_child = np.flatnonzero(np.concatenate([[True], parent[1:] != parent[:-1]]))
            sums = np.add.reduceat(np.where(negative, 0, dur)[has_parent], first_child)
            child_ns[parent[first_child]] += sums
        self.negative += int(np.count_nonzero(negative))
        own = dur - child_ns[begins]
        slices = np.stack([begins, ends, dur, own, depth[by_group[begin_closed]], parent_id, negative])
        return _Nested(slices, source[opens], child_ns)

    def _nest_by_stack(self, events: _Events) -> _Nested:
        """Find slices one event at a time: a Python loop, for the rare batches in which events are missing."""
        threads, keys = (events.records[name].tolist() for name in (self._thread, self._key))
        is_end, ns, ids = events.is_end.tolist(), events.ns.tolist(), events.ids.tolist()
        child_ns, apart = events.child_ns.tolist(), events.apart.tolist()
        stacks: dict[int, list[int]] = {}
        open_depths: dict[tuple[int, int], list[int]] = {}  # (thread, key) → depths of its open begins
        rows: list[tuple[int, ...]] = []  # of _Nested.slices
        for place, thread in enumerate(threads):
            stack = stacks.setdefault(thread, [])
            same_key = open_depths.setdefault((thread, keys[place]), [])
            if not is_end[place]:
                same_key.append(len(stack))
                stack.append(place)
                continue
            if not same_key:
                self.unmatched_ends += 1
                continue
            depth = same_key.pop()
            for above in range(len(stack) - 1, depth, -1):
                depths = open_depths[thread, keys[stack[above]]]
                if apart[place]:
                    depths[depths.index(above)] -= 1
                else:
                    depths.pop()
                    rows.append((stack[above], -1, 0, 0, above, ids[stack[above - 1]], True))
            begin = stack[depth]
            del stack[depth : depth + 1 if apart[place] else None]
            dur = ns[place] - ns[begin]
            parent = stack[depth - 1] if depth else None
            unknown = dur < 0 or not is_time(dur)
            if dur < 0:
                self.negative += 1
            elif unknown:
                self.too_long += 1
            elif parent is not None:
                child_ns[parent] = min(child_ns[parent] + dur, LARGEST)
            parent_id = NO_PARENT if parent is None else ids[parent]
            times = (0, 0) if unknown else (dur, dur - child_ns[begin])
            rows.append((begin, place, *times, depth, parent_id, unknown))
        still_open = np.array([place for _, stack in sorted(stacks.items()) for place in stack], np.intp)
        return _Nested(np.array(rows, np.int64).reshape(-1, 7).T, still_open, np.array(child_ns, np.int64))


def _new_events(records: RecordArray, ids: Int64, is_end: Mask | None, ns: Int64, apart: Mask | None) -> _Events:
    none = np.zeros(len(records), np.bool_)
    zeros = np.zeros(len(records), np.int64)
    return _Events(records, ids, none if is_end is None else is_end, none if apart is None else apart, ns, zeros)


def _open_nesting(thread: NDArray[np.unsignedinteger], ids: Int64) -> tuple[Int64, Int64]:
    """Return depth and parent of open begins, which are sorted by thread, the outermost first."""
    depth = np.zeros(len(ids), np.int64)
    parent = np.full(len(ids), NO_PARENT, np.int64)
    for place in range(1, len(ids)):  # as many as calls are nested, not as many as events
        if thread[place] == thread[place - 1]:
            depth[place] = depth[place - 1] + 1
            parent[place] = ids[place - 1]
    return depth, parent
