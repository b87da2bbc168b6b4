"""The format of traces in Chrome's JSON."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_EVENTS = re.compile(rb'"traceEvents"\s*:')
_EVENT = re.compile(rb'"ph"\s*:')
_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*(?:\{|\]|$)|\{\s*(?:"|\}))')


def sniff(head: bytes) -> int:
    """Return how likely a text with these first bytes is such a trace, from 0 to 100."""
    if not _OPENING.match(head):
        return 0
    if _EVENTS.search(head):
        return 95
    return 90 if _EVENT.search(head) else 20


FORMAT = Format(
    "chrome_json",
    "a trace in Chrome's JSON",
    sniff,
    "traceconv.formats.chrome_json.reader:TraceFileReader",
    "traceconv.formats.chrome_json.locate:locate",
    read_ahead=True,
)
