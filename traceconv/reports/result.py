"""The rows of a report for Python and notebooks: dicts, tuples, data frames, and a table as their repr."""

from __future__ import annotations

import html
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, TypeGuard

from traceconv.base.errors import TraceconvError, UsageError
from traceconv.reports.columns import find_columns
from traceconv.reports.fetch import reading
from traceconv.reports.no_rows import why_empty
from traceconv.reports.question import Question
from traceconv.reports.render import Row, Table, aligned_headings, human_rows
from traceconv.reports.run import answer, statement
from traceconv.reports.run_choice import run_origins
from traceconv.reports.short_names import distinct

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

#: Rows of a repr.
_SHOWN_ROWS = 40
#: Characters of a text in a repr.
_LONGEST_NAME = 60


@dataclass(repr=False, eq=False)
class ReportRows:
    """The rows of a report: iterate over them, or call `.df()`, `.pl()`, `.arrow()` or `.fetchall()`.

    Each use runs the query again on its own connection, so uses can be interleaved, and may stop early.
    """

    _question: Question
    _cursor: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]
    _warns_when_empty: bool = False

    def of_profiles(self, cursor: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]) -> ReportRows:
        """Return the same rows over another connection. If there are none, a UserWarning explains what to record."""
        return replace(self, _cursor=cursor, _warns_when_empty=True)

    @property
    def name(self) -> str:
        """Name of the report, as on the command line."""
        return self._question.report.name.replace("_", "-")

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self._question.columns]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self.columns
        for batch in self._batches():
            for row in batch:
                yield dict(zip(names, row, strict=True))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows as tuples."""
        return list(map(tuple, chain.from_iterable(self._batches())))

    def arrow(self) -> pyarrow.Table:
        """Return all rows as an Arrow table."""
        with self._cursor() as cursor, reading():
            sql, values = statement(cursor, self._question)
            table = cursor.sql(sql, params=values).to_arrow_table()
            if not table.num_rows:
                self._warn_when_empty(cursor)
            return table

    def df(self) -> pandas.DataFrame:
        """Return all rows as a pandas data frame: integers stay integers (`Int64` with NULLs), decimals are floats.

        Raises UsageError if pandas is not installed.
        """
        return arrow_to_pandas(self.arrow())

    def pl(self) -> polars.DataFrame:
        """Return all rows as a polars data frame. Raises UsageError if polars is not installed."""
        try:
            import polars
        except ImportError as error:
            raise UsageError(
                "pl() needs polars; install it (pip install polars), or use arrow() or fetchall()"
            ) from error
        found = polars.from_arrow(self.arrow())
        assert isinstance(found, polars.DataFrame)  # a table is never a series
        return found

    def __repr__(self) -> str:
        try:
            columns, cells, more = self._peek()
        except TraceconvError as error:
            return f"<report {self.name}: {error}>"
        return f"{self.name}\n{text_table(columns, cells)}" + ("\n…" if more else "")

    def _repr_html_(self) -> str:
        try:
            columns, cells, more = self._peek()
        except TraceconvError as error:
            return f"<p>{html.escape(self.name)}: {html.escape(str(error))}</p>"
        after = f"<p>The first {len(cells)} rows.</p>" if more else ""
        return html_table(self.name, columns, cells) + after

    def _batches(self) -> Iterator[Sequence[Row]]:
        with self._cursor() as cursor:
            empty = True
            for batch in answer(cursor, self._question):
                empty = False
                yield batch
            if empty:
                self._warn_when_empty(cursor)

    def _warn_when_empty(self, cursor: duckdb.DuckDBPyConnection) -> None:
        if not self._warns_when_empty:
            return
        frame, level = sys._getframe(), 1
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame, level = frame.f_back, level + 1
        warnings.warn(why_empty(cursor, self._question), UserWarning, stacklevel=level)

    def _peek(self) -> tuple[dict[str, bool], list[list[str]], bool]:
        """Return the first rows for people: headings and whether they are numbers, cells, whether there are more."""
        report, columns = self._question.report, self._question.columns
        if columns == report.columns:
            # By default, show the same columns as a terminal.
            shown = [*(["run_id"] if "run" not in self._question.parameters else []), *report.shown]
            columns = find_columns(report, list(dict.fromkeys(shown)))
        places = [self._question.columns.index(column) for column in columns]
        with self._cursor() as cursor, reading():
            origins = run_origins(cursor, self._question.runs)
            rows = [row for batch in islice(answer(cursor, self._question), 1) for row in batch[: _SHOWN_ROWS + 1]]
        kept: list[Row] = [[row[place] for place in places] for row in rows[:_SHOWN_ROWS]]
        cells = human_rows(Table(columns, (), origins), kept)
        return aligned_headings(columns), cells, len(rows) > _SHOWN_ROWS


def arrow_to_pandas(table: pyarrow.Table) -> pandas.DataFrame:
    """Convert an Arrow table to a data frame without converting integers to floats."""
    try:
        import pandas
    except ImportError as error:
        raise UsageError("df() needs pandas; install it (pip install pandas), or use arrow() or fetchall()") from error
    import pyarrow

    nullable: Mapping[pyarrow.DataType, Any] = {
        pyarrow.int64(): pandas.Int64Dtype(),
        pyarrow.uint64(): pandas.UInt64Dtype(),
        pyarrow.int32(): pandas.Int32Dtype(),
        pyarrow.bool_(): pandas.BooleanDtype(),
    }
    frame = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pyarrow.types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        frame[name] = column.to_pandas(types_mapper=nullable.get if column.null_count else None)
    return pandas.DataFrame(frame)


def text_table(columns: Mapping[str, bool], cells: Sequence[Sequence[str]]) -> str:
    """Align cells in columns; long names are shortened. `columns`: the headings, and whether they are numbers."""
    cells = _shortened(columns, cells)
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = []
    for row in (list(columns), *cells):
        padded = zip(row, widths, columns.values(), strict=True)
        lines.append("  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in padded))
    return "\n".join(line.rstrip() for line in lines)


def html_table(
    title: str,
    columns: Mapping[str, bool],
    cells: Sequence[Sequence[str]],
    *,
    values: Sequence[Row] = (),
    measure: str | None = None,
) -> str:
    """Format cells as an HTML table; markup in names is escaped. Hover shows the full text of a shortened name.

    values   what the cells show, for scripts that sort: numbers become the attribute data-value
    measure  heading of a column of numbers whose cells have bars, too
    """
    place = None if measure is None else list(columns).index(measure)
    measured = [] if place is None else [row[place] for row in values]
    most = max((abs(float(value)) for value in measured if _is_real(value)), default=0)

    def line(tag: str, row: Sequence[str], full: Sequence[str], known: Row = ()) -> str:
        made = ""
        for number, (cell, text, is_right) in enumerate(zip(row, full, columns.values(), strict=True)):
            extra = "" if cell == text else f' title="{html.escape(text)}"'
            style = "text-align: right; white-space: nowrap" if is_right else "text-align: left; white-space: pre-wrap"
            if known and _is_real(value := known[number]):
                extra += f' data-value="{value}"'
                if number == place and most:
                    share = f"{100 * abs(float(value)) / most:.1f}%"
                    style += f"; background: linear-gradient(90deg, #4e79a755 {share}, transparent {share})"
            made += f'<{tag} style="{style}"{extra}>{html.escape(cell)}</{tag}>'
        return f"<tr>{made}</tr>"

    lines = zip(_shortened(columns, cells), cells, values or repeat(()), strict=bool(values))
    body = "".join(line("td", *one) for one in lines)
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead>{line('th', list(columns), list(columns))}</thead><tbody>{body}</tbody></table>"


def _is_real(value: object) -> TypeGuard[int | float | Decimal]:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _shortened(columns: Mapping[str, bool], cells: Sequence[Sequence[str]]) -> list[list[str]]:
    """Shorten long names by meaning, so that different ones stay different."""
    found = []
    for texts, number in zip(zip(*cells, strict=True), columns.values(), strict=False):
        if number or all(len(text) <= _LONGEST_NAME for text in texts):
            found.append(texts)
        else:
            short = distinct(texts, _LONGEST_NAME, shortened)
            found.append(tuple(short[text] for text in texts))
    return list(map(list, zip(*found, strict=True)))


def shortened(text: str, width: int) -> str:
    """Shorten `text` to `width` characters, with an ellipsis in its middle."""
    tail = (width - 1) // 2
    return text if len(text) <= width else f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
