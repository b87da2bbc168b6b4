"""`traceconv verify`: a vendor's tables, recomputed from the timeline next to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import EXIT_DATA_LOSS, InputError, printable
from traceconv.cli import options

if TYPE_CHECKING:
    from traceconv.verification.run import Verdict

_COLUMNS = (
    ("folder", "The output folder."),
    ("file", "The file in it."),
    ("row", "The row, by the values that identify it."),
    ("column_name", "The column; empty if the entire row is missing on one side."),
    ("vendor_value", "Value in the file."),
    ("our_value", "Recomputed value."),
    ("off_by", "vendor_value − our_value, or what is wrong."),
)
#: Losses listed individually; ingest keeps all.
_SHOWN_LOSSES = 10


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
    from traceconv.reports.render import Table
    from traceconv.store.documented_sql import SqlColumn
    from traceconv.verification.run import verify as verify_folders

    verdicts = verify_folders(path, exact=exact)
    several = len(verdicts) > 1
    for verdict in verdicts:
        for line in _summary(verdict, several=several):
            print_message(line)
    if not any(verdict.cells for verdict in verdicts):
        raise InputError(f"{printable(str(path))}: nothing could be checked")
    # A table of a single folder needs no column for its name.
    first = 1 if chosen in ("table", "markdown") and not several else 0
    columns = tuple(SqlColumn(name, "VARCHAR", "text", doc) for name, doc in _COLUMNS[first:])
    rows = [row[first:] for verdict in verdicts for row in _rows(verdict)]
    if rows or output is not None or chosen != "table":
        write_rows(Table(columns, [rows]), chosen, output)
    if any(verdict.differing or verdict.losses for verdict in verdicts):
        raise typer.Exit(EXIT_DATA_LOSS)


def _rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for one in verdict.differences:
        cells = (verdict.folder, one.file, one.row, one.column, one.vendor, one.ours, one.off_by)
        yield tuple(printable(cell) for cell in cells)


def _summary(verdict: Verdict, *, several: bool) -> Iterator[str]:
    """A line for each file, each loss, and the total."""
    prefix = f"{printable(verdict.folder)}: " if several else ""
    for tally in verdict.tallies:
        name = prefix + printable(tally.file)
        if tally.reason is not None:
            yield f"{name}: not checked: {printable(tally.reason)}"
            continue
        kept = len(tally.differences)
        more = "" if kept == tally.differing else f" (the first {kept:,} are listed)"
        doubles = f", {tally.by_doubles:,} within double-precision rounding" if tally.by_doubles else ""
        yield f"{name}: {_result(tally.cells, tally.differing)}{more}{doubles}"
    for name, why in verdict.left:
        yield f"{prefix}{printable(name)}: not checked: {printable(why)}"
    for loss in verdict.losses[:_SHOWN_LOSSES]:
        yield f"{prefix}failed: {printable(loss)}"
    if len(verdict.losses) > _SHOWN_LOSSES:
        yield f"{prefix}… and {len(verdict.losses) - _SHOWN_LOSSES} more losses; traceconv ingest stores them all"
    if verdict.cells:
        yield f"{prefix or 'total: '}{_result(verdict.cells, verdict.differing)}"


def _result(cells: int, differing: int) -> str:
    counted = "1 cell" if cells == 1 else f"{cells:,} cells"
    return f"{counted}, " + ("all agree" if not differing else f"{differing:,} differ{'s' * (differing == 1)}")
