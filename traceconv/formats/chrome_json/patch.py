"""JSON that is nearly right → JSON, with nothing of it changed that can be kept.

Raw control characters in strings, escapes that there are none of, lone surrogates, bytes that are not UTF-8, bare
NaN and the like, commas before a closing bracket, and values nested too deep for any parser (kept as text).

What is wrong is found in the whole text at once, by arrays of its bytes; only what is wrong is looked at one by one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.base.diagnostics import Code, ImportLog

#: Levels of brackets that an event may have; what lies deeper is kept as text.
MAX_DEPTH = 128

_COMMA = "comma before a closing bracket"
_WORD = "number that JSON does not have"
_CONTROL = "control character in a string"
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
#: An escape that is one half of a character, perhaps without the other.
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_HIGH_LOW = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
#: What is bare stands behind a blank, a colon, a comma or a bracket, and before one.
_BARE = re.compile(rb"[+-]?(?:NaN|nan|NAN|Infinity|infinity|inf|Inf|INF)|N/A|None|True|False|undefined")
_LONGEST_BARE = 10
#: What a number begins with that JSON does not have, whatever follows; and one that ends in its point.
_WRONG_NUMBER = re.compile(rb"\+[0-9]|-?0[0-9]|-?\.[0-9]")
_POINTED = re.compile(rb"-?[0-9]+\.")
_BARE_END = re.compile(rb"[\s,\]}\"]|\Z")
#: Larger texts are not put right in arrays: those take many times its memory.
_MOST_BYTES = 4 << 20

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
#: (place, bytes that go, bytes that come)
_Edit = tuple[int, int, bytes]


def _table(characters: bytes) -> Mask:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_BLANK = _table(b" \t\r\n\v\f")
_BEFORE = _table(b" \t\r\n\v\f:,[")
_FIRST = _table(b"+-NnIiTFu.0")
_DIGIT = _table(b"0123456789")
_AFTER = _table(b" \t\r\n\v\f,]}")
_OPEN, _CLOSE = _table(b"[{"), _table(b"]}")


@dataclass(frozen=True, slots=True)
class Patched:
    """Text that was made right.

    at          offset of the first thing that was wrong; None when there was nothing
    what        in words, what was wrong
    lost_bytes  bytes that are not UTF-8, each now U+FFFD
    count       places where something was wrong
    """

    text: bytes
    at: int | None
    what: tuple[str, ...]
    lost_bytes: int
    count: int

    def say(self, log: ImportLog, start: int, source_id: int = 1) -> None:
        """Notes what was wrong, if anything was; `start`: where the text stands in its file."""
        if self.at is not None:
            log.add(
                Code.BAD_BYTES if self.lost_bytes else Code.ODD_JSON,
                ", ".join(self.what),
                source_id=source_id,
                byte_offset=start + self.at,
                byte_count=self.lost_bytes or None,
            )


def patch(text: bytes) -> Patched:
    """`text` with everything that can be put right put right; it may still be no JSON."""
    found = native.patch(text, MAX_DEPTH) if native.AVAILABLE and is_utf8(text) else None
    if found is not None:
        made, count, *places = found
        wrong = {what: place for what, place in zip((_COMMA, _WORD, _CONTROL), places, strict=True) if place >= 0}
        return Patched(made, min(wrong.values(), default=None), tuple(wrong), 0, count)
    if len(text) > _MOST_BYTES:
        return Patched(text, None, (), 0, 0)
    return _patched_in_arrays(text)


def is_utf8(text: bytes) -> bool:
    """Whether all of the text is UTF-8."""
    return _first_bad_byte(text) == len(text)


def _first_bad_byte(text: bytes) -> int:
    """Where the text is no UTF-8 any more; its length when all of it is."""
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


def _patched_in_arrays(text: bytes) -> Patched:
    """The same with numpy, for whatever is wrong."""
    wrong: dict[str, int] = {}
    bad_at = _first_bad_byte(text)
    data = np.frombuffer(text, np.uint8)
    inside = _inside_strings(data)
    flat = _flatten(text, data, inside, wrong)
    if flat is not text:
        text, data = flat, np.frombuffer(flat, np.uint8)
        inside = _inside_strings(data)
    edits = [
        *_last_commas(data, inside, wrong),
        *_bare_words(text, data, inside, wrong),
        *_control_characters(data, inside, wrong),
        *_escapes(text, data, inside, wrong),
    ]
    made, count, lost = _edited(text, edits), len(edits), 0
    try:
        made.decode()
    except UnicodeDecodeError:
        wrong["bytes that are not UTF-8"] = bad_at
        made, lost = _in_utf8(made)
        count += lost
    return Patched(made, min(wrong.values(), default=None), tuple(wrong), lost, count)


def _inside_strings(data: Bytes) -> Mask:
    """Which bytes stand between the quotes of a string; a last quote that nothing closes begins none."""
    quote = data == ord('"')
    escape = data == ord("\\")
    if escape.any():
        # A quote is escaped when an odd number of backslashes stands before it.
        place = np.arange(len(data))
        last_other = np.maximum.accumulate(np.where(escape, -1, place))
        run = np.zeros(len(data), np.int64)
        run[1:] = np.where(escape[:-1], place[:-1] - last_other[:-1], 0)
        quote &= run % 2 == 0
    quotes = np.flatnonzero(quote)
    if len(quotes) % 2:
        quote[quotes[-1]] = False
    # At an opening quote the count is odd already, at a closing one even again: neither is inside.
    inside: Mask = (np.cumsum(quote, dtype=np.int32) % 2 == 1) & ~quote
    return inside


def _last_commas(data: Bytes, inside: Mask, wrong: dict[str, int]) -> list[_Edit]:
    solid = np.flatnonzero(~_BLANK[data] | inside)
    marks = data[solid]
    commas = solid[:-1][(marks[:-1] == ord(",")) & _CLOSE[marks[1:]] & ~inside[solid[:-1]] & ~inside[solid[1:]]]
    if len(commas):
        wrong[_COMMA] = int(commas[0])
    return [(place, 1, b"") for place in commas.tolist()]


def _bare_words(text: bytes, data: Bytes, inside: Mask, wrong: dict[str, int]) -> list[_Edit]:
    # Where a word may begin that JSON does not have, and numbers that end in a point.
    starts = np.zeros(len(data), np.bool_)
    starts[1:] = _FIRST[data[1:]] & _BEFORE[data[:-1]]
    starts[:-1] &= (data[:-1] != ord("0")) | _DIGIT[data[1:]]
    ends = np.ones(len(data), np.bool_)
    ends[:-1] = _AFTER[data[1:]]
    for point in np.flatnonzero((data == ord(".")) & ends & ~inside).tolist():
        first = point
        while first and _DIGIT[data[first - 1]]:
            first -= 1
        first -= bool(first and data[first - 1] == ord("-"))
        starts[first] = first > 0 and bool(_BEFORE[data[first - 1]])
    edits: list[_Edit] = []
    stop = done = 0
    for place in np.flatnonzero(starts & ~inside).tolist():
        if place < done:
            continue
        if stop < place:  # else what ended the word before ends this one too
            end = _BARE_END.search(text, place)
            stop = end.start() if end is not None else len(text)
        if stop == place or text[stop : stop + 1] == b'"':
            continue
        pointed = _POINTED.match(text, place)
        if (
            (stop - place <= _LONGEST_BARE and _BARE.fullmatch(text, place, stop))
            or _WRONG_NUMBER.match(text, place)
            or (pointed is not None and pointed.end() == stop)
        ):
            wrong.setdefault(_WORD, place)
            edits.append((place, stop - place, b'"' + text[place:stop] + b'"'))
            done = stop
    return edits


def _control_characters(data: Bytes, inside: Mask, wrong: dict[str, int]) -> list[_Edit]:
    places = np.flatnonzero((data < 0x20) & inside)
    if len(places):
        wrong[_CONTROL] = int(places[0])
    return [(place, 1, b"\\u%04x" % data[place]) for place in places.tolist()]


def _escapes(text: bytes, data: Bytes, inside: Mask, wrong: dict[str, int]) -> list[_Edit]:
    """Escapes that JSON does not have, and halves of surrogate pairs, as the characters they are written with."""
    edits: list[_Edit] = []
    done = -1
    for place in np.flatnonzero((data == ord("\\")) & inside).tolist():
        if place < done:
            continue
        pair = _HIGH_LOW.match(text, place)
        good = None if pair is None and SURROGATE.match(text, place) else _ESCAPE.match(text, place)
        if pair is not None or good is not None:
            done = (pair or good).end()  # type: ignore[union-attr] # one of them is a match
            continue
        wrong.setdefault("escape that JSON does not have", place)
        edits.append((place, 0, b"\\"))
        done = place + 1
    return edits


def _in_utf8(text: bytes) -> tuple[bytes, int]:
    """The text with U+FFFD for what is not UTF-8, and how many bytes that were."""
    made = text.decode("utf-8", "replace").encode()
    mark = "\ufffd".encode()
    marks = made.count(mark) - text.count(mark)
    return made, len(text) - len(made) + marks * len(mark)


def _edited(text: bytes, edits: list[_Edit]) -> bytes:
    if not edits:
        return text
    parts: list[bytes] = []
    at = 0
    for place, size, new in sorted(edits):
        parts += (text[at:place], new)
        at = place + size
    return b"".join((*parts, text[at:]))


def _flatten(text: bytes, data: Bytes, inside: Mask, wrong: dict[str, int]) -> bytes:
    """Values that lie deeper than `MAX_DEPTH` levels as strings of their own text; `text` itself when there is none."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return text
    places = np.flatnonzero((_OPEN[data] | _CLOSE[data]) & ~inside)
    level = np.cumsum(np.where(_OPEN[data[places]], 1, -1))
    starts = places[(level == MAX_DEPTH + 1) & _OPEN[data[places]]]
    ends = places[(level == MAX_DEPTH) & _CLOSE[data[places]]]
    edits: list[_Edit] = []
    for start in starts.tolist():
        after = ends[np.searchsorted(ends, start) :][:1]
        if len(after):
            end = int(after[0]) + 1
            wrong.setdefault(f"value nested more than {MAX_DEPTH} levels deep, kept as text", start)
            value = json.dumps(text[start:end].decode("utf-8", "replace"), ensure_ascii=False)
            edits.append((start, end - start, value.encode()))
    return _edited(text, edits)
