"""How a JSON document with items described by a rule file is opened. No file is recognised without the rule file."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")


def may_have_items(head: bytes) -> bool:
    """Whether a text with these first bytes may be a JSON document."""
    return _OPENING.match(head) is not None


FORMAT = Format(
    "json_items",
    "a JSON document read by the [items] of a rule file",
    lambda head: 0,
    "traceconv.formats.json_items.reader:JsonItemsReader",
    "traceconv.formats.json_items.locate:locate",
    event_times="the keys that the [items] of the rule file name, in its unit; an end minus the start",
)
