"""Batches of trace events, undecoded as far as possible: what readers yield and the normalizer takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias, overload, runtime_checkable

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import ImportLog
from traceconv.base.int64 import Int64, Mask


class ReusedId(NamedTuple):
    """A process or thread ID that was used before. `use`: 1 for the second process or thread with it, and so on."""

    id: int
    use: int

    def __str__(self) -> str:
        return str(self.id)


#: A number or a name; None for a missing key.
Label: TypeAlias = int | float | str | ReusedId | None

#: In an integer column of durations: one that exceeds 64 bits.
TOO_LONG = -(2**63)
#: The text of a missing value.
ABSENT = Raw(b"")

LABEL_FIELDS = ("name", "ph", "cat", "pid", "tid", "bp", "s", "scope")
#: Rows of a text column that are numbered in Python.
_FEW_ROWS = 128
RAW_FIELDS = ("ts", "dur", "args", "id", "tts", "tdur")
_ELEMENTS = msgspec.json.Decoder(list[Raw])


class Coded(Sequence[Any]):
    """A column that stores each distinct value once.

    codes     int32: the place of each row's value in `distinct`
    distinct  values; some may be in no row
    """

    __slots__ = ("_none", "_texts", "codes", "distinct")

    def __init__(self, codes: NDArray[np.int32], distinct: list[Any]) -> None:
        self.codes = codes
        self.distinct = distinct
        self._texts: pa.Array | None = None
        self._none = np.zeros(0, np.bool_)

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, place: int) -> Any: ...

    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self.distinct[code] for code in self.codes[place].tolist()]
        return self.distinct[self.codes[place]]

    def __iter__(self) -> Iterator[Any]:
        return map(self.distinct.__getitem__, self.codes.tolist())

    def take(self, places: NDArray[np.intp]) -> Coded:
        """Return the column for some rows."""
        return Coded(self.codes[places], self.distinct)

    def mask(self, is_wanted: Callable[[Any], bool]) -> Mask:
        """Return which rows' values are wanted; each distinct value is checked once."""
        found: Mask = np.array([is_wanted(value) for value in self.distinct], np.bool_)[self.codes]
        return found

    def counts(self) -> list[int]:
        """Count the rows of each distinct value."""
        found: list[int] = np.bincount(self.codes, minlength=len(self.distinct)).tolist()
        return found

    def text(self, places: NDArray[np.intp]) -> pa.DictionaryArray:
        """Return a text column of some rows."""
        if len(places) <= _FEW_ROWS:
            return self._text_of_few(self.codes[places].tolist())
        if self._texts is None:
            # Arrow can't combine dictionaries that contain NULL.
            self._texts = pa.array(["" if value is None else value for value in self.distinct], pa.string())
            self._none = np.array([value is None for value in self.distinct], np.bool_)
        codes, texts = self.codes[places], self._texts
        null = self._none[codes] if self._none.any() else None
        if len(texts) > len(codes) // 4:  # many of them may be in other rows only
            used, places_in_used = np.unique(codes, return_inverse=True)
            codes, texts = places_in_used.astype(np.int32), texts.take(pa.array(used))
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=null), texts)

    def _text_of_few(self, codes: list[int]) -> pa.DictionaryArray:
        """Return a text column with these codes. For few rows, calls of numpy and Arrow would take longer."""
        known = {code: place for place, code in enumerate(dict.fromkeys(codes))}
        texts = [self.distinct[code] for code in known]
        places = np.array([known[code] for code in codes], np.int32)
        null = None
        if None in texts:
            null = np.array([text is None for text in texts], np.bool_)[places]
            texts = ["" if text is None else text for text in texts]
        return pa.DictionaryArray.from_arrays(pa.array(places, mask=null), pa.array(texts, pa.string()))


def coded(values: Sequence[Any] | pa.Array, *, typed: bool = False) -> Coded:
    """Return a coded column of hashable values. `typed`: 1, 1.0 and true are different values."""
    if isinstance(values, Coded):
        return values
    if isinstance(values, pa.Array):
        encoded = values.dictionary_encode("encode")
        return Coded(encoded.indices.to_numpy(), encoded.dictionary.to_pylist())
    keys = list(zip(map(type, values), values, strict=True)) if typed else values
    known = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    if len(keys) > 1:
        found = itemgetter(*keys)(known)  # twice as fast as any loop
        few = len(known) <= 256
        codes = np.frombuffer(bytes(found), np.uint8).astype(np.int32) if few else np.array(found, np.int32)
    else:
        codes = np.zeros(len(keys), np.int32)
    return Coded(codes, [key[1] for key in known] if typed else list(known))


