"""How a JSON document is opened whose items a rule file describes. No file is recognised: the rule file is needed."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")


def may_have_items(head: bytes) -> bool:
    """Whether a text with these first bytes may be such a document."""
    return _OPENING.match(head) is not None


FORMAT = Format(
    "json_items",
    "a JSON document read by the [items] of a rule file",
    lambda head: 0,
    "traceconv.formats.json_items.reader:JsonItemsReader",
    "traceconv.formats.json_items.locate:locate",
    event_times="the keys that the [items] of the rule file name, in its unit; an end less the start",
)
