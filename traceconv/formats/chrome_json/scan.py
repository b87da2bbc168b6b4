"""Where objects, values and events begin and end in JSON text, which may be damaged or truncated."""

from __future__ import annotations

import re

from traceconv import native

#: First keys of events, searched for in damaged text and at the end of chunks.
_KEYS = rb"ph|name|cat|pid|tid|ts|id|dur|args|tts|tdur|bp|s|scope|bind_id|id2"
#: The start of an event: a brace after a separator, or after a byte that JSON has only in strings, and such a key.
EVENT_START = re.compile(rb'\{(?<=[\x00-\x20,\[}\x80-\xff]\{)\s*"(?:' + _KEYS + rb')"\s*:')
#: An unterminated string goes on to the end: else each quote in it would be tried as the start of another.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\[\s\S][^"\\]*)*(?:"|\\?\Z)|[{}\[\]]')
_STRING = re.compile(rb'"[^"\\]*(?:\\[\s\S][^"\\]*)*(?:(")|\\?\Z)')
_SCALAR_END = re.compile(rb"[,}\]\s]")
_SPACE = re.compile(rb"[ \t\r\n]*")
_BACK_BYTES = 1 << 12


def skip_space(text: bytes, at: int) -> int:
    """Return the position of the first non-blank byte from `at` on."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def end_of_bracketed(text: bytes, at: int, limit: int | None = None) -> int | None:
    """Return the end of the object or array that begins at `at`; None if it doesn't end before `limit`."""
    stop = len(text) if limit is None else limit
    if native.AVAILABLE:
        return native.end_of_bracketed(text, at, stop)
    depth = 0
    for match in _TOKEN.finditer(text, at, stop):
        token = match[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth <= 0:
                return match.end()
    return None


def end_of_value(text: bytes, at: int, final: bool) -> int | None:
    """Return the end of the value that begins at `at`; None if the text ends first."""
    first = text[at : at + 1]
    if first in (b"{", b"["):
        return end_of_bracketed(text, at)
    if first == b'"':
        return end_of_string(text, at)
    match = _SCALAR_END.search(text, at)
    return match.start() if match else (len(text) if final else None)


def end_of_string(text: bytes, at: int) -> int | None:
    """Return the end of the string that begins at `at`; None if the text ends first."""
    match = _STRING.match(text, at)
    return match.end() if match and match[1] else None


def event_starts(text: bytes, at: int, end: int) -> list[int]:
    """Return `at` and all positions in `text[at:end]` where an event seems to begin."""
    found = [match.start() for match in EVENT_START.finditer(text, at, end)]
    return found if found and found[0] == at else [at, *found]


def next_event_start(text: bytes, at: int, end: int) -> int:
    """Return the first position in `text[at:end]` where an event seems to begin; `end` if there is none."""
    match = EVENT_START.search(text, at, end)
    return match.start() if match else end


def last_event_starts(text: bytes) -> list[int]:
    """Return the last positions after 0 where an event seems to begin, in order."""
    span = _BACK_BYTES
    while True:
        start = max(1, len(text) - span)
        found = [match.start() for match in EVENT_START.finditer(text, start)]
        if len(found) > 1 or start == 1:
            return found
        span *= 8
