"""Begin and end events of threads → nested slices with depth, parent and self time, batch by batch.

Each begin and its end share a key. On a sound log the level of each event is a running sum of +1 and −1, and
everything is found by sorting (`_nest_sound`). Where that does not come out even, because events are missing, a
stack does it one event at a time (`_nest_by_stack`), which is the definition of what is right:

- an end closes the begin with its key; begins above it on the stack have lost their end: no duration;
- an end that says to stand apart leaves those above it open: they go on, and it does not enclose them;
- an end whose key is not on the stack is unmatched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import LARGEST, differences, is_time
from traceconv.normalize.npulog.pairing import stable_order
from traceconv.schema.dtypes import RecordArray, gather, join

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: parent_id of a slice at depth 0.
NO_PARENT = -1


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices that are closed (or given up), in the order of their start; arrays of one length.

    begins     the begin records; ids theirs
    start_ns, dur_ns, self_ns   times; the last two are meaningless where `unfinished`
    depth, parent_id            int32; int64, NO_PARENT at depth 0
    """

    begins: RecordArray
    ids: Int64
    start_ns: Int64
    dur_ns: Int64
    self_ns: Int64
    depth: NDArray[np.int32]
    parent_id: Int64
    unfinished: Mask
    merged: int  # ends that went into these slices
    end_values: NDArray[np.uint64]  # of a field of their ends; 0 where there is no end


@dataclass(frozen=True, slots=True)
class _Events:
    """Begins and ends in the order of the log; begins still open from earlier batches first."""

    records: RecordArray
    ids: Int64
    thread: NDArray[np.unsignedinteger]
    key: NDArray[np.uint64]
    is_end: Mask
    apart: Mask
    ns: Int64
    child_ns: Int64  # of open begins: durations of their children so far


