"""The format of the CSV of Furiosa's profiler."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

#: The first cells of the header, in this order, in every version.
HEAD = ("trace_id", "parent_span_id", "span_id", "start", "end", "cat", "name")
#: The beginning of a line that begins a record: three ids, start and end.
BEGINS = re.compile(rb"(?:[^,\n]*,){3}-?[0-9]{1,19},-?[0-9]{1,19},")
_SIGNATURE = ",".join((*HEAD, "thread.id")).encode()


FORMAT = Format(
    "furiosa_csv",
    "a trace of Furiosa's profiler (CSV)",
    lambda head: 96 if head.removeprefix(b"\xef\xbb\xbf").startswith(_SIGNATURE) else 0,
    "traceconv.formats.furiosa_csv.reader:FuriosaCsvReader",
    "traceconv.formats.furiosa_csv.locate:locate",
    event_times="start, and end minus start: ns in the file",
)