def combined(columns: Sequence[Coded]) -> Coded:
    """Return the tuples of the values in each row, as a coded column; its distinct values are in order of first use."""
    codes = columns[0].codes.astype(np.int64)
    for column in columns[1:]:
        if len(column.distinct) == 1:
            continue
        # Renumbered, so that products can't overflow.
        codes = pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
        codes = codes * len(column.distinct) + column.codes
    encoded = pa.array(codes).dictionary_encode()
    numbers = encoded.indices.to_numpy()
    firsts = np.empty(len(encoded.dictionary), np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return Coded(numbers, list(zip(*(column.take(firsts) for column in columns), strict=True)))


def join_coded(parts: Sequence[Coded]) -> Coded:
    """Concatenate coded columns."""
    known: dict[tuple[type, Any], int] = {}
    codes = []
    for part in parts:
        new = [known.setdefault((type(value), value), len(known)) for value in part.distinct]
        codes.append(np.array(new, np.int32)[part.codes])
    return Coded(np.concatenate(codes), [value for _, value in known])


@dataclass(slots=True, eq=False)
class Extras:
    """The values of keys that are not fields, by event and key. Iterates over the events: key → JSON text, or None.

    events  int64, rising: the event of each value
    codes   int32: the place of its key in `keys`
    texts   binary array: the values
    """

    event_count: int
    events: NDArray[np.int64]
    codes: NDArray[np.int32]
    keys: list[str]
    texts: pa.Array

    @classmethod
    def of_events(cls, given: Sequence[Mapping[str, Raw] | None]) -> Extras | None:
        """Return the same for values event by event; None if there are no values."""
        each = [(event, key, text) for event, one in enumerate(given) if one for key, text in one.items()]
        if not each:
            return None
        events, keys, texts = zip(*each, strict=True)
        column = coded(keys)
        return cls(len(given), np.array(events, np.int64), column.codes, column.distinct, binary_column(texts))

    def __iter__(self) -> Iterator[dict[str, Raw] | None]:
        found: list[dict[str, Raw] | None] = [None] * self.event_count
        for event, code, text in zip(self.events.tolist(), self.codes.tolist(), self.texts.to_pylist(), strict=True):
            values = found[event] = found[event] or {}
            values[self.keys[code]] = Raw(text)
        return iter(found)

    def has_any(self) -> NDArray[np.bool_]:
        """Return which events have any value."""
        found = np.zeros(self.event_count, np.bool_)
        found[self.events] = True
        return found

    def column(self, key: str) -> tuple[NDArray[np.int64], pa.Array]:
        """Return the events that have a key, and its values."""
        own = np.flatnonzero(self.codes == (self.keys.index(key) if key in self.keys else -1))
        return self.events[own], self.texts.take(pa.array(own))

    def of(self, key: str) -> dict[int, bytes]:
        """Return the values of a key, by event."""
        events, texts = self.column(key)
        return dict(zip(events.tolist(), texts.to_pylist(), strict=True))


class NamedTrack(NamedTuple):
    """Used instead of a tid: a track that is not a thread. `kind`: as in table track; `key`: the source's."""

    kind: str
    key: str


class TrackName(NamedTuple):
    """Name and sort order of a process (`tid` None), a thread or another track.

    unit        of a counter's values; its `tid` is NamedTrack("counter", ID of its events or "")
    scope       what the track belongs to, if not to a process
    parent      pid and tid of the track that it is part of
    properties  what else the source specifies of it, as JSON
    """

    pid: Label
    tid: Label | NamedTrack
    name: str | None
    sort_index: int | None = None
    unit: str | None = None
    scope: str | None = None
    parent: tuple[Label, Label | NamedTrack] | None = None
    properties: str | None = None


class EventFlows(NamedTuple):
    """Flows that events of a batch name themselves.

    places    int64, rising: events of the batch; one may name several flows
    keys      int64: points with the same key belong together
    steps     int32: 0 start, 1 step, 2 end; 3 and 4: like 1 and 2, for flows whose key is free again after an end
    category  of all flows, or of each point
    texts     the keys as in the source
    """

    places: NDArray[np.int64]
    keys: NDArray[np.int64]
    steps: NDArray[np.int32]
    category: str | Coded | None
    texts: Sequence[str] | pa.Array


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events as columns of one length.

    labels  field → its values, coded or plain; a missing field is None in all events
    raw     field → binary array of the text of its values, empty for events without the field; fields may be missing.
            Times may be an int64 array of nanoseconds instead, null for none
    extra   None if no event has keys beyond the fields
    flows   None if no event names a flow by other means than those of trace JSON
    merges_in_depth  the args of a begin and its end are merged in depth; otherwise only their keys are
    pairs_neighbors  a begin directly followed by an end of its track and name is closed by it, whatever lies between
                     in time
    """

    count: int
    labels: Mapping[str, Sequence[Any]]
    raw: Mapping[str, pa.Array]
    extra: Extras | None
    flows: EventFlows | None = None
    merges_in_depth: bool = False
    pairs_neighbors: bool = True

    def label(self, field: str) -> Coded:
        """Return the values of a label field."""
        values = self.labels.get(field)
        return Coded(np.zeros(self.count, np.int32), [None]) if values is None else coded(values)


def binary_column(values: Sequence[Any]) -> pa.Array:
    """Return a binary array of bytes-like values."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))], null_count=0
    )


