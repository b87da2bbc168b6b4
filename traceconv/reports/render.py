"""Rows as text, batch by batch: CSV, JSON, JSON lines and Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from traceconv.base.errors import printable
from traceconv.reports.values import Cell, human, human_moments, json_text, plain
from traceconv.store.documented_sql import SqlColumn

_INTEGER_TYPES = frozenset(
    f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)
#: Types whose values are str, int or float in Python.
_PLAIN_TYPES = _INTEGER_TYPES | {"VARCHAR", "DOUBLE", "FLOAT"}
#: Text with any of these is quoted in CSV.
_QUOTED = re.compile('[",\r\n]')

Row = Sequence[Cell]
Batches = Iterable[Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, and their rows in batches, which can be read once.

    origins   by run_id, the origin of timestamps in tables for people; empty: timestamps are shown unchanged
    optional  names of columns that a terminal needn't show if they tell nothing
    """

    columns: tuple[SqlColumn, ...]
    batches: Batches
    origins: Mapping[int, int] = field(default_factory=dict)
    optional: Collection[str] = ()

    def rows(self) -> list[Row]:
        """Return the rows of all batches."""
        return [row for batch in self.batches for row in batch]

    @property
    def names(self) -> list[str]:
        """Names of the columns, made unique: those of a query may not be, but JSON needs it."""
        names: list[str] = []
        for column in self.columns:
            name, count = column.name, 1
            while name in names:
                count += 1
                name = f"{column.name}_{count}"
            names.append(name)
        return names


def heading(column: SqlColumn) -> str:
    """Return a column's heading in tables for people, without the unit that its cells have."""
    for unit, ending in (("ns", "_ns"), ("byte", "_bytes")):
        if column.unit == unit and column.name.endswith(ending):
            return column.name.removesuffix(ending)
    if column.unit == "percent":
        return column.name.replace("_percent", " %")
    return printable(column.name)  # queries can name columns anything


def headings(columns: Sequence[SqlColumn]) -> list[str]:
    """Return the headings of columns; those that would have the same one keep their units."""
    found = [heading(column) for column in columns]
    return [
        printable(column.name) if found.count(title) > 1 else title
        for column, title in zip(columns, found, strict=True)
    ]


def aligned_headings(columns: Sequence[SqlColumn]) -> dict[str, bool]:
    """Return the headings of columns of different names, and whether each contains numbers."""
    return dict(zip(headings(columns), map(is_number, columns), strict=True))


def human_rows(table: Table, rows: Sequence[Row]) -> list[list[str]]:
    """Format the cells of a batch for people. Timestamps are relative to the start of their run, in one unit."""
    run = next((i for i, column in enumerate(table.columns) if column.name == "run_id"), None)
    alone = next(iter(table.origins.values())) if len(table.origins) == 1 else None
    origins = [
        table.origins.get(key) if run is not None and isinstance(key := row[run], int) else alone for row in rows
    ]
    columns: list[list[str]] = []
    for i, column in enumerate(table.columns):
        if column.timestamp:
            columns.append(human_moments([row[i] for row in rows], origins))
        else:
            columns.append([human(row[i], column.unit) for row in rows])
    return list(map(list, zip(*columns, strict=True)))


def to_csv(table: Table) -> Iterator[str]:
    """Write CSV as in RFC 4180, but with line feeds. NULL is an empty cell, empty text is "", as DuckDB writes them."""
    yield _csv_lines([table.names])
    others = [i for i, column in enumerate(table.columns) if column.type not in _PLAIN_TYPES]
    for batch in table.batches:
        lines = [list(row) for row in batch] if others else batch
        for line in lines if others else ():
            for i in others:
                line[i] = None if line[i] is None else plain(line[i])  # type: ignore[index]  # a list
        yield _csv_lines(lines)


def to_ndjson(table: Table) -> Iterator[str]:
    """Write one JSON object per line."""
    for line in _json_objects(table):
        yield line + "\n"


def to_json(table: Table) -> Iterator[str]:
    """Write a JSON array of objects, one per line."""
    first = True
    for line in _json_objects(table):
        yield f"[\n{line}" if first else f",\n{line}"
        first = False
    yield "[]\n" if first else "\n]\n"


def to_markdown(table: Table) -> Iterator[str]:
    """Write a Markdown table with the cells of the terminal's; markup in names is escaped."""
    yield f"| {' | '.join(map(markdown_text, headings(table.columns)))} |\n"
    yield f"| {' | '.join('---:' if is_number(column) else '---' for column in table.columns)} |\n"
    for batch in table.batches:
        for row in human_rows(table, batch):
            yield f"| {' | '.join(map(markdown_text, row))} |\n"


#: Formats that only need the rows. The command line draws tables, DuckDB writes Parquet.
TEXT_FORMATS: Mapping[str, Callable[[Table], Iterator[str]]] = {
    "csv": to_csv,
    "json": to_json,
    "ndjson": to_ndjson,
    "markdown": to_markdown,
}


def is_number(column: SqlColumn) -> bool:
    """Whether a column contains numbers, which are right-aligned."""
    is_decimal = column.type.startswith("DECIMAL(") and column.type.endswith(")")
    return is_decimal or column.type in _INTEGER_TYPES or column.type in ("DOUBLE", "FLOAT")


def _json_objects(table: Table) -> Iterator[str]:
    keys = [json_text(name) + ": " for name in table.names]
    cells = [_json_cell(column) for column in table.columns]
    for batch in table.batches:
        for row in batch:
            yield "{" + ", ".join([key + cell(v) for key, cell, v in zip(keys, cells, row, strict=True)]) + "}"


def _json_cell(column: SqlColumn) -> Callable[[Cell], str]:
    if column.type in _INTEGER_TYPES:
        return lambda value: "null" if value is None else str(value)
    # Names repeat, and a lookup is faster than checking each character.
    return lru_cache(1 << 14)(json_text) if column.type == "VARCHAR" else json_text


def _csv_lines(rows: Iterable[Sequence[Cell]]) -> str:
    return "".join(",".join(map(_csv_cell, row)) + "\n" for row in rows)


def _csv_cell(value: Cell) -> str:
    if not isinstance(value, str):
        return "" if value is None else str(value)
    if value and not _QUOTED.search(value):
        return value
    return '"{}"'.format(value.replace('"', '""'))


def markdown_table(columns: Mapping[str, bool], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown. `columns`: the headings, and whether they are numbers."""
    declared = [SqlColumn(name, "BIGINT" if number else "VARCHAR", "text", "") for name, number in columns.items()]
    return "".join(to_markdown(Table(tuple(declared), [cells]))).splitlines()


def markdown_text(text: str) -> str:
    """Escape the marks of Markdown."""
    for mark in "\\`*_[]<>|":
        text = text.replace(mark, "\\" + mark)
    return text
