"""Several runs in one timeline: what is added to the times of each, and what its processes are called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
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

    Times count from the Unix epoch. Clocks of different hosts are aligned as in the report collective-arrivals. Runs
    whose times have an unknown origin begin with the first of the others.
    """
    query = f"SELECT run_id, label, rank, start_ns, epoch_offset_ns FROM run WHERE {in_runs(run_ids)}"
    rows = connection.execute(f"{query} ORDER BY rank, run_id").fetchall()
    aligned = _aligned(connection, run_ids)
    starts: dict[int | None, int] = {}
    for run_id, _, _, start_ns, epoch_offset_ns in rows:
        clock, correction_ns = aligned[run_id]
        origin = None if epoch_offset_ns is not None else clock
        first_ns = (start_ns or 0) + (epoch_offset_ns or 0) + correction_ns
        starts[origin] = min(first_ns, starts.get(origin, first_ns))
    begin_ns = starts.get(None, 0)
    ranks = [rank for _, _, rank, _, _ in rows]
    is_job = None not in ranks and len(set(ranks)) == len(ranks)
    placed, notes = [], []
    for run_id, label, rank, _, epoch_offset_ns in rows:
        clock, correction_ns = aligned[run_id]
        if epoch_offset_ns is None:
            epoch_offset_ns = begin_ns - starts[clock]
            notes.append(
                f"the origin of the times of run {run_id} ({printable(str(label))}) is unknown; they start with "
                "the first run"
            )
        # Viewers drop times below 0.
        offset_ns = epoch_offset_ns + correction_ns - min(begin_ns, 0)
        placed.append(PlacedRun(run_id, offset_ns, f"rank {rank}" if is_job else str(label)))
    return placed, notes


def _aligned(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the run to which the clock of each run is aligned, and what is added so that collectives end together.

    The report has the offset of a run from the first one of each of its groups; groups that share runs form chains,
    of which those with the smallest errors count.
    """
    pairs = connection.execute(
        """
        SELECT f.run_id, p.run_id, min_by(p.clock_offset_ns, p.clock_error_ns), min(p.clock_error_ns)
        FROM (
          SELECT a.run_id, r.epoch_offset_ns, clock_offset_ns, clock_error_ns, first_value(a.run_id) OVER (
            PARTITION BY r.group_label, comm_group, group_ranks, collective ORDER BY r.rank, a.run_id
          ) AS first_run_id
          FROM collective_arrivals AS a
          JOIN run AS r ON r.run_id = a.run_id
          WHERE r.rank IS NOT NULL
        ) AS p
        JOIN run AS f ON f.run_id = p.first_run_id
        WHERE p.clock_error_ns IS NOT NULL AND f.run_id <> p.run_id
          AND (f.epoch_offset_ns IS NULL) = (p.epoch_offset_ns IS NULL)
        GROUP BY ALL
        """
    ).fetchall()
    apart = defaultdict(list)
    for first, run_id, offset_ns, error_ns in pairs:
        apart[first].append((error_ns, run_id, offset_ns))
        apart[run_id].append((error_ns, first, -offset_ns))
    found: dict[int, tuple[int, int]] = {}
    for start in sorted({*run_ids, *apart}):
        nearest = [(0, start, 0)]
        while nearest:
            _, run_id, offset_ns = heappop(nearest)
            if run_id not in found:
                found[run_id] = start, offset_ns
                for error_ns, other, further_ns in apart[run_id]:
                    heappush(nearest, (error_ns, other, offset_ns + further_ns))
    return found