def join_columns(parts: Sequence[EventColumns]) -> EventColumns:
    """Concatenate events."""
    if len(parts) == 1:
        return parts[0]
    count = sum(part.count for part in parts)
    labels = {
        field: join_coded([part.label(field) for part in parts])
        for field in LABEL_FIELDS
        if any(field in part.labels for part in parts)
    }
    raw = {
        field: pa.concat_arrays(
            [part.raw[field] if field in part.raw else binary_column([b""] * part.count) for part in parts]
        )
        for field in RAW_FIELDS
        if any(field in part.raw for part in parts)
    }
    return EventColumns(count, labels, raw, _join_extras(parts))


def _join_extras(parts: Sequence[EventColumns]) -> Extras | None:
    firsts = accumulate((part.count for part in parts), initial=0)
    found = [(first, part.extra) for first, part in zip(firsts, parts, strict=False) if part.extra is not None]
    if not found:
        return None
    keys = join_coded([Coded(extra.codes, extra.keys) for _, extra in found])
    events = np.concatenate([extra.events + first for first, extra in found])
    texts = pa.concat_arrays([extra.texts for _, extra in found])
    return Extras(sum(part.count for part in parts), events, keys.codes, keys.distinct, texts)


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of the decompressed text with `count` events."""

    byte_offset: int
    text: bytes
    count: int


class TraceBatch(NamedTuple):
    """Events in the order of the text; `segments` locate each of them.

    byte_offset, byte_count  the range of the decompressed text that contains them all; None if there is none
    names                    of tracks, if the source has them elsewhere than in events
    """

    first_ordinal: int
    byte_offset: int | None
    byte_count: int | None
    columns: EventColumns
    segments: tuple[Segment, ...] = ()
    names: tuple[TrackName, ...] = ()

    def place(self, index: int) -> tuple[int | None, int | None]:
        """Return offset and size in bytes of event `index`, or of the batch if events can't be located.

        This parses the text again: use it for few events only.
        """
        if not self.segments:
            return self.byte_offset, self.byte_count
        for segment in self.segments:
            if index < segment.count:
                return _place(segment, index)
            index -= segment.count
        raise IndexError(index)


class MoreSource(NamedTuple):
    """A file that was read together with another one. `name`: in its folder."""

    name: str
    size_bytes: int
    digest: str
    container: str


class TraceSource(Protocol):
    """Reader of one file of events. Its other attributes are known after `batches` has ended.

    blocks  (ID of the first event, events, byte offset or None, bytes or None), in order
    keys    the file's keys next to its events: key → JSON text
    """

    blocks: list[tuple[int, int, int | None, int | None]]

    def batches(self) -> Iterator[TraceBatch]:
        """Yield all events, in the order of the file. Raises InputError if the file can't be read."""

    @property
    def found_events(self) -> bool:
        """Whether the file has a place for events, even if it is empty."""

    @property
    def more_sources(self) -> Sequence[MoreSource]:
        """Files that were read together with this one."""

    @property
    def keeps_all(self) -> bool:
        """Whether the format has all events of its writers, which may have an `event_limit` in other formats."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the file that were read."""

    @property
    def digest(self) -> str | None:
        """CRC-32 of the file; None if it was not read completely."""

    @property
    def container(self) -> str:
        """plain, gzip, zstd or xz."""

    @property
    def keys(self) -> Mapping[str, bytes]:
        """The file's keys next to its events."""

    def options(self) -> str | None:
        """Return `keys` as one JSON object; None if there are none."""


#: Values of counters: numbers of any kind, or of the one counter that all of them are.
CounterValues: TypeAlias = "list[int | float] | NDArray[np.float64]"


@runtime_checkable
class DeviceTables(Protocol):
    """What a source has besides events, read once these are stored: memory blocks, and hardware counters of tasks.

    counter_names  names of all counters, after `task_counters` has ended
    """

    counter_names: set[str]

    def report_to(self, log: ImportLog) -> None:
        """Add what is found from now on to another log."""

    def memory_blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield blocks of memory with the columns of `pipeline.vendor_folder.table_sql.MEMORY_COLUMNS`."""

    def task_counters(self, is_known: Callable[[str], bool]) -> Iterator[tuple[Int64, Coded, CounterValues]]:
        """Yield counters that are known: the IDs of the tasks' rows, the counters' names, and their values."""


def _place(segment: Segment, index: int) -> tuple[int, int]:
    if segment.count == 1:
        lead = len(segment.text) - len(segment.text.lstrip(b" \t\r\n,"))
        return segment.byte_offset + lead, len(segment.text.strip(b" \t\r\n,"))
    at = 0
    for element in _elements(segment.text):
        start = segment.text.index(element, at)
        at = start + len(element)
        if not element.startswith(b"{"):
            continue
        if index == 0:
            return segment.byte_offset + start, len(element)
        index -= 1
    return segment.byte_offset, len(segment.text)


def _elements(text: bytes) -> Iterator[bytes]:
    try:
        found = [bytes(element) for element in _ELEMENTS.decode(b"[" + text.strip(b" \t\r\n,") + b"]")]
    except msgspec.DecodeError:
        found = text.splitlines()
    return (element.strip(b" \t\r\n,") for element in found)
