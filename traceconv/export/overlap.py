"""Lanes for slices that overlap on one track without nesting.

Viewers draw the slices of a thread as a stack: a slice that starts inside another must end inside it. Slices in a
store may overlap, so a slice that doesn't fit into the stack goes to the next lane where it does. One without an end
doesn't fit into one with an end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import duckdb

from traceconv.base.integers import LARGEST
from traceconv.export.windows import condition, time_windows

#: Beyond this many lanes, slices overlap in the last one, so that the work stays linear.
MAX_LANES = 64


@dataclass(slots=True)
class _Track:
    """The open slices of a track: for each lane, their ends, outermost first."""

    lanes: list[list[int]] = field(default_factory=list)

    def place(self, start: int, end: int) -> int:
        """Push the slice onto the first lane whose stack it fits into; return that lane."""
        for number, ends in enumerate(self.lanes):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return number
        if len(self.lanes) < MAX_LANES:
            self.lanes.append([end])
        return len(self.lanes) - 1


def create_lanes(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the temporary table that `add_lanes` fills; slices in the first lane of their track are not in it."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE export_lane (source VARCHAR, track_id BIGINT, id BIGINT, lane INTEGER)"
    )


def add_lanes(connection: duckdb.DuckDBPyConnection, table: str, slices: str, tracks: Collection[int | None]) -> None:
    """Assign lanes to the slices of a table on some tracks, window by window.

    `slices` is a FROM clause with the columns track_id, id, start_ns and end_ns.
    """
    if not tracks:
        return
    known = ", ".join(str(track) for track in tracks if track is not None) or "NULL"
    rows_sql = (
        f"(SELECT track_id, id, start_ns, coalesce(end_ns, {LARGEST}) AS end_ns "
        f"FROM {slices} WHERE track_id IN ({known}){' OR track_id IS NULL' if None in tracks else ''})"
    )
    state = {track: _Track() for track in tracks}
    for window in time_windows(connection, rows_sql, "start_ns"):
        rows = connection.execute(
            f"SELECT track_id, id, start_ns, end_ns FROM {rows_sql} WHERE {condition('start_ns', window)} "
            "ORDER BY start_ns, end_ns DESC, id"
        ).fetchall()
        # The lane of a slice depends on those before it, hence the loop. Only tracks with overlaps get here.
        placed = [(track, id_, state[track].place(start, end)) for track, id_, start, end in rows]
        moved = [(track, id_, lane) for track, id_, lane in placed if lane > 0]
        if moved:
            connection.execute(
                "INSERT INTO export_lane SELECT ?, t.track_id, t.id, t.lane FROM (SELECT unnest(?::BIGINT[]) "
                "AS track_id, unnest(?::BIGINT[]) AS id, unnest(?::INTEGER[]) AS lane) AS t",
                [table, *(list(column) for column in zip(*moved, strict=True))],
            )


def overlapping(connection: duckdb.DuckDBPyConnection, slices: str) -> list[int | None]:
    """Return the tracks where a slice starts before the previous one at the same depth has ended.

    Any two slices that overlap without nesting have such a pair of neighbours between them. `slices`, a FROM clause
    with the columns track_id, id, start_ns, end_ns and depth, must have all slices of the tracks: in a well-formed
    track, those of one depth never overlap.
    """
    rows = connection.execute(
        "SELECT DISTINCT track_id FROM (SELECT track_id, start_ns < lag(end_ns) "
        f"OVER (PARTITION BY track_id, depth ORDER BY start_ns, id) AS early FROM {slices}) "
        "WHERE early ORDER BY track_id"
    ).fetchall()
    return [row[0] for row in rows]


def with_endless(connection: duckdb.DuckDBPyConnection, slices: str) -> list[int | None]:
    """Return the tracks where a slice without an end is inside of one with an end.

    `slices` is a FROM clause with the columns track_id, id, parent_id and end_ns.
    """
    if not connection.execute(f"SELECT 1 FROM {slices} WHERE end_ns IS NULL LIMIT 1").fetchall():
        return []
    rows = connection.execute(
        f"SELECT DISTINCT s.track_id FROM {slices} AS s JOIN {slices} AS p ON p.id = s.parent_id "
        "WHERE s.end_ns IS NULL AND p.end_ns IS NOT NULL ORDER BY ALL"
    ).fetchall()
    return [row[0] for row in rows]
