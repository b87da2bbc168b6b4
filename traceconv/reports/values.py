"""A value as text: human-readable or as JSON. Times never pass through a float."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from traceconv.base.errors import printable

#: A value of a cell; queries also return dates and other types, which are shown as text.
Cell = object

#: Maximum length of a cell in a table, in characters.
_LONGEST_TEXT = 2000
_MINUTE_NS = 60 * 10**9
_UNITS = ((10**3, "µs"), (10**6, "ms"), (10**9, "s"))
_SCALES = ((10**3, "k"), (10**6, "M"), (10**9, "G"), (10**12, "T"), (10**15, "P"))
#: Units that are shown with SI prefixes.
_SCALED = {"flop": "FLOP", "flop/s": "FLOP/s", "byte/s": "B/s"}
_BYTE_UNITS = ((1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB"))


def microseconds(ns: int) -> str:
    """Format nanoseconds as microseconds with three decimals."""
    if ns < 0:
        return f"-{-ns // 1000}.{-ns % 1000:03}"
    return f"{ns // 1000}.{ns % 1000:03}"


def thousandths(value: int, unit: int) -> str:
    """Format `value / unit` with three decimals, rounded half away from zero, in integer arithmetic.

    >>> thousandths(1720000000123456789, 1000)
    '1720000000123456.789'
    """
    scaled = (abs(value) * 2000 + unit) // (2 * unit)
    sign = "-" if value < 0 and scaled else ""
    return f"{sign}{scaled // 1000}.{scaled % 1000:03}"


def human_duration(ns: int | Decimal) -> str:
    """Format a duration: 17 ns, 1.584 ms, 2 min 05.000 s. Rounds half away from 0."""
    rounded = ns if isinstance(ns, int) else int(ns.to_integral_value(ROUND_HALF_UP))
    size = abs(rounded)
    sign = "-" if rounded < 0 else ""
    if size < 1000:
        return f"{rounded} ns"
    if size >= _MINUTE_NS:
        minutes, rest = divmod((size + 500_000) // 1_000_000, 60_000)
        hours, minutes = divmod(minutes, 60)
        shown = f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
        return f"{sign}{shown} {rest // 1000:02}.{rest % 1000:03} s"
    return sign + _in_largest_unit(size, _UNITS)


def _in_largest_unit(size: int, units: Sequence[tuple[int, str]]) -> str:
    """Return a size with three decimals in the largest unit that gives 1 or more after rounding."""
    for unit, name in units[:-1]:
        if (size * 2000 + unit) // (2 * unit) < 1_000_000:
            return f"{thousandths(size, unit)} {name}"
    unit, name = units[-1]
    return f"{thousandths(size, unit)} {name}"


def human_bytes(count: int) -> str:
    """Format a size in powers of 1024: 512 B, 1.5 MiB."""
    sign, size = ("-", -count) if count < 0 else ("", count)
    if size < 1 << 10:
        return f"{count} B"
    unit, name = next((one for one in _BYTE_UNITS if (size * 20 + one[0]) // (2 * one[0]) < 10_240), _BYTE_UNITS[-1])
    tenths = (size * 20 + unit) // (2 * unit)
    return f"{sign}{tenths // 10}.{tenths % 10} {name}"


def human_scaled(count: int, unit: str) -> str:
    """Format a number in powers of 1000: 512 FLOP, 7.751 GFLOP. Rounds half away from 0."""
    sign, size = ("-", -count) if count < 0 else ("", count)
    if size < 1000:
        return f"{count} {unit}"
    return sign + _in_largest_unit(size, _SCALES) + unit


def plain(value: Cell) -> str:
    """Format a value as plain text: NULL is empty, lists and structs are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, dict)):
        return json_text(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def json_text(value: Cell) -> str:
    """Format a value as JSON: integers and decimals with all digits; NaN and infinity as strings."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{value}"'
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else f'"{value}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json_string(plain(k))}: {json_text(v)}" for k, v in value.items()) + "}"
    return _json_string(plain(value))


def _json_string(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    # JSON allows DEL and the C1 controls, but a terminal would interpret them.
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else _json_escape(c) for c in shown)


def _json_escape(character: str) -> str:
    # json.dumps never escapes DEL.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def human_moments(values: Sequence[Cell], origins: Sequence[int | None]) -> list[str]:
    """Format timestamps relative to their origins, or in ns if that is unknown.

    All get the unit that fits the largest one, and as many decimals as they need, at least three.
    """
    times = [
        [None if value is None or origin is None else int(str(value)) - origin for value in _items(cell)]
        for cell, origin in zip(values, origins, strict=True)
    ]
    known = [time for row in times for time in row if time is not None]
    largest = max(map(abs, known), default=0)
    size, unit = next(((size, unit) for size, unit in reversed(_UNITS) if largest >= size), _UNITS[0])
    decimals = len(str(size)) - 1
    while decimals > 3 and all(time % 10 ** (len(str(size)) - decimals) == 0 for time in known):
        decimals -= 1
    shown = []
    for cell, row in zip(values, times, strict=True):
        texts = []
        for value, time in zip(_items(cell), row, strict=True):
            if value is None or time is None:
                texts.append("-" if value is None else f"{value} ns")
            else:
                digits = f"{abs(time) % size:0{len(str(size)) - 1}}"[:decimals]
                texts.append(f"{'-' * (time < 0)}{abs(time) // size}.{digits} {unit}")
        shown.append(", ".join(texts) if cell is not None else "-")
    return shown


def _items(cell: Cell) -> Sequence[Cell]:
    return cell if isinstance(cell, (list, tuple)) else [cell]


def human(value: Cell, unit: str) -> str:
    """Format a value for people, a time as a duration."""
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(human(item, unit) for item in value)
    if unit == "ns" and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return human_duration(value)
    if unit == "byte" and isinstance(value, int):
        return human_bytes(value)
    if unit in _SCALED and isinstance(value, int) and not isinstance(value, bool):
        return human_scaled(value, _SCALED[unit])
    if unit in ("percent", "ratio", "us²", "GiB/s", "flop/byte") and isinstance(value, float):
        return f"{value:.2f}" if unit == "percent" else f"{value:.3f}"
    return printable(plain(value), _LONGEST_TEXT)
