"""Bytes of a Perfetto trace → packets: cut at their lengths, checked, and found again after damage.

A trace is a sequence of packets, each `0x0A`, its length, its fields. After a damaged length, reading resumes at the
next complete packet that another follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceconv import native
from traceconv.base.int64 import Int64, Mask
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.wire.protobuf import (
    FIELD,
    FIXED64,
    LEN,
    VARINT,
    CutError,
    FieldTable,
    UInt64,
    WireError,
    field_table,
    fields,
    messages,
    varint,
    walk,
)

TAG = 0x0A
#: Bytes framed at once, unless a packet is larger.
WINDOW_BYTES = 1 << 20
#: Larger packets are not searched for after damage.
_MAX_SEARCHED = 1 << 20
#: Most fields of a packet searched for: real ones have a dozen.
_MAX_FIELDS = 64
_MAX_LENGTH = (1 << 31) - 1

#: Kinds of the most common fields; with another kind, bytes are not a packet.
_KINDS = {
    **dict.fromkeys((3, 8, 10, 13, 41, 42, 58, 79, 87, 98), VARINT),
    **dict.fromkeys((1, 2, 4, 5, 6, 7, 9, 11, 12, 33, 34, 35, 36, 43, 44, 45, 50, 51, 59, 60, 89), LEN),
}
#: Any packet worth finding has one: clocks, timestamp, sequence, event, descriptors, compressed packets.
_IDENTIFYING = frozenset((6, 8, 10, 11, 12, 43, 44, 50, 60))
_TELLING_KINDS = np.full(128, -1, np.int8)
for _number, _kind in _KINDS.items():
    _TELLING_KINDS[_number] = _kind
_FTRACE = 1
#: Fields of packets that are columns, and the number of columns of native/packets.c.
_NUMBERS = (pb.SEQUENCE, pb.TIMESTAMP, pb.CLOCK_ID, pb.FLAGS)
_COLUMNS = 7


@dataclass(frozen=True, slots=True)
class Damage:
    """A byte range without intact packets. `cut`: it ends where the data does."""

    byte_offset: int
    byte_count: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Packets:
    """What most packets have, as columns.

    start, end                    of each packet's event in the data; -1 for none
    sequence, time, clock, flags  0 for none
    timed                         whether it has a timestamp
    """

    start: Int64
    end: Int64
    sequence: UInt64
    time: UInt64
    clock: UInt64
    flags: UInt64
    timed: Mask


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive packets, and the damage between them.

    data         their bytes
    byte_offset  of the first byte of `data`
    byte_count   of the complete window
    starts, ends of the packets' fields in `data`
    packets      columns
    fields       of all packets, without those in `packets`
    """

    data: bytes
    byte_offset: int
    byte_count: int
    starts: Int64
    ends: Int64
    packets: Packets
    fields: FieldTable
    damage: tuple[Damage, ...]


