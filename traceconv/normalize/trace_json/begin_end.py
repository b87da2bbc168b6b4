"""Begins and ends of a track → slices: an end takes the last open begin of its name; one without a name, the last.

An end with another name closes nothing. Begins that are taken from the middle of a stack leave the others open: slices
that were interleaved come out as they were.
"""

from __future__ import annotations

import numpy as np

from traceconv.normalize.complete_nesting import PAIR, SPAN_DTYPE, UNFINISHED
from traceconv.schema.dtypes import RecordArray

#: name: a hash of the name, 0 for none. end: the ph of an end as a number, 0 for a begin.
POINT_DTYPE = np.dtype([("ts_ns", "<i8"), ("id", "<i8"), ("name", "<i8"), ("track", "<i4"), ("end", "<i4")])


class BeginEndMatcher:
    """Feed it points in the order of time and source; it gives slices. Carries the begins that are open."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._by_track: dict[int, list[tuple[int, int, int]]] = {}
        self._closed: set[int] = set()
        #: ph of ends → how many found their begin, and how many did not.
        self.ends: dict[str, list[int]] = {}

    def feed(self, points: RecordArray) -> RecordArray:
        """The slices that these points close; `link` is the id of the end. A Python loop: stacks don't vectorise."""
        rows: list[tuple[int, int, int, int, int, int]] = []
        columns = [points[name].tolist() for name in ("ts_ns", "id", "name", "track", "end")]
        for ts_ns, id_, name, track, end in zip(*columns, strict=True):
            if not end:
                self._by_name.setdefault((track, name), []).append((ts_ns, id_))
                self._by_track.setdefault(track, []).append((ts_ns, id_, name))
                continue
            begin = self._last_of_name(track, name) if name else self._last_of_track(track)
            self.ends.setdefault(chr(end), [0, 0])[begin is None] += 1
            if begin is None:
                continue
            rows.append((begin[0], ts_ns - begin[0], begin[1], id_, track, PAIR))
        return np.array(rows, SPAN_DTYPE) if rows else np.zeros(0, SPAN_DTYPE)

    def _last_of_name(self, track: int, name: int) -> tuple[int, int] | None:
        stack = self._by_name.get((track, name))
        if not stack:
            return None
        begin = stack.pop()
        if not stack:
            del self._by_name[track, name]
        order = self._by_track[track]
        if order[-1][1] == begin[1]:
            order.pop()
            while order and order[-1][1] in self._closed:
                self._closed.discard(order.pop()[1])
        else:
            self._closed.add(begin[1])
        return begin

    def _last_of_track(self, track: int) -> tuple[int, int] | None:
        order = self._by_track.get(track)
        if not order:
            return None
        _, _, name = order[-1]
        return self._last_of_name(track, name)

    def finish(self) -> RecordArray:
        """The begins whose end never came."""
        rows = [
            (ts_ns, 0, id_, -1, track, UNFINISHED)
            for (track, _), stack in self._by_name.items()
            for ts_ns, id_ in stack
        ]
        self._by_name.clear()
        self._by_track.clear()
        rows.sort(key=lambda row: row[0])
        return np.array(rows, SPAN_DTYPE) if rows else np.zeros(0, SPAN_DTYPE)
