"""What Chrome says of itself and of its machine at the end of a trace (ChromeEventBundle.metadata): names and values.

Source: Perfetto's published protos/perfetto/trace/chrome/chrome_trace_event.proto.
"""

from __future__ import annotations

from typing import Final

from traceconv.wire.protobuf import LEN, VARINT, WireError, fields, signed

_METADATA: Final = 2
_NAME, _TEXT, _BOOL, _INT, _JSON = 1, 2, 3, 4, 5


def read_metadata(data: bytes, start: int, end: int) -> dict[str, object] | None:
    """The metadata of a bundle; None when it holds anything else, such as events of old, or is damaged."""
    found: dict[str, object] = {}
    try:
        for number, kind, value, at in fields(data, start, end):
            if number != _METADATA or kind != LEN:
                return None
            name, said = _pair(data, at, at + value)
            if name is not None:
                found[name] = said
    except (WireError, UnicodeDecodeError):
        return None
    return found


def _pair(data: bytes, start: int, end: int) -> tuple[str | None, object]:
    name: str | None = None
    said: object = None
    for number, kind, value, at in fields(data, start, end):
        if kind == LEN and number in (_NAME, _TEXT, _JSON):
            text = data[at : at + value].decode()
            if number == _NAME:
                name = text
            else:
                said = text
        elif kind == VARINT and number in (_BOOL, _INT):
            said = bool(value) if number == _BOOL else signed(value)
    return name, said
