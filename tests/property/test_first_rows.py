"""The first rows of a report by any column, which are picked before the others are computed, are those of all rows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from store_builder import build_store

import traceconv

TASKS = 30


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[traceconv.Store]:
    """Run 1 has tasks, with ties in every column; run 2 has ops and memory only."""
    draw = random.Random(7)
    blocks = [
        {"block_id": n, "run_id": n % 2 + 1, "kind": "block", "op_id": draw.randrange(3),
         "size_bytes": draw.randrange(3),
         "alloc_ns": draw.randrange(90), "free_ns": draw.choice([None, 100])}
        for n in range(60)
    ]  # fmt: skip
    times = [draw.randrange(80) for _ in range(TASKS)]
    path = build_store(
        tmp_path_factory.mktemp("store") / "store.duckdb",
        op=[{"op_id": n, "run_id": run, "name": f"op{n}", "op_type": "AB"[n % 2]} for n in range(3) for run in (1, 2)],
        memory=blocks,
        api=[
            {"id": 100 + n, "correlation_id": n, "start_ns": ns, "dur_ns": draw.randrange(4)}
            for n, ns in enumerate(times)
        ],
        task=[
            {"id": n, "op_id": draw.choice([0, 1, 2, None]), "start_ns": ns + draw.randrange(9), "submit_ns": ns,
             "correlation_id": n, "dur_ns": draw.choice([None, 1, 2]), "kind": "compute", "track_id": n % 2,
             "stream_id": n % 2}
            for n, ns in enumerate(times)
        ],
        task_pmu=[
            {"id": n, "metric_group": group, "aic_total_cycles": 9, "aic_mac_cycles": draw.choice([None, 1, 2])}
            for n in range(TASKS)
            for group in draw.choice([[], ["PipeUtilization"], ["Memory", "PipeUtilization"]])
        ],
    )  # fmt: skip
    with traceconv.open_store(path) as opened:
        yield opened


@pytest.mark.parametrize("run", [1, 2])
@pytest.mark.parametrize("name", ["op-summary", "task-time", "launch", "memory-trace"])
def test_first_rows_by_each_column(store: traceconv.Store, name: str, run: int) -> None:
    every = [dict(row) for row in store.report(name, run=run)]
    assert len(every) > 5 or (run, name) in [(2, "op-summary"), (2, "task-time"), (2, "launch")]
    empty = [column for column in every[0] if all(row[column] is None for row in every)] if every else []
    # Columns without values sort alike. Op-summary has a hundred columns: most of them are sorted one way.
    for place, column in enumerate(every[0] if every else ()):
        for direction in (
            () if column in empty[2:] else ("ASC", "DESC") if place < 12 else (("ASC", "DESC")[place % 2],)
        ):
            known = [row for row in every if row[column] is not None]
            known.sort(key=lambda row: row[column], reverse=direction == "DESC")
            wanted = [*known, *(row for row in every if row[column] is None)]
            found = store.report(name, run=run, order_by=f"{column} {direction}", top=5)
            assert [dict(row) for row in found] == wanted[:5]