class PacketFramer:
    """Turns bytes into windows of packets."""

    def __init__(self, byte_offset: int = 0, max_bytes: int = _MAX_LENGTH) -> None:
        """`max_bytes`: larger packets count as damaged."""
        self._buffer = bytearray()
        self._offset = byte_offset
        self._needed = WINDOW_BYTES
        self._max_bytes = min(max_bytes, _MAX_LENGTH)

    def feed(self, chunk: bytes) -> Iterator[Window]:
        """Take more bytes; yield the complete windows."""
        for first in range(0, len(chunk), WINDOW_BYTES):
            self._buffer += chunk[first : first + WINDOW_BYTES]
            if len(self._buffer) >= self._needed:
                yield from self._take(at_end=False)

    def finish(self) -> list[Window]:
        """Return the rest, when there are no more bytes."""
        return self._take(at_end=True) if self._buffer else []

    def _take(self, at_end: bool) -> list[Window]:
        data = bytes(self._buffer)
        bounds, damage, position = self._frame(data, at_end)
        window = _checked(data, bounds, damage, position, self._offset)
        del self._buffer[:position]
        self._offset += position
        # An incomplete packet may be large: wait for all of it.
        self._needed = max(WINDOW_BYTES, self._rest_needed(data, position))
        return [window] if len(window.starts) or window.damage else []

    def _rest_needed(self, data: bytes, position: int) -> int:
        try:
            size, start = varint(data, position + 1, len(data))
        except (WireError, IndexError):
            return 0
        return start - position + size if size <= self._max_bytes else 0

    def _frame(self, data: bytes, at_end: bool) -> tuple[Int64, list[tuple[int, int]], int]:
        """Bounds of the packets by their lengths, damaged ranges, and where the bytes left for later begin."""
        damage: list[tuple[int, int]] = []
        size = len(data)
        bounds, at = messages(data, 0, size, TAG, self._max_bytes)
        parts = [bounds]
        while at < size:
            # No complete packet begins here.
            if data[at] == TAG and at + 1 < size:
                try:
                    length, start = varint(data, at + 1, min(size, at + 11))
                except WireError:
                    if not at_end and size - at < 11:
                        break
                    length, start = self._max_bytes + 1, at
                if length <= self._max_bytes and not at_end and self._may_grow(data, start, size):
                    break
            elif data[at] == TAG and not at_end:
                break
            found = find_packet(data, at + 1, size, at_end)
            damage.append((at, found))
            at = found
            if not at_end and size - found < _MAX_SEARCHED:
                break
            bounds, at = messages(data, at, size, TAG, self._max_bytes)
            parts.append(bounds)
        return np.concatenate(parts), damage, min(at, size)

    def _may_grow(self, data: bytes, start: int, size: int) -> bool:
        """Whether the available bytes can be the beginning of a packet."""
        if size - start < 2 * WINDOW_BYTES:
            return True
        return _is_packet(data, start, size, is_complete=False)


def find_packet(data: bytes, at: int, size: int, at_end: bool) -> int:
    """Return where the tag of the next packet is in `data` from `at` to `size`; `size` if there is none."""
    while (at := data.find(TAG, at, size)) >= 0:
        try:
            length, start = varint(data, at + 1, min(size, at + 6))
        except WireError:
            if not at_end and size - at < 6:
                return at
            at += 1
            continue
        end = start + length
        if 0 < length <= _MAX_SEARCHED:
            if end <= size:
                followed = end == size or data[end] == TAG
                if followed and _is_packet(data, start, end, is_complete=True):
                    return at
            elif not at_end and _is_packet(data, start, size, is_complete=False):
                return at
        at += 1
    return size


def _is_packet(data: bytes, start: int, end: int, is_complete: bool) -> bool:
    is_identified, ftrace, count = not is_complete, 0, 0
    try:
        for number, kind, _, _ in fields(data, start, end):
            count += 1
            ftrace += number == _FTRACE
            is_identified = is_identified or number in _IDENTIFYING
            if _KINDS.get(number, kind) != kind or kind > LEN or count > _MAX_FIELDS or ftrace > 1 or number > 1200:
                return False
    except CutError:
        return not is_complete and count > 0
    except WireError:
        return False
    return is_identified


def _checked(data: bytes, bounds: Int64, damage: list[tuple[int, int]], position: int, offset: int) -> Window:
    """The packets with sound fields, and those found inside the others."""
    packets, found = _read(data, bounds)
    if not found.sound.all():
        bounds, damage = _recovered(data, bounds, found.sound, damage, position)
        packets, found = _read(data, bounds)
    losses = tuple(Damage(offset + start, stop - start, stop == len(data)) for start, stop in _joined(sorted(damage)))
    return Window(data, offset, position, bounds[:, 0], bounds[:, 1], packets, found, losses)


def _read(data: bytes, bounds: Int64) -> tuple[Packets, FieldTable]:
    """The columns of packets, their other fields, and which packets are sound."""
    if not native.AVAILABLE:
        found = walk(data, bounds)
        return _split(found, found.sound & _plausible(found, len(bounds)))
    columns, others, sound = native.packets(data, np.ascontiguousarray(bounds), _TELLING_KINDS)
    numbers = np.frombuffer(columns, np.int64).reshape(_COLUMNS, len(bounds))
    sequence, time, clock, flags = numbers[2:6].view(np.uint64)
    packets = Packets(numbers[0], numbers[1], sequence, time, clock, flags, numbers[6] != 0)
    return packets, field_table(np.frombuffer(others, FIELD), np.frombuffer(sound, np.bool_))


