"""The Python API: the walk of the README, in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import traceconv
from tests.capture_builder import CaptureBuilder
from tests.store_builder import build_store
from traceconv.errors import InputError, StoreError, UsageError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two runs; the second has one operator of 500 ns."""
    for number, end in ((1, 1_010), (2, 1_050)):
        builder = CaptureBuilder(tmp_path / f"capture{number}")
        builder.add("op", name="conv", op_type="Conv2D", op_index=0)
        for at in range(4):
            builder.sync(1_000 + at * 100, 10_000 + at * 1_000)
        builder.task(1, 1_000, end, op_index=0).close()
    path = tmp_path / "trace.duckdb"
    runs = traceconv.ingest(tmp_path / "capture1", tmp_path / "capture2", db=path)
    assert [run.run_id for run in runs] == [1, 2]
    return path


def test_a_report_is_on_the_latest_run_or_on_the_one_named(store: Path) -> None:
    with traceconv.open_store(store) as opened:
        assert [row["total_ns"] for row in opened.report("op-statistic")] == [500]
        assert [row["total_ns"] for row in opened.report("op_statistic", run="capture1")] == [100]
        both = opened.report("op-statistic", run="all", columns=["run_id", "total_ns"])
        assert list(both) == [{"run_id": 1, "total_ns": 100}, {"run_id": 2, "total_ns": 500}]
        assert list(opened.report("task-time", filters={"name": "none"})) == []
        assert len(list(opened.report("task-time", filters={"dur_ns": 500, "op_id": 0}))) == 1
        assert len(list(opened.report("task-time", filters=["dur_ns>=0.5us", "name~^co"]))) == 1
        assert list(opened.report("task-time", filters=["dur_ns>500"])) == []
        assert opened.query("SELECT count(*) FROM task").fetchall() == [(2,)]


def test_a_wrong_name_is_answered_with_the_near_one(store: Path) -> None:
    with traceconv.open_store(store) as opened:
        with pytest.raises(UsageError, match="op-statistic"):
            list(opened.report("op-statistics"))
        with pytest.raises(UsageError, match="no parameter 'stream'"):
            list(opened.report("op-statistic", stream=1))
        with pytest.raises(UsageError, match="Did you mean 'capture2'"):
            list(opened.report("op-statistic", run="captur2"))
    with pytest.raises(StoreError, match="no store"):
        traceconv.open_store(store.with_name("other.duckdb"))


def test_a_chrome_trace_is_of_one_run(store: Path, tmp_path: Path) -> None:
    with traceconv.open_store(store) as opened:
        opened.export_chrome(tmp_path / "trace.json", run=1)
        with pytest.raises(UsageError, match="one run"):
            opened.export_chrome(tmp_path / "all.json", run="all")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["dur"] for event in events if event["ph"] == "X" and event["name"] == "conv"] == [0.1]


def test_a_picture_of_memory_is_of_one_run(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.duckdb"
    memory = [{"block_id": 1, "kind": "block", "address": 0, "size_bytes": 64, "alloc_ns": 1, "free_ns": 5}]
    build_store(path, memory=memory, run=[{"run_id": 1, "start_ns": 0, "label": "one"}])
    with traceconv.open_store(path) as opened:
        opened.export_memory_flow(tmp_path / "memory.svg", device=0)
        with pytest.raises(UsageError, match="one run"):
            opened.export_memory_flow(tmp_path / "all.svg", run="all")
        with pytest.raises(UsageError, match="no memory log of device 7"):
            opened.export_memory_flow(tmp_path / "all.svg", device=7)
    assert "<svg" in (tmp_path / "memory.svg").read_text()
    with traceconv.open_store(store) as opened, pytest.raises(InputError, match="no memory log"):
        opened.export_memory_flow(tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, traceconv; print([m for m in ('numpy', 'duckdb', 'pyarrow', 'onnx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
