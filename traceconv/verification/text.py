"""The result of a verification as text: a summary of each file, and a table of the cells that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceconv.base.errors import printable
from traceconv.reports.render import Table, human_rows
from traceconv.reports.result import text_table
from traceconv.store.documented_sql import SqlColumn
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
#: Differences of a repr; `differences` has all.
_SHOWN_DIFFERENCES = 20


def differences_table(verdicts: Sequence[Verdict], *, with_folder: bool = True) -> Table:
    """Return a row for each cell that differs."""
    first = 0 if with_folder else 1
    columns = tuple(SqlColumn(name, "VARCHAR", "text", doc) for name, doc in _COLUMNS[first:])
    return Table(columns, [[row[first:] for verdict in verdicts for row in _rows(verdict)]])


def lines_of(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the summary, and the first cells that differ as a table."""
    yield from summary_lines(verdicts)
    table = differences_table(verdicts, with_folder=len(verdicts) > 1)
    rows = table.rows()
    if rows:
        yield ""
        yield text_table(dict.fromkeys(table.names, False), human_rows(table, rows[:_SHOWN_DIFFERENCES]))
    if len(rows) > _SHOWN_DIFFERENCES:
        yield f"… and {len(rows) - _SHOWN_DIFFERENCES:,} more differences"


def summary_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line for each file, each loss, and the total."""
    for verdict in verdicts:
        yield from _summary(verdict, several=len(verdicts) > 1)


def _rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for one in verdict.differences:
        cells = (verdict.folder, one.file, one.row, one.column, one.vendor, one.ours, one.off_by)
        yield tuple(printable(cell) for cell in cells)


def _summary(verdict: Verdict, *, several: bool) -> Iterator[str]:
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
