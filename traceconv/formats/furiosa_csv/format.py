"""How a trace of Furiosa's profiler (CSV) is recognised and opened."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

#: The first cells of the header, in this order, in every version.
HEAD = ("trace_id", "parent_span_id", "span_id", "start", "end", "cat", "name")
#: How a line begins that begins a record: three ids, start and end.
BEGINS = re.compile(rb"(?:[^,\n]*,){3}-?[0-9]{1,19},-?[0-9]{1,19},")
_SIGNATURE = ",".join((*HEAD, "thread.id")).encode()


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a text with these first bytes is for this reader."""
    return 96 if head.removeprefix(b"\xef\xbb\xbf").startswith(_SIGNATURE) else 0


FORMAT = Format(
    "furiosa_csv",
    "a trace of Furiosa's profiler (CSV)",
    sniff,
    "traceconv.formats.furiosa_csv.reader:FuriosaCsvReader",
    "traceconv.formats.furiosa_csv.locate:locate",
    event_times="start, and end less start: ns in the file",
)
