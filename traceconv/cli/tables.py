"""Tables for people: columns that fit the terminal, right-aligned numbers, an ellipsis for omitted text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from traceconv.reports.render import Row, Table, headings, human_rows, is_number
from traceconv.reports.short_names import distinct

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2
#: Minimum width of a text column, unless its content is narrower.
_NARROWEST = 10
#: The same of the column that names the rows, for which other columns are left out.
_NAME_WIDTH = 24
#: Room for the names of the deepest levels of a tree.
_TREE_NAME_WIDTH = 16
#: Default number of rows on a terminal; a pipe gets all.
TERMINAL_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn: the number of rows, whether these are all, and columns that were left out, with the reason."""

    rows: int
    complete: bool
    left_out: Sequence[str] = ()


def show(table: Table, out: IO[bytes] | None, *, row_limit: int | None = None) -> Drawn:
    """Draw a table on the terminal (`out` None) or into a file.

    A terminal gets a table of its width, without optional columns that tell nothing and without the last of those that
    don't fit. If there is only one row, or if the other columns don't fit either, it gets a line per value. A pipe or a
    file gets the full width. `row_limit` None: all rows in a pipe, TERMINAL_ROWS on a terminal.
    """
    terminal = out is None and sys.stdout.isatty()
    limit = row_limit if row_limit is not None else TERMINAL_ROWS if terminal else None
    console = _console() if terminal else None
    titles = headings(table.columns)
    numbers = [is_number(column) for column in table.columns]
    drawn = 0
    complete = True
    left_out: list[str] = []
    for first, batch in _batches(table):
        rows = human_rows(table, batch[: limit - drawn] if limit is not None else batch)
        complete = len(rows) == len(batch)
        if first and terminal and len(batch) <= TERMINAL_ROWS:
            # If there are more rows, it is unknown which columns tell nothing.
            kept, left_out = _telling(table, batch[: len(rows)], rows)
            if console and len(rows) > 1:
                kept, narrow = _fitting_columns(table, kept, titles, rows, console.width)
                left_out += [f"{', '.join(narrow)} (too wide)"] if narrow else []
            titles, numbers = [titles[i] for i in kept], [numbers[i] for i in kept]
            rows = [[row[i] for i in kept] for row in rows]
        for is_heading, line in lines(titles, rows, numbers, console.width if console else None, first=first):
            if console:
                console.print(line, style="bold" if is_heading else "")
            else:
                _write(out, line)
        drawn += len(rows)
        if not complete:
            break
    return Drawn(drawn, complete, left_out)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=True)


def _telling(table: Table, values: Sequence[Row], cells: Sequence[Sequence[str]]) -> tuple[list[int], list[str]]:
    """Return the columns to draw, and those left out with the reason: unknown, the same in all rows, or repeated."""
    kept: list[int] = []
    left_out: dict[str, list[str]] = {}
    named = _naming(table)
    for i, column in enumerate(table.columns):
        same = {row[i] for row in cells}
        like = [k for k in kept if column.type == "VARCHAR" and all(row[k] == row[i] for row in values)]
        if column.name not in table.optional or len(same) == 0 or column.name == named:
            kept.append(i)
        elif all(row[i] is None for row in values):
            left_out.setdefault("unknown", []).append(column.name)
        elif len(values) > 1 and len(same) == 1 and not column.timestamp:
            left_out.setdefault(f"{shortened(cells[0][i], 40)} in all rows", []).append(column.name)
        elif like and len(values) > 1:
            left_out.setdefault(f"same as {table.columns[like[0]].name}", []).append(column.name)
        else:
            kept.append(i)
    if left_out and all(table.columns[i].unit == "id" for i in kept):  # such as devices with the same times
        left_out = {reason: names for reason, names in left_out.items() if reason == "unknown"}
        kept = [i for i, column in enumerate(table.columns) if column.name not in left_out.get("unknown", ())]
    return kept, [f"{', '.join(names)} ({reason})" for reason, names in left_out.items()]


def _naming(table: Table) -> str:
    """Return the column that names the rows; they need a name, even if all have the same."""
    texts = [column.name for column in table.columns if column.type == "VARCHAR"] or [table.columns[0].name]
    return next((name for name in texts if name.endswith("name")), texts[0])


def _fitting_columns(
    table: Table, kept: list[int], titles: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[str]]:
    """Return the columns to draw, and the names of the last optional ones that are left out so that the others fit."""
    named = _naming(table)
    for name_width in (_NAME_WIDTH, _NARROWEST):
        least = {}
        for i in kept:
            text_width = name_width if table.columns[i].name == named else _NARROWEST
            least[i], _ = _least(titles[i], _widest(rows, i), text_width, number=is_number(table.columns[i]))
        chosen, left_out = list(kept), list[str]()
        for i in reversed(kept):
            if _total([least[one] for one in chosen]) <= width:
                return chosen, left_out[::-1]
            if table.columns[i].name in table.optional and table.columns[i].name != named:
                chosen.remove(i)
                left_out.append(table.columns[i].name)
    return kept, []


