"""Protobuf's wire format: messages as fields of number, kind and value; many at once, or one.

Varints are little-endian groups of seven bits; a field's tag is its number × 8 + its kind. This module doesn't know
what the fields mean. Source: the encoding page of the Protocol Buffers documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask

UInt64 = NDArray[np.uint64]

VARINT, FIXED64, LEN, FIXED32 = 0, 1, 2, 5

_MAX_NUMBER = (1 << 29) - 1
_MAX_VARINT = 10
#: Larger messages are read field by field: a list of all fields could be much larger than the message.
_MOST_LISTED_BYTES = 1 << 16
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
#: The struct Found in native/protobuf.h.
FIELD = np.dtype([("row", "<i8"), ("at", "<i8"), ("value", "<u8"), ("number", "<i4"), ("kind", "<i4")])


class WireError(ValueError):
    """Malformed bytes."""


class CutError(WireError):
    """A truncated message."""


class FieldTable(NamedTuple):
    """The fields of many messages, in their order.

    row     which message
    number  of the field
    kind    VARINT, FIXED64, LEN or FIXED32
    value   the number; for LEN fields, the size in bytes
    at      where the value begins in the data
    sound   for each message, whether it was read to its end; if not, its fields may be wrong
    """

    row: Int64
    number: NDArray[np.int32]
    kind: NDArray[np.int32]
    value: UInt64
    at: Int64
    sound: Mask


def encode_varint(value: int) -> bytes:
    """Encode a number as a varint; a negative one as its 64-bit two's complement."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(data: bytes | bytearray | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at `at`, and where it ends. WireError if it is truncated or too long."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift >= 7 * _MAX_VARINT:
            raise WireError("unterminated varint")
    raise CutError("truncated varint")


def fields(data: bytes, start: int, end: int) -> Iterable[tuple[int, int, int, int]]:
    """Number, kind, value (size of a LEN field) and position of each field.

    WireError if the message is malformed, after the fields before the malformed one.
    """
    found = native.fields(data, start, end) if native.AVAILABLE and end - start <= _MOST_LISTED_BYTES else None
    return _fields(data, start, end) if found is None else found


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    at = start
    while at < end:
        # Most tags have one byte: no call is needed.
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _MAX_NUMBER:
            raise WireError("invalid field number")
        if kind == VARINT:
            place = at
            if at < end and data[at] < 0x80:
                value, at = data[at], at + 1
            else:
                value, at = varint(data, at, end)
        elif kind == LEN:
            if at < end and data[at] < 0x80:
                value, place = data[at], at + 1
            else:
                value, place = varint(data, at, end)
            at = place + value
        elif kind in (FIXED64, FIXED32):
            place, at = at, at + (8 if kind == FIXED64 else 4)
            value = int.from_bytes(data[place:at], "little")
        else:
            raise WireError("invalid wire type")
        if at > end:
            raise CutError("field exceeds its message")
        yield number, kind, value, place


def signed(value: int) -> int:
    """A varint as an int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def encode_differences(numbers: Int64) -> bytes:
    """Encode numbers as packed sint64, each minus the one before it (mod 2^64); zeros at the end are omitted."""
    if native.AVAILABLE:
        return native.differences(np.ascontiguousarray(numbers))
    changes = np.diff(numbers, prepend=np.int64(0))
    zigzag = (changes << 1) ^ (changes >> 63)
    return b"".join(map(encode_varint, zigzag[: len(np.trim_zeros(zigzag, "b"))].tolist()))


def decode_differences(data: bytes, count: int) -> Int64:
    """Return `count` numbers that `encode_differences` encoded. Raises WireError if there are more."""
    read = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(read < 0x80)
    starts = np.append(0, ends + 1)
    sizes = np.diff(starts)
    if starts[-1] != len(read) or len(ends) > count or (sizes > _MAX_VARINT).any():
        raise WireError("malformed packed numbers")
    changes = np.zeros(count, np.int64)
    if len(ends):
        shifts = 7 * (np.arange(len(read)) - np.repeat(starts[:-1], sizes)).astype(np.uint64)
        zigzag = np.add.reduceat((read & 0x7F).astype(np.uint64) << shifts, starts[:-1])
        changes[: len(ends)] = (zigzag >> 1).view(np.int64) ^ -(zigzag & 1).view(np.int64)
    return np.cumsum(changes)


def walk(data: bytes, bounds: Int64) -> FieldTable:
    """The fields of all messages. `bounds`: where each begins and ends. Malformed ones are not `sound`."""
    if native.AVAILABLE:
        found, is_sound = native.walk(data, np.ascontiguousarray(bounds))
        return field_table(np.frombuffer(found, FIELD), np.frombuffer(is_sound, np.bool_))
    rows = []
    sound = np.ones(len(bounds), np.bool_)
    for row, (start, end) in enumerate(bounds.tolist()):
        try:
            rows += [(row, at, value, number, kind) for number, kind, value, at in fields(data, start, end)]
        except WireError:
            sound[row] = False
    return field_table(np.array(rows, FIELD), sound)


def field_table(found: NDArray[np.void], sound: Mask) -> FieldTable:
    """Return fields, given as an array of FIELD, as columns."""
    return FieldTable(**{name: np.ascontiguousarray(found[name]) for name in FIELD.names or ()}, sound=sound)


def messages(data: bytes, at: int, end: int, tag: int, most: int) -> tuple[Int64, int]:
    """Consecutive messages between `at` and `end`, each a tag, a size and bytes: the bounds of the bytes, and the end.

    Stops before a message of more than `most` bytes, and before a truncated one.
    """
    if native.AVAILABLE:
        found, at = native.messages(data, at, end, tag, most)
        return np.frombuffer(found, np.int64).reshape(-1, 2), at
    bounds = []
    try:
        while at < end and data[at] == tag:
            size, start = varint(data, at + 1, end)
            if size > most or start + size > end:
                break
            at = start + size
            bounds.append((start, at))
    except WireError:
        pass
    return np.array(bounds, np.int64).reshape(-1, 2), at
