"""Causes of idle gaps, computed in ranges of time, equal a recount of each gap, also with slices that overlap."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from recount.idle import idle_gaps

from traceconv.normalize.sort.spool import Spool
from traceconv.store import gap_tables

UNIT = 2500
NAMES = ("aten::item", "cudaStreamSynchronize", "enumerate(DataLoader)#__next__", "get_next", "forward", None)


@pytest.mark.parametrize("seed", range(6))
def test_causes_equal_a_recount(make_store: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    length = draw.choice([100, 300])
    apis: list[dict[str, Any]] = [
        {
            "id": n, "run_id": draw.choice([1, 1, 2]), "track_id": draw.randrange(3), "name": draw.choice(NAMES),
            "start_ns": draw.randrange(length) * UNIT, "dur_ns": draw.choice([0, 1, 2, 5, 40]) * UNIT,
            "correlation_id": n, "depth": 0,
        }
        for n in range(1, 120)
    ]  # fmt: skip
    ranges = [
        {**api, "id": 1000 + n, "start_ns": draw.randrange(length) * UNIT, "dur_ns": draw.choice([1, 3, 9, 80]) * UNIT}
        for n, api in enumerate(apis)
    ]
    for one in ranges:
        del one["correlation_id"]
    tasks = []
    for n in range(150):
        api = draw.choice([*apis, {"run_id": draw.choice([1, 2]), "start_ns": draw.choice([None, 7 * UNIT])}])
        submit = api["start_ns"]
        start = draw.randrange(length) * UNIT if submit is None else submit + draw.randrange(-2, 30) * UNIT
        tasks.append({
            "id": 2000 + n, "run_id": api["run_id"], "device_id": draw.choice([0, 1, None]), "name": f"k{n}",
            "kind": draw.choice(["compute", "copy", "sync", None]), "start_ns": start,
            "dur_ns": draw.choice([None, 0, UNIT, 2 * UNIT]), "submit_ns": submit,
            "correlation_id": api.get("correlation_id"), "stream_wait_ns": draw.choice([None, 5 * UNIT]),
        })  # fmt: skip
    monkeypatch.setattr(gap_tables, "_CHUNK_ROWS", draw.choice([5, 50]))
    monkeypatch.setattr(Spool, "CHUNK_ROWS", draw.choice([3, 1000]))
    columns = "run_id, device_id, start_ns, end_ns, cause, host_wait_ns, launch_delay_ns, host_id, task_id"
    with duckdb.connect(str(make_store(task=tasks, api=apis, range=ranges)), read_only=True) as store:
        rows = store.execute(f"SELECT {columns} FROM idle_gaps").fetchall()
        assert sorted(rows, key=str) == sorted(idle_gaps(store), key=str)
        assert len({row[4] for row in rows}) > 3
        names = store.execute(
            "SELECT count(*) FROM idle_gaps AS g JOIN task AS t ON t.run_id = g.run_id AND t.id = g.task_id "
            "LEFT JOIN slice AS s ON s.run_id = g.run_id AND s.id = g.host_id "
            "WHERE g.host_name IS NOT DISTINCT FROM s.name AND g.task_name = t.name"
        ).fetchall()
        assert names == [(len(rows),)]
