"""`traceconv report`: the questions that the store knows the answer to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import UsageError
from traceconv.cli import options

if TYPE_CHECKING:
    import duckdb

    from traceconv.reports.catalog import Report
    from traceconv.reports.run import Question
    from traceconv.store.documented_sql import OrderTerm, SqlColumn

_FORMATS = (*options.FORMATS, "msprof-csv")


def report(
    context: typer.Context,
    name: str | None = typer.Argument(None, metavar="NAME", help="Which report, such as op-statistic; see --list."),
    db: Path | None = options.DB,
    run: str | None = options.RUN,
    device: int | None = typer.Option(None, "--device", metavar="N", help="Only this device."),
    step: int | None = typer.Option(None, "--step", metavar="N", help="Only this step (step.step_id)."),
    top: int | None = typer.Option(
        None,
        "--top",
        metavar="N",
        min=1,
        help="Only the N largest rows over all devices and runs shown, by the report's measure (see NAME --help), "
        "or the first N by --order-by.",
    ),
    order_by: str | None = typer.Option(
        None,
        "--order-by",
        metavar="COLUMN",
        help="Sort by this column: numbers from the largest, texts from A. Ties are in the report's own order.",
    ),
    ascending: bool | None = typer.Option(
        None, "--ascending/--descending", help="Which way --order-by sorts.", show_default=False
    ),
    filters: list[str] = typer.Option(
        [],
        "--filter",
        metavar="COLUMN=VALUE",
        help="Only rows where the column has this value; COLUMN=NULL: where it is not known; also !=, <, <=, >, >=, "
        "and COLUMN~REGEX. Durations may have a unit: 0.1ms. Several: all must hold.",
    ),
    columns: str | None = typer.Option(
        None,
        "--columns",
        metavar="A,B,…|all",
        help="Which columns, in which order. Default: those that fit for a table, all for other formats.",
    ),
    form: str | None = typer.Option(
        None, "--format", metavar="FORMAT", help=f"{', '.join(_FORMATS)}. Default: by the name of -o, else table."
    ),
    output: Path | None = options.OUTPUT,
    show_list: bool = typer.Option(False, "--list", help="List the reports."),
    show_help: bool = typer.Option(False, "--help", help="Show this message, or with NAME what that report says."),
) -> None:
    """Answer a question from the store, such as which operators take the time.

    Each report is also a view and a macro in the store: "FROM op_statistic(run := 2)" in any DuckDB shell.

    \b
    Examples:
      traceconv report --list
      traceconv report op-statistic --help
      traceconv report op-statistic --top 10
      traceconv report op-summary --filter op_type=Conv2D --order-by wait_ns
      traceconv report op-analysis --filter 'self_ns>=0.1ms'
      traceconv report op-analysis --filter 'op_type~^(Conv|MatMul)' --top 5
      traceconv report step-trace --run all --format csv -o steps.csv
    """
    from traceconv.cli.output import print_lines

    if show_list or (name is None and show_help):
        print_lines(_listing() if show_list else [context.get_help()])
        return
    if name is None:
        raise UsageError("which report? All: traceconv report --list")
    from traceconv.reports.filters import parse_filter
    from traceconv.reports.run import find_report

    wanted = find_report(name)
    if show_help:
        from traceconv.cli.describe import report_description

        print_lines(report_description(wanted))
        return
    if ascending is not None and order_by is None:
        raise UsageError("--ascending and --descending say how --order-by sorts; name a column with --order-by")
    chosen_format = options.row_format(form, output, _FORMATS)
    given = {"device": device, "step": step}
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.run import Question, reading

    shown = _columns(wanted, columns, chosen_format, all_runs=run == "all")
    question = Question(
        report=wanted,
        parameters=_parameters(wanted, given),
        columns=shown,
        filters=tuple(parse_filter(wanted, text) for text in filters),
        order=_order(wanted, order_by, ascending),
        top=top,
        own_order=chosen_format == "msprof-csv" and order_by is None,
    )
    with open_current_store(options.store_path(db)) as connection, reading():
        _run(connection, question, run, chosen_format, output)


def _run(
    connection: duckdb.DuckDBPyConnection, question: Question, wanted_run: str | None, form: str, output: Path | None
) -> None:
    from dataclasses import replace
    from itertools import chain

    from traceconv.cli.output import say, write_parquet_file, write_table, write_text
    from traceconv.reports.render import TEXT_FORMATS, Table, msprof_columns, to_msprof_csv
    from traceconv.reports.run import answer, choose_run, recorded_groups, run_origins, statement, why_empty
    from traceconv.store.database import lock_down

    choice = choose_run(connection, wanted_run)
    if choice.run_id is not None:
        question = replace(question, parameters={"run": choice.run_id, **question.parameters})
    if choice.note is not None:
        say(choice.note)
    if form == "parquet":
        assert output is not None  # options.row_format saw to it
        sql, values = statement(connection, question)
        write_parquet_file(connection, sql, values, output)
        return
    lock_down(connection)
    if form == "msprof-csv" and any(column.group for column in question.columns):
        groups = recorded_groups(connection, question.parameters.get("run"))
        question = replace(question, columns=msprof_columns(question.report, groups))
    origins = run_origins(connection)
    if choice.run_id is not None:
        origins = {run_id: start for run_id, start in origins.items() if run_id == choice.run_id}
    batches = answer(connection, question)
    # The first batch is read before anything is written: it shows whether there is an answer.
    first = next(batches, [])
    if not first:
        say(why_empty(connection, question))
    table = Table(question.columns, chain([first], batches), origins)
    if form == "table":
        write_table(table, output, row_limit=question.top)
    elif form == "msprof-csv":
        write_text(to_msprof_csv(table, question.report), output)
    else:
        write_text(TEXT_FORMATS[form](table), output)


def _listing() -> list[str]:
    from traceconv.reports.catalog import reports

    found = {name.replace("_", "-"): report for name, report in reports().items()}
    width = max(map(len, found))
    return [f"{name:<{width}}  {report.title}" for name, report in found.items()]


def _parameters(report: Report, given: dict[str, int | None]) -> dict[str, int]:
    known = {parameter.name for parameter in report.parameters}
    chosen = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in known:
            raise UsageError(f"{report.name} has no --{name}: its rows are not of one {name}")
        chosen[name] = value
    return chosen


def _columns(report: Report, wanted: str | None, form: str, *, all_runs: bool) -> tuple[SqlColumn, ...]:
    from traceconv.reports.columns import find_columns
    from traceconv.reports.render import msprof_columns

    if form == "msprof-csv":
        if wanted is not None:
            raise UsageError("msprof-csv has msprof's own columns; leave out --columns, or choose --format csv")
        return msprof_columns(report)
    if wanted is None and form in ("table", "markdown"):
        return find_columns(report, (["run_id"] if all_runs else []) + list(report.shown))
    if wanted is None or wanted == "all":
        return report.columns
    return find_columns(report, [name.strip() for name in wanted.split(",")])


def _order(report: Report, column: str | None, ascending: bool | None) -> tuple[OrderTerm, ...]:
    if column is None:
        return ()
    from traceconv.reports.columns import order_term

    return (order_term(report, column, ascending=ascending),)
