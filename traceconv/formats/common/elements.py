"""Elements of a list in JSON text, found by their number or by their content, for `traceconv why`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from traceconv.formats.locate import Evidence, Wanted

_ELEMENTS = msgspec.json.Decoder(list[Raw])
_ELEMENT = msgspec.json.Decoder(Raw)
_BLANKS = b" \t\r\n,"
#: Most elements that are shown where several match.
_MOST_ALIKE = 8


def element_at(text: bytes, index: int, count: int) -> tuple[int, bytes] | None:
    """Offset and text of object `index` of `count`; None if the text doesn't consist of that many valid objects."""
    objects = [one for one in elements_of(text) if one[1].startswith(b"{")]
    return objects[index] if len(objects) == count else None


def elements_of(text: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, text) of values with commas or line ends between them; none if the text is malformed."""
    at = 0
    for element in _decoded(text):
        plain = bytes(element).strip(_BLANKS)
        at = text.index(plain, at)
        yield at, plain
        at += len(plain)


def locate_element(
    wanted: Wanted,
    matches: Callable[[bytes], bool],
    candidates: Callable[[bytes], Iterator[tuple[int, bytes]]] = elements_of,
) -> list[Evidence]:
    """An element by its number in the block; by its content if some elements of the block are damaged."""
    if wanted.byte_offset is None:
        return []
    text = wanted.block()
    found = element_at(text, wanted.index, wanted.event_count)
    if found is not None:
        return [wanted.evidence(*found)]
    alike = [(offset, element) for offset, element in candidates(text) if matches(element)]
    if not alike:
        return [wanted.evidence(0, text, f"a list with event {wanted.ordinal}", f"{wanted.role} is among these")]
    role = wanted.role if len(alike) == 1 else f"{wanted.role}, or one with the same times"
    return [wanted.evidence(*one, f"near event {wanted.ordinal}", role) for one in alike[:_MOST_ALIKE]]


def json_object(text: bytes) -> dict[str, Any]:
    """A JSON object; empty for any other text."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _decoded(text: bytes) -> list[Raw]:
    body = text.strip(_BLANKS)
    try:
        return _ELEMENTS.decode(b"[" + body + b"]")
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _ELEMENT.decode_lines(body)
    except (msgspec.DecodeError, RecursionError):
        return []
