"""The format of speedscope profiles."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"')
_SCHEMA = re.compile(rb'"\$schema"\s*:\s*"[^"]*speedscope[^"]*file-format-schema')
_FRAMES = re.compile(rb'"shared"\s*:\s*\{\s*"frames"\s*:\s*\[')
_PROFILES = re.compile(rb'"profiles"\s*:\s*\[\s*\{[^{}\[\]]*"type"\s*:\s*"(?:evented|sampled)"')


def sniff(head: bytes) -> int:
    """Confidence, 0 to 100, that a text with these first bytes is a speedscope profile."""
    if not _OPENING.match(head):
        return 0
    if _SCHEMA.search(head):
        return 97
    return 93 if _FRAMES.search(head) or _PROFILES.search(head) else 0


FORMAT = Format(
    "speedscope",
    "a speedscope profile",
    sniff,
    "traceconv.formats.speedscope.reader:SpeedscopeReader",
    "traceconv.formats.speedscope.locate:locate",
    event_times="times of events; in a sampled profile, sums of weights",
)
