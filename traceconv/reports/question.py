"""What is asked of a report: its parameters, rows, columns and their order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.reports.catalog import Report, reports
from traceconv.reports.filters import Filter, Value, conditions
from traceconv.reports.run_choice import choose_run, run_origins
from traceconv.reports.units import moment
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier
from traceconv.store.catalogue import views
from traceconv.store.documented_sql import OrderTerm, SqlColumn

#: What the parameters are called for users.
OPTION_NAMES = {"first_step": "steps", "last_step": "steps", "from_ns": "from", "to_ns": "to"}

_PEAKS, _LARGEST_PEAK = ("peak_tflops", "peak_gbps"), 1_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """A report with its parameters and the requested rows and columns.

    parameters  of the macro, by name; omitted ones select everything
    runs        only rows of these runs; none: all of `parameters`
    filters     that each row must match
    order       takes precedence over the report's own order
    top         only the first rows by `order`, or the largest by the report's measure if there is no `order`
    own_order   whether the rows selected by `top` are in the report's own order
    table       a table with the rows of the report for these parameters, computed by another engine
    """

    report: Report
    parameters: Mapping[str, float]
    columns: tuple[SqlColumn, ...]
    runs: tuple[int, ...] = ()
    filters: tuple[Filter, ...] = ()
    order: tuple[OrderTerm, ...] = ()
    top: int | None = None
    own_order: bool = False
    table: str | None = None

    @property
    def total_order(self) -> list[OrderTerm]:
        """The order in which no two rows are equal."""
        first = self.order
        if not first and self.top is not None and self.report.measure is not None:
            first = (OrderTerm(self.report.measure, descending=True),)
        terms: dict[str, OrderTerm] = {}
        for term in (*first, *self.report.order):
            terms.setdefault(term.column, term)
        return list(terms.values())

    @property
    def filtered(self) -> set[str]:
        """The names of the columns that filters read."""
        return {one.column.name for one in self.filters}

    def conditions(self, connection: duckdb.DuckDBPyConnection) -> tuple[list[str], list[Value]]:
        """The filters as SQL, and the values for their ?."""
        relative = any(one.relative for one in self.filters)
        return conditions(self.filters, run_origins(connection, self.runs) if relative else {})

    def call(self, macro: str) -> str:
        """The SQL of a macro with the parameters, each a ?."""
        named = ", ".join(f"{quote_identifier(name)} := ?" for name in self.parameters)
        return f"{quote_identifier(macro)}({named})"


def order_by(terms: Sequence[OrderTerm]) -> str:
    """Return the clause for rows in this order, with a space before it."""
    keys = (f"{quote_identifier(term.column)} {'DESC' if term.descending else 'ASC'} NULLS LAST" for term in terms)
    return f" ORDER BY {', '.join(keys)}"


def on_runs(
    connection: duckdb.DuckDBPyConnection, question: Question, run: str | None, start: str | None, end: str | None
) -> tuple[Question, str | None]:
    """Return a question on the runs that `run` names, and a window of time; and the note of `choose_run`.

    Raises UsageError for an unknown run, an invalid time, and a report without a window.
    """
    choice = choose_run(connection, run)
    times = given_parameters(question.report, **given_times(connection, choice.run_ids, start, end))
    parameters = {**choice.parameters, **question.parameters, **times}
    return replace(question, parameters=parameters, runs=choice.run_ids), choice.note


def find_report(name: str) -> Report:
    """Return a report by name, with - or _. Raises UsageError with the nearest name."""
    known = reports()
    # DuckDB has a function `summary`, so the macro has another name.
    sql_name = "run_summary" if name == "summary" else name.replace("-", "_")
    report = known.get(sql_name) or next((one for one in known.values() if one.formerly == sql_name), None)
    if report is None:
        if sql_name in {*tables(), *views()}:
            query = option(f'traceconv query "FROM {sql_name}"', f'Store.query("FROM {sql_name}")')
            raise UsageError(f"{sql_name} is not a report but a table or view; read it with: {query}")
        dashed = ["summary", *(key.replace("_", "-") for key in known)]
        near = suggestion(name.replace("_", "-"), dashed)
        listing = option("traceconv report --list", "Store.reports()")
        raise UsageError(f"unknown report '{printable(name)}'.{near} List them with: {listing}")
    return report


def check_engine(engine: str) -> None:
    """Raise UsageError unless this is the name of an engine for reports."""
    if engine not in ("duckdb", "spark"):
        raise UsageError(f"unknown engine '{printable(engine, 40)}'; engines: duckdb, spark")


def given_parameters(report: Report, **values: float | None) -> dict[str, float]:
    """Return the parameters that are not None.

    Raises UsageError for one that the report doesn't have, and for a peak that is not positive.
    """
    given = {name: value for name, value in values.items() if value is not None}
    known = [parameter.name for parameter in report.parameters]
    for name in given:
        if name not in known:
            has = ", ".join(dict.fromkeys(OPTION_NAMES.get(one, one) for one in known))
            raise UsageError(f"the report {report.name} has no {OPTION_NAMES.get(name, name)} parameter; it has: {has}")
        if name in _PEAKS and not 0 < given[name] <= _LARGEST_PEAK:
            raise UsageError(f"{name} must be more than 0 and at most {_LARGEST_PEAK}, not {given[name]}")
    return given


def given_steps(steps: str | None) -> dict[str, int | None]:
    """Parse `3-5`, `3-`, `-5` or `4` into the parameters of a report. Raises UsageError."""
    if steps is None:
        return {}
    match = re.fullmatch(r"\s*([0-9]{0,18})\s*(-?)\s*([0-9]{0,18})\s*", steps)
    if not match or not (match[1] or match[3]) or not (match[2] or (match[1] and not match[3])):
        raise UsageError(f"steps needs a range such as 3-5, 3- or -5, not '{printable(steps, 60)}'")
    last = match[3] if match[2] else match[1]
    if match[1] and last and int(match[1]) > int(last):
        raise UsageError(f"steps {match[1]}-{last}: the first step is after the last")
    return {"first_step": int(match[1]) if match[1] else None, "last_step": int(last) if last else None}


def given_times(
    connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int], start: str | None, end: str | None
) -> dict[str, int | None]:
    """Return the parameters of a window of time. Times with a unit are relative to the start of the run.

    Raises UsageError for an invalid time, and for a relative one with several runs.
    """
    found: dict[str, int | None] = {}
    for name, text in (("from_ns", start), ("to_ns", end)):
        if text is None:
            continue
        time_ns, relative = moment(text)
        if relative:
            if len(run_ids) != 1:
                raise UsageError(f"{printable(text)} is relative to the start of a run; select one run, or pass ns")
            [run_id] = run_ids
            origins = run_origins(connection, run_ids)
            if run_id not in origins:
                raise UsageError(f"{printable(text)}: the start of run {run_id} is unknown; pass ns")
            time_ns += origins[run_id]
        found[name] = time_ns
    if len(found) == 2 and (found["from_ns"] or 0) >= (found["to_ns"] or 0):
        raise UsageError(f"the time window is empty: {printable(start or '')} is not before {printable(end or '')}")
    return found
