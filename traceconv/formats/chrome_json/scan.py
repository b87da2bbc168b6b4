"""Where things in JSON text end: objects, values, events; string-aware, and calm with text that is cut or damaged."""

from __future__ import annotations

import re

from traceconv.formats.chrome_json import marks

#: What an event may begin with. It is sought in damaged text, and at the end of chunks.
_KEYS = rb"ph|name|cat|pid|tid|ts|id|dur|args|tts|tdur|bp|s|scope|bind_id|id2"
#: An event begins here: a brace behind a separator, or what JSON has nowhere but in strings, and a key of events.
EVENT_START = re.compile(rb'\{(?<=[\x00-\x20,\[}\x80-\xff]\{)\s*"(?:' + _KEYS + rb')"\s*:')
#: A string that nothing ends goes on to the end: else each quote in it is tried as the beginning of another.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\[\s\S][^"\\]*)*(?:"|\\?\Z)|[{}\[\]]')
_STRING = re.compile(rb'"[^"\\]*(?:\\[\s\S][^"\\]*)*(?:(")|\\?\Z)')
_SCALAR_END = re.compile(rb"[,}\]\s]")
_SPACE = re.compile(rb"[ \t\r\n]*")
_BACK_BYTES = 1 << 12
#: Longer things are sought by the places of all quotes and brackets.
_SHORT_BYTES = 4 << 10


def skip_space(text: bytes, at: int) -> int:
    """The place of the first byte from `at` on that is no blank."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def end_of_bracketed(text: bytes, at: int, limit: int | None = None) -> int | None:
    """The end of the object or array that begins at `at`; None when it does not end before `limit`."""
    stop = len(text) if limit is None else limit
    depth = 0
    for match in _TOKEN.finditer(text, at, min(stop, at + _SHORT_BYTES)):
        token = match[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth <= 0:
                return match.end()
    if stop - at <= _SHORT_BYTES:
        return None
    return marks.end_of_bracketed(text, at, stop)


def end_of_value(text: bytes, at: int, final: bool) -> int | None:
    """The end of the value that begins at `at`; None when the text ends before it does."""
    first = text[at : at + 1]
    if first in (b"{", b"["):
        return end_of_bracketed(text, at)
    if first == b'"':
        return end_of_string(text, at)
    match = _SCALAR_END.search(text, at)
    return match.start() if match else (len(text) if final else None)


def end_of_string(text: bytes, at: int) -> int | None:
    """The end of the string that begins at `at`; None when the text ends before it does."""
    match = _STRING.match(text, at)
    return match.end() if match and match[1] else None


def event_starts(text: bytes, at: int, end: int) -> list[int]:
    """All places in `text[at:end]` where an event seems to begin."""
    found = [match.start() for match in EVENT_START.finditer(text, at, end)]
    return found if found and found[0] == at else [at, *found]


def next_event_start(text: bytes, at: int, end: int) -> int:
    """The first place in `text[at:end]` where an event seems to begin; `end` when there is none."""
    match = EVENT_START.search(text, at, end)
    return match.start() if match else end


def last_event_starts(text: bytes, at: int) -> list[int]:
    """The last places after `at` where an event seems to begin, in order; none when there is none."""
    span = _BACK_BYTES
    while True:
        start = max(at + 1, len(text) - span)
        found = [match.start() for match in EVENT_START.finditer(text, start)]
        if len(found) > 1 or start == at + 1:
            return found
        span *= 8
