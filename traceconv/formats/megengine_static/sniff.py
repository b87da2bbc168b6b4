"""Whether a text may be the profile of a static graph that MegEngine writes."""

from __future__ import annotations

import re

name = "megengine_static"

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:profiler|graph_exec)"\s*:\s*\{')
_MEMBER = re.compile(rb'"(?:opr_internal_pf|opr_footprint|comp_seq|mem_chunk|operator|var|device|host)"\s*:')


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a text with these first bytes is for this reader."""
    return 94 if _OPENING.match(head) and _MEMBER.search(head) else 0
