"""Match begins and ends of a track: an end closes the last open begin of its name or, without a name, the last one.

An end with another name closes nothing. Closing a begin in the middle of the stack leaves the others open, so that
interleaved slices are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from traceconv import native
from traceconv.base.int64 import differences
from traceconv.base.integers import is_time
from traceconv.normalize.memory_budget import Budget, spilling_to_database
from traceconv.normalize.trace.complete_nesting import PAIR, SPAN_DTYPE, UNFINISHED
from traceconv.normalize.trace.distinct import Places
from traceconv.schema.dtypes import RecordArray

if TYPE_CHECKING:
    import sqlite3

#: Log message for slices with such times.
TOO_LONG_PAIR = "duration from begin to end exceeds 64 bits"
#: name: a hash of the name, 0 for none. end: the ph of an end as a number, 0 for a begin.
POINT_DTYPE = np.dtype([("ts_ns", "<i8"), ("id", "<i8"), ("name", "<i8"), ("track", "<i4"), ("end", "<i4")])

#: Points between two checks of the budget, and spans of a batch.
_POINTS_AT_ONCE, _SPANS_AT_ONCE = 1 << 13, 1 << 14
#: Points are matched together while at least one in this many is a begin before its end.
_LEAST_SHARE = 256


class BeginEndMatcher:
    """Feed it points in the order of time and source; it returns slices, and carries the open begins.

    Begins in memory are all later than spilled ones, which are searched only if none in memory matches.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        """`budget`: bounds its memory; None: a budget of its own."""
        self._budget = budget or Budget()
        self._by_name: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._by_track: dict[int, list[tuple[int, int, int]]] = {}
        self._closed: set[int] = set()
        self._spilled = 0
        self._by_track_on_disk = False
        #: Begins in memory, including those that were closed before later ones of their track.
        self._open = 0
        #: Slices whose duration exceeds 64 bits: stored as unfinished ones, but with a `link`.
        self.too_long = 0
        #: ph of ends → how many were matched, and how many were not.
        self.ends: dict[str, list[int]] = {}
        self._budget.join(self)

    @property
    def entries(self) -> int:
        return self._open

    def feed(self, points: RecordArray) -> RecordArray:
        """Return the slices that these points close; `link` is the ID of the end."""
        slices, rest = _paired(np.ascontiguousarray(points, POINT_DTYPE))
        self._count(points, rest)
        self.too_long += int(np.count_nonzero(slices["kind"] == UNFINISHED))
        # A Python loop over a stack, for points that are not closed in the order of nesting, or not in this portion.
        rows: list[tuple[int, int, int, int, int, int]] = []
        for first in range(0, len(rest), _POINTS_AT_ONCE):
            self._take(points[rest[first : first + _POINTS_AT_ONCE]], rows)
        return np.concatenate([slices, np.array(rows, SPAN_DTYPE)]) if rows else slices

    def _count(self, points: RecordArray, rest: Places) -> None:
        """Count the ends that were matched: all but those of the places `rest`."""
        matched = np.bincount(points["end"])
        matched -= np.bincount(points["end"][rest], minlength=len(matched))
        for end in np.flatnonzero(matched[1:]) + 1:
            self.ends.setdefault(chr(end), [0, 0])[0] += int(matched[end])

    def _take(self, points: RecordArray, rows: list[tuple[int, int, int, int, int, int]]) -> None:
        with self._budget.lock:
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
                dur_ns, kind = ts_ns - begin[0], PAIR
                if not is_time(dur_ns):
                    dur_ns, kind = 0, UNFINISHED
                    self.too_long += 1
                rows.append((begin[0], dur_ns, begin[1], id_, track, kind))
            self._open += int(np.count_nonzero(points["end"] == 0))
            self._budget.check()

    def _last_of_name(self, track: int, name: int) -> tuple[int, int] | None:
        stack = self._by_name.get((track, name))
        if not stack:
            return self._last_on_disk("track = ? AND name = ?", track, name) if self._spilled else None
        begin = stack.pop()
        if not stack:
            del self._by_name[track, name]
        order = self._by_track[track]
        if order[-1][1] == begin[1]:
            order.pop()
            self._open -= 1
            while order and order[-1][1] in self._closed:
                self._closed.discard(order.pop()[1])
                self._open -= 1
            if not order:
                del self._by_track[track]
        else:
            self._closed.add(begin[1])
        return begin

    def _last_of_track(self, track: int) -> tuple[int, int] | None:
        order = self._by_track.get(track)
        if not order:
            if self._spilled and not self._by_track_on_disk:
                with spilling_to_database():
                    self._budget.database().execute("CREATE INDEX open_of_track ON open_begin (track, place)")
                self._by_track_on_disk = True
            return self._last_on_disk("track = ?", track) if self._spilled else None
        _, _, name = order[-1]
        return self._last_of_name(track, name)

    def _last_on_disk(self, where: str, *values: int) -> tuple[int, int] | None:
        """Remove and return the last of the spilled begins."""
        with spilling_to_database():
            database = self._budget.database()
            last = f"SELECT track, name, place, ts_ns, id FROM open_begin WHERE {where} ORDER BY place DESC LIMIT 1"  # noqa: S608
            found = database.execute(last, values).fetchone()
            if found is None:
                return None
            database.execute("DELETE FROM open_begin WHERE track = ? AND name = ? AND place = ?", found[:3])
        return found[3], found[4]

    def spill(self) -> None:
        with self._budget.lock, spilling_to_database():
            database = self._budget.database()
            if not self._spilled:
                columns = "track INTEGER, name INTEGER, place INTEGER, ts_ns INTEGER, id INTEGER"
                database.execute(f"CREATE TABLE open_begin ({columns}, PRIMARY KEY (track, name, place)) WITHOUT ROWID")
            rows = (
                (track, name, place, ts_ns, id_)
                for track, order in self._by_track.items()
                for place, (ts_ns, id_, name) in enumerate(order, self._spilled)
                if id_ not in self._closed
            )
            database.executemany("INSERT INTO open_begin VALUES (?, ?, ?, ?, ?)", rows)
            self._spilled += max(map(len, self._by_track.values()), default=0)
            self._forget()

    def _forget(self) -> None:
        for part in (self._by_name, self._by_track, self._closed):
            part.clear()
        self._open = 0

    def finish(self) -> Iterator[RecordArray]:
        """Yield the begins without an end, in no set order."""
        rows = (
            (ts_ns, 0, id_, -1, track, UNFINISHED)
            for (track, _), stack in self._by_name.items()
            for ts_ns, id_ in stack
        )
        yield from _spans(rows)
        self._forget()
        if self._spilled:
            rest = f"SELECT ts_ns, 0, id, -1, track, {UNFINISHED} FROM open_begin"  # noqa: S608 - a number
            with self._budget.lock, spilling_to_database():
                found = self._budget.database().execute(rest)
            while some := self._some(found):
                yield from _spans(iter(some))

    def _some(self, found: sqlite3.Cursor) -> list[tuple[int, ...]]:
        with self._budget.lock, spilling_to_database():
            return found.fetchmany(_SPANS_AT_ONCE)


