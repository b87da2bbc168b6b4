"""Queues of streams equal a count over all launches and starts, wherever the pass over them is cut."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from traceconv.base.integers import LARGEST
from traceconv.store import queue_tables
from traceconv.store.database import open_store
from traceconv.store.derived_tables import fill_derived_tables

MakeStore = Callable[..., Path]
Task = dict[str, Any]


def random_tasks(draw: random.Random, times: list[int]) -> list[Task]:
    tasks: list[Task] = []
    delays = draw.choice([None, [0, 1, 5], [-2, 0, 9]])
    for n in range(draw.choice([1, 40, 200])):
        submit_ns = draw.choice([None, *times, *times])
        start_ns = draw.choice([None, *times, *times])
        if delays is not None and submit_ns is not None and abs(submit_ns) < 1000:
            start_ns = submit_ns + draw.choice(delays)
        tasks.append(
            {
                "id": n, "run_id": draw.choice([1, 1, 2]), "device_id": draw.choice([0, 1, None]),
                "stream_id": draw.choice([3, None]), "kind": draw.choice(["compute", None, "sync"]), "name": "x",
                "submit_ns": submit_ns, "start_ns": start_ns, "dur_ns": 0,
                "api_id": None if submit_ns is None else 7, "call_ns": 2,
            }
        )  # fmt: skip
    draw.shuffle(tasks)
    return tasks


def by_stream(tasks: list[Task]) -> dict[tuple[Any, ...], list[Task]]:
    found = defaultdict(list)
    for task in tasks:
        if task["kind"] != "sync" and task["submit_ns"] is not None and task["start_ns"] is not None:
            found[task["run_id"], task["device_id"], task["stream_id"]].append(task)
    return found


def length_after(task: Task, stream: list[Task]) -> int:
    def order(one: Task) -> tuple[int, int, int]:
        return one["submit_ns"], one["start_ns"], one["id"]

    launched = sum(order(one) <= order(task) for one in stream)
    return launched - sum(one["start_ns"] < task["submit_ns"] for one in stream)


def statistics_of(stream: list[Task]) -> dict[str, Any]:
    changes = sorted([(t["submit_ns"], 0) for t in stream] + [(t["start_ns"], 1) for t in stream])
    lengths, times, length = [], [ts_ns for ts_ns, _ in changes], 0
    for _, is_start in changes:
        length += -1 if is_start else 1
        lengths.append(length)
    lasts = [after - before for before, after in pairwise(times)]
    quarters = statistics.quantiles(lengths, n=4, method="inclusive")
    span = times[-1] - times[0]
    area = sum(length * last for length, last in zip(lengths, lasts, strict=False))
    empty = sum(last for length, last in zip(lengths, lasts, strict=False) if not length)
    return {
        "task_count": len(stream),
        "avg_length": pytest.approx(statistics.fmean(lengths), abs=1e-12),
        "std_length": pytest.approx(statistics.stdev(lengths)),
        "min_length": min(lengths),
        **dict(zip(("p25_length", "p50_length", "p75_length"), quarters, strict=True)),
        "max_length": max(lengths),
        "time_avg_length": pytest.approx(area / span, abs=0.0006) if span else None,
        "empty_percent": pytest.approx(100 * empty / span) if span else None,
    }


def rows_of(connection: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    rows = [
        (table, str(row)) for table, batch in queue_tables.queue_rows(connection, [1, 2]) for row in batch.to_pylist()
    ]
    return tuple(sorted(rows))


@pytest.mark.parametrize(
    ("seed", "stretch_rows"),
    [
        pytest.param(seed, stretch_rows, marks=() if (seed + place) % 3 == 0 else pytest.mark.long)
        for seed in range(6)
        for place, stretch_rows in enumerate((1, 7, 500_000))
    ],
)
def test_queue_lengths(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, seed: int, stretch_rows: int) -> None:
    draw = random.Random(seed)
    extreme = [-LARGEST, LARGEST, 0, LARGEST - 1]
    tasks = random_tasks(draw, [draw.randrange(300) for _ in range(60)] + (extreme if seed == 5 else []))
    path = make_store(run=[{"run_id": 1}, {"run_id": 2}], task=tasks)
    monkeypatch.setattr(queue_tables, "_STRETCH_ROWS", stretch_rows)
    with open_store(path, read_only=False) as connection:
        rows = set()
        for part_rows in (1, 3, 40, stretch_rows):
            monkeypatch.setattr(queue_tables, "_PART_ROWS", min(part_rows, stretch_rows))
            rows.add(rows_of(connection))
        assert len(rows) == 1
        fill_derived_tables(connection)
        streams = by_stream(tasks)
        found = dict(connection.execute("SELECT id, queue_length FROM launch WHERE start_ns IS NOT NULL").fetchall())
        assert found == {one["id"]: length_after(one, stream) for stream in streams.values() for one in stream}
        reordered = connection.execute("SELECT id FROM reordered_task ORDER BY id").fetchall()
        assert [id_ for (id_,) in reordered] == sorted(
            one["id"]
            for stream in streams.values()
            for one in stream
            if any(t["start_ns"] < one["start_ns"] and t["submit_ns"] > one["submit_ns"] for t in stream)
        )
        windows: list[tuple[int | None, int | None]] = [(None, None), (50, None), (None, 200), (40, 220)]
        for from_ns, to_ns in windows:
            inside = [
                task
                for task in tasks
                if task["submit_ns"] is not None
                and (from_ns is None or task["submit_ns"] >= from_ns)
                and (to_ns is None or task["submit_ns"] < to_ns)
            ]
            rows = connection.execute("FROM launch_queue(from_ns := ?, to_ns := ?)", [from_ns, to_ns])
            names = [column for column, *_ in rows.description or ()]
            answers = {row[:3]: dict(zip(names[3:], row[3:], strict=True)) for row in rows.fetchall()}
            wanted = {key: statistics_of(stream) for key, stream in by_stream(inside).items()}
            assert answers == wanted


def test_rows_of_all_runs_come_together(make_store: MakeStore) -> None:
    tasks = [
        {"id": run, "run_id": run, "kind": "compute", "name": "x", "submit_ns": 1, "start_ns": 2, "dur_ns": 3}
        for run in range(1, 6)
    ]
    path = make_store(run=[{"run_id": run} for run in range(1, 6)], task=tasks)
    with open_store(path) as connection:
        found = [(table, batch.num_rows) for table, batch in queue_tables.queue_rows(connection, range(1, 6))]
    assert found == [("task_queue", 5), ("reordered_task", 0), ("stream_queue", 10)]
