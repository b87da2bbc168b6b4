"""task.wait_ns: between the rows of op_summary of a device, over all its streams, as vendors' tables have it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import duckdb
import numpy as np
import pytest
from vendor_recording import made_up, timeline

from traceconv.normalize import table_waits
from traceconv.normalize.table_waits import TableWaits
from traceconv.pipeline import ingest

Row = tuple[int, int, int, bool]


def recounted(rows: list[Row]) -> dict[int, int | None]:
    """Of rows (id, start, end, without an end), the slow way."""
    found: dict[int, int | None] = {}
    before: Row | None = None
    for row in sorted(rows, key=lambda row: (row[1], row[0])):
        unknown = before is not None and before[3]
        found[row[0]] = None if unknown else 0 if before is None else max(0, row[1] - before[2])
        before = row
    return found


@pytest.mark.parametrize("seed", range(20))
def test_tasks_that_come_as_they_end_wait_for_the_one_before_by_start(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the batches. A task that begins before all that is kept is not put right, and that is said."""
    rng = random.Random(seed)
    monkeypatch.setattr(table_waits, "_KEPT", kept := rng.choice((3, 20, 4096)))
    rows: list[Row] = []
    for number in range(300):
        start = number * 10 + rng.randrange(30)
        rows.append((number, start, start + rng.choice((0, 3, 9, 200)), rng.random() < 0.02))
    rows.sort(key=lambda row: (row[2], row[0]))
    waits, found = TableWaits(), {}
    while rows[len(found) :]:
        part = rows[len(found) : len(found) + rng.randrange(1, 40)]
        ids, starts, ends = (np.array([row[place] for row in part], np.int64) for place in range(3))
        wait, unknown = waits.take(ids, starts, ends, np.array([row[3] for row in part], np.bool_))
        found.update(zip(ids.tolist(), [None if no else ns for ns, no in zip(wait, unknown, strict=True)], strict=True))
    right = {**found, **waits.changed} == recounted(rows)
    assert right or waits.late
    assert right or kept < 4096


def test_a_timeline_has_the_waits_between_rows_of_each_device(tmp_path: Path) -> None:
    recording = made_up(5, devices=(0, 1))
    out = tmp_path / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out / "trace_view.json").write_text(json.dumps(timeline(recording, 1, labels=True)), encoding="utf-8")
    ingest([out], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        query = "SELECT device_id, id, start_ns, start_ns + dur_ns, wait_ns FROM task WHERE kind <> 'sync' ORDER BY ALL"
        tasks = store.execute(query).fetchall()
        others = store.execute("SELECT DISTINCT wait_ns FROM task WHERE kind = 'sync'").fetchall()
        shown = store.execute("SELECT id, wait_ns FROM op_summary").fetchall()
    assert others == [(None,)]
    expected: dict[int, int | None] = {}
    for device in (0, 1):
        expected |= recounted([(number, start, end, False) for dev, number, start, end, _ in tasks if dev == device])
    assert {number: wait for _, number, _, _, wait in tasks} == expected
    assert dict(shown).items() <= expected.items()
