"""A report as a CSV file of msprof: its labels, its order of columns and its number formats, as text built by SQL.

Timestamps have three decimals and a tab, which keeps spreadsheets from rounding them; durations have three decimals;
statistics and counters have as many as they need. NULL is N/A, or 4294967295 for the model of an op. The formats are
those of real files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import duckdb

from traceconv.base.errors import UsageError
from traceconv.reports.catalog import Report
from traceconv.reports.fetch import fetch, reading
from traceconv.reports.filters import Value
from traceconv.reports.question import Question
from traceconv.reports.run import statement
from traceconv.reports.run_choice import recorded_groups
from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.documented_sql import SqlColumn
from traceconv.store.memory_limit import sorted_on_disk

#: msprof's Model ID of ops without a model.
_NO_MODEL = 2**32 - 1
#: Lines fetched at once.
_BATCH_LINES = 4096
_QUOTED = quote_text(r'[",\r\n]')
#: Zeros that a number with three decimals doesn't need: 14.060 → 14.06, 15.000 → 15.0.
_ZEROS = quote_text("0{1,2}$")


def msprof_columns(report: Report, groups: Collection[str] | None = None) -> tuple[SqlColumn, ...]:
    """Return the columns that msprof has too; counter columns only of the recorded groups (None: all).

    Raises UsageError if msprof has no such report.
    """
    columns = tuple(
        column
        for column in report.columns
        if column.msprof is not None
        and (groups is None or column.group is None or column.group in groups or (column.group == "any" and groups))
    )
    if not columns:
        raise UsageError(f"msprof has no equivalent of {report.name}; choose another --format")
    return columns


def msprof_csv(connection: duckdb.DuckDBPyConnection, question: Question) -> Iterator[str]:
    """Yield the line of labels, then the other lines in batches. The columns of `question` are not used.

    Lists (the reduces of a step) become pairs of columns, as many as the longest list has. Raises StoreError if the
    store can't be read.
    """
    report = question.report
    groups = None
    if any(column.group for column in report.columns):
        groups = recorded_groups(connection, question.runs)
    question = replace(question, columns=msprof_columns(report, groups))
    single = [column for column in question.columns if not column.type.endswith("[]")]
    lists = [column for column in question.columns if column.type.endswith("[]")]
    pairs = _longest(connection, question, lists) if lists else 0
    labels = [label for label, _ in report.msprof_constants]
    labels += [column.msprof or "" for column in [*single, *lists * pairs]]
    yield ",".join(labels) + "\n"
    cells = [quote_text(value) for _, value in report.msprof_constants]
    cells += [_cell(quote_identifier(column.name), column) for column in single]
    parts = [part for cell in cells for part in ("','", cell)][1:]
    if pairs:
        items = [("','", _cell(f"{quote_identifier(column.name)}[place]", column)) for column in lists]
        item = f"concat({', '.join(part for pair in items for part in pair)})"
        parts.append(f"array_to_string([{item} for place in range(1, {pairs + 1})], '')")
    sql, values = statement(connection, question, f"concat({', '.join(parts)}, chr(10)) AS text")
    yield from _texts(connection, sql, values)


def _longest(connection: duckdb.DuckDBPyConnection, question: Question, lists: Sequence[SqlColumn]) -> int:
    sql, values = statement(connection, question)
    lengths = ", ".join(f"len({quote_identifier(column.name)})" for column in lists)
    [[(longest,)]] = fetch(connection, f"SELECT coalesce(max(greatest({lengths})), 0) FROM ({sql})", values)  # noqa: S608 - our columns
    assert isinstance(longest, int)
    return longest


def _texts(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Value]) -> Iterator[str]:
    """Yield the only column of a query, a text column, joined in batches."""

    def ask() -> Iterator[str]:
        for batch in connection.sql(sql, params=list(values)).to_arrow_reader(_BATCH_LINES):
            yield "".join(batch.column(0).to_pylist())

    with reading():
        yield from sorted_on_disk(connection, ask)


def _cell(value: str, column: SqlColumn) -> str:
    """Return the SQL of a cell as text."""
    conversion, kind = column.msprof_as, column.type.removesuffix("[]")
    if conversion in ("us", "short_us"):
        # Means have fractions of ns, which are rounded half away from 0.
        ns = f"round({value})" if kind.startswith("DECIMAL") else value
        shown = f"({ns}::DECIMAL(30, 0) * 0.001::DECIMAL(3, 3))::VARCHAR"
    elif conversion == "kb":
        # Exact: 1/1024 has ten decimals.
        shown = f"rtrim(rtrim(({value}::DECIMAL(19, 0) * 0.0009765625::DECIMAL(10, 10))::VARCHAR, '0'), '.')"
    elif conversion == "ratio":
        shown = f"printf('%.3f', {value})"
    elif conversion == "flag":
        shown = f"CASE WHEN {value} THEN 'YES' WHEN NOT {value} THEN 'NO' END"
    else:
        shown = f"""'"' || {value} || '"'""" if conversion == "shapes" else f"{value}::VARCHAR"
    if conversion in ("short_us", "ratio"):
        shown = f"regexp_replace({shown}, {_ZEROS}, '')"
    elif column.timestamp:
        shown += " || chr(9)"
    elif kind == "VARCHAR":
        quoted = f"""'"' || replace({shown}, '"', '""') || '"'"""
        shown = f"CASE WHEN regexp_matches({shown}, {_QUOTED}) THEN {quoted} ELSE {shown} END"
    return f"coalesce({shown}, '{_NO_MODEL if conversion == 'model' else 'N/A'}')"
