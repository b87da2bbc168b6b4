"""Bytes of an XSpace → the fields of its messages, in the order of the file.

A space contains planes, a plane lines, a line events; any of them but events can be larger than memory. Fields may be
in any order and occur several times. After damage in a line, reading resumes at the next events that follow each other;
otherwise after the message around the damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64
from traceconv.formats.xplane import field_numbers as pb
from traceconv.wire.protobuf import FIXED32, FIXED64, LEN, VARINT, CutError, WireError, messages, varint, walk

#: Levels of messages. Each has the number of the field that contains the next level, 0 for none.
SPACE, PLANE, LINE = range(3)
_INNER = (1, 3, 0)
_TITLES = ("space", "plane", "line")
_SIZES = {VARINT: 0, FIXED64: 8, FIXED32: 4}
#: A tag and a size.
_MOST_HEAD = 20
_NO_END = 1 << 62
_EVENT_TAG = pb.EVENTS << 3 | LEN
#: An event's tag and size, and the tag of its kind, which is its first field.
_EVENT_START = re.compile(rb"\x22(?=[\x80-\xff]{0,4}[\x00-\x7f]\x08)")
#: Kinds of the fields of an event, by number.
_EVENT_KINDS = np.array([-1, VARINT, VARINT, VARINT, LEN, VARINT], np.int32)
#: After damage, events are found again if these many follow each other in these many bytes.
_FEWEST_EVENTS, _MOST_SEARCHED = 3, 1024

#: Takes what was lost: kind, message, byte offset, bytes.
Lose = Callable[[Code, str, int, int], None]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive fields of one number that are texts or messages.

    plane, line  their numbers in the file; -1 outside of them
    bounds       where each begins and ends in `data`
    byte_offset  of `data`
    """

    level: int
    plane: int
    line: int
    number: int
    data: bytes
    bounds: Int64
    byte_offset: int


@dataclass(frozen=True, slots=True)
class Value:
    """A field that is a number."""

    level: int
    plane: int
    line: int
    number: int
    value: int


