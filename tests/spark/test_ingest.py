"""`lake ingest` on Spark's executors: the lake of a local ingest, also with a damaged file and a killed executor."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from ingest_checks import all_rows

import traceconv
from benchmarks.fleet import Fleet

pytest.importorskip("pyspark", reason="needs traceconv[spark]")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("java") is None, reason="needs Java 17"),
]

MASTER = "local-cluster[2,1,1024]"


def rows_of(lake: Path, store: Path) -> dict[str, list[tuple[object, ...]]]:
    traceconv.ingest(lake, db=store)
    return all_rows(store)


def kill_an_executor(has_begun: Callable[[], bool], killed: list[int]) -> None:
    """Kill one of the JVMs that run tasks once the ingest has begun, with its Python processes."""
    until = time.monotonic() + 300
    while time.monotonic() < until and not has_begun():
        time.sleep(0.05)
    for process in psutil.Process().children(recursive=True):
        if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
            process.send_signal(signal.SIGKILL)
            killed.append(process.pid)
            return


def test_the_lake_is_that_of_a_local_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    traces, lake = tmp_path / "traces", tmp_path / "lake"
    Fleet(ranks=48, steps=20, seed=5).write(traces)
    local = traceconv.lake_ingest(traces, into=tmp_path / "local")
    (traces / "rank99.json").write_bytes(b"")
    killed: list[int] = []
    killer = threading.Thread(target=kill_an_executor, args=(lambda: any(lake.glob("_runs/*.json")), killed))
    killer.start()
    result = traceconv.lake_ingest(traces, into=lake, engine="spark", master=MASTER)
    killer.join()
    assert len(killed) == 1
    assert [one.path.name for one in result.unusable] == ["rank99.json"]
    # Those that a lost task had added before it was lost are kept.
    assert [(one.run_id, one.label) for one in result] == [(one.run_id, one.label) for one in local]
    assert len(result) == 48
    assert rows_of(lake, tmp_path / "a.duckdb") == rows_of(tmp_path / "local", tmp_path / "b.duckdb")
    again = traceconv.lake_ingest(traces, into=lake, engine="spark", master=MASTER)
    assert [one.action for one in again] == ["kept"] * 48
