"""Find events without an id in the store (ends of slices, flows, counter samples, names) by reading the file again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import EventColumns, TraceBatch
from traceconv.formats.format import ReadRequest
from traceconv.formats.locate import NO_LIMITS, SourceFile
from traceconv.formats.registry import open_source
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.begin_end import POINT_DTYPE, BeginEndMatcher
from traceconv.normalize.trace.metadata import id2_parts, time_places
from traceconv.normalize.trace.times import US_PLACES, exact_ns

#: Maximum number of begins and ends of one thread that are kept for pairing.
_MAX_POINTS = 1_000_000
_MAX_FOUND = 16
_BEGINS = (phases.BEGIN, phases.ASYNC_BEGIN)
_ENDS = (phases.END, phases.ASYNC_END)


@dataclass(frozen=True, slots=True)
class Ends:
    """The event that ends a slice or, if not `sure`, several candidates."""

    ids: tuple[int, ...]
    sure: bool


class Batch:
    """Events with their ids, kinds and times."""

    def __init__(self, batch: TraceBatch, source_id: int, kinds: phases.Kinds, places: int) -> None:
        self.columns: EventColumns = batch.columns
        count = batch.columns.count
        self.first_id = (source_id << ORDINAL_BITS) + batch.first_ordinal
        self.kinds = np.fromiter(map(kinds.__getitem__, batch.columns.label("ph")), np.int8, count)
        self._id2 = batch.columns.extra.of("id2") if batch.columns.extra is not None else {}
        times = batch.columns.raw.get("ts")
        if times is None:
            self.ns: NDArray[np.int64] = np.zeros(count, np.int64)
            self.timed: NDArray[np.bool_] = np.zeros(count, np.bool_)
        else:
            exact = exact_ns(times, places)
            self.ns, self.timed = exact.ns, exact.valid

    def label(self, field_name: str, place: int) -> Any:
        """Return a label of one event."""
        values = self.columns.labels.get(field_name)
        return values[place] if values else None

    def raw(self, field_name: str, place: int) -> bytes:
        """Return the text of a value of one event; empty if it has none."""
        values: pa.Array | None = self.columns.raw.get(field_name)
        found = values[place].as_py() if values is not None else None
        return found if isinstance(found, bytes) else b""

    def track_key(self, place: int) -> tuple[object, ...]:
        """Return the key that events of one track share."""
        pid, tid = self.label("pid", place), self.label("tid", place)
        if self.kinds[place] not in (phases.ASYNC_BEGIN, phases.ASYNC_END):
            return "thread", str(pid), str(pid if tid is None else tid)
        id_text, unique_in = self.id_text(place)
        process = None if unique_in == "global" else str(pid)
        return "async", process, self.label("cat", place), id_text, self.label("scope", place)

    def id_text(self, place: int) -> tuple[str, str]:
        """Return the id of an event as text, and its scope."""
        plain = self.raw("id", place)
        if plain and plain != b"null":
            text = plain.decode("utf-8", "replace")
            return (text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text), ""
        return id2_parts(self._id2[place]) if place in self._id2 else ("", "")


def batches(source: SourceFile) -> Iterator[Batch]:
    """Yield all events of a source."""
    kinds, places = phases.Kinds(), US_PLACES
    opened = open_source(source.format.partition(" ")[0], ReadRequest(source.path, limits=NO_LIMITS))
    for batch in opened.batches():
        if batch.first_ordinal == 0:
            places = time_places(batch.columns)
        yield Batch(batch, source.source_id, kinds, places)


@dataclass(slots=True)
class _Points:
    """Begins and ends of one track within a slice."""

    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    pairs_neighbors: bool = True

    def add(self, ns: int, id_: int, name: object, end: int) -> None:
        if len(self.rows) <= _MAX_POINTS:
            self.rows.append((ns, id_, 0 if name is None else hash(name) or 1, 0, end))

    def end_of(self, begin_id: int) -> int | None:
        """Return the end that ingest paired with this begin; None if unknown."""
        if len(self.rows) > _MAX_POINTS:
            return None
        by_id = sorted(self.rows, key=lambda row: row[1])
        alone = set(range(len(by_id)))
        # As in ingest (normalize/trace/batch_slices.py).
        for number, (one, two) in enumerate(itertools.pairwise(by_id) if self.pairs_neighbors else ()):
            adjacent = two[1] == one[1] + 1 and not one[4] and two[4] and two[0] >= one[0]
            if adjacent and two[2] in (one[2], 0):
                if one[1] == begin_id:
                    return two[1]
                alone -= {number, number + 1}
        ordered = sorted((by_id[number] for number in alone), key=lambda row: (row[0], row[1]))
        for slice_ in BeginEndMatcher().feed(np.array(ordered, POINT_DTYPE)):
            if int(slice_["id"]) == begin_id:
                return int(slice_["link"])
        return None


def find_end(source: SourceFile, begin_id: int, start_ns: int, end_ns: int) -> Ends | None:
    """Return the end of a slice; None if its first event is complete, or has no end."""
    begin = next((batch for batch in batches(source) if _place(batch, begin_id) is not None), None)
    if begin is None:
        return None
    at = _place(begin, begin_id)
    assert at is not None
    if begin.kinds[at] not in _BEGINS:
        return None
    key, name = begin.track_key(at), begin.label("name", at)
    ends: list[int] = []
    points = _Points(pairs_neighbors=begin.columns.pairs_neighbors)
    for batch in batches(source):
        pair = np.isin(batch.kinds, (*_BEGINS, *_ENDS))
        inside = batch.timed & (batch.ns >= start_ns) & (batch.ns <= end_ns)
        for place in np.flatnonzero(pair & inside).tolist():
            if batch.track_key(place)[1:] != key[1:]:
                continue
            is_end = batch.kinds[place] in _ENDS
            own = batch.label("name", place)
            points.add(int(batch.ns[place]), batch.first_id + place, own, ord("E") if is_end else 0)
            if is_end and batch.ns[place] == end_ns and own in (name, None) and len(ends) <= _MAX_FOUND:
                ends.append(batch.first_id + place)
    if len(ends) == 1:
        return Ends((ends[0],), sure=True)
    sure = points.end_of(begin_id)
    if sure is not None:
        return Ends((sure,), sure=True)
    return Ends(tuple(ends), sure=False) if ends else None


def _place(batch: Batch, event_id: int) -> int | None:
    place = event_id - batch.first_id
    return place if 0 <= place < batch.columns.count else None


def find_events(
    source: SourceFile,
    kinds: Sequence[int],
    test: Callable[[Batch, int], bool],
    ns: int | None = None,
    limit: int = _MAX_FOUND,
) -> list[int]:
    """Return the ids of the first events of some kinds (at a time) that pass a test."""
    found: list[int] = []
    for batch in batches(source):
        mask = np.isin(batch.kinds, kinds)
        if ns is not None:
            mask &= batch.timed & (batch.ns == ns)
        for place in np.flatnonzero(mask).tolist():
            if test(batch, place):
                found.append(batch.first_id + place)
                if len(found) == limit:
                    return found
    return found
