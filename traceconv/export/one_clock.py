"""Several runs in one timeline: what is added to the times of each, and what its processes are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from traceconv.base.errors import printable
from traceconv.reports.run_choice import in_runs


class PlacedRun(NamedTuple):
    """A run of a timeline. `offset_ns` is added to its times, `title` precedes the names of its processes."""

    run_id: int
    offset_ns: int
    title: str


def on_one_clock(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> tuple[list[PlacedRun], list[str]]:
    """Return where runs are in a timeline of all of them, and notes for the user.

    Times count from the Unix epoch. Clocks of different hosts are aligned as in the report collective-arrivals. A run
    whose times have an unknown origin begins with the first of the others.
    """
    of_runs = in_runs(run_ids)
    rows = connection.execute(
        f"SELECT run_id, label, rank, start_ns, epoch_offset_ns FROM run WHERE {of_runs} ORDER BY rank, run_id"
    ).fetchall()
    aligned = f"SELECT run_id, any_value(clock_offset_ns) FROM collective_arrivals WHERE {of_runs} GROUP BY run_id"
    corrections = dict(connection.execute(aligned).fetchall()) if len({row[2] for row in rows}) > 1 else {}
    offsets = {
        run_id: epoch_offset_ns + (corrections.get(run_id) or 0)
        for run_id, _, _, _, epoch_offset_ns in rows
        if epoch_offset_ns is not None
    }
    known = [
        start_ns + offsets[run_id] for run_id, _, _, start_ns, _ in rows if run_id in offsets and start_ns is not None
    ]
    first_ns = min(known, default=0)
    lost = [row for row in rows if row[0] not in offsets]
    notes = [
        f"the times of run {run_id} ({printable(str(label))}) have an unknown origin, so it begins with the first run"
        for run_id, label, *_ in lost
    ]
    offsets |= {run_id: first_ns - (start_ns or 0) for run_id, _, _, start_ns, _ in lost}
    # Viewers drop times below 0.
    below = min(first_ns, 0)
    ranks = [rank for _, _, rank, _, _ in rows]
    is_job = None not in ranks and len(set(ranks)) == len(ranks)
    return [
        PlacedRun(run_id, offsets[run_id] - below, f"rank {rank}" if is_job else str(label))
        for run_id, label, rank, _, _ in rows
    ], notes
