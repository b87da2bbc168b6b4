"""Values of the keys outside a trace's events, which readers keep as JSON text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

#: Longer values are not parsed.
_MAX_VALUE_BYTES = 1 << 20


def value_at(keys: Mapping[str, bytes], key: str, *steps: str) -> object:
    """Return the value at a path; None if there is none, or if it is malformed or too long."""
    text = keys.get(key, b"")
    if not text or len(text) > _MAX_VALUE_BYTES:
        return None
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for step in steps:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def values_at(keys: Mapping[str, bytes], path: str) -> Iterator[object]:
    """Yield the values at a path of keys separated by dots; of a list, those of each item."""
    key, *steps = path.split(".")
    found = [value_at(keys, key)]
    for step in steps:
        items = (item for value in found for item in (value if isinstance(value, list) else [value]))
        found = [item[step] for item in items if isinstance(item, dict) and step in item]
    yield from found
