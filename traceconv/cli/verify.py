"""`traceconv verify`: a vendor's tables, computed again from the timeline beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import EXIT_DATA_LOSS, InputError, UsageError, printable
from traceconv.cli import options

if TYPE_CHECKING:
    from traceconv.verification.run import Verdict

HELP = """Compute a vendor's tables again, and say which cells don't agree.

DIR is an output folder of msprof (mindstudio_profiler_output) or of torch_npu (ASCEND_PROFILER_OUTPUT), or a folder
that holds some at any depth. Each CSV file is held against the timeline, and sums against the rows that they are made
of, in exact arithmetic. Nothing is stored.

stdout has a row for each cell that doesn't agree: its file, its row by the values that tell it from others, its column,
the vendor's value and ours. stderr has a line for each file: how many cells were checked, how many differ, or why it
can't be checked. Times are in µs, as in the files.

A cell agrees when rounding explains what is left: that of what is printed, or that of the vendor's doubles when the
same doubles come to the same digits; such cells are counted. With --exact it must be the same number.

Exit code: 0 all cells agree, 3 some differ, or part of what they are checked against could not be read, 1 nothing
could be checked.

\b
Examples:
  traceconv verify ASCEND_PROFILER_OUTPUT/
  traceconv verify mindstudio_profiler_output/ --exact
  traceconv verify profiles/ --format csv -o differing.csv
"""

_FORMATS = tuple(name for name in options.FORMATS if name != "parquet")
_COLUMNS = (
    ("folder", "The output folder."),
    ("file", "The file in it."),
    ("row", "Which row: the values that tell it from others."),
    ("column_name", "Which column; empty where the whole row is missing on one side."),
    ("vendor_value", "What the file says."),
    ("our_value", "What it must be."),
    ("off_by", "vendor_value − our_value, or what is wrong."),
)
#: Losses that are shown one by one; ingest keeps all.
_SHOWN_LOSSES = 10


def verify(
    path: Path = typer.Argument(..., metavar="DIR", help="An output folder, or one that holds some."),
    exact: bool = typer.Option(False, "--exact", help="Only the same number agrees; rounding explains nothing."),
    form: str | None = typer.Option(
        None, "--format", metavar="FORMAT", help=f"{', '.join(_FORMATS)}. Default: by the name of -o, else table."
    ),
    output: Path | None = options.OUTPUT,
) -> None:
    if output is not None and output.name.lower().endswith(".parquet"):
        raise UsageError(f"cells that differ are written as {', '.join(_FORMATS)}, not as Parquet; choose another name")
    chosen = options.row_format(form, output, _FORMATS)
    from traceconv.cli.output import say, write_table, write_text
    from traceconv.reports.render import TEXT_FORMATS, Table
    from traceconv.store.documented_sql import SqlColumn
    from traceconv.verification.run import verify as verify_folders

    verdicts = verify_folders(path, exact=exact)
    several = len(verdicts) > 1
    for verdict in verdicts:
        for line in _summary(verdict, several=several):
            say(line)
    if not any(verdict.cells for verdict in verdicts):
        raise InputError(f"{printable(str(path))}: nothing could be checked")
    # A person's table of one folder needs no column that names it.
    first = 1 if chosen in ("table", "markdown") and not several else 0
    columns = tuple(SqlColumn(name, "VARCHAR", "text", doc) for name, doc in _COLUMNS[first:])
    rows = [row[first:] for verdict in verdicts for row in _rows(verdict)]
    table = Table(columns, [rows])
    if chosen == "table":
        if rows or output is not None:
            write_table(table, output, row_limit=None)
    else:
        write_text(TEXT_FORMATS[chosen](table), output)
    if any(verdict.differing or verdict.losses for verdict in verdicts):
        raise typer.Exit(EXIT_DATA_LOSS)


def _rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for one in verdict.differences:
        cells = (verdict.folder, one.file, one.row, one.column, one.vendor, one.ours, one.off_by)
        yield tuple(printable(cell) for cell in cells)


def _summary(verdict: Verdict, *, several: bool) -> Iterator[str]:
    """A line on each file, on each loss, and on all together."""
    before = f"{printable(verdict.folder)}: " if several else ""
    for tally in verdict.tallies:
        name = before + printable(tally.file)
        if tally.reason is not None:
            yield f"{name}: not checked: {printable(tally.reason)}"
            continue
        kept = len(tally.differences)
        more = "" if kept == tally.differing else f" (the first {kept:,} are shown)"
        doubles = f", {tally.by_doubles:,} of them only in the vendor's doubles" if tally.by_doubles else ""
        yield f"{name}: {tally.cells:,} {_cells(tally.cells)}, {_differ(tally.differing)}{more}{doubles}"
    for name, why in verdict.left:
        yield f"{before}{printable(name)}: not checked: {printable(why)}"
    for loss in verdict.losses[:_SHOWN_LOSSES]:
        yield f"{before}not read: {printable(loss)}"
    if len(verdict.losses) > _SHOWN_LOSSES:
        yield f"{before}… and {len(verdict.losses) - _SHOWN_LOSSES} more losses; traceconv ingest keeps them all"
    if verdict.cells:
        yield f"{before or 'all together: '}{verdict.cells:,} {_cells(verdict.cells)}, {_differ(verdict.differing)}"


def _cells(count: int) -> str:
    return "cell" if count == 1 else "cells"


def _differ(count: int) -> str:
    if not count:
        return "all agree"
    return "1 differs" if count == 1 else f"{count:,} differ"
