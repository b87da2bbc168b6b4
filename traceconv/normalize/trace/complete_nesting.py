"""Complete slices in the order of their start → depth, parent, self time and what encloses a moment, window by window.

A slice encloses another of its track that starts no earlier and ends no later. The parent is the nearest earlier
one that does. In C (native/nester.c) it is found on a stack a track. In numpy rows are sorted by (track, start, longest
first), each starts from the row before it, and follows the pointers of the candidates that end too early until one
encloses it (all rows in a few vectorised rounds); only slices that reach beyond the window are carried into the next.

- A slice without duration lies inside of one that begins with it, not inside of one that ends with it, nor of one
  whose begin stands behind it in the source; two at the same time lie inside of each other in the order of the source.
- An unfinished slice (its end is unknown) encloses all that comes after it on its track.
- Slices that overlap without one enclosing the other are not each other's parents; they are counted.
- A moment (a flow's end) is enclosed like a slice without duration that comes last at its time; where nothing
  encloses it, it belongs to the innermost slice that ends at its time.
"""

from __future__ import annotations

import heapq
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.base.int64 import LARGEST, differences
from traceconv.schema.dtypes import RecordArray, gather, join

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: What a row is.
SLICE, PAIR, UNFINISHED, MOMENT, BEFORE_NEXT = 0, 1, 2, 3, 4
#: parent_id of a row that nothing encloses.
NO_PARENT = -1

#: PAIR: a slice of a begin and an end. BEFORE_NEXT: a moment that belongs to the next slice that starts on its track.
#: link: a number of the caller's own, that comes back with the row.
SPAN_DTYPE = np.dtype(
    [("start_ns", "<i8"), ("dur_ns", "<i8"), ("id", "<i8"), ("link", "<i8"), ("track", "<i4"), ("kind", "<i4")]
)
#: gap_ns: start minus the end of the slice before it on its track, 0 for the first. overlap: 1 if it overlaps another.
NESTED_DTYPE = np.dtype(
    {
        "names": ["id", "parent_id", "dur_ns", "self_ns", "gap_ns", "link", "depth", "kind", "overlap"],
        "formats": ["<i8", "<i8", "<i8", "<i8", "<i8", "<i8", "<i4", "<i2", "<i2"],
    }
)
#: The slice that encloses a moment, NO_PARENT for none.
MOMENT_DTYPE = np.dtype([("id", "<i8"), ("slice_id", "<i8")])
_FOREVER = np.int64(LARGEST)
#: gap_ns after a slice without an end; gap_ns and self_ns that 64 bits can't hold.
UNKNOWN = -(2**63)
_OPEN_DTYPE = np.dtype(
    {
        "names": ["row", "end_ns", "parent", "parent_id", "child_ns", "gap_ns", "depth", "overlap"],
        "formats": [SPAN_DTYPE, "<i8", "<i8", "<i8", "<u8", "<i8", "<i4", "<i4"],
    }
)


class CompleteNester(Protocol):
    """Feed it windows of spans, sorted by start (all rows of one start in one window); then `finish`.

    Each gives NESTED rows of slices that are done, and MOMENT rows, both in no set order.
    overlaps  slices that begin inside of one before them on their track and end after it
    """

    @property
    def overlaps(self) -> int: ...

    def feed(self, spans: RecordArray, horizon_ns: int | None) -> tuple[RecordArray, RecordArray]:
        """Nests the spans of a window; all later ones start at `horizon_ns` or after it (None: there are none)."""

    def finish(self) -> tuple[RecordArray, RecordArray]:
        """What still waits: unfinished slices, and moments that no slice follows."""


def complete_nester() -> CompleteNester:
    """The one in C where it is there."""
    return StackNester() if native.AVAILABLE else VectorNester()


