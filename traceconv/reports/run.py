"""Running a report: the statement for its rows in their order, and the rows in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb

from traceconv.reports.catalog import define_part
from traceconv.reports.fetch import fetch
from traceconv.reports.filters import Value, where
from traceconv.reports.first_rows import first_ids
from traceconv.reports.question import Question, order_by
from traceconv.reports.render import Row
from traceconv.reports.run_choice import in_runs
from traceconv.schema.ddl import quote_identifier


def answer(connection: duckdb.DuckDBPyConnection, question: Question) -> Iterator[Sequence[Row]]:
    """Yield the rows in batches, in their order. Raises StoreError if the store can't be read."""
    sql, values = statement(connection, question)
    return fetch(connection, sql, values)


def statement(
    connection: duckdb.DuckDBPyConnection, question: Question, select: str | None = None
) -> tuple[str, list[Value]]:
    """Return the SQL statement for a question, and its values. `select`: expressions instead of the columns."""
    report, order = question.report, question.total_order
    ids = first_ids(connection, question)
    chosen, values = question.conditions(connection)
    if question.table is not None:
        source = quote_identifier(question.table)
    else:
        columns = {column.name for column in question.columns} | {term.column for term in order}
        part = define_part(connection, report, columns | question.filtered)
        source, values = question.call(part), [*question.parameters.values(), *values]
    if ids is not None:
        # The IDs are integers from the store, so they are safe in the statement. A list of them filters only one side
        # of a join; DuckDB applies bounds to the other side too, which saves most of its scan.
        bounds = f"id BETWEEN {min(ids)} AND {max(ids)}" if ids else "false"
        chosen = [*chosen, bounds, f"id IN ({', '.join(map(str, ids)) or 'NULL'})"]
    if len(question.runs) > 1:
        chosen = [*chosen, in_runs(question.runs)]
    selected = select or ", ".join(quote_identifier(column.name) for column in question.columns)
    rows = f"FROM {source}{where(chosen)}{order_by(order)}"
    if question.top is not None:
        rows += f" LIMIT {question.top:d}"
        if question.own_order or (report.is_listed and not question.order):
            rows = f"FROM ({rows}){order_by(report.order)}"
    return f"SELECT {selected} {rows}", values
