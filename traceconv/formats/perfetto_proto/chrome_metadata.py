"""Metadata of Chrome and its machine at the end of a trace (ChromeEventBundle.metadata): names and values.

Source: Perfetto's published protos/perfetto/trace/chrome/chrome_trace_event.proto.
"""

from __future__ import annotations

from typing import Final

from traceconv.formats.perfetto_proto.message import Message
from traceconv.wire.protobuf import WireError

_METADATA: Final = 2
_NAME, _TEXT, _BOOL, _INT, _JSON = 1, 2, 3, 4, 5


def read_metadata(data: bytes, start: int, end: int) -> dict[str, object] | None:
    """Return the metadata of a bundle; None if it has anything else, such as legacy events, or is damaged."""
    try:
        bundle = Message(data, start, end)
        pairs = [Message(data, first, last) for first, last in bundle.spans(_METADATA)]
        found = {name.decode(): _value(pair) for pair in pairs for name in pair.texts(_NAME)[-1:]}
    except (WireError, UnicodeDecodeError):
        return None
    return None if len(bundle) else found


def _value(pair: Message) -> object:
    texts = pair.texts(_TEXT) + pair.texts(_JSON)
    if texts:
        return texts[-1].decode()
    is_true = pair.number(_BOOL)
    return pair.signed(_INT) if is_true is None else bool(is_true)
