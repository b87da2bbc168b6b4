"""The same time, counted five ways: three reports, the store's tasks, and the raw records by an independent reader."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from statistics import median_low

import pytest


def _traceconv(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "traceconv", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(capture, store) of a real network."""
    folder = tmp_path_factory.mktemp("walk")
    capture = Path(
        _traceconv("record", "squeezenet", "-o", folder, "--iterations", "2", "--deterministic", "--seed", "3").strip()
    )
    store = folder / "trace.duckdb"
    _traceconv("ingest", capture, "--db", store)
    return capture, store


def _rows(store: Path, report: str, *options: str) -> list[dict[str, object]]:
    text = _traceconv("report", report, "--db", store, "--format", "json", *options)
    return list(json.loads(text))


def _dumped(capture: Path, record: str) -> list[dict[str, int]]:
    return [json.loads(line) for line in _traceconv("dump", capture, "--type", record, "--json").splitlines()]


class _Clock:
    """The alignment as docs/explanation/clock.md defines it, in fractions: no line of it is shared with ingest."""

    def __init__(self, syncs: list[dict[str, int]], offset_ns: int) -> None:
        points = []
        for sync in sorted(syncs, key=lambda sync: sync["ticks"]):
            before, after = sync["host_before_ns"], sync["host_after_ns"]
            points.append((sync["ticks"], before + (after - before) // 2, (after - before + 1) // 2))
        halves = sorted(half for _, _, half in points)
        middle = (median_low(halves) + sorted(halves)[len(halves) // 2]) / 2
        self.points = [(ticks, host) for ticks, host, half in points if half <= max(4 * int(middle), 1)]
        self.offset_ns = offset_ns

    def ns(self, ticks: int) -> int:
        index = max(i for i, (at, _) in enumerate(self.points[:-1]) if i == 0 or at <= ticks)
        (t0, h0), (t1, h1) = self.points[index], self.points[index + 1]
        return (h0 + (ticks - t0) * Fraction(h1 - h0, t1 - t0)).__floor__() + self.offset_ns


def _raw_tasks(capture: Path) -> list[tuple[str, int | None, int]]:
    """(task type, op, duration in ns) of each task, from the dumped records alone."""
    [start] = _dumped(capture, "capture")
    clock = _Clock(_dumped(capture, "sync"), start["epoch_ns"] - start["host_ns"])
    begun: dict[int, dict[str, int]] = {}
    tasks = []
    for half in _dumped(capture, "task"):
        if half["event"] == "start":
            begun[half["task_id"]] = half
        else:
            first = begun.pop(half["task_id"])
            tasks.append(
                (str(first["task_type"]), first["op_index"], clock.ns(half["ticks"]) - clock.ns(first["ticks"]))
            )
    assert not begun
    return tasks


def test_operators_have_the_same_total_in_three_reports_and_in_the_raw_records(walk: tuple[Path, Path]) -> None:
    capture, store = walk
    statistic = sum(int(str(row["total_ns"])) for row in _rows(store, "op-statistic"))
    summary = sum(int(str(row["dur_ns"])) for row in _rows(store, "op-summary"))
    query = "SELECT sum(dur_ns)::BIGINT AS total FROM task_time WHERE op_id IS NOT NULL"
    [by_task] = json.loads(_traceconv("query", query, "--db", store, "--format", "json"))
    raw = sum(dur for _, op, dur in _raw_tasks(capture) if op is not None)
    assert statistic == summary == by_task["total"] == raw > 0


def test_every_task_type_has_the_same_total_in_task_time_and_in_the_raw_records(walk: tuple[Path, Path]) -> None:
    capture, store = walk
    raw: dict[str, int] = defaultdict(int)
    for task_type, _, dur in _raw_tasks(capture):
        raw[task_type] += dur
    reported: dict[str, int] = defaultdict(int)
    for row in _rows(store, "task-time"):
        reported[str(row["task_type"])] += int(str(row["dur_ns"]))
    assert dict(reported) == dict(raw)
    assert {"SDMA", "AI_CORE", "AI_VECTOR_CORE", "EVENT_WAIT"} <= set(raw)
