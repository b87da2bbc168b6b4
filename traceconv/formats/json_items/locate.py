"""Find an item of a JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from traceconv.events.items import ITEMS_KEY, Items
from traceconv.formats.chrome_json.scan import end_of_value
from traceconv.formats.common.elements import json_object, locate_element
from traceconv.formats.json_items.fields import Item, ItemFields
from traceconv.formats.locate import Evidence, Wanted


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the item by its number in its block, or by its times and name."""
    row = wanted.row
    described = json_object((wanted.options or "").encode()).get(ITEMS_KEY, [])
    tables = described if isinstance(described, list) else [described]
    fields = [ItemFields(Items(**{**table, "args": None})) for table in tables]

    def matches(text: bytes) -> bool:
        try:
            item: Any = json.loads(text, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError):
            return False
        if not isinstance(item, dict):
            return False
        return any(_is_row(item, of, row) for of in fields)

    return locate_element(wanted, matches, _objects_in)


def _is_row(item: Item, fields: ItemFields, row: Mapping[str, Any]) -> bool:
    """Whether an item of a table would become this row."""
    start_ns, dur_ns = fields.times(item)
    same_times = start_ns == row.get("start_ns") and row.get("dur_ns") in (None, dur_ns)
    return same_times and fields.name(item) in (row.get("source_name") or row.get("name"), None)


def _objects_in(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, text) of all complete objects in a text, including nested ones."""
    at = text.find(b"{")
    while at >= 0:
        end = end_of_value(text, at, final=False)
        if end is not None:
            yield at, text[at:end]
        at = text.find(b"{", at + 1)
