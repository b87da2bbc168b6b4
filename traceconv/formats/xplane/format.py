"""The format of XSpace, the profile of JAX and XLA in protobuf (`*.xplane.pb`)."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

#: XSpace.planes: a message (field 1), which begins with an id (field 1, omitted if 0) and a name (field 2).
_PLANE = re.compile(rb"\x0a[\x80-\xff]{0,5}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12([\x01-\x7f])")


def sniff(head: bytes) -> int:
    """Confidence, 0 to 100, that a file with these first bytes is an XSpace."""
    match = _PLANE.match(head)
    if match is None:
        return 0
    name_bytes = head[match.end() : match.end() + match[1][0]]
    readable = len(name_bytes) == match[1][0] and all(32 <= byte < 127 for byte in name_bytes)
    # After the name: lines (3), names of events (4) or of statistics (5), or the next plane.
    following = head[match.end() + match[1][0] :][:1]
    return 85 if readable and following in (b"\x1a", b"\x22", b"\x2a", b"\x32", b"\x0a", b"") else 0


FORMAT = Format(
    "xplane",
    "a profile of JAX or XLA (XSpace)",
    sniff,
    "traceconv.formats.xplane.reader:XplaneReader",
    "traceconv.formats.xplane.locate:locate",
    read_ahead=True,
    event_times="the start of the line plus offset_ps, and duration_ps: ps in the file",
)
