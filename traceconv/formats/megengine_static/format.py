"""The format of static profiles of MegEngine."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:profiler|graph_exec)"\s*:\s*\{')
_MEMBER = re.compile(rb'"(?:opr_internal_pf|opr_footprint|comp_seq|mem_chunk|operator|var|device|host)"\s*:')


FORMAT = Format(
    "megengine_static",
    "a static profile of MegEngine",
    lambda head: 94 if _OPENING.match(head) and _MEMBER.search(head) else 0,
    "traceconv.formats.megengine_static.reader:MegEngineStaticReader",
    "traceconv.formats.megengine_static.locate:locate",
    event_times="start, and end minus start: seconds in the file",
)
