"""`traceconv compare`: what changed between two runs, with a limit for CI."""

from __future__ import annotations

from pathlib import Path

import typer

from traceconv.base.errors import EXIT_LIMIT_EXCEEDED
from traceconv.cli import options
from traceconv.cli.completions import complete_run

_FORMATS = ("table", "markdown", "html", "json", "csv")


def compare(
    base: str = typer.Argument(
        ..., metavar="BASE", help="Run to compare with: a file, or a run as for --run.", autocompletion=complete_run
    ),
    new: str = typer.Argument(
        ..., metavar="NEW", help="Run to judge: a file, or a run as for --run.", autocompletion=complete_run
    ),
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    device: int | None = typer.Option(None, "--device", help="Only this device. Default: the mean over all."),
    steps: str | None = options.STEPS,
    warmup: int | None = typer.Option(
        None, "--warmup", min=0, help="Leading steps to leave out. Default: 1 of 3 or more, 0 with --steps from A on."
    ),
    anyway: bool = typer.Option(False, "--anyway", help="Compare runs that are not comparable."),
    fail_over: str | None = typer.Option(
        None, "--fail-over", metavar="PERCENT", help="Exit with code 4 if steps are slower by more, such as 5%."
    ),
    top: int | None = typer.Option(None, "--top", min=1, help="Ops to show in a table. Default: 15; 200 in HTML."),
    form: str | None = options.format_option(_FORMATS),
    output: Path | None = options.OUTPUT,
) -> None:
    """Compare two runs and name the ops that account for the change.

    BASE and NEW are runs of the store, or captures, trace files and stores, which are read like those of "report". The
    unit is a step; without steps, the complete run. Ops are paired by the operator or model node that they belong to,
    so that kernels with other names pair too. Changes of ops, their overlap and idle time add up exactly to the change
    of the step.

    --fail-over fails only if noise doesn't explain the change. On a device, the median step must be slower by more than
    the limit, and so must be the device's busy time, by its 95 % interval, or nine tenths of the new steps against nine
    tenths of the base's. On a host, the undisturbed step (the sum of each op's shortest time in any step) must be
    slower by more than the limit, which is higher if other processes disturb the steps of NEW; on a device that waits
    for its host, this is enough. Record 30 steps or more.

    Exit codes: 4 the limit is exceeded; 5 the runs are not comparable (other model, input shapes, device or number of
    steps), which --anyway overrides.

    \b
    Examples:
      traceconv compare 1 2
      traceconv compare baseline.pt.trace.json.gz new.pt.trace.json.gz
      traceconv compare baseline candidate --fail-over 5% -o compare.md
      traceconv compare baseline candidate -o compare.html
    """
    from contextlib import ExitStack

    from traceconv.analysis import comparison_page
    from traceconv.analysis.comparison import compare_runs, find_side, parse_limit
    from traceconv.analysis.comparison_text import SHOWN_OPS, markdown_lines, ops_table, text_lines
    from traceconv.cli.one_shot import asked_store
    from traceconv.cli.output import print_message, write_lines, write_rows, write_text
    from traceconv.cli.progress import working
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.fetch import reading
    from traceconv.reports.values import json_text
    from traceconv.reports.window import parse_window
    from traceconv.store.database import names_file

    chosen = options.row_format(form, output, _FORMATS)
    limit, window = parse_limit(fail_over), parse_window(steps)
    with ExitStack() as stack:
        sides = []
        for wanted in (base, new):
            path = Path(wanted) if names_file(Path(wanted), db) else None
            store = stack.enter_context(asked_store(db, [path] if path else (), cache=cache))
            connection = stack.enter_context(open_current_store(store))
            with reading():
                sides.append(find_side(connection, None if path else wanted, wanted))
        with reading(), working("comparing the runs"):
            comparison = compare_runs(
                sides[0], sides[1], window, device=device, warmup=warmup, anyway=anyway, limit_percent=limit
            )
        if chosen == "json":
            write_lines([json_text(comparison.to_dict())], output)
        elif chosen == "csv":
            write_rows(ops_table(comparison), chosen, output)
        elif chosen == "html":
            write_text(comparison_page.page(comparison, top or comparison_page.SHOWN_OPS), output)
        else:
            write_lines((markdown_lines if chosen == "markdown" else text_lines)(comparison, top or SHOWN_OPS), output)
        if comparison.failed:
            print_message(f"the steps of {sides[1].name} are more than {limit:g} % slower")
            raise typer.Exit(EXIT_LIMIT_EXCEEDED)
