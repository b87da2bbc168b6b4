"""Text of whole events → columns, with no object an event: keys and values are found by place, all events at once.

The text is known to be sound JSON, so that quotes and brackets alone say where everything stands: a string at the depth
of an event's keys is a key when a colon follows. Of values only the distinct ones are looked at by Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.events.trace import LABEL_FIELDS, RAW_FIELDS, Coded, EventColumns, Extras
from traceconv.formats.chrome_json.marks import Bytes, Places, structure

_COLON, _OPEN = ord(":"), ord("{")
_BLANK = np.zeros(256, np.bool_)
_BLANK[list(b" \t\r\n,")] = True
#: So many blanks in a row, and the text is left to others: each takes a turn over all places that wait.
_MOST_BLANKS = 64
#: Places are kept as 32 bits in columns.
_MOST_BYTES = 1 << 30

#: The first eight bytes of a key as a number, cut to its length; of longer ones nothing is left.
_WORD = 8
_CUT = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)] + [0], np.uint64)
_FIELDS = (*LABEL_FIELDS, *RAW_FIELDS)
_OTHER = len(_FIELDS)
_SLOT_BITS = 5

#: The kinds of events (ph) that DFTracer numbers from its version 2 on. Source: its core/common/enumeration.h.
NUMBERED_KINDS = {1: "X", 2: "C", 3: "A", 4: "M"}
#: So many distinct values of a field are found one after another; more by hashing.
_FEW = 12

_STRINGS: msgspec.json.Decoder[list[int | str | None]] = msgspec.json.Decoder(list[str | None])
_NAMES = msgspec.json.Decoder(list[int | str | None])
_KEY = msgspec.json.Decoder(str)
_NUMBERED = ("ph", "pid", "tid")


def _slots(words: list[int]) -> tuple[int, list[int]]:
    """An odd factor that spreads the words over the slots, and the slot of each."""
    factor = 1
    while True:
        slots = [(word * factor % 2**64) >> (64 - _SLOT_BITS) for word in words]
        if len(set(slots)) == len(words):
            return factor, slots
        factor = factor * 0x5851F42D4C957F2D % 2**64


_field_words = [int.from_bytes(field.encode(), "little") for field in _FIELDS]
_factor, _slot_of = _slots(_field_words)
_FACTOR = np.uint64(_factor)
_SHIFT = np.uint64(64 - _SLOT_BITS)
_SLOT_WORD = np.full(1 << _SLOT_BITS, 2**64 - 1, np.uint64)
_SLOT_WORD[_slot_of] = _field_words
_SLOT_FIELD = np.full(1 << _SLOT_BITS, _OTHER, np.uint8)
_SLOT_FIELD[_slot_of] = range(len(_FIELDS))


def columns_in(text: bytes) -> EventColumns | None:
    """The events of `text`: sound JSON, objects with commas or line breaks between them, nothing before and behind.

    None when it is not of that kind, an event has a key twice, or a value is of a type that its field does not take.
    """
    size = len(text)
    if size > _MOST_BYTES:
        return None
    padded = text + b" " * (2 * _WORD)  # so that words can be read behind the last value too
    data = np.frombuffer(padded, np.uint8)
    marks, is_quote, step = structure(text, data)
    depth = np.cumsum(step, dtype=np.int32)
    top = depth == 1
    opens, closes = marks[top & (step == 1)], marks[(depth == 0) & (step == -1)]
    if not _only_objects(data, opens, closes, size):
        return None
    keys = _keys(data, marks[top & is_quote], opens, closes)
    if keys is None:
        return None
    field = _field_of(padded, keys)
    order = np.argsort(field, kind="stable")
    ends = np.cumsum(np.bincount(field, minlength=_OTHER + 1)).tolist()
    labels: dict[str, Coded] = {}
    raw: dict[str, pa.Array] = {}
    for number, name in enumerate(_FIELDS):
        rows = order[ends[number - 1] if number else 0 : ends[number]]
        if not len(rows):
            continue
        value, stop, event = (column.take(rows) for column in (keys.value, keys.stop, keys.event))
        values = _Values(text, padded, value, stop, event, len(opens))
        if values.repeated():
            return None
        if name in RAW_FIELDS:
            raw[name] = values.raw()
            continue
        label = values.label(name)
        if label is None:
            return None
        labels[name] = label
    if ends[_OTHER - 1] == ends[_OTHER]:
        return EventColumns(len(opens), labels, raw, None)
    rows = order[ends[_OTHER - 1] :]
    extra = beside(
        text, [column[rows] for column in (keys.event, keys.start, keys.end, keys.value, keys.stop)], len(opens)
    )
    return None if extra is None else EventColumns(len(opens), labels, raw, extra)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of events, in the order of the text: their quotes, the stretches of their values, and whose they are."""

    start: Places
    end: Places
    value: Places
    stop: Places
    event: Places