def _paired(points: RecordArray) -> tuple[RecordArray, Places]:
    """Return the slices of begins and of the ends that close them as the last ones, and the places of other points."""
    found = native.pair(points) if native.AVAILABLE else None
    if found is not None:
        return np.frombuffer(found[0], SPAN_DTYPE), np.frombuffer(found[1], np.int64)
    begins, ends, rest = _adjacent(points)
    return _slices(points[begins], points[ends]), rest


def _slices(begins: RecordArray, ends: RecordArray) -> RecordArray:
    """Return the slices of begins and their ends."""
    dur_ns, beyond = differences(ends["ts_ns"], begins["ts_ns"])
    slices = np.zeros(len(begins), SPAN_DTYPE)
    slices["start_ns"], slices["id"], slices["track"] = begins["ts_ns"], begins["id"], begins["track"]
    slices["dur_ns"], slices["link"] = np.where(beyond, 0, dur_ns), ends["id"]
    slices["kind"] = np.where(beyond, UNFINISHED, PAIR)
    return slices


def _adjacent(points: RecordArray) -> tuple[Places, Places, Places]:
    """Return the places of begins, the places of their ends, and the places of other points, which are in order.

    An end closes the begin before it on its track if it has its name or none. Without these two points, others become
    neighbors.
    """
    rest = np.argsort(points["track"], kind="stable")
    begins: list[Places] = []
    ends: list[Places] = []
    track, name, is_begin = (np.ascontiguousarray(points[field])[rest] for field in ("track", "name", "end"))
    is_begin = is_begin == 0
    while len(rest):
        closes = is_begin[:-1] & ~is_begin[1:] & (track[:-1] == track[1:])
        closes &= (name[1:] == 0) | (name[1:] == name[:-1])
        first = np.flatnonzero(closes)
        if not len(first) or len(first) * _LEAST_SHARE < len(rest):
            break
        begins.append(rest[first])
        ends.append(rest[first + 1])
        kept = np.ones(len(rest), np.bool_)
        kept[first] = kept[first + 1] = False
        rest, track, name, is_begin = (column[kept] for column in (rest, track, name, is_begin))
    none = np.zeros(0, np.intp)
    return np.concatenate([none, *begins]), np.concatenate([none, *ends]), np.sort(rest)


def _spans(rows: Iterator[tuple[int, ...]]) -> Iterator[RecordArray]:
    while some := list(islice(rows, _SPANS_AT_ONCE)):
        yield np.array(some, SPAN_DTYPE)
