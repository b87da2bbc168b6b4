"""Turn events, a few machine words each, into records: copies of templates that get the events' own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.schema.dtypes import RecordArray, gather, join

Words = NDArray[np.int64]


class Store(NamedTuple):
    """A word of an event that goes to a field of its record, plus a constant."""

    word: int
    field: str
    add: int = 0


class Part(NamedTuple):
    """A record of an event: its template is the one of the event's head or, by `inner`, one after it."""

    stores: tuple[Store, ...]
    is_end: bool = False
    inner: int = 0


class Room:
    """Memory for records that is reused: of fresh memory, each page costs more than filling it with records."""

    _LIMIT_BYTES = 16 << 20

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        self._used = self._wanted = 0

    def records(self, count: int, dtype: np.dtype[np.void]) -> RecordArray:
        """Return uninitialised records, which are valid until `clear`."""
        start, self._wanted = self._used, self._wanted + count * dtype.itemsize
        if start + count * dtype.itemsize > len(self._bytes):
            return np.empty(count, dtype)
        self._used += count * dtype.itemsize
        return self._bytes[start : self._used].view(dtype)

    def clear(self) -> None:
        """Take back all records; the next time there is room for as many."""
        if self._wanted > len(self._bytes):
            self._bytes = np.empty(min(1 << self._wanted.bit_length(), self._LIMIT_BYTES), np.uint8)
        self._used = self._wanted = 0


#: The records of an event, in order.
Shape = tuple[Part, ...]


class Templates:
    """What the records of a kind of event are copies of, ready for many calls of `expand`.

    plan    shapes of events
    begins  the templates; `ends`: those of ends, of the same number
    """

    def __init__(self, plan: Sequence[Shape], begins: RecordArray, ends: RecordArray | None = None) -> None:
        self.plan = plan
        self.records = begins if ends is None else join([begins, ends])
        self.sizes = np.array([len(shape) for shape in plan])
        self.layout = _layout(plan, begins.dtype, len(begins))


def expand(
    words: Words, heads: Words, shapes: Words | None, templates: Templates, room: Room | None = None
) -> RecordArray:
    """Return the records of all events, in order.

    words   one row per event
    heads   its template's number
    shapes  which of the templates' shapes it has; None: all have the first
    room    where the records may be
    """
    plan, sizes, of = templates.plan, templates.sizes, templates.records
    count = len(words) * len(plan[0]) if shapes is None else int(np.bincount(shapes, minlength=len(plan)) @ sizes)
    if native.AVAILABLE and count:
        records = np.empty(count, of.dtype) if room is None else room.records(count, of.dtype)
        native.expand(words, heads, shapes, of, templates.layout, records, of.dtype.itemsize)
        return records
    return _expand(words, heads, np.zeros(len(words), np.int64) if shapes is None else shapes, plan, of, sizes)


def _layout(plan: Sequence[Shape], dtype: np.dtype[np.void], end: int) -> NDArray[np.int32]:
    """Return a plan as numbers; the templates of ends begin at `end`."""
    numbers = [len(plan)]
    fields: Mapping[str, Any] = dtype.fields or {}
    for shape in plan:
        numbers.append(len(shape))
        for part in shape:
            numbers += (part.inner + end * part.is_end, len(part.stores))
            for word, field, add in part.stores:
                kind, offset = fields[field][:2]
                numbers += (word, offset, kind.itemsize, add)
    return np.array(numbers, np.int32)


def _expand(
    words: Words, heads: Words, shapes: Words, plan: Sequence[Shape], templates: RecordArray, sizes: Words
) -> RecordArray:
    """The same without the C extension."""
    counts = sizes[shapes]
    first = np.cumsum(counts) - counts
    index = np.zeros(int(counts.sum()), np.int64)
    parts = list(
        chain.from_iterable(((s, place, part) for place, part in enumerate(shape)) for s, shape in enumerate(plan))
    )
    of = {s: np.flatnonzero(shapes == s) for s in range(len(plan))}
    end = len(templates) // 2
    for s, place, part in parts:
        index[first[of[s]] + place] = heads[of[s]] + part.inner + end * part.is_end
    records = gather(templates, index)
    for s, place, part in parts:
        for word, field, add in part.stores:
            records[field][first[of[s]] + place] = words[of[s], word] + add
    return records
