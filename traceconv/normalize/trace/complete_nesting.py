"""Nest complete slices in the order of their start: depth, parent, self time, and the slice that encloses a flow point.

A slice encloses another of its track that starts no earlier and ends no later. The parent is the nearest earlier slice
that does, found with one stack per track: in C (native/nester.c), or in Python without a compiler.

- A slice of duration 0 is inside of a slice that begins at the same time, but not inside of one that ends then, nor of
  one whose begin is later in the source; two at the same time are nested in the order of the source, unless the end
  event of the first one precedes the second one there.
- An unfinished slice (its end is unknown) encloses everything after it on its track.
- Slices that overlap without one enclosing the other are not each other's parents; they are counted.
- Self time is the time outside of the children; where children overlap each other, it is subtracted once.
- Where starts are rounded down to a step and durations are not, a slice may seem to end after the one around it. If it
  does by less than a step, and starts at least a step before that end, it is inside: it can't have started later.
- A flow point is enclosed like a slice of duration 0 that comes last at its time, or that comes at its place in the
  source if that is between the begin and the end of a slice of duration 0; if nothing encloses it, it belongs to the
  innermost slice that ends at its time.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

import numpy as np

from traceconv import native
from traceconv.base.integers import LARGEST, is_time
from traceconv.schema.dtypes import RecordArray

#: What a row is.
SLICE, PAIR, UNFINISHED, POINT, BEFORE_NEXT = 0, 1, 2, 3, 4
#: parent_id of a row that nothing encloses.
NO_PARENT = -1

#: PAIR: a slice of a begin and an end. BEFORE_NEXT: a flow point in the next slice that starts on its track.
#: link: the ID of the end of a PAIR, else a number that is returned with the row.
SPAN_DTYPE = np.dtype(
    [("start_ns", "<i8"), ("dur_ns", "<i8"), ("id", "<i8"), ("link", "<i8"), ("track", "<i4"), ("kind", "<i4")]
)
#: gap_ns: start minus the end of the previous slice on its track, 0 for the first. overlap: 1 if it overlaps another.
NESTED_DTYPE = np.dtype(
    {
        "names": ["id", "parent_id", "dur_ns", "self_ns", "gap_ns", "link", "depth", "kind", "overlap"],
        "formats": ["<i8", "<i8", "<i8", "<i8", "<i8", "<i8", "<i4", "<i2", "<i2"],
    }
)
#: The slice that encloses a flow point, NO_PARENT for none.
ENCLOSING_DTYPE = np.dtype([("id", "<i8"), ("slice_id", "<i8")])
#: gap_ns after a slice without an end, or that exceeds 64 bits.
UNKNOWN = -(2**63)

#: A row of SPAN_DTYPE.
_Span: TypeAlias = tuple[int, int, int, int, int, int]


class CompleteNester:
    """Feed it windows of spans, sorted by start (all rows of one start in one window); then call `finish`.

    Both return NESTED rows of closed slices, and POINT rows, in no set order.
    """

    def __init__(self, start_step_ns: int = 1) -> None:
        """`start_step_ns`: starts are rounded down to multiples of it; 1: they are exact."""
        self._nester = native.Nester() if native.AVAILABLE else _PlainNester()
        self._nester.start_step_ns = start_step_ns

    @property
    def overlaps(self) -> int:
        """The number of slices that begin inside of an earlier slice of their track and end after it."""
        return self._nester.overlaps

    def feed(self, spans: RecordArray) -> tuple[RecordArray, RecordArray]:
        """Nest the spans of a window; all later ones start after them."""
        return self._arrays(self._nester.feed(np.ascontiguousarray(spans, SPAN_DTYPE)))

    def finish(self) -> tuple[RecordArray, RecordArray]:
        """Close what is left: open slices, and flow points without a next slice."""
        return self._arrays(self._nester.finish())

    @staticmethod
    def _arrays(found: tuple[bytes, bytes]) -> tuple[RecordArray, RecordArray]:
        return np.frombuffer(found[0], NESTED_DTYPE), np.frombuffer(found[1], ENCLOSING_DTYPE)


@dataclass(slots=True)
class _Open:
    span: _Span
    end_ns: int
    parent_id: int
    gap_ns: int
    depth: int
    overlap: bool
    self_ns: int
    covered_ns: int

    @property
    def encloses_all(self) -> bool:
        return self.span[5] == UNFINISHED


@dataclass(slots=True)
class _Track:
    """`waiting`: flow points before the next slice. `left`: ends of slices that left the stack before them, a heap."""

    open: list[_Open] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    last: _Open | None = None


class _PlainNester:
    """native.Nester in Python."""

    def __init__(self) -> None:
        self.overlaps = 0
        self.start_step_ns = 1
        self._tracks: defaultdict[int, _Track] = defaultdict(_Track)
        self._rows: list[tuple[int, ...]] = []
        self._points: list[tuple[int, int]] = []

    def feed(self, spans: RecordArray) -> tuple[bytes, bytes]:
        for (_, track), tied in groupby(sorted(spans.tolist(), key=_order), lambda span: (span[0], span[4])):
            for span in _zeros_before_later_begins(tied):
                (self._take_slice if span[5] <= UNFINISHED else self._take_point)(self._tracks[track], span)
        return self._done()

    def finish(self) -> tuple[bytes, bytes]:
        for track in self._tracks.values():
            for one in track.open:
                self._close(one)
            self._answer(track, NO_PARENT)
        self._tracks.clear()
        return self._done()

    def _done(self) -> tuple[bytes, bytes]:
        found = np.array(self._rows, NESTED_DTYPE).tobytes(), np.array(self._points, ENCLOSING_DTYPE).tobytes()
        self._rows, self._points = [], []
        return found

    def _answer(self, track: _Track, slice_id: int) -> None:
        self._points += [(point, slice_id) for point in track.waiting]
        track.waiting.clear()

    def _take_point(self, track: _Track, span: _Span) -> None:
        ts_ns, id_ = span[0], span[2]
        if span[5] == BEFORE_NEXT:
            track.waiting.append(id_)
            return
        ended = NO_PARENT  # the innermost slice that ends now, used if no slice is open
        for one in reversed(track.open):
            if _is_open(one, span):
                self._points.append((id_, one.span[2]))
                return
            if one.end_ns == ts_ns and ended == NO_PARENT:
                ended = one.span[2]
        self._points.append((id_, ended))

    def _take_slice(self, track: _Track, span: _Span) -> None:
        start, dur, id_, _, _, kind = span
        end = _end_of(span)
        while track.left and track.left[0] <= start:
            heapq.heappop(track.left)
        overlap = bool(track.left) and track.left[0] < end
        while track.open and not _encloses(track.open[-1], span, end):
            if self._seems_to_end_after(track.open[-1], span, end):
                end = track.open[-1].end_ns
                break
            one = track.open.pop()
            if one.end_ns > start:
                overlap = True
                heapq.heappush(track.left, one.end_ns)
            self._close(one)
        overlap &= kind != UNFINISHED  # whether it ends after the enclosing slice is unknown
        parent = track.open[-1] if track.open else None
        if parent is not None and UNFINISHED not in (parent.span[5], kind) and end > parent.covered_ns:
            parent.self_ns -= end - max(start, parent.covered_ns)
            parent.covered_ns = end
        gap = 0 if track.last is None else start - _end_of(track.last.span)
        if not is_time(gap) or (track.last is not None and track.last.encloses_all):
            gap = UNKNOWN
        depth = 0 if parent is None else parent.depth + 1
        one = _Open(span, end, NO_PARENT if parent is None else parent.span[2], gap, depth, overlap, dur, start)
        if parent is not None and parent.encloses_all and one.encloses_all:
            self._close(track.open.pop())  # later slices are inside of this one
        track.open.append(one)
        track.last = one
        self.overlaps += overlap
        self._answer(track, id_)

    def _seems_to_end_after(self, one: _Open, span: _Span, end: int) -> bool:
        """Whether a slice seems to end after an open one only because starts are rounded down."""
        step = self.start_step_ns
        return step > 1 and span[5] < UNFINISHED and 0 < end - one.end_ns < step and span[0] <= one.end_ns - step

    def _close(self, one: _Open) -> None:
        _, dur, id_, link, _, kind = one.span
        self._rows.append((id_, one.parent_id, dur, one.self_ns, one.gap_ns, link, one.depth, kind, one.overlap))


def _end_of(span: _Span) -> int:
    start, dur, _, _, _, kind = span
    return LARGEST if kind == UNFINISHED else start + dur if kind < UNFINISHED else start


def _encloses(one: _Open, span: _Span, end: int) -> bool:
    return one.end_ns >= end and (end != span[0] or _is_open(one, span))


def _is_open(one: _Open, span: _Span) -> bool:
    """Whether a slice is open at the start of a span; one without duration is until its end in the source."""
    has_ended = one.span[5] == PAIR and one.span[3] < span[2]
    return one.end_ns > span[0] or (one.end_ns == span[0] == one.span[0] and not has_ended)


def _order(span: _Span) -> tuple[int, ...]:
    """For one start and track: points before the next slice, slices (the longest first), other points."""
    rank = {BEFORE_NEXT: 0, POINT: 2}.get(span[5], 1)
    return span[0], span[4], rank, -_end_of(span), span[2]


def _zeros_before_later_begins(tied: Iterable[_Span]) -> Iterator[_Span]:
    """Order spans of one start and track: a begin does not enclose slices of duration 0 before it in the source.

    Flow points between begin and end events of such slices follow them, other points come last.
    """
    spans, zeros, last, reach = list(tied), [], [], -LARGEST
    for span in sorted(spans, key=lambda span: span[2]):
        if span[5] == POINT and span[2] > reach:
            last.append(span)
        elif span[5] == POINT or _is_zero(span):
            zeros.append(span)
            reach = max(reach, span[3]) if span[5] == PAIR else reach
    zeros.reverse()
    for span in spans:
        if span[5] == POINT or _is_zero(span):
            continue
        while span[5] in (PAIR, UNFINISHED) and zeros and zeros[-1][2] < span[2]:
            yield zeros.pop()
        yield span
    yield from reversed(zeros)
    yield from last


def _is_zero(span: _Span) -> bool:
    return span[5] < UNFINISHED and not span[1]
