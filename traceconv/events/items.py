"""Items of a JSON document and the meaning of their keys: the `[[items]]` tables of a rule file."""

from __future__ import annotations

from typing import NamedTuple

#: Nanoseconds per unit.
UNITS = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}
#: Key in the run's options that contains the tables a document was read with.
ITEMS_KEY = "json_items"


class Items(NamedTuple):
    """One table. Keys of an item may be nested: `time.begin`.

    prefix         in ijson's notation: `result.kernels.item`; `item` is each element of an array
    unit           of start and end, and of the duration unless that has its own
    end, duration  exactly one of the two
    category       the key of the category; `fixed_category` is that of all items instead
    args           the keys to keep in args; None: all that are not used otherwise
    """

    prefix: str
    unit: str
    name: str
    start: str
    end: str | None = None
    duration: str | None = None
    duration_unit: str | None = None
    device: str | None = None
    stream: str | None = None
    thread: str | None = None
    category: str | None = None
    fixed_category: str | None = None
    args: tuple[str, ...] | None = None