def _keys(data: Bytes, quotes: Places, opens: Places, closes: Places) -> _Keys | None:
    """The keys among the strings that these quotes hold; None when there are blanks beyond measure."""
    colons = _past_blanks(data, quotes[1::2] + 1)
    if colons is None:
        return None
    rows = np.flatnonzero(data.take(colons) == _COLON)
    start, end = quotes[0::2].take(rows), quotes[1::2].take(rows)
    value = _past_blanks(data, colons.take(rows) + 1)
    first = np.searchsorted(start, opens)
    keys_of = np.diff(first, append=len(start))
    # A value ends before the next key of its event, or the brace that closes it.
    stop = np.empty_like(start)
    stop[:-1] = start[1:]
    some = keys_of > 0
    stop[(first + keys_of - 1)[some]] = closes[some]
    stops = _before_blanks(data, stop)
    if value is None or stops is None:
        return None
    return _Keys(start, end, value, stops, np.repeat(np.arange(len(opens)), keys_of))


def _only_objects(data: Bytes, opens: Places, closes: Places, size: int) -> bool:
    """Whether the text is objects with nothing but separators between them."""
    if not len(opens) or len(opens) != len(closes) or opens[0] != 0 or closes[-1] != size - 1:
        return False
    if not (data[opens] == _OPEN).all():
        return False
    at = closes[:-1] + 1
    for _ in range(_MOST_BLANKS):
        left = at < opens[1:]
        if not left.any():
            return True
        if not _BLANK[data[at[left]]].all():
            return False
        at += left
    return False


def _past_blanks(data: Bytes, at: Places) -> Places | None:
    """The first places from these on that are no blanks; None when some are too far. Changes `at`."""
    left = np.flatnonzero(data.take(at) <= 0x20)
    for _ in range(_MOST_BLANKS):
        if not len(left):
            return at
        at[left] += 1
        left = left[data.take(at.take(left)) <= 0x20]
    return None


def _before_blanks(data: Bytes, at: Places) -> Places | None:
    """How far the text before these places goes, without blanks and commas at its end. Changes `at`."""
    left = np.flatnonzero(_BLANK.take(data.take(at - 1)))
    for _ in range(_MOST_BLANKS):
        if not len(left):
            return at
        at[left] -= 1
        left = left[_BLANK.take(data.take(at.take(left) - 1))]
    return None


def _words(padded: bytes) -> NDArray[np.uint64]:
    """The eight bytes from each place of the text on, as a number."""
    words: NDArray[np.uint64] = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    return words


def _field_of(padded: bytes, keys: _Keys) -> Bytes:
    """The number of the field that each key names."""
    start = keys.start + 1
    word = _words(padded)[start] & _CUT.take(np.minimum(keys.end - start, _WORD + 1))
    slot = ((word * _FACTOR) >> _SHIFT).astype(np.intp)
    field: Bytes = np.where(_SLOT_WORD.take(slot) == word, _SLOT_FIELD.take(slot), np.uint8(_OTHER))
    return field


