"""Turn events, a few machine words each, into records: copies of templates that get the events' own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.schema.dtypes import RecordArray, gather, join

if TYPE_CHECKING:
    from traceconv.runtime.event_log import Buffer

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

    #: For arrays of 4 MB and more numpy asks for large pages, which may take a millisecond each.
    _SIZE_BYTES = 3 << 20
    #: Size of a piece of a buffer. Its records fit, unless most of its events are calls in calls.
    _PIECE_BYTES = 1 << 19

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        self._used = 0

    def records(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return uninitialised records, which are valid until `clear`."""
        if not len(self._bytes):
            self._bytes = np.empty(self._SIZE_BYTES, np.uint8)
        start = -(-self._used // 8) * 8
        end = start + count * dtype.itemsize
        if end > len(self._bytes):
            return np.empty(count, dtype)
        self._used = end
        return self._bytes[start:end].view(dtype)

    def give_back(self, rest: RecordArray) -> None:
        """Take back the end of the last records."""
        if np.may_share_memory(rest, self._bytes):
            self._used -= rest.nbytes

    def pieces(self, buffer: Buffer, row_bytes: int) -> Iterator[NDArray[np.uint8]]:
        """Remove the rows that a buffer has now, in pieces. Threads may append some, a signal handler may take some."""
        left = len(buffer)
        while left > 0:
            size = min(left, self._PIECE_BYTES // row_bytes * row_bytes)
            piece = self.records(size, np.dtype(np.uint8))
            taken = buffer.take(piece)
            left = left - size if taken == size else 0
            yield piece[:taken]

    @property
    def has_piece(self) -> bool:
        """Whether a whole piece is here."""
        return self._used > self._PIECE_BYTES // 2

    def clear(self) -> None:
        """Take back all records."""
        self._used = 0


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
        self.most = max(len(shape) for shape in plan)
        self.layout = _layout(plan, begins.dtype, len(begins))


def expand(
    words: Words, codes: int | None, templates: Templates, room: Room, links: Words | None = None
) -> RecordArray:
    """Return the records of all events, in order; they are valid until `room` is cleared.

    words  one row per event
    codes  the word with its code, which is number of template · number of shapes + shape; None: all have the code 0
    links  code in the words → that code; None: the same
    """
    of, most = templates.records, len(words) * templates.most
    if not native.AVAILABLE:
        return _expand(words, codes, templates, links)
    records = room.records(most, of.dtype)
    column = -1 if codes is None else codes
    count = native.expand(words, words.shape[1], column, links, of, templates.layout, records, of.dtype.itemsize)
    room.give_back(records[count:])
    return records[:count]


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


def heads_and_shapes(words: Words, codes: int | None, plan: Sequence[Shape], links: Words | None = None) -> list[Words]:
    """Return the number of the template of each event, and that of its shape."""
    found = np.zeros(len(words), np.int64) if codes is None else words[:, codes]
    return list(np.divmod(found if links is None else links[found], len(plan)))


def _expand(words: Words, codes: int | None, of_events: Templates, links: Words | None) -> RecordArray:
    """The same without the C extension."""
    plan, templates = of_events.plan, of_events.records
    heads, shapes = heads_and_shapes(words, codes, plan, links)
    counts = np.array([len(shape) for shape in plan])[shapes]
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
