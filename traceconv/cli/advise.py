"""`traceconv advise`: what could make a run faster, with evidence."""

from __future__ import annotations

from pathlib import Path

import typer

from traceconv.base.errors import UsageError
from traceconv.cli import options
from traceconv.cli.completions import complete_run, complete_runs

_FORMATS = ("table", "markdown", "json", "csv")


def advise(
    run: str | None = typer.Argument(
        None,
        metavar="[RUN]",
        help="A file, or a run as for --run. Default: the latest run of the store.",
        autocompletion=complete_run,
        show_default=False,
    ),
    run_option: str | None = typer.Option(
        None,
        "--run",
        metavar="N|LABEL|all",
        help="Run, by number or label, rank=N or host=NAME; all: what the runs have in common. Default: the latest.",
        autocompletion=complete_runs,
    ),
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    device: int | None = options.DEVICE,
    top: int | None = typer.Option(None, "--top", min=1, help="Only the N findings with the largest savings."),
    least_percent: float | None = typer.Option(
        None,
        "--least-percent",
        min=0,
        metavar="PERCENT",
        help="Omit findings that save less of the time of the device. Default: by the rule, mostly 3.",
    ),
    form: str | None = options.format_option(_FORMATS),
    output: Path | None = options.OUTPUT,
) -> None:
    """Find what could make a run faster, with the time to save.

    RUN is a run of the store, or a capture, trace file or store, which is read like those of "report". Each finding has
    the time that a fix could save in the run (an upper bound or an estimate, and how it is computed), what takes most
    of it and what to try; in Markdown and JSON, also a query that shows it. Savings may overlap, so they don't add up.
    Findings that rest on data that the report trust calls lost say so.

    With --run all, the findings of all runs, such as the ranks of a job, are added up, and the run with most is named.

    \b
    Examples:
      traceconv advise
      traceconv advise worker0.pt.trace.json.gz
      traceconv advise rank=3 --top 3 -o advice.md
      traceconv advise job7/ --run all
      traceconv advise 2 --format json
    """  # fmt: skip
    from traceconv.analysis.advice import Advice
    from traceconv.analysis.advice import advise as find_advice
    from traceconv.analysis.advice_of_runs import AdviceOfRuns, advise_all
    from traceconv.analysis.advice_text import findings_table, markdown_lines, text_lines
    from traceconv.cli.one_shot import asked_run, asked_store
    from traceconv.cli.output import write_lines, write_rows
    from traceconv.cli.progress import working
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.fetch import reading
    from traceconv.reports.values import json_text
    from traceconv.store.database import names_file

    chosen = options.row_format(form, output, _FORMATS)
    path = Path(run) if run is not None and names_file(Path(run), db) else None
    if path is None and run is not None and run_option is not None:
        raise UsageError("RUN and --run exclude each other, unless RUN is a file")
    wanted = run if path is None and run is not None else run_option
    advice: Advice | AdviceOfRuns
    with asked_store(db, [path] if path else (), cache=cache) as store:
        if wanted == "all":
            with open_current_store(store) as connection, reading(), working("looking for what could be faster"):
                advice = advise_all(connection, device=device, top=top, least_percent=least_percent)
        else:
            with (
                asked_run(store, wanted, "advice") as (connection, run_id),
                working("looking for what could be faster"),
            ):
                advice = find_advice(connection, run_id, device=device, top=top, least_percent=least_percent)
        if chosen == "json":
            write_lines([json_text(advice.to_dict())], output)
        elif chosen == "csv":
            write_rows(findings_table(advice), chosen, output)
        else:
            write_lines(markdown_lines(advice) if chosen == "markdown" else text_lines(advice), output)
