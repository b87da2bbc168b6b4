"""Packets of a Perfetto trace: the encoding of single fields, and templates of events."""

from __future__ import annotations

from traceconv.export.record_kinds import Kind
from traceconv.export.templates import Template
from traceconv.wire.protobuf import encode_varint

#: Fields: TracePacket, TrackEvent, TracingServiceEvent, DebugAnnotation, TrackDescriptor; see Perfetto's .proto files.
PACKET, TIMESTAMP, SNAPSHOT, SEQUENCE, EVENT, INTERNED, FLAGS, DESCRIPTOR, BUNDLE = 1, 8, 6, 10, 11, 12, 13, 60, 5
CATEGORY, NOTES, TYPE, NAME, TRACK, VALUE, DOUBLE_VALUE, FLOWS, FLOW_ENDS = 3, 4, 9, 10, 11, 30, 44, 47, 48
SERVICE, ALL_STARTED, DISABLED = 69, 1, 5
NOTE_NAME, NOTE_BOOL, NOTE_INT, NOTE_TEXT, NOTE_JSON = 1, 2, 4, 17, 9
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
_SEQUENCE_ID = 1
_NEEDS_STATE = 2


def tag(number: int, kind: int) -> bytes:
    """Encode the tag of a field: wire type 0 is a varint, 1 eight bytes, 2 bytes with a length."""
    return encode_varint(number << 3 | kind)


def number_field(number: int, value: int) -> bytes:
    """Encode a varint field."""
    return tag(number, 0) + encode_varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field of bytes."""
    return tag(number, 2) + encode_varint(len(value)) + value


def packet(*parts: bytes, flags: int = 0) -> bytes:
    """Encode a packet; the trace has a single sequence."""
    head = number_field(SEQUENCE, _SEQUENCE_ID) + (number_field(FLAGS, flags) if flags else b"")
    return bytes_field(PACKET, head + b"".join(parts))


def note(event: Template, name: int, form: int, column: str) -> None:
    """Append a debug annotation with a number; `name` is the ID of its interned name."""
    event.put(Kind.NOTE, column, tag(NOTES, 2), number_field(NOTE_NAME, name) + tag(form, 0))


def packet_of(time: str, event: Template) -> Template:
    """Return the packet of an event; `time` is the column of its timestamp."""
    packet = Template().put(Kind.VARINT, time, tag(TIMESTAMP, 0))
    packet.literal(number_field(SEQUENCE, _SEQUENCE_ID) + number_field(FLAGS, _NEEDS_STATE))
    return Template().length(tag(PACKET, 2), packet.length(tag(EVENT, 2), event))
