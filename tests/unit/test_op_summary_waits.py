"""task.wait_ns: the gap between rows of op_summary of a device, across its streams, as in vendors' tables."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from ingest_checks import taken
from stores import query
from vendor_recording import made_up, timeline

from traceconv.formats.chrome_json import parser
from traceconv.normalize import op_summary_waits
from traceconv.normalize.op_summary_waits import OpSummaryWaits
from traceconv.normalize.trace import spill
from traceconv.pipeline.ingest import ingest
from traceconv.store.writer import StoreWriter

Row = tuple[int, int, int, bool]


def recounted(rows: list[Row]) -> dict[int, int | None]:
    """Compute the waits of rows (id, start, end, endless) one by one."""
    found: dict[int, int | None] = {}
    before: Row | None = None
    for row in sorted(rows, key=lambda row: (row[1], row[0])):
        unknown = before is not None and before[3]
        found[row[0]] = None if unknown else 0 if before is None else max(0, row[1] - before[2])
        before = row
    return found


@pytest.mark.parametrize("seed", range(20))
def test_waits_of_tasks_in_the_order_of_their_ends_follow_the_order_of_starts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any batches. A task that begins before all retained rows is reported as late."""
    rng = random.Random(seed)
    monkeypatch.setattr(op_summary_waits, "_KEPT", kept := rng.choice((3, 20, 4096)))
    rows: list[Row] = []
    for number in range(300):
        start = number * 10 + rng.randrange(30)
        rows.append((number, start, start + rng.choice((0, 3, 9, 200)), rng.random() < 0.02))
    rows.sort(key=lambda row: (row[2], row[0]))
    waits, found = OpSummaryWaits(), {}
    while rows[len(found) :]:
        part = rows[len(found) : len(found) + rng.randrange(1, 40)]
        ids, starts, ends = (np.array([row[place] for row in part], np.int64) for place in range(3))
        wait, unknown = waits.take(ids, starts, ends, np.array([row[3] for row in part], np.bool_))
        found.update(zip(ids.tolist(), [None if no else ns for ns, no in zip(wait, unknown, strict=True)], strict=True))
    right = {**found, **waits.changed} == recounted(rows)
    assert right or waits.late
    assert right or kept < 4096


def test_a_timeline_has_waits_between_the_rows_of_each_device(tmp_path: Path) -> None:
    recording = made_up(5, devices=(0, 1))
    out = tmp_path / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out / "trace_view.json").write_text(json.dumps(timeline(recording, 1, labels=True)), encoding="utf-8")
    ingest([out], tmp_path / "trace.duckdb")
    store = tmp_path / "trace.duckdb"
    sql = "SELECT device_id, id, start_ns, start_ns + dur_ns, wait_ns FROM task WHERE kind <> 'sync' ORDER BY ALL"
    tasks = query(store, sql)
    others = query(store, "SELECT DISTINCT wait_ns FROM task WHERE kind = 'sync'")
    shown = query(store, "SELECT id, wait_ns FROM op_summary")
    assert others == [(None,)]
    expected: dict[int, int | None] = {}
    for device in (0, 1):
        expected |= recounted([(number, start, end, False) for dev, number, start, end, _ in tasks if dev == device])
    assert {number: wait for _, number, _, _, wait in tasks} == expected
    assert dict(shown).items() <= expected.items()


def _kernels(rng: random.Random, lateness: int) -> list[dict[str, object]]:
    """Return kernels on streams of two devices and an unknown one, up to `lateness` µs late; a few have no end."""
    events: list[tuple[float, dict[str, object]]] = []
    for number in range(400):
        device = rng.choice((0, 1, None))
        device_args = {} if device is None else {"device": device}
        stream = rng.randrange(3)
        event: dict[str, object] = {"cat": "kernel", "name": f"kernel {number % 7}", "pid": str(device), "tid": stream}
        event |= {"ts": 1000 + 10 * number, "args": {"stream": stream, "correlation": number, **device_args}}
        event |= {"ph": "B"} if rng.random() < 0.02 else {"ph": "X", "dur": rng.choice((0, 5, 9, 31))}
        events.append((10 * number + rng.random() * lateness, event))
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


@pytest.mark.parametrize("seed", range(6))
def test_waits_of_each_device_depend_neither_on_the_order_nor_on_the_batches(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordered rows are written once; waits of rows in another order are corrected."""
    rng = random.Random(seed)
    lateness = (0, 40, 3000)[seed % 3]
    monkeypatch.setattr(op_summary_waits, "_KEPT", 30)
    monkeypatch.setattr(parser, "CHUNK_BYTES", rng.randrange(500, 5000))
    monkeypatch.setattr(parser, "_BATCH_BYTES", 500)
    monkeypatch.setattr(spill, "_BATCH_ROWS", 1)
    updates: list[str] = []
    run_sql = StoreWriter.run_sql

    def noting(self: StoreWriter, statement: str, parameters: object = None) -> None:
        updates.extend([statement] if "SET wait_ns" in statement else [])
        run_sql(self, statement, parameters)  # type: ignore[arg-type]  # passed on as it is

    monkeypatch.setattr(StoreWriter, "run_sql", noting)
    _, store = taken({"deviceProperties": [], "traceEvents": _kernels(rng, lateness)}, tmp_path)
    sql = "SELECT device_id, id, start_ns, coalesce(start_ns + dur_ns, 0), dur_ns IS NULL, wait_ns FROM task"
    tasks = query(store, sql)
    assert len(tasks) == 400
    expected: dict[int, int | None] = {}
    for device in (0, 1, None):
        expected |= recounted([task[1:5] for task in tasks if task[0] == device])
    assert {task[1]: task[5] for task in tasks} == expected
    assert bool(updates) == (lateness > 0)
