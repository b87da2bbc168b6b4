"""Text of SVG: places in tenths of a pixel as integers, labels that no trace can break out of, round ticks."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from traceconv.base.errors import printable

#: Units of a pixel: places are whole numbers of these.
TENTHS = 10
_TIME_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def place(tenths: int) -> str:
    """A place or a length, given in tenths of a pixel."""
    whole, rest = divmod(tenths, TENTHS)
    return f"{whole}.{rest}" if rest else str(whole)


def words(text: str, limit: int = 120) -> str:
    """Text of a trace as text of XML: on one line, without control characters, at most `limit` characters long."""
    return escape(printable(text, limit))


def rect(x: int, y: int, width: int, height: int, css: str, title: str = "") -> str:
    """A rectangle; `title` is XML already, and shown under the pointer."""
    shape = f'<rect class="{css}" x="{place(x)}" y="{place(y)}" width="{place(width)}" height="{place(height)}"'
    return f"{shape}><title>{title}</title></rect>\n" if title else f"{shape}/>\n"


def line(x1: int, y1: int, x2: int, y2: int, css: str) -> str:
    """A line."""
    return f'<line class="{css}" x1="{place(x1)}" y1="{place(y1)}" x2="{place(x2)}" y2="{place(y2)}"/>\n'


def label(x: int, y: int, text: str, css: str = "", *, anchor: str = "", turned: bool = False) -> str:
    """A text of ours or of `words`, which is XML already; `turned` reads from the bottom up."""
    extra = f' class="{css}"' if css else ""
    extra += f' text-anchor="{anchor}"' if anchor else ""
    extra += f' transform="rotate(-90 {place(x)} {place(y)})"' if turned else ""
    return f'<text x="{place(x)}" y="{place(y)}"{extra}>{text}</text>\n'


def time_unit(span_ns: int) -> tuple[int, str]:
    """The unit, as ns and as text, in which a span is told in numbers that people read."""
    return next((ns, name) for ns, name in _TIME_UNITS if span_ns >= 2 * ns or ns == 1)


def ticks(first: int, last: int, most: int) -> Iterator[int]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from `first` to `last`, at most about `most`."""
    step = 1
    while (last - first) // step > most:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    for number in range(-(-first // step), last // step + 1):
        yield number * step


def decimal(value: int, unit: int) -> str:
    """`value / unit`, exactly, for a unit that is a power of ten: no more digits than needed."""
    sign, size = ("-", -value) if value < 0 else ("", value)
    digits = len(str(unit)) - 1
    fraction = str(size % unit).rjust(digits, "0").rstrip("0") if digits else ""
    return f"{sign}{size // unit}{'.' if fraction else ''}{fraction}"