def _batches(table: Table) -> Iterator[tuple[bool, Sequence[Row]]]:
    """Yield the batches and whether each is the first; if there are none, an empty one, to draw the headings."""
    batches = iter(table.batches)
    yield True, next(batches, [])
    for batch in batches:
        yield False, batch


def lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool], width: int | None, *, first: bool
) -> Iterator[tuple[bool, str]]:
    """Yield the lines of a table, each with whether it is a heading. `width` None: as wide as needed."""
    cells = [_widest(rows, i) for i in range(len(headings))]
    titles = [[title] for title in headings]
    widths: list[int] | None = [max(size, cell_len(title)) for size, title in zip(cells, headings, strict=True)]
    if width is not None and _total(widths or []) > width:
        # First break the headings into several lines, then shorten the texts.
        columns = zip(headings, cells, numbers, strict=True)
        narrow = [_least(title, size, _NARROWEST, number=number) for title, size, number in columns]
        titles = [title for _, title in narrow]
        least = [size for size, _ in narrow]
        widths = _fitted([max(pair) for pair in zip(cells, least, strict=True)], least, numbers, width)
    if widths is None:
        yield from _blocks(headings, rows)
        return
    rows = _fitting(rows, widths, numbers)
    widths = [
        min(width, max(_widest(rows, i), *map(cell_len, title)))
        for i, (width, title) in enumerate(zip(widths, titles, strict=True))
    ]
    if first:
        height = max(map(len, titles))
        for place in range(-height, 0):
            line = [title[place] if len(title) >= -place else "" for title in titles]
            yield True, _line(line, widths, numbers)
        yield False, (" " * _GAP).join("─" * size for size in widths)
    for row in rows:
        yield False, _line(row, widths, numbers)


def _fitting(rows: Sequence[Sequence[str]], widths: Sequence[int], numbers: Sequence[bool]) -> Sequence[Sequence[str]]:
    """Shorten the texts that are wider than their column, so that different ones stay different."""
    columns = [[row[i] for row in rows] for i in range(len(widths))]
    for i, width in enumerate(widths):
        if not numbers[i] and any(cell_len(text) > width for text in columns[i]):
            # A level of a tree is two spaces wide; one must do, and the deepest levels leave room for names.
            levels = [(len(text) - len(text.lstrip(" "))) // 2 for text in columns[i]]
            deepest = max(width - _TREE_NAME_WIDTH, 0)
            texts = [" " * min(n, deepest) + text[2 * n :] for n, text in zip(levels, columns[i], strict=True)]
            cells = distinct(texts, width, shortened)
            columns[i] = [cells[text] for text in texts]
    return list(zip(*columns, strict=True)) if rows else rows


def shortened(text: str, width: int) -> str:
    """Shorten `text` to `width` cells, with an ellipsis in its middle: names differ at both ends."""
    if cell_len(text) <= width:
        return text
    indent = min(len(text) - len(text.lstrip(" ")), max(width - _NARROWEST, 0))
    if indent:
        return " " * indent + shortened(text.lstrip(" "), width - indent)
    tail_width = (width - 1) // 2
    tail = text[-tail_width:] if tail_width else ""
    while cell_len(tail) > tail_width:
        tail = tail[1:]
    return set_cell_size(text, width - 1 - cell_len(tail)) + "…" + tail


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _broken(title: str, width: int) -> list[str]:
    """Break a heading after underscores into lines of at most `width` cells if possible."""
    broken: list[str] = []
    for part in title.replace("_", "_\n").split("\n"):
        if broken and cell_len(broken[-1] + part) <= width:
            broken[-1] += part
        else:
            broken.append(part)
    return broken


def _widest(rows: Sequence[Sequence[str]], place: int) -> int:
    return max((cell_len(row[place]) for row in rows), default=0)


def _least(title: str, size: int, text_width: int, *, number: bool) -> tuple[int, list[str]]:
    """Return the least width of a column with cells of this size, and the lines of its heading in that width."""
    size = size if number else min(size, text_width)
    broken = _broken(title, size)
    return max(size, *map(cell_len, broken)), broken


def _fitted(natural: Sequence[int], least: Sequence[int], numbers: Sequence[bool], width: int) -> list[int] | None:
    """Return widths that fit, narrowing text columns from the widest on; None if that is not enough."""
    widths = list(natural)
    while _total(widths) > width:
        candidates = [i for i, number in enumerate(numbers) if not number and widths[i] > least[i]]
        if not candidates:
            return None
        widths[max(candidates, key=lambda i: widths[i])] -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = []
    for cell, width, number in zip(cells, widths, numbers, strict=True):
        shown = shortened(cell, width)
        space = " " * (width - cell_len(shown))
        padded.append(space + shown if number else shown + space)
    return (" " * _GAP).join(padded).rstrip()


def _blocks(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[tuple[bool, str]]:
    """One line per value, for rows that are too wide for the terminal."""
    width = max(map(cell_len, headings))
    for row in rows:
        for title, cell in zip(headings, row, strict=True):
            yield False, f"{title}{' ' * (width - cell_len(title))}  {cell}"
        yield False, ""


def _write(out: IO[bytes] | None, line: str) -> None:
    if out is None:
        sys.stdout.write(line + "\n")
    else:
        out.write(line.encode() + b"\n")
