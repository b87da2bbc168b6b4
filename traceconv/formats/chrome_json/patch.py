"""Repair non-standard JSON, changing as little as possible.

Handles raw control characters in strings, unknown escapes, lone surrogates, bytes that are not UTF-8, bare NaN and the
like, commas before a closing bracket, and values nested too deep (kept as text).

Kineto writes quotes in strings without a backslash. In the keys before the events, each of which has a line, it turns
all backslashes into slashes; in names and call stacks it adds none: these strings end where its next key begins. So do
names that onnxruntime writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from traceconv import native
from traceconv.base.diagnostics import Code, ImportLog

#: Levels of brackets in an event; deeper values are kept as text.
MAX_DEPTH = 128

#: Faults, in the order of the message.
_DEEP = f"value nested more than {MAX_DEPTH} levels deep, kept as text"
_COMMA = "comma before a closing bracket"
_WORD = "number that JSON does not allow"
_CONTROL = "control character in a string"
_BAD_ESCAPE = "escape that JSON does not allow"
_KINDS = (_DEEP, _COMMA, _WORD, _CONTROL, _BAD_ESCAPE)
_QUOTE = "quote in a string without a backslash"

#: An escaped half of a surrogate pair, perhaps without the other.
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
#: In a string: a control character, a surrogate pair, another valid escape, any other backslash.
_IN_STRING = re.compile(
    rb"(?P<control>[\x00-\x1f])|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb'|(?!\\u[dD][89a-fA-F][0-9a-fA-F]{2})\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(?P<escape>\\)'
)
#: Possible faults. Runs of sound strings and numbers, and bytes after a backslash outside strings, have no group name.
#: An unclosed quote begins no string. A wrong word follows a blank, a colon, a comma or a bracket. All begin with one
#: set of bytes, which makes the search fast.
_TOKEN = re.compile(
    rb'["\\{}\[\],+\-NnIiTFu.0](?:'
    rb'(?<=")(?:[^"\\\x00-\x1f]*"(?:\s*[:,]\s*(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?\s*,\s*)?"[^"\\\x00-\x1f]*")*'
    rb'|(?P<string>[^"\\]*(?:\\[\s\S][^"\\]*)*")|(?P<unclosed>))'
    rb'|(?<=\\)["\\]|(?P<open>(?<=[{\[]))|(?P<close>(?<=[}\]]))|(?P<comma>(?<=,)(?=\s*[}\]]))'
    rb"|(?<=[\s:,\[].)(?P<word>(?<=[+\-NnIiTFu.])|(?<=0)(?=[0-9]))|(?P<point>(?<=[0-9]\.)(?=[\s,\]}]|\Z)))"
)
_BEFORE = tuple(bytes([byte]) for byte in b" \t\r\n\v\f:,[")
_BARE = re.compile(rb"[+-]?(?:NaN|nan|NAN|Infinity|infinity|inf|Inf|INF)|N/A|None|True|False|undefined")
_LONGEST_BARE = 10
#: Beginnings of numbers that JSON does not allow; and a number that ends in its decimal point.
_WRONG_NUMBER = re.compile(rb"\+[0-9]|-?0[0-9]|-?\.[0-9]")
_POINTED = re.compile(rb"-?[0-9]+\.")
_BARE_END = re.compile(rb"[\s,\]}\"]|\Z")
#: In events of Kineto and onnxruntime: strings from the program, each on one line, what follows a name and others, and
#: quotes without a backslash.
_PROGRAM_STRING = re.compile(rb'"(?:(?P<name>name)|CallFrom|Call stack|Module Hierarchy)"(?:: | :)"')
_NAME_END = re.compile(rb'"(?=,\s*"(?:pid":|args" :))')
_VALUE_END = re.compile(rb'"(?=,\s*"[A-Z][A-Za-z ]*":|\s*\n)')
_BARE_QUOTE = re.compile(rb'(?<!\\)"')
#: In Kineto's keys: quotes whose backslash became a slash; the second pattern leaves strings that end in a slash.
_SLASHED_QUOTES = (re.compile(rb'/"(?!\Z)'), re.compile(rb'/"(?!\s*(?:[,:\]}]|\Z))'))
#: Larger texts are only repaired in C.
_MOST_BYTES = 4 << 20

#: (position, bytes to remove, bytes to insert, fault)
_Edit: TypeAlias = tuple[int, int, bytes, str]


@dataclass(frozen=True, slots=True)
class Patched:
    """Repaired text.

    at          offset of the first fault; None if there was none
    what        descriptions of the faults
    lost_bytes  bytes that are not UTF-8, each now U+FFFD
    count       number of faults
    """

    text: bytes
    at: int | None
    what: tuple[str, ...]
    lost_bytes: int
    count: int

    def log_to(self, log: ImportLog, start: int, source_id: int = 1) -> None:
        """Log the faults, if any; `start`: byte offset of the text in its file."""
        if self.at is not None:
            log.add(
                Code.BAD_BYTES if self.lost_bytes else Code.ODD_JSON,
                ", ".join(self.what),
                source_id=source_id,
                byte_offset=start + self.at,
                byte_count=self.lost_bytes or None,
            )


def patch(text: bytes) -> Patched:
    """Repair everything that can be repaired; the result may still be invalid."""
    bad_at, lost = first_bad_byte(text), 0
    if bad_at < len(text):
        text, lost = _in_utf8(text)
    found = native.patch(text, MAX_DEPTH) if native.AVAILABLE else None
    if found is not None:
        made, count, *places = found
        wrong = {what: place for what, place in zip((_COMMA, _WORD, _CONTROL), places, strict=True) if place >= 0}
    else:
        edits = _edits(text) if len(text) <= _MOST_BYTES else []
        made, count = _edited(text, edits), sum(edit[3] != _DEEP for edit in edits)
        firsts = {what: place for place, _, _, what in reversed(edits)}
        wrong = {what: firsts[what] for what in _KINDS if what in firsts}
    if lost:
        wrong["bytes that are not UTF-8"] = bad_at
    return Patched(made, min(wrong.values(), default=None), tuple(wrong), lost, count + lost)


def escape_quotes(text: bytes) -> Patched:
    """Escape the quotes in strings of the program in events of Kineto and onnxruntime."""
    edits: list[_Edit] = []
    at = 0
    while begin := _PROGRAM_STRING.search(text, at):
        at = begin.end()
        end = (_NAME_END if begin["name"] else _VALUE_END).search(text, at)
        if end is not None and b"\n" not in text[at : end.start()]:
            quotes = _BARE_QUOTE.finditer(text, at, end.start())
            edits += [(quote.start(), 0, b"\\", _QUOTE) for quote in quotes]
            at = end.end()
    first = edits[0][0] if edits else None
    return Patched(_edited(text, edits), first, (_QUOTE,) if edits else (), 0, len(edits))


def restore_backslashes(value: bytes) -> Patched | None:
    """Return the repaired value of a key of Kineto; None if it is sound, or can't be repaired."""
    if b'/"' not in value or _is_json(value):
        return None
    for quotes in _SLASHED_QUOTES:
        made, count = quotes.subn(rb'\\"', value)
        if _is_json(made):
            return Patched(made, value.index(b'/"'), (_QUOTE,), 0, count)
    return None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def is_utf8(text: bytes) -> bool:
    """Whether all of the text is UTF-8."""
    return first_bad_byte(text) == len(text)


