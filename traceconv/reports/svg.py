"""SVG text: positions in tenths of a pixel or percent, escaped labels, round ticks, and charts of any width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from traceconv.base.errors import printable

#: Units per pixel.
TENTHS = 10
_TIME_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def place(tenths: int | str) -> str:
    """Format a position or length given in tenths of a pixel; those in percent are returned as they are."""
    if isinstance(tenths, str):
        return tenths
    pixels, rest = divmod(tenths, TENTHS)
    return f"{pixels}.{rest}" if rest else str(pixels)


def percent(part: int, whole: int, digits: int = 5) -> str:
    """Format a share, rounded down, so that shapes next to each other don't overlap."""
    scaled = part * 100 * 10**digits // whole
    return f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}%"


def legend_entry(css: str, name: str) -> str:
    """Return the color of a class, and what it means, as HTML."""
    return f'<span class="entry"><span class="key {css}"></span>{name}</span> '


def chart(rows: Iterable[tuple[str, str, int]], title: str) -> str:
    """Return rows of a name, a picture and its height: as wide as the page, with text of one size.

    Names and pictures are HTML and SVG; positions across a picture are in percent. Narrow pages have names above them.
    """
    drawn = "".join(f'<div>{name}</div><svg height="{place(height)}">{picture}</svg>' for name, picture, height in rows)
    return f'<div class="chart" role="img" aria-label="{title}">{drawn}</div>' if drawn else ""


def words(text: str, limit: int = 120) -> str:
    """Escape text of a trace for XML: one line without control characters, at most `limit` long."""
    return escape(printable(text, limit))


def rect(x: int | str, y: int, width: int | str, height: int, css: str, title: str = "") -> str:
    """Return a rectangle; `title` is XML, shown on hover."""
    shape = f'<rect class="{css}" x="{place(x)}" y="{place(y)}" width="{place(width)}" height="{place(height)}"'
    return f"{shape}><title>{title}</title></rect>\n" if title else f"{shape}/>\n"


def line(x1: int | str, y1: int, x2: int | str, y2: int, css: str) -> str:
    """Return a line."""
    return f'<line class="{css}" x1="{place(x1)}" y1="{place(y1)}" x2="{place(x2)}" y2="{place(y2)}"/>\n'


def label(x: int | str, y: int, text: str, css: str = "", *, anchor: str = "", turned: bool = False) -> str:
    """Return a label; `text` is XML. `turned` reads from bottom to top."""
    extra = f' class="{css}"' if css else ""
    extra += f' text-anchor="{anchor}"' if anchor else ""
    extra += f' transform="rotate(-90 {place(x)} {place(y)})"' if turned else ""
    return f'<text x="{place(x)}" y="{place(y)}"{extra}>{text}</text>\n'


def time_unit(span_ns: int) -> tuple[int, str]:
    """Return a readable unit for a span, in ns and as text."""
    return next((ns, name) for ns, name in _TIME_UNITS if span_ns >= 2 * ns or ns == 1)


def ticks(first: int, last: int, most: int) -> Iterator[int]:
    """Yield about `most` round numbers (1, 2 or 5 times a power of ten apart) from `first` to `last`."""
    step = 1
    while (last - first) // step > most:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    for number in range(-(-first // step), last // step + 1):
        yield number * step


def decimal(value: int, unit: int) -> str:
    """Format `value / unit` exactly, for a unit that is a power of ten."""
    sign, size = ("-", -value) if value < 0 else ("", value)
    digits = len(str(unit)) - 1
    fraction = str(size % unit).rjust(digits, "0").rstrip("0") if digits else ""
    return f"{sign}{size // unit}{'.' if fraction else ''}{fraction}"
