"""The part of a track event that keeps what it was in trace JSON: phase, duration, IDs, flows."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Raw

from traceconv.formats.perfetto_proto.annotations import quoted
from traceconv.formats.perfetto_proto.sequences import Texts
from traceconv.wire.protobuf import LEN, fields, signed

_SCOPES = {1: "g", 2: "p", 3: "t"}
_FLOW_IN, _FLOW_OUT, _FLOW_BOTH = 1, 2, 3


@dataclass(slots=True)
class Legacy:
    """A LegacyEvent; None for what it doesn't have. `extra`: keys as in trace JSON."""

    name_iid: int = 0
    phase: str | None = None
    dur_ns: int | None = None
    thread_dur_ns: int | None = None
    id: bytes = b""
    scope: str | None = None
    instant_scope: str | None = None
    binds_enclosing: bool = False
    pid: int | None = None
    tid: int | None = None
    instructions: int | None = None
    extra: dict[str, Raw] = field(default_factory=dict)


def parse_legacy(data: bytes, start: int, end: int, texts: Texts) -> Legacy:
    """Parse a LegacyEvent. Raises WireError."""
    found = Legacy()
    for number, kind, value, at in fields(data, start, end):
        if number == 1:
            found.name_iid = value
        elif number == 2 and 0 < value < 127:
            found.phase = chr(value)
        elif number == 3:
            found.dur_ns = signed(value) * 1000
        elif number == 4:
            found.thread_dur_ns = signed(value) * 1000
        elif number == 6:
            found.id = b'"%#x"' % value
        elif number == 7 and kind == LEN:
            found.scope = texts.text(data[at : at + value])
        elif number == 8:
            found.extra["bind_id"] = Raw(b'"%#x"' % value)
        elif number in (10, 11):
            found.extra["id2"] = Raw(b'{"%s":"%#x"}' % (b"local" if number == 10 else b"global", value))
        elif number == 9 and value:
            found.extra["use_async_tts"] = Raw(b"1")
        elif number == 12:
            found.binds_enclosing = bool(value)
        elif number == 13:
            if value in (_FLOW_IN, _FLOW_BOTH):
                found.extra["flow_in"] = Raw(b"true")
            if value in (_FLOW_OUT, _FLOW_BOTH):
                found.extra["flow_out"] = Raw(b"true")
        elif number == 14:
            found.instant_scope = _SCOPES.get(value)
        elif number == 15:
            found.instructions = signed(value)
        elif number in (18, 19) and signed(value) not in (0, -1):
            if number == 18:
                found.pid = signed(value)
            else:
                found.tid = signed(value)
        elif number not in (2, 9, 18, 19):
            text = quoted(data[at : at + value].hex()) if kind == LEN else str(value)
            found.extra[f"legacy_event_field_{number}"] = Raw(text.encode())
    return found
