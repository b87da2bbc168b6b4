"""Busy times, gaps, launches and queues of all real files equal plain sweeps over their tasks, calls and steps."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from recount.idle import idle_gaps
from shared_data import shared

from traceconv import Store, open_store
from traceconv.pipeline.ingest import ingest

REAL = shared("real")
pytestmark = pytest.mark.long

WORK = "FROM task WHERE kind IS DISTINCT FROM 'sync' AND start_ns IS NOT NULL"
#: The kinds of each union; None: all tasks.
KINDS: tuple[set[str] | None, ...] = (
    None, {"compute"}, {"copy"}, {"collective"}, {"compute", "collective"}, {"compute", "collective", "copy"},
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = tmp_path_factory.mktemp("real") / "trace.duckdb"
    ingest([REAL], path)
    with open_store(path) as opened:
        yield opened


def union(spans: list[tuple[int, int]]) -> list[list[int]]:
    found: list[list[int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(end, found[-1][1])
        else:
            found.append([start, end])
    return found


def test_parts_of_the_time_of_devices_and_steps(store: Store) -> None:
    spans = defaultdict(list)
    for run, device, kind, start, dur in store.query(
        f"SELECT run_id, device_id, kind, start_ns, dur_ns {WORK} AND dur_ns IS NOT NULL"
    ).fetchall():
        spans[run, device].append((kind, start, start + dur))
    unions = {
        of: [union([(a, b) for kind, a, b in mine if kinds is None or kind in kinds]) for kinds in KINDS]
        for of, mine in spans.items()
    }

    def check(row: dict[str, Any], low: int, high: int) -> None:
        busy, compute, copy, collective, work, known = (
            sum(max(0, min(b, high) - max(a, low)) for a, b in one) for one in unions[row["run_id"], row["device_id"]]
        )
        wanted = {
            "window": high - low, "busy": busy, "idle": high - low - busy, "compute": compute, "copy": copy,
            "collective": collective, "exposed_collective": work - compute,
            "overlapped_collective": collective - (work - compute), "exposed_copy": known - work, "other": busy - known,
        }  # fmt: skip
        assert {name: row[f"{name}_ns"] for name in wanted} == wanted, row

    draw = random.Random(1)
    for row in store.report("breakdown", run="all"):
        mine = spans[row["run_id"], row["device_id"]]
        low, high = min(a for _, a, _ in mine), max(b for *_, b in mine)
        check(row, low, high)
        start, end = sorted((draw.randint(low, high), draw.randint(low, high + 1)))
        if start < end:
            cut = store.report("breakdown", run=row["run_id"], device=row["device_id"], from_ns=start, to_ns=end)
            for part in cut:
                check(part, start, end)
    steps = list(store.report("step-breakdown", run="all"))
    assert len(steps) > 20
    for row in steps:
        check(row, row["start_ns"], row["end_ns"])


def test_gaps_and_their_causes(store: Store) -> None:
    columns = "run_id, device_id, start_ns, end_ns, cause, host_wait_ns, launch_delay_ns, host_id, task_id"
    rows = store.query(f"SELECT {columns} FROM idle_gaps").fetchall()
    with duckdb.connect(str(store.path), read_only=True) as connection:
        assert sorted(rows, key=str) == sorted(idle_gaps(connection), key=str)
    assert len(rows) > 10_000


def test_launches_and_queues(store: Store) -> None:
    calls = set(store.query("SELECT run_id, start_ns FROM api").fetchall())
    changes = defaultdict(list)
    for run, device, stream, id_, start, submit in store.query(
        f"SELECT run_id, device_id, stream_id, id, start_ns, submit_ns {WORK}"
    ).fetchall():
        if (run, submit) in calls:
            changes[run, device, stream] += [(submit, 0, start, id_), (start, 1, start, id_)]
    lengths, queues = {}, {}
    for of, mine in changes.items():
        length, after = 0, []
        for _, is_start, _, id_ in sorted(mine):
            length += -1 if is_start else 1
            after.append(length)
            if not is_start:
                lengths[of[0], id_] = length
        queues[of] = (len(after) // 2, min(after), max(after), statistics.median(after))
    rows = store.query("SELECT run_id, id, queue_length FROM launch").fetchall()
    assert {(run, id_): length for run, id_, length in rows} == lengths
    columns = "run_id, device_id, stream_id, task_count, min_length, max_length, p50_length"
    assert {row[:3]: row[3:] for row in store.query(f"SELECT {columns} FROM launch_queue").fetchall()} == queues
