"""The runs of a store as rows, one per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from traceconv.formats.common.identity import distinct_ends
from traceconv.reports.fetch import reading
from traceconv.reports.render import Row, Table, aligned_headings, human_rows
from traceconv.reports.result import html_table, text_table
from traceconv.store.documented_sql import SqlColumn

#: The columns of `runs list` and `Store.runs`.
RUN_COLUMNS = (
    SqlColumn("run_id", "BIGINT", "id", "Run ID."),
    SqlColumn("label", "VARCHAR", "text", "Name of the run for --run."),
    SqlColumn("group_label", "VARCHAR", "text", "Label shared by the runs of one job."),
    SqlColumn("rank", "BIGINT", "index", "Rank of the process in its job."),
    SqlColumn("host", "VARCHAR", "text", "Host name of the recorded machine."),
    SqlColumn("source_format", "VARCHAR", "text", "Source format, such as npulog."),
    SqlColumn("source_path", "VARCHAR", "text", "Path of the ingested capture or file."),
    SqlColumn("start_ns", "BIGINT", "ns", "Earliest timestamp of the run.", timestamp=True),
    SqlColumn("dur_ns", "HUGEINT", "ns", "Time from the earliest to the latest timestamp."),
    SqlColumn("record_count", "HUGEINT", "count", "Records in the source, from import_account."),
    SqlColumn("lost_count", "HUGEINT", "count", "Records that could not be used."),
    SqlColumn("source_bytes", "HUGEINT", "byte", "Size of the source files."),
    SqlColumn("complete", "BOOLEAN", "flag", "Whether the recording finished and the source could be read completely."),
)
#: Columns of a table for people, if any run has a value: they fit into 80 characters.
_SHOWN = ("run_id", "label", "group_label", "rank", "source_format", "dur_ns", "record_count", "complete")
#: Selects these columns.
RUNS_SQL = """
SELECT run_id, label, group_label, rank, host, source_format, source_path, start_ns,
       end_ns::HUGEINT - start_ns AS dur_ns, a.record_count, a.lost_count, s.source_bytes, complete
FROM run
LEFT JOIN (
    SELECT run_id, sum(record_count) AS record_count, sum(lost_count) AS lost_count FROM import_account GROUP BY run_id
) AS a USING (run_id)
LEFT JOIN (SELECT run_id, sum(size_bytes) AS source_bytes FROM source GROUP BY run_id) AS s USING (run_id)
ORDER BY run_id
"""


class RunRows(list[dict[str, Any]]):
    """A dict for each run, with the columns of `traceconv runs list --format csv`. It shows itself as a table."""

    def __repr__(self) -> str:
        return text_table(*self.shown())

    def _repr_html_(self) -> str:
        return html_table("runs", *self.shown())

    def shown(self) -> tuple[dict[str, bool], list[list[str]]]:
        """Return the headings, each with whether its column contains numbers, and the cells."""
        table = runs_table([tuple(row.values()) for row in self], for_people=True)
        return aligned_headings(table.columns), human_rows(table, table.rows())


def stored_runs(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Return a row of `RUN_COLUMNS` for each run, in order. Raises StoreError if the store can't be read."""
    with reading():
        return list(connection.execute(RUNS_SQL).fetchall())


def runs_table(rows: Sequence[Row], *, for_people: bool) -> Table:
    """Return all columns of the runs; `for_people`: those that distinguish the runs in 80 characters.

    If labels repeat, these are the paths of the sources from where they differ, instead of the formats.
    """
    if not for_people:
        return Table(RUN_COLUMNS, [rows])
    by_name = {column.name: [row[place] for row in rows] for place, column in enumerate(RUN_COLUMNS)}
    shown = [column for column in RUN_COLUMNS if column.name in _SHOWN]
    if len(set(by_name["label"])) < len(rows):
        source = SqlColumn("source", "VARCHAR", "text", "End of source_path.")
        paths = [tuple(part for part in str(path).split("/") if part) for path in by_name["source_path"]]
        by_name["source"] = list(distinct_ends(paths))
        shown = [*shown[:2], source, *(column for column in shown[2:] if column.name != "source_format")]
    # A column in which nothing is known distinguishes nothing.
    shown = [c for c in shown if c.name in ("run_id", "label") or any(value is not None for value in by_name[c.name])]
    return Table(tuple(shown), [list(zip(*(by_name[column.name] for column in shown), strict=True))])