class StackNester:
    """A stack a track, in C."""

    def __init__(self) -> None:
        self._nester = native.Nester()

    @property
    def overlaps(self) -> int:
        return self._nester.overlaps

    def feed(self, spans: RecordArray, horizon_ns: int | None) -> tuple[RecordArray, RecordArray]:
        return self._arrays(self._nester.feed(np.ascontiguousarray(spans, SPAN_DTYPE)))

    def finish(self) -> tuple[RecordArray, RecordArray]:
        return self._arrays(self._nester.finish())

    @staticmethod
    def _arrays(found: tuple[bytes, bytes]) -> tuple[RecordArray, RecordArray]:
        return np.frombuffer(found[0], NESTED_DTYPE), np.frombuffer(found[1], MOMENT_DTYPE)


class VectorNester:
    """All rows of a window in a few rounds of numpy."""

    def __init__(self) -> None:
        self._open = np.zeros(0, _OPEN_DTYPE)
        #: Track → end of its last slice; None: unknown.
        self._last_end: dict[int, int | None] = {}
        self._crossed: set[int] = set()  # tracks with slices that overlap
        self._waiting = np.zeros(0, SPAN_DTYPE)
        self.overlaps = 0

    def feed(self, spans: RecordArray, horizon_ns: int | None) -> tuple[RecordArray, RecordArray]:
        if len(self._waiting):
            spans = join([self._waiting, spans])
            self._waiting = self._waiting[:0]
        carried = len(self._open)
        rows = join([np.ascontiguousarray(self._open["row"]), spans]) if carried else spans
        count = len(rows)
        kind = rows["kind"]
        start = np.ascontiguousarray(rows["start_ns"])
        is_slice = kind <= UNFINISHED
        end = start + np.where(is_slice, rows["dur_ns"], 0)
        end[kind == UNFINISHED] = _FOREVER
        order = _order(rows, start, end, kind, carried)
        rows, start, end, is_slice = gather(rows, order), start[order], end[order], is_slice[order]
        kind, ids, track = rows["kind"], np.ascontiguousarray(rows["id"]), np.ascontiguousarray(rows["track"])
        new = order >= carried
        # The slice before each row on its track is the first that may enclose it.
        parent = np.full(count, -1, np.int64)
        np.maximum.accumulate(np.where(is_slice, np.arange(count), -1)[:-1], out=parent[1:])
        parent[track[parent] != track] = -1
        old = np.flatnonzero(~new)
        place_of = np.full(carried, -1, np.int64)
        place_of[order[old]] = old
        if carried:
            was = self._open["parent"][order[old]]
            parent[old] = np.where(was >= 0, place_of[was], -1)
        crossing = np.zeros(count, np.bool_)
        parent[_roots(track, start, end, is_slice) & new] = -1
        self._find_parents(parent, np.flatnonzero(new & (parent >= 0)), start, end, is_slice, crossing)
        overlap = self._overlaps(track, start, end, is_slice & (kind != UNFINISHED), crossing)
        depth = self._depths(parent, new, old, order)
        child_ns = np.zeros(count, np.uint64)
        gap = np.zeros(count, np.int64)
        parent_id = np.where(parent >= 0, ids[parent], NO_PARENT)
        if carried:
            source = order[old]
            child_ns[old] = self._open["child_ns"][source]
            gap[old] = self._open["gap_ns"][source]
            parent_id[old] = self._open["parent_id"][source]
        counted = np.flatnonzero(new & (parent >= 0) & is_slice & (kind != UNFINISHED))
        _add_children(child_ns, parent[counted], rows["dur_ns"][counted])
        self._gaps(track, start, end, new & is_slice, kind == UNFINISHED, gap)
        overlap[old] = self._open["overlap"][order[old]] != 0
        self.overlaps += int(np.count_nonzero(new & overlap))
        resolved, waits = self._next_slices(rows, ids, track, is_slice & new, kind, horizon_ns)
        # A moment of the next window may stand where a slice of this one ends.
        stays = is_slice & (horizon_ns is not None) & (end >= (horizon_ns or 0))
        self._carry(np.flatnonzero(stays), rows, end, parent, parent_id, child_ns, gap, depth, overlap)
        self._waiting = gather(rows, waits)
        done = ~stays
        done[waits] = False
        parent_id[resolved[0]] = resolved[1]
        out = np.zeros(count, NESTED_DTYPE)
        out["id"], out["parent_id"], out["depth"], out["kind"] = ids, parent_id, depth, kind
        child_ns = np.where(kind == UNFINISHED, 0, child_ns)  # of those it is not known
        out["self_ns"] = np.where(child_ns > LARGEST, UNKNOWN, rows["dur_ns"] - child_ns.astype(np.int64))
        out["gap_ns"], out["overlap"] = gap, overlap
        out["dur_ns"], out["link"] = rows["dur_ns"], rows["link"]
        answered = done & ~is_slice
        moments = np.zeros(int(np.count_nonzero(answered)), MOMENT_DTYPE)
        moments["id"], moments["slice_id"] = ids[answered], parent_id[answered]
        return out[done & is_slice], moments

    def finish(self) -> tuple[RecordArray, RecordArray]:
        return self.feed(np.zeros(0, SPAN_DTYPE), None)

    @staticmethod
    def _find_parents(
        parent: Int64,
        active: Int64,
        start: Int64,
        end: Int64,
        is_slice: Mask,
        crossing: Mask,
    ) -> None:
        """Moves each candidate in `parent` on until it encloses its row (or there is none).

        `crossing`: slices that end after a candidate that they begin in.
        """
        ended = np.full(len(parent), -1, np.int64)  # of moments the innermost slice that ends there
        moments = active[~is_slice[active]]
        while len(active):
            candidate = parent[active]
            same_start = start[candidate] == start[active]
            zero = end[active] == start[active]
            inside = end[candidate] >= end[active]
            # What begins and ends at one time is not inside of what ends there, unless that too has no duration.
            inside &= ~zero | (end[candidate] > start[active]) | (same_start & is_slice[active])
            inside |= ~is_slice[active] & same_start
            crosses = is_slice[active] & ~inside & (end[candidate] > start[active])
            crossing[active[crosses]] = True
            at_end = ~is_slice[active] & ~inside & (end[candidate] == start[active])
            at_end &= ended[active] < 0
            ended[active[at_end]] = candidate[at_end]
            active, candidate = active[~inside], candidate[~inside]
            # All between a candidate and its own candidate end before it does: none of them encloses this row.
            following = parent[candidate]
            parent[active] = following
            active = active[following >= 0]
        alone = moments[parent[moments] < 0]
        parent[alone] = ended[alone]

    def _overlaps(self, track: NDArray[np.int32], start: Int64, end: Int64, finished: Mask, crossing: Mask) -> Mask:
        """Slices that begin inside of an earlier one and end after it; every first one of a track is in `crossing`.

        A Python loop, over tracks with such slices only.
        """
        overlap = np.zeros(len(track), np.bool_)
        self._crossed.update(track[crossing].tolist())
        if not self._crossed:
            return overlap
        ends: list[int] = []  # of slices that go on, a heap
        before = -1
        for row in np.flatnonzero(np.isin(track, list(self._crossed))).tolist():
            if track[row] != before:
                ends, before = [], int(track[row])
            while ends and ends[0] <= start[row]:
                heapq.heappop(ends)
            if finished[row]:
                overlap[row] = bool(ends) and ends[0] < end[row]
                heapq.heappush(ends, int(end[row]))
        return overlap

    def _depths(self, parent: Int64, new: Mask, old: Int64, order: NDArray[np.intp]) -> NDArray[np.int32]:
        """Depth by doubling: each row looks twice as far up in each round."""
        count = len(parent)
        depth = np.where(parent >= 0, 1, 0).astype(np.int32)
        depth[old] = self._open["depth"][order[old]]
        above = parent.copy()
        above[old] = -1
        active = np.flatnonzero((above >= 0) & new) if count else np.zeros(0, np.intp)
        while len(active):
            through = above[active]
            depth[active] += depth[through]
            above[active] = above[through]
            active = active[above[active] >= 0]
        return depth

    def _gaps(
        self, track: NDArray[np.int32], start: Int64, end: Int64, slices: Mask, unfinished: Mask, gap: Int64
    ) -> None:
        """Start minus the end of the slice before it on its track."""
        at = np.flatnonzero(slices)
        if not len(at):
            return
        tracks, starts, ends, endless = track[at], start[at], end[at], unfinished[at]
        first = np.ones(len(at), np.bool_)
        first[1:] = tracks[1:] != tracks[:-1]
        before, unknown = np.concatenate([[0], ends[:-1]]), np.concatenate([[False], endless[:-1]])
        for place in np.flatnonzero(first).tolist():  # tracks, not slices
            end_before = self._last_end.get(int(tracks[place]), int(starts[place]))
            before[place], unknown[place] = end_before or 0, end_before is None
        for place in np.append(np.flatnonzero(first)[1:] - 1, len(at) - 1).tolist():
            self._last_end[int(tracks[place])] = None if endless[place] else int(ends[place])
        found, beyond = differences(starts, before)
        gap[at] = np.where(beyond | unknown, UNKNOWN, found)

    @staticmethod
    def _next_slices(
        rows: RecordArray,
        ids: Int64,
        track: NDArray[np.int32],
        slices: Mask,
        kind: NDArray[np.int32],
        horizon_ns: int | None,
    ) -> tuple[tuple[NDArray[np.intp], Int64], NDArray[np.intp]]:
        """The slices that moments of kind BEFORE_NEXT wait for; and the moments that must wait for the next window."""
        asks = np.flatnonzero(kind == BEFORE_NEXT)
        if not len(asks):
            return (asks, np.zeros(0, np.int64)), asks
        at = np.flatnonzero(slices)
        place = np.searchsorted(at, asks)
        found = place < len(at)
        target = at[np.minimum(place, max(0, len(at) - 1))] if len(at) else asks
        found &= track[target] == track[asks]
        answers = np.where(found, ids[target], NO_PARENT)
        keep = found if horizon_ns is not None else np.ones(len(asks), np.bool_)
        return (asks[keep], answers[keep]), asks[~keep]

    def _carry(
        self,
        at: NDArray[np.intp],
        rows: RecordArray,
        end: Int64,
        parent: Int64,
        parent_id: Int64,
        child_ns: NDArray[np.uint64],
        gap: Int64,
        depth: NDArray[np.int32],
        overlap: Mask,
    ) -> None:
        """Keeps the slices that reach beyond the window; parents that don't are left out of the chain."""
        kept = np.zeros(len(at), _OPEN_DTYPE)
        place = np.full(len(rows) + 1, -1, np.int64)
        place[at] = np.arange(len(at))
        kept["row"], kept["end_ns"], kept["parent_id"] = rows[at], end[at], parent_id[at]
        kept["child_ns"], kept["gap_ns"], kept["depth"], kept["overlap"] = child_ns[at], gap[at], depth[at], overlap[at]
        # A parent reaches at least as far as its child: it is kept too.
        kept["parent"] = place[parent[at]]
        self._open = kept