def _split(found: FieldTable, sound: Mask) -> tuple[Packets, FieldTable]:
    """Return fields as columns and other fields. Fields of a packet are in order: the last of several counts."""
    count = len(sound)
    is_event = (found.number == pb.TRACK_EVENT) & (found.kind == LEN)
    start, end = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    start[found.row[is_event]] = found.at[is_event]
    end[found.row[is_event]] = found.at[is_event] + found.value[is_event].astype(np.int64)
    is_other, numbers = ~is_event, np.zeros((len(_NUMBERS), count), np.uint64)
    timed = np.zeros(count, np.bool_)
    for place, number in enumerate(_NUMBERS):
        of = (found.number == number) & (found.kind != LEN)
        is_other &= ~of
        numbers[place][found.row[of]] = found.value[of]
        if number == pb.TIMESTAMP:
            timed[found.row[of]] = True
    others = FieldTable(
        row=found.row[is_other],
        number=found.number[is_other],
        kind=found.kind[is_other],
        value=found.value[is_other],
        at=found.at[is_other],
        sound=sound,
    )
    sequence, time, clock, flags = numbers
    return Packets(start, end, sequence, time, clock, flags, timed), others


def _plausible(found: FieldTable, count: int) -> Mask:
    """For each packet, whether known fields have their kinds, and it doesn't consist of packets."""
    near = np.flatnonzero(found.number < 128)
    expected = _TELLING_KINDS[found.number[near]]
    wrong = near[(expected >= 0) & (expected != found.kind[near])]
    good = np.ones(count, np.bool_)
    good[found.row[wrong]] = False
    inner = found.row[found.number == _FTRACE]
    good[np.bincount(inner, minlength=count) > 1] = False
    good[found.row[found.number > 1200]] = False
    good[found.row[(found.kind == FIXED64) & (found.number < 128)]] = False
    return good


def _recovered(
    data: bytes, bounds: Int64, sound: Mask, damage: list[tuple[int, int]], position: int
) -> tuple[Int64, list[tuple[int, int]]]:
    """Search for packets between the sound ones; return all packets and the damaged ranges."""
    kept: list[tuple[int, int]] = list(map(tuple, bounds[sound].tolist()))
    tags = [_tag_of(data, start, before) for (start, _), before in zip(kept, [0, *(e for _, e in kept)], strict=False)]
    gaps = list(zip([0, *(end for _, end in kept)], [*tags, position], strict=True))
    wrong = np.array([start for start, _ in gaps], np.int64)
    searched = set((np.searchsorted(wrong, bounds[~sound, 0], side="right") - 1).tolist())
    # Where no packet is in doubt, framing has already found the damaged range.
    where = np.searchsorted(wrong, [start for start, _ in damage], side="right") - 1
    lost = [one for one, gap in zip(damage, where.tolist(), strict=True) if gap not in searched]
    for gap in sorted(searched):
        lost_from, stop = gaps[gap]
        at = lost_from - 1
        while (at := find_packet(data, at + 1, stop, at_end=True)) < stop:
            length, start = varint(data, at + 1, stop)
            lost.append((lost_from, at))
            kept.append((start, start + length))
            lost_from = start + length
            at = lost_from - 1
        lost.append((lost_from, stop))
    kept.sort()
    return np.array(kept, np.int64).reshape(-1, 2), lost


def _tag_of(data: bytes, start: int, before: int) -> int:
    """Where the tag of the packet with fields from `start` on is; not before `before`."""
    at = start - 2
    while at > before and data[at] >= 0x80:
        at -= 1
    return max(at, before)


def _joined(damage: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in damage:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        elif stop > start:
            joined.append((start, stop))
    return joined
