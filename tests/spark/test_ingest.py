"""`lake ingest` on Spark's executors: the lake of a local ingest, also with a damaged file and a killed executor."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from commands import Command
from ingest_checks import all_rows
from processes import TRACECONV

import traceconv
from benchmarks.fleet import Fleet

pytest.importorskip("pyspark", reason="not installed: pip install traceconv[spark]")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed: Spark needs Java 17"),
]

from py4j.protocol import Py4JError  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

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
        with suppress(psutil.NoSuchProcess):  # one that has ended meanwhile, also a zombie
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


def test_only_errors_of_spark_are_shown(tmp_path: Path) -> None:
    trace = Path(__file__).parents[2] / "sample_traces" / "pytorch"
    words = [
        "lake",
        "ingest",
        str(trace),
        "--into",
        str(tmp_path / "lake"),
        "--engine",
        "spark",
        "--master",
        "local[1]",
    ]
    # A process of its own, since one starts Java once.
    done = subprocess.run([*TRACECONV, *words], capture_output=True, text=True, check=True)
    # Java writes this line before it reads any configuration.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Using incubator modules")]
    assert [line for line in lines if "log level" in line or "WARN" in line] == []


def test_a_master_that_does_not_answer(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark stops after a minute, with this error."""

    def stop(_: object) -> None:
        raise Py4JError("An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n: java.lang")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", stop)
    trace = Path(__file__).parents[2] / "sample_traces" / "pytorch"
    words = ["lake", "ingest", str(trace), "--into", str(tmp_path / "lake"), "--engine", "spark", "--master"]
    shown = command(*words, "spark://127.0.0.1:1", code=2).err
    assert shown.startswith("traceconv: can't start Spark on spark://127.0.0.1:1: ")
    assert shown.count("\n") == 1
