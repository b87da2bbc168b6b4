"""Stream a JSON document of any size: small values as text, the elements of large arrays in portions.

Arrays are cut between elements and decoded in bulk. A portion that fails is read element by element; after a malformed
one, reading resumes where the next seems to begin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.formats.chrome_json.patch import is_utf8, patch
from traceconv.formats.chrome_json.scan import end_of_string, end_of_value, skip_space
from traceconv.formats.common.limits import Limits

JsonPath: TypeAlias = "tuple[str | int, ...]"

#: What to do with the value at a path.
ENTER, STREAM, KEEP = "enter", "stream", "keep"

_CHUNK = 1 << 20
_TRIES = 8
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_ELEMENT = msgspec.json.Decoder(Raw)
_BETWEEN = {
    b"{": re.compile(rb"\}\s*,\s*(?=\{)"),
    b"[": re.compile(rb"\]\s*,\s*(?=\[)"),
}
_COMMA = re.compile(rb",")
#: The first bytes of all values.
_BEGINS = b'{["-0123456789tfn'
#: The end of an array of objects after a malformed one: another array follows.
_ARRAY_END = re.compile(rb'\}\s*(?=\]\s*,\s*"\w+"\s*:\s*\[)')
_FIRST_KEY = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*")\s*:')
_NEXT_KEY = re.compile(rb'[,{]\s*(?="\w[^"\\]*"\s*:)')


@dataclass(frozen=True, slots=True)
class Value:
    """The text of a value."""

    path: JsonPath
    text: bytes
    byte_offset: int


@dataclass(frozen=True, slots=True)
class Elements:
    """The texts of elements of the array at `path`; `first` counts the elements read before them."""

    path: JsonPath
    first: int
    texts: list[Raw]
    byte_offset: int
    byte_count: int


class _Ended(Exception):
    """The text is truncated."""


@dataclass(slots=True)
class JsonDocument:
    """Reads one document. `shape` tells for each path whether to enter a value, stream its elements, or keep its text.

    accounts  gets the lost elements, as `damaged`
    several   other documents may follow
    """

    chunks: Iterator[bytes]
    shape: Callable[[JsonPath], str]
    log: ImportLog
    limits: Limits
    accounts: Accounts
    damaged: str
    several: bool = False
    _text: bytes = b""
    _at: int = 0
    _base: int = 0
    _final: bool = False
    #: What is between an element and one with the same first key, and the first byte of elements.
    _alike: re.Pattern[bytes] | None = None
    _opening: bytes = b"{"

    def items(self) -> Iterator[Value | Elements]:
        """Yield the contents of the document in order."""
        self._more()
        if self._text.startswith(b"\xef\xbb\xbf"):
            self._at = 3
        try:
            yield from self._value(())
            while self.several and self._follows():
                yield from self._value(())
        except _Ended:
            self.log.add(
                Code.NO_END, "the text ends before its brackets close", source_id=1, byte_offset=self._base + self._at
            )

    # -- text --

    def _more(self) -> bool:
        """Read more text, about as much as there is, so that the work stays linear; False if there is none."""
        parts = [self._text[self._at :]]
        wanted, size = max(_CHUNK, len(parts[0])), 0
        self._base, self._at = self._base + self._at, 0
        while size < wanted and not self._final:
            chunk = next(self.chunks, None)
            if chunk is None:
                self._final = True
            else:
                parts.append(chunk)
                size += len(chunk)
        self._text = b"".join(parts)
        return size > 0

    def _peek(self) -> bytes:
        """The next byte that is not blank. Raises _Ended if there is none."""
        while True:
            self._at = skip_space(self._text, self._at)
            if self._at < len(self._text):
                return self._text[self._at : self._at + 1]
            if not self._more():
                raise _Ended

    def _follows(self) -> bool:
        """Whether more than blanks follows."""
        try:
            return self._peek() != b""
        except _Ended:
            return False

    def _value_text(self) -> bytes | None:
        """Read the text of the value here; None if it exceeds the limit. Raises _Ended if the text ends inside it."""
        while True:
            end = end_of_value(self._text, self._at, self._final)
            if end == self._at < len(self._text):  # a byte that begins no value, such as a form feed
                self._lose(Code.DAMAGED_TEXT, "text that is not JSON", self._at, 1, 0)
                self._at += 1
                return None
            if end is not None and (end < len(self._text) or self._final):
                text, self._at = self._text[self._at : end], end
                return text
            if len(self._text) - self._at > self.limits.event_bytes:
                count = len(self._text) - self._at
                self._lose(Code.DAMAGED_TEXT, "a value without an end, or larger than the limit", self._at, count, 0)
                self._at = len(self._text)
                return None
            if not self._more():
                count = len(self._text) - self._at
                self._lose(Code.CUT_EVENT, "the text ends inside a value", self._at, count, 0)
                self._at = len(self._text)
                raise _Ended

    def _lose(self, code: Code, message: str, at: int, count: int, elements: int) -> None:
        start = self._base + at
        self.log.add(code, message, source_id=1, byte_offset=start, byte_count=count, event_count=elements or None)
        if elements:
            self.accounts[self.damaged].add(lost=elements)

    # -- structure --

    def _value(self, path: JsonPath) -> Iterator[Value | Elements]:
        wanted, first = self.shape(path), self._peek()
        if wanted == ENTER and first in (b"{", b"["):
            yield from self._members(path, first)
        elif wanted == STREAM and first == b"[":
            yield from self._stream(path)
        else:
            text = self._value_text()
            if text is not None:
                yield Value(path, text, self._base + self._at - len(text))

    def _members(self, path: JsonPath, opening: bytes) -> Iterator[Value | Elements]:
        """The values in an object or array."""
        self._at += 1
        closing, number = b"}" if opening == b"{" else b"]", 0
        while True:
            first = self._peek()
            key: str | int | None = None
            if first in (b",", closing):
                self._at += 1
                if first == closing:
                    return
                continue
            if opening == b"[" and first not in b"}:":
                key, number = number, number + 1
            elif opening == b"{" and first == b'"':
                key = self._key()
            if key is not None:
                yield from self._value((*path, key))
                continue
            self._resume()
            if opening == b"[":
                return

    def _key(self) -> str | None:
        """Read the key here and its colon; None, without reading anything, if there is none."""
        while (end := end_of_string(self._text, self._at)) is None or end + 64 > len(self._text):
            if len(self._text) - self._at > 1 << 20 or not self._more():
                break
        end = end_of_string(self._text, self._at)
        if end is None:
            return None
        colon = skip_space(self._text, end)
        if self._text[colon : colon + 1] != b":":
            return None
        key = self._text[self._at + 1 : end - 1].decode("utf-8", "replace")
        self._at = colon + 1
        return key

    def _resume(self) -> None:
        """Skip text that is not a key with its value, up to the next key."""
        while True:
            found = _NEXT_KEY.search(self._text, self._at + 1)
            end = len(self._text) if found is None else found.end()
            self._lose(Code.DAMAGED_TEXT, "text that is not JSON", self._at, end - self._at, 0)
            self._at = end
            if found is not None:
                return
            if not self._more():
                raise _Ended

    # -- large arrays --

    def _stream(self, path: JsonPath) -> Iterator[Elements]:
        self._at += 1
        self._alike, self._opening = None, b"{"
        count = 0
        while True:
            if len(self._text) - self._at < _CHUNK and not self._final:
                self._more()
            if self._peek() == b",":
                self._at += 1
                continue
            if self._text[self._at : self._at + 1] == b"]":
                self._at += 1
                return
            start = self._base + self._at
            texts = self._quick() or self._careful()
            if texts:
                yield Elements(path, count, texts, start, self._base + self._at - start)
                count += len(texts)

    def _between(self) -> re.Pattern[bytes]:
        first = self._text[self._at : self._at + 1]
        # If no value begins here, an element lost its first byte: it was like those before, or an object.
        return _BETWEEN.get(first if first in _BEGINS else self._opening, _COMMA)

    def _quick(self) -> list[Raw] | None:
        """All elements before the last gap between two in the text; None if they don't decode."""
        between, text, at = self._between(), self._text, self._at
        window = 1 << 14
        while True:
            low = max(at, len(text) - window)
            cuts = [match.start() + (between is not _COMMA) for match in between.finditer(text, low)]
            if len(cuts) > _TRIES or low == at:
                break
            window *= 8
        for cut in cuts[: -_TRIES - 1 : -1]:
            body = text[at:cut]
            if not is_utf8(body):
                continue
            try:
                texts = _ELEMENTS.decode(b"[" + body + b"]")
            except (msgspec.DecodeError, RecursionError):
                continue
            self._remember(texts[-1])
            self._at = cut
            return texts
        return None

    def _remember(self, element: bytes | Raw) -> None:
        self._opening = bytes(element)[:1]
        first_key = _FIRST_KEY.match(bytes(element))
        if first_key is not None:
            self._alike = _beginning_with(first_key[1])

    def _element(self, text: bytes) -> Raw | None:
        """The element with this text; None if it is malformed. Bytes that are not UTF-8 are logged and replaced."""
        sound = text if is_utf8(text) else text.decode("utf-8", "replace").encode()
        element = _decoded(sound)
        if element is None:
            patched = patch(sound)
            element = _decoded(patched.text)
            if element is not None:
                patched.log_to(self.log, self._base + self._at)
        if element is None:
            return None
        if sound is not text:
            self._lose(Code.BAD_BYTES, "bytes that are not UTF-8", self._at, len(text), 0)
        if self._alike is None:
            self._remember(sound)
        return element

    def _careful(self) -> list[Raw]:
        """Elements one by one, up to the end of the array or of the available text."""
        texts: list[Raw] = []
        while self._at < len(self._text):
            first = self._text[self._at : self._at + 1]
            if first in (b" ", b"\t", b"\r", b"\n", b","):
                self._at += 1
                continue
            if first == b"]":
                return texts
            end = end_of_value(self._text, self._at, self._final)
            if end is None or (end == len(self._text) and not self._final):
                if texts:
                    return texts
                if not self._final and len(self._text) - self._at <= self.limits.event_bytes:
                    self._more()
                    continue
            element = self._element(self._text[self._at : end]) if end is not None else None
            if element is not None:
                texts.append(element)
                self._at = end or len(self._text)
            else:
                self._skip_damage()
        return texts

    def _skip_damage(self) -> None:
        """Skip a malformed element, up to where the next one seems to begin, or the array to end."""
        start = self._at
        between = self._between()
        following = None
        if self._alike is not None and between is _BETWEEN[b"{"]:
            following = self._alike.search(self._text, start)
        else:
            if (first_key := _FIRST_KEY.match(self._text, start)) is not None:
                following = _beginning_with(first_key[1]).search(self._text, start)
            following = following or between.search(self._text, start + 1)
        closing = _ARRAY_END.search(self._text, start)
        ends = [match.end() for match in (following, closing) if match is not None]
        self._at = min(ends) if ends else len(self._text)
        code = Code.DAMAGED_EVENT if ends or not self._final else Code.CUT_EVENT
        message = "an element that can't be read" if ends or not self._final else "the text ends inside an element"
        self._lose(code, message, start, self._at - start, 1)


def _beginning_with(key: bytes) -> re.Pattern[bytes]:
    """Match the comma, or a damaged byte, before an object with this first key; no value has such inside."""
    return re.compile(rb"[^:\[\s]\s*(?=\{\s*" + re.escape(key) + rb"\s*:)")


def _decoded(text: bytes) -> Raw | None:
    try:
        return _ELEMENT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def decode_all(kind: type[Any], texts: Sequence[Raw]) -> list[Any]:
    """Decode the texts as structs of `kind`; None where one has another shape."""
    try:
        return msgspec.json.decode(b"[" + b",".join(texts) + b"]", type=list[kind])  # type: ignore[valid-type] # a parameter
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_decode(kind, text) for text in texts]


def _decode(kind: type[Any], text: Raw) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


__all__ = ["ENTER", "KEEP", "STREAM", "Elements", "JsonDocument", "JsonPath", "Value", "decode_all"]
