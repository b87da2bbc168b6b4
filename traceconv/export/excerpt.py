"""The part of a run that a timeline shows: what overlaps some steps, or a window of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import duckdb

from traceconv.base.errors import UsageError
from traceconv.reports.steps import times_of
from traceconv.reports.values import human_duration
from traceconv.reports.window import parse_window

#: First and last time of the rows of each exported table, in SQL.
_SPANS = {
    **dict.fromkeys(("range", "api", "task"), ("start_ns", "TRY(start_ns + dur_ns)")),
    "step": ("coalesce(start_ns, fp_start_ns, bp_end_ns, end_ns)", "end_ns"),
    "counter": ("ts_ns", "ts_ns"),
    "marker": ("ts_ns", "ts_ns"),
    "memory": ("alloc_ns", "free_ns"),
    "flow": ("least(src_ns, dst_ns)", "greatest(src_ns, dst_ns)"),
}


class Excerpt(NamedTuple):
    """The time from `start_ns` until before `end_ns`; None: no limit."""

    start_ns: int | None = None
    end_ns: int | None = None

    def moved(self, by_ns: int) -> Excerpt:
        """Return this time on another clock."""
        return Excerpt(*(None if ns is None else ns + by_ns for ns in self))

    def of(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Return FROM clauses of the rows that overlap the time, and of those without a time. They are whole."""
        if self == Excerpt():
            return dict(sources)
        return {
            name: f"(SELECT * FROM {source} WHERE {self._overlaps(*_SPANS[name])})" for name, source in sources.items()
        }

    def counted(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Return FROM clauses of the tasks and the memory that determine the load in this time, and that time of each.

        `sources`: those of the whole run. Memory is allocated at the start if it was before, and not freed if it is
        after the end.
        """
        found = dict(sources)
        if self == Excerpt():
            return found
        allocated = "alloc_ns" if self.start_ns is None else f"greatest(alloc_ns, {self.start_ns})"
        freed = "free_ns" if self.end_ns is None else f"CASE WHEN free_ns < {self.end_ns} THEN free_ns END"
        found["memory"] = (
            f"(SELECT * REPLACE ({allocated} AS alloc_ns, {freed} AS free_ns) "
            f"FROM {sources['memory']} WHERE {self._overlaps(*_SPANS['memory'])})"
        )
        start, end, submitted = map(self._within, ("start_ns", "start_ns + dur_ns", "submit_ns"))
        found["task"] = (
            f"(SELECT * REPLACE ({start} AS start_ns, {end} - {start} AS dur_ns, {submitted} AS submit_ns) "
            f"FROM {sources['task']} WHERE {self._overlaps('least(submit_ns, start_ns)', _SPANS['task'][1])})"
        )
        return found

    def _overlaps(self, first: str, last: str) -> str:
        """Return the SQL condition that a row is not all before or after this time."""
        conditions = []
        if self.start_ns is not None:
            conditions.append(f"({last} > {self.start_ns} OR {first} >= {self.start_ns} OR {last} IS NULL)")
        if self.end_ns is not None:
            conditions.append(f"({first} < {self.end_ns} OR {first} IS NULL)")
        return " AND ".join(conditions) or "true"

    def _within(self, time: str) -> str:
        """Return SQL of a time, or of the nearest one that is not before the start or after the end."""
        cases = "" if self.start_ns is None else f" WHEN {time} < {self.start_ns} THEN {self.start_ns}"
        cases += "" if self.end_ns is None else f" WHEN {time} > {self.end_ns} THEN {self.end_ns}"
        return f"CASE{cases} ELSE {time} END" if cases else time


def find_excerpt(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    *,
    steps: str | None = None,
    from_ns: str | None = None,
    to_ns: str | None = None,
) -> Excerpt:
    """Return the time of some steps (`times_of`), or a window of time, written as for `parse_window`.

    Raises UsageError.
    """
    found = Excerpt(*times_of(connection, [run_id], parse_window(steps, from_ns, to_ns)))
    query = "SELECT start_ns, end_ns FROM run WHERE run_id = ? AND (? > end_ns OR ? <= start_ns)"
    for first, last in connection.execute(query, [run_id, *found]).fetchall():
        time = f"from {first} to {last} ns ({human_duration(last - first)})"
        raise UsageError(f"run {run_id} is {time}; the window contains none of this time")
    return found
