"""`traceconv report`: the built-in reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import UsageError, printable
from traceconv.cli import options
from traceconv.cli.completions import complete_filter, complete_report

if TYPE_CHECKING:
    import duckdb

    from traceconv.reports.catalog import Report
    from traceconv.reports.question import Question
    from traceconv.store.documented_sql import SqlColumn

_FORMATS = (*options.FORMATS, "msprof-csv")


def report(
    context: typer.Context,
    name: str | None = typer.Argument(
        None, metavar="NAME", help="Report, such as op-statistic; see --list.", autocompletion=complete_report
    ),
    paths: list[Path] | None = options.FILES,
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    run: str | None = options.RUN,
    rank: str | None = options.RANK,
    device: int | None = options.DEVICE,
    step: int | None = typer.Option(None, "--step", metavar="N", help="Only this step (step.step_id)."),
    steps: str | None = options.STEPS,
    start: str | None = typer.Option(
        None,
        "--from",
        metavar="TIME",
        help="Start of a time window: since the start of the run (1.5ms), or absolute ns without a unit. What counts "
        "at its borders: NAME --help.",
    ),
    end: str | None = options.TO,
    peak_tflops: float | None = typer.Option(
        None, "--peak-tflops", metavar="X", help="For roofline: the devices' peak in 10^12 operations per second."
    ),
    peak_gbps: float | None = typer.Option(
        None, "--peak-gbps", metavar="X", help="For roofline: their memory bandwidth in 10^9 bytes per second."
    ),
    by_shape: bool = typer.Option(
        False,
        "--by-shape",
        help="For kernels: rows per operator that launched the kernel, and per shape of its arguments.",
    ),
    min_percent: float | None = typer.Option(
        None,
        "--min-percent",
        metavar="X",
        help="For op-tree: sum ranges below this share of the time. Default: 2 for a table on a terminal, 0 elsewhere.",
    ),
    by_module: bool = typer.Option(False, "--by-module", help="For memory-statistic: rows per module, too."),
    top: int | None = typer.Option(
        None,
        "--top",
        "--limit",
        "-n",
        metavar="N",
        min=1,
        help="Only the N largest rows over all devices and runs, by the report's measure (see NAME --help), or the "
        "first N by --order-by.",
    ),
    order_by: str | None = options.ORDER_BY,
    ascending: bool | None = typer.Option(None, "--ascending/--descending", help="Direction of --order-by."),
    filters: list[str] = typer.Option(
        [],
        "--filter",
        autocompletion=complete_filter,
        metavar="COLUMN=VALUE",
        help="Only rows whose column has this value (repeatable); COLUMN=NULL: unknown values; also !=, <, <=, >, >= "
        "and COLUMN~REGEX. Columns and values as in a table: total>=0.1ms, used>1MiB, start<2s.",
    ),
    columns: str | None = options.COLUMNS,
    engine: str = typer.Option(
        "duckdb",
        "--engine",
        metavar="ENGINE",
        help="What computes the report: duckdb, or spark for a lake (pip install 'traceconv[spark]'; needs Java ≥ 17).",
    ),
    master: str = options.MASTER,
    sample: bool = typer.Option(
        False,
        "--sample",
        help="Answer from a sample of FILE, without reading all of it: estimates with 95 % intervals. For summary, "
        "kernels and op-statistic of a trace in JSON.",
    ),
    first: bool | None = typer.Option(
        None,
        "--first-answers/--no-first-answers",
        help="While FILE is ingested, show such estimates on stderr. Default: on a terminal, for large files.",
    ),
    form: str | None = options.format_option(_FORMATS),
    output: Path | None = options.OUTPUT,
    show_list: bool = typer.Option(False, "--list", help="List the reports."),
    show_help: bool = typer.Option(False, "--help", "-h", help="Show this message; with NAME, describe that report."),
) -> None:
    """Run a built-in report, such as op-statistic.

    Each report is also a view and a macro in the store: "FROM op_statistic(run := 2)" in any DuckDB shell.
    "traceconv export msprof" writes all files of msprof's output folder, as --format msprof-csv does one.

    \b
    Examples:
      traceconv report --list
      traceconv report op-statistic --help
      traceconv report op-statistic --top 10
      traceconv report op-summary --filter op_type=Conv2D --order-by wait_ns
      traceconv report op-analysis --filter 'self>=0.1ms'
      traceconv report op-statistic --from 100ms --to 0.5s
      traceconv report op-statistic --steps 3-5 --sort "Total Time"
      traceconv report op-analysis --filter 'op_type~^(Conv|MatMul)' --top 5
      traceconv report step-trace --run all --format csv -o steps.csv
      traceconv report op-statistic worker0.pt.trace.json.gz
      traceconv report summary big.json --sample
    """
    from traceconv.cli.first_answers import first_answers_of, write_sample
    from traceconv.cli.one_shot import asked_store
    from traceconv.cli.output import print_message

    wanted = _find_or_describe(context, name, paths or (), show_list=show_list, show_help=show_help)
    if wanted is None:
        return
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.fetch import reading
    from traceconv.reports.filters import parse_filter
    from traceconv.reports.question import check_engine, make_question, on_runs
    from traceconv.reports.run_choice import wanted_run
    from traceconv.reports.window import Window, parse_window

    check_engine(engine)
    chosen_format = options.row_format(form, output, _FORMATS)
    run = wanted_run(run, rank) or ("all" if wanted.compares_runs or len(paths or ()) > 1 else None)
    window = parse_window(steps, start, end)
    shortened = (
        wanted.name == "op_tree" and min_percent is None and chosen_format == "table" and output is None
        and sys.stdout.isatty() and not (filters or order_by or top)
    )  # fmt: skip
    question = make_question(
        wanted, _columns(wanted, columns, chosen_format, all_runs=run == "all" or "," in (run or "")), window=window,
        filters=[parse_filter(wanted, text) for text in filters], order_by=order_by.split(",") if order_by else (),
        ascending=ascending, top=top, own_order=chosen_format == "msprof-csv" and order_by is None, device=device,
        step=step, peak_tflops=peak_tflops, peak_gbps=peak_gbps, by_shape=by_shape, by_module=by_module,
        min_percent=2 if shortened else min_percent,
    )  # fmt: skip
    is_plain = engine == "duckdb" and not (question.parameters or filters or run or window != Window() or order_by)
    shown_first = first_answers_of(wanted.name, paths or (), top, is_plain=is_plain, wanted=first, sample=sample)
    if sample:
        write_sample(wanted.name, (paths or [Path()])[0], chosen_format, output, top)
        return
    with (
        asked_store(db, paths or (), cache=cache, first=shown_first) as store,
        open_current_store(store) as connection,
        reading(),
    ):
        question, note = on_runs(connection, question, run)
        if note is not None:
            print_message(note)
        if engine == "spark":
            from traceconv.spark.session import spark_question

            question = spark_question(connection, store, question, master)
        needed = {wanted.measure, *(term.column for term in question.order)}
        optional = set() if columns else {column.name for column in question.columns} - needed
        _write(connection, question, chosen_format, output, optional)
        if shortened:
            print_message(
                "ranges that take less than 2 % of the time are summed as (N smaller); show all with --min-percent 0"
            )


def _find_or_describe(
    context: typer.Context, name: str | None, paths: Collection[Path], *, show_list: bool, show_help: bool
) -> Report | None:
    """Return the report of this name; None after the list, the help or the description of a report."""
    from traceconv.cli.output import print_message, write_lines

    if show_list:
        from traceconv.reports.described import report_catalogue

        write_lines(report_catalogue().lines())
        return None
    if name is None:
        if not show_help:
            raise UsageError("missing report NAME, such as summary; list them with: traceconv report --list")
        write_lines([context.get_help()])
        return None
    from traceconv.reports.question import find_report

    if os.path.isfile(name) and paths:
        raise UsageError(f"the report comes first: traceconv report NAME {printable(name)}")
    found = find_report(name)
    if show_help:
        from traceconv.reports.described import described_report

        write_lines(described_report(found).lines())
        return None
    if found.formerly == name.replace("-", "_"):
        new_name = found.name.replace("_", "-")
        print_message(f"{name} is now called {new_name}; the next version removes the old name")
    return found


def _write(
    connection: duckdb.DuckDBPyConnection, question: Question, form: str, output: Path | None, optional: Collection[str]
) -> None:
    from itertools import chain, islice

    from traceconv.cli.output import print_message, write_parquet_file, write_rows, write_text
    from traceconv.reports.msprof_csv import msprof_csv
    from traceconv.reports.no_rows import why_empty
    from traceconv.reports.render import Table
    from traceconv.reports.run import answer, statement
    from traceconv.reports.run_choice import run_origins
    from traceconv.store.database import lock_down

    if form == "parquet":
        assert output is not None  # checked by options.row_format
        write_parquet_file(connection, *statement(connection, question), output)
        return
    lock_down(connection, fixed_memory=False)
    if form == "msprof-csv":
        lines = msprof_csv(connection, question)
        start = list(islice(lines, 2))
        if len(start) == 1:
            print_message(why_empty(connection, question))
        write_text(chain(start, lines), output)
        return
    origins = run_origins(connection, question.runs)  # before the rows: another statement would end their reading
    batches = answer(connection, question)
    # The first batch is read before anything is written: it shows whether there are rows.
    first = next(batches, [])
    if not first:
        print_message(why_empty(connection, question))
    table = Table(question.columns, chain([first], batches), origins, optional)
    write_rows(table, form, output, row_limit=question.top)


def _columns(report: Report, wanted: str | None, form: str, *, all_runs: bool) -> tuple[SqlColumn, ...]:
    from traceconv.reports.columns import find_columns
    from traceconv.reports.msprof_csv import msprof_columns

    if form == "msprof-csv":
        if wanted is not None:
            raise UsageError("msprof-csv has fixed columns; omit --columns, or use --format csv")
        return msprof_columns(report)
    if wanted is None and form in ("table", "markdown"):
        return find_columns(report, (["run_id"] if all_runs else []) + list(report.shown))
    if wanted is None or wanted == "all":
        return report.columns
    return find_columns(report, options.wanted_columns(wanted))
