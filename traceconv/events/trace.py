"""Events of trace JSON as they stand in the text: what the reader yields and the normaliser takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw
from numpy.typing import NDArray

#: A number or a name; None when the key is not there.
Label: TypeAlias = int | float | str | None

#: In a column of durations as whole numbers: one that 64 bits can't hold.
TOO_LONG = -(2**63)
#: The text of a value that is not there.
ABSENT = Raw(b"")

LABEL_FIELDS = ("name", "ph", "cat", "pid", "tid", "bp", "s", "scope")
RAW_FIELDS = ("ts", "dur", "args", "id", "tts", "tdur")
_ELEMENTS = msgspec.json.Decoder(list[Raw])


class Coded(Sequence[Any]):
    """A column of which each distinct value is kept once.

    codes     int32: the place of each row's value in `distinct`
    distinct  values; some may be in no row
    """

    __slots__ = ("_none", "_texts", "codes", "distinct")

    def __init__(self, codes: NDArray[np.int32], distinct: list[Any]) -> None:
        self.codes = codes
        self.distinct = distinct
        self._texts: pa.Array | None = None
        self._none: NDArray[np.bool_] | None = None

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
        """The same column of some rows."""
        return Coded(self.codes[places], self.distinct)

    def counts(self) -> list[int]:
        """How many rows each distinct value has."""
        found: list[int] = np.bincount(self.codes, minlength=len(self.distinct)).tolist()
        return found

    def text(self, places: NDArray[np.intp]) -> pa.DictionaryArray:
        """A text column of some rows."""
        if self._texts is None:
            # Texts of a dictionary are not null: Arrow could not put it together with others.
            self._texts = pa.array(["" if value is None else value for value in self.distinct], pa.string())
            self._none = (
                np.array([value is None for value in self.distinct], np.bool_) if None in self.distinct else None
            )
        codes, texts = self.codes[places], self._texts
        null = None if self._none is None else self._none[codes]
        if len(texts) > len(codes) // 4:  # many of them may be in other rows only
            used, places_in_used = np.unique(codes, return_inverse=True)
            codes, texts = places_in_used.astype(np.int32), texts.take(pa.array(used))
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=null), texts)


def coded(values: Sequence[Any], *, typed: bool = False) -> Coded:
    """A column of hashable values, coded. `typed`: 1, 1.0 and true are three values, not one."""
    if isinstance(values, Coded):
        return values
    keys = list(zip(map(type, values), values, strict=True)) if typed else values
    known = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    if len(keys) > 1:
        found = itemgetter(*keys)(known)  # twice as fast as any loop
        codes = (
            np.frombuffer(bytes(found), np.uint8).astype(np.int32) if len(known) <= 256 else np.array(found, np.int32)
        )
    else:
        codes = np.zeros(len(keys), np.int32)
    return Coded(codes, [key[1] for key in known] if typed else list(known))


def join_coded(parts: Sequence[Coded]) -> Coded:
    """The rows of all parts, one after another."""
    known: dict[tuple[type, Any], int] = {}
    codes = []
    for part in parts:
        new = [known.setdefault((type(value), value), len(known)) for value in part.distinct]
        codes.append(np.array(new, np.int32)[part.codes])
    return Coded(np.concatenate(codes), [value for _, value in known])


class Extras(Sequence["dict[str, Raw] | None"]):
    """What keys that are no fields say: of each event the text of their values by key, or None.

    events  int64, rising: whose each value is
    codes   int32: the place of its key in `keys`
    texts   binary array: the values
    """

    __slots__ = ("_event_count", "codes", "events", "keys", "texts")

    def __init__(
        self, event_count: int, events: NDArray[np.int64], codes: NDArray[np.int32], keys: list[str], texts: pa.Array
    ) -> None:
        self._event_count = event_count
        self.events = events
        self.codes = codes
        self.keys = keys
        self.texts = texts

    @classmethod
    def made_of(cls, said: Sequence[Mapping[str, Raw] | None]) -> Extras | None:
        """The same of values event by event; None when there are none."""
        each = [(event, key, text) for event, one in enumerate(said) if one for key, text in one.items()]
        if not each:
            return None
        events, keys, texts = zip(*each, strict=True)
        column = coded(keys)
        return cls(len(said), np.array(events, np.int64), column.codes, column.distinct, binary_column(texts))

    def __len__(self) -> int:
        return self._event_count

    @overload
    def __getitem__(self, place: int) -> dict[str, Raw] | None: ...

    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Raw] | None]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [*self][place]
        if not 0 <= place < self._event_count:
            raise IndexError(place)
        first, last = np.searchsorted(self.events, (place, place + 1)).tolist()
        texts = self.texts.slice(first, last - first).to_pylist()
        codes = self.codes[first:last].tolist()
        return {self.keys[code]: Raw(text) for code, text in zip(codes, texts, strict=True)} or None

    def __iter__(self) -> Iterator[dict[str, Raw] | None]:
        found: list[dict[str, Raw] | None] = [None] * self._event_count
        for event, code, text in zip(self.events.tolist(), self.codes.tolist(), self.texts.to_pylist(), strict=True):
            said = found[event] = found[event] or {}
            said[self.keys[code]] = Raw(text)
        return iter(found)

    def has_any(self) -> NDArray[np.bool_]:
        """Of each event whether there is something."""
        found = np.zeros(self._event_count, np.bool_)
        found[self.events] = True
        return found

    def of(self, key: str) -> dict[int, bytes]:
        """Event → what it says of a key."""
        if key not in self.keys:
            return {}
        own = np.flatnonzero(self.codes == self.keys.index(key))
        return dict(zip(self.events[own].tolist(), self.texts.take(pa.array(own)).to_pylist(), strict=True))


class NamedTrack(NamedTuple):
    """Stands in the place of a tid: a track that is no thread. `kind`: as in the table track; `key`: the source's."""

    kind: str
    key: str


