"""Slices that overlap on one track without nesting: which lane beside the track each of them goes to.

Viewers draw the slices of a thread as a stack: one that begins inside another must end inside it. What a
track holds need not obey that, so a slice that fits nowhere in the stack goes to the next lane where it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb

from traceconv.export.windows import condition, time_windows

#: A track has no more lanes than this; past it, slices overlap in the last one, and the work stays linear.
MAX_LANES = 64


@dataclass(frozen=True, slots=True)
class Slices:
    """Where slices are: a FROM clause and the SQL of the columns that matter, of one alias.

    `nested_by` are columns within whose values slices of a well-formed track never overlap.
    """

    table: str
    source: str
    track: str
    id: str
    start: str
    end: str
    nested_by: str


@dataclass(slots=True)
class _Track:
    """The open slices of a track: for each lane, the ends from the outermost to the innermost."""

    lanes: list[list[int]] = field(default_factory=list)

    def place(self, start: int, end: int) -> int:
        """The first lane where the slice fits into the stack; it is pushed there."""
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
    """Creates the temporary table that `add_lanes` fills; slices on their track's first lane aren't in it."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE export_lane (source VARCHAR, track_id BIGINT, id BIGINT, lane INTEGER)"
    )


def add_lanes(connection: duckdb.DuckDBPyConnection, slices: Slices) -> None:
    """Finds the tracks with overlaps and gives their slices lanes, in windows of time."""
    tracks = _overlapping(connection, slices)
    if not tracks:
        return
    source = f"{slices.source} WHERE {slices.track} IN ({', '.join(map(str, tracks))})"
    wrapped = (
        f"(SELECT {slices.track} AS track_id, {slices.id} AS id, {slices.start} AS start_ns, "
        f"coalesce({slices.end}, {slices.start}) AS end_ns FROM {source})"
    )
    state = {track: _Track() for track in tracks}
    for window in time_windows(connection, wrapped, "start_ns"):
        rows = connection.execute(
            f"SELECT track_id, id, start_ns, end_ns FROM {wrapped} WHERE {condition('start_ns', window)} "
            "ORDER BY start_ns, end_ns DESC, id"
        ).fetchall()
        # Each slice depends on where those before it went: a loop, over the slices of such tracks only.
        placed = [(track, id_, state[track].place(start, end)) for track, id_, start, end in rows]
        moved = [(track, id_, lane) for track, id_, lane in placed if lane > 0]
        if moved:
            connection.execute(
                "INSERT INTO export_lane SELECT ?, t.track_id, t.id, t.lane FROM (SELECT unnest(?::BIGINT[]) "
                "AS track_id, unnest(?::BIGINT[]) AS id, unnest(?::INTEGER[]) AS lane) AS t",
                [slices.table, *(list(column) for column in zip(*moved, strict=True))],
            )


def _overlapping(connection: duckdb.DuckDBPyConnection, slices: Slices) -> list[int]:
    """Tracks where a slice begins before its elder at the same depth has ended.

    Two slices that overlap without nesting have such a pair of neighbours between them.
    """
    rows = connection.execute(
        f"SELECT DISTINCT track_id FROM (SELECT {slices.track} AS track_id, {slices.start} < lag({slices.end}) "
        f"OVER (PARTITION BY {slices.track}, {slices.nested_by} ORDER BY {slices.start}, {slices.id}) AS early "
        f"FROM {slices.source}) WHERE early AND track_id IS NOT NULL ORDER BY track_id"
    ).fetchall()
    return [row[0] for row in rows]