class Nester:
    """Nests the begin and end events of any number of threads. Carries only the begins that are open."""

    def __init__(self, thread: str, key: str, dtype: np.dtype[np.void], of_end: str | None = None) -> None:
        """`thread` and `key` name fields of the records, which are of `dtype`; so does `of_end`, for `end_values`."""
        self._of_end = of_end
        self._thread = thread
        self._key = key
        self._open = np.zeros(0, dtype)
        self._open_ids = np.zeros(0, np.int64)
        self._open_ns = np.zeros(0, np.int64)
        self._open_child_ns = np.zeros(0, np.int64)
        self.unmatched_ends = 0
        self.negative = 0
        #: Slices that 64 bits can't hold the duration of: they are unfinished.
        self.too_long = 0

    def feed(self, records: RecordArray, ids: Int64, is_end: Mask, ns: Int64, apart: Mask | None = None) -> Slices:
        """Takes the next events in the order of the log; returns the slices that they close.

        `apart`: ends that leave open what began after their begin; None: none do.
        """
        none = np.zeros(len(self._open), np.bool_)
        all_records = join([self._open, records]) if len(self._open) else records
        events = _Events(
            all_records,
            np.concatenate([self._open_ids, ids]),
            np.ascontiguousarray(all_records[self._thread]),
            np.ascontiguousarray(all_records[self._key]),
            np.concatenate([none, is_end]),
            np.concatenate([none, np.zeros(len(records), np.bool_) if apart is None else apart]),
            np.concatenate([self._open_ns, ns]),
            np.concatenate([self._open_child_ns, np.zeros(len(records), np.int64)]),
        )
        slices = self._nest_sound(events)
        return self._nest_by_stack(events) if slices is None else slices

    def finish(self) -> Slices:
        """The begins whose end never came, as unfinished slices."""
        count = len(self._open)
        depth, parent_id = _stack_places(self._open[self._thread], self._open_ids)
        zeros = np.zeros(count, np.int64)
        rest = Slices(
            self._open, self._open_ids, self._open_ns, zeros, zeros, depth, parent_id, np.ones(count, np.bool_), 0,
            np.zeros(count, np.uint64),
        )  # fmt: skip
        self._keep(self._open[:0], self._open_ids[:0], self._open_ns[:0], self._open_child_ns[:0])
        return rest

    def _end_values(self, events: _Events, ends: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Of the ends at these places; 0 for -1."""
        if self._of_end is None:
            return np.zeros(len(ends), np.uint64)
        values = np.ascontiguousarray(events.records[self._of_end])[ends]
        return np.where(ends < 0, np.uint64(0), values)

    def _keep(self, records: RecordArray, ids: Int64, ns: Int64, child_ns: Int64) -> None:
        self._open, self._open_ids, self._open_ns, self._open_child_ns = records, ids, ns, child_ns

    def _nest_sound(self, events: _Events) -> Slices | None:
        """Slices by sorting; None when the events don't come out even, and a stack must look at them."""
        count = len(events.records)
        if not count:
            none = np.zeros(0, np.int64)
            return Slices(
                events.records, none, none, none, none, none.astype(np.int32), none, none.astype(np.bool_), 0,
                none.astype(np.uint64),
            )  # fmt: skip
        by_thread = stable_order(events.thread)
        thread = events.thread[by_thread]
        is_end = events.is_end[by_thread]
        level = np.cumsum(np.where(is_end, -1, 1))
        starts_thread = np.ones(count, np.bool_)
        starts_thread[1:] = thread[1:] != thread[:-1]
        segment = np.cumsum(starts_thread) - 1
        first = np.flatnonzero(starts_thread)
        before = np.concatenate([[0], level])[first]
        # A begin stands at the level before it, an end at the level after it: the same for both of a pair.
        depth = level - before[segment] - ~is_end
        if depth.min() < 0:
            return None
        group = segment * (int(depth.max()) + 1) + depth
        by_group = stable_order(group.astype(np.uint64))
        grouped = group[by_group]
        grouped_end = is_end[by_group]
        source = by_thread[by_group]  # place in `events`
        # Within a group begins and ends take turns; a last begin is still open.
        last = np.ones(count, np.bool_)
        last[:-1] = grouped[1:] != grouped[:-1]
        begin_at = np.flatnonzero(~grouped_end)
        closed = ~last[begin_at]
        opens = begin_at[~closed]
        begin_closed = begin_at[closed]
        if len(begin_closed) * 2 + len(opens) != count or not grouped_end[begin_closed + 1].all():
            return None
        begins, ends = source[begin_closed], source[begin_closed + 1]
        if not np.array_equal(events.key[begins], events.key[ends]):
            return None
        dur, beyond = differences(events.ns[ends], events.ns[begins])
        if beyond.any():
            return None
        negative = dur < 0
        if float(dur.sum(dtype=np.float64, where=~negative)) + float(events.child_ns.max()) > LARGEST / 2:
            return None  # sums of such durations may leave 64 bits
        # The parent is the begin of the level above that stands last before the child.
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
            # Children of one parent stand next to each other; integer sums, since floats would not be exact.
            first_child = np.flatnonzero(np.concatenate([[True], parent[1:] != parent[:-1]]))
            sums = np.add.reduceat(np.where(negative, 0, dur)[has_parent], first_child)
            child_ns[parent[first_child]] += sums
        self.negative += int(np.count_nonzero(negative))
        open_order = source[opens]  # thread by thread, the outermost first
        by_start = np.argsort(events.ns[begins], kind="stable")
        begins, ends, dur = begins[by_start], ends[by_start], dur[by_start]
        slices = Slices(
            gather(events.records, begins),
            events.ids[begins],
            events.ns[begins],
            dur,
            dur - child_ns[begins],
            depth[by_group[begin_closed[by_start]]].astype(np.int32),
            parent_id[by_start],
            negative[by_start],
            len(begins),
            self._end_values(events, ends),
        )
        self._keep(
            gather(events.records, open_order), events.ids[open_order], events.ns[open_order], child_ns[open_order]
        )
        return slices

    def _nest_by_stack(self, events: _Events) -> Slices:
        """The same one event at a time, for batches in which events are missing: a Python loop, and rare."""
        threads, keys = events.thread.tolist(), events.key.tolist()
        is_end, ns, ids = events.is_end.tolist(), events.ns.tolist(), events.ids.tolist()
        child_ns, apart = events.child_ns.tolist(), events.apart.tolist()
        stacks: dict[int, list[int]] = {}
        open_depths: dict[tuple[int, int], list[int]] = {}  # (thread, key) → depths of its open begins
        # place, dur, self, depth, parent_id, unfinished, place of the end
        rows: list[tuple[int, int, int, int, int, bool, int]] = []
        merged = 0
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
                    rows.append((stack[above], 0, 0, above, ids[stack[above - 1]], True, -1))
            begin = stack[depth]
            merged += 1
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
            known = (0, 0) if unknown else (dur, dur - child_ns[begin])
            rows.append((begin, *known, depth, parent_id, unknown, place))
        rows.sort(key=lambda row: ns[row[0]])
        columns = np.array(rows, np.int64).reshape(-1, 7).T
        begins, dur_ns, self_ns, row_depths, parents, unfinished, ends = columns
        slices = Slices(
            gather(events.records, begins),
            events.ids[begins],
            events.ns[begins],
            dur_ns,
            self_ns,
            row_depths.astype(np.int32),
            parents,
            unfinished.astype(np.bool_),
            merged,
            self._end_values(events, ends),
        )
        still_open = np.array([place for _, stack in sorted(stacks.items()) for place in stack], np.intp)
        self._keep(
            gather(events.records, still_open),
            events.ids[still_open],
            events.ns[still_open],
            np.array(child_ns, np.int64)[still_open],
        )
        return slices


def _stack_places(thread: NDArray[np.unsignedinteger], ids: Int64) -> tuple[NDArray[np.int32], Int64]:
    """Depth and parent of open begins, which stand thread by thread, the outermost first."""
    depth = np.zeros(len(ids), np.int32)
    parent = np.full(len(ids), NO_PARENT, np.int64)
    for place in range(1, len(ids)):  # as many as calls are nested, not as many as events
        if thread[place] == thread[place - 1]:
            depth[place] = depth[place - 1] + 1
            parent[place] = ids[place - 1]
    return depth, parent