def first_bad_byte(text: bytes) -> int:
    """Return the position of the first byte that is not UTF-8; the length if all are."""
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


def _edits(text: bytes) -> list[_Edit]:
    """The repairs in order: those of C, and others."""
    edits: list[_Edit] = []
    depth = stop = done = deep = edits_before = 0
    for token in _TOKEN.finditer(text):
        place = token.start()
        if token.lastgroup in (None, "unclosed") or place < done:
            continue
        if token.lastgroup == "string":
            edits += _in_string(text, place + 1, token.end() - 1)
        elif token.lastgroup == "open":
            depth += 1
            if depth == MAX_DEPTH + 1:
                deep, edits_before = place, len(edits)
        elif token.lastgroup == "close":
            depth -= 1
            if depth == MAX_DEPTH:
                value = json.dumps(text[deep : token.end()].decode(), ensure_ascii=False)
                edits[edits_before:] = [(deep, token.end() - deep, value.encode(), _DEEP)]
        elif token.lastgroup == "comma":
            edits.append((place, 1, b"", _COMMA))
        else:
            if token.lastgroup == "point":
                while text[place - 1 : place].isdigit():
                    place -= 1
                if text[place - 1 : place] not in _BEFORE:
                    continue
            if stop < place:  # else it ends where the word before does
                end = _BARE_END.search(text, place)
                stop = end.start() if end is not None else len(text)
            if _is_wrong_word(text, place, stop):
                edits.append((place, stop - place, b'"' + text[place:stop] + b'"', _WORD))
                done = stop
    return edits


def _in_string(text: bytes, start: int, end: int) -> Iterator[_Edit]:
    """Escape control characters, and the backslashes of unknown escapes and of halves of surrogate pairs."""
    for match in _IN_STRING.finditer(text, start, end):
        if match.lastgroup == "control":
            yield match.start(), 1, b"\\u%04x" % ord(match[0]), _CONTROL
        elif match.lastgroup == "escape":
            yield match.start(), 0, b"\\", _BAD_ESCAPE


def _is_wrong_word(text: bytes, place: int, stop: int) -> bool:
    """Whether a bare word or an invalid number ends at `stop`."""
    if stop == place or text[stop : stop + 1] == b'"':
        return False
    if stop - place <= _LONGEST_BARE and _BARE.fullmatch(text, place, stop):
        return True
    pointed = _POINTED.match(text, place)
    return _WRONG_NUMBER.match(text, place) is not None or (pointed is not None and pointed.end() == stop)


def _in_utf8(text: bytes) -> tuple[bytes, int]:
    """The text with U+FFFD for bytes that are not UTF-8, and the number of such bytes."""
    made = text.decode("utf-8", "replace").encode()
    mark = "\ufffd".encode()
    marks = made.count(mark) - text.count(mark)
    return made, len(text) - len(made) + marks * len(mark)


def _edited(text: bytes, edits: list[_Edit]) -> bytes:
    if not edits:
        return text
    parts: list[bytes] = []
    at = 0
    for place, size, new, _ in edits:
        parts += (text[at:place], new)
        at = place + size
    return b"".join((*parts, text[at:]))
