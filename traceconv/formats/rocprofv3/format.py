"""The format of rocprofv3's JSON output."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"\s*:')


FORMAT = Format(
    "rocprofv3",
    "an output of rocprofv3 (JSON)",
    lambda head: 98 if _OPENING.match(head) else 0,
    "traceconv.formats.rocprofv3.reader:Rocprofv3Reader",
    "traceconv.formats.rocprofv3.locate:locate",
    event_times="start_timestamp, and end_timestamp minus it: ns in the file",
)
