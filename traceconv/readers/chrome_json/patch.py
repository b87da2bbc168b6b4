"""JSON that is nearly right → JSON, with nothing of it changed that can be kept.

Raw control characters in strings, escapes that there are none of, lone surrogates, bytes that are not UTF-8, bare
NaN and the like, commas before a closing bracket, and values nested too deep for any parser (kept as text).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

#: Levels of brackets that an event may have; what lies deeper is kept as text.
MAX_DEPTH = 128

_TOKEN = re.compile(rb'"(?:[^"\\]|\\[\s\S])*"|[^"]+|"')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(\\|["/bfnrt]|u[0-9a-fA-F]{4})?')
_HIGH_LOW = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"u[dD][89a-fA-F]")
_BARE = re.compile(
    rb"(?<=[\s:,\[])(?:[+-]?(?:NaN|nan|NAN|Infinity|infinity|inf|Inf|INF)|N/A|None|True|False|undefined|\+[0-9][^\s,\]}]*|-?0[0-9][^\s,\]}]*|-?\.[0-9][^\s,\]}]*|-?[0-9]+\.(?=[\s,\]}]))(?=[\s,\]}])"
)
_LAST_COMMA = re.compile(rb",(\s*[}\]])")
_BRACKET = re.compile(rb'"(?:[^"\\]|\\[\s\S])*"|[{}\[\]]')


@dataclass(frozen=True, slots=True)
class Patched:
    """Text that was made right.

    at          offset of the first thing that was wrong; None when there was nothing
    what        in words, what was wrong
    lost_bytes  bytes that are not UTF-8, each now U+FFFD
    """

    text: bytes
    at: int | None
    what: tuple[str, ...]
    lost_bytes: int


def patch(text: bytes) -> Patched:
    """`text` with everything that can be put right put right; it may still be no JSON."""
    wrong: dict[str, int] = {}
    lost = 0
    text = _flatten(text, wrong)
    parts: list[bytes] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token[:1] != b'"':
            fixed = _LAST_COMMA.sub(rb"\1", token)
            if fixed != token:
                wrong.setdefault("comma before a closing bracket", match.start() + _first_difference(token, fixed))
            # What is bare stands behind a blank, a colon, a comma or a bracket, and before one.
            quoted = _BARE.sub(rb'"\g<0>"', fixed + b" " if match.end() == len(text) else fixed)
            if len(quoted) > len(fixed) + 1:
                bare = _BARE.search(token)
                wrong.setdefault("number that JSON does not have", match.start() + (bare.start() if bare else 0))
            parts.append(quoted)
            continue
        if token.isascii() and b"\\" not in token and not _CONTROL.search(token):
            parts.append(token)
            continue
        control = _CONTROL.search(token)
        if control:
            wrong.setdefault("control character in a string", match.start() + control.start())
            token = _CONTROL.sub(_escape_control, token)
        if b"\\" in token:
            fixed = _fix_escapes(token)
            if fixed != token:
                wrong.setdefault("escape that JSON does not have", match.start() + _first_difference(token, fixed))
                token = fixed
        if not token.isascii():
            try:
                token.decode()
            except UnicodeDecodeError as error:
                wrong.setdefault("bytes that are not UTF-8", match.start() + error.start)
                lost += len(token.decode("utf-8", "surrogateescape")) - len(token.decode("utf-8", "ignore"))
                token = token.decode("utf-8", "replace").encode()
        parts.append(token)
    return Patched(b"".join(parts), min(wrong.values(), default=None), tuple(wrong), lost)


def _escape_control(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % match[0][0]


def _fix_escapes(token: bytes) -> bytes:
    """Escapes that JSON does not have, and halves of surrogate pairs, as the characters they are written with."""
    pairs = {position for match in _HIGH_LOW.finditer(token) for position in (match.start(), match.start() + 6)}

    def fix(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return b"\\\\"
        if _SURROGATE.match(match[1]) and match.start() not in pairs:
            return b"\\" + match[0]
        return match[0]

    return _BAD_ESCAPE.sub(fix, token)


def _first_difference(before: bytes, after: bytes) -> int:
    return next((place for place, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), 0)


def _flatten(text: bytes, wrong: dict[str, int]) -> bytes:
    """Values that lie deeper than `MAX_DEPTH` levels as strings of their own text."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return text
    depth, start, copied = 0, 0, 0
    parts: list[bytes] = []
    for match in _BRACKET.finditer(text):
        bracket = match[0]
        if bracket in b"{[":
            depth += 1
            if depth == MAX_DEPTH + 1:
                start = match.start()
        elif bracket in b"}]":
            depth -= 1
            if depth == MAX_DEPTH:
                wrong.setdefault(f"value nested more than {MAX_DEPTH} levels deep, kept as text", start)
                value = json.dumps(text[start : match.end()].decode("utf-8", "replace"), ensure_ascii=False)
                parts += [text[copied:start], value.encode()]
                copied = match.end()
    return b"".join([*parts, text[copied:]]) if parts else text
