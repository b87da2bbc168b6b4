"""How a Perfetto trace (protobuf) is recognised and opened."""

from __future__ import annotations

from traceconv.formats.format import Format

_PACKET_TAG = 0x0A
#: The packets that are looked at, and the most that a packet may have of fields.
_PACKETS = 8
_FIELDS = 10_000
_MAX_FIELD = 1200


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a file with these first bytes is for this reader."""
    at, seen, known = 0, 0, 0
    while at < len(head) and seen < _PACKETS:
        if head[at] != _PACKET_TAG:
            return 0
        length = _varint(head, at + 1)
        if length is None:
            break
        size, at = length
        if size > 1 << 30:
            return 0
        packet = head[at : at + size]
        fields = _fields(packet, len(packet) == size)
        if fields is None:
            return 0
        # A time, a sequence, its flags, clocks, an event, a track, packed packets: nearly every packet has one.
        known += bool(fields & {6, 8, 10, 11, 12, 13, 33, 36, 50, 60, 89, 133})
        seen += 1
        at += size
    return 80 if known * 2 > seen else 0


def _varint(data: bytes, at: int) -> tuple[int, int] | None:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return None
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return None


def _fields(packet: bytes, whole: bool) -> set[int] | None:
    """The numbers of a packet's fields; None when it is no message."""
    found: set[int] = set()
    at = 0
    for _ in range(_FIELDS):
        if at >= len(packet):
            return found if at == len(packet) or not whole else None
        tag = _varint(packet, at)
        if tag is None:
            return None if whole else found
        number, kind = tag[0] >> 3, tag[0] & 7
        at = tag[1]
        if number == 0 or number > _MAX_FIELD:
            return None
        if kind == 0 or kind == 2:
            value = _varint(packet, at)
            if value is None:
                return None if whole else found
            at = value[1] + (value[0] if kind == 2 else 0)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            return None
        found.add(number)
    return found


FORMAT = Format(
    "perfetto_proto",
    "a Perfetto trace (protobuf)",
    sniff,
    "traceconv.formats.perfetto_proto.reader:PerfettoReader",
)
