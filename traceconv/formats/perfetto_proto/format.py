"""How a Perfetto trace (protobuf) is recognised and opened."""

from __future__ import annotations

from traceconv.formats.format import Format

_PACKET_TAG = 0x0A
#: Packets to look at.
_PACKETS = 8
_MAX_FIELD = 1200
#: Nearly every packet has one: timestamp, sequence, flags, clocks, event, track, compressed packets.
_USUAL_FIELDS = frozenset((6, 8, 10, 11, 12, 13, 33, 36, 50, 60, 89, 133))


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a file with these first bytes is for this reader."""
    from traceconv.wire.protobuf import WireError, fields, varint  # loads numpy

    at = seen = usual = 0
    while at < len(head) and seen < _PACKETS:
        numbers: set[int] = set()
        try:
            if head[at] != _PACKET_TAG:
                return 0
            size, start = varint(head, at + 1, at + 11)
            at = start + size
            for number, *_ in fields(head, start, at):
                numbers.add(number)
        except IndexError:  # the packet goes on after these bytes
            if not numbers:
                break
        except WireError:
            return 0
        if size > 1 << 30 or max(numbers, default=0) > _MAX_FIELD:
            return 0
        usual += not numbers.isdisjoint(_USUAL_FIELDS)
        seen += 1
    return 80 if usual * 2 > seen else 0


FORMAT = Format(
    "perfetto_proto",
    "a Perfetto trace (protobuf)",
    sniff,
    "traceconv.formats.perfetto_proto.reader:PerfettoReader",
)
