"""One item of a document → its exact times in nanoseconds, its labels and its args."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import msgspec

from traceconv.base.integers import is_time
from traceconv.events.items import UNITS, Items
from traceconv.events.trace import TOO_LONG

Item: TypeAlias = "Mapping[str, Any]"

#: Longer texts are not numbers.
_MAX_CHARACTERS = 400
_FAR = 2**64
_ALL_DIGITS = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class ItemFields:
    """Reads the fields of items. `rounded` counts times finer than a nanosecond."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._unit = UNITS[items.unit]
        self._duration_unit = UNITS[items.duration_unit or items.unit]
        used = (items.name, items.start, items.end, items.duration)
        labels = (items.device, items.stream, items.thread, items.category)
        self._used = frozenset(one for one in (*used, *labels) if one is not None and "." not in one)
        self.rounded = 0

    def times(self, item: Item) -> tuple[int | None, int | None]:
        """(start_ns, dur_ns): None if absent, TOO_LONG for a duration that is not a number or too long.

        An invalid start is None too.
        """
        start = self._ns(value_at(item, self._items.start), self._unit)
        start = start if start is not None and is_time(start) else None
        other = self._items.duration or self._items.end or ""
        value = value_at(item, other)
        if value is None:
            return start, None
        found = self._ns(value, self._duration_unit if self._items.duration else self._unit)
        if found is None:
            return start, TOO_LONG
        if not self._items.duration:
            found -= start or 0
        return start, found if is_time(found) else TOO_LONG

    def _ns(self, value: object, unit: int) -> int | None:
        """A number or its text, in units of `unit` ns: rounded half to even. None if invalid or far out of range."""
        if type(value) is int:
            return value * unit
        if isinstance(value, str) and len(value) <= _MAX_CHARACTERS:
            try:
                value = Decimal(value)
            except InvalidOperation:
                return None
        if not isinstance(value, Decimal) or not value.is_finite() or not -_FAR < value < _FAR:
            return None
        exact = _ALL_DIGITS.multiply(value, Decimal(unit))
        rounded = exact.to_integral_value(ROUND_HALF_EVEN)
        self.rounded += rounded != exact
        return int(rounded)

    def name(self, item: Item) -> str | None:
        """The item's name."""
        return _label(value_at(item, self._items.name))

    def category(self, item: Item) -> str | None:
        """The item's category."""
        return self._items.fixed_category or _label(value_at(item, self._items.category))

    def track(self, item: Item) -> tuple[str | None, str | None]:
        """The item's process and thread: numbers become `device 0`, `stream 7` or `thread 3`, texts are unchanged."""
        process = _numbered("device", value_at(item, self._items.device))
        stream = _numbered("stream", value_at(item, self._items.stream))
        return process, stream or _numbered("thread", value_at(item, self._items.thread))

    def args(self, item: Item) -> bytes:
        """The other values, as a JSON object."""
        if self._items.args is None:
            found = {key: value for key, value in item.items() if key not in self._used}
        else:
            found = {key: value for key in self._items.args if (value := value_at(item, key)) is not None}
        if not found:
            return b""
        try:
            return _ENCODER.encode(found)
        except (OverflowError, msgspec.EncodeError):
            return _ENCODER.encode(_in_decimals(found))


def value_at(item: Item, path: str | None) -> Any:
    """The value at a path of keys; None if there is none."""
    if path is None:
        return None
    if "." not in path:
        return item.get(path)
    value: Any = item
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _label(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else None


def _numbered(what: str, value: object) -> str | None:
    label = _label(value)
    return label if label is None or isinstance(value, str) else f"{what} {label}"


def _in_decimals(value: Any) -> Any:
    """The same with decimals for integers, of which the encoder accepts 64 bits only."""
    if isinstance(value, dict):
        return {key: _in_decimals(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_in_decimals(one) for one in value]
    return Decimal(value) if type(value) is int else value
