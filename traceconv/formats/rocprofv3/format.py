"""How an output of rocprofv3 (JSON) is recognised and opened."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"\s*:')


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a text with these first bytes is for this reader."""
    return 98 if _OPENING.match(head) else 0


FORMAT = Format(
    "rocprofv3",
    "an output of rocprofv3 (JSON)",
    sniff,
    "traceconv.formats.rocprofv3.reader:Rocprofv3Reader",
    "traceconv.formats.rocprofv3.locate:locate",
    event_times="start_timestamp, and end_timestamp less it: ns in the file",
)