def _order(rows: RecordArray, start: Int64, end: Int64, kind: NDArray[np.int32], carried: int) -> NDArray[np.intp]:
    """Rows by track: first those that were carried, as they are, then by start.

    Of one start: moments that wait for the next slice, slices (the longest first), moments.
    """
    count = len(rows)
    base = np.arange(count)
    new = start[carried:]
    if len(new) > 1 and not np.all(new[1:] >= new[:-1]):
        base[carried:] = carried + np.argsort(new, kind="stable")
    track = rows["track"][base]
    if count and int(track.min()) >= 0 and int(track.max()) < 1 << 16:
        track = track.astype(np.uint16)  # which numpy sorts several times faster
    order = base[np.argsort(track, kind="stable")]
    track, at = rows["track"][order], start[order]
    equal = np.zeros(count + 1, np.bool_)
    equal[1:-1] = (track[1:] == track[:-1]) & (at[1:] == at[:-1]) & (order[:-1] >= carried)
    tied = np.flatnonzero((equal[1:] | equal[:-1]) & (order >= carried))
    if len(tied):
        some = order[tied]
        rank = np.where(kind[some] == BEFORE_NEXT, 0, np.where(kind[some] == MOMENT, 2, 1))
        order[tied] = some[np.lexsort((rows["id"][some], -end[some], rank, start[some], rows["track"][some]))]
        _put_before_later_begins(order, tied, rows, start, end)
    return order


