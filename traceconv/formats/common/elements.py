"""Find elements of a list in JSON text by number or content, for `traceconv why`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from traceconv.formats.locate import Evidence, Wanted

_ELEMENTS = msgspec.json.Decoder(list[Raw])
_ELEMENT = msgspec.json.Decoder(Raw)
_BLANKS = b" \t\r\n,"
#: Maximum number of matching elements shown.
_MAX_MATCHES = 8


def element_at(text: bytes, index: int, count: int) -> tuple[int, bytes] | None:
    """Return offset and text of object `index`; None if the text is not a list of `count` valid objects."""
    objects = [one for one in elements_of(text) if one[1].startswith(b"{")]
    return objects[index] if len(objects) == count else None


def elements_of(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, text) of values separated by commas or line ends; nothing if the text is malformed."""
    at = 0
    for element in _decoded(text):
        value = bytes(element).strip(_BLANKS)
        at = text.index(value, at)
        yield at, value
        at += len(value)


def locate_element(
    wanted: Wanted,
    matches: Callable[[bytes], bool],
    candidates: Callable[[bytes], Iterator[tuple[int, bytes]]] = elements_of,
) -> list[Evidence]:
    """Find an element by its number in the block; in a damaged block, by its content."""
    if wanted.byte_offset is None:
        return []
    text = wanted.block()
    found = element_at(text, wanted.index, wanted.event_count)
    if found is not None:
        return [wanted.evidence(*found)]
    matching = [(offset, element) for offset, element in candidates(text) if matches(element)]
    if not matching:
        return [wanted.evidence(0, text, f"a list with event {wanted.ordinal}", f"{wanted.role} is among these")]
    role = wanted.role if len(matching) == 1 else f"{wanted.role}, or one with the same times"
    return [wanted.evidence(*one, f"near event {wanted.ordinal}", role) for one in matching[:_MAX_MATCHES]]


def json_object(text: bytes) -> dict[str, Any]:
    """Decode a JSON object; any other text is an empty one."""
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
