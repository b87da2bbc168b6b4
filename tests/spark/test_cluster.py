"""`lake ingest` on a standalone cluster of two workers, into a bucket: processes that share no folder for the lake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from ingest_checks import all_rows
from processes import free_port, listens, wait_until
from s3_server import empty_bucket

import traceconv
from benchmarks.fleet import Fleet

pyspark = pytest.importorskip("pyspark", reason="not installed: pip install traceconv[spark]")
pytest.importorskip("fsspec", reason="not installed: pip install traceconv[s3]")
pytest.importorskip("moto", reason="not installed: pip install moto[server]")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed: Spark needs Java 17"),
]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The address of the master and that of an empty bucket."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        bucket = stack.enter_context(empty_bucket())

        def start(*words: str) -> subprocess.Popen[str]:
            log = stack.enter_context((tmp_path / f"{words[0].rpartition('.')[2]}.log").open("ab"))
            process = subprocess.Popen([script, *words], stdout=log, stderr=log, env=os.environ, text=True)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        options = ["--host", "127.0.0.1", "-p", str(port), "--webui-port", str(page)]
        process = start("org.apache.spark.deploy.master.Master", *options)
        wait_until(process, lambda: listens(port))
        worker = ["org.apache.spark.deploy.worker.Worker", master, "--host", "127.0.0.1", "-c", "1", "-m", "1g"]
        for number in range(2):
            start(*worker, "-d", str(tmp_path / f"worker{number}"), "--webui-port", str(free_port()))
        yield master, bucket


def test_the_lake_in_a_bucket_is_that_of_a_local_ingest(tmp_path: Path, cluster: tuple[str, str]) -> None:
    master, bucket = cluster
    traces, lake = tmp_path / "traces", bucket.format("some/lake")
    Fleet(ranks=24, steps=10, seed=5).write(traces)
    (traces / "rank99.json").write_bytes(b"")
    local = traceconv.lake_ingest(traces, into=tmp_path / "local")
    result = traceconv.lake_ingest(traces, into=lake, engine="spark", master=master)
    assert [one.path.name for one in result.unusable] == ["rank99.json"]
    assert [(one.run_id, one.label) for one in result] == [(one.run_id, one.label) for one in local]
    assert len(result) == 24
    executors = {path.parent.parent.name for path in tmp_path.glob("worker*/app-*/[0-9]*")}
    assert executors == {"worker0", "worker1"}
    for place, store in ((lake, "spark.duckdb"), (tmp_path / "local", "local.duckdb")):
        traceconv.ingest(place, db=tmp_path / store)
    assert all_rows(tmp_path / "spark.duckdb") == all_rows(tmp_path / "local.duckdb")
    again = traceconv.lake_ingest(traces, into=lake, engine="spark", master=master)
    assert [one.action for one in again] == ["kept"] * 24