class SpaceFramer:
    """Reads the fields of a space.

    most_bytes  larger fields are lost
    wanted      level and number of the fields that are read even if they are not complete in a chunk
    """

    def __init__(
        self, chunks: Iterator[bytes], most_bytes: int, wanted: frozenset[tuple[int, int]], lose: Lose
    ) -> None:
        self._chunks = chunks
        self._most_bytes = most_bytes
        self._wanted = wanted
        self._lose = lose
        self._data = b""
        self._base = self._at = 0
        #: Where the open messages end.
        self._ends = [_NO_END]
        self._plane = self._line = -1

    def fields(self) -> Iterator[Run | Value]:
        """Yield all fields except those that contain planes and lines."""
        while self._fill(1):
            level = self._level()
            data, tag = self._data, self._data[self._at]
            if tag & 7 == LEN and tag < 0x80 and tag >> 3 != _INNER[level]:
                stop = min(len(data), self._ends[-1] - self._base)
                bounds, at = messages(data, self._at, stop, tag, self._most_bytes)
                if len(bounds):
                    self._at = at
                    yield self._run(level, tag >> 3, bounds)
                    continue
            yield from self._field(level)
        if self._level():
            self._lose(Code.CUT_EVENT, f"the file ends inside a {_TITLES[len(self._ends) - 1]}", self._position, 0)

    @property
    def _position(self) -> int:
        return self._base + self._at

    def _level(self) -> int:
        """Close the messages that end here; return the level of the innermost one that is open."""
        while self._ends[-1] <= self._position:
            self._ends.pop()
        return len(self._ends) - 1

    def _run(self, level: int, number: int, bounds: Int64) -> Run:
        line = self._line if level == LINE else -1
        return Run(level, self._plane if level else -1, line, number, self._data, bounds, self._base)

    def _field(self, level: int) -> Iterator[Run | Value]:
        """Read one field, of any kind and size."""
        self._fill(_MOST_HEAD)
        data, end = self._data, min(len(self._data), self._ends[-1] - self._base)
        try:
            tag, at = varint(data, self._at, end)
            number, kind = tag >> 3, tag & 7
            if not 0 < number < 1 << 29 or kind not in (*_SIZES, LEN):
                raise WireError("invalid tag")
            value, at = varint(data, at, end) if kind in (VARINT, LEN) else (0, at)
            stop = self._base + at + (value if kind == LEN else _SIZES[kind])
            if stop > self._ends[-1]:
                raise WireError("field exceeds its message")
        except CutError:
            if self._base + end == self._ends[-1]:
                self._skip_damage(level)
            else:
                self._cut(level)
            return
        except WireError:
            self._skip_damage(level)
            return
        if kind == LEN and number == _INNER[level]:
            self._at = at
            self._ends.append(stop)
            self._plane += level == SPACE
            self._line += level == PLANE
        elif kind == VARINT:
            self._at = at
            yield Value(level, self._plane if level else -1, self._line if level == LINE else -1, number, value)
        elif kind != LEN or (level, number) not in self._wanted:
            self._skip(stop)
        elif value > self._most_bytes:
            self._lose(Code.TOO_LARGE, "a field that is larger than --max-event-mb", self._position, value)
            self._skip(stop)
        elif not self._fill(stop - self._position):
            self._cut(level)
        else:
            stop -= self._base
            self._at = stop
            yield self._run(level, number, np.array([(stop - value, stop)], np.int64))

    def _cut(self, level: int) -> None:
        """The rest of the file is the beginning of a field."""
        self._lose(
            Code.CUT_EVENT, f"the file ends inside a field of a {_TITLES[level]}", self._position, self._size_left()
        )
        self._at = len(self._data)
        self._ends = [_NO_END]

    def _skip_damage(self, level: int) -> None:
        """Go on after bytes that are not a field: at the next events of the line, or after the message."""
        offset = self._position
        if level != LINE or not self._find_events():
            self._skip(self._ends[-1])
        message = f"bytes that are not a field of a {_TITLES[level]}"
        self._lose(Code.DAMAGED_EVENT, message, offset, self._position - offset)

    def _find_events(self) -> bool:
        """Go to the next events of the open line; False if there are none."""
        self._at += 1
        while self._position < self._ends[-1]:
            has_more = self._fill(2 * _MOST_SEARCHED)
            end = min(len(self._data), self._ends[-1] - self._base)
            last = end - _MOST_SEARCHED if has_more and self._base + end < self._ends[-1] else end
            for found in _EVENT_START.finditer(self._data, self._at, end):
                if found.start() >= last:
                    break
                if _are_events(self._data, found.start(), end):
                    self._at = found.start()
                    return True
            self._at = max(self._at, last)
            if not has_more:
                return False
        return False

    # -- bytes --

    def _size_left(self) -> int:
        return len(self._data) - self._at

    def _fill(self, size: int) -> bool:
        """Read until `size` bytes are there; False if the file has less."""
        if self._size_left() >= size:
            return True
        parts, left = [self._data[self._at :]], self._size_left()
        while left < size and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            left += len(chunk)
        self._base += self._at
        self._data, self._at = b"".join(parts), 0
        return left >= size

    def _skip(self, position: int) -> None:
        """Go on at a position, or at the end of the file."""
        while position - self._base > len(self._data) and (chunk := next(self._chunks, b"")):
            self._base += len(self._data)
            self._data = chunk
        self._at = min(position - self._base, len(self._data))


def _are_events(data: bytes, at: int, end: int) -> bool:
    """Whether several events begin here, or one that ends with its line."""
    bounds, stop = messages(data, at, min(end, at + _MOST_SEARCHED), _EVENT_TAG, _MOST_SEARCHED)
    if len(bounds) < (1 if stop == end else _FEWEST_EVENTS):
        return False
    bounds = bounds[:_FEWEST_EVENTS]
    found = walk(data, bounds)
    is_usual = (found.number < len(_EVENT_KINDS)) & (_EVENT_KINDS[found.number % len(_EVENT_KINDS)] == found.kind)
    kinds = found.row[found.number == pb.METADATA_ID]
    return bool(found.sound.all() and is_usual.all() and np.array_equal(kinds, np.arange(len(bounds))))
