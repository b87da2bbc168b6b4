"""Where a JSON document has its items, and the meaning of their keys: the `[items]` section of a rule file."""

from __future__ import annotations

from dataclasses import dataclass

#: Nanoseconds of each unit that a rule file may name.
UNITS = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}
#: The key under which a document that was read by such a section names it, among the run's options.
ITEMS_KEY = "json_items"


@dataclass(frozen=True, slots=True)
class Items:
    """One section. Keys of an item may be nested: `time.begin`.

    prefix         in ijson's notation: `result.kernels.item`; `item` is each element of an array
    unit           of start and end, and of the duration, unless it has a unit of its own
    end, duration  one of the two
    args           the keys that are kept in args; None: all that are not used otherwise
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
    args: tuple[str, ...] | None = None