class TrackName(NamedTuple):
    """What a process (`tid` None), a thread or another track is called, and where it is shown.

    unit   of the values of a counter, whose `tid` is NamedTrack("counter", id of its events, "" for none)
    scope  what the track lies in, where that is no process
    """

    pid: Label
    tid: Label | NamedTrack
    name: str | None
    sort_index: int | None = None
    unit: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class EventFlows:
    """Arrows that slices and moments of a batch name themselves.

    places    int64, rising: which events of the batch; one may name several arrows
    keys      int64: ends with one key belong together
    steps     int32: 0 start, 1 step, 2 end; 3 and 4 the same as 1 and 2 of arrows whose key is free again after an end
    category  of the arrows
    texts     the key as the source has it
    """

    places: NDArray[np.int64]
    keys: NDArray[np.int64]
    steps: NDArray[np.int32]
    category: str | None
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events as columns of one length.

    labels  field → its values, coded or plain; a field that is not there is None in all events
    raw     field → binary array of the text of its values, empty where the event has no such key; likewise.
            Times may be an int64 array instead: whole nanoseconds, null where there is none
    extra   None when no event has keys beyond the fields
    flows   None when no event names an arrow by other means than those of trace JSON
    """

    count: int
    labels: Mapping[str, Sequence[Any]]
    raw: Mapping[str, pa.Array]
    extra: Extras | None
    flows: EventFlows | None = None

    def label(self, field: str) -> Coded:
        """The values of a label field."""
        values = self.labels.get(field)
        return Coded(np.zeros(self.count, np.int32), [None]) if values is None else coded(values)


def binary_column(values: Sequence[Any]) -> pa.Array:
    """A binary array of bytes-like values."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))], null_count=0
    )


def join_columns(parts: Sequence[EventColumns]) -> EventColumns:
    """The events of all parts, one after another."""
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
    """A stretch of the decompressed text with `count` events."""

    byte_offset: int
    text: bytes
    count: int


@dataclass(frozen=True, slots=True)
class TraceBatch:
    """Events in the order of the text; `segments` say where each one stands.

    byte_offset, byte_count  the stretch of the decompressed text that holds them all; None where there is no such
    names                    of tracks, where the source has them elsewhere than in events
    """

    first_ordinal: int
    byte_offset: int | None
    byte_count: int | None
    columns: EventColumns
    segments: tuple[Segment, ...] = ()
    names: tuple[TrackName, ...] = ()

    def place(self, index: int) -> tuple[int | None, int | None]:
        """Offset and size in bytes of event `index`: found anew in the text, so meant for the odd ones only.

        Those of the whole batch where single events have none.
        """
        if not self.segments:
            return self.byte_offset, self.byte_count
        for segment in self.segments:
            if index < segment.count:
                return _place(segment, index)
            index -= segment.count
        raise IndexError(index)


class TraceSource(Protocol):
    """What reads one file of events. After `batches` has come to its end, the rest is known.

    blocks  (id of the first event, events, byte offset or None, bytes or None), in order
    keys    what the file says beside its events: key → JSON text
    """

    blocks: list[tuple[int, int, int | None, int | None]]

    def batches(self) -> Iterator[TraceBatch]:
        """All events, in the order of the file. Raises InputError when the file can't be read."""

    @property
    def found_events(self) -> bool:
        """Whether the file has a place for events, even if there is none in it."""

    @property
    def size_bytes(self) -> int:
        """Size of the file, as far as it was read."""

    @property
    def digest(self) -> str | None:
        """CRC-32 of the file; None when it was not read whole."""

    @property
    def container(self) -> str:
        """plain, gzip or zstd."""

    @property
    def keys(self) -> Mapping[str, bytes]:
        """What the file says beside its events."""

    def options(self) -> str | None:
        """The same as one JSON object; None when there is nothing."""


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