def _put_before_later_begins(
    order: NDArray[np.intp], tied: NDArray[np.intp], rows: RecordArray, start: Int64, end: Int64
) -> None:
    """Of one start, slices without duration go before the begins that come later in the source: outside of them."""
    some = order[tied]
    kind, ids = rows["kind"][some], rows["id"][some]
    zero = (kind < UNFINISHED) & (end[some] == start[some])
    begin = ((kind == PAIR) | (kind == UNFINISHED)) & ~zero
    if not zero.any() or not begin.any():
        return
    group = np.zeros(len(some), np.intp)
    group[1:] = np.cumsum((rows["track"][some[1:]] != rows["track"][some[:-1]]) | (start[some[1:]] != start[some[:-1]]))
    first_zero = np.full(int(group[-1]) + 1, np.iinfo(np.int64).max)
    last_begin = np.full(int(group[-1]) + 1, np.iinfo(np.int64).min)
    np.minimum.at(first_zero, group[zero], ids[zero])
    np.maximum.at(last_begin, group[begin], ids[begin])
    for number in np.flatnonzero(first_zero < last_begin).tolist():
        places = np.arange(*np.searchsorted(group, [number, number + 1]))
        # Where the first begin stands that comes later than each slice without duration.
        latest = np.maximum.accumulate(np.where(begin[places], ids[places], np.iinfo(np.int64).min))
        rank = np.arange(len(places)) * 2
        rank[zero[places]] = np.minimum(rank[zero[places]], np.searchsorted(latest, ids[places][zero[places]]) * 2 - 1)
        order[tied[places]] = some[places[np.argsort(rank, kind="stable")]]


