"""Protobuf's wire format: messages as fields of number, kind and value; many at once, or one.

Varints are little-endian groups of seven bits; a field's tag is its number × 8 + its kind. Nothing is known here of
what the fields mean. Source: the encoding page of the Protocol Buffers documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

VARINT, FIXED64, LEN, FIXED32 = 0, 1, 2, 5

#: Zero bytes that must follow the data which `walk` is given: no read goes beyond them.
PADDING = 16
_MAX_NUMBER = (1 << 29) - 1
_MAX_VARINT = 10
#: From this round on, a few long messages are read one by one: a round costs the same for one as for a thousand.
_MANY_ROUNDS, _FEW_ROWS = 64, 32


class WireError(ValueError):
    """Bytes that are no message."""


class CutError(WireError):
    """Bytes that end before the message does."""


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The fields of many messages; those of one message in their order, messages in no order.

    row     which message
    number  of the field
    kind    VARINT, FIXED64, LEN or FIXED32
    value   the number; of a LEN field its size in bytes
    at      where the value begins in the data
    sound   of each message, whether it was read to its end; else its fields may be wrong
    """

    row: Int64
    number: NDArray[np.int32]
    kind: NDArray[np.int8]
    value: UInt64
    at: Int64
    sound: Mask


def varint(data: bytes | bytearray | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. WireError when it is cut off or too long."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift >= 7 * _MAX_VARINT:
            raise WireError("a number that does not end")
    raise CutError("a number that is cut off")


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, kind, value (size of a LEN field) and place of each field. WireError where it is no message."""
    at = start
    while at < end:
        tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _MAX_NUMBER:
            raise WireError("a field with a number that there is not")
        if kind == VARINT:
            place = at
            value, at = varint(data, at, end)
        elif kind == LEN:
            value, place = varint(data, at, end)
            at = place + value
        elif kind in (FIXED64, FIXED32):
            place, at = at, at + (8 if kind == FIXED64 else 4)
            value = int.from_bytes(data[place:at], "little")
        else:
            raise WireError("a field of a kind that there is not")
        if at > end:
            raise CutError("a field that goes beyond its message")
        yield number, kind, value, place


def signed(value: int) -> int:
    """A varint as the int64 that it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def walk(data: NDArray[np.uint8], starts: Int64, ends: Int64) -> FieldTable:
    """The fields of all messages `starts` to `ends`, field by field in all of them at once.

    `data` has PADDING zero bytes behind the last message. A message that is damaged is not `sound`.
    """
    sound = np.ones(len(starts), np.bool_)
    rows = np.flatnonzero(ends > starts)
    at = starts[rows].astype(np.int64)
    end = ends[rows].astype(np.int64)
    words = np.ndarray((max(len(data) - 7, 0),), "<u8", data.data, 0, (1,))
    parts: list[tuple[NDArray[np.generic], ...]] = []
    rounds = 0
    while len(rows):
        rounds += 1
        if rounds > _MANY_ROUNDS and len(rows) < _FEW_ROWS:
            parts.extend(_one_by_one(data, rows, at, end, sound))
            break
        tag, place = varints(data, at)
        number, kind = tag >> np.uint64(3), (tag & np.uint64(7)).astype(np.int8)
        value = np.zeros(len(rows), np.uint64)
        after = place.copy()
        plain = kind == VARINT
        sized = kind == LEN
        counted = plain | sized
        where = np.flatnonzero(counted) if not counted.all() else slice(None)
        # What a damaged tag leads to may lie beyond the data: it is not read.
        value[where], after[where] = varints(data, np.minimum(place[where], len(data) - PADDING))
        bad = (number == 0) | (number > _MAX_NUMBER) | (place < 0)
        bad |= (after < 0) | (value > np.uint64(len(data))) & sized
        place = np.where(sized, after, place)
        after[sized] += np.where(bad[sized], 0, value[sized].astype(np.int64))
        for fixed, size in ((FIXED64, 8), (FIXED32, 4)):
            chosen = np.flatnonzero(kind == fixed)
            if len(chosen):
                inside = np.minimum(place[chosen], len(data) - PADDING)
                value[chosen] = words[inside] & np.uint64((1 << 8 * size) - 1)
                after[chosen] = place[chosen] + size
                counted[chosen] = True
        bad |= ~counted | (after > end)
        if bad.any():
            sound[rows[bad]] = False
            keep = ~bad
            rows, end, after = rows[keep], end[keep], after[keep]
            number, kind, value, place = number[keep], kind[keep], value[keep], place[keep]
        parts.append((rows, number.astype(np.int32), kind, value, place))
        more = after < end
        if more.all():
            at = after
        else:
            rows, at, end = rows[more], after[more], end[more]
    if not parts:
        none = np.zeros(0, np.int64)
        return FieldTable(none, none.astype(np.int32), none.astype(np.int8), none.astype(np.uint64), none, sound)
    row, number, kind, value, place = (np.concatenate(column) for column in zip(*parts, strict=True))
    return FieldTable(row, number, kind, value, place, sound)


def varints(data: NDArray[np.uint8], at: Int64) -> tuple[UInt64, Int64]:
    """The numbers that begin at `at`, and where they end; −1 for what does not end. Behind `data` lies PADDING."""
    first = data[at]
    value = first.astype(np.uint64)
    after = at + 1
    longer = np.flatnonzero(first >= 0x80)
    if not len(longer):
        return value, after
    value[longer] &= np.uint64(0x7F)
    for group in range(1, _MAX_VARINT):
        byte = data[np.minimum(at[longer] + group, len(data) - 1)]
        value[longer] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * group)
        after[longer] += 1
        longer = longer[byte >= 0x80]
        if not len(longer):
            return value, after
    after[longer] = -1
    return value, after


def _one_by_one(
    data: NDArray[np.uint8], rows: Int64, at: Int64, end: Int64, sound: Mask
) -> Iterator[tuple[NDArray[np.generic], ...]]:
    """The rest of a few messages: a Python loop, since each round over arrays costs as much as many fields."""
    for row, start, stop in zip(rows.tolist(), at.tolist(), end.tolist(), strict=True):
        text = data[start:stop].tobytes()
        found: list[tuple[int, int, int, int]] = []
        try:
            found.extend(fields(text, 0, len(text)))
        except WireError:
            sound[row] = False
            continue
        number, kind, value, place = (list(column) for column in zip(*found, strict=True))
        yield (
            np.full(len(found), row, np.int64),
            np.array(number, np.int32),
            np.array(kind, np.int8),
            np.array(value, np.uint64),
            np.array(place, np.int64) + start,
        )
