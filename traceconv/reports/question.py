"""What is asked of a report: its parameters, rows, columns and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import duckdb

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.base.integers import LARGEST
from traceconv.reports.catalog import Report, reports
from traceconv.reports.columns import parse_order
from traceconv.reports.filters import Filter, Value, conditions
from traceconv.reports.run_choice import choose_run, run_origins
from traceconv.reports.steps import times_of
from traceconv.reports.window import Window
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
    window      steps and times, which become parameters in `on_runs`
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
    window: Window = field(default_factory=Window)
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


def takes_times_of_steps(report: Report) -> bool:
    """Whether a selection of steps becomes the time of these steps: the report has no parameters for them."""
    names = {parameter.name for parameter in report.parameters}
    return "from_ns" in names and "first_step" not in names


def order_by(terms: Sequence[OrderTerm]) -> str:
    """Return the clause for rows in this order, with a space before it."""
    keys = (f"{quote_identifier(term.column)} {'DESC' if term.descending else 'ASC'} NULLS LAST" for term in terms)
    return f" ORDER BY {', '.join(keys)}"


def make_question(
    report: Report,
    columns: tuple[SqlColumn, ...],
    *,
    window: Window,
    filters: Sequence[Filter] = (),
    order_by: Sequence[str] = (),
    ascending: bool | None = None,
    top: int | None = None,
    own_order: bool = False,
    **parameters: float | None,
) -> Question:
    """Return a question from the options of a user; its runs and times follow in `on_runs`.

    order_by    columns, each with its direction or in that of `ascending`; None: numbers descending, text ascending
    parameters  of the report; None and False: not given

    Raises UsageError.
    """
    if ascending is not None and not order_by:
        raise UsageError(option("--ascending and --descending need --order-by COLUMN", "ascending needs order_by"))
    if top is not None and not 1 <= top <= LARGEST:
        raise UsageError(f"top must be from 1 to {LARGEST}, not {top}")
    if parameters.get("step") is not None and window.has_steps:
        raise UsageError(f"{option('--step')} and {option('--steps')} exclude each other")
    steps = {"first_step": window.first_step, "last_step": window.last_step}
    if takes_times_of_steps(report):
        if (step := parameters.pop("step", None)) is not None:
            window = replace(window, first_step=int(step), last_step=int(step))
        steps = {}
    order = tuple(parse_order(report, text, ascending=ascending) for text in order_by)
    given = _given_parameters(report, {**parameters, **steps})
    return Question(report, given, columns, (), tuple(filters), order, top, own_order, window)


def on_runs(connection: duckdb.DuckDBPyConnection, question: Question, run: str | None) -> tuple[Question, str | None]:
    """Return a question on the runs that `run` names, and the times of its window; and the note of `choose_run`.

    Raises UsageError for an unknown run, a relative time of several runs, and a report without a window.
    """
    choice = choose_run(connection, run)
    if takes_times_of_steps(question.report):
        found = times_of(connection, choice.run_ids, question.window)
    else:
        found = question.window.times(connection, choice.run_ids)
    times = dict(zip(("from_ns", "to_ns"), found, strict=True))
    parameters = {**choice.parameters, **question.parameters, **_given_parameters(question.report, times)}
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


def _given_parameters(report: Report, values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the parameters that are not None or False.

    Raises UsageError for one that the report doesn't have, and for a peak that is not positive.
    """
    given = {name: value for name, value in values.items() if value is not None and value is not False}
    known = [parameter.name for parameter in report.parameters]
    for name in given:
        if name not in known:
            has = ", ".join(dict.fromkeys(OPTION_NAMES.get(one, one) for one in known))
            raise UsageError(f"the report {report.name} has no {OPTION_NAMES.get(name, name)} parameter; it has: {has}")
        if name in _PEAKS and not 0 < given[name] <= _LARGEST_PEAK:
            raise UsageError(f"{name} must be more than 0 and at most {_LARGEST_PEAK}, not {given[name]}")
    return given