def _add_children(child_ns: NDArray[np.uint64], parent: Int64, dur_ns: Int64) -> None:
    """Adds the durations of slices to what the children of their parents take; cut at the largest number."""
    if float(dur_ns.sum(dtype=np.float64)) + float(child_ns.max(initial=0)) < 2.0**62:
        np.add.at(child_ns, parent, dur_ns.astype(np.uint64))
        return
    for place, dur in zip(parent.tolist(), dur_ns.tolist(), strict=True):  # ages, of few slices
        child_ns[place] = min(int(child_ns[place]) + dur, 2**64 - 1)


def _roots(track: NDArray[np.int32], start: Int64, end: Int64, is_slice: Mask) -> Mask:
    """Rows that nothing before them on their track reaches over, nor up to: no parent needs to be sought."""
    count = len(track)
    if not count:
        return np.zeros(0, np.bool_)
    low, high = int(start.min()), int(start.max())
    width = high - low + 2
    number = np.zeros(count, np.int64)
    np.cumsum(track[1:] != track[:-1], out=number[1:])
    if (int(number[-1]) + 1) * width >= 2**62:
        return np.zeros(count, np.bool_)
    # How far slices reach, beyond the last start all the same; tracks one after another, so that none reaches the next.
    reach = np.where(is_slice, np.minimum(end, high) - low + (end > high), 0) + number * width
    before = np.empty(count, np.int64)
    before[0] = -1
    np.maximum.accumulate(reach[:-1], out=before[1:])
    own = start - low + number * width
    roots: Mask = (before < own) | ((before == own) & (end > start) & is_slice)
    return roots
