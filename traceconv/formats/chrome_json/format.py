"""The format of traces in Chrome's JSON."""

from __future__ import annotations

import glob
import re
from pathlib import Path

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


def _why_skipped(path: Path) -> str | None:
    """JAX writes the events of an XSpace again in JSON, without some, and once more with create_perfetto_trace."""
    host = path.name.removesuffix(".trace.json.gz")
    if path.name == "perfetto_trace.json.gz":
        repeated = [("*", "xplane.pb"), ("*", "trace.json.gz")]
    elif host != path.name:
        repeated = [(glob.escape(host), "xplane.pb")]
    else:
        return None
    for start, end in repeated:
        try:
            if any(path.parent.glob(f"{start}.{end}")):
                return f"repeats the {end} next to it"
        except OSError:
            continue
    return None


FORMAT = Format(
    "chrome_json",
    "a trace in Chrome's JSON",
    sniff,
    "traceconv.formats.chrome_json.reader:TraceFileReader",
    "traceconv.formats.chrome_json.locate:locate",
    read_ahead=True,
    why_skipped=_why_skipped,
)
