"""Gaps between the tasks of each device and their causes, from rows of a store, one after another."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

import duckdb

_LOADS, _SYNCS = re.compile("data_?loader|get_?next", re.IGNORECASE), re.compile("synchroni[sz]e", re.IGNORECASE)
LIMIT_NS = 10_000

#: A slice: start, end, ID, name.
Slice = tuple[int, int, int, str]


def idle_gaps(store: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    """Yield run, device, start, end, cause, host wait, launch delay, host_id and next task of each gap."""
    slices: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    for table in ("range", "api"):
        for run, track, id_, name, start, dur in store.execute(
            f'SELECT run_id, track_id, id, name, start_ns, dur_ns FROM "{table}" WHERE dur_ns >= 2500'
        ).fetchall():
            slices[run, track].append((start, start + dur, id_, name or ""))
    for rows in slices.values():
        rows.sort()
    loaders: dict[int, list[Slice]] = defaultdict(list)
    calling = set(store.execute("SELECT run_id, track_id FROM api").fetchall())
    for run, track, id_, name, start, dur in store.execute(
        'SELECT run_id, track_id, id, name, start_ns, dur_ns FROM "range" WHERE dur_ns >= 250_000'
    ).fetchall():
        if (run, track) in calling and _LOADS.search(name or ""):
            loaders[run].append((start, start + dur, id_, name))
    threads = {
        (run, id_): track for run, id_, track in store.execute("SELECT run_id, id, track_id FROM api").fetchall()
    }
    waiting = {run for (run,) in store.execute("SELECT run_id FROM task WHERE task_type = 'EVENT_WAIT'").fetchall()}
    waits: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for run, track, start, wait in store.execute(
        "SELECT run_id, track_id, start_ns, max(stream_wait_ns) FROM task WHERE kind = 'sync' GROUP BY ALL ORDER BY ALL"
    ).fetchall():
        waits[run, track].append((start, wait))
    ends: dict[tuple[int, int | None], int] = {}
    for run, device, track, id_, start, dur, submit, call, wait in store.execute(
        "SELECT run_id, device_id, track_id, id, start_ns, dur_ns, submit_ns, api_id, stream_wait_ns FROM task "
        "WHERE kind IS DISTINCT FROM 'sync' AND start_ns + dur_ns IS NOT NULL ORDER BY start_ns, dur_ns DESC, id"
    ).fetchall():
        end = ends.get((run, device))
        ends[run, device] = max(start + dur, start + dur if end is None else end)
        if end is None or start - end < LIMIT_NS:
            continue
        gap, cause, inner = start - end, None, None
        if submit is not None:
            around = slices[run, threads.get((run, call), -1)]
            in_gap = [one for one in waits[run, track] if end < one[0] < start]
            idle = min(wait or 0, gap) + sum(
                at - end if before is None else min(before, at - end) for at, before in in_gap[:1]
            )
            if submit <= end and wait is not None and wait != gap and not (run in waiting and 2 * idle > gap):
                cause = "dependency"
            elif submit - end < start - submit:
                cause = "launch"
            else:
                halves = [one for one in _at(around, end + (submit - end) // 2) if _is_half(one, end, submit)]
                inner = max(halves, key=lambda one: (one[0], -one[1], one[2]))[2] if halves else None
                syncs = [one for one in (*halves, *_at(around, end)) if _SYNCS.search(one[3])]
                loads = any(_LOADS.search(one[3]) for one in halves)
                cause = "data_loading" if loads else "synchronisation" if syncs else "host"
                if cause == "host" and inner is None and gap >= 1_000_000:
                    others = [
                        one
                        for one in loaders[run]
                        if one[0] <= end + (submit - end) // 2 <= one[1] and _is_half(one, end, submit)
                    ]
                    if others:
                        cause, inner = "data_loading", min(others, key=lambda one: (one[0], one[3]))[2]
        waited = None if submit is None else max(0, min(submit, start) - end)
        yield run, device, end, start, cause, waited, None if submit is None else start - submit, inner, id_


def _at(slices: list[Slice], at_ns: int) -> list[Slice]:
    """The slices that run at a time."""
    return [one for one in slices[: bisect_right(slices, (at_ns + 1,))] if one[1] > at_ns]


def _is_half(one: Slice, start_ns: int, end_ns: int) -> bool:
    """Whether a slice covers half of an interval."""
    return 2 * (min(one[1], end_ns) - max(one[0], start_ns)) >= end_ns - start_ns