class _Values:
    """The values of one field: stretches of the text, and the events (in order) that have them."""

    def __init__(self, text: bytes, padded: bytes, start: Places, stop: Places, events: Places, count: int) -> None:
        self._text = text
        self._padded = padded
        self._start = start
        self._stop = stop
        self._events = events
        self._count = count

    def repeated(self) -> bool:
        """Whether an event has the key twice."""
        return bool((self._events[1:] == self._events[:-1]).any())

    def raw(self) -> pa.Array:
        """The text of each event's value, empty where it has none."""
        # What lies between the values is cut out too, so that the ends are all that is needed; the last one is empty.
        ends = np.empty(2 * len(self._start) + 2, np.int32)
        ends[0], ends[1:-1:2], ends[2::2], ends[-1] = 0, self._start, self._stop, self._stop[-1]
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self._text)]
        stretches = pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers, null_count=0)
        values = np.arange(1, len(ends) - 1, 2)
        if len(values) < self._count:
            places = np.full(self._count, len(stretches) - 1)
            places[self._events] = values
            values = places
        return stretches.take(pa.array(values))

    def label(self, field: str) -> Coded | None:
        """The values, each distinct one decoded once; None when there are some that the field does not take."""
        codes, tokens = self._coded()
        if len(self._events) < self._count:
            all_codes = np.full(self._count, -1, np.int32)
            all_codes[self._events] = codes
            codes = all_codes
        return label_of(field, codes, tokens)

    def _coded(self) -> tuple[NDArray[np.int32], list[bytes]]:
        """A number for each value, and the text of each number."""
        length = self._stop - self._start
        longest = int(length.max())
        if longest <= 2 * _WORD:
            every = _words(self._padded)
            words = [every[self._start] & _CUT.take(np.minimum(length, _WORD))]
            if longest > _WORD:
                words.append(every[self._start + _WORD] & _CUT.take(np.maximum(length - _WORD, 0)))
            found = _few(words)
            if found is not None:
                codes, firsts = found
                return codes, [self._text[self._start[row] : self._stop[row]] for row in firsts]
        whole = _Values(self._text, self._padded, self._start, self._stop, self._events, len(self._events))
        array = whole.raw().dictionary_encode()
        return array.indices.to_numpy(), array.dictionary.to_pylist()


def _few(words: list[NDArray[np.uint64]]) -> tuple[NDArray[np.int32], list[int]] | None:
    """Rows of words → the number of each distinct row, and where it comes first; None when there are too many."""
    codes = np.zeros(len(words[0]), np.int32)
    left = np.ones(len(codes), np.bool_)
    firsts = [0]
    while len(firsts) <= _FEW:
        same = words[0] == words[0][firsts[-1]]
        for word in words[1:]:
            same &= word == word[firsts[-1]]
        codes[same] = len(firsts) - 1
        left &= ~same
        place = int(left.argmax())
        if not left[place]:
            return codes, firsts
        firsts.append(place)
    return None


def label_of(field: str, codes: NDArray[np.int32], tokens: list[bytes]) -> Coded | None:
    """The values of a label field; None when there are some that it does not take.

    codes   the place of each event's value in `tokens`, -1 where it has none
    tokens  the text of each distinct value; several may be of one value, written in several ways
    """
    decoder = _NAMES if field in _NUMBERED else _STRINGS
    try:
        distinct: list[int | str | None] = [*decoder.decode(b"[" + b",".join(tokens) + b"]")]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if field == "ph" and any(isinstance(value, int) for value in distinct):
        distinct = [NUMBERED_KINDS.get(value) if isinstance(value, int) else value for value in distinct]
        if None in distinct:
            return None
    known = {value: code for code, value in enumerate(dict.fromkeys(distinct))}
    absent = codes.min(initial=0) < 0
    if absent or len(known) != len(distinct):
        new = [known[value] for value in distinct]
        if absent:
            new.append(known.setdefault(None, len(known)))  # the last one: codes of -1
        codes = np.array(new, np.int32)[codes]
    return Coded(codes, list(known))


def beside(text: bytes, columns: list[Places], count: int) -> Extras | None:
    """What keys that are no fields say; None when an event has one of them twice.

    columns  of these keys, in the order of the text: their event, first and last quote, start and end of the value
    """
    event, start, end, value, stop = columns
    bounds = np.empty(4 * len(event) + 1, np.int32)
    bounds[:-1] = np.column_stack((start, end + 1, value, stop)).ravel()
    bounds[-1] = stop[-1]
    # Of each four stretches one is a key, and one a value.
    stretches = pa.Array.from_buffers(pa.binary(), 4 * len(event), [None, pa.py_buffer(bounds), pa.py_buffer(text)])
    tokens = stretches.take(pa.array(np.arange(0, 4 * len(event), 4))).dictionary_encode()
    names = [_KEY.decode(token) for token in tokens.dictionary.to_pylist()]
    known = {name: code for code, name in enumerate(dict.fromkeys(names))}
    # A field's name may be written with escapes: then others are to read it.
    if not known.keys().isdisjoint(_FIELDS):
        return None
    codes = np.array([known[name] for name in names], np.int32)[tokens.indices.to_numpy()]
    if len(np.unique(event.astype(np.int64) * len(known) + codes)) < len(event):
        return None
    texts = stretches.take(pa.array(np.arange(2, 4 * len(event), 4)))
    return Extras(count, event.astype(np.int64), codes, list(known), texts)
