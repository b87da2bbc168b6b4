"""The format of XSpace, the profile of JAX and XLA in protobuf (`*.xplane.pb`): recognised, not supported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

from traceconv.base.errors import InputError, printable
from traceconv.formats.format import Format, ReadRequest

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


def not_supported(request: ReadRequest) -> NoReturn:
    """Refuse a file of this format."""
    raise InputError(
        f"{printable(str(request.path))} is a profile of JAX or XLA in protobuf (XSpace), which is not supported yet; "
        "ingest the trace.json.gz next to it"
    )


def _why_skipped(path: Path) -> str | None:
    try:
        traces = any(path.parent.glob("*.trace.json.gz"))
    except OSError:
        return None
    return "is read from the trace.json.gz next to it" if traces else None


FORMAT = Format(
    "xplane",
    "a profile of JAX or XLA (XSpace)",
    sniff,
    "traceconv.formats.xplane.format:not_supported",
    why_skipped=_why_skipped,
)
