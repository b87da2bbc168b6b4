"""Whether a text may be results of rocprofv3 in JSON."""

from __future__ import annotations

import re

name = "rocprofv3"

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"\s*:')


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a text with these first bytes is for this reader."""
    return 98 if _OPENING.match(head) else 0
