"""`traceconv verify`: a vendor's tables, recomputed from the timeline next to them."""

from __future__ import annotations

from pathlib import Path

import typer

from traceconv.base.errors import EXIT_DATA_LOSS
from traceconv.cli import options


def verify(
    path: Path = typer.Argument(..., metavar="DIR", help="An output folder, or a folder that contains some."),
    exact: bool = typer.Option(False, "--exact", help="Require exact equality."),
    form: str | None = options.TEXT_FORMAT,
    output: Path | None = options.OUTPUT,
) -> None:
    """Recompute a vendor's tables and report mismatches.

    DIR is an output folder of msprof (mindstudio_profiler_output) or torch_npu (ASCEND_PROFILER_OUTPUT), or a folder
    that contains some at any depth. Each CSV file is checked against the timeline, and totals are checked
    against the rows that they sum, in exact arithmetic. Nothing is stored.

    Mismatching cells go to stdout, one per row: file, row (by the values that identify it), column, the vendor's value
    and ours. A summary of each file goes to stderr: how many cells were checked, how many differ, or why the file can't
    be checked. Times are in µs, as in the files.

    A cell agrees if the difference is within rounding: that of the printed digits, or that of the vendor's
    double-precision arithmetic if repeating it gives the same digits. Such cells are counted. --exact requires exact
    equality.

    Exit codes: 0 all cells agree; 3 some differ, or part of the input could not be read; 1 nothing could be checked.

    \b
    Examples:
      traceconv verify ASCEND_PROFILER_OUTPUT/
      traceconv verify mindstudio_profiler_output/ --exact
      traceconv verify profiles/ --format csv -o differing.csv
    """
    chosen = options.row_format(form, output, options.TEXT_ONLY)
    from traceconv.cli.output import print_message, write_rows
    from traceconv.verification.run import verify as verify_folders
    from traceconv.verification.text import differences_table, summary_lines

    verdicts = verify_folders(path, exact=exact)
    for line in summary_lines(verdicts):
        print_message(line)
    verdicts.check_any()
    if any(verdict.differences for verdict in verdicts) or output is not None or chosen != "table":
        # A table of a single folder needs no column for its name.
        alone = chosen in ("table", "markdown") and len(verdicts) == 1
        write_rows(differences_table(verdicts, with_folder=not alone), chosen, output)
    if not verdicts.agree:
        raise typer.Exit(EXIT_DATA_LOSS)
